//! Objects that are no valid reservations, or cannot be decoded: their names reserve addresses all
//! the same.

use capi_ipam_objects::maybe_invalid::MaybeInvalid;

use super::*;

fn undecodable(reservation: &IPReservation) -> Invalid {
    Invalid {
        spec: serde_json::Value::Null,
        error: "no date".to_owned(),
        metadata: Box::new(reservation.metadata.clone()),
    }
}

fn apply_invalid(ledger: &mut Ledger, reservation: &IPReservation) {
    Observe::<IPReservation>::apply_invalid(ledger, &undecodable(reservation));
}

fn delete_invalid(ledger: &mut Ledger, reservation: &IPReservation) {
    Observe::<IPReservation>::delete_invalid(ledger, &undecodable(reservation));
}

fn begin_list(ledger: &mut Ledger) {
    Observe::<IPReservation>::init(ledger);
}

fn end_list(ledger: &mut Ledger) {
    Observe::<IPReservation>::init_done(ledger);
}

/// A reservation of 10.0.0.5 with the name of that of 10.0.0.1.
fn misnamed() -> IPReservation {
    let mut misnamed = reservation(5, json!(null), None);
    misnamed.metadata.name = Some(value(1).reservation_name());
    misnamed
}

#[test]
fn name_of_an_invalid_reservation_takes_its_address() {
    for is_decodable in [true, false] {
        let mut ledger = ledger();
        begin_list(&mut ledger);
        end_list(&mut ledger);
        ledger.apply_pool(&pool(json!({"spec": {"addresses": ["10.0.0.1-10.0.0.2"]}})));
        if is_decodable {
            ledger.apply(&misnamed());
        } else {
            apply_invalid(&mut ledger, &misnamed());
        }
        assert_eq!(counts(&ledger), (2, 1, 0, 0));
        assert_eq!(offered(&mut ledger, "a"), Some(2));
        assert_eq!(ledger.propose(&key(), &claim("b"), 1), Outcome::NO_ADDRESS);
        let requested = ClaimAttributes {
            requested: Some(block(1)),
            ..1.into()
        };
        let answer = ledger.propose(&key(), &claim("c"), requested);
        assert_eq!(answer, unavailable(Unavailable::Excluded));
        let found = ledger.invalid_reservations().0;
        assert!(
            found.len() == 1 && found[0].problem.contains("10.0.0.1 is not allocated"),
            "{found:?}"
        );
        // A list shows it again, and then no longer.
        begin_list(&mut ledger);
        if is_decodable {
            ledger.apply(&misnamed());
        } else {
            apply_invalid(&mut ledger, &misnamed());
        }
        end_list(&mut ledger);
        assert_eq!(take(&mut ledger), []);
        begin_list(&mut ledger);
        end_list(&mut ledger);
        assert_eq!(
            (take(&mut ledger), ledger.invalid_reservations().0),
            (vec![claim("b")], Vec::new())
        );
        assert_eq!(offered(&mut ledger, "b"), Some(1));
    }
}

#[test]
fn deleted_invalid_reservation_frees_its_address() {
    let mut ledger = with_pool();
    ledger.apply(&misnamed());
    ledger.delete(&misnamed());
    assert_eq!(offered(&mut ledger, "a"), Some(1));
    apply_invalid(&mut ledger, &reservation(2, held_by("x"), None));
    assert_eq!(offered(&mut ledger, "b"), Some(3));
    let mut later = reservation(2, held_by("x"), None);
    later.metadata.uid = Some("later".to_owned());
    delete_invalid(&mut ledger, &later);
    assert_eq!(
        offered(&mut ledger, "c"),
        Some(4),
        "another object was deleted"
    );
    delete_invalid(&mut ledger, &reservation(2, held_by("x"), None));
    assert_eq!(offered(&mut ledger, "d"), Some(2));
}

#[test]
fn reservation_whose_name_holds_no_address_takes_none() {
    let mut ledger = with_lab();
    ledger.apply_pool(&member("a", "10.0.0.1-10.0.0.8"));
    let mut unnamed = reservation(1, json!(null), None);
    unnamed.metadata.name = Some("n.lab.ipv4".to_owned());
    unnamed.spec.scope = "n.lab".to_owned();
    ledger.apply(&unnamed);
    assert_eq!(free(&ledger, "a"), 8);
    assert_eq!(ledger.network("lab").reservations, 0);
    assert_eq!(ledger.invalid_reservations().0.len(), 1);
    ledger.delete(&unnamed);
    assert_eq!(ledger.invalid_reservations().0, []);
}

