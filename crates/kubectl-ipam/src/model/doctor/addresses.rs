//! References between claims, IPAddresses, reservations and pools.

use std::collections::HashSet;

use capi_ipam_api::{PoolKey, advice, names};
use capi_ipam_controller::namespaced_name::NamespacedName;

use super::examination::Examination;
use super::names::{describe, of_address, of_claim};
use super::snapshot::Snapshot;
use crate::load::Claims;
use crate::model::finding::{Check, Finding, full};
use crate::objects::{AddressRow, ClaimRow, ReservationRow};

/// IPAddresses without their claim, and bound claims without their IPAddress.
pub(super) fn unreferenced(snapshot: &Snapshot) -> Examination {
    let claimed = snapshot.addresses.as_ref().and(snapshot.claims.as_ref());
    Examination::compare(&claimed, |(addresses, claims)| {
        let claim_keys = keys(claims);
        let address_keys: HashSet<&NamespacedName> =
            addresses.iter().map(|address| &address.key).collect();
        let orphans = addresses
            .iter()
            .filter(|address| !claim_keys.contains(&address.claim_key()));
        let mut findings: Vec<Finding> = orphans.map(orphan).collect();
        let lost = claims
            .served
            .iter()
            .filter_map(|claim| lost(claim, &address_keys));
        findings.extend(lost);
        findings
    })
}

fn orphan(address: &AddressRow) -> Finding {
    let (namespace, name) = address.key.parts();
    let problem = format!(
        "its claim {} does not exist; {} counts as in use",
        address.claim, address.block
    );
    let command = format!(
        "kubectl delete ipaddresses.{} {name} --namespace {namespace}",
        names::GROUP
    );
    let repair = "delete it if no machine uses it".to_owned();
    Check::OrphanAddress
        .finding(of_address(address), problem, repair)
        .with_commands(vec![command])
}

fn lost(claim: &ClaimRow, addresses: &HashSet<&NamespacedName>) -> Option<Finding> {
    let bound = claim.address_key().filter(|_| !claim.is_deleting());
    let address = bound.filter(|address| !addresses.contains(address))?;
    let problem = format!(
        "it is bound to IPAddress {}, which does not exist",
        address.name()
    );
    let repair = "the provider creates it again; if not, see what the claim reports".to_owned();
    let finding = Check::LostAddress.finding(of_claim(claim), problem, repair);
    Some(finding.with_commands(vec![describe("ipaddressclaims", &claim.key)]))
}

/// The names of all claims, also of those that no provider serves.
fn keys(claims: &Claims) -> HashSet<&NamespacedName> {
    let unserved = claims.unserved.iter().map(|claim| &claim.key);
    claims
        .served
        .iter()
        .map(|claim| &claim.key)
        .chain(unserved)
        .collect()
}

/// Claims and IPAddresses of pools that do not exist.
pub(super) fn missing_pools(snapshot: &Snapshot) -> Examination {
    let claimed = snapshot.addresses.as_ref().and(snapshot.claims.as_ref());
    let referring = snapshot.pools.as_ref().and(claimed);
    Examination::compare(&referring, |(pools, (addresses, claims))| {
        let pools: HashSet<&PoolKey> = pools.iter().map(|pool| &pool.key).collect();
        let mut findings = Vec::new();
        for address in addresses.iter().filter(|it| !pools.contains(&it.pool)) {
            let repair = format!(
                "create {}, or delete the claim {}",
                full(&address.pool),
                address.claim
            );
            findings.push(missing_pool(of_address(address), &address.pool, repair));
        }
        // A claim in deletion needs no pool.
        let claims = claims.served.iter().filter(|it| !it.is_deleting());
        for claim in claims.filter(|it| !pools.contains(&it.pool)) {
            let repair = advice::missing_pool(&claim.pool, pools.iter().copied());
            let finding = missing_pool(of_claim(claim), &claim.pool, repair);
            findings.push(finding.since(claim.created));
        }
        findings
    })
}

fn missing_pool(object: String, pool: &PoolKey, repair: String) -> Finding {
    let problem = format!("{} does not exist", full(pool));
    Check::MissingPool.finding(object, problem, repair)
}

/// Reservations for claims that do not exist. Those that cool down end by themselves, and those of
/// users stay.
pub(super) fn abandoned(snapshot: &Snapshot) -> Examination {
    let held = snapshot.reservations.as_ref().and(snapshot.claims.as_ref());
    Examination::compare(&held, |(reservations, claims)| {
        let claims = keys(claims);
        let held = reservations
            .iter()
            .filter(|reservation| reservation.has_uid && reservation.released.is_none());
        held.filter_map(|reservation| abandoned_by(reservation, &claims))
            .collect()
    })
}

fn abandoned_by(
    reservation: &ReservationRow,
    claims: &HashSet<&NamespacedName>,
) -> Option<Finding> {
    let claim = reservation
        .claim
        .as_ref()
        .filter(|claim| !claims.contains(claim))?;
    let name = reservation.slot.reservation_name();
    let problem = format!(
        "its claim {claim} does not exist; {} is not allocated",
        reservation.slot.block
    );
    let repair = "the sweep deletes it after a minute; if it does not, delete it".to_owned();
    let finding =
        Check::AbandonedReservation.finding(format!("ipreservation {name}"), problem, repair);
    Some(finding.with_commands(vec![format!("kubectl delete ipreservation {name}")]))
}
