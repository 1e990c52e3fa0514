//! Construction and ownership of IPReservation objects.

use std::collections::BTreeMap;

use capi_ipam_api::{
    IPReservation, IPReservationSpec, PoolKey, Quarantine, ReservationClaim, Scope, Slot, names,
};
use capi_ipam_ip::Block;
use capi_ipam_provider::api::IPAddressClaim;
use kube::ResourceExt;
use kube::api::ObjectMeta;

/// The maximum length of the name of a Cluster in a reservation.
const MAX_CLUSTER_LENGTH: usize = 253;

/// Builds the reservation of an address for a claim.
pub(super) fn build(slot: &Slot, pool: &PoolKey, claim: ReservationClaim) -> IPReservation {
    new_reservation(
        slot.reservation_name(),
        &slot.scope,
        slot.block,
        pool,
        Some(claim),
    )
}

/// Builds the reservation of a quarantined address. Like one that a user creates to exclude the
/// address, it has no claim.
pub(super) fn build_quarantine(
    slot: &Slot,
    pool: &PoolKey,
    quarantine: Quarantine,
) -> IPReservation {
    let name = slot.reservation_name();
    let mut built = new_reservation(name, &slot.scope, slot.block, pool, None);
    built.spec.quarantine = Some(quarantine);
    built
}

/// Builds a copy of a reservation in another scope of its pool.
pub(super) fn copy_to(reservation: &IPReservation, slot: &Slot, pool: &PoolKey) -> IPReservation {
    let claim = reservation.spec.claim_ref.clone();
    let mut copy = new_reservation(
        slot.reservation_name(),
        &slot.scope,
        slot.block,
        pool,
        claim,
    );
    copy.spec
        .released_at
        .clone_from(&reservation.spec.released_at);
    copy.spec
        .quarantine
        .clone_from(&reservation.spec.quarantine);
    // With the labels and annotations of users, and the label of `clusterctl move`.
    copy.metadata
        .labels
        .clone_from(&reservation.metadata.labels);
    copy.metadata.annotations =
        Some(copied_annotations(reservation)).filter(|annotations| !annotations.is_empty());
    copy
}

/// The annotations of a reservation that its copy in another scope has, too.
pub(super) fn copied_annotations(reservation: &IPReservation) -> BTreeMap<String, String> {
    let mut annotations = reservation.annotations().clone();
    annotations.remove(names::MOVED_FROM_ANNOTATION);
    annotations
}

/// The reservation with the mark that another one has been moved to its scope. A reservation is
/// marked before the other one is deleted in the marked version.
pub(super) fn marked(reservation: &IPReservation, moved: &IPReservation) -> IPReservation {
    let (uid, version) = (
        moved.uid().unwrap_or_default(),
        moved.resource_version().unwrap_or_default(),
    );
    let mut marked = reservation.clone();
    marked.annotations_mut().insert(
        names::MOVED_FROM_ANNOTATION.to_owned(),
        format!("{uid}/{version}"),
    );
    marked
}

fn new_reservation(
    name: String,
    scope: &Scope,
    block: Block,
    pool: &PoolKey,
    claim: Option<ReservationClaim>,
) -> IPReservation {
    IPReservation {
        api_version: Some(format!("{}/{}", names::GROUP, names::POOL_VERSION)),
        kind: Some("IPReservation".to_owned()),
        metadata: ObjectMeta {
            name: Some(name),
            ..ObjectMeta::default()
        },
        spec: IPReservationSpec {
            scope: scope.name(),
            address: block.base().to_string(),
            prefix_length: (!block.is_address()).then(|| block.length().into()),
            pool_ref: pool.to_reference(),
            claim_ref: claim,
            released_at: None,
            quarantine: None,
        },
        status: None,
    }
}

/// Builds the reference to an existing claim.
pub(super) fn claim_reference(claim: &IPAddressClaim) -> ReservationClaim {
    ReservationClaim {
        namespace: claim.namespace().unwrap_or_default(),
        name: claim.name_any(),
        uid: claim.metadata.uid.clone(),
        cluster: claim
            .cluster_name()
            .filter(|name| name.len() <= MAX_CLUSTER_LENGTH)
            .map(str::to_owned),
    }
}

