//! A reservation in the version that is known of it.

use capi_ipam_api::{IPReservation, Slot};
use capi_ipam_objects::resource_version::ResourceVersion;
use kube::ResourceExt;
use kube::core::ObjectMeta;

use super::usage::ReservationInfo;
use super::{Ledger, PoolKey};

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

impl Ledger {
    /// The reservation of an address, in the version that is known.
    pub fn known_reservation(&self, slot: &Slot) -> Option<KnownReservation> {
        let info = self.usage(slot)?.reservation.as_ref()?;
        Some(self.known_version(slot, info))
    }

    /// A reservation of an address, in the version that is known.
    pub(super) fn known_version(&self, slot: &Slot, info: &ReservationInfo) -> KnownReservation {
        KnownReservation {
            slot: slot.clone(),
            pool: info.pool.clone(),
            uid: info.uid.to_string(),
            version: self.precondition(info),
        }
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
