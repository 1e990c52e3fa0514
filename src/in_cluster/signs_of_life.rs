//! Since when the watches of registries have shown what this process has written.
//!
//! An address whose claim has disappeared can be in use in another management cluster: `clusterctl
//! move` deletes the claim here after it has created it there. The other one reports in the
//! registry that it uses the address. So this process frees it only after the watch of the registry
//! has shown a sign of life that was written after the claim was found missing: then it has shown
//! everything that was written before.

use std::collections::HashMap;
use std::time::Instant;

use parking_lot::Mutex;

/// The signs of life of this process, by registry.
#[derive(Debug, Default)]
pub(super) struct SignsOfLife(Mutex<HashMap<String, Contact>>);

#[derive(Debug, Default)]
struct Contact {
    /// When the last write began that the watch has shown.
    seen: Option<Instant>,
    /// A sign of life that begins at this time or later is waited for.
    wanted: Option<Instant>,
}

impl SignsOfLife {
    /// Whether the watch of a registry has shown a write that began at `since` or later. If not,
    /// one is written soon.
    pub(super) fn is_seen_since(&self, registry: &str, since: Instant) -> bool {
        let mut contacts = self.0.lock();
        let contact = contacts.entry(registry.to_owned()).or_default();
        if contact.seen.is_some_and(|seen| seen >= since) {
            return true;
        }
        contact.wanted = contact.wanted.max(Some(since));
        false
    }

    /// Whether a sign of life has to be written that begins now.
    pub(super) fn is_wanted(&self, registry: &str) -> bool {
        let contacts = self.0.lock();
        contacts
            .get(registry)
            .is_some_and(|contact| contact.wanted.is_some())
    }

    /// Records that the watch has shown a write that began at `began`.
    pub(super) fn seen(&self, registry: &str, began: Instant) {
        let mut contacts = self.0.lock();
        let contact = contacts.entry(registry.to_owned()).or_default();
        contact.seen = contact.seen.max(Some(began));
        contact.wanted = contact.wanted.filter(|wanted| *wanted > began);
    }

    /// Forgets a registry: another one has its name.
    pub(super) fn forget(&self, registry: &str) {
        self.0.lock().remove(registry);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_a_later_write_counts() {
        let signs = SignsOfLife::default();
        let found = Instant::now();
        assert!(!signs.is_wanted("site"));
        assert!(!signs.is_seen_since("site", found));
        assert!(signs.is_wanted("site") && !signs.is_wanted("other"));
        signs.seen("site", found.checked_sub(Duration::from_secs(1)).unwrap());
        assert!(!signs.is_seen_since("site", found));
        assert!(signs.is_wanted("site"));
        signs.seen("site", found);
        assert!(signs.is_seen_since("site", found));
        assert!(!signs.is_wanted("site"));
        signs.forget("site");
        assert!(!signs.is_seen_since("site", found));
    }
}
