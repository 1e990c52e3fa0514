//! The claims that wait for an address of one pool, oldest first: a state machine without clock, lock or I/O.
//!
//! | state of a claim | event | next state |
//! |---|---|---|
//! | absent | [`request`](WaitQueue::request), an address is free for it | absent; it gets the address |
//! | absent, lapsed | [`request`](WaitQueue::request), no address is free for it | waiting |
//! | waiting | [`grant`](WaitQueue::grant), an address is free for it | has a turn; it is reconciled |
//! | waiting | [`request`](WaitQueue::request), an address is free for it | absent; it gets the address |
//! | has a turn | [`request`](WaitQueue::request), an address is free | absent; it gets the address |
//! | has a turn | [`request`](WaitQueue::request), no address is free | waiting, at the same position |
//! | has a turn | [`end_turn`](WaitQueue::end_turn) after a reconcile without a request, or the turn expires | lapsed |
//! | any | [`leave`](WaitQueue::leave), [`forget`](WaitQueue::forget) | absent |
//!
//! An address is free for a claim if there are more free addresses than claims before it. A lapsed claim is not served,
//! and keeps its position for its next request. Independently of this, a claim can
//! [wait for a change of the pool](WaitQueue::wait_for_pool), until [the pool changes](WaitQueue::pool_changed).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use capi_ipam_provider::api::IPAddressClaim;

/// Namespace and name of a claim.
pub type ClaimKey = (String, String);

/// The position of a claim in a wait queue: its creation time in seconds since the Unix epoch, lowest first. Claims
/// created in the same second are served in the order in which they were enqueued.
pub type Priority = i64;

/// Returns the priority of a claim.
pub fn priority(claim: &IPAddressClaim) -> Priority {
    claim.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second())
}

/// How long an address is held for a claim whose turn it is and that is not reconciled.
const TURN_TIMEOUT: Duration = Duration::from_mins(1);

/// A priority queue of claims. When an address becomes free, the first claim is granted a turn: the right to one free
/// address.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    waiting: BTreeMap<(Priority, u64), ClaimKey>,
    /// The positions of all claims that are waiting, have a turn or are lapsed.
    positions: HashMap<ClaimKey, (Priority, u64)>,
    /// The claims that have a turn, and when it was granted.
    turns: HashMap<ClaimKey, Instant>,
    /// Claims that wait for a change of the pool itself.
    waiting_for_pool: HashSet<ClaimKey>,
    last_sequence: u64,
}

impl WaitQueue {
    /// The claim requests one of `free` addresses. Returns whether it gets one now, and so leaves the queue; otherwise
    /// it waits.
    pub(super) fn request(&mut self, claim: &ClaimKey, priority: Priority, free: u128) -> bool {
        let is_new = !self.positions.contains_key(claim);
        let ahead = self.waiting.len().saturating_add(self.turns.len());
        let mut is_served = if is_new { free > ahead as u128 } else { free > 0 && self.turns.contains_key(claim) };
        if !is_served {
            // The address of its turn, if it had one, was allocated elsewhere: the claim keeps its position.
            self.turns.remove(claim);
            self.enqueue(claim, priority);
            let is_first = self.waiting.first_key_value().is_some_and(|(_, first)| first == claim);
            is_served = is_first && free > self.turns.len() as u128;
        }
        if is_served {
            self.forget(claim);
        }
        is_served
    }

    fn enqueue(&mut self, claim: &ClaimKey, priority: Priority) {
        let last_sequence = &mut self.last_sequence;
        let position = *self.positions.entry(claim.clone()).or_insert_with(|| {
            *last_sequence = last_sequence.saturating_add(1);
            (priority, *last_sequence)
        });
        self.waiting.insert(position, claim.clone());
    }

    /// Ends expired turns, then grants a turn to the first waiting claims as long as there are more free addresses than
    /// turns. Returns the claims that were granted one: they have to be reconciled.
    pub(super) fn grant(&mut self, free: u128, now: Instant) -> Vec<ClaimKey> {
        self.turns.retain(|_, granted_at| now.saturating_duration_since(*granted_at) < TURN_TIMEOUT);
        let mut granted = Vec::new();
        while free > self.turns.len() as u128 {
            let Some((_, claim)) = self.waiting.pop_first() else { break };
            self.turns.insert(claim.clone(), now);
            granted.push(claim);
        }
        granted
    }

    /// Ends the turn of a claim whose reconcile has ended without a request, and returns whether it had one. A turn
    /// that was granted after the reconcile started at `started` is for the next reconcile, and stays.
    pub(super) fn end_turn(&mut self, claim: &ClaimKey, started: Instant) -> bool {
        let is_unused = self.turns.get(claim).is_some_and(|granted_at| *granted_at < started);
        if is_unused {
            self.turns.remove(claim);
        }
        is_unused
    }

