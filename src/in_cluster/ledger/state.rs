//! The state of the ledger: a plain structure without locks and triggers.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_controller::expiring_map::ExpiringMap;
use capi_ipam_controller::object_map::ListEpoch;
use capi_ipam_provider::api::Uid;

use super::networks::{Change, LengthRecord, Networks, contains_address};
use super::pool::{Effect, PoolEntry};
use super::quota::Consumer;
use super::shared_names::SharedNames;
use super::usage::{AddressOwner, AddressUsage, Holdings, ReservationInfo, ScopeEntry};
use super::{ClaimAttributes, ClaimKey, PoolInfo, Proposal};
use crate::api::{IPReservation, InClusterKind, PoolKey, Scope, Slot};
use crate::in_cluster::reservation::lacks_label;

/// How long a response that was read before a deletion can be delayed: longer than any request or list.
pub(super) const TOMBSTONE_TTL: Duration = Duration::from_mins(2);

#[derive(Default)]
pub(super) struct State {
    pub(super) pools: HashMap<PoolKey, PoolEntry>,
    pub(super) scopes: HashMap<Scope, ScopeEntry>,
    pub(super) holdings: Holdings,
    /// Reservations that are not valid, by name.
    pub(super) ignored: BTreeMap<String, Ignored>,
    /// Reservations whose creation has an unknown outcome, by the uid of the claim.
    pub(super) attempts: HashMap<Uid, (PoolKey, Slot)>,
    /// The uids of recently deleted reservations, so that a delayed response does not add one again. A uid is never
    /// reused.
    tombstones: ExpiringMap<Uid, ()>,
    /// Whether the end of a cool-down may have changed since this was last reset.
    pub(super) cooldowns_changed: bool,
    pub(super) address_list: ListEpoch,
    pub(super) reservation_list: ListEpoch,
    pub(super) pool_lists: HashMap<InClusterKind, ListEpoch>,
    /// Pools whose counts or conditions may have changed since this was last taken.
    pub(super) dirty_pools: Vec<PoolKey>,
    /// Claims to reconcile again because what they wait for has changed since this was last taken.
    pub(super) claims_to_wake: Vec<ClaimKey>,
    pub(super) networks: Networks,
    /// Networks whose counts or members may have changed since this was last taken.
    pub(super) dirty_networks: Vec<Arc<str>>,
    /// Whether reservations may have to be moved to another scope since this was last reset.
    pub(super) scopes_changed: bool,
    /// The number of pools with access rules.
    pub(super) quotas: usize,
    /// The names of Clusters, shared by their addresses.
    pub(super) clusters: SharedNames,
    /// Whether the reservations are being listed: they are reported in another order than that of their creation.
    pub(super) is_listing_reservations: bool,
}

/// The source of an observed object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The watch, which reports all states in order, also when a restore of etcd has lowered the resource versions.
    Watch,
    /// The response to a request, which can be older than what the watch has reported since.
    Response,
}

/// A reservation that is not valid.
pub(super) struct Ignored {
    pub(super) uid: Box<str>,
    pub(super) problem: String,
    list: ListEpoch,
    lacks_label: bool,
}

impl State {
    /// Returns the stored copy of the key, if there is one, to share its memory.
    pub(super) fn shared_key(&self, key: PoolKey) -> PoolKey {
        self.pools.get_key_value(&key).map_or(key, |(stored, _)| stored.clone())
    }

    fn shared_scope(&self, scope: Scope) -> Scope {
        self.scopes.get_key_value(&scope).map_or(scope, |(stored, _)| stored.clone())
    }

    /// The scope of the addresses of a pool.
    pub(super) fn scope_of(&self, pool: &PoolKey) -> Scope {
        self.pools.get(pool).map_or_else(|| Scope::Pool(pool.clone()), |entry| entry.scope(pool))
    }

    pub(super) fn pool_list(&self, kind: InClusterKind) -> ListEpoch {
        self.pool_lists.get(&kind).copied().unwrap_or_default()
    }

    pub(super) fn usage(&self, slot: &Slot) -> Option<&AddressUsage> {
        self.scopes.get(&slot.scope)?.usage.get(&slot.block)
    }

