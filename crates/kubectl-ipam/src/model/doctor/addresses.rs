//! References between claims, IPAddresses, reservations and pools.

use std::collections::BTreeMap;

use capi_ipam_api::{PoolKey, advice, names};

use super::examination::Examination;
use super::names::{claims_wait, describe, first_names, of_address, of_claim};
use super::snapshot::Snapshot;
use crate::model::finding::{Check, Finding, Place, Subject, counted};
use crate::objects::{AddressRow, ClaimRow, Kind, Objects, ReservationRow};

/// IPAddresses without their claim, and bound claims without their IPAddress.
pub(super) fn unreferenced(snapshot: &Snapshot) -> Examination {
    let objects = &snapshot.objects;
    Examination::compare(objects.lacking(&[Kind::Address, Kind::Claim]), || {
        let mut findings = Vec::new();
        let mut restored = Vec::new();
        for address in objects.addresses.sorted() {
            if objects.claims.contains(&address.claim_key()) {
                continue;
            }
            if address.is_restored {
                restored.push(address);
            } else {
                findings.push(orphan(address));
            }
        }
        findings.extend(awaiting_claims(&restored));
        let claims = objects.served().into_iter();
        findings.extend(claims.filter_map(|claim| lost(claim, objects)));
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

/// IPAddresses that were restored before their claims.
fn awaiting_claims(restored: &[&AddressRow]) -> Option<Finding> {
    let first = restored.first()?;
    let problem = match restored.len() {
        1 => "it was restored, and waits for its claim".to_owned(),
        count => format!(
            "it and {} others were restored, and wait for their claims",
            count - 1
        ),
    };
    let repair =
        "restore the claims; after --restored-claim-timeout the addresses are released".to_owned();
    Some(Check::OrphanAddress.finding(of_address(first), problem, repair))
}

fn lost(claim: &ClaimRow, objects: &Objects) -> Option<Finding> {
    let address = claim.address_key().filter(|_| !claim.is_deleting())?;
    if objects.addresses.contains(&address) {
        return None;
    }
    let problem = format!(
        "it is bound to IPAddress {}, which does not exist",
        address.name()
    );
    let repair = "the provider creates it again; if not, see what the claim reports".to_owned();
    let finding = Check::LostAddress.finding(of_claim(claim), problem, repair);
    Some(finding.with_commands(vec![describe("ipaddressclaims", &claim.key)]))
}

/// What refers to a pool that does not exist.
#[derive(Default)]
struct Referring<'a> {
    addresses: Vec<&'a AddressRow>,
    waiting: Vec<&'a ClaimRow>,
    bound: Vec<&'a ClaimRow>,
}

/// Pools that claims or IPAddresses name, and that do not exist.
pub(super) fn missing_pools(snapshot: &Snapshot) -> Examination {
    let objects = &snapshot.objects;
    let lacking = objects.lacking_of_pools_and(&[Kind::Claim, Kind::Address]);
    Examination::compare(lacking, || {
        let mut missing: BTreeMap<&PoolKey, Referring<'_>> = BTreeMap::new();
        for address in objects.addresses.sorted() {
            if !objects.has_pool(&address.pool) {
                let referring = missing.entry(&address.pool).or_default();
                referring.addresses.push(address);
            }
        }
        for claim in objects.served() {
            // A claim in deletion needs no pool.
            if claim.is_deleting() || objects.has_pool(&claim.pool) {
                continue;
            }
            let referring = missing.entry(&claim.pool).or_default();
            if claim.is_waiting() {
                referring.waiting.push(claim);
            } else {
                referring.bound.push(claim);
            }
        }
        let finding = |(pool, referring)| missing_pool(pool, &referring, objects);
        missing.into_iter().map(finding).collect()
    })
}

fn missing_pool(pool: &PoolKey, referring: &Referring<'_>, objects: &Objects) -> Finding {
    let Referring {
        addresses,
        waiting,
        bound,
    } = referring;
    let mut subject = Subject::from(pool);
    let of_addresses = addresses.iter().map(|address| address.key.namespace());
    let of_claims = waiting
        .iter()
        .chain(bound)
        .map(|claim| claim.key.namespace());
    for namespace in of_addresses.chain(of_claims) {
        subject = subject.at(Place::Namespace(namespace.to_owned()));
    }
    let mut problem = "it does not exist".to_owned();
    if !addresses.is_empty() {
        let keys = first_names(addresses.iter().map(|address| &address.key));
        let number = addresses.len();
        problem = format!("{problem}; {number} of its addresses in use ({keys})");
    }
    if !bound.is_empty() {
        let keys = first_names(bound.iter().map(|claim| &claim.key));
        problem = format!(
            "{problem}; {} bound ({keys})",
            counted(bound.len(), "claim")
        );
    }
    if !waiting.is_empty() {
        problem = format!("{problem}; {}", claims_wait(waiting.iter().copied()));
    }
    let repair = if addresses.is_empty() && bound.is_empty() {
        advice::missing_pool(pool, objects.pools().into_iter().map(|it| &it.key))
    } else {
        "create it again with its addresses, or delete the machines of these claims".to_owned()
    };
    let oldest = waiting.iter().filter_map(|claim| claim.created).min();
    Check::MissingPool
        .finding(subject, problem, repair)
        .with_commands(vec![advice::claims_of(pool)])
        .since(oldest)
}

/// Reservations for claims that do not exist. Those that cool down end by themselves, and those of
/// users stay.
pub(super) fn abandoned(snapshot: &Snapshot) -> Examination {
    let objects = &snapshot.objects;
    Examination::compare(objects.lacking(&[Kind::Reservation, Kind::Claim]), || {
        let held = objects.reservations.sorted().into_iter();
        let held = held.filter(|it| it.has_uid && it.released.is_none());
        held.filter_map(|it| abandoned_by(it, objects)).collect()
    })
}

fn abandoned_by(reservation: &ReservationRow, objects: &Objects) -> Option<Finding> {
    let claim = reservation.claim.as_ref()?;
    if objects.claims.contains(claim) {
        return None;
    }
    let name = reservation.slot.reservation_name();
    let problem = format!(
        "its claim {claim} does not exist; {} is not allocated",
        reservation.slot.block
    );
    let repair = "the sweep deletes it after a minute; if it does not, delete it".to_owned();
    let subject = Subject::from(format!("ipreservation {name}")).of_pool(&reservation.pool);
    let finding = Check::AbandonedReservation.finding(subject, problem, repair);
    Some(finding.with_commands(vec![format!("kubectl delete ipreservation {name}")]))
}