/// To whom a reservation belongs, as seen by a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ownership {
    /// To this claim, by its uid or by a promise to its name.
    Ours,
    /// To an earlier claim of the same name, which is deleted: there is only one claim of a name at
    /// a time.
    PreviousClaim,
    /// To another claim or to no claim: the address is cooling down or excluded.
    Other,
}

/// Determines to whom a reservation belongs, as seen by an existing claim.
pub(super) fn ownership(reservation: &IPReservation, claim: &ReservationClaim) -> Ownership {
    let Some(reference) = &reservation.spec.claim_ref else {
        return Ownership::Other;
    };
    if (&claim.namespace, &claim.name) != (&reference.namespace, &reference.name) {
        return Ownership::Other;
    }
    match (&reference.uid, &reservation.spec.released_at) {
        (None, None) => Ownership::Ours,
        (uid, None) if *uid == claim.uid => Ownership::Ours,
        (Some(_), None) => Ownership::PreviousClaim,
        (_, Some(_)) => Ownership::Other,
    }
}

#[cfg(test)]
mod tests {
    use capi_ipam_api::InClusterKind;
    use capi_ipam_controller::clock::now;

    use super::*;

    fn claim(uid: &str) -> ReservationClaim {
        ReservationClaim {
            namespace: "n".to_owned(),
            name: "c".to_owned(),
            uid: Some(uid.to_owned()),
            cluster: None,
        }
    }

    fn reservation_for(uid: &str) -> IPReservation {
        let pool = PoolKey::new(InClusterKind::GlobalIPPool, None, "p");
        let slot = Slot {
            scope: Scope::Pool(pool.clone()),
            block: Block::address([10, 0, 0, 5].into()),
        };
        let built = build(&slot, &pool, claim(uid));
        assert_eq!(built.slot(), Ok((slot, pool)));
        built
    }

    #[test]
    fn built_reservations_are_valid() {
        for kind in InClusterKind::ALL {
            let pool = PoolKey::new(kind, (!kind.is_global()).then_some("n"), "p");
            for scope in [Scope::Pool(pool.clone()), Scope::Network("lab".into())] {
                for (base, length) in [
                    ("10.0.0.5", 32),
                    ("10.0.0.0", 24),
                    ("fd00::", 64),
                    ("fd00::5", 128),
                ] {
                    let slot = Slot {
                        scope: scope.clone(),
                        block: Block::new(base.parse().unwrap(), length),
                    };
                    assert_eq!(
                        build(&slot, &pool, claim("u")).slot(),
                        Ok((slot, pool.clone()))
                    );
                }
            }
        }
    }

    #[test]
    fn mark_names_a_version_and_is_not_copied() {
        let (mut old, mut found) = (reservation_for("u"), reservation_for("u"));
        (old.metadata.uid, old.metadata.resource_version) =
            (Some("a".to_owned()), Some("7".to_owned()));
        found
            .annotations_mut()
            .insert("example.com/note".to_owned(), "kept".to_owned());
        let of_seven = marked(&found, &old);
        assert_eq!(of_seven.annotations()[names::MOVED_FROM_ANNOTATION], "a/7");
        assert_eq!(
            marked(&of_seven, &old),
            of_seven,
            "nothing remains to be written"
        );
        old.metadata.resource_version = Some("8".to_owned());
        assert_ne!(marked(&of_seven, &old), of_seven);

        let (slot, pool) = found.slot().unwrap();
        let copy = copy_to(&of_seven, &slot, &pool);
        assert_eq!(copy.annotations(), found.annotations());
        assert_eq!(
            copy_to(&marked(&old, &old), &slot, &pool)
                .metadata
                .annotations,
            None
        );
    }

    #[test]
    fn ownership_depends_on_uid_and_release() {
        let reservation = reservation_for("u");
        assert_eq!(ownership(&reservation, &claim("u")), Ownership::Ours);
        assert_eq!(
            ownership(&reservation, &claim("later")),
            Ownership::PreviousClaim
        );

        let mut released = reservation.clone();
        released.spec.released_at = Some(now());
        assert_eq!(ownership(&released, &claim("u")), Ownership::Other);

        let mut promised = reservation.clone();
        promised.spec.claim_ref.as_mut().unwrap().uid = None;
        assert_eq!(ownership(&promised, &claim("u")), Ownership::Ours);

        let mut excluded = reservation;
        excluded.spec.claim_ref = None;
        assert_eq!(ownership(&excluded, &claim("u")), Ownership::Other);
    }
}
