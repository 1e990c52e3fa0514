//! The ledger's entry of one pool: its counts, free addresses and wait queue.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use capi_ipam_api::{AddressCounts, AllocationOrder, PoolKey, STICKY_SECONDS, Scope, Slot};
use capi_ipam_contract::Uid;
use capi_ipam_ip::{Block, FreeSet, SpanSet, UsableBlocks};
use capi_ipam_objects::namespaced_name::NamespacedName;
use capi_ipam_objects::observed::{Known, Stamp};

use super::PoolInfo;
use super::draining::Draining;
use super::exclusions::AppliedExclusions;
use super::order::Order;
use super::outcome::{Outcome, Reason};
use super::quota::{Group, Quota};
use super::scope_rule::{Record, StatusRecord};
use super::slices::{SliceInfo, Slices};
use super::usage::{AddressUsage, Availability};
use super::wait_queue::{ClaimAttributes, Freed, Supply, WaitQueue};

/// The maximum number of addresses that are left to claims which are about to request one.
const MAX_AHEAD: usize = 64;

/// One pool. Its object may be missing: addresses can be in use after the pool is deleted.
#[derive(Default)]
pub(super) struct PoolEntry {
    /// As the pool object declares it; `None` without an object.
    pub(super) declared: Option<Arc<PoolInfo>>,
    /// The same, with the restrictions of its network. Without any, both are one value: most pools
    /// are in no network, and there can be ten thousand of them.
    pub(super) info: Option<Arc<PoolInfo>>,
    pub(super) wait_queue: WaitQueue,
    /// When the pool object was last seen.
    pub(super) stamp: Stamp,
    /// Whether the pool's controller is already enqueued for the latest changes.
    pub(super) notified: bool,
    /// The scope of its addresses; kept while a deleted pool still has addresses in use.
    pub(super) scope: Option<Scope>,
    /// What is recorded of its scope.
    pub(super) record: Record,
    /// What the status of the pool states about its network.
    pub(super) status_record: Option<StatusRecord>,
    /// The network that it joins once the network is initialized.
    pub(super) awaited: Option<Arc<str>>,
    /// Its blocks without the exclusions of its network.
    pub(super) exclusions: Option<AppliedExclusions>,
    /// Whether its network has to be computed again.
    pub(super) needs_refresh: bool,
    /// The free numbers of the pool; `None` while all of them are free.
    pub(super) free: Option<FreeSet>,
    pub(super) order: Order,
    /// When the addresses in use were allocated, in microseconds since the Unix epoch; only with
    /// the order RoundRobin and slices.
    pub(super) allocated: BTreeMap<Block, i64>,
    /// Numbers that overlap with a used block of another length.
    pub(super) other_lengths: SpanSet,
    pub(super) draining: Draining,
    /// IPAddress objects of the pool with an address in its range.
    pub(super) used: usize,
    /// IPAddress objects of the pool with another address.
    pub(super) out_of_range: usize,
    /// Addresses that are held for claims of the pool whose reservation is being created.
    pub(super) candidates: usize,
    /// Addresses that cool down, ordered by the second in which they were released.
    pub(super) cooldowns: BTreeSet<(i64, Slot)>,
    /// Addresses that are kept for the next claim of the same name, in the same order.
    pub(super) memories: BTreeSet<(i64, Slot)>,
    /// The numbers of the pool that are kept in this way, also by another pool of its network, in
    /// the same order.
    pub(super) remembered: BTreeSet<(i64, u128)>,
    /// How many of these are in the pool's range.
    pub(super) cooling_down: usize,
    /// The scopes in which addresses of this pool are reserved or proposed, and how many: more than
    /// one while the pool joins or leaves a network.
    pub(super) holds: Vec<(Scope, usize)>,
    /// The addresses by namespace and Cluster; only of a pool with access rules.
    pub(super) quota: Option<Box<Quota>>,
    /// The IPSlices of the pool.
    pub(super) slice_objects: BTreeMap<Block, SliceInfo>,
    /// How the pool is divided into slices; only with slices in its specification.
    pub(super) slices: Option<Box<Slices>>,
}

impl PoolEntry {
    /// The known pool object, if it exists.
    pub(super) fn known(&self) -> Option<Known> {
        let declared = self.declared.as_ref()?;
        Some(Known {
            uid: Uid::of(&declared.uid),
            stamp: self.stamp,
        })
    }

    pub(super) fn usable(&self) -> Option<&UsableBlocks> {
        self.info.as_ref()?.usable.as_deref().ok()
    }

    /// The blocks that the object of the pool declares: also those that no pool of its network
    /// allocates.
    pub(super) fn declared_blocks(&self) -> Option<&UsableBlocks> {
        self.declared.as_ref()?.usable.as_deref().ok()
    }

