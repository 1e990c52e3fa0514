//! A block whose IPSlice this process deletes.

use capi_ipam_api::Scope;
use capi_ipam_ip::Block;

use crate::in_cluster::shared_ledger::SharedLedger;

/// As long as this exists, this process allocates no address of a block whose slice it deletes. The
/// deletion can also end because the task is aborted, when the settings of the registry change.
pub(super) struct Returning<'a> {
    ledger: &'a SharedLedger,
    scope: Scope,
    block: Block,
    uid: &'a str,
}

impl<'a> Returning<'a> {
    /// `None` if an address of the block is not free, or if the slice is another one.
    pub(super) fn begin(
        ledger: &'a SharedLedger,
        network: &str,
        block: Block,
        uid: &'a str,
    ) -> Option<Self> {
        let scope = Scope::Network(network.into());
        let began = ledger.change(|ledger| ledger.begin_slice_return(&scope, block, uid));
        began.then_some(Self {
            ledger,
            scope,
            block,
            uid,
        })
    }
}

impl Drop for Returning<'_> {
    fn drop(&mut self) {
        // Without effect on a slice that was deleted.
        self.ledger
            .change(|ledger| ledger.cancel_slice_return(&self.scope, self.block, self.uid));
    }
}

#[cfg(test)]
mod tests {
    use capi_ipam_api::IPSlice;
    use serde_json::json;

    use super::*;

    #[test]
    fn aborted_return_leaves_the_block_usable() {
        let block = Block::new([10, 0, 0, 4].into(), 30);
        let ledger = SharedLedger::read_only();
        let slice: IPSlice = serde_json::from_value(json!({
            "metadata": {"name": "n.lab.10.0.0.4-30", "uid": "s", "resourceVersion": "5"},
            "spec": {"scope": "n.lab", "block": "10.0.0.4/30",
                     "owner": {"kind": "ManagementCluster", "name": "west"},
                     "assignedAt": "2026-01-01T00:00:00Z", "confirmedAt": "2026-01-01T00:00:00Z"},
        }))
        .expect("the slice is valid");
        ledger.change(|ledger| {
            ledger.set_management_cluster("site", "west");
            ledger.insert_slice(&slice);
        });
        let is_usable = || ledger.read(|ledger| ledger.is_block_usable("lab", block));
        assert!(is_usable());

        assert!(Returning::begin(&ledger, "lab", block, "another").is_none());
        let returning = Returning::begin(&ledger, "lab", block, "s");
        assert!(returning.is_some());
        assert!(!is_usable());
        drop(returning);
        assert!(is_usable());

        // The deletion has succeeded.
        let returning = Returning::begin(&ledger, "lab", block, "s");
        ledger.change(|ledger| ledger.remove_slice_of(&Scope::Network("lab".into()), block, "s"));
        drop(returning);
        let slice = ledger.read(|ledger| ledger.slice_of_block("lab", block));
        assert!(slice.is_none());
    }
}
