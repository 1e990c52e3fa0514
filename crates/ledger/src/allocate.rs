//! Which address of a pool a claim gets: its former one, the one that it requests, or the next free
//! one; who may use a pool, and the claims that wait.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use capi_ipam_api::{AccessRules, AllowedNamespaces, NamedPool, OverLimit, PoolKey, Scope, Slot};
use capi_ipam_contract::{IPAddressClaim, Uid};
use capi_ipam_ip::{Block, UsableBlocks};
use capi_ipam_objects::maybe_invalid::{Invalid, readable};
use capi_ipam_objects::namespaced_name::NamespacedName;
use capi_ipam_objects::observed::Versions;

use crate::addresses::{AddressUsage, ReservationInfo, SharedName};
use crate::observe::Observe;
use crate::outcome::{Outcome, Reason};
use crate::pools::PoolEntry;
use crate::pools::released::quarantine_end;
use crate::quota::{Consumer, Group, Quota};
use crate::unavailable::Unavailable;
use crate::{
    ClaimAttributes, KnownReservation, Ledger, LimitReached, PoolInfo, Priority, addresses,
};

/// The former address of a claim.
pub(super) struct Former {
    block: Block,
    /// Whether other claims can get it.
    is_available: bool,
}

/// The claim cannot have the address that it requests.
fn unavailable<P>(why: Unavailable) -> Outcome<P> {
    Outcome::NotNow(Reason::Unavailable(why))
}

/// The claim whose reservation is being created.
fn candidate_claim(usage: &AddressUsage) -> Option<NamespacedName> {
    let consumer = usage.candidate.as_ref()?.consumer.as_ref()?;
    Some(consumer.claim.clone())
}

/// Whether a claim may keep the address that it has reserved, and is not bound to yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitCheck {
    /// No limit is exceeded.
    Within,
    /// The claim exceeds a limit: other claims have reserved their addresses before. It is
    /// reconciled when a claim of its namespace or Cluster releases an address.
    Exceeded(LimitReached),
    /// The watch has not reported the reservation, and perhaps not those that were created before.
    /// The claim is reconciled when the watch has.
    Unknown,
}

/// Whether the address of another claim was reserved before `reservation`. An address in use always
/// was.
fn is_before(
    versions: &Versions,
    usage: &AddressUsage,
    pool: &PoolKey,
    reservation: &ReservationInfo,
) -> bool {
    if let Some(other) = &usage.reservation {
        if other.uid == reservation.uid {
            return false;
        }
        let is_older = versions.current(other.stamp) < versions.current(reservation.stamp);
        if other.pool == *pool && is_older {
            return true;
        }
    }
    usage.has_address_of(pool)
}

/// The result of [`Ledger::pool_or_wait`], and of [`Ledger::set_or_wait`] for a set.
#[derive(Clone, Debug, PartialEq)]
pub enum PoolLookup<T = PoolInfo> {
    /// The pool exists.
    Found(Arc<T>),
    /// The pool does not exist, and this is the first lookup for the claim: if both were created at
    /// the same time, the claim can be observed first.
    NotSeenYet,
    /// The pool did not exist at an earlier lookup either.
    Missing,
}

/// Claims that no longer exist leave the wait queues: addresses would be held for them.
impl Observe<IPAddressClaim> for Ledger {
    fn apply(&mut self, _: &IPAddressClaim) {}

    fn delete(&mut self, claim: &IPAddressClaim) {
        let name = NamespacedName::of(&claim.metadata);
        match NamedPool::of_claim(claim) {
            Some(NamedPool::Pool(pool)) => self.stop_waiting(&pool, &name),
            Some(NamedPool::Set(set)) => self.leave_set(&set, &name),
            None => {}
        }
    }

    /// It exists, and waits as before.
    fn apply_invalid(&mut self, _: &Invalid) {}

    fn delete_invalid(&mut self, object: &Invalid) {
        self.delete(&IPAddressClaim {
            metadata: (*object.metadata).clone(),
            spec: readable(&object.spec),
            ..IPAddressClaim::default()
        });
    }
}

