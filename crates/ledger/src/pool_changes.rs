//! Changes of pools: their scope, blocks, gateways and limits.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use capi_ipam_api::{AccessRules, PoolKey, Scope, SliceRules, Slot};
use capi_ipam_ip::{Family, SpanSet, UsableBlocks};
use capi_ipam_objects::clock;
use capi_ipam_objects::namespaced_name::NamespacedName;

use super::addresses::{AddressUsage, UsageMap};
use super::exclusions::addresses_in;
use super::networks::{PoolInNetwork, PoolPast};
use super::pool::{PoolEntry, PoolGateways};
use super::released::Retention;
use super::scope_rule::PoolUsage;
use super::{Ledger, PoolInfo};

/// What a change of a pool object means for what is derived from it.
struct PoolChange {
    before: Scope,
    after: Scope,
    had_object: bool,
    exists: bool,
    usable_before: Option<Arc<UsableBlocks>>,
    usable_after: Option<Arc<UsableBlocks>>,
    has_new_rules: bool,
    has_new_slices: bool,
    /// Whether the pool keeps released addresses for another time.
    has_new_retention: bool,
    /// Whether the pool can no longer allocate.
    stops: bool,
    /// Whether reservations of the pool can be moved now, which were kept where they are.
    starts_moves: bool,
}

impl PoolChange {
    /// Compares two states of a pool with the restrictions of its network.
    fn of(
        info_before: Option<&PoolInfo>,
        info_after: Option<&PoolInfo>,
        before: Scope,
        after: Scope,
    ) -> Self {
        let exists = info_after.is_some();
        let had_object = info_before.is_some();
        let could_allocate = info_before.is_some_and(PoolInfo::can_allocate);
        let can_allocate = info_after.is_some_and(PoolInfo::can_allocate);
        let could_move = info_before.is_some_and(PoolInfo::moves_reservations);
        let can_move = info_after.is_some_and(PoolInfo::moves_reservations);
        Self {
            before,
            after,
            had_object,
            exists,
            usable_before: usable_of(info_before),
            usable_after: usable_of(info_after),
            has_new_rules: access_of(info_before) != access_of(info_after),
            has_new_slices: slices_of(info_before) != slices_of(info_after),
            has_new_retention: Retention::of(info_before) != Retention::of(info_after),
            stops: could_allocate && !can_allocate,
            starts_moves: !could_move && can_move,
        }
    }

    /// Whether the pool has another scope, is created or deleted.
    fn moves(&self) -> bool {
        self.before != self.after || self.had_object != self.exists
    }

    /// Whether the pool has the same blocks in the same scope.
    fn is_unchanged(&self) -> bool {
        !self.moves() && self.usable_before == self.usable_after
    }
}

fn network_of(scope: &Scope) -> Option<Arc<str>> {
    match scope {
        Scope::Network(network) => Some(network.clone()),
        Scope::Pool(_) => None,
    }
}

fn usable_of(info: Option<&PoolInfo>) -> Option<Arc<UsableBlocks>> {
    info?.blocks().cloned()
}

fn access_of(info: Option<&PoolInfo>) -> Option<&AccessRules> {
    info?.access.as_deref()
}

fn slices_of(info: Option<&PoolInfo>) -> Option<&SliceRules> {
    info?.slices.as_deref()
}

/// Keeps the pointer to the blocks if they are the same: allocations compare it.
fn keep_blocks(known: Option<&PoolInfo>, info: Option<&mut PoolInfo>) {
    if let Some(known) = usable_of(known)
        && let Some(info) = info
        && info.usable.as_ref() == Ok(&known)
    {
        info.usable = Ok(known);
    }
}