    /// Changes the usage of an address, and updates the counts of all affected pools.
    pub(super) fn update(&mut self, slot: &Slot, change: impl FnOnce(&mut AddressUsage)) {
        let Self { pools, scopes, dirty_pools, claims_to_wake, cooldowns_changed, quotas, .. } = self;
        let scope = scopes.entry(slot.scope.clone()).or_default();
        let usage = scope.usage.entry(slot.block).or_default();
        let (pools_before, cooldown_before) = (usage.pools(), usage.cooldown());
        let candidate_before = usage.candidate_of.clone();
        let reserved_before = usage.reservation.as_ref().map(|reservation| reservation.pool.clone());
        let has_quotas = *quotas > 0;
        let charged_before = if has_quotas { usage.charges() } else { Vec::new() };
        change(usage);
        let charged_after = if has_quotas { usage.charges() } else { Vec::new() };
        let candidate_after = usage.candidate_of.clone();
        let reserved_after = usage.reservation.as_ref().map(|reservation| reservation.pool.clone());
        let (pools_after, cooldown_after, is_free) = (usage.pools(), usage.cooldown(), usage.is_free());
        if pools_after.is_empty() && !pools_before.is_empty() {
            // Another claim had the promised address: the promise can be kept now.
            claims_to_wake.extend(usage.promised_to().cloned());
        }
        if is_free {
            scope.usage.remove(&slot.block);
        }
        for (pool, is_added) in differences(&pools_before, &pools_after) {
            pools.entry(pool.clone()).or_default().count_address(slot.block, is_added);
            dirty_pools.push(pool.clone());
        }
        if charged_before != charged_after {
            let removed = charged_before.into_iter().map(|charge| (charge, false));
            for ((pool, consumer), is_added) in removed.chain(charged_after.into_iter().map(|charge| (charge, true))) {
                let Some(entry) = pools.get_mut(&pool) else { continue };
                let Some(quota) = &mut entry.quota else { continue };
                quota.charge(&consumer, is_added);
                dirty_pools.push(pool);
            }
        }
        let mut elsewhere = Vec::new();
        let candidates = (candidate_before.map(|pool| *pool), candidate_after.map(|pool| *pool));
        for (is_candidate, (before, after)) in [(false, (reserved_before, reserved_after)), (true, candidates)] {
            if before == after {
                continue;
            }
            for (pool, is_added) in before.map(|pool| (pool, false)).into_iter().chain(after.map(|pool| (pool, true))) {
                let entry = pools.entry(pool.clone()).or_default();
                entry.count_hold(&slot.scope, is_added);
                elsewhere.extend(entry.other_scope(&slot.scope).map(|scope| (scope, is_added)));
                if is_candidate {
                    entry.count_candidate(is_added);
                }
                if is_candidate || entry.info.is_none() {
                    dirty_pools.push(pool);
                }
            }
        }
        if cooldown_before != cooldown_after {
            *cooldowns_changed = true;
            let ended = cooldown_before.map(|cooldown| (cooldown, false));
            let started = cooldown_after.map(|cooldown| (cooldown, true));
            for ((pool, since), is_started) in ended.into_iter().chain(started) {
                pools.entry(pool.clone()).or_default().set_cooldown(since, slot.clone(), is_started);
                dirty_pools.push(pool);
            }
        }
        for member in &scope.members {
            let Some(pool) = pools.get_mut(member) else { continue };
            match pool.set_free(slot.block, is_free) {
                Effect::OutOfPool => continue,
                Effect::Updated => {}
                Effect::LengthMismatch => pool.recount(member, &scope.usage),
            }
            dirty_pools.push(member.clone());
        }
        if scope.is_empty() {
            scopes.remove(&slot.scope);
        }
        if let Scope::Network(network) = &slot.scope {
            self.dirty_networks.push(network.clone());
        }
        for (scope, is_added) in elsewhere {
            self.scopes_changed = true;
            self.count_hold_elsewhere(&Slot { scope, block: slot.block }, is_added);
        }
    }

    /// Counts an address as held in another scope, or no longer.
    fn count_hold_elsewhere(&mut self, slot: &Slot, is_added: bool) {
        self.update(slot, |usage| usage.count_elsewhere(is_added));
    }