impl Ledger {
    /// Proposes an address that is not due to an earlier claim, and holds it for the claim: the one
    /// that it requests, else the one that the last claim of its name had, if the pool is sticky,
    /// else the next free one by the order of the pool. It can have the
    /// [reservation](Ledger::released_reservation) of the claim that released it. The address is
    /// held until [`Ledger::drop_candidate`] is called or a reservation of it is observed.
    pub fn propose(
        &mut self,
        pool: &PoolKey,
        claim: &NamespacedName,
        attributes: impl Into<ClaimAttributes>,
    ) -> Outcome<Slot> {
        let attributes = attributes.into();
        self.change(|ledger| ledger.choose_and_hold(pool, claim, &attributes))
    }

    /// Holds an address for a claim whose reservation is being created, until
    /// [`Ledger::drop_candidate`] is called or a reservation of it is observed. Returns false if
    /// the address is already held.
    pub fn hold_candidate(&mut self, pool: &PoolKey, slot: &Slot) -> bool {
        self.change(|ledger| ledger.hold(slot, pool, None))
    }

    /// Stops holding an address: it is free again unless a reservation of it was observed.
    pub fn drop_candidate(&mut self, slot: &Slot) {
        self.change(|ledger| {
            if ledger.is_candidate(slot) {
                ledger.update(slot, |usage| usage.candidate = None);
            }
        });
    }

    /// The slot whose reservation for the claim was requested from this pool with an unknown
    /// outcome. `None` if the pool has joined or left a network since: in its present scope the
    /// address may be reserved for another claim.
    pub fn attempt(&self, claim: Uid, pool: &PoolKey) -> Option<Slot> {
        let (from, slot) = self.addresses.attempt(claim)?;
        (from == pool && self.pools.scope(pool) == slot.scope).then(|| slot.clone())
    }

    /// The reservation of a released address that the claim may take over: its pool is sticky, and
    /// the last claim of this name had the address, or its cool-down has ended.
    pub fn released_reservation(
        &self,
        slot: &Slot,
        claim: &NamespacedName,
    ) -> Option<KnownReservation> {
        let reservation = self.addresses.reservation(slot)?;
        if reservation.released_at.is_none() || reservation.is_terminating {
            return None;
        }
        if !self.pools.get(&reservation.pool)?.retention().is_sticky {
            return None;
        }
        let is_former = reservation.claim.as_ref() == Some(claim);
        if !is_former && !reservation.is_remembered {
            return None;
        }
        Some(self.addresses.known_version(slot, reservation))
    }

    /// Whether the reservation with this uid keeps a released address for the next claim of the
    /// same name, and its cool-down has ended.
    pub fn is_remembered(&self, slot: &Slot, uid: &str) -> bool {
        self.addresses.reservation(slot).is_some_and(|reservation| {
            reservation.is_remembered && reservation.uid.uid() == Uid::of(uid)
        })
    }

    /// Records the end of the cool-downs at the second `now`, in seconds since the Unix epoch, in
    /// the pools that keep a released address for the next claim of the same name: other claims can
    /// get it from now on.
    pub fn end_cooldowns(&mut self, now: i64) {
        self.change(|ledger| {
            let mut ended = Vec::new();
            for (_, entry) in ledger.pools.iter() {
                let retention = entry.retention();
                if retention.is_sticky {
                    let slots = entry.released().cooled_down(retention, now);
                    ended.extend(slots.cloned());
                }
            }
            for slot in &ended {
                ledger.refresh_memory(slot, now);
            }
        });
    }

    /// Lets a claim wait for a change of the pool, and not for an address. Returns false if
    /// `usable` are passed and no longer the blocks of the pool.
    pub fn wait_for_change(
        &mut self,
        pool: &PoolKey,
        claim: &NamespacedName,
        usable: Option<&Arc<UsableBlocks>>,
    ) -> bool {
        self.change(|ledger| {
            let is_current = usable.is_none_or(|usable| ledger.pools.is_current(pool, usable));
            if is_current {
                ledger.wait_for_change_of(pool, claim);
            }
            is_current
        })
    }

