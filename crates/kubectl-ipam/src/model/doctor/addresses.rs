//! References between claims, IPAddresses, reservations and pools.

use std::collections::BTreeMap;

use capi_ipam_api::{PoolKey, advice, counted};

use super::examination::Examination;
use super::names::{
    claim_names, claims_wait, describe_claim, first_names, of_address, of_claim, oldest, resource,
};
use super::snapshot::Snapshot;
use crate::model::finding::{Check, Finding, Subject};
use crate::objects::{AddressRow, ClaimRow, Kind, Objects, ReservationRow};
use crate::user_reservation::promised_to;

/// IPAddresses without their claim, and bound claims without their IPAddress.
pub(super) fn unreferenced(snapshot: &Snapshot) -> Examination {
    let objects = &snapshot.objects;
    Examination::compare(objects.lacking(&[Kind::Address, Kind::Claim]), || {
        let mut orphans = objects.addresses.sorted();
        orphans.retain(|address| !objects.claims.contains(&address.claim_key()));
        let (restored, orphans): (Vec<_>, Vec<_>) =
            orphans.into_iter().partition(|address| address.is_restored);
        let mut findings: Vec<Finding> = orphans.into_iter().map(orphan).collect();
        findings.extend(awaiting_claims(&restored));
        let claims = objects.served().into_iter();
        findings.extend(claims.filter_map(|claim| lost(claim, objects)));
        findings
    })
}

fn orphan(address: &AddressRow) -> Finding {
    let problem = format!(
        "its claim {} does not exist; {} counts as in use",
        address.claim, address.block
    );
    let resource = resource("ipaddresses", &address.key);
    Check::OrphanAddress
        .finding(
            of_address(address),
            problem,
            "delete it if no machine uses it",
        )
        .with_commands([format!("kubectl delete {resource}")])
}

/// IPAddresses that were restored before their claims.
fn awaiting_claims(restored: &[&AddressRow]) -> Option<Finding> {
    let (first, others) = restored.split_first()?;
    let problem = match others.len() {
        0 => "it was restored, and waits for its claim".to_owned(),
        count => format!(
            "it and {} were restored, and wait for their claims",
            counted(count, "other", "others")
        ),
    };
    let repair = "restore the claims; after --restored-claim-timeout the addresses are released";
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
    let repair = "the provider creates it again; if not, see what the claim reports";
    let finding = Check::LostAddress.finding(of_claim(claim, objects), problem, repair);
    Some(finding.with_commands([describe_claim(claim)]))
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
            let referring = missing.entry(&address.pool).or_default();
            referring.addresses.push(address);
        }
        for claim in objects.served() {
            let Some(pool) = objects.pool_of(claim) else {
                continue;
            };
            let referring = missing.entry(pool).or_default();
            if claim.is_waiting() {
                referring.waiting.push(claim);
            } else if !claim.is_deleting() {
                // A claim in deletion needs no pool.
                referring.bound.push(claim);
            }
        }
        missing.retain(|pool, referring| !objects.has_pool(pool) && !referring.is_empty());
        missing
            .into_iter()
            .map(|(pool, referring)| referring.finding(pool, objects))
    })
}

impl Referring<'_> {
    fn is_empty(&self) -> bool {
        self.addresses.is_empty() && self.waiting.is_empty() && self.bound.is_empty()
    }

    fn finding(&self, pool: &PoolKey, objects: &Objects) -> Finding {
        let mut subject = Subject::pool(pool);
        for address in &self.addresses {
            subject = subject.in_namespace(address.key.namespace());
        }
        for claim in self.waiting.iter().chain(&self.bound) {
            subject = subject.in_namespace(claim.key.namespace());
        }
        let mut problems = vec!["it does not exist".to_owned()];
        if !self.addresses.is_empty() {
            let keys = first_names(self.addresses.iter().map(|address| &address.key));
            let number = self.addresses.len();
            problems.push(format!("{number} of its addresses in use ({keys})"));
        }
        if !self.bound.is_empty() {
            let keys = claim_names(&self.bound);
            problems.push(format!(
                "{} bound ({keys})",
                counted(self.bound.len(), "claim", "claims")
            ));
        }
        if !self.waiting.is_empty() {
            problems.push(claims_wait(&self.waiting));
        }
        let repair = if self.addresses.is_empty() && self.bound.is_empty() {
            advice::missing_pool(pool, objects.pools().into_iter().map(|it| &it.key))
        } else {
            "create it again with its addresses, or delete the machines of these claims".to_owned()
        };
        Check::MissingPool
            .finding(subject, problems.join("; "), repair)
            .with_commands([advice::claims_of(pool)])
            .since(oldest(&self.waiting))
    }
}

/// Reservations for claims that do not exist. Those that cool down end by themselves, and those of
/// users stay.
pub(super) fn abandoned(snapshot: &Snapshot) -> Examination {
    let objects = &snapshot.objects;
    Examination::compare(objects.lacking(&[Kind::Reservation, Kind::Claim]), || {
        let held = objects.reservations.sorted().into_iter();
        let held = held.filter(|it| it.has_uid() && it.released.is_none());
        held.filter_map(|it| abandoned_by(it, objects))
    })
}

fn abandoned_by(reservation: &ReservationRow, objects: &Objects) -> Option<Finding> {
    let claim = reservation.claim.as_ref()?;
    if objects.claims.contains(claim) {
        return None;
    }
    let block = reservation.slot.block;
    let problem = format!("its claim {claim} does not exist; {block} is not allocated");
    let repair = "the sweep deletes it after a minute; if it does not, delete it";
    Some(of_reservation(
        Check::AbandonedReservation,
        reservation,
        problem,
        repair,
    ))
}

