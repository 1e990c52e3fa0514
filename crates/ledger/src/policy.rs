//! Which address of a pool a claim gets: its former one, the one that it requests, or the next free
//! one.

use std::sync::Arc;

use capi_ipam_api::{Scope, Slot};
use capi_ipam_contract::Uid;
use capi_ipam_ip::{Block, UsableBlocks};
use capi_ipam_objects::namespaced_name::NamespacedName;

use super::outcome::{Outcome, Reason};
use super::pool::PoolEntry;
use super::quota::Consumer;
use super::unavailable::Unavailable;
use super::usage::{AddressUsage, ReservationInfo};
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
        let reservation = self.reservation(slot)?;
        if reservation.released_at.is_none() || reservation.is_terminating {
            return None;
        }
        if !self.pools.get(&reservation.pool)?.is_sticky() {
            return None;
        }
        let is_former = reservation.claim.as_ref() == Some(claim);
        if !is_former && !reservation.is_remembered {
            return None;
        }
        Some(self.known_version(slot, reservation))
    }

    /// Whether the reservation with this uid keeps a released address for the next claim of the
    /// same name, and its cool-down has ended.
    pub fn is_remembered(&self, slot: &Slot, uid: &str) -> bool {
        match self.reservation(slot) {
            Some(reservation) => reservation.is_remembered && reservation.uid.uid() == Uid::of(uid),
            None => false,
        }
    }

    /// Records the end of the cool-downs at the second `now`, in seconds since the Unix epoch, in
    /// the pools that keep a released address for the next claim of the same name: other claims can
    /// get it from now on.
    pub fn end_cooldowns(&mut self, now: i64) {
        self.change(|ledger| {
            let sticky = ledger.pools.values().filter(|entry| entry.is_sticky());
            let ended: Vec<Slot> = sticky
                .flat_map(|entry| entry.cooled_down(now))
                .cloned()
                .collect();
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
            let current = entry
                .info
                .as_ref()
                .and_then(|info| info.usable.as_ref().ok());
            let is_current = current.is_some_and(|current| Arc::ptr_eq(current, usable));
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
        {
            entry.wait_queue.wait_for_permission(claim);
            self.dirty_pools.push(pool.clone());
            return unavailable(Unavailable::NotInPool);
        }
        let scope = entry.scope(pool);
        let former = former.filter(|former| entry.may_have(former.block, attributes));
        let outcome = match former {
            // Only this claim can have it.
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
        if let Outcome::Offer(slot) = &outcome {
            let has_quota = self.pools.get(pool).is_some_and(PoolEntry::has_quota);
            let consumer =
                has_quota.then(|| Consumer::new(claim.clone(), attributes.cluster.clone()));
            self.hold(slot, pool, consumer);
        }
        outcome
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
        let usage = self.scopes.get(scope);
        let usage = usage.and_then(|scope| scope.usage.get(&requested));
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
        if !entry.is_sticky() {
            return None;
        }
        let scope = entry.scope(pool);
        let kept = self
            .holdings
            .released_by(claim)
            .filter(|slot| slot.scope == scope)
            .filter_map(|slot| {
                let usage = self.usage(slot)?;
                let reservation = usage
                    .reservation
                    .as_ref()
                    .filter(|known| known.pool == *pool)?;
                let is_allocatable = usage.is_unused()
                    && !reservation.is_terminating
                    && entry.is_unobstructed(slot.block);
                is_allocatable.then_some((reservation, reservation.released_at?.get(), slot.block))
            });
        let (reservation, _, block) =
            kept.max_by_key(|(known, since, block)| (known.was_used, *since, *block))?;
        let is_remembered = reservation.is_remembered;
        Some(Former {
            block,
            is_remembered,
        })
    }

    /// Why a claim cannot have the address that it requests.
    fn why_unavailable(&self, pool: &PoolKey, slot: &Slot, is_free: bool) -> Unavailable {
        let entry = self.pools.get(pool);
        if is_free {
            let is_granted = entry.is_some_and(|entry| entry.wait_queue.is_granted(slot.block));
            return if is_granted {
                Unavailable::RequestedBefore
            } else {
                Unavailable::NotYet
            };
        }
        let Some(usage) = self.usage(slot) else {
            let is_draining = entry.is_some_and(|entry| entry.is_draining(slot.block));
            return if is_draining {
                Unavailable::Draining
            } else {
                Unavailable::InUse(None)
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
        let claim = reservation.claim.clone();
        match (reservation, claim) {
            (
                ReservationInfo {
                    released_at: Some(since),
                    ..
                },
                _,
            ) => {
                let end = self
                    .pools
                    .get(&reservation.pool)
                    .map(|entry| entry.cooldown_end(since.get()));
                Unavailable::CoolingDown(end.unwrap_or(since.get()))
            }
            (_, None) => Unavailable::Excluded,
            (reservation, Some(claim)) if reservation.is_manual() => Unavailable::Promised(claim),
            (_, claim) => Unavailable::InUse(claim),
        }
    }

    /// Computes for all released addresses of a pool whether they are kept for the next claims of
    /// the same names.
    pub(super) fn refresh_memories(&mut self, pool: &PoolKey, now: i64) {
        let Some(entry) = self.pools.get(pool) else {
            return;
        };
        let released: Vec<Slot> = entry.released().cloned().collect();
        for slot in &released {
            self.refresh_memory(slot, now);
        }
    }

    fn refresh_memory(&mut self, slot: &Slot, now: i64) {
        let Some(reservation) = self.reservation(slot) else {
            return;
        };
        let is_remembered = self.keeps_for_next(reservation, now);
        if is_remembered != reservation.is_remembered {
            self.update(slot, |usage| {
                if let Some(reservation) = &mut usage.reservation {
                    reservation.is_remembered = is_remembered;
                }
            });
        }
    }

    /// Whether a released address is only kept for the next claim of the same name.
    pub(super) fn keeps_for_next(&self, reservation: &ReservationInfo, now: i64) -> bool {
        if reservation.claim.is_none() || reservation.is_terminating {
            return false;
        }
        match (self.pools.get(&reservation.pool), reservation.released_at) {
            (Some(entry), Some(since)) => entry.is_remembered(since.get(), now),
            _ => false,
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