    /// As [`Ledger::propose`].
    pub(super) fn choose_and_hold(
        &mut self,
        pool: &PoolKey,
        claim: &NamespacedName,
        attributes: &ClaimAttributes,
    ) -> Outcome<Slot> {
        if !self.prepare_to_propose(pool, claim, attributes) {
            return Outcome::NO_ADDRESS;
        }
        let former = self.former(pool, claim);
        let Some(entry) = self.pools.get_mut(pool) else {
            return Outcome::NO_ADDRESS;
        };
        if let Some(requested) = attributes.requested
            && !entry.contains(requested)
            && !entry.is_in_missing_block(requested)
        {
            self.wait_for_change_of(pool, claim);
            return unavailable(Unavailable::NotInPool);
        }
        let scope = entry.scope(pool);
        let former = former.filter(|former| entry.may_have(former.block, attributes));
        let outcome = match former {
            // Only this claim can have it.
            Some(former) if !former.is_available => {
                let taken = entry.take_back(claim, attributes);
                taken.map(|()| former.block)
            }
            former => {
                let preferred = former.map(|former| former.block);
                self.next_block(pool, &scope, (claim, attributes), preferred)
            }
        };
        let outcome = outcome.map(|block| Slot { scope, block });
        match outcome {
            Outcome::Offer(slot) => {
                let consumer = self.consumer(pool, claim, attributes);
                self.hold(&slot, pool, consumer);
                Outcome::Offer(slot)
            }
            Outcome::NotNow(reason) => {
                if let Some(entry) = self.pools.get(pool)
                    && entry.is_divided_since(attributes)
                {
                    // It is granted a turn, and looks up its owner.
                    self.dirty_pools.push(pool.clone());
                }
                Outcome::NotNow(self.name_missing_block(pool, attributes.requested, reason))
            }
            Outcome::First(preparation) => Outcome::First(preparation),
        }
    }

    /// Why a claim gets no address now: names the block for which it waits, if it waits for one.
    fn name_missing_block(
        &mut self,
        pool: &PoolKey,
        requested: Option<Block>,
        reason: Reason,
    ) -> Reason {
        let Some(entry) = self.pools.get(pool) else {
            return reason;
        };
        let Some(network) = entry.network() else {
            return reason;
        };
        let Some(blocks) = self.networks.blocks(network) else {
            return reason;
        };
        // Another block may be needed now.
        self.effects.networks.push(network.clone());
        let missing = self
            .networks
            .missing_block((network, blocks), pool, requested);
        let is_unused_in_missing_block = |requested: Block| {
            let slot = Slot {
                scope: Scope::Network(network.clone()),
                block: requested,
            };
            entry.is_in_missing_block(requested) && self.addresses.usage(&slot).is_none()
        };
        match (reason, requested) {
            (Reason::Unavailable(_) | Reason::SliceUnavailable(_), Some(requested))
                if is_unused_in_missing_block(requested) =>
            {
                Reason::Unavailable(Unavailable::NeedsBlock(missing))
            }
            (Reason::NoAddress, None) if entry.needs_block() => Reason::NeedsBlock(missing),
            (reason, _) => reason,
        }
    }

    /// What counts for the limits of a pool; `None` in a pool without limits.
    fn consumer(
        &self,
        pool: &PoolKey,
        claim: &NamespacedName,
        attributes: &ClaimAttributes,
    ) -> Option<Consumer> {
        self.pools.get(pool)?.quota()?;
        Some(Consumer::new(claim.clone(), attributes.cluster.clone()))
    }

