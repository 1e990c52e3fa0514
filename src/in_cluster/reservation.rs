//! The IPReservation object: how one is made, and who holds it.

use capi_ipam_ip::{Block, Family};
use capi_ipam_provider::api::IPAddressClaim;
use kube::ResourceExt;
use kube::api::ObjectMeta;

use crate::api::{IPReservation, IPReservationSpec, names, network_block_length_name, PoolKey, ReservationClaim, Scope, Slot};

/// A reservation of an address for a claim, ready to be created.
pub(super) fn build(slot: &Slot, pool: &PoolKey, claim: ReservationClaim) -> IPReservation {
    made(slot.reservation_name(), &slot.scope, slot.block, pool, Some(claim))
}

/// The object that says how long the blocks are that a network gives out. `pool` is the first to need it.
pub(super) fn network_block_length(network: &str, family: Family, length: u8, pool: &PoolKey) -> IPReservation {
    let block = Block::new(family.address(0), length);
    let scope = Scope::Network(network.into());
    let mut unit = made(network_block_length_name(network, family), &scope, block, pool, None);
    unit.spec.prefix_length = Some(length.into());
    unit.labels_mut().insert(names::MOVE_LABEL.to_owned(), String::new());
    unit
}

fn made(name: String, scope: &Scope, block: Block, pool: &PoolKey, claim: Option<ReservationClaim>) -> IPReservation {
    IPReservation {
        api_version: Some(format!("{}/{}", names::GROUP, names::POOL_VERSION)),
        kind: Some("IPReservation".to_owned()),
        metadata: ObjectMeta { name: Some(name), ..ObjectMeta::default() },
        spec: IPReservationSpec {
            scope: scope.name(),
            address: block.base().to_string(),
            prefix_length: (!block.is_address()).then(|| block.length().into()),
            pool_ref: pool.to_reference(),
            claim_ref: claim,
            released_at: None,
        },
    }
}

/// A reference to a claim that is there.
pub(super) fn reference(claim: &IPAddressClaim) -> ReservationClaim {
    ReservationClaim {
        namespace: claim.namespace().unwrap_or_default(),
        name: claim.name_any(),
        uid: claim.metadata.uid.clone(),
    }
}

/// How a reservation stands to a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// This claim holds the address, by uid or because it was promised to it.
    Ours,
    /// An earlier claim of the same name holds it; that claim is gone, for two of one name never live at once.
    Predecessor,
    /// Another claim holds it, it rests, or it is kept out of the pool.
    Other,
}

/// Who holds the address of a reservation, seen from a claim that is there.
pub(super) fn holder(reservation: &IPReservation, claim: &ReservationClaim) -> Holder {
    let Some(reference) = &reservation.spec.claim_ref else { return Holder::Other };
    if (&claim.namespace, &claim.name) != (&reference.namespace, &reference.name) {
        return Holder::Other;
    }
    match (&reference.uid, &reservation.spec.released_at) {
        (None, None) => Holder::Ours,
        (uid, None) if *uid == claim.uid => Holder::Ours,
        (Some(_), None) => Holder::Predecessor,
        (_, Some(_)) => Holder::Other,
    }
}

#[cfg(test)]
mod tests {
    use capi_ipam_controller::clock::now;

    use crate::api::InClusterKind;
    use super::*;

    fn claim(uid: &str) -> ReservationClaim {
        ReservationClaim { namespace: "n".to_owned(), name: "c".to_owned(), uid: Some(uid.to_owned()) }
    }

    fn made_for(uid: &str) -> IPReservation {
        let pool = PoolKey { kind: InClusterKind::GlobalIPPool, namespace: None, name: "p".into() };
        let slot = Slot { scope: Scope::Pool(pool.clone()), block: Block::address([10, 0, 0, 5].into()) };
        let made = build(&slot, &pool, claim(uid));
        assert_eq!(made.slot(), Ok((slot, pool)));
        made
    }

    #[test]
    fn what_is_made_can_be_read() {
        for kind in InClusterKind::ALL {
            let pool = PoolKey { kind, namespace: (!kind.is_global()).then(|| "n".into()), name: "p".into() };
            for scope in [Scope::Pool(pool.clone()), Scope::Network("lab".into())] {
                for (base, length) in [("10.0.0.5", 32), ("10.0.0.0", 24), ("fd00::", 64), ("fd00::5", 128)] {
                    let slot = Slot { scope: scope.clone(), block: Block::new(base.parse().unwrap(), length) };
                    assert_eq!(build(&slot, &pool, claim("u")).slot(), Ok((slot, pool.clone())));
                }
            }
            for (family, length) in [(Family::V4, 32), (Family::V6, 128), (Family::V6, 64)] {
                let unit = network_block_length("lab", family, length, &pool);
                assert_eq!(unit.network_block_length(), Some(("lab".into(), family, length)));
            }
        }
    }

    #[test]
    fn holders_are_told_apart() {
        let made = made_for("u");
        assert_eq!(holder(&made, &claim("u")), Holder::Ours);
        assert_eq!(holder(&made, &claim("later")), Holder::Predecessor);

        let mut released = made.clone();
        released.spec.released_at = Some(now());
        assert_eq!(holder(&released, &claim("u")), Holder::Other);

        let mut promised = made.clone();
        promised.spec.claim_ref.as_mut().unwrap().uid = None;
        assert_eq!(holder(&promised, &claim("u")), Holder::Ours);

        let mut kept_out = made;
        kept_out.spec.claim_ref = None;
        assert_eq!(holder(&kept_out, &claim("u")), Holder::Other);
    }
}
