//! The slices of a pool: changes of its entry in the ledger, and what a claim of an owner gets.

use std::sync::Arc;

use capi_ipam_api::{SliceCounts, SliceOwner};
use capi_ipam_ip::{Block, SpanSet};
use capi_ipam_objects::namespaced_name::NamespacedName;

use super::PoolEntry;
use crate::addresses::UsageMap;
use crate::outcome::Outcome;
use crate::slices::{Contents, SliceAccess, SliceInfo, Slices};
use crate::wait_queue::ClaimAttributes;

impl PoolEntry {
    /// Divides the pool into slices again, after a change of its blocks, its rules or its slices.
    pub(crate) fn divide(&mut self) {
        let previous = self.slices.take();
        let Some(info) = &self.info else { return };
        let Some(rules) = info.slices.clone() else {
            self.allocated.clear();
            return;
        };
        let Some(contents) = self.contents() else {
            return;
        };
        let all = contents.usable.allocatable().subtract(&self.other_lengths);
        let slices = Slices::new(
            rules,
            contents,
            &all,
            &self.slice_objects,
            previous.as_deref(),
        );
        self.slices = Some(Box::new(slices));
    }

    /// What is divided into slices; `None` without usable blocks.
    fn contents(&self) -> Option<Contents<'_>> {
        Some(Contents {
            usable: self.usable()?,
            free: self.free.as_ref(),
            remembered: &self.remembered,
            allocated: &self.allocated,
        })
    }

    /// Records when an address was allocated, also by another process. The time is kept for each
    /// address in use until it is known that the pool has no slices: IPAddresses can be observed
    /// before their pool and its slices.
    pub(crate) fn record_allocation(&mut self, block: Block, at: i64) {
        self.order.record(block, at);
        let Some(info) = &self.info else {
            self.allocated.insert(block, at);
            return;
        };
        if info.slices.is_none() {
            return;
        }
        self.allocated.insert(block, at);
        if let Some(slices) = &mut self.slices
            && let Ok(usable) = &info.usable
        {
            slices.record(usable, block, at);
        }
    }

    /// Records an IPSlice of the pool.
    pub(crate) fn insert_slice(&mut self, block: Block, slice: SliceInfo) {
        self.slice_objects.insert(block, slice.clone());
        let mut slices = self.slices.take();
        if let (Some(slices), Some(contents)) = (&mut slices, self.contents()) {
            slices.insert(contents, block, slice);
        }
        self.slices = slices;
    }

    /// Removes an IPSlice of the pool.
    pub(crate) fn remove_slice(&mut self, block: Block) {
        self.slice_objects.remove(&block);
        if let Some(slices) = &mut self.slices
            && let Some(info) = &self.info
            && let Ok(usable) = &info.usable
        {
            slices.remove(usable, block);
            if slices.len() < self.slice_objects.len() {
                // Another slice that overlaps with it may have an effect now.
                self.divide();
            }
        }
    }

    /// Records that the request which assigns a slice has ended, whatever the pool is now.
    pub(crate) fn end_slice_assignment(&mut self, block: Block) {
        if let Some(slices) = &mut self.slices {
            slices.end_assignment(block);
        }
    }

    /// The counts of the slices; `None` without slices.
    pub(crate) fn slice_counts(&self) -> Option<SliceCounts> {
        Some(self.slices.as_ref()?.counts())
    }

    /// Whether an address of a block of the pool is in use, or not free for another reason. Linear
    /// in the free spans of the block; the others of its addresses are looked up in `usage`.
    pub(crate) fn has_address_in(&self, block: Block, usage: Option<&UsageMap>) -> bool {
        let mut has_others = true;
        if let Some(usable) = self.usable() {
            if let Some(numbers) = usable.numbers_overlapping(block) {
                let contained = usable.allocatable().intersect(&SpanSet::from(numbers));
                if self.has_taken(&contained) {
                    return true;
                }
            }
            // The gateway and reserved addresses of the subnet are not in the pool, and not in use
            // either.
            has_others = self.out_of_range > 0 || !usable.draining.is_empty();
        }
        has_others && usage.is_some_and(|usage| usage.has_address_in(block))
    }

    /// Whether one of these numbers, which the pool can allocate, is not free.
    fn has_taken(&self, numbers: &SpanSet) -> bool {
        let Some(free) = &self.free else {
            return false;
        };
        let mut count = 0_u128;
        for span in numbers.spans() {
            for free in free.within(*span) {
                count = count.saturating_add(free.len());
            }
        }
        count < numbers.len()
    }

    /// The claims that request an address, and that a change of the slices may allow to have it.
    pub(crate) fn wake_requests(&mut self) -> Vec<NamespacedName> {
        // Those that request an address wait for a change of the pool, too.
        if self.wait_queue.has_requests() {
            self.wait_queue.pool_changed()
        } else {
            Vec::new()
        }
    }

    /// Whether the owner of a claim may have a block; true in a pool without slices.
    pub(crate) fn is_for_owner(&self, block: Block, owner: Option<&Arc<SliceOwner>>) -> bool {
        let (Some(slices), Some(usable)) = (&self.slices, self.usable()) else {
            return true;
        };
        let Some(owner) = owner else {
            return false;
        };
        usable
            .number(block)
            .is_some_and(|number| slices.access(owner, number) != SliceAccess::Denied)
    }

    /// What a claim of an owner of slices gets: the block that it requests, else `preferred`, else
    /// the next free one.
    pub(crate) fn next_of_owner(
        &mut self,
        attributes: &ClaimAttributes,
        preferred: Option<Block>,
    ) -> Outcome<Block> {
        let Some(info) = &self.info else {
            return Outcome::NO_ADDRESS;
        };
        let (Ok(usable), Some(slices)) = (&info.usable, &mut self.slices) else {
            return Outcome::NO_ADDRESS;
        };
        let Some(owner) = &attributes.slice_owner else {
            return Outcome::NO_ADDRESS;
        };
        let wanted = match attributes.requested.or(preferred) {
            Some(block) => usable.number(block),
            None => None,
        };
        let queue = &self.wait_queue;
        let is_granted = |number: u128| queue.is_granted(usable.block(number));
        let outcome = match wanted {
            Some(number) => slices.choose_number(owner, number, usable),
            None => slices.choose(owner, info.order, usable, is_granted, |count| {
                rand::random_range(0..count)
            }),
        };
        outcome.map(|number| usable.block(number))
    }
}