    pub(super) fn scope(&self, key: &PoolKey) -> Scope {
        match &self.scope {
            Some(scope) => scope.clone(),
            None => Scope::Pool(key.clone()),
        }
    }

    /// The scope of the pool, if its object exists and that is not `scope`.
    pub(super) fn other_scope(&self, scope: &Scope) -> Option<Scope> {
        match &self.scope {
            Some(own) if self.info.is_some() && own != scope => Some(own.clone()),
            _ => None,
        }
    }

    /// Whether a block is in a draining part of the pool.
    pub(super) fn is_draining(&self, block: Block) -> bool {
        self.usable()
            .is_some_and(|usable| usable.is_draining(block))
    }

    /// Records what the object of the pool with this uid states about its network in its status;
    /// `has_status` is false if it has no status yet. Returns whether this is what was known
    /// before.
    pub(super) fn set_status_record(
        &mut self,
        uid: &str,
        has_status: bool,
        found: Option<StatusRecord>,
    ) -> bool {
        if self
            .declared
            .as_ref()
            .is_none_or(|declared| declared.uid != uid)
        {
            // Another pool of the same name. Addresses that are still in use stay in their network.
            let keeps_network = self.is_in_use() || !self.holds.is_empty();
            if !keeps_network || !matches!(self.record, Record::Network(_)) {
                self.record = Record::Unknown;
            }
            self.status_record = None;
        }
        let known = self.status_record.take();
        self.status_record = match (found, known.clone()) {
            (None, Some(StatusRecord::Member(network) | StatusRecord::Left(network)))
                if has_status =>
            {
                Some(StatusRecord::Left(network))
            }
            (None, known) => known,
            (found, _) => found,
        };
        let is_same = self.status_record == known;
        if !is_same {
            self.record
                .note_status_change(known.as_ref(), self.status_record.as_ref());
        }
        is_same
    }

    /// Whether the pool has limits.
    pub(super) fn has_quota(&self) -> bool {
        self.quota.is_some()
    }

    /// Whether a block is the one that a claim requests, if it requests one, and is for the owner
    /// of its slices.
    pub(super) fn may_have(&self, block: Block, attributes: &ClaimAttributes) -> bool {
        match attributes.requested {
            Some(requested) if requested != block => false,
            _ => self.is_for_owner(block, attributes.slice_owner.as_ref()),
        }
    }

    /// Whether a block of the pool is free, or kept for the next claim of a name.
    pub(super) fn can_allocate_block(&self, block: Block, usage: Option<&AddressUsage>) -> bool {
        let Some(usable) = self.usable() else {
            return false;
        };
        let Some(number) = usable.number(block) else {
            return false;
        };
        let is_taken = usage.is_some_and(|usage| usage.availability() == Availability::Taken);
        usable.can_allocate(number) && !is_taken && !self.other_lengths.contains(number)
    }

    /// Whether the pool contains a block with which no block of another length overlaps.
    pub(super) fn is_unobstructed(&self, block: Block) -> bool {
        self.can_allocate_block(block, None)
    }

    /// Whether the pool contains a block, used or not.
    pub(super) fn contains(&self, block: Block) -> bool {
        self.usable().is_some_and(|usable| usable.contains(block))
    }

    fn free_count(&self) -> u128 {
        match &self.info {
            Some(info) if info.can_allocate() => self.free_addresses(),
            _ => 0,
        }
    }

    fn free_addresses(&self) -> u128 {
        let free = match &self.free {
            Some(free) => free.len(),
            None => self.total(),
        };
        free.saturating_add(self.remembered.len() as u128)
    }

    fn total(&self) -> u128 {
        match self.usable() {
            Some(usable) => usable.set.len(),
            None => 0,
        }
    }

    pub(super) fn grant_turns(&mut self, now: Instant) -> Vec<NamespacedName> {
        let (free, headroom) = (self.free_count(), self.headroom());
        let mut freed = Freed::default();
        if let Some(quota) = &mut self.quota {
            freed.groups = quota.take_freed();
        }
        if let Some(slices) = &mut self.slices {
            let (owners, is_slice_free) = slices.take_freed();
            freed.groups.extend(owners.into_iter().map(Group::Owner));
            freed.is_slice_free = is_slice_free;
        }
        let supply = Supply {
            free,
            headroom,
            quota: self.quota.as_deref(),
            slices: self.slices.as_deref(),
            requested_is_free: false,
        };
        self.wait_queue.grant(supply, freed, now)
    }

