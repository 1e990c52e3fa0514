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
//! | any but blocked | its namespace, Cluster or slices may have no further address | blocked, at the same position |
//! | blocked | [`grant`](WaitQueue::grant), these may have one more | waiting, at the same position |
//! | any | [`leave`](WaitQueue::leave), [`forget`](WaitQueue::forget) | absent |
//!
//! A claim that requests a certain address waits for this one, and competes with others only while it is free. Of the
//! claims that request the same address, one at a time has a turn.
//!
//! An address is free for a claim if there are more free addresses than claims before it, not counting the headroom of
//! the pool for a claim that may not use it. Blocked claims do not count as claims before another one. A lapsed claim is
//! not served, and keeps its position for its next request. Independently of this, a claim can
//! [wait for a change of the pool](WaitQueue::wait_for_pool), until [the pool changes](WaitQueue::pool_changed).

mod requests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_ip::Block;
use capi_ipam_provider::api::IPAddressClaim;

use self::requests::RequestedBlocks;
use super::quota::{Consumer, Group, Quota};
use super::slices::Slices;
use crate::api::SliceOwner;

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

/// What the wait queue has to know about a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimAttributes {
    /// Its position among the waiting claims.
    pub priority: Priority,
    /// The name of its Cluster.
    pub cluster: Option<Arc<str>>,
    /// Whether it may use the headroom of the pool.
    pub uses_headroom: bool,
    /// The owner of slices to which it belongs; only of a pool with slices.
    pub slice_owner: Option<Arc<SliceOwner>>,
    /// The block that it requests, and the only one that it may get.
    pub requested: Option<Block>,
}

impl From<Priority> for ClaimAttributes {
    fn from(priority: Priority) -> Self {
        Self { priority, ..Self::default() }
    }
}

/// What a pool can allocate now.
#[derive(Clone, Copy, Default)]
pub(super) struct Supply<'a> {
    /// The number of free addresses.
    pub(super) free: u128,
    /// How many of them are only for claims that may use the headroom.
    pub(super) headroom: u128,
    /// The limits of namespaces and Clusters.
    pub(super) quota: Option<&'a Quota>,
    /// The slices of the pool.
    pub(super) slices: Option<&'a Slices>,
    /// Whether the block that the claim requests is free; only for requests of a claim.
    pub(super) requested_is_free: bool,
}

impl Supply<'_> {
    /// Whether the claims are divided into groups of which each may have a limited number of addresses.
    fn has_groups(&self) -> bool {
        self.quota.is_some() || self.slices.is_some()
    }

    /// The first group of a claim that may have no further address beyond those that `promised` counts.
    fn full(&self, consumer: &Consumer, promised: impl Fn(&Group) -> usize) -> Option<Group> {
        let limited = self.quota.and_then(|quota| quota.full(consumer, &promised));
        limited.or_else(|| {
            let slices = self.slices?;
            consumer.groups().find(|group| match group {
                Group::Owner(owner) => slices.room(owner) <= promised(group),
                Group::Namespace(_) | Group::Cluster(..) => false,
            })
        })
    }

    /// How many more addresses a group may have; `None` without a limit.
    fn room(&self, group: &Group) -> Option<usize> {
        match group {
            Group::Owner(owner) => Some(self.slices?.room(owner)),
            Group::Namespace(_) | Group::Cluster(..) => self.quota?.room(group),
        }
    }
}

/// What may allow blocked claims to have an address.
#[derive(Debug, Default)]
pub(super) struct Freed {
    /// The groups that have fewer addresses, or may have more.
    pub(super) groups: Vec<Group>,
    /// Whether a slice can be assigned to any owner.
    pub(super) is_slice_free: bool,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// The claim gets an address, and has left the queue.
    Served,
    /// No address is free for the claim: it waits.
    Wait,
    /// The claim waits until this group may have one more address.
    Blocked(Group),
}

type Position = (Priority, u64);

/// A claim that is waiting, blocked, has a turn or is lapsed.
#[derive(Debug)]
struct Queued {
    position: Position,
    /// Set in a pool with limits.
    consumer: Option<Consumer>,
    uses_headroom: bool,
    requested: Option<Block>,
}

