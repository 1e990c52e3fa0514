//! What the repairs of a manager look for: objects that an interruption has left behind, or that have no
//! effect. Live reads decide about each.

use capi_ipam_api::{PoolKey, Scope, Slot};
use capi_ipam_contract::Uid;
use capi_ipam_objects::namespaced_name::NamespacedName;
use capi_ipam_objects::observed::ObjectVersion;

use crate::addresses::problems::{
    AbandonedReservation, InvalidReservation, Unreserved, Validity, impossible_promise,
    promise_conflict, unreleased,
};
use crate::addresses::{AddressUsage, ReservationInfo};
use crate::{KnownReservation, Ledger, addresses};

/// A reservation in a scope to which its pool no longer belongs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Misplaced {
    /// The pool of the reservation.
    pub pool: PoolKey,
    /// The reserved address.
    pub slot: Slot,
    /// The scope of the pool.
    pub scope: Scope,
    /// The uid of the reservation.
    pub uid: String,
    /// Whether an IPAddress has the address.
    pub is_in_use: bool,
}

impl Ledger {
    /// The reservations of released addresses that are not in use and no longer needed at `now`, in
    /// seconds since the Unix epoch: their cool-down or quarantine has ended, or their pool is
    /// deleted, which ends no quarantine. Sticky
    /// pools keep them for longer. For pools for which `is_served` returns false, the cool-down
    /// ends `delay` seconds later.
    pub fn cooled_down(
        &self,
        now: i64,
        is_served: impl Fn(&PoolKey) -> bool,
        delay: i64,
    ) -> Vec<KnownReservation> {
        let mut found = Vec::new();
        for (pool, entry) in self.pools.iter() {
            let until = if is_served(pool) {
                now
            } else {
                now.saturating_sub(delay)
            };
            let retention = entry.retention();
            for slot in entry.released().reservations_to_delete(retention, until) {
                let Some(reservation) = self.addresses.reservation(slot) else {
                    continue;
                };
                // It is not recorded yet that the cool-down has ended: a sticky pool keeps the
                // address.
                if reservation.is_remembered || !self.pools.keeps_for_next(reservation, now) {
                    found.push(self.addresses.known_version(slot, reservation));
                }
            }
        }
        found
    }

    /// The released addresses whose release is after `second`, in seconds since the Unix epoch.
    pub fn released_after(&self, second: i64) -> Vec<KnownReservation> {
        let pools = self.pools.iter();
        self.known_of(pools.flat_map(|(_, entry)| entry.released().released_after(second)))
    }

    /// The quarantined addresses whose quarantine ends after `second`, in seconds since the Unix
    /// epoch.
    pub fn quarantined_after(&self, second: i64) -> Vec<KnownReservation> {
        let pools = self.pools.iter();
        self.known_of(pools.flat_map(|(_, entry)| entry.released().quarantined_after(second)))
    }

