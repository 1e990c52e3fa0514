//! The ledger: its components, and what follows from a change of one of them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_api::{PoolKey, Scope, Slot};
use capi_ipam_ip::{Family, SpanSet};
use capi_ipam_objects::clock;
use capi_ipam_objects::namespaced_name::NamespacedName;
use capi_ipam_objects::observed::Versions;

use crate::addresses::{AddressUsage, Addresses, CandidateInfo, UsageMap};
use crate::effects::Effects;
use crate::networks::exclusions::addresses_in;
use crate::networks::{Change, Networks, PoolInNetwork, PoolPast};
use crate::pools::start::{Phase, PoolInput, Start};
use crate::pools::views::{self, Derived};
use crate::pools::{PoolChange, PoolEntry, PoolGateways, Pools, network_of};
use crate::quota::Consumer;
use crate::sets::Sets;
use crate::wait_queue::ClaimAttributes;
use crate::{PoolInfo, addresses};

/// The in-memory index of pools, addresses and waiting claims.
///
/// Its methods are plain computations: they neither lock, wait nor call anybody. What a change asks
/// others to do is recorded until [`Ledger::take_effects`] is called.
#[derive(Clone, Default)]
pub struct Ledger {
    pub(super) pools: Pools,
    pub(super) addresses: Addresses,
    pub(super) slice_versions: Versions,
    /// Pools in which waiting claims may get a turn, and whose counts or conditions may have
    /// changed, since the last change was complete.
    pub(super) dirty_pools: Vec<PoolKey>,
    pub(super) effects: Effects,
    /// Claims that wait for an address of a pool which can no longer allocate since this was last
    /// taken.
    pub(super) claims_to_recheck: VecDeque<NamespacedName>,
    pub(super) networks: Networks,
    pub(super) sets: Sets,
    pub(super) start: Start,
    /// The pools whose network has to be computed again.
    pub(super) pools_to_refresh: VecDeque<PoolKey>,
    /// The networks whose gateways have changed while pools were queued: their members are computed
    /// again after those.
    pub(super) stale_networks: BTreeSet<Arc<str>>,
    /// Whether others use the ledger between two steps of a long computation.
    is_shared: bool,
}

/// How long one step may hold the lock. The pool with which this time is exceeded is the last one
/// of the step.
const MAX_STEP_TIME: Duration = Duration::from_millis(1);

impl Ledger {
    /// Creates an empty ledger that several tasks use. Its owner calls [`Ledger::refresh`] while
    /// [`Effects::has_queued_refreshes`] is set, so that no caller waits for the computation of
    /// all pools. Any other ledger computes them at once.
    pub fn shared() -> Self {
        Self {
            is_shared: true,
            ..Self::default()
        }
    }

    /// The addresses that are not free.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// The networks.
    pub fn networks(&self) -> &Networks {
        &self.networks
    }

    /// The pools.
    pub fn pools(&self) -> &Pools {
        &self.pools
    }

    /// The addresses, for notes on which nothing else depends.
    pub fn addresses_mut(&mut self) -> &mut Addresses {
        &mut self.addresses
    }

    /// The pools, for notes on which nothing else depends.
    pub fn pools_mut(&mut self) -> &mut Pools {
        &mut self.pools
    }

    /// Applies a change, and then everything that follows from it.
    pub(super) fn change<R>(&mut self, change: impl FnOnce(&mut Self) -> R) -> R {
        let result = change(self);
        self.settle();
        while !self.is_shared && self.has_queued_refreshes() {
            self.refresh();
        }
        result
    }

    /// Computes the networks of some of the pools for which a change may have affected them.
    pub fn refresh(&mut self) {
        self.refresh_queued();
        self.settle();
    }

