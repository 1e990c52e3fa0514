//! Changes of pools: their scope, blocks, gateways and limits.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use capi_ipam_api::{PoolKey, Scope, Slot};
use capi_ipam_ip::{Family, SpanSet};
use capi_ipam_objects::clock;
use capi_ipam_objects::namespaced_name::NamespacedName;

use super::addresses::{AddressUsage, UsageMap};
use super::networks::exclusions::addresses_in;
use super::networks::{PoolInNetwork, PoolPast};
use super::pools::{PoolChange, PoolEntry, PoolGateways, network_of};
use super::{Ledger, PoolInfo};

impl Ledger {
    /// Replaces the state of a pool object; `None` removes it.
    pub(super) fn set_pool(&mut self, key: &PoolKey, declared: Option<PoolInfo>) {
        let declared = declared.map(Arc::new);
        let placed = declared
            .as_ref()
            .map(|declared| self.in_network(key, declared));
        self.set_placed(key, declared, placed);
    }

    /// Applies its network to the declared state of a pool. At a start the gateways of the other
    /// pools are not known: the pool has all its blocks then, and is computed again before it
    /// allocates.
    pub(super) fn in_network(&self, key: &PoolKey, declared: &PoolInfo) -> PoolInNetwork {
        let past = self.past_of(key);
        if self.start.defers_exclusions() {
            self.networks.place(key, declared, &past)
        } else {
            self.networks.apply(key, declared, &past)
        }
    }

    /// Replaces the state of a pool object by the declared one, to which its network is applied.
    pub(super) fn set_placed(
        &mut self,
        key: &PoolKey,
        declared: Option<Arc<PoolInfo>>,
        placed: Option<PoolInNetwork>,
    ) {
        let before = self.pools.allocation(key);
        self.replace_pool(key, declared, placed);
        let after = self.pools.allocation(key);
        if before != after {
            // At a start all pools are reconciled.
            if self.start.is_complete() {
                let affected =
                    self.pools
                        .with_changed_overlaps(key, before.as_ref(), after.as_ref());
                self.dirty_pools.extend(affected);
            }
        }
    }

    fn replace_pool(
        &mut self,
        key: &PoolKey,
        declared: Option<Arc<PoolInfo>>,
        placed: Option<PoolInNetwork>,
    ) {
        let (info, [awaited_before, awaited]) = self.pools.entry(key).place(placed);
        if awaited_before != awaited {
            self.networks
                .set_awaited(key, awaited_before.as_ref(), awaited.as_ref());
            self.effects.networks.extend(awaited);
        }
        let after = match &info {
            Some(info) => self.addresses.shared_scope(info.scope.clone()),
            None => self.pools.scope(key),
        };
        let change = self.pools.entry(key).compare(key, declared, info, after);
        let networks = [network_of(&change.before), network_of(&change.after)];
        self.effects.networks.extend(networks.into_iter().flatten());
        if change.moves() && change.had_object {
            self.count_elsewhere(key, &change.before, false);
        }
        if change.usable_before != change.usable_after {
            self.pools.move_extents(
                key,
                change.usable_before.as_deref(),
                change.usable_after.as_deref(),
            );
        }
        let entry = self.pools.entry(key);
        self.effects.cooldowns_changed |= !entry.released().is_empty();
        self.effects.scopes_changed |= entry.starts_moves(&change);
        // Not at each change of the pool, and not at once.
        self.claims_to_recheck.extend(entry.replace_object(&change));
        self.dirty_pools.push(key.clone());
        self.change_slices(key, &change);
        if !change.is_unchanged() {
            self.change_blocks(key, &change);
        }
        // After its addresses are moved to its scope: a charge that this removes must be counted.
        if change.has_new_rules {
            self.set_quota(key);
        }
        // After the recount, which relates to the state before it.
        if change.has_new_retention {
            self.refresh_memories(key, clock::now().0.as_second());
        }
        self.count_gateways(key);
    }

    /// Applies another division into slices.
    fn change_slices(&mut self, key: &PoolKey, change: &PoolChange) {
        if change.has_new_slices
            && let Some(entry) = self.pools.get_mut(key)
        {
            entry.divide();
            let waiting = entry.wait_queue.rules_changed();
            self.effects.claims.extend(waiting);
        }
    }