    fn known_of<'a>(&self, slots: impl Iterator<Item = &'a Slot>) -> Vec<KnownReservation> {
        slots
            .filter_map(|slot| self.addresses.known_reservation(slot))
            .collect()
    }

    /// The addresses that cool down although a claim has an IPAddress with them, and that claim.
    /// The uid is set if the reservation names this claim: the claim released the address unless it
    /// still exists with this uid.
    pub fn cooling_down_in_use(&self) -> Vec<(Slot, NamespacedName, Option<Uid>)> {
        let mut found = Vec::new();
        for (_, entry) in self.pools.iter() {
            for slot in entry.released().in_use() {
                if let Some((claim, uid)) = self.addresses.usage(slot).and_then(user_of_released) {
                    found.push((slot.clone(), claim.clone(), uid));
                }
            }
        }
        found
    }

    /// At most `limit` addresses that are in use without a reservation, of pools that are not being
    /// deleted, and of claims for which `filter` returns true.
    pub fn unreserved(
        &self,
        limit: usize,
        filter: impl Fn(&NamespacedName) -> bool,
    ) -> Vec<Unreserved> {
        let mut found = Vec::new();
        for (scope, block, usage) in self.addresses.all() {
            let claims = self.unreserved_claims(usage);
            if claims.iter().any(|(claim, _)| filter(claim)) {
                let slot = addresses::slot(scope, block);
                found.push(Unreserved { slot, claims });
            }
            if found.len() >= limit {
                break;
            }
        }
        found
    }

    /// An address, if it is in use without a reservation.
    pub fn unreserved_at(&self, slot: &Slot) -> Option<Unreserved> {
        let claims = self.unreserved_claims(self.addresses.usage(slot)?);
        let slot = slot.clone();
        (!claims.is_empty()).then_some(Unreserved { slot, claims })
    }

    /// The claims whose IPAddress has an address, and their pools, if the address has no
    /// reservation and its pool is not being deleted.
    fn unreserved_claims(&self, usage: &AddressUsage) -> Vec<(NamespacedName, PoolKey)> {
        // A reservation in another scope is moved instead.
        if !usage.is_unreserved() || usage.elsewhere > 0 {
            return Vec::new();
        }
        let keeping = usage
            .owners
            .iter()
            .filter(|owner| self.keeps_addresses(&owner.pool));
        keeping
            .map(|owner| (owner.name.clone(), owner.pool.clone()))
            .collect()
    }

    /// Whether addresses of a pool are reserved that are in use without a reservation.
    fn keeps_addresses(&self, pool: &PoolKey) -> bool {
        self.pools
            .info(pool)
            .is_some_and(|info| !info.deleting && info.network_problem.is_none())
    }

    /// The reservations of claims for which `is_entitled` returns false. It is called with the name
    /// and the uid of the claim, and whether the claim of that name has an IPAddress with this
    /// address.
    pub fn abandoned_reservations(
        &self,
        is_entitled: impl Fn(&NamespacedName, Uid, bool) -> bool,
    ) -> Vec<AbandonedReservation> {
        let mut abandoned = Vec::new();
        for (scope, block, usage) in self.addresses.all() {
            let Some((reservation, claim, uid)) = unreleased(usage) else {
                continue;
            };
            // One that is being deleted is released already, and waits for a finalizer. One whose
            // last state is not valid cannot be judged, and is reported.
            if reservation.is_terminating || usage.is_name_taken {
                continue;
            }
            let slot = addresses::slot(scope, block);
            let has_address =
                usage.is_owned_by(claim) || self.is_owned_elsewhere(&slot, reservation, claim);
            if !is_entitled(claim, uid, has_address) {
                let claim = claim.clone();
                abandoned.push(AbandonedReservation { slot, claim, uid });
            }
        }
        abandoned
    }

    /// Whether a claim has an IPAddress with a reserved address in the scope of its pool: while the
    /// pool joins or leaves a network, its addresses are in another scope than their reservations.
    fn is_owned_elsewhere(
        &self,
        slot: &Slot,
        reservation: &ReservationInfo,
        claim: &NamespacedName,
    ) -> bool {
        let Some(entry) = self.pools.get(&reservation.pool) else {
            return false;
        };
        let Some(scope) = entry.other_scope(&slot.scope) else {
            return false;
        };
        let block = slot.block;
        let usage = self.addresses.usage(&Slot { scope, block });
        usage.is_some_and(|usage| usage.is_owned_by(claim))
    }

    /// The manually created reservations that have no effect: they are not valid, their pool does
    /// not exist, they name an address that it does not contain, or one that is in use by another
    /// claim. And the names and states of those that have an effect although their status reports
    /// the contrary, or does not say so yet.
    pub fn invalid_reservations(&self) -> (Vec<InvalidReservation>, Vec<(String, ObjectVersion)>) {
        let mut invalid: Vec<InvalidReservation> = self.addresses.ignored().collect();
        let mut valid = Vec::new();
        for (scope, block, usage) in self.addresses.all() {
            let Some(reservation) = &usage.reservation else {
                continue;
            };
            let slot = addresses::slot(scope, block);
            match self.validity(&slot, reservation, usage) {
                Validity::Invalid(problem) => invalid.push(InvalidReservation {
                    name: slot.reservation_name(),
                    uid: reservation.uid.to_string(),
                    seen: reservation.seen(),
                    problem,
                }),
                Validity::Valid if reservation.needs_ready() && !usage.is_name_taken => {
                    valid.push((slot.reservation_name(), reservation.seen()));
                }
                _ => {}
            }
        }
        (invalid, valid)
    }

    /// Whether a reservation has an effect. That of a claim has.
    fn validity(
        &self,
        slot: &Slot,
        reservation: &ReservationInfo,
        usage: &AddressUsage,
    ) -> Validity {
        if !reservation.is_manual() {
            return Validity::Valid;
        }
        let placement = self.placement(slot, &reservation.pool);
        if let Validity::Invalid(_) = placement {
            return placement;
        }
        let problem = impossible_promise(reservation).or_else(|| promise_conflict(usage));
        match problem {
            Some(problem) => Validity::Invalid(problem),
            None => placement,
        }
    }

    /// Whether the pool of a reservation has its scope, and contains its address.
    fn placement(&self, slot: &Slot, pool: &PoolKey) -> Validity {
        let Some(info) = self.pools.info(pool) else {
            if !self.start.is_complete() {
                return Validity::Unknown;
            }
            return Validity::Invalid(format!(
                "spec.poolRef: {pool} does not exist; create the pool, or delete the reservation, which applies to any \
                 later pool of this name"
            ));
        };
        if info.scope != slot.scope {
            return Validity::Invalid(format!(
                "spec.scope: the scope of {pool} is {}, not {}",
                info.scope.name(),
                slot.scope.name()
            ));
        }
        match &info.usable {
            Ok(usable) if usable.contains(slot.block) => Validity::Valid,
            Ok(_) => Validity::Invalid(format!(
                "spec.address: {pool} does not contain {}",
                slot.block
            )),
            Err(_) => Validity::Unknown,
        }
    }

    /// At most `limit` reservations that have to be moved to the scope of their pool, of pools for
    /// which `filter` returns true. Not those of a pool that is paused, being deleted, not valid or
    /// refused by its network.
    pub fn misplaced(&self, limit: usize, filter: impl Fn(&PoolKey) -> bool) -> Vec<Misplaced> {
        let mut found = Vec::new();
        for (pool, entry) in self.pools.iter() {
            if !filter(pool) {
                continue;
            }
            let Some(info) = entry.info() else {
                continue;
            };
            if !info.moves_reservations() {
                continue;
            }
            for (scope, _) in entry.holds() {
                if *scope == info.scope {
                    continue;
                }
                self.find_misplaced(pool, scope, &info.scope, limit, &mut found);
                if found.len() >= limit {
                    return found;
                }
            }
        }
        found
    }

    /// Finds the reservations of a pool in a scope that have to be moved to another one.
    fn find_misplaced(
        &self,
        pool: &PoolKey,
        from: &Scope,
        to: &Scope,
        limit: usize,
        found: &mut Vec<Misplaced>,
    ) {
        for (block, usage) in self.addresses.usage_in(from) {
            let Some(reservation) = &usage.reservation else {
                continue;
            };
            if reservation.pool != *pool {
                continue;
            }
            let slot_in = |scope| addresses::slot(scope, block);
            let target = self.addresses.usage(&slot_in(to));
            found.push(Misplaced {
                pool: pool.clone(),
                slot: slot_in(from),
                scope: to.clone(),
                uid: reservation.uid.to_string(),
                is_in_use: target.is_some_and(|usage| !usage.owners.is_empty()),
            });
            if found.len() >= limit {
                return;
            }
        }
    }
}

/// The claim that uses a released address: another one than that which has released it, if there
/// is one. The uid is set if it is that claim.
fn user_of_released(usage: &AddressUsage) -> Option<(&NamespacedName, Option<Uid>)> {
    let reservation = usage.reservation.as_ref()?;
    let is_releaser = |name: &NamespacedName| Some(name) == reservation.claim.as_ref();
    let other = usage.owners.iter().find(|owner| !is_releaser(&owner.name));
    let name = &other.or(usage.owners.first())?.name;
    let uid = reservation.claim_uid.filter(|_| is_releaser(name));
    Some((name, uid))
}
