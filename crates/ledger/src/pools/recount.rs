//! The counts and the free addresses of a pool after a change of its blocks.

use capi_ipam_ip::{Block, FreeSet, Span, SpanSet, UsableBlocks};

use super::PoolEntry;
use super::draining::Draining;
use crate::PoolKey;
use crate::addresses::{AddressUsage, Availability, UsageMap};
use crate::count;

impl PoolEntry {
    /// Computes the free set and the counts again after a change of the usable blocks from
    /// `before`. Only the blocks that the change adds or removes are counted, if `before` numbers
    /// the blocks in the same way and all used blocks have the pool's length: which blocks of other
    /// lengths overlap is known only within the pool. `usage` is that of the pool's scope, which is
    /// the same as before.
    pub(crate) fn change_usable(&mut self, key: &PoolKey, before: &UsableBlocks, usage: &UsageMap) {
        let Some(usable) = self.shared_usable().cloned() else {
            // Those in the range of the pool are outside of it now.
            let out_of_range = self.out_of_range.saturating_add(self.used);
            self.clear(usage);
            self.out_of_range = out_of_range;
            return;
        };
        let has_same_numbers = before.family == usable.family && before.length == usable.length;
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
        self.change_free(before, &usable, &changed, &changed_usage);
        self.change_counts(key, before, &usable, &changed_usage);
        self.finish(&usable, usage);
    }

    /// Updates the sets of free numbers. `used` is what uses the `changed` numbers.
    fn change_free(
        &mut self,
        before: &UsableBlocks,
        usable: &UsableBlocks,
        changed: &SpanSet,
        used: &[UsedBlock<'_>],
    ) {
        let allocatable = changed.intersect(&usable.allocatable());
        let numbers = || used.iter().map(|used| used.number);
        // Without a free set all blocks are free. A pool keeps none as long as this is right.
        if self.free.is_some() || !used.is_empty() || !usable.draining.is_empty() {
            let free = self
                .free
                .get_or_insert_with(|| FreeSet::new(&before.allocatable()));
            free.replace(changed, &allocatable, numbers());
        }
        let draining = changed.intersect(&usable.draining);
        self.draining.unused.replace(changed, &draining, numbers());
        for used in used {
            let Availability::Remembered(since) = used.usage.availability() else {
                continue;
            };
            if allocatable.contains(used.number) {
                self.remembered.insert((since, used.number));
            } else {
                self.remembered.remove(&(since, used.number));
            }
        }
    }

    /// Updates the counts of the addresses in use. `used` is what uses the numbers that have
    /// changed.
    fn change_counts(
        &mut self,
        key: &PoolKey,
        before: &UsableBlocks,
        usable: &UsableBlocks,
        used: &[UsedBlock<'_>],
    ) {
        for used in used {
            let was_in_range = before.set.contains(used.number);
            let is_in_range = usable.set.contains(used.number);
            if was_in_range != is_in_range && used.usage.has_address_of(key) {
                count(&mut self.used, is_in_range);
                count(&mut self.out_of_range, was_in_range);
            }
            let is_in_use = usable.is_draining(used.block) && used.usage.is_in_use_of(key);
            self.draining.set_in_use(used.block, is_in_use);
        }
    }

    /// Computes the free set and the counts again from all used blocks of the pool's scope.
    pub(crate) fn recount(&mut self, key: &PoolKey, usage: &UsageMap) {
        let Some(usable) = self.shared_usable().cloned() else {
            self.clear(usage);
            self.out_of_range = 0;
            for (_, usage) in usage.iter() {
                if usage.has_address_of(key) {
                    self.out_of_range += 1;
                }
            }
            return;
        };
        self.order.reset();
        let mut taken = Vec::new();
        let mut other_lengths = Vec::new();
        for (block, _) in usage.iter() {
            match usable.number(block) {
                Some(number) if usable.set.contains(number) => taken.push(Span::single(number)),
                Some(_) => {}
                // It takes all numbers with which it overlaps.
                None => other_lengths.extend(usable.numbers_overlapping(block)),
            }
        }
        let taken = SpanSet::from_iter(taken);
        let other_lengths = SpanSet::from_iter(other_lengths);
        let allocatable = usable.allocatable().subtract(&other_lengths);
        let is_all_free =
            taken.is_empty() && other_lengths.is_empty() && usable.draining.is_empty();
        self.free = if is_all_free {
            None
        } else {
            Some(FreeSet::new(&allocatable.subtract(&taken)))
        };
        self.remembered.clear();
        self.used = 0;
        self.out_of_range = 0;
        // One pass, since the entries are scattered in memory.
        for (block, usage) in usage.iter() {
            if let Availability::Remembered(since) = usage.availability()
                && let Some(number) = usable.number(block)
                && allocatable.contains(number)
            {
                self.remembered.insert((since, number));
            }
            if usage.has_address_of(key) {
                let count = if usable.contains(block) {
                    &mut self.used
                } else {
                    &mut self.out_of_range
                };
                *count += 1;
            }
        }
        self.draining = Draining::of(key, &usable, &other_lengths, usage);
        self.other_lengths = other_lengths;
        self.finish(&usable, usage);
    }

    /// The state of a pool without usable blocks.
    fn clear(&mut self, usage: &UsageMap) {
        self.order.reset();
        self.free = None;
        self.other_lengths = SpanSet::default();
        self.used = 0;
        self.released.clear_range();
        self.remembered.clear();
        self.refresh_requests(usage);
        self.draining = Draining::default();
        self.slices = None;
    }

    /// Computes what depends on the free set and the counts.
    fn finish(&mut self, usable: &UsableBlocks, usage: &UsageMap) {
        self.released.count_in_range(usable);
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

/// A used block of a pool.
struct UsedBlock<'a> {
    number: u128,
    block: Block,
    usage: &'a AddressUsage,
}

/// What uses the blocks with these numbers. Looks up each number, or each used block if these are
/// fewer.
fn usage_in<'a>(
    usable: &UsableBlocks,
    numbers: &SpanSet,
    usage: &'a UsageMap,
) -> Vec<UsedBlock<'a>> {
    let mut found = Vec::new();
    if numbers.len() < usage.len() as u128 {
        for span in numbers.spans() {
            for number in span.first()..=span.last() {
                let block = usable.block(number);
                if let Some(usage) = usage.get(&block) {
                    found.push(UsedBlock {
                        number,
                        block,
                        usage,
                    });
                }
            }
        }
    } else {
        for (block, usage) in usage.iter() {
            if let Some(number) = usable.number(block)
                && numbers.contains(number)
            {
                found.push(UsedBlock {
                    number,
                    block,
                    usage,
                });
            }
        }
    }
    found
}