#[test]
fn reservation_that_becomes_undecodable_stays_known() {
    let mut ledger = with_pool();
    let held = reservation(1, held_by("a"), None);
    ledger.apply(&held);
    apply_invalid(&mut ledger, &held);
    begin_list(&mut ledger);
    apply_invalid(&mut ledger, &held);
    end_list(&mut ledger);
    assert_eq!(held_slots(&ledger, "a", "uid-a"), [(value(1), key())]);
    ledger.apply(&held);
    assert_eq!(ledger.invalid_reservations().0, []);
    apply_invalid(&mut ledger, &held);
    delete_invalid(&mut ledger, &held);
    assert_eq!(
        (held_slots(&ledger, "a", "uid-a"), counts(&ledger)),
        (Vec::new(), (8, 8, 0, 0))
    );
}

#[test]
fn name_with_a_hash_takes_its_address() {
    let (long, mut ledger) = (format!("p{}", "x".repeat(240)), ledger());
    let (key, slot) = (
        named(&long),
        Slot {
            scope: Scope::Pool(named(&long)),
            block: block(1),
        },
    );
    let mut hashed = misnamed();
    hashed.metadata.name = Some(slot.reservation_name());
    assert!(slot.reservation_name().starts_with("h."));
    // The pool is not known: nothing says what the hash means before the name is found to be taken.
    ledger.apply(&hashed);
    ledger.apply_pool(&pool(json!({"metadata": {"name": long}})));
    assert_eq!(
        ledger.propose(&key, &claim("a"), 1),
        Outcome::Offer(slot.clone())
    );
    ledger.insert_found(&slot, &MaybeInvalid(Ok(hashed.clone())));
    ledger.drop_candidate(&slot);
    let next = Slot {
        block: block(2),
        ..slot.clone()
    };
    assert_eq!(ledger.propose(&key, &claim("a"), 1), Outcome::Offer(next));
    ledger.apply(&hashed);
    ledger.delete(&hashed);
    assert_eq!(
        ledger.propose(&key, &claim("b"), 1),
        Outcome::Offer(slot.clone())
    );
    ledger.drop_candidate(&slot);
    apply_invalid(&mut ledger, &hashed);
    assert!(
        !matches!(ledger.propose(&key, &claim("c"), 1), Outcome::Offer(found) if found == slot),
        "it is known now"
    );
}

#[test]
fn reservation_that_waits_for_a_finalizer_keeps_its_address() {
    for released_at in [None, Some("1970-01-01T00:16:40Z")] {
        let mut ledger = ledger();
        ledger.apply_pool(&pool(
            json!({"spec": {"addressReuseGracePeriodSeconds": 60}}),
        ));
        let held = reservation(1, held_by("a"), released_at);
        ledger.apply(&held);
        let mut terminating = held.clone();
        terminating.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        // The response to the deletion.
        ledger.insert_reservation(&terminating);
        ledger.apply(&terminating);
        assert_eq!(offered(&mut ledger, "b"), Some(2), "{released_at:?}");
        // Nothing deletes it again and again.
        assert_eq!(ledger.cooled_down(i64::MAX, |_| true, 0), []);
        assert_eq!(ledger.pools().next_cooldown_end(|_| true, 0), None);
        assert_eq!(ledger.abandoned_reservations(|_, _, _| false), []);
        ledger.delete(&terminating);
        take(&mut ledger);
        assert_eq!(offered(&mut ledger, "c"), Some(1));
    }
}

