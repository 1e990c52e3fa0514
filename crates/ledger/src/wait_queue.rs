//! The claims that wait for an address of one pool, oldest first: a state machine without clock,
//! lock or I/O.
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
//! A claim that requests a certain address waits for this one, and competes with others only while
//! it is free. Of the claims that request the same address, one at a time has a turn.
//!
//! An address is free for a claim if there are more free addresses than claims before it, not
//! counting the headroom of the pool for a claim that may not use it. Blocked claims do not count
//! as claims before another one. A lapsed claim is not served, and keeps its position for its next
//! request. Independently of this, a claim can [wait for a change of the
//! pool](WaitQueue::wait_for_pool), until [the pool changes](WaitQueue::pool_changed).

mod grants;
mod requests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use capi_ipam_api::SliceOwner;
use capi_ipam_contract::IPAddressClaim;
use capi_ipam_ip::Block;
use capi_ipam_objects::namespaced_name::NamespacedName;
use kube::ResourceExt;
use kube::core::SelectorExt;

pub(super) use self::grants::Freed;
use self::requests::RequestedBlocks;
use super::outcome::{Outcome, Reason};
use super::pool_info::PoolInfo;
use super::quota::{Consumer, Group, Quota};
use super::slices::Slices;

/// The position of a claim in a wait queue: its creation time in seconds since the Unix epoch,
/// lowest first. Claims created in the same second are served in the order in which their
/// reconciles started, which is that of the watch.
pub type Priority = i64;

/// Returns the priority of a claim.
pub fn priority(claim: &IPAddressClaim) -> Priority {
    match &claim.metadata.creation_timestamp {
        Some(time) => time.0.as_second(),
        None => 0,
    }
}

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

impl ClaimAttributes {
    /// Those of a claim in a pool, with the block that it requests. In a pool with slices, a claim
    /// without `slice_owner` gets no address.
    pub fn of(claim: &IPAddressClaim, pool: &PoolInfo, requested: Option<Block>) -> Self {
        let basic = Self {
            requested,
            ..priority(claim).into()
        };
        if pool.access.is_none() && pool.slices.is_none() {
            return basic;
        }
        let labels = claim.labels();
        let cluster = claim.cluster_name();
        let owner = pool.slices.as_ref().and_then(|rules| {
            let namespace = claim.metadata.namespace.as_deref();
            rules.owner_of(namespace.unwrap_or_default(), cluster, labels)
        });
        let selector = pool.headroom_selector();
        Self {
            cluster: cluster.map(Into::into),
            uses_headroom: selector.is_some_and(|selector| selector.matches(labels)),
            slice_owner: owner.map(Arc::new),
            ..basic
        }
    }
}

