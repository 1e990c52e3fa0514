//! Changes of pools: their scope, blocks, gateways and limits.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use capi_ipam_api::{PoolKey, Scope, Slot};
use capi_ipam_controller::clock;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::{Family, SpanSet, UsableBlocks};

use super::exclusions::addresses_in;
use super::networks::{PoolInNetwork, PoolPast};
use super::pool::PoolEntry;
use super::scope_rule::Record;
use super::usage::{AddressOwner, AddressUsage, ScopeEntry, UsageMap};
use super::{Ledger, PoolInfo};

/// A network, and the declared blocks of a pool of it with their gateways.
type Declared = (Arc<str>, Arc<UsableBlocks>);

impl Ledger {
    /// Replaces the state of a pool object; `None` removes it.
    pub(super) fn set_pool(&mut self, key: &PoolKey, declared: Option<PoolInfo>) {
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
        declared: Option<PoolInfo>,
        placed: Option<PoolInNetwork>,
    ) {
        let (before, overlapping_before) = (self.allocation(key), self.overlapping_to_report(key));
        self.replace_pool(key, declared, placed);
        if self.allocation(key) != before {
            let overlapping_after = self.overlapping_to_report(key);
            self.dirty_pools
                .extend(overlapping_before.into_iter().chain(overlapping_after));
        }
    }

    fn replace_pool(
        &mut self,
        key: &PoolKey,
        declared: Option<PoolInfo>,
        placed: Option<PoolInNetwork>,
    ) {
        let mut info = self.place(key, placed);
        let before = self.scope_of(key);
        let after = info.as_ref().map_or_else(
            || before.clone(),
            |info| self.shared_scope(info.scope.clone()),
        );
        let entry = self.pools.entry(key.clone()).or_default();
        let usable = |info: &Option<PoolInfo>| info.as_ref()?.usable.as_ref().ok().cloned();
        let (usable_before, usable_after) = (usable(&entry.info), usable(&info));
        if let (Some(known), Some(info)) = (&usable_before, &mut info)
            && usable_before == usable_after
        {
            // Allocations compare the pointers.
            info.usable = Ok(Arc::clone(known));
        }
        let had_object = entry.info.is_some();
        let is_unchanged =
            before == after && had_object == info.is_some() && usable_before == usable_after;
        let network = |scope: &Scope| {
            if let Scope::Network(network) = scope {
                Some(network.clone())
            } else {
                None
            }
        };
        let Some(entry) = self.pools.get(key) else {
            return;
        };
        let declared_usable = |info: &Option<PoolInfo>| {
            info.as_ref()
                .and_then(|info| info.usable.as_ref().ok().cloned())
        };
        let gateways_before = network(&before)
            .zip(declared_usable(&entry.declared))
            .filter(|_| had_object);
        let gateways_after = network(&after)
            .zip(declared_usable(&declared))
            .filter(|_| info.is_some());
        self.effects
            .networks
            .extend(network(&before).into_iter().chain(network(&after)));
        let access = |info: &Option<PoolInfo>| info.as_ref().and_then(|info| info.access.clone());
        let has_new_rules = access(&entry.info) != access(&info);
        let slices = |info: &Option<PoolInfo>| info.as_ref().and_then(|info| info.slices.clone());
        let has_new_slices = slices(&entry.info) != slices(&info);
        let moves = before != after || had_object != info.is_some();
        if moves && had_object {
            self.count_elsewhere(key, &before, false);
        }
        if usable_before != usable_after {
            usable_before
                .iter()
                .for_each(|usable| self.extents.remove(usable, key));
            usable_after
                .iter()
                .for_each(|usable| self.extents.insert(usable, key.clone()));
        }
        let Some(entry) = self.pools.get_mut(key) else {
            return;
        };
        self.effects.cooldowns_changed |= entry.has_cooldowns();
        let keeps = |info: &Option<PoolInfo>| {
            info.as_ref()
                .map(|it| (it.is_sticky, it.cooldown_seconds, it.deleting))
        };
        let keeps_other = entry.has_cooldowns() && keeps(&entry.info) != keeps(&info);
        let exists = info.is_some();
        let could_allocate = entry.info.as_ref().is_some_and(PoolInfo::can_allocate);
        let can_allocate = info.as_ref().is_some_and(PoolInfo::can_allocate);
        if could_allocate && !can_allocate {
            // There can be a hundred thousand: not at each change of the pool, and not at once.
            self.claims_to_recheck
                .extend(entry.wait_queue.pool_stopped());
        }
        (entry.declared, entry.info, entry.scope) = (declared, info, Some(after.clone()));
        self.dirty_pools.push(key.clone());
        if has_new_slices {
            entry.divide();
            self.effects.claims.extend(entry.wait_queue.rules_changed());
        }
        if has_new_rules {
            self.set_quota(key);
        }
        if !is_unchanged {
            let usable_before = usable_before.filter(|_| before == after);
            self.change_blocks(
                key,
                (&before, &after),
                usable_before.as_deref(),
                (exists, exists && moves),
            );
        }
        // After the recount, which relates to the state before it.
        if keeps_other {
            self.refresh_memories(key, clock::now().0.as_second());
        }
        self.change_gateways(key, gateways_before, gateways_after);
    }

