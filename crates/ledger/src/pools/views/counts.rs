//! The IPAddress objects of each pool, in its range and outside of it.

use capi_ipam_api::PoolKey;
use capi_ipam_ip::Block;

use super::{Derived, count};
use crate::addresses::Change;
use crate::pools::PoolEntry;

/// Counts the address for pools that have an IPAddress with it now, and no longer for those that
/// had one.
pub(crate) fn changed(change: &Change<'_>, derived: &mut Derived<'_>) {
    let (before, after) = (&change.before.used_by, &change.after.used_by);
    for pool in before.iter().filter(|pool| !after.contains(pool)) {
        count_address(derived, pool, change.slot.block, false);
    }
    for pool in after.iter().filter(|pool| !before.contains(pool)) {
        count_address(derived, pool, change.slot.block, true);
    }
}

fn count_address(derived: &mut Derived<'_>, pool: &PoolKey, block: Block, is_added: bool) {
    let entry = derived.pools.entry(pool);
    entry.count_address(block, is_added);
    derived.dirty_pools.push(pool.clone());
}

impl PoolEntry {
    /// Counts an IPAddress of this pool that was added or removed.
    fn count_address(&mut self, block: Block, is_added: bool) {
        if self.contains(block) {
            count(&mut self.used, is_added);
        } else {
            count(&mut self.out_of_range, is_added);
        }
        if !is_added {
            self.allocated.remove(&block);
        }
    }
}