    /// Returns what the claim gets if it is its turn; otherwise it is enqueued. That is the block
    /// that it requests, else `preferred`, which has to be free, else the next free one.
    pub(super) fn propose(
        &mut self,
        claim: &NamespacedName,
        attributes: &ClaimAttributes,
        preferred: Option<Block>,
        requested_is_free: bool,
    ) -> Outcome<Block> {
        let (free, headroom) = (self.free_count(), self.headroom());
        // Those with a lower position get the next addresses, although this request has overtaken
        // theirs.
        let ahead = self.wait_queue.due_before(claim, MAX_AHEAD);
        let (quota, slices) = (self.quota.as_deref(), self.slices.as_deref());
        let supply = Supply {
            free,
            headroom,
            quota,
            slices,
            requested_is_free,
        };
        let turn = self.wait_queue.request(claim, attributes, supply);
        let Outcome::Offer(()) = turn else {
            return turn.without_offer();
        };
        if self.slices.is_some() {
            return self.propose_of_owner(claim, attributes, preferred);
        }
        if let Some(block) = attributes.requested.or(preferred) {
            return Outcome::Offer(block);
        }
        let kept = if attributes.uses_headroom {
            0
        } else {
            headroom
        };
        self.next_free(kept, ahead).into()
    }

    /// The same in a pool with slices.
    fn propose_of_owner(
        &mut self,
        claim: &NamespacedName,
        attributes: &ClaimAttributes,
        preferred: Option<Block>,
    ) -> Outcome<Block> {
        let outcome = self.next_of_owner(attributes, preferred);
        if let Outcome::NotNow(Reason::SliceUnavailable(_)) = &outcome
            && let Some(owner) = &attributes.slice_owner
        {
            let group = Group::Owner(Arc::clone(owner));
            self.wait_queue.wait_for_group(claim, attributes, &group);
        }
        outcome
    }

    /// Lets a claim have a block that only it may have now, and that does not count as free: the
    /// address that the last claim of its name had and that cools down. Fails if its namespace or
    /// Cluster may have no further address.
    pub(super) fn take_back(
        &mut self,
        claim: &NamespacedName,
        attributes: &ClaimAttributes,
    ) -> Outcome<()> {
        let supply = Supply {
            quota: self.quota.as_deref(),
            ..Supply::default()
        };
        self.wait_queue.request_extra(claim, attributes, supply)
    }

    /// The free block that the order of the pool chooses, but none of the `kept` highest ones. The
    /// first `ahead` ones are left to claims that are about to request one, if there are enough. If
    /// all others are taken, the one that has been kept for the next claim of a name for the
    /// longest time.
    fn next_free(&mut self, kept: u128, ahead: usize) -> Option<Block> {
        let info = self.info.as_ref()?;
        let usable = info.usable.as_deref().ok()?;
        let queue = &self.wait_queue;
        let is_granted = |number: u128| queue.is_granted(usable.block(number));
        let oldest = || {
            self.remembered
                .iter()
                .map(|(_, number)| *number)
                .find(|number| !is_granted(*number))
        };
        // Remembered addresses count as headroom first.
        let kept = kept.saturating_sub(self.remembered.len() as u128);
        let number = match (&mut self.free, info.order) {
            (None, AllocationOrder::LowestFirst)
                if ahead == 0 && queue.granted_requests() == 0 && usable.ranges.len() <= 1 =>
            {
                usable.set.lowest()
            }
            (free, order) => {
                let free = free.get_or_insert_with(|| FreeSet::new(&usable.set));
                let last = self.order.last;
                let chosen = self.order.choose(
                    order,
                    usable,
                    || usable.allocatable(),
                    free,
                    kept,
                    |count| rand::random_range(0..count),
                );
                let is_ordered = order != AllocationOrder::Random && usable.ranges.len() <= 1;
                let spare = free.len().saturating_sub(kept).saturating_sub(1);
                let skipped = if is_ordered && spare >= ahead as u128 {
                    ahead
                } else {
                    0
                };
                if skipped > 0 {
                    // The next claim continues where this one would have without those ahead.
                    self.order.last = last;
                }
                let chosen =
                    std::iter::successors(chosen, |number| free.next_above(*number)).nth(skipped);
                // What a claim requests is kept for it during its turn.
                let above = std::iter::successors(chosen, |number| free.next_above(*number));
                let other = above
                    .take(queue.granted_requests().saturating_add(1))
                    .find(|number| !is_granted(*number));
                other.or_else(oldest).or(chosen)
            }
        };
        Some(usable.block(number.or_else(oldest)?))
    }

    fn headroom(&self) -> u128 {
        let Some(info) = &self.info else { return 0 };
        let Some(access) = &info.access else { return 0 };
        match &access.headroom {
            Some((addresses, _)) => *addresses,
            None => 0,
        }
    }

