//! Deleted reservations, remembered so that a delayed response does not add one again.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use capi_ipam_provider::api::Uid;

/// How long a response that was read before the deletion can be delayed: longer than any request or list.
const TOMBSTONE_TTL: Duration = Duration::from_mins(2);

/// The uids of recently deleted reservations. A uid is never reused, so a reservation with one of these is stale.
#[derive(Debug, Default)]
pub(super) struct Tombstones {
    deleted: HashMap<Uid, Instant>,
    pruned: Option<Instant>,
}

impl Tombstones {
    /// Records that the reservation with this uid is deleted.
    pub(super) fn insert(&mut self, uid: Uid, now: Instant) {
        let is_due = self.pruned.is_none_or(|pruned| now.saturating_duration_since(pruned) >= TOMBSTONE_TTL / 4);
        if is_due {
            self.deleted.retain(|_, deleted_at| now.saturating_duration_since(*deleted_at) < TOMBSTONE_TTL);
            self.pruned = Some(now);
        }
        self.deleted.insert(uid, now);
    }

    /// Removes the record: after a restore of etcd the object can exist again.
    pub(super) fn remove(&mut self, uid: Uid) {
        self.deleted.remove(&uid);
    }

    /// Whether the reservation with this uid was deleted recently.
    pub(super) fn contains(&self, uid: Uid) -> bool {
        self.deleted.contains_key(&uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tombstones_expire() {
        let (mut tombstones, start) = (Tombstones::default(), Instant::now());
        let [old, new] = ["old", "new"].map(Uid::of);
        tombstones.insert(old, start);
        assert!(tombstones.contains(old) && !tombstones.contains(new));
        tombstones.insert(new, start + TOMBSTONE_TTL);
        assert!(!tombstones.contains(old) && tombstones.contains(new));
        tombstones.remove(new);
        assert!(!tombstones.contains(new));
    }
}
