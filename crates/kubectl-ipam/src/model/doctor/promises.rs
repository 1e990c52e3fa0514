//! Reservations of users: excluded addresses, and addresses promised to a claim.

use super::addresses::of_reservation;
use super::examination::Examination;
use super::snapshot::Snapshot;
use crate::model::finding::{Check, Finding, full};
use crate::objects::{Kind, Objects, ReservationRow};
use crate::user_reservation::promised_to;

/// Reservations of users for a claim that cannot exist or cannot use the pool, and those of pools
/// that do not exist.
pub(super) fn invalid(snapshot: &Snapshot) -> Examination {
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
    if reservation.has_uid || objects.has_pool(&reservation.pool) {
        return None;
    }
    let problem = format!(
        "{} does not exist; {} stays reserved, also in a new pool of this name",
        full(&reservation.pool),
        reservation.slot.block
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
        .filter(|_| !reservation.has_uid)?;
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