/// A priority queue of claims. When an address becomes free, the first claim is granted a turn: the right to one free
/// address.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    /// The claims that wait for an address outside of the headroom, and those that may use it.
    waiting: [BTreeMap<Position, ClaimKey>; 2],
    /// The claims that wait for a certain block.
    requests: RequestedBlocks,
    /// The claims whose group may have no further address.
    blocked: HashMap<Group, BTreeMap<Position, ClaimKey>>,
    queued: HashMap<ClaimKey, Queued>,
    /// The claims that have a turn, and when it was granted.
    turns: HashMap<ClaimKey, Instant>,
    /// The number of turns of each group; only in a pool with limits.
    turns_of: HashMap<Group, usize>,
    /// Groups that have fewer turns since the last grant.
    freed: Vec<Group>,
    /// Claims that have reserved an address beyond a limit.
    beyond_limit: HashMap<Group, HashSet<ClaimKey>>,
    /// Claims that wait for a change of the pool itself.
    waiting_for_pool: HashSet<ClaimKey>,
    last_sequence: u64,
}

impl WaitQueue {
    /// The claim requests an address. It gets one now, and so leaves the queue, or waits.
    pub(super) fn request(&mut self, claim: &ClaimKey, attributes: &ClaimAttributes, supply: Supply<'_>) -> Answer {
        let kept_free = if attributes.uses_headroom { 0 } else { supply.headroom };
        let requested = attributes.requested;
        let is_free = requested.is_none() || supply.requested_is_free;
        let mut at_once = false;
        if let Some(queued) = self.queued.get(claim) {
            let is_same = queued.requested == requested;
            at_once = self.remove_turn(claim) && is_same && is_free && supply.free > kept_free;
        } else if !supply.has_groups() && is_free {
            let ahead = self.waiting.iter().map(BTreeMap::len).fold(self.turns.len(), usize::saturating_add);
            let is_contested = requested.is_some_and(|block| self.requests.is_contested(block));
            if !is_contested && supply.free > kept_free.saturating_add(ahead as u128) {
                self.waiting_for_pool.remove(claim);
                return Answer::Served;
            }
        }
        self.enqueue(claim, attributes, supply.has_groups());
        if let Some(block) = requested {
            self.requests.set_free(block, supply.requested_is_free);
            // A change of the pool can add the block.
            self.waiting_for_pool.insert(claim.clone());
        }
        if let Some(group) = self.full_group(claim, supply) {
            self.block(claim, &group);
            return Answer::Blocked(group);
        }
        if at_once || self.next(supply).is_some_and(|next| next == *claim) {
            self.forget(claim);
            return Answer::Served;
        }
        Answer::Wait
    }

    /// The claim requests an address that only it may have and that is not among the free ones. It gets it, and so
    /// leaves the queue, unless its group may have no further address.
    pub(super) fn request_extra(
        &mut self,
        claim: &ClaimKey,
        attributes: &ClaimAttributes,
        supply: Supply<'_>,
    ) -> Answer {
        self.remove_turn(claim);
        self.enqueue(claim, attributes, supply.quota.is_some());
        match self.full_group(claim, supply) {
            Some(group) => {
                self.block(claim, &group);
                Answer::Blocked(group)
            }
            None => {
                self.forget(claim);
                Answer::Served
            }
        }
    }

    /// Lets the claim wait, at the position that it already has if it has one.
    fn enqueue(&mut self, claim: &ClaimKey, attributes: &ClaimAttributes, has_groups: bool) {
        let position = match self.queued.get(claim) {
            Some(known) => known.position,
            None => {
                self.last_sequence = self.last_sequence.saturating_add(1);
                (attributes.priority, self.last_sequence)
            }
        };
        self.remove_waiting(claim);
        let consumer = has_groups.then(|| {
            let consumer = Consumer::new(Arc::new(claim.clone()), attributes.cluster.clone());
            consumer.with_owner(attributes.slice_owner.clone())
        });
        let ClaimAttributes { uses_headroom, requested, .. } = *attributes;
        requested.iter().for_each(|block| self.requests.add_claim(*block));
        let known = self.queued.insert(claim.clone(), Queued { position, consumer, uses_headroom, requested });
        known.and_then(|known| known.requested).iter().for_each(|block| self.requests.remove_claim(*block));
        self.insert_waiting(position, claim);
    }

