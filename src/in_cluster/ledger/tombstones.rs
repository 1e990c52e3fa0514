//! Reservations that were seen to end, so that a late answer does not bring one back.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use capi_ipam_provider::api::Uid;

/// How long an answer may be under way that was read before the object ended: longer than any call and any listing.
const TOMBSTONE_TTL: Duration = Duration::from_mins(2);

/// The uids of reservations that ended a short time ago. A uid is never used twice, so what has one of these is old.
#[derive(Debug, Default)]
pub(super) struct Tombstones {
    ended: HashMap<Uid, Instant>,
    pruned: Option<Instant>,
}

impl Tombstones {
    /// Records that the reservation of that uid ended.
    pub(super) fn insert(&mut self, uid: Uid, now: Instant) {
        let is_due = self.pruned.is_none_or(|pruned| now.saturating_duration_since(pruned) >= TOMBSTONE_TTL / 4);
        if is_due {
            self.ended.retain(|_, ended| now.saturating_duration_since(*ended) < TOMBSTONE_TTL);
            self.pruned = Some(now);
        }
        self.ended.insert(uid, now);
    }

    /// Forgets that it ended: after a restore of the API server's data the object is there again.
    pub(super) fn remove(&mut self, uid: Uid) {
        self.ended.remove(&uid);
    }

    /// Whether the reservation of that uid is known to have ended.
    pub(super) fn contains(&self, uid: Uid) -> bool {
        self.ended.contains_key(&uid)
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
