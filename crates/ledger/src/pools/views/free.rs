//! The addresses that each pool can allocate: the free ones, and those that are kept for the next
//! claims of the same names as long as others are free.

use capi_ipam_ip::{Block, FreeSet, SpanSet, UsableBlocks};

use super::Derived;
use crate::addresses::Availability;
use crate::addresses::Change;
use crate::addresses::Facts;
use crate::pools::PoolEntry;

/// How a block that became used or free affects a pool.
enum Effect {
    /// Not at all: the block is not in the pool.
    OutOfPool,
    /// The free set was updated.
    Updated,
    /// The block has another length than those of the pool: the pool has to be recounted.
    LengthMismatch,
}

/// Where a block is in a pool.
enum Place {
    /// Outside.
    Outside,
    /// It is the block with this number.
    Number(u128),
    /// It has another length than the blocks of the pool, and overlaps with some of them.
    Overlapping,
}

/// Records for all pools of the scope whether they can allocate the address.
pub(crate) fn changed(change: &Change<'_>, derived: &mut Derived<'_>) {
    let (before, after) = (change.before.availability, change.after.availability);
    let has_new_user = has_new_user(&change.before, &change.after);
    for member in derived.members {
        let Some(pool) = derived.pools.get_mut(member) else {
            continue;
        };
        match pool.set_availability(change.slot.block, before, after) {
            Effect::OutOfPool => continue,
            Effect::Updated if has_new_user => {
                let waiting = pool.wait_queue.waiting_for(change.slot.block);
                derived.effects.claims.extend(waiting.cloned());
            }
            Effect::Updated => {}
            Effect::LengthMismatch => pool.recount(member, derived.usage),
        }
        derived.dirty_pools.push(member.clone());
    }
}

/// Whether the address cannot be allocated for another reason than before, which claims report that
/// request it. That another claim is about to reserve it is not reported.
fn has_new_user(before: &Facts, after: &Facts) -> bool {
    let is_same = before.availability == after.availability
        && before.is_held == after.is_held
        && before.reserved_by == after.reserved_by
        && before.released == after.released
        && before.used_by == after.used_by;
    after.availability == Availability::Taken && after.offered_by.is_none() && !is_same
}

impl Place {
    fn of(block: Block, usable: &UsableBlocks) -> Self {
        if let Some(number) = usable.number(block) {
            let is_inside = usable.set.contains(number);
            return if is_inside {
                Self::Number(number)
            } else {
                Self::Outside
            };
        }
        match usable.numbers_overlapping(block) {
            Some(numbers) if !usable.set.intersect(&SpanSet::from(numbers)).is_empty() => {
                Self::Overlapping
            }
            _ => Self::Outside,
        }
    }
}

impl PoolEntry {
    /// Records that the availability of a block of the pool's scope has changed.
    fn set_availability(
        &mut self,
        block: Block,
        before: Availability,
        after: Availability,
    ) -> Effect {
        let Some(info) = &self.info else {
            return Effect::OutOfPool;
        };
        let Ok(usable) = &info.usable else {
            return Effect::OutOfPool;
        };
        let number = match Place::of(block, usable) {
            Place::Outside => return Effect::OutOfPool,
            Place::Overlapping => return Effect::LengthMismatch,
            Place::Number(number) => number,
        };
        let is_obstructed = self.other_lengths.contains(number);
        let is_free = after == Availability::Free;
        if usable.draining.contains(number) {
            self.draining.set_free(number, is_free && !is_obstructed);
            return Effect::Updated;
        }
        // The free set is created when it first differs from the blocks of the pool.
        let is_changed = match &mut self.free {
            Some(free) if !is_free => free.take(number),
            Some(free) => !is_obstructed && free.release(number),
            None if !is_free => {
                self.free = Some(FreeSet::without(&usable.set, std::iter::once(number)));
                true
            }
            None => false,
        };
        if is_changed {
            self.order.set_free(number, is_free);
            if let Some(slices) = &mut self.slices {
                slices.set_free(number, is_free);
            }
        }
        if let Availability::Remembered(since) = before {
            self.set_remembered(since, number, false);
        }
        if let Availability::Remembered(since) = after
            && !is_obstructed
        {
            self.set_remembered(since, number, true);
        }
        let can_be_requested = after != Availability::Taken && !is_obstructed;
        self.wait_queue.set_block_free(block, can_be_requested);
        Effect::Updated
    }

    /// Records that a number is kept for the next claim of a name, or no longer.
    fn set_remembered(&mut self, since: i64, number: u128, is_remembered: bool) {
        if is_remembered {
            self.remembered.insert((since, number));
        } else {
            self.remembered.remove(&(since, number));
        }
        if let Some(slices) = &mut self.slices {
            slices.set_remembered(since, number, is_remembered);
        }
    }
}