/// Makes the declared state of a pool and the one with the restrictions of its network one value if
/// the network restricts nothing.
fn share_if_equal(
    declared: Option<Arc<PoolInfo>>,
    info: Option<PoolInfo>,
) -> (Option<Arc<PoolInfo>>, Option<Arc<PoolInfo>>) {
    let info = info.map(Arc::new);
    if declared == info {
        (info.clone(), info)
    } else {
        (declared, info)
    }
}

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
        let before = self.allocation(key);
        self.replace_pool(key, declared, placed);
        let after = self.allocation(key);
        if before != after {
            self.report_overlaps(key, before.as_ref(), after.as_ref());
        }
    }

    fn replace_pool(
        &mut self,
        key: &PoolKey,
        declared: Option<Arc<PoolInfo>>,
        placed: Option<PoolInNetwork>,
    ) {
        let mut info = self.place(key, placed);
        let before = self.scope_of(key);
        let after = match &info {
            Some(info) => self.addresses.shared_scope(info.scope.clone()),
            None => before.clone(),
        };
        let Some(entry) = self.pools.get(key) else {
            return;
        };
        keep_blocks(entry.info.as_deref(), info.as_mut());
        let (declared, info) = share_if_equal(declared, info);
        let change = PoolChange::of(entry.info.as_deref(), info.as_deref(), before, after);
        let networks = [network_of(&change.before), network_of(&change.after)];
        self.effects.networks.extend(networks.into_iter().flatten());
        if change.moves() && change.had_object {
            self.count_elsewhere(key, &change.before, false);
        }
        self.change_extents(key, &change);
        self.replace_object(key, declared, info, &change);
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

    /// Records where the blocks of the pool are.
    fn change_extents(&mut self, key: &PoolKey, change: &PoolChange) {
        if change.usable_before == change.usable_after {
            return;
        }
        if let Some(usable) = &change.usable_before {
            self.extents.remove(usable, key);
        }
        if let Some(usable) = &change.usable_after {
            self.extents.insert(usable, key.clone());
        }
    }

    /// Replaces the object of a pool, and nothing that is derived from it.
    fn replace_object(
        &mut self,
        key: &PoolKey,
        declared: Option<Arc<PoolInfo>>,
        info: Option<Arc<PoolInfo>>,
        change: &PoolChange,
    ) {
        let Some(entry) = self.pools.get_mut(key) else {
            return;
        };
        self.effects.cooldowns_changed |= !entry.released.is_empty();
        if change.stops {
            // There can be a hundred thousand: not at each change of the pool, and not at once.
            let waiting = entry.wait_queue.pool_stopped();
            self.claims_to_recheck.extend(waiting);
        }
        entry.declared = declared;
        entry.info = info;
        entry.scope = Some(change.after.clone());
        let is_elsewhere = |(scope, _): &(Scope, usize)| *scope != change.after;
        if change.starts_moves && entry.holds.iter().any(is_elsewhere) {
            self.effects.scopes_changed = true;
        }
        self.dirty_pools.push(key.clone());
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

    /// Records the network of a pool; `None` if the pool is deleted. Its addresses in use stay
    /// where they are.
    fn place(&mut self, key: &PoolKey, placed: Option<PoolInNetwork>) -> Option<PoolInfo> {
        let entry = self.pools.entry(key.clone()).or_default();
        let recorded = &mut entry.recorded;
        let before = recorded.awaited.take();
        recorded.exclusions = None;
        let mut info = None;
        if let Some(placed) = placed {
            recorded.record = placed.record;
            recorded.depends_on_use = placed.depends_on_use;
            recorded.awaited = placed.awaited;
            recorded.exclusions = placed.applied;
            info = Some(placed.info);
        }
        let awaited = recorded.awaited.clone();
        if before != awaited {
            self.networks
                .set_awaited(key, before.as_ref(), awaited.as_ref());
            self.effects.networks.extend(awaited);
        }
        info
    }

    /// What is known of a pool besides its object.
    pub(super) fn past_of(&self, key: &PoolKey) -> PoolPast<'_> {
        let Some(entry) = self.pools.get(key) else {
            return PoolPast::default();
        };
        let recorded = &entry.recorded;
        PoolPast {
            record: recorded.record.clone(),
            status: recorded.status.as_ref(),
            reserved_in: if recorded.is_unknown() {
                self.reserved_in(key, entry)
            } else {
                None
            },
            usage: if self.start.knows_usage() {
                PoolUsage::Known {
                    has_addresses: entry.is_in_use(),
                    holds: &entry.holds,
                }
            } else {
                PoolUsage::Unknown
            },
            applied: recorded.exclusions.as_ref(),
        }
    }

    /// The network in which claims have reservations of a pool: of several networks the first one.
    /// Reservations that users have created do not count: they can be in any scope.
    fn reserved_in(&self, key: &PoolKey, entry: &PoolEntry) -> Option<Arc<str>> {
        let is_of_claim = |usage: &AddressUsage| match &usage.reservation {
            Some(known) => known.pool == *key && !known.is_manual(),
            None => false,
        };
        let mut first: Option<&Arc<str>> = None;
        for (scope, _) in &entry.holds {
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
        let rules = self
            .pools
            .get(key)
            .and_then(|entry| entry.info.as_ref()?.access.clone());
        let quota = rules.map(|rules| Box::new(self.quota(key, &rules)));
        let Some(entry) = self.pools.get_mut(key) else {
            return;
        };
        let (before, after) = (
            usize::from(entry.quota.is_some()),
            usize::from(quota.is_some()),
        );
        self.quotas = self.quotas.saturating_add(after).saturating_sub(before);
        entry.quota = quota;
        self.effects.claims.extend(entry.wait_queue.rules_changed());
    }

    /// Counts the addresses that a pool holds in other scopes as not free in `scope`, or no longer.
    fn count_elsewhere(&mut self, pool: &PoolKey, scope: &Scope, is_added: bool) {
        let Some(entry) = self.pools.get(pool) else {
            return;
        };
        let mut blocks = Vec::new();
        for (other, _) in &entry.holds {
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
        let after = entry.gateways_to_exclude(pool);
        if entry.gateways == after {
            return;
        }
        let before = std::mem::replace(&mut entry.gateways, after.clone());
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
        let shared = self.shared_key(key.clone());
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
