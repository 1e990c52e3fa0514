//! The derived views of all addresses: counts, free addresses, limits, cool-downs, draining parts,
//! and the pools that hold addresses.
//!
//! A view is a sum over the facts of all addresses. So it is computed from nothing, or from what
//! one address contributed before a change and what it contributes afterwards, with the same
//! result. A test compares both for each view after any sequence of changes.

use capi_ipam_api::{PoolKey, Scope};
use capi_ipam_ip::{Block, FreeSet};

use crate::addresses::{Availability, Change, Facts, ScopeEntry, set_in_order};
use crate::count;
use crate::effects::Effects;
use crate::pools::{PoolEntry, Pools};

/// What the views keep, and what they ask others to do.
pub(crate) struct Derived<'a> {
    pub(crate) pools: &'a mut Pools,
    /// The addresses and the pools of the scope, after the change.
    pub(crate) scope: &'a mut ScopeEntry,
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
const VIEWS: [View; 6] = [draining, counts, quotas, holders, cooldowns, free];

/// Passes a change of one address to all views.
pub(crate) fn changed(change: &Change<'_>, derived: &mut Derived<'_>) {
    for view in VIEWS {
        view(change, derived);
    }
}

/// Records for the pools in whose draining parts the address is whether it is in use.
fn draining(change: &Change<'_>, derived: &mut Derived<'_>) {
    let block = change.slot.block;
    for member in &derived.scope.members {
        let Some(pool) = derived.pools.get_mut(member) else {
            continue;
        };
        if pool.is_draining(block) {
            let usage = derived.scope.usage.get(&block);
            let is_in_use = usage.is_some_and(|usage| usage.is_in_use_of(member));
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

/// Counts the reservation and the candidate of the address for their pools.
fn holders(change: &Change<'_>, derived: &mut Derived<'_>) {
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
        set_in_order(&mut derived.scope.holders, pool, is_added);
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
        let entry = derived.pools.entry(pool);
        let is_in_range = entry.contains(change.slot.block);
        let addresses = &mut entry.released;
        addresses.set(change.slot, released, is_started, is_in_range);
        derived.dirty_pools.push(pool.clone());
    }
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
fn free(change: &Change<'_>, derived: &mut Derived<'_>) {
    let (before, after) = (change.before.availability, change.after.availability);
    let has_new_user = has_new_user(&change.before, &change.after);
    for member in &derived.scope.members {
        let Some(pool) = derived.pools.get_mut(member) else {
            continue;
        };
        let block = change.slot.block;
        match pool.place_of(block) {
            Place::Outside => continue,
            Place::Number(number) => pool.set_availability((block, number), before, after),
            // The pool has to be recounted.
            Place::Overlapping => pool.recount(member, &derived.scope.usage),
        }
        if has_new_user {
            let waiting = pool.wait_queue.waiting_for(block);
            derived.effects.claims.extend(waiting.cloned());
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

impl PoolEntry {
    /// Where a block is in the pool.
    fn place_of(&self, block: Block) -> Place {
        let Some(usable) = self.usable() else {
            return Place::Outside;
        };
        match (usable.number(block), usable.numbers_overlapping(block)) {
            (Some(number), _) if usable.set.contains(number) => Place::Number(number),
            (None, Some(numbers)) if usable.set.overlaps(numbers) => Place::Overlapping,
            _ => Place::Outside,
        }
    }

    /// Records that the availability of a block of the pool, which has this number, has changed.
    fn set_availability(
        &mut self,
        (block, number): (Block, u128),
        before: Availability,
        after: Availability,
    ) {
        let Some(usable) = self.shared_usable().cloned() else {
            return;
        };
        let is_obstructed = self.other_lengths.contains(number);
        let is_free = after == Availability::Free;
        if usable.draining.contains(number) {
            self.draining.set_free(number, is_free && !is_obstructed);
            return;
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

#[cfg(test)]
mod tests;
