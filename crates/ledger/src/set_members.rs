//! Which member of a set a claim gets an address from, and what follows from changes of sets and
//! pools.

use std::sync::Arc;
use std::time::Instant;

use capi_ipam_api::{
    NamedPool, PoolChoice, PoolKey, PoolSetKey, PoolSetKind, PoolSetStatus, Slot, names,
};
use capi_ipam_contract::{IPAddress, IPAddressClaim, Machine, Uid};
use capi_ipam_ip::Block;
use capi_ipam_objects::namespaced_name::NamespacedName;
use kube::core::ObjectMeta;

use crate::pools::start::Phase;
use crate::pools::{PoolEntry, Pools};
use crate::sets::{SetEntry, SetInfo};
use crate::{Held, Ledger, Observe, PoolLookup, allocated_block, block_of};

/// The failure domains of the pools that may serve a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Domains<'a> {
    /// All pools, in the order of the set.
    Any,
    /// Those of this failure domain.
    Only(&'a str),
    /// Those of this failure domain, and then the others.
    First(&'a str),
}

/// The failure domain of a claim: its label, or else the label or `spec.failureDomain` of its
/// Machine.
pub fn failure_domain(claim: &IPAddressClaim, machine: Option<&Machine>) -> Option<String> {
    zone_label(&claim.metadata).or_else(|| machine_failure_domain(machine?))
}

/// The failure domain of a Machine, or of the template of one: its label, or else
/// `spec.failureDomain`.
pub fn machine_failure_domain(machine: &Machine) -> Option<String> {
    let failure_domain = machine.spec.failure_domain.clone();
    zone_label(&machine.metadata).or(failure_domain)
}

fn zone_label(metadata: &ObjectMeta) -> Option<String> {
    metadata.labels.as_ref()?.get(names::ZONE_LABEL).cloned()
}

/// What the status of a set reports.
#[derive(Clone, Debug, PartialEq)]
pub struct SetReport {
    /// The settings of the set.
    pub info: Arc<SetInfo>,
    /// The counts.
    pub counts: PoolSetStatus,
    /// The number of pools that can allocate addresses.
    pub ready: usize,
    /// The listed pools that do not exist.
    pub missing: Vec<PoolKey>,
    /// The number of selected pools that the set does not use: it has too many.
    pub excess: usize,
}

impl SetInfo {
    /// The pools for a claim of this failure domain; `None` if it is not known, and any pool can be
    /// chosen.
    pub fn domains<'a>(&self, zone: Option<&'a str>) -> Domains<'a> {
        match zone.filter(|_| self.choose == PoolChoice::ByFailureDomain) {
            None => Domains::Any,
            Some(zone) if self.fallback => Domains::First(zone),
            Some(zone) => Domains::Only(zone),
        }
    }
}

fn zone_of<'a>(pools: &'a Pools, pool: &PoolKey) -> Option<&'a str> {
    let labels = &pools.info(pool)?.labels;
    labels.get(names::ZONE_LABEL).map(String::as_str)
}

impl Ledger {
    /// A list of the sets of a kind begins.
    pub fn begin_set_list(&mut self, kind: PoolSetKind) {
        for (key, entry) in &mut self.sets.entries {
            entry.is_listed &= key.kind != kind;
        }
    }

    /// The list is complete: sets that it has not shown do not exist.
    pub fn end_set_list(&mut self, kind: PoolSetKind) {
        let is_missing = |(key, entry): &(&PoolSetKey, &SetEntry)| {
            key.kind == kind && entry.info.is_some() && !entry.is_listed
        };
        let entries = self.sets.entries.iter();
        let missing: Vec<PoolSetKey> = entries
            .filter(is_missing)
            .map(|(key, _)| key.clone())
            .collect();
        for key in &missing {
            self.replace_set(key, None);
        }
    }

    /// Records a set that the watch has shown; `None` if it cannot be decoded, and what was known of
    /// it stays in force.
    pub fn apply_set(&mut self, key: &PoolSetKey, info: Option<SetInfo>) {
        let entry = self.sets.entry(key);
        entry.is_listed = true;
        if info.is_some() && entry.info.as_deref() != info.as_ref() {
            self.replace_set(key, info);
        }
        self.sets.remove_if_empty(key);
    }

