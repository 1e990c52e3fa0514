//! The counts and the free addresses of a pool after a change of its blocks.

use std::sync::Arc;

use capi_ipam_ip::{Block, FreeSet, SpanSet, UsableBlocks};

use super::PoolKey;
use super::draining::Draining;
use super::pool::PoolEntry;
use super::usage::{AddressUsage, Availability, UsageMap};

impl PoolEntry {
    /// Computes the free set and the counts again after a change of the usable blocks from
    /// `before`. Only the blocks that the change adds or removes are counted, if `before` numbers
    /// the blocks in the same way and all used blocks have the pool's length: which blocks of other
    /// lengths overlap is known only within the pool. `usage` is that of the pool's scope, which is
    /// the same as before.
    pub(super) fn change_usable(&mut self, key: &PoolKey, before: &UsableBlocks, usage: &UsageMap) {
        let Some(usable) = self
            .info
            .as_ref()
            .and_then(|info| info.usable.as_ref().ok())
            .map(Arc::clone)
        else {
            let out_of_range = self.out_of_range.saturating_add(self.used);
            self.clear(usage);
            self.out_of_range = out_of_range;
            return;
        };
        let has_same_numbers = (before.family, before.length) == (usable.family, usable.length);
        if !has_same_numbers || usage.has_other_lengths(usable.family, usable.length) {
            self.recount(key, usage);
            return;
        }
        self.other_lengths = SpanSet::default();
        self.order.reset();
        let is_draining = !before.draining.is_empty() || !usable.draining.is_empty();
        if self.free.is_none() && usage.is_empty() && !is_draining {
            // All blocks were free, and are.
            self.finish(&usable, usage);
            return;
        }
        let changed = SpanSet::from_iter([
            &before.set.subtract(&usable.set),
            &usable.set.subtract(&before.set),
            &before.draining.subtract(&usable.draining),
            &usable.draining.subtract(&before.draining),
        ]);
        let changed_usage = usage_in(&usable, &changed, usage);
        let allocatable = changed.intersect(&usable.allocatable());
        let numbers = || changed_usage.iter().map(|(number, ..)| *number);
        if self.free.is_some() || !changed_usage.is_empty() || !usable.draining.is_empty() {
            let free = self
                .free
                .get_or_insert_with(|| FreeSet::new(&before.allocatable()));
            free.replace(&changed, &allocatable, numbers());
        }
        self.draining
            .unused
            .replace(&changed, &changed.intersect(&usable.draining), numbers());
        for (number, block, usage) in &changed_usage {
            if let Availability::Remembered(since) = usage.availability() {
                if allocatable.contains(*number) {
                    self.remembered.insert((since, *number));
                } else {
                    self.remembered.remove(&(since, *number));
                }
            }
            let (was_in_range, is_in_range) =
                (before.set.contains(*number), usable.set.contains(*number));
            if was_in_range != is_in_range && usage.owners.iter().any(|owner| owner.pool == *key) {
                self.move_count(is_in_range);
            }
            self.draining.set_in_use(
                *block,
                usable.is_draining(*block) && usage.is_in_use_of(key),
            );
        }
        self.finish(&usable, usage);
    }

    /// Computes the free set and the counts again from all used blocks of the pool's scope.
    pub(super) fn recount(&mut self, key: &PoolKey, usage: &UsageMap) {
        let Some(usable) = self
            .info
            .as_ref()
            .and_then(|info| info.usable.as_ref().ok())
            .map(Arc::clone)
        else {
            self.clear(usage);
            let has_address =
                |usage: &&AddressUsage| usage.owners.iter().any(|owner| owner.pool == *key);
            self.out_of_range = usage.values().filter(has_address).count();
            return;
        };
        self.order.reset();
        let mut numbers = usage
            .blocks()
            .filter_map(|block| usable.number(*block))
            .filter(|number| usable.set.contains(*number))
            .peekable();
        let other_lengths = usage
            .blocks()
            .filter(|block| usable.number(**block).is_none());
        let other_lengths: SpanSet = other_lengths
            .filter_map(|block| usable.numbers_overlapping(*block))
            .collect();
        let is_all_free =
            other_lengths.is_empty() && usable.draining.is_empty() && numbers.peek().is_none();
        let allocatable = usable.allocatable().subtract(&other_lengths);
        self.free = (!is_all_free).then(|| FreeSet::without(&allocatable, numbers));
        self.remembered.clear();
        (self.used, self.out_of_range) = (0, 0);
        // One pass, since the entries are scattered in memory.
        for (block, usage) in usage.iter() {
            let number = usable.number(block);
            if let (Availability::Remembered(since), Some(number)) = (usage.availability(), number)
                && allocatable.contains(number)
            {
                self.remembered.insert((since, number));
            }
            if usage.owners.iter().any(|owner| owner.pool == *key) {
                let count = if usable.contains(block) {
                    &mut self.used
                } else {
                    &mut self.out_of_range
                };
                *count = count.saturating_add(1);
            }
        }
        self.draining = Draining::of(key, &usable, &other_lengths, usage);
        self.other_lengths = other_lengths;
        self.finish(&usable, usage);
    }

    /// The state of a pool without usable blocks.
    fn clear(&mut self, usage: &UsageMap) {
        self.order.reset();
        (self.free, self.other_lengths, self.used, self.cooling_down) =
            (None, SpanSet::default(), 0, 0);
        self.remembered.clear();
        self.refresh_requests(usage);
        self.draining = Draining::default();
        self.slices = None;
    }

    /// Counts an IPAddress of the pool that is in its range now, or no longer.
    fn move_count(&mut self, is_in_range: bool) {
        let (from, to) = (&mut self.out_of_range, &mut self.used);
        let (from, to) = if is_in_range { (from, to) } else { (to, from) };
        (*from, *to) = (from.saturating_sub(1), to.saturating_add(1));
    }

    /// Computes what depends on the free set and the counts.
    fn finish(&mut self, usable: &UsableBlocks, usage: &UsageMap) {
        self.cooling_down = self
            .cooldowns
            .iter()
            .filter(|(_, slot)| usable.contains(slot.block))
            .count();
        self.divide();
        self.refresh_requests(usage);
    }

    /// Computes again which of the requested blocks are free.
    fn refresh_requests(&mut self, usage: &UsageMap) {
        for block in self.wait_queue.requested_blocks() {
            let is_free = self.can_allocate_block(block, usage.get(&block));
            self.wait_queue.set_block_free(block, is_free);
        }
    }
}

/// What uses the blocks with these numbers. Looks up each number, or each used block if these are
/// fewer.
fn usage_in<'a>(
    usable: &UsableBlocks,
    numbers: &SpanSet,
    usage: &'a UsageMap,
) -> Vec<(u128, Block, &'a AddressUsage)> {
    let mut found = Vec::new();
    if numbers.len() < usage.len() as u128 {
        for span in numbers.spans() {
            for number in span.first()..=span.last() {
                let block = usable.block(number);
                if let Some(usage) = usage.get(&block) {
                    found.push((number, block, usage));
                }
            }
        }
    } else {
        for (block, usage) in usage.iter() {
            if let Some(number) = usable.number(block)
                && numbers.contains(number)
            {
                found.push((number, block, usage));
            }
        }
    }
    found
}
