//! Which block of a pool a claim gets, and whose turn it is.

use std::sync::Arc;
use std::time::Instant;

use capi_ipam_api::AllocationOrder;
use capi_ipam_ip::{Block, FreeSet, UsableBlocks};
use capi_ipam_objects::namespaced_name::NamespacedName;

use super::PoolEntry;
use crate::order::Order;
use crate::outcome::{Outcome, Reason};
use crate::quota::Group;
use crate::wait_queue::{ClaimAttributes, Freed, Supply, WaitQueue};

/// The maximum number of addresses that are left to claims which are about to request one.
const MAX_AHEAD: usize = 64;

impl PoolEntry {
    /// Grants turns to waiting claims as long as there are free addresses for them. Returns the
    /// claims that have to be reconciled.
    pub(crate) fn grant_turns(&mut self, now: Instant) -> Vec<NamespacedName> {
        let free = self.free_count();
        let headroom = self.headroom();
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
    pub(crate) fn propose(
        &mut self,
        claim: &NamespacedName,
        attributes: &ClaimAttributes,
        preferred: Option<Block>,
        requested_is_free: bool,
    ) -> Outcome<Block> {
        // Those with a lower position get the next addresses, although this request has overtaken
        // theirs.
        let ahead = self.wait_queue.due_before(claim, MAX_AHEAD);
        let supply = Supply {
            free: self.free_count(),
            headroom: self.headroom(),
            quota: self.quota.as_deref(),
            slices: self.slices.as_deref(),
            requested_is_free,
        };
        let kept = supply.kept_from(attributes.uses_headroom);
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
        self.next_free(kept, ahead).into()
    }

    /// The same in a pool with slices.
    fn propose_of_owner(
        &mut self,
        claim: &NamespacedName,
        attributes: &ClaimAttributes,
        preferred: Option<Block>,
    ) -> Outcome<Block> {
        if self.is_divided_since(attributes) {
            self.wait_queue.enqueue(claim, attributes, true);
            return Outcome::NO_ADDRESS;
        }
        let outcome = self.next_of_owner(attributes, preferred);
        // The turn is used up: without a slice the claim has to wait for one.
        if let Outcome::NotNow(Reason::SliceUnavailable(_)) = &outcome
            && let Some(owner) = &attributes.slice_owner
        {
            let group = Group::Owner(Arc::clone(owner));
            self.wait_queue.wait_for_group(claim, attributes, &group);
        }
        outcome
    }

    /// Whether the pool was divided into slices after the attributes of a claim were looked up.
    pub(crate) fn is_divided_since(&self, attributes: &ClaimAttributes) -> bool {
        self.slices.is_some() && attributes.slice_owner.is_none()
    }

    /// Lets a claim have a block that only it may have now, and that does not count as free: the
    /// address that the last claim of its name had and that cools down. Fails if its namespace or
    /// Cluster may have no further address.
    pub(crate) fn take_back(
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
        // Remembered addresses count as headroom first.
        let kept = kept.saturating_sub(self.remembered.len() as u128);

        // As long as all blocks are free and the lowest one is wanted, no free set is needed: there
        // can be ten thousand such pools.
        let wants_lowest = info.order == AllocationOrder::LowestFirst
            && ahead == 0
            && queue.granted_requests() == 0
            && usable.ranges.len() <= 1;
        if self.free.is_none() && wants_lowest {
            return Some(usable.block(usable.set.lowest()?));
        }

        let free = self.free.get_or_insert_with(|| FreeSet::new(&usable.set));
        let chosen = choose_behind(&mut self.order, info.order, usable, free, kept, ahead);
        // A remembered address is better than one that a claim with a turn has requested.
        let number = match next_ungranted(queue, usable, free, chosen) {
            Some(number) => number,
            None => self.oldest_remembered(usable).or(chosen)?,
        };
        Some(usable.block(number))
    }

    /// The number that has been kept for the next claim of a name for the longest time, and that no
    /// claim with a turn has requested.
    fn oldest_remembered(&self, usable: &UsableBlocks) -> Option<u128> {
        for (_, number) in &self.remembered {
            if !self.wait_queue.is_granted(usable.block(*number)) {
                return Some(*number);
            }
        }
        None
    }
}

/// Chooses a free number by the order of the pool, but none of the `kept` highest ones, and leaves
/// the first `ahead` ones to others if there are enough.
fn choose_behind(
    state: &mut Order,
    order: AllocationOrder,
    usable: &UsableBlocks,
    free: &FreeSet,
    kept: u128,
    ahead: usize,
) -> Option<u128> {
    let last = state.last;
    let mut chosen = state.choose(
        order,
        usable,
        || usable.allocatable(),
        free,
        kept,
        |count| rand::random_range(0..count),
    );
    // Only within one range the next number above is the next one in the order of the pool.
    let is_ordered = order != AllocationOrder::Random && usable.ranges.len() <= 1;
    let spare = free.len().saturating_sub(kept).saturating_sub(1);
    if ahead == 0 || !is_ordered || spare < ahead as u128 {
        return chosen;
    }
    // The next claim continues where this one would have without those ahead.
    state.last = last;
    for _ in 0..ahead {
        chosen = free.next_above(chosen?);
    }
    chosen
}

/// The first free number from `chosen` upwards that no claim with a turn has requested: it is kept
/// for that claim during the turn.
fn next_ungranted(
    queue: &WaitQueue,
    usable: &UsableBlocks,
    free: &FreeSet,
    chosen: Option<u128>,
) -> Option<u128> {
    let mut number = chosen?;
    // One more than there are requests is enough: one of these numbers is not requested.
    for _ in 0..=queue.granted_requests() {
        if !queue.is_granted(usable.block(number)) {
            return Some(number);
        }
        number = free.next_above(number)?;
    }
    None
}
