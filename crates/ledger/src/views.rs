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

use std::collections::HashMap;

use capi_ipam_api::{PoolKey, Scope};

use super::addresses::Change;
use super::addresses::UsageMap;
use super::effects::Effects;
use super::pool::PoolEntry;

/// What the views keep, and what they ask others to do.
pub(super) struct Derived<'a> {
    pub(super) pools: &'a mut HashMap<PoolKey, PoolEntry>,
    /// The usage of all addresses of the scope, after the change.
    pub(super) usage: &'a UsageMap,
    /// The pools of the scope.
    pub(super) members: &'a [PoolKey],
    /// The pools with a reservation or a candidate in the scope; only of a network.
    pub(super) holders: &'a mut Vec<PoolKey>,
    /// Scopes in which the address is held by a pool of that scope, or no longer: it is reserved
    /// outside of the scope of its pool.
    pub(super) elsewhere: Vec<(Scope, bool)>,
    pub(super) dirty_pools: &'a mut Vec<PoolKey>,
    pub(super) effects: &'a mut Effects,
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
pub(super) fn changed(change: &Change<'_>, derived: &mut Derived<'_>) {
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
