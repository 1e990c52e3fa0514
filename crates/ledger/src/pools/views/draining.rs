//! The addresses in use in the draining parts of each pool.

use super::Derived;
use crate::addresses::Change;

/// Records for the pools in whose draining parts the address is whether it is in use.
pub(crate) fn changed(change: &Change<'_>, derived: &mut Derived<'_>) {
    let block = change.slot.block;
    for member in derived.members {
        let Some(pool) = derived.pools.get_mut(member) else {
            continue;
        };
        if pool.is_draining(block) {
            let is_in_use = change.after.is_in_use_of(member);
            pool.draining.set_in_use(block, is_in_use);
        }
    }
}
