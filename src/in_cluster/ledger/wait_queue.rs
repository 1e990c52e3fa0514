//! The claims that wait for an address of one pool, in the order in which they came.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use capi_ipam_provider::api::IPAddressClaim;

/// Namespace and name of a claim.
pub type ClaimKey = (String, String);

/// When a claim came: the time of its creation in seconds since 1970. Claims of the same second are served in the order
/// in which they were first seen.
pub type Priority = i64;

/// The priority of a claim.
pub fn priority(claim: &IPAddressClaim) -> Priority {
    claim.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second())
}

/// How long an address is kept for a claim that was called and does not come.
const TIMEOUT: Duration = Duration::from_mins(1);

/// The turn of a claim.
#[derive(Debug)]
struct Call {
    since: Instant,
    /// The claim has begun to be reconciled after it was called.
    attended: bool,
}

/// A waiting line. A claim whose turn it is has been called, and keeps its turn until it took an address or was
/// reconciled without taking one.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    waiting: BTreeMap<(Priority, u64), ClaimKey>,
    places: HashMap<ClaimKey, (Priority, u64)>,
    called: HashMap<ClaimKey, Call>,
    /// Claims that wait for the pool itself, not for an address.
    blocked: HashSet<ClaimKey>,
    came: u64,
}

impl WaitQueue {
    /// Whether the claim may take an address now, with so many free. Otherwise it stands in line.
    pub(super) fn admit(&mut self, claim: &ClaimKey, priority: Priority, free: u128, now: Instant) -> bool {
        let newcomer = !self.called.contains_key(claim) && !self.places.contains_key(claim);
        let ahead = self.waiting.len().saturating_add(self.called.len());
        if newcomer && free > ahead as u128 {
            return true;
        }
        if self.called.contains_key(claim) && free > 0 {
            return true;
        }
        // Whoever was called and finds that the address is gone again waits on, in the old place.
        self.called.remove(claim);
        self.stand(claim, priority);
        let first = self.waiting.first_key_value().is_some_and(|(_, first)| first == claim);
        let admitted = first && free > self.called.len() as u128;
        if admitted {
            self.waiting.pop_first();
            self.called.insert(claim.clone(), Call { since: now, attended: true });
        }
        admitted
    }

    fn stand(&mut self, claim: &ClaimKey, priority: Priority) {
        let came = &mut self.came;
        let place = *self.places.entry(claim.clone()).or_insert_with(|| {
            *came = came.saturating_add(1);
            (priority, *came)
        });
        self.waiting.insert(place, claim.clone());
    }

    /// ResourceClient as many claims as there are free addresses that nobody has been called for, and returns them.
    pub(super) fn call(&mut self, free: u128, now: Instant) -> Vec<ClaimKey> {
        self.called.retain(|_, call| now.saturating_duration_since(call.since) < TIMEOUT);
        let mut called = Vec::new();
        while free > self.called.len() as u128 {
            let Some((_, claim)) = self.waiting.pop_first() else { break };
            self.called.insert(claim.clone(), Call { since: now, attended: false });
            called.push(claim);
        }
        called
    }

    /// The claim begins to be reconciled.
    pub(super) fn attend(&mut self, claim: &ClaimKey) {
        if let Some(call) = self.called.get_mut(claim) {
            call.attended = true;
        }
    }

    /// The claim has been reconciled. Returns whether it did not use its turn, which then is over; if it comes again it
    /// has its old place. A claim called in the middle of a reconcile keeps its turn for the next one.
    pub(super) fn missed(&mut self, claim: &ClaimKey) -> bool {
        let missed = self.called.get(claim).is_some_and(|call| call.attended);
        if missed {
            self.called.remove(claim);
        }
        missed
    }

    /// The claim waits no longer.
    pub(super) fn leave(&mut self, claim: &ClaimKey) {
        self.blocked.remove(claim);
        self.step_out(claim);
    }

    /// The claim waits for no address any more. Returns whether it did.
    pub(super) fn step_out(&mut self, claim: &ClaimKey) -> bool {
        let was_called = self.called.remove(claim).is_some();
        let place = self.places.remove(claim);
        if let Some(place) = place {
            self.waiting.remove(&place);
        }
        was_called || place.is_some()
    }

