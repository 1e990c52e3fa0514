//! What is wrong with addresses and reservations, as far as the ledger knows: queries for those who
//! repair or report it.

use capi_ipam_api::{Audience, ReservationClaim, Slot};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_provider::api::Uid;

use super::usage::{AddressUsage, ReservationInfo};
use super::{Ledger, PoolKey};

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
    /// Why it has no effect: the field and its problem.
    pub problem: String,
}

impl Ledger {
    /// Whether an address has no reservation and none is being created.
    pub fn is_unreserved(&self, slot: &Slot) -> bool {
        self.usage(slot).is_some_and(AddressUsage::is_unreserved)
    }

    /// At most `limit` addresses that are in use without a reservation, of pools that are not being
    /// deleted, and of claims for which `filter` returns true.
    pub fn unreserved(
        &self,
        limit: usize,
        filter: impl Fn(&NamespacedName) -> bool,
    ) -> Vec<Unreserved> {
        let is_kept = |pool: &PoolKey| {
            let info = self.pools.get(pool).and_then(|entry| entry.info.as_ref());
            info.is_some_and(|info| !info.deleting && info.network_problem.is_none())
        };
        // A reservation in another scope is moved instead.
        let unreserved = self
            .all_usage()
            .filter(|(_, _, usage)| usage.is_unreserved() && usage.elsewhere == 0);
        let described = unreserved.filter_map(|(scope, block, usage)| {
            let owners = usage.owners.iter().filter(|owner| is_kept(&owner.pool));
            let claims: Vec<_> = owners
                .map(|owner| (owner.name.clone(), owner.pool.clone()))
                .collect();
            claims
                .iter()
                .any(|(claim, _)| filter(claim))
                .then(|| Unreserved {
                    slot: Slot {
                        scope: scope.clone(),
                        block,
                    },
                    claims,
                })
        });
        described.take(limit).collect()
    }

    /// The addresses that are in use by one claim and reserved for another one.
    pub fn conflicts(&self) -> Vec<Conflict> {
        let mut conflicts = Vec::new();
        for (scope, block, usage) in self.all_usage() {
            let reservation = usage
                .reservation
                .as_ref()
                .filter(|reservation| reservation.released_at.is_none());
            let Some((reserved_for, uid)) = reservation
                .and_then(|reservation| reservation.claim.as_ref().zip(reservation.claim_uid))
            else {
                continue;
            };
            let is_duplicate = usage.owners.iter().any(|owner| owner.name == *reserved_for);
            for owner in usage
                .owners
                .iter()
                .filter(|owner| owner.name != *reserved_for)
            {
                conflicts.push(Conflict {
                    slot: Slot {
                        scope: scope.clone(),
                        block,
                    },
                    claim: owner.name.clone(),
                    reserved_for: reserved_for.clone(),
                    uid,
                    is_duplicate,
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
        let abandoned = self.all_usage().filter_map(|(scope, block, usage)| {
            let reservation = usage
                .reservation
                .as_ref()
                .filter(|reservation| reservation.released_at.is_none())?;
            // One that is being deleted is released already, and waits for a finalizer.
            let reservation =
                Some(reservation).filter(|reservation| !reservation.is_terminating)?;
            let (claim, uid) = reservation.claim.as_ref().zip(reservation.claim_uid)?;
            let owns = |usage: &AddressUsage| usage.owners.iter().any(|owner| owner.name == *claim);
            // While the pool joins or leaves a network, its addresses are in another scope than
            // their reservations.
            let is_elsewhere = || {
                let other = self
                    .pools
                    .get(&reservation.pool)
                    .and_then(|entry| entry.other_scope(scope));
                other.is_some_and(|scope| self.usage(&Slot { scope, block }).is_some_and(owns))
            };
            let has_address = owns(usage) || is_elsewhere();
            let slot = || Slot {
                scope: scope.clone(),
                block,
            };
            let is_abandoned = !is_entitled(claim, uid, has_address);
            is_abandoned.then(|| AbandonedReservation {
                slot: slot(),
                claim: claim.clone(),
                uid,
            })
        });
        abandoned.collect()
    }

    /// The manually created reservations that have no effect: they are not valid, name an address
    /// that their pool does not contain, or one that is in use by another claim.
    pub fn invalid_reservations(&self) -> Vec<InvalidReservation> {
        let invalid = self.ignored.iter().map(|(name, ignored)| {
            let address = ignored.slot.as_ref().map(|slot| slot.block.to_string());
            let effect = address
                .map(|it| format!("; {it} is not allocated while an IPReservation has this name"));
            InvalidReservation {
                name: name.clone(),
                uid: ignored.uid.to_string(),
                problem: format!("{}{}", ignored.problem, effect.unwrap_or_default()),
            }
        });
        let ineffective = self.all_usage().filter_map(|(scope, block, usage)| {
            let reservation = usage
                .reservation
                .as_ref()
                .filter(|reservation| reservation.is_manual())?;
            let slot = Slot {
                scope: scope.clone(),
                block,
            };
            let problem = self
                .placement_problem(&slot, &reservation.pool)
                .or_else(|| impossible_promise(reservation))
                .or_else(|| promise_conflict(usage))?;
            Some(InvalidReservation {
                name: slot.reservation_name(),
                uid: reservation.uid.to_string(),
                problem,
            })
        });
        invalid.chain(ineffective).collect()
    }

    /// The names of the manually created reservations that have to be labelled for `clusterctl
    /// move`.
    pub fn unlabelled(&self) -> Vec<String> {
        let lacks_label = |usage: &AddressUsage| {
            usage
                .reservation
                .as_ref()
                .is_some_and(|known| known.lacks_label)
        };
        let valid = self.all_usage().filter(|(.., usage)| lacks_label(usage));
        let valid = valid.map(|(scope, block, _)| {
            Slot {
                scope: scope.clone(),
                block,
            }
            .reservation_name()
        });
        valid.chain(self.unlabelled_others()).collect()
    }

    /// Why a manually created reservation has no effect: another scope, or an address that the pool
    /// does not contain. `None` also if the pool is not known.
    pub fn placement_problem(&self, slot: &Slot, pool: &PoolKey) -> Option<String> {
        let info = self.pools.get(pool)?.info.as_ref()?;
        if info.scope != slot.scope {
            return Some(format!(
                "spec.scope: the scope of {pool} is {}, not {}",
                info.scope.name(),
                slot.scope.name()
            ));
        }
        let usable = info.usable.as_ref().ok()?;
        (!usable.contains(slot.block))
            .then(|| format!("spec.address: {pool} does not contain {}", slot.block))
    }
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