    pub(super) fn propose(&mut self, pool: &PoolKey, claim: &ClaimKey, attributes: &ClaimAttributes) -> Proposal {
        let Some(entry) = self.pools.get_mut(pool) else { return Proposal::Wait };
        let block = match entry.propose(claim, attributes) {
            Ok(Some(block)) => block,
            Ok(None) => return Proposal::Wait,
            Err(limit) => return Proposal::LimitReached(limit),
        };
        let slot = Slot { scope: entry.scope(pool), block };
        let consumer =
            entry.quota.as_ref().map(|_| Box::new(Consumer::new(Arc::new(claim.clone()), attributes.cluster.clone())));
        if !self.is_candidate(&slot) {
            self.update(&slot, |usage| {
                usage.candidate_of = Some(Box::new(pool.clone()));
                usage.candidate_for = consumer;
            });
        }
        Proposal::Slot(slot)
    }

    pub(super) fn hold_candidate(&mut self, pool: &PoolKey, slot: &Slot) -> bool {
        let is_free = !self.is_candidate(slot);
        if is_free {
            self.update(slot, |usage| usage.candidate_of = Some(Box::new(pool.clone())));
        }
        is_free
    }

    pub(super) fn drop_candidate(&mut self, slot: &Slot) {
        if self.is_candidate(slot) {
            self.update(slot, AddressUsage::drop_candidate);
        }
    }

    fn is_candidate(&self, slot: &Slot) -> bool {
        self.usage(slot).is_some_and(|usage| usage.candidate_of.is_some())
    }
}

/// Pools and networks.
impl State {
    /// Replaces the state of a pool object; `None` removes it.
    pub(super) fn set_pool(&mut self, key: &PoolKey, declared: Option<PoolInfo>) {
        let mut info = declared.as_ref().map(|declared| self.networks.apply(key, declared));
        let before = self.scope_of(key);
        let after = info.as_ref().map_or_else(|| before.clone(), |info| self.shared_scope(info.scope.clone()));
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
        let is_unchanged = before == after && had_object == info.is_some() && usable_before == usable_after;
        if !is_unchanged {
            let overlapping_before = self.overlapping(key);
            self.dirty_pools.extend(overlapping_before);
        }
        let gateway = |info: &Option<PoolInfo>| info.as_ref()?.usable.as_ref().ok()?.gateway;
        let network = |scope: &Scope| if let Scope::Network(network) = scope { Some(network.clone()) } else { None };
        let Some(entry) = self.pools.get(key) else { return };
        let gateway_before = network(&before).filter(|_| had_object).zip(gateway(&entry.declared));
        let gateway_after = network(&after).filter(|_| info.is_some()).zip(gateway(&declared));
        self.dirty_networks.extend(network(&before).into_iter().chain(network(&after)));
        let access = |info: &Option<PoolInfo>| info.as_ref().and_then(|info| info.access.clone());
        let has_new_rules = access(&entry.info) != access(&info);
        let moves = before != after || had_object != info.is_some();
        if moves && had_object {
            self.count_elsewhere(key, &before, false);
        }
        let Some(entry) = self.pools.get_mut(key) else { return };
        self.cooldowns_changed |= entry.has_cooldowns();
        let exists = info.is_some();
        (entry.declared, entry.info, entry.scope) = (declared, info, Some(after.clone()));
        self.dirty_pools.push(key.clone());
        if has_new_rules {
            self.set_quota(key);
        }
        if is_unchanged {
            self.change_gateway(key, gateway_before, gateway_after);
            return;
        }
        self.change_scope(key, &before, &after, exists);
        if moves && exists {
            self.count_elsewhere(key, &after, true);
        }
        if let Some((entry, scope)) = self.pools.get_mut(key).zip(self.scopes.get(&after)) {
            entry.recount(key, &scope.usage);
        } else if let Some(entry) = self.pools.get_mut(key) {
            entry.recount(key, &HashMap::new());
        }
        let overlapping = self.overlapping(key);
        self.dirty_pools.extend(overlapping);
        let promised_to = self.promised_to(key, &after);
        self.claims_to_wake.extend(promised_to);
        self.change_gateway(key, gateway_before, gateway_after);
    }