    /// Removes a set.
    pub fn remove_set(&mut self, key: &PoolSetKey) {
        self.replace_set(key, None);
    }

    /// Claims that wait for the set are reconciled.
    fn replace_set(&mut self, key: &PoolSetKey, info: Option<SetInfo>) {
        let entry = self.sets.entry(key);
        entry.info = info.map(Arc::new);
        entry.find_members(key, &self.pools);
        entry.notified = true;
        self.effects.claims.extend(entry.waiting.keys().cloned());
        self.effects.sets.push(key.clone());
        self.sets.remove_if_empty(key);
        self.recount_all_uncertain();
    }

    /// Updates the sets after a change of a pool. With other labels it may be in other sets, or in
    /// another failure domain.
    pub(super) fn update_sets_of(&mut self, pool: &PoolKey) {
        let Self {
            sets,
            pools,
            effects,
            ..
        } = self;
        let has_new_labels = sets.labels_changed(pool, pools);
        for (key, entry) in &mut sets.entries {
            let was_member = entry.ranks.contains_key(pool);
            let is_selected = has_new_labels && entry.selects(key, pool, pools);
            if has_new_labels && (was_member || is_selected) {
                entry.find_members(key, pools);
                effects.claims.extend(entry.waiting.keys().cloned());
            }
            let is_member = entry.update(pool, pools);
            if (is_member || was_member) && !std::mem::replace(&mut entry.notified, true) {
                effects.sets.push(key.clone());
            }
        }
        self.recount_all_uncertain();
    }

    /// Returns the set of a claim, which waits for a change of the set until it leaves it.
    pub fn set_or_wait(&mut self, key: &PoolSetKey, claim: &NamespacedName) -> PoolLookup<SetInfo> {
        let entry = self.sets.entry(key);
        let was_known = entry.waiting.contains_key(claim);
        entry.waiting.entry(claim.clone()).or_default();
        match &entry.info {
            Some(info) => PoolLookup::Found(Arc::clone(info)),
            None if !was_known => PoolLookup::NotSeenYet,
            None => PoolLookup::Missing,
        }
    }

    /// The pool of which a claim has a reservation, or may have one whose creation had an unknown
    /// outcome: it is tried before all others.
    pub fn recorded_pool(&self, claim: &NamespacedName, uid: Uid) -> Option<PoolKey> {
        let held = self.addresses.held_by(claim, uid);
        let mut reserved = held.iter().filter(|held| !held.is_promise);
        let used = reserved.clone().find(|held| held.was_used);
        // One of a pool that lost the address is left over from an earlier choice.
        let is_in_pool = |held: &&Held| self.contains_block(&held.pool, held.slot.block);
        let current = used.or_else(|| reserved.clone().find(is_in_pool));
        match current.or_else(|| reserved.next()) {
            Some(held) => Some(held.pool.clone()),
            None => Some(self.addresses.attempt(uid)?.0.clone()),
        }
    }

    /// The members that may have an address for a claim, in the order in which they are tried:
    /// those that promise one to it, wherever they are, those that keep one for it, and then those
    /// with free addresses.
    pub fn free_members(
        &self,
        key: &PoolSetKey,
        claim: &NamespacedName,
        uid: Uid,
        domains: Domains<'_>,
    ) -> Vec<PoolKey> {
        let Some(entry) = self.sets.entries.get(key) else {
            return Vec::new();
        };
        let mut in_domains = self.kept_for(entry, claim);
        for (_, place) in &entry.free {
            in_domains.extend(entry.members.get(*place).cloned());
        }
        let mut found = self.members_with_promise(entry, claim, uid);
        for pool in self.of_domains(in_domains, domains) {
            if !found.contains(&pool) {
                found.push(pool);
            }
        }
        found
    }

    /// All members that may serve a claim, in order.
    pub fn members(&self, key: &PoolSetKey, domains: Domains<'_>) -> Vec<PoolKey> {
        match self.sets.entries.get(key) {
            Some(entry) => self.of_domains(entry.members.clone(), domains),
            None => Vec::new(),
        }
    }

