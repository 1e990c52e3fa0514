//! A reservation in the version that is known of it.

use capi_ipam_api::{IPReservation, PoolKey, Slot};
use capi_ipam_contract::Uid;
use capi_ipam_objects::namespaced_name::NamespacedName;
use capi_ipam_objects::resource_version::ResourceVersion;
use kube::ResourceExt;
use kube::core::ObjectMeta;

use super::{Addresses, ReservationInfo};

/// A reservation in a known version. It is written in this version only: a write that is applied
/// later must not affect a claim that takes the reservation over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownReservation {
    /// The scope and address.
    pub slot: Slot,
    /// The pool in `spec.poolRef`.
    pub pool: PoolKey,
    /// The uid of the IPReservation.
    pub uid: String,
    /// The latest observed resource version of the IPReservation.
    pub version: String,
}

impl KnownReservation {
    /// The version of a reservation that was read. `None` if it is not valid.
    pub fn of(found: &IPReservation) -> Option<Self> {
        let (slot, pool) = found.slot().ok()?;
        let uid = found.uid().unwrap_or_default();
        Some(Self {
            slot,
            pool,
            uid,
            version: found.resource_version().unwrap_or_default(),
        })
    }

    /// Whether this is a later version of an object than the one that was read afterwards. Versions
    /// decrease only when etcd is restored.
    pub fn is_newer_than(&self, read: &ObjectMeta) -> bool {
        if read.uid.as_deref() != Some(&self.uid) {
            return false;
        }
        let versions = ResourceVersion::of(read).zip(ResourceVersion::parse(&self.version));
        versions.is_some_and(|(read, known)| read < known)
    }
}

/// An address that is reserved for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The scope and address.
    pub slot: Slot,
    /// The pool of the reservation.
    pub pool: PoolKey,
    /// The uid of the reservation.
    pub uid: String,
    /// The latest observed resource version of the reservation.
    pub version: String,
    /// Whether a user promised the address to the name of the claim. A promise outlives the claim.
    pub is_promise: bool,
    /// Whether an IPAddress of the claim with this address was observed.
    pub was_used: bool,
}

impl Held {
    /// The reservation in the version that is known.
    pub fn known(&self) -> KnownReservation {
        KnownReservation {
            slot: self.slot.clone(),
            pool: self.pool.clone(),
            uid: self.uid.clone(),
            version: self.version.clone(),
        }
    }
}

impl Addresses {
    /// Whether a claim has an IPAddress of a pool, and its reservation.
    pub(crate) fn is_served(&self, pool: &PoolKey, claim: &NamespacedName, uid: Uid) -> bool {
        for slot in self.slots_of(claim, uid) {
            let Some(usage) = self.usage(slot) else {
                continue;
            };
            for owner in &usage.owners {
                if owner.name == *claim && owner.pool == *pool {
                    return true;
                }
            }
        }
        false
    }

    /// The reservation of an address, in the version that is known.
    pub fn known_reservation(&self, slot: &Slot) -> Option<KnownReservation> {
        Some(self.known_version(slot, self.reservation(slot)?))
    }

    /// Whether the reservation of an address is a quarantine.
    pub fn is_quarantined(&self, slot: &Slot) -> bool {
        self.reservation(slot)
            .is_some_and(|reservation| reservation.quarantined_until.is_some())
    }

    /// A reservation of an address, in the version that is known.
    pub(crate) fn known_version(&self, slot: &Slot, info: &ReservationInfo) -> KnownReservation {
        let version = self.versions().precondition(info.stamp);
        KnownReservation {
            slot: slot.clone(),
            pool: info.pool.clone(),
            uid: info.uid.to_string(),
            version: version.to_string(),
        }
    }

    /// What a claim holds: the addresses reserved for its uid, and those promised to its name.
    pub fn held_by(&self, claim: &NamespacedName, uid: Uid) -> Vec<Held> {
        let mut held = Vec::new();
        for slot in self.slots_of(claim, uid) {
            let Some(reservation) = self.reservation(slot) else {
                continue;
            };
            let known = self.known_version(slot, reservation);
            held.push(Held {
                slot: known.slot,
                pool: known.pool,
                uid: known.uid,
                version: known.version,
                is_promise: reservation.is_manual(),
                was_used: reservation.was_used,
            });
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use capi_ipam_api::{InClusterKind, Scope};
    use serde_json::json;

    use super::*;

    #[test]
    fn lower_version_of_the_same_object_is_earlier() {
        let pool = PoolKey::new(InClusterKind::GlobalIPPool, None, "p");
        let block = capi_ipam_ip::Block::address([10, 0, 0, 5].into());
        let slot = Slot {
            scope: Scope::Pool(pool.clone()),
            block,
        };
        let known = KnownReservation {
            slot,
            pool,
            uid: "u".to_owned(),
            version: "100".to_owned(),
        };
        let is_newer_than = |uid: &str, version: &str| {
            let read = json!({"uid": uid, "resourceVersion": version});
            known.is_newer_than(&serde_json::from_value(read).unwrap())
        };
        assert!(is_newer_than("u", "99"));
        for (uid, version) in [("u", "100"), ("u", "101"), ("other", "99"), ("u", "text")] {
            assert!(!is_newer_than(uid, version), "{uid} {version}");
        }
    }
}