    /// Counts the addresses of a pool by namespace and Cluster, after a change of its access rules.
    fn set_quota(&mut self, key: &PoolKey) {
        let rules = self.pools.get(key).and_then(|entry| entry.info.as_ref()?.access.clone());
        let quota = rules.map(|rules| Box::new(self.quota(key, &rules)));
        let Some(entry) = self.pools.get_mut(key) else { return };
        let (before, after) = (usize::from(entry.quota.is_some()), usize::from(quota.is_some()));
        self.quotas = self.quotas.saturating_add(after).saturating_sub(before);
        entry.quota = quota;
        self.claims_to_wake.extend(entry.wait_queue.rules_changed());
    }

    /// Counts the addresses that a pool holds in other scopes as not free in `scope`, or no longer.
    fn count_elsewhere(&mut self, pool: &PoolKey, scope: &Scope, is_added: bool) {
        let Some(entry) = self.pools.get(pool) else { return };
        let mut blocks = Vec::new();
        for (other, _) in entry.holds.iter().filter(|(other, _)| other != scope) {
            let usage = self.scopes.get(other).into_iter().flat_map(|other| &other.usage);
            blocks.extend(usage.flat_map(|(block, usage)| std::iter::repeat_n(*block, usage.holds_of(pool))));
        }
        self.scopes_changed |= !blocks.is_empty();
        for block in blocks {
            self.count_hold_elsewhere(&Slot { scope: scope.clone(), block }, is_added);
        }
    }

    /// Records that the gateway of a pool in a network has changed: no pool of the network allocates it.
    fn change_gateway(
        &mut self,
        pool: &PoolKey,
        before: Option<(Arc<str>, IpAddr)>,
        after: Option<(Arc<str>, IpAddr)>,
    ) {
        if before == after {
            return;
        }
        let mut changed = Vec::new();
        for ((network, gateway), is_added) in before.map(|it| (it, false)).into_iter().chain(after.map(|it| (it, true)))
        {
            if self.networks.count_gateway(&network, gateway, is_added) {
                changed.push((network, gateway));
            }
        }
        for (network, gateway) in changed {
            let members = self.scopes.get(&Scope::Network(network)).map(|scope| scope.members.clone());
            for member in members.unwrap_or_default().into_iter().filter(|member| member != pool) {
                let declared = self.pools.get(&member).and_then(|entry| entry.declared.as_ref());
                let usable = declared.and_then(|declared| declared.usable.as_ref().ok());
                if usable.is_some_and(|usable| contains_address(usable, gateway)) {
                    self.refresh_pool(&member);
                }
            }
        }
    }

    /// Computes the network of a pool again.
    fn refresh_pool(&mut self, key: &PoolKey) {
        let declared = self.pools.get(key).and_then(|entry| entry.declared.clone());
        self.set_pool(key, declared);
        let waiting = self.pools.get_mut(key).map(|entry| entry.wait_queue.pool_changed());
        self.claims_to_wake.extend(waiting.unwrap_or_default());
    }

    /// Computes the networks of the pools that a change may affect.
    pub(super) fn refresh_pools(&mut self, change: &Change) {
        let declared = self.pools.iter().filter_map(|(key, entry)| Some((key, entry.declared.as_ref()?)));
        let affected: Vec<PoolKey> =
            declared.filter(|(key, declared)| change.affects(key, declared)).map(|(key, _)| key.clone()).collect();
        affected.iter().for_each(|key| self.refresh_pool(key));
        if let Change::Network(network) = change {
            self.dirty_networks.push(network.clone());
        }
    }

    /// The claims to which addresses of the pool are promised: the pool may contain the addresses only now.
    fn promised_to(&self, pool: &PoolKey, scope: &Scope) -> Vec<ClaimKey> {
        let usage = self.scopes.get(scope).into_iter().flat_map(|scope| scope.usage.values());
        let mine =
            usage.filter(|usage| usage.reservation.as_ref().is_some_and(|reservation| reservation.pool == *pool));
        mine.filter_map(AddressUsage::promised_to).cloned().collect()
    }

