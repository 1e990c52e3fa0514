//! The derived views of all addresses: counts, free addresses, limits, cool-downs, draining parts,
//! and the pools that hold addresses.
//!
//! A view is a sum over the facts of all addresses. So it is computed from nothing, or from what one
//! address contributed before a change and what it contributes afterwards, with the same result. A
//! test compares both for each view after any sequence of changes.

mod cooldowns;
mod counts;
mod draining;
mod free;
mod holders;
mod quotas;
#[cfg(test)]
mod tests;

use capi_ipam_api::{PoolKey, Scope};

use super::Pools;
use crate::addresses::Change;
use crate::addresses::UsageMap;
use crate::effects::Effects;

/// What the views keep, and what they ask others to do.
pub(crate) struct Derived<'a> {
    pub(crate) pools: &'a mut Pools,
    /// The usage of all addresses of the scope, after the change.
    pub(crate) usage: &'a UsageMap,
    /// The pools of the scope.
    pub(crate) members: &'a [PoolKey],
    /// The pools with a reservation or a candidate in the scope; only of a network.
    pub(crate) holders: &'a mut Vec<PoolKey>,
    /// Scopes in which the address is held by a pool of that scope, or no longer: it is reserved
    /// outside of the scope of its pool.
    pub(crate) elsewhere: Vec<(Scope, bool)>,
    pub(crate) dirty_pools: &'a mut Vec<PoolKey>,
    pub(crate) effects: &'a mut Effects,
}

/// A view that takes in a change of one address.
type View = fn(&Change<'_>, &mut Derived<'_>);

/// All views. The free addresses are the last one: a block of another length than those of a pool
/// makes it count the pool from nothing, with what the others have recorded.
const VIEWS: [View; 6] = [
    draining::changed,
    counts::changed,
    quotas::changed,
    holders::changed,
    cooldowns::changed,
    free::changed,
];

/// Passes a change of one address to all views.
pub(crate) fn changed(change: &Change<'_>, derived: &mut Derived<'_>) {
    for view in VIEWS {
        view(change, derived);
    }
}

/// Counts one more, or one less.
fn count(number: &mut usize, is_added: bool) {
    *number = if is_added {
        number.saturating_add(1)
    } else {
        number.saturating_sub(1)
    };
}
