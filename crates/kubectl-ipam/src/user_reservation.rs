//! The reservations that `reserve` creates and `convert` writes.

use capi_ipam_api::{IPReservation, IPReservationSpec, PoolKey, ReservationClaim, Slot, names};
use capi_ipam_controller::namespaced_name::NamespacedName;
use kube::api::ObjectMeta;

/// The version of the objects of the provider.
pub(crate) fn api_version() -> String {
    format!("{}/{}", names::GROUP, names::POOL_VERSION)
}

/// A reservation of a user: it excludes an address from allocation, or keeps it for a claim.
pub(crate) fn reservation(
    slot: &Slot,
    pool: &PoolKey,
    claim: Option<&NamespacedName>,
) -> IPReservation {
    let block = slot.block;
    IPReservation {
        api_version: Some(api_version()),
        kind: Some("IPReservation".to_owned()),
        metadata: ObjectMeta {
            name: Some(slot.reservation_name()),
            ..ObjectMeta::default()
        },
        spec: IPReservationSpec {
            scope: slot.scope.name(),
            address: block.base().to_string(),
            prefix_length: (!block.is_address()).then(|| block.length().into()),
            pool_ref: pool.to_reference(),
            claim_ref: claim.map(promised_to),
            released_at: None,
            quarantine: None,
        },
        status: None,
    }
}

/// The claim reference of a reservation that keeps an address for a claim: it has no uid.
pub(crate) fn promised_to(claim: &NamespacedName) -> ReservationClaim {
    let (namespace, name) = claim.parts();
    ReservationClaim {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: None,
        cluster: None,
    }
}

#[cfg(test)]
mod tests {
    use capi_ipam_api::{InClusterKind, Scope};
    use capi_ipam_ip::Block;

    use super::*;

    #[test]
    fn reservation_of_a_user_is_valid() {
        let key = PoolKey::new(InClusterKind::PrefixPool, Some("a"), "p");
        let slot = Slot {
            scope: Scope::Pool(key.clone()),
            block: Block::new("fd00::".parse().unwrap(), 64),
        };
        let claim = NamespacedName::new("a", "vm");
        let new = reservation(&slot, &key, Some(&claim));
        assert_eq!(new.slot().unwrap(), (slot, key));
        assert_eq!(new.spec.claim_ref.unwrap().namespace, "a");
    }
}