    /// What is known of a pool besides its object.
    pub(super) fn past_of(&self, key: &PoolKey) -> PoolPast<'_> {
        let Some(entry) = self.pools.get(key) else {
            return PoolPast::default();
        };
        let mut reserved_in = None;
        if entry.lacks_record() {
            reserved_in = self.reserved_in(key, entry);
        }
        entry.past(reserved_in, self.start.knows_usage())
    }

    /// The network in which claims have reservations of a pool: of several networks the first one.
    /// Reservations that users have created do not count: they can be in any scope.
    fn reserved_in(&self, key: &PoolKey, entry: &PoolEntry) -> Option<Arc<str>> {
        let is_of_claim = |usage: &AddressUsage| match &usage.reservation {
            Some(known) => known.pool == *key && !known.is_manual(),
            None => false,
        };
        let mut first: Option<&Arc<str>> = None;
        for (scope, _) in entry.holds() {
            let Scope::Network(network) = scope else {
                continue;
            };
            let is_earlier = first.is_none_or(|first| network < first);
            if is_earlier
                && self
                    .addresses
                    .usage_in(scope)
                    .any(|(_, usage)| is_of_claim(usage))
            {
                first = Some(network);
            }
        }
        first.cloned()
    }

    /// Counts the blocks of a pool after a change of its scope or of its usable blocks.
    fn change_blocks(&mut self, key: &PoolKey, change: &PoolChange) {
        let after = &change.after;
        self.change_scope(key, &change.before, after, change.exists);
        if change.exists && change.moves() {
            self.count_elsewhere(key, after, true);
        }
        let none = UsageMap::default();
        let usage = match self.addresses.scope(after) {
            Some(scope) => &scope.usage,
            None => &none,
        };
        if let Some(entry) = self.pools.get_mut(key) {
            // What the pool had in another scope does not tell what it has in this one.
            let usable_before = change.usable_before.as_deref();
            match usable_before.filter(|_| change.before == *after) {
                Some(usable_before) => entry.change_usable(key, usable_before, usage),
                None => entry.recount(key, usage),
            }
        }
        let promised_to = self.promised_to(key, after);
        self.effects.claims.extend(promised_to);
    }

    /// Counts the addresses of a pool by namespace and Cluster, after a change of its access rules.
    fn set_quota(&mut self, key: &PoolKey) {
        let rules = self.pools.info(key).and_then(|info| info.access.clone());
        let quota = rules.map(|rules| self.quota(key, &rules));
        let waiting = self.pools.set_quota(key, quota);
        self.effects.claims.extend(waiting);
    }

    /// Counts the addresses that a pool holds in other scopes as not free in `scope`, or no longer.
    fn count_elsewhere(&mut self, pool: &PoolKey, scope: &Scope, is_added: bool) {
        let Some(entry) = self.pools.get(pool) else {
            return;
        };
        let mut blocks = Vec::new();
        for (other, _) in entry.holds() {
            if other == scope {
                continue;
            }
            for (block, usage) in self.addresses.usage_in(other) {
                blocks.extend(std::iter::repeat_n(block, usage.holds_of(pool)));
            }
        }
        self.effects.scopes_changed |= !blocks.is_empty();
        for block in blocks {
            let scope = scope.clone();
            self.count_hold_elsewhere(&Slot { scope, block }, is_added);
        }
    }

    /// Counts the gateways that a pool adds to the exclusions of its network: no pool of the network
    /// allocates them. Each pool that contains one which has changed is computed again once.
    pub(super) fn count_gateways(&mut self, pool: &PoolKey) {
        let Some(entry) = self.pools.get_mut(pool) else {
            return;
        };
        let Some([before, after]) = entry.replace_gateways(pool) else {
            return;
        };
        let mut changed: BTreeMap<Arc<str>, BTreeSet<IpAddr>> = BTreeMap::new();
        // Added first: a gateway that the pool keeps does not change.
        for (gateways, is_added) in [(after, true), (before, false)] {
            let Some(PoolGateways { network, addresses }) = gateways else {
                continue;
            };
            let exclusions = self.networks.exclusions.entry(network.clone()).or_default();
            let addresses: BTreeSet<IpAddr> = addresses.iter().copied().collect();
            for gateway in exclusions.count_gateways(&addresses, is_added) {
                changed.entry(network.clone()).or_default().insert(gateway);
            }
            if exclusions.is_empty() {
                self.networks.exclusions.remove(&network);
            }
        }
        for (network, gateways) in changed {
            let v4 = addresses_in(&gateways, Family::V4).collect();
            let v6 = addresses_in(&gateways, Family::V6).collect();
            self.exclusions_changed(network, &v4, &v6, Some(pool));
        }
    }

    /// Records that pools of a network may allocate these addresses now, or no longer: each pool
    /// that contains one of them is computed again, but not `except`.
    pub(super) fn exclusions_changed(
        &mut self,
        network: Arc<str>,
        v4: &SpanSet,
        v6: &SpanSet,
        except: Option<&PoolKey>,
    ) {
        // Many pools may change: their exclusions are applied once.
        if self.start.defers_exclusions() || !self.pools_to_refresh.is_empty() {
            self.members_are_stale(network);
            return;
        }
        for member in self.members_containing(network, v4, v6) {
            if Some(&member) != except {
                self.queue_refresh(&member);
            }
        }
    }

    /// Records that all pools of a network have to be computed again. At a start they are anyway.
    pub(super) fn members_are_stale(&mut self, network: Arc<str>) {
        if !self.start.defers_exclusions() {
            self.stale_networks.insert(network);
        }
    }

    /// The pools of a network whose specification contains one of these addresses.
    fn members_containing(&self, network: Arc<str>, v4: &SpanSet, v6: &SpanSet) -> Vec<PoolKey> {
        let mut found = Vec::new();
        let Some(scope) = self.addresses.scope(&Scope::Network(network)) else {
            return found;
        };
        for member in &scope.members {
            let Some(declared) = self.pools.get(member).and_then(PoolEntry::declared_blocks) else {
                continue;
            };
            let of_family = match declared.family {
                Family::V4 => v4,
                Family::V6 => v6,
            };
            if declared.overlaps_addresses(of_family) {
                found.push(member.clone());
            }
        }
        found
    }

    /// The claims to which addresses of the pool are promised: the pool may contain the addresses
    /// only now.
    fn promised_to(&self, pool: &PoolKey, scope: &Scope) -> Vec<NamespacedName> {
        let mut claims = Vec::new();
        // Most clusters have none: nothing is searched.
        if !self.addresses.has_promises() {
            return claims;
        }
        for (_, usage) in self.addresses.usage_in(scope) {
            if let Some(reservation) = &usage.reservation
                && reservation.pool == *pool
            {
                claims.extend(usage.promised_to().cloned());
            }
        }
        claims
    }

    /// Makes a pool a member of its scope, and moves its addresses to the scope if it has changed.
    fn change_scope(&mut self, key: &PoolKey, before: &Scope, after: &Scope, exists: bool) {
        let shared = self.pools.shared_key(key.clone());
        if before != after {
            self.addresses.set_member(before, key, false);
        }
        self.addresses.set_member(after, &shared, exists);
        if before != after {
            self.move_addresses(key, before, after);
        }
        self.addresses.remove_if_empty(before);
    }

    /// Moves the IPAddresses of a pool to another scope.
    fn move_addresses(&mut self, key: &PoolKey, before: &Scope, after: &Scope) {
        let mut moved = Vec::new();
        for (block, usage) in self.addresses.usage_in(before) {
            for owner in &usage.owners {
                if owner.pool == *key {
                    moved.push((block, owner.clone()));
                }
            }
        }
        for (block, owner) in moved {
            let slot_in = |scope: &Scope| Slot {
                scope: scope.clone(),
                block,
            };
            self.update(&slot_in(before), |usage| usage.remove_address(&owner.name));
            self.update(&slot_in(after), |usage| usage.insert_address(owner));
        }
    }
}
