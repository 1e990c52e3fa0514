//! What a write of a pool or network would change, for admission. Nothing here changes the ledger.

use std::collections::BTreeMap;

use capi_ipam_api::{IPNetwork, PoolKey, Scope, ScopeChange, Slot};
use capi_ipam_ip::Block;
use kube::ResourceExt;

use super::addresses::AddressUsage;
use super::networks::{NetworkInfo, Networks};
use super::{Ledger, PoolInfo};

impl Ledger {
    /// What a write of a pool, which may not be stored yet, changes. `declared` is what
    /// [`PoolInfo::of`] has read.
    pub fn preview_pool(&self, key: &PoolKey, declared: PoolInfo) -> ScopeChange {
        let declared = PoolInfo {
            scope: Scope::Pool(key.clone()),
            ..declared
        };
        let mut change = self.scope_change(key, &declared, &self.networks);
        if change.left_network().is_some() {
            change.affected = self.in_use(key, &|_| true);
        } else if change.joined_network().is_some() {
            change.affected = self.in_use(key, &|block| {
                self.is_held_by_another(key, &change.after, block)
            });
        }
        change
    }

    /// What a write of a network changes for the existing pools. Pools that keep their scope are
    /// left out, unless the network would refuse them for another reason than now.
    pub fn preview_network(&self, network: &IPNetwork) -> Vec<ScopeChange> {
        let networks = self
            .networks
            .preview(&network.name_any(), NetworkInfo::of(network));
        let mut changes = Vec::new();
        for (key, entry) in self.pools.iter() {
            let (Some(declared), Some(info)) = (entry.declared(), entry.info()) else {
                continue;
            };
            let change = self.scope_change(key, declared, &networks);
            let is_same_scope = change.before.as_ref() == Some(&change.after)
                && change.is_kept == info.is_kept_in_network;
            let is_same_refusal =
                change.refusal.is_none() || change.refusal == info.network_problem;
            if !is_same_scope || !is_same_refusal {
                changes.push(change);
            }
        }
        changes.sort_unstable_by(|one, other| one.pool.cmp(&other.pool));
        self.find_affected(&mut changes);
        changes
    }

    fn scope_change(&self, key: &PoolKey, declared: &PoolInfo, networks: &Networks) -> ScopeChange {
        let placed = networks.place(key, declared, &self.past_of(key));
        let before = self.pools.info(key).map(|existing| existing.scope.clone());
        // The first pool of a network joins it once the length of its blocks is set.
        let after = match placed.awaited {
            Some(network) => Scope::Network(network),
            None => placed.info.scope,
        };
        let refusal = placed.info.network_problem;
        let is_kept = placed.info.is_kept_in_network;
        ScopeChange {
            pool: key.clone(),
            before,
            after,
            refusal,
            is_kept,
            affected: Vec::new(),
        }
    }

    /// Finds the addresses that changes affect that happen at the same time: several pools that
    /// join a network can use the same address.
    fn find_affected(&self, changes: &mut [ScopeChange]) {
        let mut users: BTreeMap<(Scope, Block), usize> = BTreeMap::new();
        for change in changes.iter_mut() {
            if change.left_network().is_none() && change.joined_network().is_none() {
                continue;
            }
            change.affected = self.in_use(&change.pool, &|_| true);
            for block in &change.affected {
                let count = users.entry((change.after.clone(), *block)).or_default();
                *count = count.saturating_add(1);
            }
        }
        for change in changes {
            // A pool that leaves a network takes all its addresses with it.
            if change.left_network().is_some() {
                continue;
            }
            let pool = &change.pool;
            let scope = &change.after;
            change.affected.retain(|block| {
                let users = users.get(&(scope.clone(), *block));
                let is_used_by_another_joining_pool = users.is_some_and(|count| *count > 1);
                is_used_by_another_joining_pool || self.is_held_by_another(pool, scope, *block)
            });
        }
    }

    /// Whether another pool of a scope has an address reserved or in use.
    fn is_held_by_another(&self, pool: &PoolKey, scope: &Scope, block: Block) -> bool {
        let slot = Slot {
            scope: scope.clone(),
            block,
        };
        match self.addresses.usage(&slot) {
            Some(usage) => is_of_another_pool(usage, pool),
            None => false,
        }
    }
}

/// Whether another pool has an address reserved or in use.
fn is_of_another_pool(usage: &AddressUsage, pool: &PoolKey) -> bool {
    if let Some(reservation) = &usage.reservation
        && reservation.pool != *pool
    {
        return true;
    }
    usage.owners.iter().any(|owner| owner.pool != *pool)
}