    /// The block that a claim requests, else `preferred`, else the next free one.
    fn next_block(
        &mut self,
        pool: &PoolKey,
        scope: &Scope,
        (claim, attributes): (&NamespacedName, &ClaimAttributes),
        preferred: Option<Block>,
    ) -> Outcome<Block> {
        let Some(entry) = self.pools.get_mut(pool) else {
            return Outcome::NO_ADDRESS;
        };
        let Some(requested) = attributes.requested else {
            return entry.propose(claim, attributes, preferred, false);
        };
        let usage = match self.addresses.scope(scope) {
            Some(scope) => scope.usage.get(&requested),
            None => None,
        };
        let is_for_owner = entry.is_for_owner(requested, attributes.slice_owner.as_ref());
        let is_free = is_for_owner && entry.can_allocate_block(requested, usage);
        match entry.propose(claim, attributes, preferred, is_free) {
            Outcome::NotNow(Reason::NoAddress) if !is_for_owner => {
                unavailable(Unavailable::InOtherSlice)
            }
            Outcome::NotNow(Reason::NoAddress) => {
                let slot = addresses::slot(scope, requested);
                unavailable(self.why_unavailable(pool, &slot, is_free))
            }
            outcome => outcome,
        }
    }

    /// The address that the last claim of this name had, if the pool keeps it for the next one. If
    /// there are several: one that was in use, and that was released last.
    pub(super) fn former(&self, pool: &PoolKey, claim: &NamespacedName) -> Option<Former> {
        let entry = self.pools.get(pool)?;
        if !entry.retention().is_sticky {
            return None;
        }
        let scope = entry.scope(pool);
        let mut best = None;
        for slot in self.addresses.released_by(claim) {
            if slot.scope != scope || !entry.can_allocate_block(slot.block, None) {
                continue;
            }
            let Some(usage) = self.addresses.usage(slot) else {
                continue;
            };
            let Some(reservation) = usage.kept_for_next(pool, claim) else {
                continue;
            };
            let Some(since) = reservation.released_at else {
                continue;
            };
            let rank = (reservation.was_used, since.get(), slot.block);
            let former = Former {
                block: slot.block,
                is_available: reservation.is_remembered && usage.is_unused(),
            };
            let is_better = match &best {
                Some((best_rank, _)) => rank > *best_rank,
                None => true,
            };
            if is_better {
                best = Some((rank, former));
            }
        }
        let (_, former) = best?;
        Some(former)
    }

    /// Why a claim cannot have the address that it requests.
    fn why_unavailable(&self, pool: &PoolKey, slot: &Slot, is_free: bool) -> Unavailable {
        if is_free {
            return if self.pools.is_granted(pool, slot.block) {
                Unavailable::RequestedBefore
            } else {
                Unavailable::NotYet
            };
        }
        let Some(usage) = self.addresses.usage(slot) else {
            // Nothing uses it: the pool does not allocate it, or it overlaps with another block.
            return match self.pools.get(pool) {
                Some(entry) if entry.is_draining(slot.block) => Unavailable::Draining,
                _ => Unavailable::InUse(None),
            };
        };
        if let Some(owner) = usage.owners.first() {
            return Unavailable::InUse(Some(owner.name.clone()));
        }
        if usage.is_name_taken {
            return Unavailable::Excluded;
        }
        let Some(reservation) = &usage.reservation else {
            return Unavailable::InUse(candidate_claim(usage));
        };
        if reservation.is_terminating {
            return Unavailable::BeingDeleted;
        }
        if let Some(since) = reservation.released_at {
            return Unavailable::CoolingDown(self.pools.cooldown_end_of(reservation, since.get()));
        }
        if let Some(until) = reservation.quarantined_until {
            return Unavailable::Quarantined(quarantine_end(until.get()));
        }
        match &reservation.claim {
            None => Unavailable::Excluded,
            Some(claim) if reservation.is_manual() => Unavailable::Promised(claim.clone()),
            Some(claim) => Unavailable::InUse(Some(claim.clone())),
        }
    }