    /// Lets a queued claim wait for its block, or for any address.
    fn insert_waiting(&mut self, position: Position, claim: &ClaimKey) {
        let Some(Queued { uses_headroom, requested, .. }) = self.queued.get(claim) else { return };
        match *requested {
            Some(block) => self.requests.insert_waiting(block, position, claim.clone()),
            None => drop(self.tier(*uses_headroom).insert(position, claim.clone())),
        }
    }

    fn tier(&mut self, uses_headroom: bool) -> &mut BTreeMap<Position, ClaimKey> {
        let [others, privileged] = &mut self.waiting;
        if uses_headroom { privileged } else { others }
    }

    /// Removes the claim from those that wait or are blocked. It keeps its position.
    fn remove_waiting(&mut self, claim: &ClaimKey) {
        let Some(Queued { position, consumer, requested, .. }) = self.queued.get(claim) else { return };
        requested.iter().for_each(|block| self.requests.remove_waiting(*block, position));
        self.waiting.iter_mut().for_each(|tier| drop(tier.remove(position)));
        for group in consumer.iter().flat_map(Consumer::groups) {
            if let Some(blocked) = self.blocked.get_mut(&group) {
                blocked.remove(position);
                if blocked.is_empty() {
                    self.blocked.remove(&group);
                }
            }
        }
    }

    fn block(&mut self, claim: &ClaimKey, group: &Group) {
        self.remove_waiting(claim);
        if let Some(queued) = self.queued.get(claim) {
            self.blocked.entry(group.clone()).or_default().insert(queued.position, claim.clone());
        }
    }

    /// The group of a claim that may have no further address.
    fn full_group(&self, claim: &ClaimKey, supply: Supply<'_>) -> Option<Group> {
        let consumer = self.queued.get(claim)?.consumer.as_ref()?;
        supply.full(consumer, |group| self.turns_of.get(group).copied().unwrap_or_default())
    }

    /// The first waiting claim for which an address is free. Claims whose group is full are blocked on the way.
    fn next(&mut self, supply: Supply<'_>) -> Option<ClaimKey> {
        let available = supply.free.saturating_sub(self.turns.len() as u128);
        loop {
            let [others, privileged] = &self.waiting;
            let privileged = privileged.first_key_value().filter(|_| available > 0);
            let other = others.first_key_value().filter(|_| available > supply.headroom);
            let may_use = |claim: &ClaimKey| {
                let uses_headroom = self.queued.get(claim).is_some_and(|queued| queued.uses_headroom);
                available > if uses_headroom { 0 } else { supply.headroom }
            };
            let requests = self.requests.ready().filter(|(_, claim)| may_use(claim));
            let candidates = privileged.into_iter().chain(other).chain(requests);
            let (_, first) = candidates.min_by_key(|(position, _)| **position)?;
            let first = first.clone();
            match self.full_group(&first, supply) {
                Some(group) => self.block(&first, &group),
                None => return Some(first),
            }
        }
    }

    /// Ends expired turns, then grants a turn to the first waiting claims as long as there are more free addresses than
    /// turns. `freed` is what has changed since the last call. Returns the claims that have to be reconciled: those that
    /// were granted a turn, and those of groups with fewer addresses that have reserved one.
    pub(super) fn grant(&mut self, supply: Supply<'_>, freed: Freed, now: Instant) -> Vec<ClaimKey> {
        let is_expired = |granted_at: &Instant| now.saturating_duration_since(*granted_at) >= TURN_TIMEOUT;
        let expired = self.turns.iter().filter(|(_, granted_at)| is_expired(granted_at));
        let expired: Vec<ClaimKey> = expired.map(|(claim, _)| claim.clone()).collect();
        for claim in &expired {
            self.remove_turn(claim);
        }
        let Freed { groups, is_slice_free } = freed;
        let freed: Vec<Group> = groups.into_iter().chain(std::mem::take(&mut self.freed)).collect();
        freed.iter().for_each(|group| self.unblock(group, Some(supply), usize::MAX));
        if is_slice_free || freed.iter().any(|group| matches!(group, Group::Owner(_))) {
            self.unblock_owners(supply);
        }
        let mut granted: Vec<ClaimKey> = freed.iter().filter_map(|it| self.beyond_limit.remove(it)).flatten().collect();
        while let Some(claim) = self.next(supply) {
            self.remove_waiting(&claim);
            self.set_request_turn(&claim, true);
            self.count_turn(&claim, true);
            self.turns.insert(claim.clone(), now);
            granted.push(claim);
        }
        granted
    }

