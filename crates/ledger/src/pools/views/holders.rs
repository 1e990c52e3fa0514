//! In which scopes each pool has addresses reserved or proposed, and which pools have some in a
//! network.

use capi_ipam_api::{PoolKey, Scope};

use super::{Derived, count};
use crate::addresses::Change;
use crate::addresses::set_in_order;
use crate::pools::PoolEntry;

/// Counts the reservation and the candidate of the address for their pools.
pub(crate) fn changed(change: &Change<'_>, derived: &mut Derived<'_>) {
    let (before, after) = (&change.before, &change.after);
    if before.reserved_by != after.reserved_by {
        count_hold(change, derived, before.reserved_by.as_ref(), false, false);
        count_hold(change, derived, after.reserved_by.as_ref(), true, false);
    }
    if before.offered_by != after.offered_by {
        count_hold(change, derived, before.offered_by.as_ref(), false, true);
        count_hold(change, derived, after.offered_by.as_ref(), true, true);
    }
}

fn count_hold(
    change: &Change<'_>,
    derived: &mut Derived<'_>,
    pool: Option<&PoolKey>,
    is_added: bool,
    is_candidate: bool,
) {
    let Some(pool) = pool else { return };
    let scope = &change.slot.scope;
    let entry = derived.pools.entry(pool);
    let is_first_or_last = entry.count_hold(scope, is_added);
    if is_candidate {
        count(&mut entry.candidates, is_added);
    }
    // The pool has joined or left a network: the address is not free in its present scope either.
    if let Some(other) = entry.other_scope(scope) {
        derived.elsewhere.push((other, is_added));
    }
    // What exists and has a reservation is reported as soon as it is used.
    if is_candidate || is_first_or_last || entry.info.is_none() {
        derived.dirty_pools.push(pool.clone());
    }
    if is_first_or_last && matches!(scope, Scope::Network(_)) {
        set_in_order(derived.holders, pool, is_added);
    }
}

impl PoolEntry {
    /// Counts a reservation or candidate of this pool that was added or removed in a scope. Returns
    /// whether it is the first one there, or was the last.
    fn count_hold(&mut self, scope: &Scope, is_added: bool) -> bool {
        let before = self.holds.len();
        match self.holds.iter_mut().find(|(known, _)| known == scope) {
            Some((_, known)) => count(known, is_added),
            None if is_added => self.holds.push((scope.clone(), 1)),
            None => {}
        }
        self.holds.retain(|(_, count)| *count > 0);
        self.holds.len() != before
    }
}
