//! What a change of one address does to the counts of all pools.

use capi_ipam_api::{PoolKey, Scope, Slot};

use super::Ledger;
use super::pool::Effect;
use super::quota::Consumer;
use super::usage::{AddressUsage, CandidateInfo};

impl Ledger {
    /// Changes the usage of an address, and updates the counts of all affected pools.
    pub(super) fn update(&mut self, slot: &Slot, change: impl FnOnce(&mut AddressUsage)) {
        let Self {
            pools,
            scopes,
            dirty_pools,
            effects,
            quotas,
            ..
        } = self;
        let scope = scopes.entry(slot.scope.clone()).or_default();
        let usage = scope.usage.get_or_insert(slot.block);
        let availability_before = usage.availability();
        let (pools_before, release_before) = (usage.pools(), usage.release());
        let candidate_before = usage.candidate_pool().cloned();
        let reserved_before = usage
            .reservation
            .as_ref()
            .map(|reservation| reservation.pool.clone());
        let has_quotas = *quotas > 0;
        let charged_before = if has_quotas {
            usage.charges()
        } else {
            Vec::new()
        };
        change(usage);
        let charged_after = if has_quotas {
            usage.charges()
        } else {
            Vec::new()
        };
        let candidate_after = usage.candidate_pool().cloned();
        let reserved_after = usage
            .reservation
            .as_ref()
            .map(|reservation| reservation.pool.clone());
        let availability_after = usage.availability();
        let (pools_after, release_after, is_free) =
            (usage.pools(), usage.release(), usage.is_free());
        if pools_after.is_empty() && !pools_before.is_empty() {
            // Another claim had the promised address: the promise can be kept now.
            effects.claims.extend(usage.promised_to().cloned());
        }
        for member in &scope.members {
            let pool = pools
                .get_mut(member)
                .filter(|pool| pool.is_draining(slot.block));
            if let Some(pool) = pool {
                pool.draining
                    .set_in_use(slot.block, usage.is_in_use_of(member));
            }
        }
        if is_free {
            scope.usage.remove(&slot.block);
        }
        for (pool, is_added) in differences(&pools_before, &pools_after) {
            pools
                .entry(pool.clone())
                .or_default()
                .count_address(slot.block, is_added);
            dirty_pools.push(pool.clone());
        }
        if charged_before != charged_after {
            let removed = charged_before.into_iter().map(|charge| (charge, false));
            for ((pool, consumer), is_added) in
                removed.chain(charged_after.into_iter().map(|charge| (charge, true)))
            {
                let Some(entry) = pools.get_mut(&pool) else {
                    continue;
                };
                let Some(quota) = &mut entry.quota else {
                    continue;
                };
                quota.charge(&consumer, is_added);
                dirty_pools.push(pool);
            }
        }
        let (mut elsewhere, mut holders) = (Vec::new(), Vec::new());
        let candidates = (candidate_before, candidate_after);
        for (is_candidate, (before, after)) in [
            (false, (reserved_before, reserved_after)),
            (true, candidates),
        ] {
            if before == after {
                continue;
            }
            for (pool, is_added) in before
                .map(|pool| (pool, false))
                .into_iter()
                .chain(after.map(|pool| (pool, true)))
            {
                let entry = pools.entry(pool.clone()).or_default();
                if entry.count_hold(&slot.scope, is_added)
                    && matches!(slot.scope, Scope::Network(_))
                {
                    holders.push((pool.clone(), is_added));
                }
                elsewhere.extend(
                    entry
                        .other_scope(&slot.scope)
                        .map(|scope| (scope, is_added)),
                );
                if is_candidate {
                    entry.count_candidate(is_added);
                }
                if is_candidate || entry.info.is_none() {
                    dirty_pools.push(pool);
                }
            }
        }
        if release_before != release_after {
            effects.cooldowns_changed = true;
            let ended = release_before.map(|release| (release, false));
            let started = release_after.map(|release| (release, true));
            for ((pool, since, is_remembered), is_started) in ended.into_iter().chain(started) {
                let entry = pools.entry(pool.clone()).or_default();
                entry.set_release(since, slot.clone(), is_remembered, is_started);
                dirty_pools.push(pool);
            }
        }
        for member in &scope.members {
            let Some(pool) = pools.get_mut(member) else {
                continue;
            };
            match pool.set_availability(slot.block, availability_before, availability_after) {
                Effect::OutOfPool => continue,
                Effect::Updated => {}
                Effect::LengthMismatch => pool.recount(member, &scope.usage),
            }
            dirty_pools.push(member.clone());
        }
        for (pool, is_added) in holders {
            scope.set_holder(&pool, is_added);
        }
        if scope.is_empty() {
            scopes.remove(&slot.scope);
        }
        if let Scope::Network(network) = &slot.scope {
            self.effects.networks.push(network.clone());
        }
        for (scope, is_added) in elsewhere {
            self.effects.scopes_changed = true;
            self.count_hold_elsewhere(
                &Slot {
                    scope,
                    block: slot.block,
                },
                is_added,
            );
        }
    }

    /// Counts an address as held in another scope, or no longer.
    pub(super) fn count_hold_elsewhere(&mut self, slot: &Slot, is_added: bool) {
        self.update(slot, |usage| usage.count_elsewhere(is_added));
    }

    /// Holds an address that is not held, and counts it for `consumer` in pools with limits.
    pub(super) fn hold(&mut self, slot: &Slot, pool: &PoolKey, consumer: Option<Consumer>) -> bool {
        let is_free = !self.is_candidate(slot);
        if is_free {
            self.update(slot, |usage| {
                usage.candidate = Some(Box::new(CandidateInfo {
                    pool: pool.clone(),
                    consumer,
                }));
            });
        }
        is_free
    }

    pub(super) fn release_candidate(&mut self, slot: &Slot) {
        if self.is_candidate(slot) {
            self.update(slot, AddressUsage::drop_candidate);
        }
    }

    fn is_candidate(&self, slot: &Slot) -> bool {
        self.usage(slot)
            .is_some_and(|usage| usage.candidate.is_some())
    }
}

/// The pools that are in one list only: `false` for removed ones, `true` for added ones.
fn differences<'a>(
    before: &'a [PoolKey],
    after: &'a [PoolKey],
) -> impl Iterator<Item = (&'a PoolKey, bool)> {
    let removed = before
        .iter()
        .filter(|pool| !after.contains(pool))
        .map(|pool| (pool, false));
    removed.chain(
        after
            .iter()
            .filter(|pool| !before.contains(pool))
            .map(|pool| (pool, true)),
    )
}