    /// Computes for all released addresses of a pool whether they are kept for the next claims of
    /// the same names.
    pub(super) fn refresh_memories(&mut self, pool: &PoolKey, now: i64) {
        let Some(entry) = self.pools.get(pool) else {
            return;
        };
        let released: Vec<Slot> = entry.released().slots().cloned().collect();
        for slot in &released {
            self.refresh_memory(slot, now);
        }
    }

    fn refresh_memory(&mut self, slot: &Slot, now: i64) {
        let Some(reservation) = self.addresses.reservation(slot) else {
            return;
        };
        let is_remembered = self.pools.keeps_for_next(reservation, now);
        if is_remembered != reservation.is_remembered {
            self.update(slot, |usage| {
                if let Some(reservation) = &mut usage.reservation {
                    reservation.is_remembered = is_remembered;
                }
            });
        }
    }

    /// Whether a claim may use a pool, by its namespace. Otherwise it waits for a change of the
    /// pool or of the labels of the namespace: one step, because a change between the check and the
    /// wait would go unnoticed.
    pub fn is_allowed_or_waits(&mut self, pool: &PoolKey, claim: &NamespacedName) -> bool {
        self.change(|ledger| {
            let is_allowed = ledger.is_allowed(pool, claim.namespace());
            if !is_allowed {
                ledger.wait_for_change_of(pool, claim);
            }
            is_allowed
        })
    }

    /// Checks the limits of a pool for an address that is reserved for a claim with that uid.
    /// Several managers can reserve the last addresses of a namespace at the same time: in the
    /// order in which the API server has created them, the first ones are within the limit. All
    /// managers see the same order, which is that of the watch.
    pub fn check_limits(
        &mut self,
        pool: &PoolKey,
        slot: &Slot,
        claim: &NamespacedName,
        uid: Uid,
    ) -> LimitCheck {
        self.change(|ledger| ledger.limit_check(pool, slot, claim, uid))
    }

    /// The addresses of a pool beyond what other rules would allow.
    pub fn over_limit_with(&self, pool: &PoolKey, rules: &AccessRules) -> OverLimit {
        let is_allowed =
            |namespace: &str| self.networks.allows_namespace(&rules.namespaces, namespace);
        self.quota(pool, rules).over(is_allowed)
    }

    /// Counts the addresses of a pool by namespace and Cluster.
    pub(super) fn quota(&self, key: &PoolKey, rules: &AccessRules) -> Quota {
        let mut quota = Quota::new(rules);
        for scope in self.pools.scopes_with(key) {
            for (_, usage) in self.addresses.usage_in(&scope) {
                for (pool, consumer) in usage.charges() {
                    if pool == *key {
                        quota.charge(&consumer, true);
                    }
                }
            }
        }
        quota
    }

    /// The addresses of a pool beyond what its rules allow; `None` without rules.
    pub(super) fn over_limit_of(&self, entry: &PoolEntry) -> Option<OverLimit> {
        let rules = entry.info()?.access.as_ref()?;
        let quota = entry.quota()?;
        Some(quota.over(|namespace| self.networks.allows_namespace(&rules.namespaces, namespace)))
    }

