//! Reservations that promise an address to a claim.

use super::examination::Examination;
use super::snapshot::Snapshot;
use crate::model::finding::{Check, Finding};
use crate::objects::ReservationRow;
use crate::user_reservation::promised_to;

/// Reservations that promise an address to a claim that cannot exist or cannot use the pool.
pub(super) fn invalid(snapshot: &Snapshot) -> Examination {
    Examination::inspect(&snapshot.reservations, |reservation| {
        impossible(reservation).into_iter().collect()
    })
}

fn impossible(reservation: &ReservationRow) -> Option<Finding> {
    let claim = reservation
        .claim
        .as_ref()
        .filter(|_| !reservation.has_uid)?;
    let problem = promised_to(claim).problem(&reservation.pool)?;
    let object = reservation.slot.reservation_name();
    let repair = format!(
        "delete it, and create another one if needed: kubectl delete ipreservation {object}"
    );
    Some(Check::InvalidReservation.finding(
        format!("ipreservation {object}"),
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
