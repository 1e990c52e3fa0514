//! Which address of a pool a claim gets: its former one, the one that it requests, or the next free
//! one.

use std::sync::Arc;

use capi_ipam_api::{Scope, Slot};
use capi_ipam_contract::Uid;
use capi_ipam_ip::{Block, UsableBlocks};
use capi_ipam_objects::namespaced_name::NamespacedName;

use super::addresses::{AddressUsage, ReservationInfo};
use super::outcome::{Outcome, Reason};
use super::pools::quota::Consumer;
use super::unavailable::Unavailable;
use super::wait_queue::ClaimAttributes;
use super::{KnownReservation, Ledger, PoolKey};

/// The former address of a claim.
struct Former {
    block: Block,
    /// Whether other claims can get it.
    is_remembered: bool,
}

impl Ledger {
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
        match self.addresses.reservation(slot) {
            Some(reservation) => reservation.is_remembered && reservation.uid.uid() == Uid::of(uid),
            None => false,
        }
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

    /// Lets a claim whose request is not valid wait for a change of the pool. Returns false if
    /// `usable` are no longer the blocks of the pool.
    pub fn wait_for_change(
        &mut self,
        pool: &PoolKey,
        claim: &NamespacedName,
        usable: &Arc<UsableBlocks>,
    ) -> bool {
        self.change(|ledger| {
            let Some(entry) = ledger.pools.get_mut(pool) else {
                return false;
            };
            let is_current = match entry.shared_usable() {
                Some(current) => Arc::ptr_eq(current, usable),
                None => false,
            };
            if is_current {
                entry.wait_queue.wait_for_permission(claim);
                ledger.dirty_pools.push(pool.clone());
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
            entry.wait_queue.wait_for_permission(claim);
            self.dirty_pools.push(pool.clone());
            return unavailable(Unavailable::NotInPool);
        }
        let scope = entry.scope(pool);
        let former = former.filter(|former| entry.may_have(former.block, attributes));
        let outcome = match former {
            // It cools down: only this claim can have it.
            Some(former) if !former.is_remembered => {
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
        if !self.pools.get(pool)?.has_quota() {
            return None;
        }
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
                let scope = scope.clone();
                let slot = Slot {
                    scope,
                    block: requested,
                };
                unavailable(self.why_unavailable(pool, &slot, is_free))
            }
            outcome => outcome,
        }
    }

    /// The address that the last claim of this name had, if the pool keeps it for the next one. If
    /// there are several: one that was in use, and that was released last.
    fn former(&self, pool: &PoolKey, claim: &NamespacedName) -> Option<Former> {
        let entry = self.pools.get(pool)?;
        if !entry.retention().is_sticky {
            return None;
        }
        let scope = entry.scope(pool);
        let mut best = None;
        for slot in self.addresses.released_by(claim) {
            if slot.scope != scope || !entry.is_unobstructed(slot.block) {
                continue;
            }
            let Some(reservation) = self.kept_for_next(pool, slot) else {
                continue;
            };
            let Some(since) = reservation.released_at else {
                continue;
            };
            let rank = (reservation.was_used, since.get(), slot.block);
            let former = Former {
                block: slot.block,
                is_remembered: reservation.is_remembered,
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

    /// The reservation of a released address of a pool that only keeps the address: nothing else
    /// uses it.
    fn kept_for_next(&self, pool: &PoolKey, slot: &Slot) -> Option<&ReservationInfo> {
        let usage = self.addresses.usage(slot)?;
        let reservation = usage.reservation.as_ref()?;
        let is_kept = reservation.pool == *pool && !reservation.is_terminating && usage.is_unused();
        is_kept.then_some(reservation)
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