    /// Lets the first blocked claim of some owners wait again: as many as there are slices that can be assigned, in the
    /// order of these claims.
    fn unblock_owners(&mut self, supply: Supply<'_>) {
        let free_slices = supply.slices.map(Slices::free_slices).unwrap_or_default();
        if free_slices == 0 {
            return;
        }
        let blocked = self
            .blocked
            .iter()
            .filter(|(group, _)| matches!(group, Group::Owner(_)) && supply.room(group).is_some_and(|room| room > 0));
        let mut owners: Vec<(Position, Group)> = blocked
            .filter_map(|(group, claims)| claims.first_key_value().map(|(position, _)| (*position, group.clone())))
            .collect();
        owners.sort_unstable_by_key(|(position, _)| *position);
        owners.iter().take(free_slices).for_each(|(_, owner)| self.unblock(owner, Some(supply), 1));
    }

    /// Lets the first blocked claims of a group wait again, as many as it may have further addresses, at most `most`.
    fn unblock(&mut self, group: &Group, supply: Option<Supply<'_>>, most: usize) {
        let turns = self.turns_of.get(group).copied().unwrap_or_default();
        let room = supply.and_then(|supply| supply.room(group)).map_or(usize::MAX, |room| room.saturating_sub(turns));
        let Some(blocked) = self.blocked.get_mut(group) else { return };
        let unblocked: Vec<_> = (0..room.min(most)).map_while(|_| blocked.pop_first()).collect();
        if blocked.is_empty() {
            self.blocked.remove(group);
        }
        for (position, claim) in unblocked {
            self.insert_waiting(position, &claim);
        }
    }

    /// Records that the limits, the headroom or the slices of the pool have changed. Returns all claims that wait: they have to be
    /// reconciled.
    pub(super) fn rules_changed(&mut self) -> Vec<ClaimKey> {
        let groups: Vec<Group> = self.blocked.keys().cloned().collect();
        groups.iter().for_each(|group| self.unblock(group, None, usize::MAX));
        let beyond_limit = std::mem::take(&mut self.beyond_limit).into_values().flatten();
        beyond_limit.chain(self.queued.keys().cloned()).collect()
    }

    /// Removes the turn of a claim. Returns whether it had one.
    fn remove_turn(&mut self, claim: &ClaimKey) -> bool {
        let had_turn = self.turns.remove(claim).is_some();
        if had_turn {
            self.set_request_turn(claim, false);
            self.count_turn(claim, false);
        }
        had_turn
    }

    fn set_request_turn(&mut self, claim: &ClaimKey, has_turn: bool) {
        let requested = self.queued.get(claim).and_then(|queued| queued.requested);
        requested.iter().for_each(|block| self.requests.set_turn(*block, has_turn));
    }

    /// Records that a block became free, or is no longer free.
    pub(super) fn set_block_free(&mut self, block: Block, is_free: bool) {
        self.requests.set_free(block, is_free);
    }

    /// Whether a claim requests a block.
    pub(super) fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    /// The blocks that claims request.
    pub(super) fn requested_blocks(&self) -> Vec<Block> {
        self.requests.blocks()
    }

    /// The number of blocks for which a claim that requests one has a turn.
    pub(super) fn granted_requests(&self) -> usize {
        self.requests.turns()
    }

    /// Whether a claim has a turn for this block.
    pub(super) fn is_granted(&self, block: Block) -> bool {
        self.requests.has_turn(block)
    }

