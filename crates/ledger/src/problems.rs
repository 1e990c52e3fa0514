//! What is wrong with addresses and reservations, as far as the ledger knows: queries for those who
//! repair or report it.

use capi_ipam_api::{Audience, ReservationClaim, Scope, Slot};
use capi_ipam_contract::Uid;
use capi_ipam_objects::namespaced_name::NamespacedName;
use capi_ipam_objects::observed::ObjectVersion;

use super::addresses::{AddressUsage, ReservationInfo};
use super::{Ledger, PoolKey, addresses};

/// A reservation to which its claim is not entitled, as far as the ledger knows. To be verified
/// with the API server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AbandonedReservation {
    /// The scope and address.
    pub slot: Slot,
    /// The claim that the reservation names.
    pub claim: NamespacedName,
    /// The uid of the claim.
    pub uid: Uid,
}

/// An address in use without a reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreserved {
    /// The scope and address.
    pub slot: Slot,
    /// The claims whose IPAddress has the address, and the pool of each: more than one if the
    /// address is a duplicate.
    pub claims: Vec<(NamespacedName, PoolKey)>,
}

/// An address that is in use by one claim and reserved for another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The scope and address.
    pub slot: Slot,
    /// The claim whose IPAddress has the address.
    pub claim: NamespacedName,
    /// The claim for which the address is reserved.
    pub reserved_for: NamespacedName,
    /// The uid of the claim for which the address is reserved.
    pub uid: Uid,
    /// Whether both claims have an IPAddress with the address.
    pub is_duplicate: bool,
}

/// A manually created IPReservation that has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidReservation {
    /// The name of the IPReservation.
    pub name: String,
    /// The uid of the IPReservation.
    pub uid: String,
    /// The state of the IPReservation that has the problem.
    pub seen: ObjectVersion,
    /// Why it has no effect: the field and its problem.
    pub problem: String,
}

/// Whether an object that a user created has an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Validity {
    /// It has an effect.
    Valid,
    /// It has none, for this reason: the field and its problem.
    Invalid(String),
    /// Its pool, which decides, is not valid, or not all pools are known.
    Unknown,
}

impl Ledger {
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
        match self.pools.info(pool) {
            Some(info) => !info.deleting && info.network_problem.is_none(),
            None => false,
        }
    }

    /// The addresses that are in use by one claim and reserved for another one.
    pub fn conflicts(&self) -> Vec<Conflict> {
        let mut conflicts = Vec::new();
        for (scope, block, usage) in self.addresses.all() {
            let Some((_, reserved_for, uid)) = unreleased(usage) else {
                continue;
            };
            for owner in &usage.owners {
                if owner.name == *reserved_for {
                    continue;
                }
                let scope = scope.clone();
                conflicts.push(Conflict {
                    slot: Slot { scope, block },
                    claim: owner.name.clone(),
                    reserved_for: reserved_for.clone(),
                    uid,
                    is_duplicate: usage.is_owned_by(reserved_for),
                });
            }
        }
        conflicts
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

    /// The number of manually created reservations of a pool that does not exist. They apply to a pool
    /// that is created with this key in this scope.
    pub fn reservations_without_pool(&self, pool: &PoolKey, scope: &Scope) -> usize {
        if self.pools.info(pool).is_some() {
            return 0;
        }
        let is_older = |usage: &AddressUsage| match &usage.reservation {
            Some(reservation) => reservation.is_manual() && reservation.pool == *pool,
            None => false,
        };
        let usage = self.addresses.usage_in(scope);
        usage.filter(|(_, usage)| is_older(usage)).count()
    }

    /// The manually created reservations that have no effect: they are not valid, their pool does not
    /// exist, they name an address that it does not contain, or one that is in use by another claim.
    pub fn invalid_reservations(&self) -> Vec<InvalidReservation> {
        let mut found = Vec::new();
        for ignored in self.addresses.ignored() {
            let mut problem = ignored.problem.to_owned();
            if let Some(slot) = ignored.slot {
                let address = slot.block;
                problem = format!(
                    "{problem}; {address} is not allocated while an IPReservation has this name"
                );
            }
            found.push(InvalidReservation {
                name: ignored.name.to_owned(),
                uid: ignored.uid.to_owned(),
                seen: ignored.seen,
                problem,
            });
        }
        for (scope, block, usage) in self.addresses.all() {
            let Some(reservation) = &usage.reservation else {
                continue;
            };
            let slot = addresses::slot(scope, block);
            if let Validity::Invalid(problem) = self.validity(&slot, reservation, usage) {
                found.push(InvalidReservation {
                    name: slot.reservation_name(),
                    uid: reservation.uid.to_string(),
                    seen: reservation.seen(),
                    problem,
                });
            }
        }
        found
    }

    /// The reservations whose status reports that they have no effect, although they have: their
    /// names and states.
    pub fn corrected_reservations(&self) -> Vec<(String, ObjectVersion)> {
        let mut found = Vec::new();
        for (scope, block, usage) in self.addresses.all() {
            let Some(reservation) = &usage.reservation else {
                continue;
            };
            if !reservation.reports_problem || usage.is_name_taken {
                continue;
            }
            let slot = addresses::slot(scope, block);
            if self.validity(&slot, reservation, usage) == Validity::Valid {
                found.push((slot.reservation_name(), reservation.seen()));
            }
        }
        found
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
}

/// The reservation that a claim has, the claim and its uid.
fn unreleased(usage: &AddressUsage) -> Option<(&ReservationInfo, &NamespacedName, Uid)> {
    let reservation = usage.reservation.as_ref()?;
    if reservation.released_at.is_some() {
        return None;
    }
    Some((
        reservation,
        reservation.claim.as_ref()?,
        reservation.claim_uid?,
    ))
}

/// Why no claim can ever get a promised address.
fn impossible_promise(reservation: &ReservationInfo) -> Option<String> {
    let (namespace, name) = reservation.claim.as_ref()?.parts();
    let (namespace, name) = (namespace.to_owned(), name.to_owned());
    let claim = ReservationClaim {
        namespace,
        name,
        ..ReservationClaim::default()
    };
    claim
        .problem(&reservation.pool)
        .map(|problem| problem.to_string())
}

/// Why a promise cannot be kept now: another claim uses the address.
fn promise_conflict(usage: &AddressUsage) -> Option<String> {
    let promised_to = usage.promised_to()?;
    let owner = usage
        .owners
        .iter()
        .find(|owner| owner.name != *promised_to)?;
    let (namespace, name) = owner.name.parts();
    let other = Audience::of(None).object("IPAddress", namespace, name);
    Some(format!(
        "spec.address: in use by {other}; delete the claim of that name"
    ))
}