    /// The pools that may serve the claims that name a pool, or a set.
    pub fn pools_of(&self, named: &NamedPool) -> Vec<PoolKey> {
        match named {
            NamedPool::Pool(pool) => vec![pool.clone()],
            NamedPool::Set(set) => self.members(set, Domains::Any),
        }
    }

    fn of_domains(&self, mut members: Vec<PoolKey>, domains: Domains<'_>) -> Vec<PoolKey> {
        let is_in = |pool: &PoolKey, zone| zone_of(&self.pools, pool) == Some(zone);
        match domains {
            Domains::Any => {}
            Domains::Only(zone) => members.retain(|pool| is_in(pool, zone)),
            // The sort is stable.
            Domains::First(zone) => members.sort_by_key(|pool| !is_in(pool, zone)),
        }
        members
    }

    /// The members with an address that a user has reserved for the claim.
    fn members_with_promise(
        &self,
        entry: &SetEntry,
        claim: &NamespacedName,
        uid: Uid,
    ) -> Vec<PoolKey> {
        let mut promised = Vec::new();
        for slot in self.addresses.slots_of(claim, uid) {
            if let Some(reservation) = self.addresses.reservation(slot)
                && reservation.is_manual()
                && entry.ranks.contains_key(&reservation.pool)
                && !promised.contains(&reservation.pool)
            {
                promised.push(reservation.pool.clone());
            }
        }
        promised
    }

    /// The members in which the claim has a turn, or that keep the address which the last claim of
    /// its name had.
    fn kept_for(&self, entry: &SetEntry, claim: &NamespacedName) -> Vec<PoolKey> {
        let mut kept = Vec::new();
        for pool in entry.waiting.get(claim).into_iter().flatten() {
            let has_turn = |entry: &PoolEntry| entry.wait_queue.has_turn(claim);
            if self.pools.get(pool).is_some_and(has_turn) {
                kept.push(pool.clone());
            }
        }
        for slot in self.addresses.released_by(claim) {
            if let Some(reservation) = self.addresses.reservation(slot)
                && self.former(&reservation.pool, claim).is_some()
            {
                kept.push(reservation.pool.clone());
            }
        }
        kept.retain(|pool| entry.ranks.contains_key(pool));
        kept
    }

    /// Records that a claim requests an address of a member: it may wait in its queue from now on.
    pub fn try_member(&mut self, key: &PoolSetKey, claim: &NamespacedName, pool: &PoolKey) {
        let entry = self.sets.entry(key);
        let pools = entry.waiting.entry(claim.clone()).or_default();
        if !pools.contains(pool) {
            pools.push(pool.clone());
        }
    }

    /// Removes a claim from the queues of the members: it has an address, or does not exist.
    pub fn leave_set(&mut self, key: &PoolSetKey, claim: &NamespacedName) {
        let Some(entry) = self.sets.entries.get_mut(key) else {
            return;
        };
        let pools = entry.waiting.remove(claim);
        self.sets.remove_if_empty(key);
        for pool in pools.iter().flatten() {
            self.stop_waiting(pool, claim);
        }
    }

    /// Records an IPAddress that refers to a set: its claim waits for nothing. With another address
    /// than before, it no longer has that one.
    pub(super) fn observe_address_of_set(&mut self, key: &PoolSetKey, address: &IPAddress) {
        let name = NamespacedName::of(&address.metadata);
        self.leave_set(key, &name);
        let claim_uid = address.claim_uid().map(Uid::of);
        let place = self.known_block(address, claim_uid);
        let place = place.map(|(pool, block, _)| (pool, block));
        if self.is_certain(address, claim_uid, place.as_ref()) {
            self.sets.uncertain.remove(&name);
        } else {
            self.sets.uncertain.insert(name.clone(), address.clone());
        }
        let Some(place) = place else {
            return;
        };
        let before = self.sets.addresses.insert(name.clone(), place.clone());
        if let Some((pool, block)) = before.filter(|before| *before != place) {
            let scope = self.pools.scope(&pool);
            self.update(&Slot { scope, block }, |usage| usage.remove_address(&name));
        }
    }