    /// Removes the claim from those that wait for an address. Returns whether it was among them.
    pub(super) fn leave(&mut self, claim: &ClaimKey) -> bool {
        let Some(position) = self.positions.remove(claim) else { return false };
        self.waiting.remove(&position);
        self.turns.remove(claim);
        true
    }

    /// Removes the claim: it waits neither for an address nor for the pool.
    pub(super) fn forget(&mut self, claim: &ClaimKey) {
        self.waiting_for_pool.remove(claim);
        self.leave(claim);
    }

    /// Lets the claim wait for a change of the pool itself; it is enqueued for an address as well. Returns whether it
    /// was not waiting for the pool before.
    pub(super) fn wait_for_pool(&mut self, claim: &ClaimKey, priority: Priority) -> bool {
        if !self.turns.contains_key(claim) {
            self.enqueue(claim, priority);
        }
        self.waiting_for_pool.insert(claim.clone())
    }

    /// Returns the claims that waited for the pool, which has changed: they have to be reconciled.
    pub(super) fn pool_changed(&mut self) -> Vec<ClaimKey> {
        std::mem::take(&mut self.waiting_for_pool).into_iter().collect()
    }

    /// The claims that are waiting, have a turn or are lapsed.
    pub(super) fn claims(&self) -> impl Iterator<Item = &ClaimKey> {
        self.positions.keys()
    }

    /// The number of claims that wait for an address.
    pub(super) fn waiting(&self) -> usize {
        self.positions.len()
    }

    /// Whether no claim is in the queue or waits for the pool.
    pub(super) fn is_empty(&self) -> bool {
        self.positions.is_empty() && self.waiting_for_pool.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(name: &str) -> ClaimKey {
        ("n".to_owned(), name.to_owned())
    }

    #[test]
    fn oldest_claim_is_served_before_new_claims() {
        let (mut queue, now) = (WaitQueue::default(), Instant::now());
        for (name, priority) in [("b", 2), ("a", 1), ("c", 2)] {
            assert!(!queue.request(&claim(name), priority, 0));
        }
        assert_eq!(queue.grant(1, now), [claim("a")]);
        assert!(!queue.request(&claim("new"), 3, 1), "the free address is held for a");
        assert!(queue.request(&claim("a"), 1, 1));
        queue.forget(&claim("a"));
        assert_eq!(queue.grant(2, now), [claim("b"), claim("c")]);
    }

    #[test]
    fn unused_turn_passes_on_and_the_position_is_kept() {
        let (mut queue, now) = (WaitQueue::default(), Instant::now());
        assert!(!queue.request(&claim("a"), 1, 0));
        assert!(!queue.request(&claim("b"), 2, 0));
        assert_eq!(queue.grant(1, now), [claim("a")]);
        assert!(!queue.end_turn(&claim("a"), now), "granted during a reconcile");
        let later = now + Duration::from_millis(1);
        assert!(queue.end_turn(&claim("a"), later));
        assert_eq!(queue.grant(1, now), [claim("b")]);
        assert!(!queue.request(&claim("a"), 1, 1));
        queue.forget(&claim("b"));
        assert_eq!(queue.grant(1, now), [claim("a")]);
    }

    #[test]
    fn queue_position_survives_a_failed_turn() {
        let (mut queue, now) = (WaitQueue::default(), Instant::now());
        assert!(!queue.request(&claim("a"), 1, 0));
        assert!(!queue.request(&claim("b"), 2, 0));
        assert_eq!(queue.grant(1, now), [claim("a")]);
        assert!(!queue.request(&claim("a"), 1, 0), "the address was allocated elsewhere");
        assert!(!queue.end_turn(&claim("a"), now + Duration::from_millis(1)));
        assert_eq!(queue.grant(1, now), [claim("a")]);
    }

    #[test]
    fn turn_expires_when_the_claim_is_not_reconciled() {
        let (mut queue, now) = (WaitQueue::default(), Instant::now());
        assert!(!queue.request(&claim("a"), 1, 0));
        assert!(!queue.request(&claim("b"), 2, 0));
        assert_eq!(queue.grant(1, now), [claim("a")]);
        assert_eq!(queue.grant(1, now + TURN_TIMEOUT), [claim("b")]);
    }

    #[test]
    fn claim_that_waits_for_the_pool_has_a_queue_position() {
        let (mut queue, now) = (WaitQueue::default(), Instant::now());
        for (name, priority) in [("young", 3), ("old", 1), ("middle", 2)] {
            assert!(queue.wait_for_pool(&claim(name), priority));
            assert!(!queue.wait_for_pool(&claim(name), priority));
        }
        assert_eq!(queue.pool_changed().len(), 3);
        assert_eq!(queue.grant(2, now), [claim("old"), claim("middle")]);
        assert!(!queue.request(&claim("young"), 3, 2));
        assert!(queue.request(&claim("middle"), 2, 2));
    }

    #[test]
    fn no_claim_waits_while_addresses_are_free() {
        let mut queue = WaitQueue::default();
        assert!(queue.request(&claim("a"), 1, 1));
        assert!(queue.is_empty());
    }
}