    /// Makes a pool a member of its scope, and moves its addresses to the scope if it has changed.
    fn change_scope(&mut self, key: &PoolKey, before: &Scope, after: &Scope, exists: bool) {
        if let Some(scope) = self.scopes.get_mut(before) {
            scope.members.retain(|member| member != key);
        }
        if exists {
            let shared = self.shared_key(key.clone());
            self.scopes.entry(after.clone()).or_default().members.push(shared);
        }
        if before != after {
            let mut moved = Vec::new();
            let usage = self.scopes.get_mut(before).into_iter().flat_map(|scope| &scope.usage);
            let mine = |(block, usage): (&_, &AddressUsage)| {
                let owners = usage.owners.iter().filter(|owner| owner.pool == *key);
                owners.map(|owner| (*block, owner.name.clone(), owner.cluster.clone(), owner.list)).collect::<Vec<_>>()
            };
            moved.extend(usage.flat_map(mine));
            for (block, name, cluster, list) in moved {
                self.update(&Slot { scope: before.clone(), block }, |usage| usage.remove_address(&name));
                let pool = key.clone();
                let owner = AddressOwner { name, pool, cluster, list };
                self.update(&Slot { scope: after.clone(), block }, |usage| usage.insert_address(owner));
            }
        }
        if self.scopes.get(before).is_some_and(ScopeEntry::is_empty) {
            self.scopes.remove(before);
        }
    }
}

/// Reservations.
impl State {
    pub(super) fn insert(&mut self, reservation: &IPReservation, source: Source) -> Option<ClaimKey> {
        let (list, lacks_label) = (self.reservation_list, lacks_label(reservation));
        let uid = || -> Box<str> { reservation.metadata.uid.as_deref().unwrap_or_default().into() };
        match source {
            // After a restore of etcd a deleted object can exist again.
            Source::Watch => self.tombstones.remove(&uid_of(reservation)),
            Source::Response if self.was_deleted(uid_of(reservation), Instant::now()) => return None,
            Source::Response => {}
        }
        match reservation.slot() {
            Ok((slot, pool)) => {
                let slot = Slot { scope: self.shared_scope(slot.scope), block: slot.block };
                let cluster = reservation.spec.claim_ref.as_ref().and_then(|claim| claim.cluster.as_deref());
                let cluster = self.clusters.share(cluster);
                let is_observed = source == Source::Watch;
                let info = ReservationInfo::of(reservation, self.shared_key(pool), cluster, list, is_observed);
                let known = self.usage(&slot).and_then(|usage| usage.reservation.as_ref());
                if source == Source::Response && known.is_some_and(|known| known.version > info.version) {
                    return None;
                }
                self.insert_at(&slot, info)
            }
            Err(problem) => {
                let name = reservation.metadata.name.as_ref();
                if let Some((name, (network, family, length))) = name.zip(reservation.network_block_length()) {
                    let record = LengthRecord { name: name.clone(), uid: uid().into_string(), network, family, length };
                    let change = self.networks.set_record(record, list);
                    self.refresh_pools(&change);
                } else if let Some(name) = name {
                    let ignored = Ignored { uid: uid(), problem: problem.to_string(), list, lacks_label };
                    self.ignored.insert(name.clone(), ignored);
                }
                None
            }
        }
    }

    /// Records the reservation of an address. Returns the claim to which it is promised if the reservation is new.
    fn insert_at(&mut self, slot: &Slot, reservation: ReservationInfo) -> Option<ClaimKey> {
        let known = self.usage(slot).and_then(|usage| usage.reservation.as_ref());
        let is_new = known.is_none_or(|known| known.uid != reservation.uid);
        self.unindex_holder(slot);
        self.holdings.insert(&reservation, slot);
        let is_promise = reservation.is_manual() && reservation.released_at.is_none();
        let promised_to = reservation.claim.as_deref().filter(|_| is_new && is_promise).cloned();
        self.update(slot, |usage| {
            usage.drop_candidate();
            usage.set_reservation(reservation);
        });
        promised_to
    }

