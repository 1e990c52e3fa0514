//! The state of the cluster that admission reads.

use capi_ipam_ledger::Ledger;

/// The state of the cluster that admission reads. It can lag behind: admission reports mistakes
/// early, and nothing depends on it for safety.
pub trait View: Send + Sync + 'static {
    /// Calls `read` with the ledger, unless not all objects have been listed yet. The ledger can be
    /// locked meanwhile.
    fn with_ledger(&self, read: &mut dyn FnMut(&Ledger));
}

impl dyn View {
    /// Reads the ledger; `None` if not all objects have been listed yet.
    pub(super) fn read<R>(&self, read: impl FnOnce(&Ledger) -> R) -> Option<R> {
        let mut read = Some(read);
        let mut result = None;
        self.with_ledger(&mut |ledger| {
            if let Some(read) = read.take() {
                result = Some(read(ledger));
            }
        });
        result
    }
}