    /// Grants turns in all affected pools, and removes those of which nothing is left.
    pub(super) fn settle(&mut self) {
        if self.dirty_pools.is_empty() {
            return;
        }
        let mut pools = std::mem::take(&mut self.dirty_pools);
        pools.sort_unstable();
        pools.dedup();
        let now = Instant::now();
        for pool in pools {
            self.update_sets_of(&pool);
            let Some(entry) = self.pools.get_mut(&pool) else {
                self.effects.pools.push(pool);
                continue;
            };
            self.effects.claims.extend(entry.grant_turns(now));
            if entry.is_changed_by_use() {
                self.use_changed(&pool);
            }
            let Some(entry) = self.pools.get_mut(&pool) else {
                continue;
            };
            let was_notified = entry.set_notified(true);
            self.pools.remove_if_empty(&pool);
            if !was_notified {
                self.effects.pools.push(pool);
            }
        }
    }

    /// Computes again what depends on whether addresses of a pool are in use.
    fn use_changed(&mut self, pool: &PoolKey) {
        self.count_gateways(pool);
        self.queue_refresh(pool);
    }

    /// Returns what the changes since the last call ask others to do.
    pub fn take_effects(&mut self) -> Effects {
        let mut effects = std::mem::take(&mut self.effects);
        effects.networks.sort_unstable();
        effects.networks.dedup();
        effects.has_rechecks = !self.claims_to_recheck.is_empty();
        effects.has_queued_refreshes = self.has_queued_refreshes();
        effects
    }

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
            scope: changed.scope,
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