    /// Removes a reservation. Returns its address if it is a valid one.
    pub(super) fn remove(&mut self, reservation: &IPReservation) -> Option<Slot> {
        let uid = reservation.metadata.uid.as_deref().unwrap_or_default();
        self.remember_deletion(Uid::of(uid), Instant::now());
        if let Ok((slot, _)) = reservation.slot() {
            self.remove_at(&slot, Some(Uid::of(uid)));
            return Some(slot);
        }
        let name = reservation.metadata.name.as_deref().unwrap_or_default();
        let change = self.networks.remove_record(name, uid);
        self.refresh_pools(&change);
        if self.ignored.get(name).is_some_and(|ignored| *ignored.uid == *uid) {
            self.ignored.remove(name);
        }
        None
    }

    /// Removes the reservation of an address, if it has that uid or no uid is passed.
    pub(super) fn remove_at(&mut self, slot: &Slot, uid: Option<Uid>) {
        let known = self.usage(slot).and_then(|usage| usage.reservation.as_ref());
        let Some(known) = known.map(|known| Uid::of(&known.uid)) else { return };
        if uid.is_some_and(|uid| known != uid) {
            return;
        }
        self.remember_deletion(known, Instant::now());
        self.unindex_holder(slot);
        self.update(slot, |usage| usage.reservation = None);
    }

    /// Removes all IPAddress objects that the newest list does not show.
    pub(super) fn remove_unlisted_addresses(&mut self) {
        let newest = self.address_list;
        for slot in self.slots(|usage| usage.owners.iter().any(|owner| owner.list != newest)) {
            self.update(&slot, |usage| usage.owners.retain(|owner| owner.list == newest));
        }
    }

    /// The addresses whose usage matches.
    fn slots(&self, matches: impl Fn(&AddressUsage) -> bool) -> Vec<Slot> {
        let matching = self.all_usage().filter(|(_, _, usage)| matches(usage));
        matching.map(|(scope, block, _)| Slot { scope: scope.clone(), block }).collect()
    }

    /// Removes all reservations that the newest list does not show.
    pub(super) fn remove_unlisted_reservations(&mut self) {
        self.is_listing_reservations = false;
        let newest = self.reservation_list;
        for slot in self.slots(|usage| usage.reservation.as_ref().is_some_and(|known| known.list != newest)) {
            self.remove_at(&slot, None);
        }
        self.ignored.retain(|_, ignored| ignored.list == newest);
        let changes = self.networks.remove_unlisted_records(newest);
        changes.iter().for_each(|change| self.refresh_pools(change));
    }

    /// Records that the reservation with this uid is deleted.
    pub(super) fn remember_deletion(&mut self, uid: Uid, now: Instant) {
        self.tombstones.insert(uid, (), TOMBSTONE_TTL, now);
    }

    /// Whether the reservation with this uid was deleted recently.
    pub(super) fn was_deleted(&self, uid: Uid, now: Instant) -> bool {
        self.tombstones.get(&uid, now).is_some()
    }

    /// The names of the reservations that have to be labelled for `clusterctl move` and are not those of an address.
    pub(super) fn unlabelled_others(&self) -> impl Iterator<Item = String> {
        let ignored = self.ignored.iter().filter(|(_, ignored)| ignored.lacks_label);
        ignored.map(|(name, _)| name.clone())
    }

    fn unindex_holder(&mut self, slot: &Slot) {
        let Self { scopes, holdings, .. } = self;
        let usage = scopes.get(&slot.scope).and_then(|scope| scope.usage.get(&slot.block));
        if let Some(known) = usage.and_then(|usage| usage.reservation.as_ref()) {
            holdings.remove(known, slot);
        }
    }
}

fn uid_of(reservation: &IPReservation) -> Uid {
    Uid::of(reservation.metadata.uid.as_deref().unwrap_or_default())
}

/// The pools that are in one list only: `false` for removed ones, `true` for added ones.
fn differences<'a>(before: &'a [PoolKey], after: &'a [PoolKey]) -> impl Iterator<Item = (&'a PoolKey, bool)> {
    let removed = before.iter().filter(|pool| !after.contains(pool)).map(|pool| (pool, false));
    removed.chain(after.iter().filter(|pool| !before.contains(pool)).map(|pool| (pool, true)))
}