#[test]
fn undecodable_pool_keeps_its_addresses_and_its_cooldowns() {
    let decodable = pool(json!({"spec": {"addressReuseGracePeriodSeconds": 60}}));
    let mut ledger = ledger();
    let invalid = Invalid {
        spec: serde_json::Value::Null,
        error: "no list".to_owned(),
        metadata: Box::new(decodable.metadata.clone()),
    };
    ledger.apply_pool(&decodable);
    ledger.apply(&reservation(1, held_by("a"), Some("1970-01-01T00:16:40Z")));
    for is_listed in [false, true] {
        if is_listed {
            ledger.begin_pool_list(InClusterKind::IPPool);
        }
        ledger.apply_invalid_pool(&key(), &invalid);
        if is_listed {
            ledger.end_pool_list(InClusterKind::IPPool);
        }
        let info = info_of(&ledger).expect("it exists");
        assert!(
            !info.can_allocate() && info.cooldown_seconds == 60,
            "{info:?}"
        );
        assert_eq!(ledger.cooled_down(1060, |_| true, 0), []);
        assert_eq!(ledger.propose(&key(), &claim("b"), 1), Outcome::NO_ADDRESS);
    }
    ledger.apply_pool(&decodable);
    assert_eq!(offered(&mut ledger, "b"), Some(2));
    ledger.drop_candidate(&value(2));
    ledger.delete_pool(&key(), &invalid.metadata);
    assert_eq!(info_of(&ledger), None);
}

/// A manager that starts while a pool of a network cannot be decoded.
#[test]
fn pool_that_never_was_decodable_keeps_its_network() {
    let decodable = member("p", "10.0.0.1-10.0.0.8");
    let mut ledger = ledger();
    let mut released = reservation(1, held_by("a"), Some("1970-01-01T00:16:40Z"));
    released.metadata.name = Some(in_lab(1).reservation_name());
    released.spec.scope = in_lab(1).scope.name();
    let invalid = Invalid {
        spec: serde_json::Value::Null,
        error: "no list".to_owned(),
        metadata: Box::new(decodable.metadata.clone()),
    };
    ledger.apply_network(&lab(json!({})));
    ledger.apply(&released);
    ledger.begin_pool_list(InClusterKind::IPPool);
    ledger.apply_invalid_pool(&key(), &invalid);
    ledger.apply_pool(&member("q", "10.0.0.1-10.0.0.8"));
    ledger.end_pool_list(InClusterKind::IPPool);

    let info = info_of(&ledger).expect("it exists");
    assert!(info.usable.is_err() && !info.can_allocate(), "{info:?}");
    assert_eq!(scope_of(&ledger, "p"), in_lab(1).scope);
    assert_eq!(
        ledger.cooled_down(i64::from(i32::MAX), |_| true, 0),
        [],
        "any cool-down is possible"
    );
    assert!(ledger.misplaced(10, |_| true).is_empty());
    assert_eq!(ledger.propose(&key(), &claim("b"), 1), Outcome::NO_ADDRESS);
    // Its network neither loses it nor gives its address to another pool.
    assert_eq!(ledger.network("lab").needed_by, 2);
    assert_eq!(
        ledger.propose(&named("q"), &claim("b"), 1),
        Outcome::Offer(in_lab(2))
    );
    remove_network(&mut ledger, "lab");
    assert_eq!(scope_of(&ledger, "p"), in_lab(1).scope);
    ledger.apply_network(&lab(json!({})));

    ledger.apply_pool(&decodable);
    let info = info_of(&ledger).expect("it exists");
    assert!(
        info.can_allocate() && info.cooldown_seconds == 0,
        "{info:?}"
    );
    assert_eq!(scope_of(&ledger, "p"), in_lab(1).scope);
    assert_eq!(ledger.cooled_down(1060, |_| true, 0).len(), 1);
}

/// Its last state may be that of a claim which has taken it over, written by a later version.
#[test]
fn undecodable_reservation_is_not_released_or_deleted() {
    let mut ledger = with_pool();
    let released = reservation(1, held_by("a"), Some("1970-01-01T00:16:40Z"));
    let held = reservation(2, held_by("b"), None);
    for found in [&released, &held] {
        ledger.apply(found);
        apply_invalid(&mut ledger, found);
    }
    assert_eq!(ledger.cooled_down(i64::MAX, |_| true, 0), []);
    assert_eq!(ledger.pools().next_cooldown_end(|_| true, 0), None);
    assert_eq!(ledger.abandoned_reservations(|_, _, _| false), []);
    let found = ledger.invalid_reservations().0;
    assert!(
        found.len() == 2 && found[0].problem.contains("correct or delete it"),
        "{found:?}"
    );
    ledger.apply(&released);
    assert_eq!(
        ledger.cooled_down(i64::MAX, |_| true, 0).len(),
        1,
        "it is corrected"
    );
}
