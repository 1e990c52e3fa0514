//! The released addresses of each pool that cool down, or are kept for the next claims of the same
//! names.

use capi_ipam_api::Slot;

use super::super::pool::PoolEntry;
use super::super::usage::Released;
use super::{Change, Derived};

/// Records that the address cools down or is remembered, or no longer.
pub(super) fn changed(change: &Change<'_>, derived: &mut Derived<'_>) {
    let (before, after) = (&change.before.released, &change.after.released);
    if before == after {
        return;
    }
    derived.effects.cooldowns_changed = true;
    for (released, is_started) in [(before, false), (after, true)] {
        let Some(released) = released else { continue };
        let pool = &released.pool;
        let entry = derived.pools.entry(pool.clone()).or_default();
        entry.set_released(change.slot, released, is_started);
        derived.dirty_pools.push(pool.clone());
    }
}

impl PoolEntry {
    /// Records that a released address of this pool cools down or is remembered, or no longer.
    fn set_released(&mut self, slot: &Slot, released: &Released, is_started: bool) {
        let key = (released.since, slot.clone());
        if released.is_remembered {
            if is_started {
                self.memories.insert(key);
            } else {
                self.memories.remove(&key);
            }
            return;
        }
        let in_range = usize::from(self.contains(slot.block));
        if is_started {
            if self.cooldowns.insert(key) {
                self.cooling_down = self.cooling_down.saturating_add(in_range);
            }
        } else if self.cooldowns.remove(&key) {
            self.cooling_down = self.cooling_down.saturating_sub(in_range);
        }
    }
}
