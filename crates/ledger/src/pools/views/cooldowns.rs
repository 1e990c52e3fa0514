//! The released addresses of each pool that cool down, or are kept for the next claims of the same
//! names.

use super::Derived;
use crate::addresses::Change;

/// Records that the address cools down or is remembered, or no longer.
pub(crate) fn changed(change: &Change<'_>, derived: &mut Derived<'_>) {
    let (before, after) = (&change.before.released, &change.after.released);
    if before == after {
        return;
    }
    derived.effects.cooldowns_changed = true;
    for (released, is_started) in [(before, false), (after, true)] {
        let Some(released) = released else { continue };
        let pool = &released.pool;
        let entry = derived.pools.entry(pool);
        let is_in_range = entry.contains(change.slot.block);
        let addresses = &mut entry.released;
        addresses.set(change.slot, released, is_started, is_in_range);
        derived.dirty_pools.push(pool.clone());
    }
}
