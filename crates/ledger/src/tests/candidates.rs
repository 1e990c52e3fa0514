//! Candidates, unused turns, what a claim holds, and missing labels.

use super::*;

#[test]
fn unused_turn_is_for_the_next_claim() {
    let before = Instant::now();
    let mut ledger = with_one_turn();
    ledger.end_unused_turn(&key(), &claim("first"), Uid::of("uid-first"), before);
    assert_eq!(
        ledger.propose(&key(), &claim("second"), 2),
        Outcome::NO_ADDRESS,
        "it was granted during the reconcile"
    );
    ledger.end_unused_turn(
        &key(),
        &claim("first"),
        Uid::of("uid-first"),
        Instant::now(),
    );
    assert_eq!(
        ledger.propose(&key(), &claim("second"), 2),
        Outcome::Offer(value(1))
    );
}

/// A pool with two addresses in use, and a claim `a` that requests one although another manager has
/// bound it. `b` waits behind it.
fn with_served_claim_in_the_queue(is_reservation_observed: bool) -> Ledger {
    let mut ledger = ledger();
    ledger.apply_pool(&pool(json!({"spec": {"addresses": ["10.0.0.1-10.0.0.2"]}})));
    ledger.apply(&reservation(2, held_by("other"), None));
    if is_reservation_observed {
        ledger.apply(&reservation(1, held_by("a"), None));
    }
    ledger.apply(&address("a", 1));
    assert_eq!(ledger.propose(&key(), &claim("a"), 1), Outcome::NO_ADDRESS);
    assert_eq!(ledger.propose(&key(), &claim("b"), 2), Outcome::NO_ADDRESS);
    ledger
}

#[test]
fn claim_that_another_manager_has_bound_gets_no_turn() {
    let mut ledger = with_served_claim_in_the_queue(true);
    ledger.end_unused_turn(&key(), &claim("a"), Uid::of("uid-a"), Instant::now());
    ledger.delete(&reservation(2, held_by("other"), None));
    assert_eq!(take(&mut ledger), [claim("b")]);
}

#[test]
fn claim_gets_no_turn_if_its_reservation_is_observed_last() {
    let mut ledger = with_served_claim_in_the_queue(false);
    ledger.end_unused_turn(&key(), &claim("a"), Uid::of("uid-a"), Instant::now());
    ledger.apply(&reservation(1, held_by("a"), None));
    take(&mut ledger);
    ledger.delete(&reservation(2, held_by("other"), None));
    assert_eq!(take(&mut ledger), [claim("b")]);
}

#[test]
fn pool_with_a_candidate_is_in_use() {
    let mut ledger = with_pool();
    assert!(!ledger.pools().is_in_use(&key()));
    assert_eq!(offered(&mut ledger, "a"), Some(1));
    assert!(
        !ledger.hold_candidate(&key(), &value(1)),
        "it is held already"
    );
    assert!(ledger.pools().is_in_use(&key()));
    // The address of a candidate may be outside of the pool, and the pool may be deleted meanwhile.
    ledger.remove_pool(&key());
    assert!(ledger.hold_candidate(&key(), &value(200)));
    ledger.drop_candidate(&value(1));
    assert!(ledger.pools().is_in_use(&key()));
    ledger.drop_candidate(&value(200));
    assert!(!ledger.pools().is_in_use(&key()));
    assert_eq!(known_pools(&ledger), []);
}

#[test]
fn claim_holds_reservations_and_promises() {
    let mut ledger = with_pool();
    let held = |ledger: &Ledger| -> Vec<_> {
        let held = ledger
            .addresses()
            .held_by(&claim("a"), Uid::of("uid-a"))
            .into_iter();
        held.map(|held| (held.slot, held.is_promise)).collect()
    };
    let (reserved, promised) = (
        reservation(1, held_by("a"), None),
        reservation(2, json!({"namespace": "n", "name": "a"}), None),
    );
    ledger.insert_reservation(&reserved);
    ledger.insert_reservation(&promised);
    assert_eq!(held(&ledger), [(value(1), false), (value(2), true)]);
    ledger.delete(&reserved);
    assert_eq!(held(&ledger), [(value(2), true)]);
    ledger.delete(&promised);
    assert_eq!(held(&ledger), []);
}

#[test]
fn manual_reservations_without_label_are_found() {
    let mut ledger = ledger();
    let label = |mut reservation: IPReservation| {
        let labels = reservation.metadata.labels.get_or_insert_default();
        labels.insert("clusterctl.cluster.x-k8s.io/move".to_owned(), String::new());
        reservation
    };
    let mut invalid = reservation(3, json!(null), None);
    invalid.spec.address = "oops".to_owned();
    let manual = [reservation(2, json!(null), None), invalid];
    ledger.apply(&reservation(1, held_by("a"), None));
    manual
        .iter()
        .for_each(|reservation| ledger.apply(reservation));
    let found = |ledger: &Ledger| {
        ledger
            .addresses()
            .unlabelled()
            .into_iter()
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(
        found(&ledger),
        manual
            .iter()
            .filter_map(|manual| manual.metadata.name.clone())
            .collect()
    );
    manual
        .into_iter()
        .for_each(|reservation| ledger.apply(&label(reservation)));
    assert_eq!(found(&ledger), BTreeSet::new());
}
