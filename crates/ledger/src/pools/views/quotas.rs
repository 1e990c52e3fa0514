//! The claims that count for the limits of each pool.

use super::Derived;
use crate::addresses::Change;

/// Charges the claims that have the address now, and no longer those that had it.
pub(crate) fn changed(change: &Change<'_>, derived: &mut Derived<'_>) {
    let (before, after) = (&change.before.charges, &change.after.charges);
    if before == after {
        return;
    }
    for (charges, is_added) in [(before, false), (after, true)] {
        for (pool, consumer) in charges {
            let entry = derived.pools.get_mut(pool);
            if let Some(quota) = entry.and_then(|entry| entry.quota.as_mut()) {
                quota.charge(consumer, is_added);
                derived.dirty_pools.push(pool.clone());
            }
        }
    }
}
