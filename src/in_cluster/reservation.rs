//! The IPReservation object: its name, which is what makes an address unique, and who holds it.

use std::net::IpAddr;

use kube::ResourceExt;
use kube::api::ObjectMeta;
use sha2::{Digest, Sha256};

use super::key::PoolKey;
use crate::addr::parse_address;
use crate::api::{IPAddressClaim, IPReservation, IPReservationSpec, ReservationClaim, names};

/// Longest name of an object (RFC 1123 subdomain, as Kubernetes checks it).
const LONGEST_NAME: usize = 253;

/// The set within which an address of the pool is unique: `p.NAMESPACE.POOL` or `g.POOL`. A namespace has no dots, so
/// no two pools share a scope.
pub fn scope_name(pool: &PoolKey) -> String {
    match &pool.namespace {
        Some(namespace) => format!("p.{namespace}.{}", pool.name),
        None => format!("g.{}", pool.name),
    }
}

/// The name of the reservation of an address: the scope, a dot, and the address; an IPv6 address with all its digits
/// and with dashes. A scope that is too long is replaced by `h.` and a hash of it.
///
/// ```
/// use capi_ipam::in_cluster::{PoolKey, reservation_name, scope_name};
///
/// let pool = PoolKey { namespace: Some("team-a".into()), name: "web".into() };
/// assert_eq!(reservation_name(&scope_name(&pool), "10.0.0.5".parse().unwrap()), "p.team-a.web.10.0.0.5");
/// let pool = PoolKey { namespace: None, name: "web".into() };
/// assert_eq!(
///     reservation_name(&scope_name(&pool), "fd00::5".parse().unwrap()),
///     "g.web.fd00-0000-0000-0000-0000-0000-0000-0005"
/// );
/// ```
pub fn reservation_name(scope: &str, address: IpAddr) -> String {
    let address = match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => address.segments().map(|segment| format!("{segment:04x}")).join("-"),
    };
    let name = format!("{scope}.{address}");
    if name.len() <= LONGEST_NAME {
        return name;
    }
    format!("h.{:x}.{address}", Sha256::digest(scope))
}

/// A reservation of an address for a claim, ready to be created.
pub(super) fn build(pool: &PoolKey, address: IpAddr, claim: ReservationClaim) -> IPReservation {
    let scope = scope_name(pool);
    IPReservation {
        api_version: Some(format!("{}/{}", names::GROUP, names::POOL_VERSION)),
        kind: Some("IPReservation".to_owned()),
        metadata: ObjectMeta { name: Some(reservation_name(&scope, address)), ..ObjectMeta::default() },
        spec: IPReservationSpec {
            scope,
            address: address.to_string(),
            prefix_length: None,
            pool_ref: pool.to_reference(),
            claim_ref: Some(claim),
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

/// Who holds the address of a reservation, seen from a claim.
pub(super) fn holder(reservation: &IPReservation, claim: &IPAddressClaim) -> Holder {
    let Some(reference) = &reservation.spec.claim_ref else { return Holder::Other };
    let same_name = claim.metadata.name.as_deref() == Some(&reference.name)
        && claim.metadata.namespace.as_deref() == Some(&reference.namespace);
    if !same_name {
        return Holder::Other;
    }
    match (&reference.uid, &reservation.spec.released_at) {
        (None, None) => Holder::Ours,
        (uid, None) if *uid == claim.metadata.uid => Holder::Ours,
        (Some(_), None) => Holder::Predecessor,
        (_, Some(_)) => Holder::Other,
    }
}

/// Pool and address that a reservation is for, if it is of a pool of ours, can be read, and has the name that belongs
/// to them. Any other reserves nothing.
pub(super) fn slot(reservation: &IPReservation) -> Option<(PoolKey, IpAddr)> {
    let pool = PoolKey::of_reservation(&reservation.spec.pool_ref)?;
    let address = parse_address(&reservation.spec.address).ok()?;
    let name = reservation_name(&scope_name(&pool), address);
    (reservation.metadata.name.as_deref() == Some(&name)).then_some((pool, address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::clock::now;
    use std::collections::HashSet;

    fn pool(namespace: Option<&str>, name: &str) -> PoolKey {
        PoolKey { namespace: namespace.map(str::to_owned), name: name.to_owned() }
    }

    fn claim(uid: &str) -> IPAddressClaim {
        let mut claim = IPAddressClaim::default();
        claim.metadata.namespace = Some("n".to_owned());
        claim.metadata.name = Some("c".to_owned());
        claim.metadata.uid = Some(uid.to_owned());
        claim
    }

    #[test]
    fn every_pool_and_address_has_a_name_of_its_own() {
        let long = "x".repeat(240);
        let pools = [
            pool(Some("a"), "b"),
            pool(Some("a"), "b.10.0.0"),
            pool(None, "a.b"),
            pool(Some("a"), &long),
            pool(None, &long),
            pool(Some("a"), &format!("{long}y")),
        ];
        let addresses = ["10.0.0.5", "5.10.0.0", "fd00::5", "::5", "255.255.255.255"].map(|a| a.parse().unwrap());
        let mut names = HashSet::new();
        for pool in &pools {
            for address in addresses {
                let name = reservation_name(&scope_name(pool), address);
                assert!(name.len() <= LONGEST_NAME);
                assert!(names.insert(name.clone()), "{name} twice");
                let made = build(pool, address, reference(&claim("u")));
                assert_eq!(slot(&made), Some((pool.clone(), address)));
            }
        }
    }

    #[test]
    fn a_reservation_with_a_wrong_name_reserves_nothing() {
        let mut made = build(&pool(None, "p"), [10, 0, 0, 5].into(), reference(&claim("u")));
        made.metadata.name = Some("g.p.10.0.0.6".to_owned());
        assert_eq!(slot(&made), None);
    }

    #[test]
    fn holders_are_told_apart() {
        let made = build(&pool(None, "p"), [10, 0, 0, 5].into(), reference(&claim("u")));
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