    /// The pool, block and key of an IPAddress, as [`allocated_block`]. One that refers to a set is of
    /// the member in which it is counted, or else of the one that [`Self::likely_block`] returns.
    pub(super) fn known_block(
        &self,
        address: &IPAddress,
        claim_uid: Option<Uid>,
    ) -> Option<(PoolKey, Block, NamespacedName)> {
        let Some(set) = PoolSetKey::of_address(address) else {
            return allocated_block(address);
        };
        let name = NamespacedName::of(&address.metadata);
        match self.sets.addresses.get(&name) {
            Some((pool, block)) if block_of(address, pool.kind) == Some(*block) => {
                Some((pool.clone(), *block, name))
            }
            _ => self.likely_block(&set, address, claim_uid),
        }
    }

    /// The pool, block and key of an IPAddress of a set. A user can change the annotation that names
    /// the member. So it is the member in which the claim, with this uid, has reserved the address;
    /// or else the one that is named, if it contains the address; or else the first one that does; or
    /// else the one that is named.
    fn likely_block(
        &self,
        set: &PoolSetKey,
        address: &IPAddress,
        claim_uid: Option<Uid>,
    ) -> Option<(PoolKey, Block, NamespacedName)> {
        let name = NamespacedName::of(&address.metadata);
        if let Some((pool, block)) = self.reserved_place(address, claim_uid) {
            return Some((pool, block, name));
        }
        let named = allocated_block(address);
        let contains = |pool: &PoolKey| self.contains_address(pool, address);
        let is_named = named.as_ref().is_some_and(|(pool, ..)| contains(pool));
        // What the pools contain is known once the initial lists are complete.
        if is_named || self.start.phase == Phase::Listing {
            return named;
        }
        match self.members(set, Domains::Any).into_iter().find(contains) {
            Some(pool) => {
                let block = block_of(address, pool.kind)?;
                Some((pool, block, name))
            }
            None => named,
        }
    }

    /// The member in which the claim of an IPAddress, with this uid, has reserved its address.
    fn reserved_place(
        &self,
        address: &IPAddress,
        claim_uid: Option<Uid>,
    ) -> Option<(PoolKey, Block)> {
        let name = NamespacedName::of(&address.metadata);
        let held = self.addresses.held_by(&name, claim_uid?).into_iter();
        let reserved = held.filter(|held| !held.is_promise);
        let mut places = reserved.map(|held| (held.pool, held.slot.block));
        places.find(|(pool, block)| block_of(address, pool.kind) == Some(*block))
    }

    /// Whether an IPAddress is of the member in which it is counted, whatever becomes known of others.
    fn is_certain(
        &self,
        address: &IPAddress,
        claim_uid: Option<Uid>,
        counted: Option<&(PoolKey, Block)>,
    ) -> bool {
        let Some(counted) = counted else {
            return false;
        };
        self.contains_address(&counted.0, address)
            || self.reserved_place(address, claim_uid).as_ref() == Some(counted)
    }

    /// Counts an IPAddress whose member was not certain in the one that is likely now: its
    /// reservation was observed, or a pool has changed.
    fn recount_uncertain(&mut self, claim: &NamespacedName) {
        let Some(address) = self.sets.uncertain.get(claim).cloned() else {
            return;
        };
        let Some(set) = PoolSetKey::of_address(&address) else {
            return;
        };
        let claim_uid = address.claim_uid().map(Uid::of);
        let likely = self.likely_block(&set, &address, claim_uid);
        let likely = likely.map(|(pool, block, _)| (pool, block));
        let counted = self.sets.addresses.get(claim).cloned();
        if likely == counted {
            if self.is_certain(&address, claim_uid, counted.as_ref()) {
                self.sets.uncertain.remove(claim);
            }
            return;
        }
        if let Some((pool, block)) = counted {
            self.sets.addresses.remove(claim);
            let scope = self.pools.scope(&pool);
            self.update(&Slot { scope, block }, |usage| usage.remove_address(claim));
        }
        self.apply(&address);
    }