    /// Records the network of a pool; `None` if the pool is deleted. Its addresses in use stay
    /// where they are.
    fn place(&mut self, key: &PoolKey, placed: Option<PoolInNetwork>) -> Option<PoolInfo> {
        let entry = self.pools.entry(key.clone()).or_default();
        let awaited_before = entry.awaited.take();
        entry.exclusions = None;
        let info = placed.map(
            |PoolInNetwork {
                 info,
                 record,
                 awaited,
                 applied,
             }| {
                (entry.record, entry.awaited, entry.exclusions) = (record, awaited, applied);
                info
            },
        );
        let awaited = entry.awaited.clone();
        self.networks
            .set_awaited(key, awaited_before.as_ref(), awaited.as_ref());
        self.effects
            .networks
            .extend(awaited.filter(|awaited| awaited_before.as_ref() != Some(awaited)));
        info
    }

    /// What is known of a pool besides its object.
    pub(super) fn past_of(&self, key: &PoolKey) -> PoolPast<'_> {
        let Some(entry) = self.pools.get(key) else {
            return PoolPast::default();
        };
        let is_unknown = entry.record == Record::Unknown && entry.status_record.is_none();
        PoolPast {
            record: entry.record.clone(),
            status: entry.status_record.as_ref(),
            reserved_in: if is_unknown {
                self.reserved_in(key, entry)
            } else {
                None
            },
            applied: entry.exclusions.as_ref(),
        }
    }

    /// The network in which claims have reservations of a pool: of several networks the first one.
    /// Reservations that users have created do not count: they can be in any scope.
    fn reserved_in(&self, key: &PoolKey, entry: &PoolEntry) -> Option<Arc<str>> {
        let is_of_claim = |usage: &AddressUsage| {
            usage
                .reservation
                .as_ref()
                .is_some_and(|known| known.pool == *key && !known.is_manual())
        };
        let mut networks = Vec::new();
        for (scope, _) in &entry.holds {
            let Scope::Network(network) = scope else {
                continue;
            };
            if self
                .scopes
                .get(scope)
                .is_some_and(|scope| scope.usage.values().any(is_of_claim))
            {
                networks.push(network);
            }
        }
        networks.into_iter().min().cloned()
    }

    /// Counts the blocks of a pool after a change of its scope or of its usable blocks.
    /// `usable_before` are the blocks that it had in the same scope.
    fn change_blocks(
        &mut self,
        key: &PoolKey,
        (before, after): (&Scope, &Scope),
        usable_before: Option<&UsableBlocks>,
        (exists, is_new_member): (bool, bool),
    ) {
        self.change_scope(key, before, after, exists);
        if is_new_member {
            self.count_elsewhere(key, after, true);
        }
        let none = UsageMap::default();
        let usage = self.scopes.get(after).map_or(&none, |scope| &scope.usage);
        if let Some(entry) = self.pools.get_mut(key) {
            match usable_before {
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
        for (other, _) in entry.holds.iter().filter(|(other, _)| other != scope) {
            let usage = self
                .scopes
                .get(other)
                .into_iter()
                .flat_map(|other| other.usage.iter());
            blocks.extend(
                usage.flat_map(|(block, usage)| std::iter::repeat_n(*block, usage.holds_of(pool))),
            );
        }
        self.effects.scopes_changed |= !blocks.is_empty();
        for block in blocks {
            self.count_hold_elsewhere(
                &Slot {
                    scope: scope.clone(),
                    block,
                },
                is_added,
            );
        }
    }

    /// Records that the gateways of a pool in a network have changed: no pool of the network
    /// allocates them. Each pool that contains one of them is computed again once.
    fn change_gateways(
        &mut self,
        pool: &PoolKey,
        before: Option<Declared>,
        after: Option<Declared>,
    ) {
        if before == after {
            return;
        }
        let mut changed: BTreeMap<Arc<str>, BTreeSet<IpAddr>> = BTreeMap::new();
        // Added first: a gateway that the pool keeps does not change.
        for (declared, is_added) in [(after, true), (before, false)] {
            let Some((network, usable)) = declared else {
                continue;
            };
            let exclusions = self.networks.exclusions.entry(network.clone()).or_default();
            let gateways: BTreeSet<IpAddr> = usable.gateways().collect();
            for gateway in exclusions.count_gateways(&gateways, is_added) {
                changed.entry(network.clone()).or_default().insert(gateway);
            }
            if exclusions.is_empty() {
                self.networks.exclusions.remove(&network);
            }
        }
        if self.start.defers_exclusions() {
            return;
        }
        for (network, gateways) in changed {
            // Many pools may change: their gateways are compared with the blocks of the members
            // once.
            if !self.pools_to_refresh.is_empty() {
                self.stale_networks.insert(network);
                continue;
            }
            for member in self.members_containing(network, &gateways) {
                if member != *pool {
                    self.queue_refresh(&member);
                }
            }
        }
    }

    /// The pools of a network whose specification contains one of these addresses.
    fn members_containing(&self, network: Arc<str>, addresses: &BTreeSet<IpAddr>) -> Vec<PoolKey> {
        let [v4, v6] = [Family::V4, Family::V6]
            .map(|family| addresses_in(addresses, family).collect::<SpanSet>());
        let contains_one = |member: &&PoolKey| {
            let declared = self
                .pools
                .get(*member)
                .and_then(|entry| entry.declared.as_ref());
            let usable = declared.and_then(|declared| declared.usable.as_ref().ok());
            usable.is_some_and(|usable| {
                let of_family = if usable.family == Family::V4 {
                    &v4
                } else {
                    &v6
                };
                usable.overlaps_addresses(of_family)
            })
        };
        let members = self
            .scopes
            .get(&Scope::Network(network))
            .map(|scope| scope.members.as_slice());
        members
            .unwrap_or_default()
            .iter()
            .filter(contains_one)
            .cloned()
            .collect()
    }

    /// The pools whose condition depends on whether they overlap with this one. At a start all
    /// pools are reconciled.
    fn overlapping_to_report(&self, pool: &PoolKey) -> Vec<PoolKey> {
        if self.start.is_complete() {
            self.all_overlapping(pool)
        } else {
            Vec::new()
        }
    }

    /// The claims to which addresses of the pool are promised: the pool may contain the addresses
    /// only now.
    fn promised_to(&self, pool: &PoolKey, scope: &Scope) -> Vec<NamespacedName> {
        if !self.holdings.has_promises() {
            return Vec::new();
        }
        let usage = self
            .scopes
            .get(scope)
            .into_iter()
            .flat_map(|scope| scope.usage.values());
        let mine = usage.filter(|usage| {
            usage
                .reservation
                .as_ref()
                .is_some_and(|reservation| reservation.pool == *pool)
        });
        mine.filter_map(AddressUsage::promised_to)
            .cloned()
            .collect()
    }

    /// Makes a pool a member of its scope, and moves its addresses to the scope if it has changed.
    fn change_scope(&mut self, key: &PoolKey, before: &Scope, after: &Scope, exists: bool) {
        if before != after
            && let Some(scope) = self.scopes.get_mut(before)
        {
            scope.set_member(key, false);
        }
        let shared = self.shared_key(key.clone());
        if let Some(scope) = self.scopes.get_mut(after) {
            scope.set_member(&shared, exists);
        } else if exists {
            self.scopes
                .entry(after.clone())
                .or_default()
                .set_member(&shared, true);
        }
        if before != after {
            let mut moved = Vec::new();
            let usage = self
                .scopes
                .get_mut(before)
                .into_iter()
                .flat_map(|scope| scope.usage.iter());
            let mine = |(block, usage): (&_, &AddressUsage)| {
                let owners = usage.owners.iter().filter(|owner| owner.pool == *key);
                owners
                    .map(|owner| {
                        (
                            *block,
                            owner.name.clone(),
                            owner.cluster.clone(),
                            owner.list,
                        )
                    })
                    .collect::<Vec<_>>()
            };
            moved.extend(usage.flat_map(mine));
            for (block, name, cluster, list) in moved {
                self.update(
                    &Slot {
                        scope: before.clone(),
                        block,
                    },
                    |usage| usage.remove_address(&name),
                );
                let pool = key.clone();
                let owner = AddressOwner {
                    name,
                    pool,
                    cluster,
                    list,
                };
                self.update(
                    &Slot {
                        scope: after.clone(),
                        block,
                    },
                    |usage| usage.insert_address(owner),
                );
            }
        }
        if self.scopes.get(before).is_some_and(ScopeEntry::is_empty) {
            self.scopes.remove(before);
        }
    }
}