/// A finding about a reservation that can be deleted.
fn of_reservation(
    check: Check,
    reservation: &ReservationRow,
    problem: String,
    repair: &str,
) -> Finding {
    let name = reservation.slot.reservation_name();
    let subject = Subject::from(format!("ipreservation {name}")).of_pool(&reservation.pool);
    let finding = check.finding(subject, problem, repair);
    finding.with_commands([format!("kubectl delete ipreservation {name}")])
}

/// Reservations that quarantine an address.
pub(super) fn quarantined(snapshot: &Snapshot) -> Examination {
    let reservations = snapshot.objects.reservations.sorted();
    let lacking = snapshot.objects.lacking(&[Kind::Reservation]);
    Examination::inspect(reservations, lacking, |reservation| {
        let quarantine = reservation.quarantine.as_ref()?;
        let (block, until) = (reservation.slot.block, quarantine.until.0);
        let problem = format!(
            "{block} is quarantined until {until}: {}",
            quarantine.reason
        );
        let repair = "find the other host; the deletion of the reservation ends the quarantine";
        let check = Check::AddressQuarantined;
        Some(of_reservation(check, reservation, problem, repair))
    })
}

/// IPAddresses whose owner references the garbage collector cannot resolve once `v1beta1` is no
/// longer served.
pub(super) fn outdated_owners(snapshot: &Snapshot) -> Examination {
    let addresses = snapshot.objects.addresses.sorted();
    let missing = snapshot.objects.lacking(&[Kind::Address]);
    let has_some = !addresses.is_empty();
    Examination::complete(with_old_owner(addresses)).with_unknown(missing, has_some)
}

fn with_old_owner(mut outdated: Vec<&AddressRow>) -> Option<Finding> {
    outdated.retain(|address| address.has_old_owner);
    let named = match outdated.as_slice() {
        [] => return None,
        [one] => format!("IPAddress {}", one.key),
        [first, ..] => format!("{} IPAddresses, such as {},", outdated.len(), first.key),
    };
    let problem = format!(
        "the owner references of {named} are in the version v1beta1, which Cluster API v1.16 does not serve"
    );
    let repair = "the provider rewrites 10 a second, except those of paused Clusters and claims: unpause them before \
                  Cluster API is upgraded";
    Some(Check::OutdatedOwner.finding("ipaddresses", problem, repair))
}

/// Reservations of users for a claim that cannot exist or cannot use the pool, and those of pools
/// that do not exist.
pub(super) fn invalid_reservations(snapshot: &Snapshot) -> Examination {
    let objects = &snapshot.objects;
    let missing = objects.lacking(&Kind::POOLS);
    let knows_pools = missing.is_empty();
    let reservations = objects.reservations.sorted();
    let lacking = objects.lacking(&[Kind::Reservation]);
    let examination = Examination::inspect(reservations, lacking, |reservation| {
        let found = impossible(reservation);
        found.or_else(|| without_pool(reservation, objects).filter(|_| knows_pools))
    });
    if examination.unknown.is_some() {
        return examination;
    }
    examination.with_unknown(missing, true)
}

/// Nothing else reports such a reservation: the object that would do so is gone.
fn without_pool(reservation: &ReservationRow, objects: &Objects) -> Option<Finding> {
    if reservation.has_uid() || objects.has_pool(&reservation.pool) {
        return None;
    }
    let problem = format!(
        "{} does not exist; {} stays reserved, also in a new pool of this name",
        reservation.pool, reservation.slot.block
    );
    let repair = "delete it, or create the pool again";
    Some(of_reservation(
        Check::InvalidReservation,
        reservation,
        problem,
        repair,
    ))
}

fn impossible(reservation: &ReservationRow) -> Option<Finding> {
    let claim = reservation
        .claim
        .as_ref()
        .filter(|_| !reservation.has_uid())?;
    let problem = promised_to(claim).problem(&reservation.pool)?;
    let repair = "delete it, and create another one if needed";
    Some(of_reservation(
        Check::InvalidReservation,
        reservation,
        problem.to_string(),
        repair,
    ))
}

#[cfg(test)]
mod tests {
    use capi_ipam_api::IPReservation;
    use serde_json::json;

    use super::*;

    #[test]
    fn promise_that_no_claim_can_get_is_found() {
        let row = |last: u8, namespace: &str, name: &str, uid: Option<&str>| {
            let reservation: IPReservation = serde_json::from_value(json!({
                "metadata": {"name": format!("p.team-a.web.10.0.0.{last}")},
                "spec": {"scope": "p.team-a.web", "address": format!("10.0.0.{last}"),
                         "poolRef": {"kind": "InClusterIPPool", "namespace": "team-a", "name": "web"},
                         "claimRef": {"namespace": namespace, "name": name, "uid": uid}},
            }))
            .unwrap();
            ReservationRow::of(&reservation).unwrap()
        };
        let rows = [
            row(1, "team-a", "vm-1", None),
            row(2, "team-a", "Bad_Claim", None),
            row(3, "team-b", "vm-1", None),
            row(4, "team-b", "vm-1", Some("u")),
        ];
        let found: Vec<_> = rows.iter().filter_map(impossible).collect();
        let objects: Vec<_> = found
            .iter()
            .map(|finding| finding.object.as_str())
            .collect();
        assert_eq!(
            objects,
            [
                "ipreservation p.team-a.web.10.0.0.2",
                "ipreservation p.team-a.web.10.0.0.3"
            ]
        );
        assert!(
            found[0].problem.starts_with("spec.claimRef.name: ")
                && found[0].check == Check::InvalidReservation
        );
    }
}