    pub(super) fn is_candidate(&self, slot: &Slot) -> bool {
        self.addresses
            .usage(slot)
            .is_some_and(|usage| usage.candidate.is_some())
    }

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
        let is_of_claim = |usage: &AddressUsage| {
            usage
                .reservation
                .as_ref()
                .is_some_and(|known| known.pool == *key && !known.is_manual())
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
            self.count_hold_elsewhere(&addresses::slot(scope, block), is_added);
        }
    }

    /// Counts the gateways that a pool adds to the exclusions of its network: no pool of the
    /// network allocates them. Each pool that contains one which has changed is computed again
    /// once.
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
            for family in [Family::V4, Family::V6] {
                let addresses: SpanSet = addresses_in(&gateways, family).collect();
                // A second change would count as one of many.
                if addresses.is_empty() {
                    continue;
                }
                self.exclusions_changed(&network, family, &addresses, Some(pool));
            }
        }
    }

    /// Records that pools of a network may allocate these addresses now, or no longer: each pool
    /// that contains one of them is computed again, but not `except`.
    pub(super) fn exclusions_changed(
        &mut self,
        network: &Arc<str>,
        family: Family,
        addresses: &SpanSet,
        except: Option<&PoolKey>,
    ) {
        // Many pools may change: their exclusions are applied once.
        if self.start.defers_exclusions() || !self.pools_to_refresh.is_empty() {
            self.members_are_stale(network.clone());
            return;
        }
        for member in self.addresses.members(network).to_vec() {
            let entry = self.pools.get(&member);
            let contains_one = entry
                .and_then(PoolEntry::declared_blocks)
                .is_some_and(|declared| {
                    declared.family == family && declared.overlaps_addresses(addresses)
                });
            if contains_one && Some(&member) != except {
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
            let slot_in = |scope| addresses::slot(scope, block);
            self.update(&slot_in(before), |usage| usage.remove_address(&owner.name));
            self.update(&slot_in(after), |usage| usage.insert_address(owner));
        }
    }

    /// Records that a list is complete, and computes all pools if it is the last one of the initial
    /// lists.
    pub(super) fn complete_list(&mut self, input: PoolInput) {
        self.change(|ledger| {
            if ledger.start.end_list(input) {
                ledger.queue_affected(&Change::All);
                ledger.refresh_queued();
            }
        });
    }

    /// Records that the network of a pool has to be computed again.
    pub(super) fn queue_refresh(&mut self, key: &PoolKey) {
        let Some(entry) = self.pools.get_mut(key) else {
            return;
        };
        if !entry.set_needs_refresh(true) {
            self.pools_to_refresh.push_back(key.clone());
        }
    }

    /// Records that the networks of the pools that a change may affect have to be computed again.
    pub(super) fn refresh_pools(&mut self, change: &Change) {
        if *change == Change::None {
            return;
        }
        // Once the initial lists are complete, all pools are computed.
        if self.start.phase != Phase::Listing {
            self.queue_affected(change);
        }
        if let Change::Network(network) = change {
            self.effects.networks.push(network.clone());
        }
    }

    fn queue_affected(&mut self, change: &Change) {
        for (key, entry) in self.pools.iter_mut() {
            if entry.is_affected_by(key, change) && !entry.set_needs_refresh(true) {
                self.pools_to_refresh.push_back(key.clone());
            }
        }
    }

    /// Whether the networks of pools have to be computed again now.
    pub(super) fn has_queued_refreshes(&self) -> bool {
        let has_queued = !self.pools_to_refresh.is_empty() || !self.stale_networks.is_empty();
        has_queued && self.start.phase != Phase::Listing
    }

    /// Computes the networks of some of the queued pools.
    pub(super) fn refresh_queued(&mut self) {
        let started = Instant::now();
        while let Some(key) = self.pools_to_refresh.pop_front() {
            self.refresh_pool(&key);
            if started.elapsed() >= MAX_STEP_TIME {
                break;
            }
        }
        while self.pools_to_refresh.is_empty() && self.queue_next() {}
    }

    /// Queues the pools that are computed after those that were queued before. Returns false if
    /// there is nothing to do.
    fn queue_next(&mut self) -> bool {
        if let Some(network) = self.stale_networks.pop_first() {
            for member in self.addresses.members(&network).to_vec() {
                self.queue_refresh(&member);
            }
            return true;
        }
        match self.start.phase {
            Phase::Listing | Phase::Complete => return false,
            Phase::Placing => {
                self.start.phase = Phase::Excluding;
                self.queue_affected(&Change::All);
            }
            Phase::Excluding => {
                self.start.phase = Phase::Complete;
                // Claims that requested an address before are reconciled.
                for (_, entry) in self.pools.iter_mut() {
                    let waiting = entry.wait_queue.pool_changed();
                    self.effects.claims.extend(waiting);
                }
            }
        }
        true
    }

    /// Computes the network of a pool again if a change may affect it, so that it allocates by its
    /// current state. Returns false before all pools are computed at a start: the claim waits until
    /// then.
    pub(super) fn prepare_to_propose(
        &mut self,
        key: &PoolKey,
        claim: &NamespacedName,
        attributes: &ClaimAttributes,
    ) -> bool {
        let Some(entry) = self.pools.get_mut(key) else {
            return true;
        };
        if !self.start.is_complete() {
            entry.wait_queue.wait_for_pool(claim, attributes);
            return false;
        }
        let is_stale = |network| self.stale_networks.contains(network);
        if entry.needs_refresh() || entry.network().is_some_and(is_stale) {
            self.refresh_pool(key);
        }
        true
    }

    /// Computes the network of a pool again. Claims that wait for a change of the pool are
    /// reconciled if there is one.
    fn refresh_pool(&mut self, key: &PoolKey) {
        let Some(entry) = self.pools.get_mut(key) else {
            return;
        };
        entry.set_needs_refresh(false);
        let Some(declared) = self.pools.declared_pool(key) else {
            return;
        };
        let placed = self.in_network(key, &declared);
        let Some(placed) = self.pools.entry(key).refresh(placed) else {
            return;
        };
        self.set_placed(key, Some(declared), Some(placed));
        if let Some(entry) = self.pools.get_mut(key) {
            let waiting = entry.wait_queue.pool_changed();
            self.effects.claims.extend(waiting);
        }
    }

    /// A reservation in a network is evidence of the scope of its pool, if nothing else is known of
    /// it: the pool may be restored before its network.
    pub(super) fn reservation_inserted(&mut self, pool: &PoolKey, scope: &Scope) {
        let Scope::Network(_) = scope else { return };
        let Some(entry) = self.pools.get(pool) else {
            return;
        };
        // In the same step: a status that is computed in between would state that the pool leaves
        // the network.
        if entry.info().is_some() && entry.lacks_record() {
            self.refresh_pool(pool);
        }
    }
}