    /// As [`Ledger::check_limits`].
    fn limit_check(
        &mut self,
        pool: &PoolKey,
        slot: &Slot,
        claim: &NamespacedName,
        uid: Uid,
    ) -> LimitCheck {
        let Some(entry) = self.pools.get(pool) else {
            return LimitCheck::Within;
        };
        let Some(quota) = entry.quota() else {
            return LimitCheck::Within;
        };
        // A list shows them in another order than that of their creation.
        let is_listing = self.addresses.versions().is_listing();
        let observed = self.addresses.reservation(slot).filter(|reservation| {
            reservation.is_observed && reservation.claim_uid == Some(uid) && !is_listing
        });
        let Some(reservation) = observed else {
            self.wait_for_change_of(pool, claim);
            return LimitCheck::Unknown;
        };
        let cluster = reservation.cluster.as_ref().map(SharedName::text);
        let consumer = Consumer::new(claim.clone(), cluster);
        // If several limits are exceeded, the lowest one is reported.
        let mut lowest: Option<(usize, Group)> = None;
        for group in consumer.groups() {
            let Some(limit) = quota.limit(&group) else {
                continue;
            };
            let is_exceeded = quota.is_exceeded(&group)
                && self.claims_before(pool, reservation, claim, &group) >= limit;
            let is_lower = match &lowest {
                Some((known, _)) => limit < *known,
                None => true,
            };
            if is_exceeded && is_lower {
                lowest = Some((limit, group));
            }
        }
        let Some((_, group)) = lowest else {
            return LimitCheck::Within;
        };
        let limit = quota.describe(&group);
        if let Some(entry) = self.pools.get_mut(pool) {
            entry.wait_queue.wait_for_room(&group, claim);
            self.dirty_pools.push(pool.clone());
        }
        LimitCheck::Exceeded(limit)
    }

    /// Lets a claim wait for a change of the pool, and not for an address.
    fn wait_for_change_of(&mut self, pool: &PoolKey, claim: &NamespacedName) {
        let entry = self.pools.entry(pool);
        entry.wait_queue.wait_for_permission(claim);
        // It may have had a turn, which is for the next claim.
        self.dirty_pools.push(pool.clone());
    }

    /// Wakes the claims whose limits can be checked, since the list of reservations is complete.
    pub(super) fn wake_unchecked(&mut self) {
        if !self.pools.have_quotas() {
            return;
        }
        for (_, entry) in self.pools.iter_mut() {
            if entry.quota().is_some() {
                self.effects.claims.extend(entry.wait_queue.pool_changed());
            }
        }
    }

    /// How many other claims of a group have reserved an address of the pool before this one.
    fn claims_before(
        &self,
        pool: &PoolKey,
        reservation: &ReservationInfo,
        claim: &NamespacedName,
        group: &Group,
    ) -> usize {
        let mut others = HashSet::new();
        for scope in self.pools.scopes_with(pool) {
            for (_, usage) in self.addresses.usage_in(&scope) {
                if !is_before(self.addresses.versions(), usage, pool, reservation) {
                    continue;
                }
                for (from, other) in usage.charges() {
                    if from == *pool && group.includes(&other) && other.claim != *claim {
                        others.insert(other.claim);
                    }
                }
            }
        }
        others.len()
    }

    /// Whether the claims of a namespace may use a pool.
    fn is_allowed(&self, pool: &PoolKey, namespace: &str) -> bool {
        let Some(info) = self.pools.info(pool) else {
            return true;
        };
        match &info.access {
            Some(rules) => self.networks.allows_namespace(&rules.namespaces, namespace),
            None => true,
        }
    }

    /// Wakes the claims of a namespace, whose labels may have changed, that wait for permission to
    /// use a pool.
    pub(super) fn wake_refused(&mut self, namespace: &str) {
        if !self.pools.have_quotas() {
            return;
        }
        for (_, entry) in self.pools.iter_mut() {
            if let Some(info) = entry.info()
                && let Some(rules) = &info.access
                && matches!(rules.namespaces, AllowedNamespaces::Selector(_))
            {
                let waiting = entry.wait_queue.namespace_changed(namespace);
                self.effects.claims.extend(waiting);
            }
        }
    }

    /// Returns the pool of a claim if it can allocate. Otherwise the claim waits for a change of
    /// the pool: it is reconciled again when the pool changes, and is enqueued for an address.
    pub fn pool_or_wait(
        &mut self,
        pool: &PoolKey,
        claim: &NamespacedName,
        attributes: impl Into<ClaimAttributes>,
    ) -> PoolLookup {
        let entry = self.pools.entry(pool);
        let info = entry.shared_info();
        if let Some(info) = info.as_ref().filter(|info| info.can_allocate()) {
            return PoolLookup::Found(Arc::clone(info));
        }
        // A claim in the queue has seen the pool.
        let was_known = entry.wait_queue.waits(claim);
        entry.wait_queue.wait_for_pool(claim, &attributes.into());
        match info {
            Some(info) => PoolLookup::Found(info),
            None if !was_known => PoolLookup::NotSeenYet,
            None => PoolLookup::Missing,
        }
    }

