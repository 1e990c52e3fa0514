//! The derived views of all addresses: counts, free addresses, limits, cool-downs, draining parts,
//! the pools that hold addresses, and the addresses in use in several scopes.
//!
//! A view is a sum over the facts of all addresses. So it is computed from nothing, or from what
//! one address contributed before a change and what it contributes afterwards, with the same
//! result. A test compares both for each view after any sequence of changes.

mod free;
mod holders;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use capi_ipam_api::{PoolKey, Scope, Slot};
use capi_ipam_ip::Block;

use super::effects::Effects;
use super::facts::Facts;
use super::in_use::InUse;
use super::pool::PoolEntry;
use super::usage::UsageMap;

/// What one address contributed before a change, and what it contributes afterwards.
pub(super) struct Change<'a> {
    pub(super) slot: &'a Slot,
    pub(super) before: Facts,
    pub(super) after: Facts,
}

/// What the views keep, and what they ask others to do.
pub(super) struct Derived<'a> {
    pub(super) pools: &'a mut HashMap<PoolKey, PoolEntry>,
    /// The usage of all addresses of the scope, after the change.
    pub(super) usage: &'a UsageMap,
    /// The pools of the scope.
    pub(super) members: &'a [PoolKey],
    /// The pools with a reservation or a candidate in the scope; only of a network.
    pub(super) holders: &'a mut Vec<PoolKey>,
    pub(super) in_use: &'a mut InUse,
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
const VIEWS: [View; 7] = [
    draining,
    counts,
    quotas,
    holders::changed,
    in_use,
    cooldowns,
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

/// Records for the pools in whose draining parts the address is whether it is in use.
fn draining(change: &Change<'_>, derived: &mut Derived<'_>) {
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

/// Counts the address for pools that have an IPAddress with it now, and no longer for those that
/// had one.
fn counts(change: &Change<'_>, derived: &mut Derived<'_>) {
    let (before, after) = (&change.before.used_by, &change.after.used_by);
    for pool in before.iter().filter(|pool| !after.contains(pool)) {
        count_address(derived, pool, change.slot.block, false);
    }
    for pool in after.iter().filter(|pool| !before.contains(pool)) {
        count_address(derived, pool, change.slot.block, true);
    }
}

fn count_address(derived: &mut Derived<'_>, pool: &PoolKey, block: Block, is_added: bool) {
    let entry = derived.pools.entry(pool.clone()).or_default();
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

/// Charges the claims that have the address now, and no longer those that had it.
fn quotas(change: &Change<'_>, derived: &mut Derived<'_>) {
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

/// Counts the scope of the address if an IPAddress has it there now, and no longer if none has.
fn in_use(change: &Change<'_>, derived: &mut Derived<'_>) {
    let was_in_use = !change.before.used_by.is_empty();
    let is_in_use = !change.after.used_by.is_empty();
    if was_in_use != is_in_use {
        derived.in_use.set(change.slot, is_in_use);
    }
}

/// Records that the address cools down or is remembered, or no longer.
fn cooldowns(change: &Change<'_>, derived: &mut Derived<'_>) {
    let (before, after) = (&change.before.released, &change.after.released);
    if before == after {
        return;
    }
    derived.effects.cooldowns_changed = true;
    for (released, is_started) in [(before, false), (after, true)] {
        let Some(released) = released else { continue };
        let pool = &released.pool;
        let entry = derived.pools.entry(pool.clone()).or_default();
        let is_in_range = entry.contains(change.slot.block);
        let addresses = &mut entry.released;
        addresses.set(change.slot, released, is_started, is_in_range);
        derived.dirty_pools.push(pool.clone());
    }
}
