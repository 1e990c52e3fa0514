//! What is wrong with addresses and reservations.

use capi_ipam_api::{Audience, PoolKey, ReservationClaim, Slot};
use capi_ipam_contract::Uid;
use capi_ipam_objects::namespaced_name::NamespacedName;
use capi_ipam_objects::observed::ObjectVersion;

use super::{AddressUsage, Addresses, ReservationInfo, slot};

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

impl Addresses {
    /// The addresses that are in use by one claim and reserved for another one.
    pub fn conflicts(&self) -> Vec<Conflict> {
        let mut conflicts = Vec::new();
        for (scope, block, usage) in self.all() {
            let Some((_, reserved_for, uid)) = unreleased(usage) else {
                continue;
            };
            for owner in &usage.owners {
                if owner.name == *reserved_for {
                    continue;
                }
                conflicts.push(Conflict {
                    slot: slot(scope, block),
                    claim: owner.name.clone(),
                    reserved_for: reserved_for.clone(),
                    uid,
                    is_duplicate: usage.is_owned_by(reserved_for),
                });
            }
        }
        conflicts
    }
}

/// The reservation that a claim has, the claim and its uid.
pub(crate) fn unreleased(usage: &AddressUsage) -> Option<(&ReservationInfo, &NamespacedName, Uid)> {
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
pub(crate) fn impossible_promise(reservation: &ReservationInfo) -> Option<String> {
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
pub(crate) fn promise_conflict(usage: &AddressUsage) -> Option<String> {
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
