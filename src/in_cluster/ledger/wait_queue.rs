//! The claims that wait for an address of one pool, oldest first.

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

/// The right of a claim to one free address.
#[derive(Debug)]
struct Turn {
    granted_at: Instant,
    /// A reconcile of the claim has started since the turn was granted.
    started: bool,
}

/// A priority queue of claims. When an address becomes free, the first claim is granted a turn. It keeps the turn until
/// it is allocated an address, is reconciled without an allocation, or the turn expires.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    waiting: BTreeMap<(Priority, u64), ClaimKey>,
    /// The positions of all claims, also of those with a turn: a turn that lapses does not cost the position.
    positions: HashMap<ClaimKey, (Priority, u64)>,
    turns: HashMap<ClaimKey, Turn>,
    /// Claims that wait for a change of the pool itself.
    waiting_for_pool: HashSet<ClaimKey>,
    last_sequence: u64,
}

impl WaitQueue {
    /// Returns whether the claim can be allocated one of `free` addresses now. If not, the claim is enqueued.
    pub(super) fn try_admit(&mut self, claim: &ClaimKey, priority: Priority, free: u128, now: Instant) -> bool {
        let is_new = !self.turns.contains_key(claim) && !self.positions.contains_key(claim);
        let ahead = self.waiting.len().saturating_add(self.turns.len());
        if is_new && free > ahead as u128 {
            return true;
        }
        if self.turns.contains_key(claim) && free > 0 {
            return true;
        }
        // The address was allocated elsewhere before the claim used its turn: the claim keeps its position.
        self.turns.remove(claim);
        self.enqueue(claim, priority);
        let is_first = self.waiting.first_key_value().is_some_and(|(_, first)| first == claim);
        let admitted = is_first && free > self.turns.len() as u128;
        if admitted {
            self.waiting.pop_first();
            self.turns.insert(claim.clone(), Turn { granted_at: now, started: true });
        }
        admitted
    }

    fn enqueue(&mut self, claim: &ClaimKey, priority: Priority) {
        let last_sequence = &mut self.last_sequence;
        let position = *self.positions.entry(claim.clone()).or_insert_with(|| {
            *last_sequence = last_sequence.saturating_add(1);
            (priority, *last_sequence)
        });
        self.waiting.insert(position, claim.clone());
    }

    /// Removes expired turns, then grants a turn to the first claims as long as there are more free addresses than
    /// turns. Returns the claims that were granted one: they have to be reconciled.
    pub(super) fn grant_turns(&mut self, free: u128, now: Instant) -> Vec<ClaimKey> {
        self.turns.retain(|_, turn| now.saturating_duration_since(turn.granted_at) < TURN_TIMEOUT);
        let mut granted = Vec::new();
        while free > self.turns.len() as u128 {
            let Some((_, claim)) = self.waiting.pop_first() else { break };
            self.turns.insert(claim.clone(), Turn { granted_at: now, started: false });
            granted.push(claim);
        }
        granted
    }

    /// Records that a reconcile of the claim has started.
    pub(super) fn mark_started(&mut self, claim: &ClaimKey) {
        if let Some(turn) = self.turns.get_mut(claim) {
            turn.started = true;
        }
    }

    /// Ends the turn of a claim whose reconcile has ended without an allocation, and returns whether it had one. The
    /// claim keeps its position. A turn that was granted during the reconcile is for the next one, and stays.
    pub(super) fn end_unused_turn(&mut self, claim: &ClaimKey) -> bool {
        let is_unused = self.turns.get(claim).is_some_and(|turn| turn.started);
        if is_unused {
            self.turns.remove(claim);
        }
        is_unused
    }

    /// Removes the claim: it waits neither for an address nor for the pool.
    pub(super) fn forget(&mut self, claim: &ClaimKey) {
        self.waiting_for_pool.remove(claim);
        self.remove(claim);
    }