    pub(super) fn counts(&self) -> AddressCounts {
        let total = self.total();
        let free = self.free_addresses();
        let (used, cooling_down, drained) = (
            self.used as u128,
            self.cooling_down as u128,
            self.draining.unused(),
        );
        let others = [free, used, cooling_down, drained];
        AddressCounts {
            total: capped(total),
            free: capped(free),
            used: capped(used),
            out_of_range: capped(self.out_of_range as u128),
            cooling_down: capped(cooling_down),
            drained: capped(drained),
            reserved: capped(others.into_iter().fold(total, u128::saturating_sub)),
        }
    }

    #[cfg(test)]
    pub(super) fn has_free_list(&self) -> bool {
        self.free.is_some()
    }

    /// Whether an IPAddress is of this pool, or the reservation of an address of this pool is being
    /// created.
    pub(super) fn is_in_use(&self) -> bool {
        self.used > 0 || self.out_of_range > 0 || self.candidates > 0
    }

    pub(super) fn is_empty(&self) -> bool {
        self.info.is_none()
            && !self.is_in_use()
            && !self.has_cooldowns()
            && self.holds.is_empty()
            && self.slice_objects.is_empty()
            && self.wait_queue.is_empty()
    }

    /// Whether an address of this pool cools down or is remembered.
    pub(super) fn has_cooldowns(&self) -> bool {
        !self.cooldowns.is_empty() || !self.memories.is_empty()
    }

    /// The released addresses of this pool that have a reservation.
    pub(super) fn released(&self) -> impl Iterator<Item = &Slot> {
        self.cooldowns
            .iter()
            .chain(&self.memories)
            .map(|(_, slot)| slot)
    }

    /// The addresses that were released after a second.
    pub(super) fn released_after(&self, second: i64) -> impl Iterator<Item = &Slot> {
        let is_after = move |(since, _): &&(i64, Slot)| *since > second;
        let newest = self.cooldowns.iter().rev().take_while(is_after);
        newest
            .chain(self.memories.iter().rev().take_while(is_after))
            .map(|(_, slot)| slot)
    }

    /// The pool, if it neither is deleted nor being deleted: otherwise all cool-downs end
    /// immediately.
    fn existing(&self) -> Option<&PoolInfo> {
        self.info.as_deref().filter(|info| !info.deleting)
    }

    /// Whether released addresses are kept for the next claims of the same names.
    pub(super) fn is_sticky(&self) -> bool {
        self.existing().is_some_and(|info| info.is_sticky)
    }

    /// The first second at which an address released at `since` can be reused. Times are truncated
    /// to seconds, so the last second of the cool-down has to be over. In a pool that is deleted or
    /// has no grace period, a cool-down ends immediately.
    pub(super) fn cooldown_end(&self, since: i64) -> i64 {
        let pool = self.existing().filter(|info| info.cooldown_seconds > 0);
        pool.map_or(i64::MIN, |info| {
            since
                .saturating_add(info.cooldown_seconds)
                .saturating_add(1)
        })
    }

    /// The first second at which an address released at `since` is no longer kept for the next
    /// claim of the same name.
    fn memory_end(&self, since: i64) -> i64 {
        let pool = self.existing().filter(|info| info.is_sticky);
        let kept_for = pool.map(|info| info.cooldown_seconds.max(STICKY_SECONDS));
        kept_for.map_or(i64::MIN, |seconds| {
            since.saturating_add(seconds).saturating_add(1)
        })
    }

    /// Whether an address released at `since` is only kept for the next claim of the same name at
    /// the second `now`.
    pub(super) fn is_remembered(&self, since: i64, now: i64) -> bool {
        self.is_sticky() && self.cooldown_end(since) <= now
    }

    /// The earliest second at which a cool-down ends; `None` if no address is cooling down.
    pub(super) fn next_cooldown_end(&self) -> Option<i64> {
        self.cooldowns
            .first()
            .map(|(since, _)| self.cooldown_end(*since))
    }

    /// The earliest second at which a reservation of a released address is no longer needed.
    pub(super) fn next_reservation_end(&self) -> Option<i64> {
        let memory = self
            .memories
            .first()
            .map(|(since, _)| self.memory_end(*since));
        memory.into_iter().chain(self.next_cooldown_end()).min()
    }

    /// The addresses whose cool-down has ended at the second `now`. In a sticky pool they are
    /// remembered then.
    pub(super) fn cooled_down(&self, now: i64) -> impl Iterator<Item = &Slot> {
        let over = move |(since, _): &&(i64, Slot)| self.cooldown_end(*since) <= now;
        self.cooldowns.iter().take_while(over).map(|(_, slot)| slot)
    }

    /// The addresses whose reservations are no longer needed at the second `now`.
    pub(super) fn reservations_to_delete(&self, now: i64) -> impl Iterator<Item = &Slot> {
        let forgotten = self
            .memories
            .iter()
            .take_while(move |(since, _)| self.memory_end(*since) <= now);
        self.cooled_down(now).chain(forgotten.map(|(_, slot)| slot))
    }
}

fn capped(count: u128) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