    /// The claim waits for the pool itself to change, and has its place in line for when it does. Returns whether it has
    /// not been waiting for that before.
    pub(super) fn block(&mut self, claim: &ClaimKey, priority: Priority) -> bool {
        if !self.called.contains_key(claim) {
            self.stand(claim, priority);
        }
        self.blocked.insert(claim.clone())
    }

    /// The pool changed: all that waited for it.
    pub(super) fn unblock(&mut self) -> Vec<ClaimKey> {
        std::mem::take(&mut self.blocked).into_iter().collect()
    }

    /// All that wait, or have been called.
    pub(super) fn claims(&self) -> impl Iterator<Item = &ClaimKey> {
        self.places.keys().chain(self.called.keys())
    }

    /// Whether nobody waits.
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty() && self.called.is_empty() && self.blocked.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(name: &str) -> ClaimKey {
        ("n".to_owned(), name.to_owned())
    }

    #[test]
    fn the_oldest_claim_comes_first_and_newcomers_do_not_push_in() {
        let (mut line, now) = (WaitQueue::default(), Instant::now());
        for (name, priority) in [("b", 2), ("a", 1), ("c", 2)] {
            assert!(!line.admit(&claim(name), priority, 0, now));
        }
        assert_eq!(line.call(1, now), [claim("a")]);
        assert!(!line.admit(&claim("new"), 3, 1, now), "the free address is kept for a");
        assert!(line.admit(&claim("a"), 1, 1, now));
        line.leave(&claim("a"));
        assert_eq!(line.call(2, now), [claim("b"), claim("c")]);
    }

    #[test]
    fn a_missed_turn_passes_on_and_the_place_is_kept() {
        let (mut line, now) = (WaitQueue::default(), Instant::now());
        assert!(!line.admit(&claim("a"), 1, 0, now));
        assert!(!line.admit(&claim("b"), 2, 0, now));
        assert_eq!(line.call(1, now), [claim("a")]);
        assert!(!line.missed(&claim("a")), "called in the middle of a reconcile");
        line.attend(&claim("a"));
        assert!(line.missed(&claim("a")));
        assert_eq!(line.call(1, now), [claim("b")]);
        assert!(!line.admit(&claim("a"), 1, 1, now));
        line.leave(&claim("b"));
        assert_eq!(line.call(1, now), [claim("a")]);
    }

    #[test]
    fn a_turn_that_comes_to_nothing_does_not_cost_the_place() {
        let (mut line, now) = (WaitQueue::default(), Instant::now());
        assert!(!line.admit(&claim("a"), 1, 0, now));
        assert!(!line.admit(&claim("b"), 2, 0, now));
        assert_eq!(line.call(1, now), [claim("a")]);
        line.attend(&claim("a"));
        assert!(!line.admit(&claim("a"), 1, 0, now), "the address has been taken away again");
        assert!(!line.missed(&claim("a")));
        assert_eq!(line.call(1, now), [claim("a")]);
    }

    #[test]
    fn a_claim_that_does_not_come_loses_its_turn() {
        let (mut line, now) = (WaitQueue::default(), Instant::now());
        assert!(!line.admit(&claim("a"), 1, 0, now));
        assert!(!line.admit(&claim("b"), 2, 0, now));
        assert_eq!(line.call(1, now), [claim("a")]);
        assert_eq!(line.call(1, now + TIMEOUT), [claim("b")]);
    }

    #[test]
    fn who_waited_for_the_pool_has_a_place_in_line() {
        let (mut line, now) = (WaitQueue::default(), Instant::now());
        for (name, priority) in [("young", 3), ("old", 1), ("middle", 2)] {
            assert!(line.block(&claim(name), priority));
            assert!(!line.block(&claim(name), priority));
        }
        assert_eq!(line.unblock().len(), 3);
        assert_eq!(line.call(2, now), [claim("old"), claim("middle")]);
        assert!(!line.admit(&claim("young"), 3, 2, now));
        assert!(line.admit(&claim("middle"), 2, 2, now));
    }

    #[test]
    fn with_plenty_free_nobody_waits() {
        let (mut line, now) = (WaitQueue::default(), Instant::now());
        assert!(line.admit(&claim("a"), 1, 1, now));
        assert!(line.is_empty());
    }
}
