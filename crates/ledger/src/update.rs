//! Changes of one address, and of all that is derived from it.

use capi_ipam_api::{PoolKey, Scope, Slot};

use super::addresses::{AddressUsage, CandidateInfo};
use super::pools::quota::Consumer;
use super::pools::views::{self, Derived};
use super::{Ledger, addresses};

impl Ledger {
    /// Changes the usage of an address, and updates all that is derived from it.
    pub(super) fn update(&mut self, slot: &Slot, change: impl FnOnce(&mut AddressUsage)) {
        for (scope, is_added) in self.update_one(slot, change) {
            // The pool has joined or left a network. The address counts as held in its present
            // scope as well, until its reservation is moved.
            self.effects.scopes_changed = true;
            self.count_hold_elsewhere(&addresses::slot(&scope, slot.block), is_added);
        }
    }

    /// Returns the scopes in which the address is held by one of their pools although it is not
    /// reserved there, or no longer.
    fn update_one(
        &mut self,
        slot: &Slot,
        change: impl FnOnce(&mut AddressUsage),
    ) -> Vec<(Scope, bool)> {
        let changed = self
            .addresses
            .change(slot, self.pools.have_quotas(), change);
        // Another claim had the promised address.
        self.effects.claims.extend(changed.kept_promise);
        let mut derived = Derived {
            pools: &mut self.pools,
            usage: changed.usage,
            members: changed.members,
            holders: changed.holders,
            elsewhere: Vec::new(),
            dirty_pools: &mut self.dirty_pools,
            effects: &mut self.effects,
        };
        views::changed(&changed.change, &mut derived);
        let elsewhere = derived.elsewhere;
        self.addresses.remove_if_empty(&slot.scope);
        if let Scope::Network(network) = &slot.scope {
            self.effects.networks.push(network.clone());
        }
        elsewhere
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
        self.addresses
            .usage(slot)
            .is_some_and(|usage| usage.candidate.is_some())
    }
}
