//! What a write of a pool or network would change, for admission. Nothing here changes the ledger.

use std::collections::BTreeMap;

use capi_ipam_api::{IPNetwork, PoolKey, Scope, ScopeChange, Slot};
use capi_ipam_ip::Block;
use kube::ResourceExt;

use super::networks::{NetworkInfo, Networks};
use super::usage::AddressUsage;
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
        for (key, entry) in &self.pools {
            let (Some(declared), Some(info)) = (&entry.declared, &entry.info) else {
                continue;
            };
            let change = self.scope_change(key, declared, &networks);
            let is_same_scope = change.before.as_ref() == Some(&change.after);
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
        let existing = self.pools.get(key).and_then(|entry| entry.info.as_ref());
        let before = existing.map(|existing| existing.scope.clone());
        // The first pool of a network joins it once the length of its blocks is set.
        let after = placed.awaited.map_or(placed.info.scope, Scope::Network);
        let refusal = placed.info.network_problem;
        ScopeChange {
            pool: key.clone(),
            before,
            after,
            refusal,
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
        for change in changes
            .iter_mut()
            .filter(|change| change.left_network().is_none())
        {
            let (pool, scope) = (&change.pool, &change.after);
            let is_used_by_another_joining_pool = |block: &Block| {
                users
                    .get(&(scope.clone(), *block))
                    .is_some_and(|count| *count > 1)
            };
            change.affected.retain(|block| {
                is_used_by_another_joining_pool(block)
                    || self.is_held_by_another(pool, scope, *block)
            });
        }
    }

    /// Whether another pool of a scope has an address reserved or in use.
    fn is_held_by_another(&self, pool: &PoolKey, scope: &Scope, block: Block) -> bool {
        let Some(usage) = self.usage(&Slot {
            scope: scope.clone(),
            block,
        }) else {
            return false;
        };
        holders(usage).any(|holder| holder != pool)
    }
}

/// The pools that have an address reserved or in use.
fn holders(usage: &AddressUsage) -> impl Iterator<Item = &PoolKey> {
    let reserved = usage
        .reservation
        .iter()
        .map(|reservation| &reservation.pool);
    reserved.chain(usage.owners.iter().map(|owner| &owner.pool))
}