    /// As [`Self::recount_uncertain`], of all. There are few once the initial lists are complete.
    fn recount_all_uncertain(&mut self) {
        if self.start.phase == Phase::Listing {
            return;
        }
        let claims: Vec<NamespacedName> = self.sets.uncertain.keys().cloned().collect();
        for claim in &claims {
            self.recount_uncertain(claim);
        }
    }

    /// The pool of which an IPAddress of the claim with this uid is; `None` if it is not known.
    pub fn member_of_address(
        &self,
        address: &IPAddress,
        claim_uid: Option<Uid>,
    ) -> Option<PoolKey> {
        let (pool, ..) = self.known_block(address, claim_uid)?;
        Some(pool)
    }

    /// Records that the IPAddress of a claim is of the member in which its address is reserved. It was
    /// observed before the reservation, with an annotation that names another member, or none.
    pub(super) fn correct_member(&mut self, claim: &NamespacedName, pool: &PoolKey, slot: &Slot) {
        if self.sets.uncertain.contains_key(claim) {
            self.recount_uncertain(claim);
            return;
        }
        let Some((known, block)) = self.sets.addresses.get(claim) else {
            return;
        };
        if known == pool || *block != slot.block {
            return;
        }
        let before = Slot {
            scope: self.pools.scope(known),
            block: *block,
        };
        let Some(usage) = self.addresses.usage(&before) else {
            return;
        };
        let reservation = usage.reservation.as_ref();
        if reservation.and_then(|it| it.claim.as_ref()) == Some(claim) {
            return;
        }
        let mut owners = usage.owners.iter();
        let Some(mut owner) = owners.find(|owner| owner.name == *claim).cloned() else {
            return;
        };
        owner.pool = pool.clone();
        let place = (pool.clone(), slot.block);
        self.sets.addresses.insert(claim.clone(), place);
        self.update(&before, |usage| usage.remove_address(claim));
        self.update(slot, |usage| usage.insert_address(owner));
    }

    /// Whether a pool contains the address of an IPAddress.
    pub fn contains_address(&self, pool: &PoolKey, address: &IPAddress) -> bool {
        let block = block_of(address, pool.kind);
        block.is_some_and(|block| self.contains_block(pool, block))
    }

    fn contains_block(&self, pool: &PoolKey, block: Block) -> bool {
        let info = self.pools.info(pool);
        let blocks = info.and_then(|info| info.blocks());
        blocks.is_some_and(|blocks| blocks.contains(block))
    }

    /// As [`Ledger::end_unused_turn`], in all members.
    pub fn end_unused_turns(
        &mut self,
        key: &PoolSetKey,
        claim: &NamespacedName,
        uid: Uid,
        started: Instant,
    ) {
        let entry = self.sets.entries.get(key);
        let pools = entry.and_then(|entry| entry.waiting.get(claim)).cloned();
        for pool in pools.iter().flatten() {
            self.end_unused_turn(pool, claim, uid, started);
        }
    }

    /// Removes claims for which `exists` returns false.
    pub(super) fn prune_sets(&mut self, exists: impl Fn(&NamespacedName) -> bool) {
        for entry in self.sets.entries.values_mut() {
            entry.waiting.retain(|claim, _| exists(claim));
        }
        self.sets.entries.retain(|_, entry| !entry.is_empty());
    }

    /// What the status of a set reports; `None` if it does not exist. The next change of a member
    /// notifies its controller.
    pub fn set_report(&mut self, key: &PoolSetKey) -> Option<SetReport> {
        let entry = self.sets.entries.get_mut(key)?;
        entry.notified = false;
        let mut report = SetReport {
            info: Arc::clone(entry.info.as_ref()?),
            counts: PoolSetStatus::default(),
            ready: 0,
            missing: Vec::new(),
            excess: entry.excess,
        };
        for pool in &entry.members {
            let Some(info) = self.pools.info(pool) else {
                report.missing.push(pool.clone());
                continue;
            };
            let (sum, counts) = (&mut report.counts, self.pools.counts(pool));
            sum.pools = sum.pools.saturating_add(1);
            sum.total = sum.total.saturating_add(counts.total);
            sum.used = sum.used.saturating_add(counts.used);
            sum.free = sum.free.saturating_add(counts.free);
            report.ready += usize::from(info.can_allocate());
        }
        Some(report)
    }
}