    /// Removes the claim from those that wait for an address. Returns whether it was among them.
    pub(super) fn remove(&mut self, claim: &ClaimKey) -> bool {
        let had_turn = self.turns.remove(claim).is_some();
        let position = self.positions.remove(claim);
        if let Some(position) = position {
            self.waiting.remove(&position);
        }
        had_turn || position.is_some()
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
    pub(super) fn take_waiting_for_pool(&mut self) -> Vec<ClaimKey> {
        std::mem::take(&mut self.waiting_for_pool).into_iter().collect()
    }

    /// The claims that wait for an address or have a turn.
    pub(super) fn claims(&self) -> impl Iterator<Item = &ClaimKey> {
        self.positions.keys().chain(self.turns.keys())
    }

    /// Whether no claim waits.
    pub(super) fn is_empty(&self) -> bool {
        self.positions.is_empty() && self.turns.is_empty() && self.waiting_for_pool.is_empty()
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
            assert!(!queue.try_admit(&claim(name), priority, 0, now));
        }
        assert_eq!(queue.grant_turns(1, now), [claim("a")]);
        assert!(!queue.try_admit(&claim("new"), 3, 1, now), "the free address is held for a");
        assert!(queue.try_admit(&claim("a"), 1, 1, now));
        queue.forget(&claim("a"));
        assert_eq!(queue.grant_turns(2, now), [claim("b"), claim("c")]);
    }

    #[test]
    fn unused_turn_passes_on_and_the_position_is_kept() {
        let (mut queue, now) = (WaitQueue::default(), Instant::now());
        assert!(!queue.try_admit(&claim("a"), 1, 0, now));
        assert!(!queue.try_admit(&claim("b"), 2, 0, now));
        assert_eq!(queue.grant_turns(1, now), [claim("a")]);
        assert!(!queue.end_unused_turn(&claim("a")), "granted during a reconcile");
        queue.mark_started(&claim("a"));
        assert!(queue.end_unused_turn(&claim("a")));
        assert_eq!(queue.grant_turns(1, now), [claim("b")]);
        assert!(!queue.try_admit(&claim("a"), 1, 1, now));
        queue.forget(&claim("b"));
        assert_eq!(queue.grant_turns(1, now), [claim("a")]);
    }

    #[test]
    fn queue_position_survives_a_failed_turn() {
        let (mut queue, now) = (WaitQueue::default(), Instant::now());
        assert!(!queue.try_admit(&claim("a"), 1, 0, now));
        assert!(!queue.try_admit(&claim("b"), 2, 0, now));
        assert_eq!(queue.grant_turns(1, now), [claim("a")]);
        queue.mark_started(&claim("a"));
        assert!(!queue.try_admit(&claim("a"), 1, 0, now), "the address was allocated elsewhere");
        assert!(!queue.end_unused_turn(&claim("a")));
        assert_eq!(queue.grant_turns(1, now), [claim("a")]);
    }

    #[test]
    fn turn_expires_when_the_claim_is_not_reconciled() {
        let (mut queue, now) = (WaitQueue::default(), Instant::now());
        assert!(!queue.try_admit(&claim("a"), 1, 0, now));
        assert!(!queue.try_admit(&claim("b"), 2, 0, now));
        assert_eq!(queue.grant_turns(1, now), [claim("a")]);
        assert_eq!(queue.grant_turns(1, now + TURN_TIMEOUT), [claim("b")]);
    }

    #[test]
    fn claim_that_waits_for_the_pool_has_a_queue_position() {
        let (mut queue, now) = (WaitQueue::default(), Instant::now());
        for (name, priority) in [("young", 3), ("old", 1), ("middle", 2)] {
            assert!(queue.wait_for_pool(&claim(name), priority));
            assert!(!queue.wait_for_pool(&claim(name), priority));
        }
        assert_eq!(queue.take_waiting_for_pool().len(), 3);
        assert_eq!(queue.grant_turns(2, now), [claim("old"), claim("middle")]);
        assert!(!queue.try_admit(&claim("young"), 3, 2, now));
        assert!(queue.try_admit(&claim("middle"), 2, 2, now));
    }

    #[test]
    fn no_claim_waits_while_addresses_are_free() {
        let (mut queue, now) = (WaitQueue::default(), Instant::now());
        assert!(queue.try_admit(&claim("a"), 1, 1, now));
        assert!(queue.is_empty());
    }
}