    fn count_turn(&mut self, claim: &ClaimKey, is_added: bool) {
        let consumer = self.queued.get(claim).and_then(|queued| queued.consumer.as_ref());
        for group in consumer.into_iter().flat_map(Consumer::groups).collect::<Vec<_>>() {
            if is_added {
                let count = self.turns_of.entry(group).or_default();
                *count = count.saturating_add(1);
            } else if let Some(count) = self.turns_of.get_mut(&group) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.turns_of.remove(&group);
                }
                self.freed.push(group);
            }
        }
    }

    /// Ends the turn of a claim whose reconcile has ended without a request, and returns whether it had one. A turn
    /// that was granted after the reconcile started at `started` is for the next reconcile, and stays.
    pub(super) fn end_turn(&mut self, claim: &ClaimKey, started: Instant) -> bool {
        let is_unused = self.turns.get(claim).is_some_and(|granted_at| *granted_at < started);
        is_unused && self.remove_turn(claim)
    }

    /// Removes the claim from those that wait for an address. Returns whether it was among them.
    pub(super) fn leave(&mut self, claim: &ClaimKey) -> bool {
        self.remove_waiting(claim);
        self.remove_turn(claim);
        let known = self.queued.remove(claim);
        known.as_ref().and_then(|known| known.requested).iter().for_each(|block| self.requests.remove_claim(*block));
        known.is_some()
    }

    /// Removes the claim: it waits neither for an address nor for the pool.
    pub(super) fn forget(&mut self, claim: &ClaimKey) {
        self.waiting_for_pool.remove(claim);
        self.beyond_limit.retain(|_, claims| !claims.remove(claim) || !claims.is_empty());
        self.leave(claim);
    }

    /// Lets the claim wait for a change of the pool itself; it is enqueued for an address as well. Returns whether it
    /// was not waiting for the pool before.
    pub(super) fn wait_for_pool(&mut self, claim: &ClaimKey, attributes: &ClaimAttributes) -> bool {
        if !self.turns.contains_key(claim) {
            // The rules of the pool may not be known yet.
            self.enqueue(claim, attributes, true);
        }
        self.waiting_for_pool.insert(claim.clone())
    }

    /// Lets a claim that must not use the pool wait for a change of it, and not for an address.
    pub(super) fn wait_for_permission(&mut self, claim: &ClaimKey) {
        self.leave(claim);
        self.waiting_for_pool.insert(claim.clone());
    }

    /// Lets a claim that has reserved an address beyond a limit wait until its group has fewer addresses.
    pub(super) fn wait_for_room(&mut self, group: &Group, claim: &ClaimKey) {
        self.leave(claim);
        self.beyond_limit.entry(group.clone()).or_default().insert(claim.clone());
    }

    /// Returns the claims of a namespace that waited for the pool: they have to be reconciled.
    pub(super) fn namespace_changed(&mut self, namespace: &str) -> Vec<ClaimKey> {
        self.waiting_for_pool.extract_if(|claim| claim.0 == namespace).collect()
    }

    /// Returns the claims that waited for the pool, which has changed: they have to be reconciled.
    pub(super) fn pool_changed(&mut self) -> Vec<ClaimKey> {
        std::mem::take(&mut self.waiting_for_pool).into_iter().collect()
    }

    /// Whether the claim waits for an address or for the pool.
    pub(super) fn waits(&self, claim: &ClaimKey) -> bool {
        self.queued.contains_key(claim) || self.waiting_for_pool.contains(claim)
    }

    /// All claims that wait: in any state, for the pool, or beyond a limit. A claim can occur twice.
    pub(super) fn claims(&self) -> impl Iterator<Item = &ClaimKey> {
        let beyond_limit = self.beyond_limit.values().flatten();
        self.queued.keys().chain(&self.waiting_for_pool).chain(beyond_limit)
    }

    /// The number of claims that wait for an address.
    pub(super) fn waiting(&self) -> usize {
        self.queued.len()
    }

    /// Whether no claim is in the queue or waits for the pool.
    pub(super) fn is_empty(&self) -> bool {
        self.queued.is_empty() && self.waiting_for_pool.is_empty() && self.beyond_limit.is_empty()
    }
}

#[cfg(test)]
mod tests;