impl From<Priority> for ClaimAttributes {
    fn from(priority: Priority) -> Self {
        Self {
            priority,
            ..Self::default()
        }
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
    /// Whether the claims are divided into groups of which each may have a limited number of
    /// addresses.
    fn has_groups(&self) -> bool {
        self.quota.is_some() || self.slices.is_some()
    }

    /// How many free addresses are not for a claim: the headroom, unless it may use that.
    pub(super) fn kept_from(&self, uses_headroom: bool) -> u128 {
        if uses_headroom { 0 } else { self.headroom }
    }

    /// The first group of a claim that may have no further address beyond those that `promised`
    /// counts.
    fn full(&self, consumer: &Consumer, promised: impl Fn(&Group) -> usize) -> Option<Group> {
        if let Some(quota) = self.quota
            && let Some(group) = quota.full(consumer, &promised)
        {
            return Some(group);
        }
        let slices = self.slices?;
        for group in consumer.groups() {
            if let Group::Owner(owner) = &group
                && slices.room(owner) <= promised(&group)
            {
                return Some(group);
            }
        }
        None
    }

    /// Why a group may have no further address.
    fn describe(&self, group: &Group) -> Reason {
        match (group, self.slices, self.quota) {
            (Group::Owner(owner), Some(slices), _) => {
                Reason::SliceUnavailable(slices.describe(owner))
            }
            (Group::Namespace(_) | Group::Cluster(..), _, Some(quota)) => {
                Reason::LimitReached(quota.describe(group))
            }
            _ => Reason::NoAddress,
        }
    }

    /// How many more addresses a group may have; `None` without a limit.
    fn room(&self, group: &Group) -> Option<usize> {
        match group {
            Group::Owner(owner) => Some(self.slices?.room(owner)),
            Group::Namespace(_) | Group::Cluster(..) => self.quota?.room(group),
        }
    }
}

type Position = (Priority, u64);

/// A waiting claim with its position.
type Waiting<'a> = (&'a Position, &'a NamespacedName);

/// A claim that is waiting, blocked, has a turn or is lapsed.
#[derive(Clone, Debug)]
struct Queued {
    position: Position,
    /// Set in a pool with limits.
    consumer: Option<Consumer>,
    uses_headroom: bool,
    requested: Option<Block>,
    /// Whether it has requested an address since it waited for the pool itself. One that was moved
    /// or restored may wait for its IPAddress, and request none.
    has_asked: bool,
}

/// A priority queue of claims. When an address becomes free, the first claim is granted a turn: the
/// right to one free address.
#[derive(Clone, Debug, Default)]
pub(super) struct WaitQueue {
    /// The claims that wait for an address outside of the headroom, and those that may use it.
    waiting: [BTreeMap<Position, NamespacedName>; 2],
    /// How many of them have requested an address.
    asking: usize,
    /// The claims that wait for a certain block.
    requests: RequestedBlocks,
    /// The claims whose group may have no further address.
    blocked: HashMap<Group, BTreeMap<Position, NamespacedName>>,
    queued: HashMap<NamespacedName, Queued>,
    /// The claims that have a turn, and when it was granted.
    turns: HashMap<NamespacedName, Instant>,
    /// The number of turns of each group; only in a pool with limits.
    turns_of: HashMap<Group, usize>,
    /// Groups that have fewer turns since the last grant.
    freed: Vec<Group>,
    /// Claims that have reserved an address beyond a limit.
    beyond_limit: HashMap<Group, HashSet<NamespacedName>>,
    /// Claims that wait for a change of the pool itself.
    waiting_for_pool: HashSet<NamespacedName>,
    /// The claims that are being reconciled, in the order in which their reconciles started.
    started: HashMap<NamespacedName, Position>,
    /// The positions of the claims that are about to request an address: they have a turn, or are
    /// being reconciled and have not requested one.
    due: BTreeSet<Position>,
    last_sequence: u64,
}

impl WaitQueue {
    /// The claim requests an address. It gets one now, and so leaves the queue, or waits.
    pub(super) fn request(
        &mut self,
        claim: &NamespacedName,
        attributes: &ClaimAttributes,
        supply: Supply<'_>,
    ) -> Outcome<()> {
        self.remove_due(claim);
        let kept_free = supply.kept_from(attributes.uses_headroom);
        let requested = attributes.requested;
        let is_free = requested.is_none() || supply.requested_is_free;
        let mut at_once = false;
        if let Some(queued) = self.queued.get(claim) {
            // With a turn for the same address, one of the free addresses is for this claim.
            let is_same = queued.requested == requested;
            at_once = self.remove_turn(claim) && is_same && is_free && supply.free > kept_free;
        } else if !supply.has_groups() && is_free && !self.is_contested(requested) {
            // The usual case: there are enough addresses for all claims, so none is enqueued.
            let before = kept_free.saturating_add(self.claims_before_a_new_one() as u128);
            if supply.free > before {
                self.waiting_for_pool.remove(claim);
                return Outcome::Offer(());
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
            return Outcome::NotNow(supply.describe(&group));
        }
        if at_once || self.next(supply).is_some_and(|next| next == *claim) {
            self.forget(claim);
            return Outcome::Offer(());
        }
        Outcome::NO_ADDRESS
    }

    /// Whether other claims wait for the requested block, or have a turn for it.
    fn is_contested(&self, requested: Option<Block>) -> bool {
        requested.is_some_and(|block| self.requests.is_contested(block))
    }

    /// How many claims get one of the free addresses before one that is not in the queue.
    fn claims_before_a_new_one(&self) -> usize {
        let [others, privileged] = &self.waiting;
        let waiting = others.len().saturating_add(privileged.len());
        waiting.saturating_add(self.turns.len())
    }

    /// The claim requests an address that only it may have and that is not among the free ones. It
    /// gets it, and so leaves the queue, unless its group may have no further address.
    pub(super) fn request_extra(
        &mut self,
        claim: &NamespacedName,
        attributes: &ClaimAttributes,
        supply: Supply<'_>,
    ) -> Outcome<()> {
        self.remove_due(claim);
        self.remove_turn(claim);
        self.enqueue(claim, attributes, supply.has_groups());
        match self.full_group(claim, supply) {
            Some(group) => {
                self.block(claim, &group);
                Outcome::NotNow(supply.describe(&group))
            }
            None => {
                self.forget(claim);
                Outcome::Offer(())
            }
        }
    }

    /// Lets a claim that requests an address wait, at the position that it already has if it has
    /// one.
    pub(super) fn enqueue(
        &mut self,
        claim: &NamespacedName,
        attributes: &ClaimAttributes,
        has_groups: bool,
    ) {
        self.insert(claim, attributes, has_groups, true);
    }

    fn insert(
        &mut self,
        claim: &NamespacedName,
        attributes: &ClaimAttributes,
        has_groups: bool,
        has_asked: bool,
    ) {
        let position = self.position_or_next(claim, attributes.priority);
        self.remove_waiting(claim);
        let consumer = if has_groups {
            let consumer = Consumer::new(claim.clone(), attributes.cluster.clone());
            Some(consumer.with_owner(attributes.slice_owner.clone()))
        } else {
            None
        };
        let queued = Queued {
            position,
            consumer,
            uses_headroom: attributes.uses_headroom,
            requested: attributes.requested,
            has_asked,
        };
        // Counted before the former request is removed: the claim may request the same block.
        if let Some(block) = attributes.requested {
            self.requests.add_claim(block);
        }
        if let Some(known) = self.queued.insert(claim.clone(), queued)
            && let Some(block) = known.requested
        {
            self.requests.remove_claim(block);
        }
        self.insert_waiting(position, claim);
    }

    /// Records that a reconcile of a claim starts. Reconciles start in the order in which the watch
    /// has shown the claims, but their requests can overtake each other.
    pub(super) fn start(&mut self, claim: &NamespacedName, priority: Priority) {
        let position = self.position_or_next(claim, priority);
        self.started.insert(claim.clone(), position);
        // A claim that waits for a certain address, or for any without a turn, will not get another
        // one.
        let is_due = match self.queued.get(claim) {
            Some(queued) => queued.requested.is_none() && self.waiting_for_pool.contains(claim),
            None => true,
        };
        if is_due {
            self.due.insert(position);
        }
    }

    /// Records that the reconcile of a claim has ended.
    pub(super) fn end(&mut self, claim: &NamespacedName) {
        if !self.turns.contains_key(claim) {
            self.remove_due(claim);
        }
        self.started.remove(claim);
    }

    /// How many claims that come before this one are about to request an address, at most `most`.
    pub(super) fn due_before(&self, claim: &NamespacedName, most: usize) -> usize {
        match self.position(claim) {
            Some(position) => self.due.range(..position).take(most).count(),
            None => 0,
        }
    }

    fn position(&self, claim: &NamespacedName) -> Option<Position> {
        match self.queued.get(claim) {
            Some(queued) => Some(queued.position),
            None => self.started.get(claim).copied(),
        }
    }

    /// The position of a claim; a new one at the end of its priority if it has none.
    fn position_or_next(&mut self, claim: &NamespacedName, priority: Priority) -> Position {
        if let Some(position) = self.position(claim) {
            return position;
        }
        self.last_sequence += 1;
        (priority, self.last_sequence)
    }

    fn remove_due(&mut self, claim: &NamespacedName) {
        if let Some(position) = self.position(claim) {
            self.due.remove(&position);
        }
    }

    /// Sorts claims by their positions: those that are enqueued are reconciled in this order.
    fn sorted(&self, mut claims: Vec<NamespacedName>) -> Vec<NamespacedName> {
        claims.sort_by_cached_key(|claim| match self.position(claim) {
            Some(position) => position,
            None => (Priority::MAX, u64::MAX),
        });
        claims
    }

    /// Lets a queued claim wait for its block, or for any address.
    fn insert_waiting(&mut self, position: Position, claim: &NamespacedName) {
        let Some(Queued {
            uses_headroom,
            requested,
            has_asked,
            ..
        }) = self.queued.get(claim)
        else {
            return;
        };
        match *requested {
            Some(block) => {
                self.requests
                    .insert_waiting(block, position, claim.clone(), *uses_headroom);
            }
            None => {
                let [others, privileged] = &mut self.waiting;
                let tier = if *uses_headroom { privileged } else { others };
                let is_new = tier.insert(position, claim.clone()).is_none();
                if is_new && *has_asked {
                    self.asking += 1;
                }
            }
        }
    }

    /// Removes the claim from those that wait or are blocked. It keeps its position.
    fn remove_waiting(&mut self, claim: &NamespacedName) {
        let Some(Queued {
            position,
            consumer,
            requested,
            has_asked,
            ..
        }) = self.queued.get(claim)
        else {
            return;
        };
        if let Some(block) = requested {
            self.requests.remove_waiting(*block, position);
        }
        for tier in &mut self.waiting {
            if tier.remove(position).is_some() && *has_asked {
                self.asking = self.asking.saturating_sub(1);
            }
        }
        let Some(consumer) = consumer else { return };
        for group in consumer.groups() {
            if let Some(blocked) = self.blocked.get_mut(&group) {
                blocked.remove(position);
                if blocked.is_empty() {
                    self.blocked.remove(&group);
                }
            }
        }
    }

    fn block(&mut self, claim: &NamespacedName, group: &Group) {
        self.remove_waiting(claim);
        if let Some(queued) = self.queued.get(claim) {
            self.blocked
                .entry(group.clone())
                .or_default()
                .insert(queued.position, claim.clone());
        }
    }

    /// Lets a claim wait until a group may have one more address.
    pub(super) fn wait_for_group(
        &mut self,
        claim: &NamespacedName,
        attributes: &ClaimAttributes,
        group: &Group,
    ) {
        self.enqueue(claim, attributes, true);
        self.block(claim, group);
    }

    /// The group of a claim that may have no further address.
    fn full_group(&self, claim: &NamespacedName, supply: Supply<'_>) -> Option<Group> {
        let consumer = self.queued.get(claim)?.consumer.as_ref()?;
        supply.full(consumer, |group| self.turns_of(group))
    }

    /// The number of turns of a group.
    fn turns_of(&self, group: &Group) -> usize {
        match self.turns_of.get(group) {
            Some(turns) => *turns,
            None => 0,
        }
    }

    /// Ends the turn of a claim whose reconcile has ended without a request, and returns whether it
    /// had one. A turn that was granted after the reconcile started at `started` is for the next
    /// reconcile, and stays.
    pub(super) fn end_turn(&mut self, claim: &NamespacedName, started: Instant) -> bool {
        match self.turns.get(claim) {
            Some(granted_at) if *granted_at < started => self.remove_turn(claim),
            _ => false,
        }
    }

    /// Removes the claim from those that wait for an address. Returns whether it was among them.
    pub(super) fn leave(&mut self, claim: &NamespacedName) -> bool {
        self.remove_waiting(claim);
        self.remove_turn(claim);
        self.remove_due(claim);
        let Some(known) = self.queued.remove(claim) else {
            return false;
        };
        if let Some(block) = known.requested {
            self.requests.remove_claim(block);
        }
        true
    }

    /// Removes the claim: it waits neither for an address nor for the pool.
    pub(super) fn forget(&mut self, claim: &NamespacedName) {
        self.waiting_for_pool.remove(claim);
        self.beyond_limit
            .retain(|_, claims| !claims.remove(claim) || !claims.is_empty());
        self.leave(claim);
    }

    /// Lets the claim wait for a change of the pool itself; it is enqueued for an address as well.
    /// Returns whether it was not waiting for the pool before.
    pub(super) fn wait_for_pool(
        &mut self,
        claim: &NamespacedName,
        attributes: &ClaimAttributes,
    ) -> bool {
        if !self.turns.contains_key(claim) {
            // The rules of the pool may not be known yet.
            self.insert(claim, attributes, true, false);
        }
        self.waiting_for_pool.insert(claim.clone())
    }

    /// Lets a claim that must not use the pool, or has reserved an address, wait for a change of
    /// the pool, and not for an address.
    pub(super) fn wait_for_permission(&mut self, claim: &NamespacedName) {
        self.leave(claim);
        self.waiting_for_pool.insert(claim.clone());
    }

    /// Records that a claim no longer waits for a change of the pool: it is reconciled again.
    pub(super) fn stop_waiting_for_pool(&mut self, claim: &NamespacedName) {
        self.waiting_for_pool.remove(claim);
    }

    /// Lets a claim that has reserved an address beyond a limit wait until its group has fewer
    /// addresses.
    pub(super) fn wait_for_room(&mut self, group: &Group, claim: &NamespacedName) {
        self.leave(claim);
        self.beyond_limit
            .entry(group.clone())
            .or_default()
            .insert(claim.clone());
    }

    /// Returns the claims of a namespace that waited for the pool: they have to be reconciled.
    pub(super) fn namespace_changed(&mut self, namespace: &str) -> Vec<NamespacedName> {
        let waiting: Vec<NamespacedName> = self
            .waiting_for_pool
            .extract_if(|claim| claim.namespace() == namespace)
            .collect();
        self.sorted(waiting)
    }

    /// Returns the claims that waited for the pool, which has changed: they have to be reconciled.
    pub(super) fn pool_changed(&mut self) -> Vec<NamespacedName> {
        let waiting = std::mem::take(&mut self.waiting_for_pool);
        self.sorted(waiting.into_iter().collect())
    }

    /// Returns the claims that wait for an address and not for a change of the pool, which can no
    /// longer allocate: they have to report this.
    pub(super) fn pool_stopped(&self) -> Vec<NamespacedName> {
        let beyond_limit = self.beyond_limit.values().flatten();
        let mut waiting = Vec::new();
        for claim in self.queued.keys().chain(beyond_limit) {
            // Those that wait for the pool are reconciled anyway.
            if !self.waiting_for_pool.contains(claim) {
                waiting.push(claim.clone());
            }
        }
        self.sorted(waiting)
    }

    /// Records that a block became free, or is no longer free.
    pub(super) fn set_block_free(&mut self, block: Block, is_free: bool) {
        self.requests.set_free(block, is_free);
    }

    /// Whether the claim has a turn.
    pub(super) fn has_turn(&self, claim: &NamespacedName) -> bool {
        self.turns.contains_key(claim)
    }

    /// The number of claims that have a turn.
    pub(super) fn turns(&self) -> usize {
        self.turns.len()
    }

    /// Whether a claim waits that has requested any address.
    pub(super) fn waits_for_any(&self) -> bool {
        self.asking > 0
    }

    /// The owners of slices that may have no further address, and whose claims wait.
    pub(super) fn blocked_owners(&self) -> impl Iterator<Item = &Arc<SliceOwner>> {
        self.blocked.keys().filter_map(|group| match group {
            Group::Owner(owner) => Some(owner),
            Group::Namespace(_) | Group::Cluster(..) => None,
        })
    }

    /// Whether a claim requests a block.
    pub(super) fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    /// The claims that wait for a block, first one first.
    pub(super) fn waiting_for(&self, block: Block) -> impl Iterator<Item = &NamespacedName> {
        self.requests.waiting_for(block)
    }

    /// The blocks that claims request.
    pub(super) fn requested_blocks(&self) -> Vec<Block> {
        self.requests.blocks()
    }

    /// The blocks that claims request which are neither blocked nor lapsed, and have no turn.
    pub(super) fn awaited_blocks(&self) -> Vec<Block> {
        self.requests.awaited()
    }

    /// Whether the claim waits for an address or for the pool.
    pub(super) fn waits(&self, claim: &NamespacedName) -> bool {
        self.queued.contains_key(claim) || self.waiting_for_pool.contains(claim)
    }

    /// All claims that wait: in any state, for the pool, or beyond a limit. A claim can occur
    /// twice.
    pub(super) fn claims(&self) -> impl Iterator<Item = &NamespacedName> {
        let beyond_limit = self.beyond_limit.values().flatten();
        self.queued
            .keys()
            .chain(&self.waiting_for_pool)
            .chain(beyond_limit)
    }

    /// The number of claims that wait for an address.
    pub(super) fn waiting(&self) -> usize {
        self.queued.len()
    }

    /// Whether no claim is in the queue or waits for the pool.
    pub(super) fn is_empty(&self) -> bool {
        let is_waited_for = !self.queued.is_empty() || !self.waiting_for_pool.is_empty();
        !is_waited_for && self.beyond_limit.is_empty() && self.started.is_empty()
    }
}

#[cfg(test)]
mod tests;