    /// The pool, if it still serves the claim. Otherwise the claim waits for a change of the pool.
    pub fn serving_or_wait(
        &mut self,
        pool: &PoolKey,
        claim: &NamespacedName,
        attributes: impl Into<ClaimAttributes>,
        serves: impl Fn(&PoolInfo) -> bool,
    ) -> Option<Arc<PoolInfo>> {
        let entry = self.pools.entry(pool);
        let info = entry.shared_info().filter(|info| serves(info));
        if info.is_none() {
            entry.wait_queue.wait_for_pool(claim, &attributes.into());
        }
        info
    }

    /// Ends the turn of a claim whose reconcile has ended, if the turn was granted before the
    /// reconcile started at `started` and was not used: the next claim is granted one. If another
    /// manager has bound the claim meanwhile, it leaves the wait queue.
    pub fn end_unused_turn(
        &mut self,
        pool: &PoolKey,
        claim: &NamespacedName,
        uid: Uid,
        started: Instant,
    ) {
        let has_left = self.leave_when_served(pool, claim, uid);
        let Some(entry) = self.pools.get_mut(pool) else {
            return;
        };
        if has_left || entry.wait_queue.end_turn(claim, started) {
            self.effects
                .claims
                .extend(entry.grant_turns(Instant::now()));
        }
    }

    /// Removes the claim from the wait queue of the pool.
    pub(super) fn stop_waiting(&mut self, pool: &PoolKey, claim: &NamespacedName) {
        let Some(entry) = self.pools.get_mut(pool) else {
            return;
        };
        entry.wait_queue.forget(claim);
        self.effects
            .claims
            .extend(entry.grant_turns(Instant::now()));
        self.pools.remove_if_empty(pool);
    }

    /// Removes claims for which `exists` returns false from all wait queues, and grants the turns
    /// that have expired to the next claims.
    pub fn prune_wait_queues(&mut self, exists: impl Fn(&NamespacedName) -> bool) {
        let now = Instant::now();
        for (_, entry) in self.pools.iter_mut() {
            let waiting = entry.wait_queue.claims();
            let gone: Vec<NamespacedName> =
                waiting.filter(|claim| !exists(claim)).cloned().collect();
            for claim in &gone {
                entry.wait_queue.forget(claim);
            }
            self.effects.claims.extend(entry.grant_turns(now));
        }
        self.prune_sets(exists);
    }

    /// Records that a reconcile of a claim without an address starts. Of the claims of a pool whose
    /// reconciles have started, the first one gets the next address, in whatever order they request
    /// one. A claim that holds an address needs no other one.
    pub fn start(&mut self, pool: &PoolKey, claim: &NamespacedName, uid: Uid, priority: Priority) {
        if self.addresses.slots_of(claim, uid).next().is_some() {
            return;
        }
        let entry = self.pools.entry(pool);
        entry.wait_queue.start(claim, priority);
    }

    /// Records that the reconcile of a claim has ended.
    pub fn end(&mut self, pool: &PoolKey, claim: &NamespacedName) {
        let Some(entry) = self.pools.get_mut(pool) else {
            return;
        };
        entry.wait_queue.end(claim);
        self.pools.remove_if_empty(pool);
    }

    /// Takes at most `most` claims that have to be rechecked, because their pool can no longer
    /// allocate. Returns also whether there are others.
    pub fn take_rechecks(&mut self, most: usize) -> (Vec<NamespacedName>, bool) {
        let count = most.min(self.claims_to_recheck.len());
        let claims = self.claims_to_recheck.drain(..count).collect();
        (claims, !self.claims_to_recheck.is_empty())
    }
}
