//! Cool-downs of released addresses.

use super::late::{at_version, with_cooldown};
use super::*;

/// The addresses whose cool-down has ended at `now`.
pub(super) fn cooled_down_slots(ledger: &Ledger, now: i64) -> Vec<Slot> {
    ledger
        .cooled_down(now, |_| true, 0)
        .into_iter()
        .map(|ended| ended.slot)
        .collect()
}

#[test]
fn cooldown_ends_after_the_grace_period_or_without_a_pool() {
    let mut ledger = ledger();
    ledger.apply_pool(&pool(
        json!({"spec": {"addressReuseGracePeriodSeconds": 60}}),
    ));
    let released = reservation(1, held_by("a"), Some("1970-01-01T00:16:40Z"));
    ledger.insert_reservation(&released);
    assert_eq!(counts(&ledger), (8, 7, 0, 0));
    assert!(
        held_slots(&ledger, "a", "uid-a").is_empty(),
        "no claim holds an address that cools down"
    );
    assert_eq!(
        (
            cooled_down_slots(&ledger, 1060),
            ledger.pools().cooldown_end(&key())
        ),
        (vec![], Some(1061))
    );
    assert_eq!(cooled_down_slots(&ledger, 1061), [value(1)]);
    ledger.remove_pool(&PoolKey::of(&pool(json!({}))));
    assert_eq!(cooled_down_slots(&ledger, 1000), [value(1)]);
    ledger.delete(&released);
    assert_eq!(
        (
            ledger.pools().next_cooldown_end(|_| true, 0),
            known_pools(&ledger)
        ),
        (None, vec![])
    );
}

#[test]
fn cooldowns_depend_on_the_objects_only() {
    let mut ledger = ledger();
    ledger.apply_pool(&pool(
        json!({"spec": {"addressReuseGracePeriodSeconds": 60}}),
    ));
    // Whatever the clock of the process that observes them says, in the past and in the future.
    for (last, released, since) in [
        (1, "1970-01-01T00:16:40Z", 1_000),
        (2, "2999-01-01T00:00:00Z", 32_472_144_000),
    ] {
        let reservation = reservation(last, held_by("a"), Some(released));
        ledger.insert_reservation(&reservation);
        assert_eq!(
            ledger.pools().cooldown_end(&key()),
            Some(since + 61),
            "{released}"
        );
        assert_eq!(cooled_down_slots(&ledger, since + 60), []);
        assert_eq!(cooled_down_slots(&ledger, since + 61), [value(last)]);
        ledger.delete(&reservation);
    }
}

#[test]
fn releases_in_the_future_are_found() {
    for sticky in [false, true] {
        let mut ledger = ledger();
        let spec = json!({"addressReuseGracePeriodSeconds": 60, "allocation": {"sticky": sticky}});
        ledger.apply_pool(&pool(json!({"spec": spec})));
        for (last, released) in [(1, "1970-01-01T00:16:40Z"), (2, "1970-01-01T00:33:20Z")] {
            ledger.insert_reservation(&reservation(last, held_by("a"), Some(released)));
        }
        let after = |second| {
            ledger
                .released_after(second)
                .into_iter()
                .map(|found| found.slot)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (after(999), after(1_999), after(2_000)),
            (vec![value(2), value(1)], vec![value(2)], vec![])
        );
    }
}

#[test]
fn cooling_address_in_use_is_found() {
    let mut ledger = ledger();
    ledger.apply_pool(&pool(
        json!({"spec": {"addressReuseGracePeriodSeconds": 60}}),
    ));
    let released = Some("1970-01-01T00:16:40Z");
    for (name, last) in [("a", 1), ("another", 2)] {
        ledger.apply(&address(name, last));
    }
    for last in 1..=3 {
        ledger.insert_reservation(&reservation(last, held_by("a"), released));
    }
    let found = ledger.cooling_down_in_use();
    let by_a = (value(1), claim("a"), Some(Uid::of("uid-a")));
    assert_eq!(
        found,
        [by_a, (value(2), claim("another"), None)],
        "the third is not in use"
    );
}

#[test]
fn claim_that_takes_over_its_address_is_reconciled() {
    let mut ledger = with_pool();
    ledger.apply(&address("another", 1));
    let released = Some("1970-01-01T00:16:40Z");
    ledger.insert_reservation(&reservation(1, held_by("a"), released));
    take(&mut ledger);
    // The claim waited for the end of the former use.
    let mut taken_over = reservation(1, held_by("another"), None);
    taken_over.metadata.uid = reservation(1, held_by("a"), None).metadata.uid;
    ledger.insert_reservation(&taken_over);
    assert_eq!(take(&mut ledger), [claim("another")]);
    ledger.insert_reservation(&taken_over);
    assert_eq!(take(&mut ledger), [], "nothing has changed");
}

#[test]
fn reservation_of_an_address_in_use_is_kept() {
    for sticky in [false, true] {
        let mut ledger = ledger();
        ledger.apply_pool(&pool(json!({"spec": {"allocation": {"sticky": sticky}}})));
        ledger.apply(&address("another", 1));
        ledger.insert_reservation(&reservation(1, held_by("a"), Some("1970-01-01T00:16:40Z")));
        ledger.end_cooldowns(i64::MAX);
        assert_eq!(cooled_down_slots(&ledger, i64::MAX), []);
        assert_eq!(ledger.pools().next_cooldown_end(|_| true, 0), None);
        assert_eq!(ledger.cooling_down_in_use().len(), 1);
        assert_eq!(address_counts(&ledger).cooling_down, 0);
        ledger.delete(&address("another", 1));
        ledger.end_cooldowns(i64::MAX);
        assert_eq!(cooled_down_slots(&ledger, i64::MAX), [value(1)]);
        assert!(ledger.cooling_down_in_use().is_empty());
    }
}

#[test]
fn cooldowns_of_unmanaged_pools_end_later() {
    let mut ledger = with_cooldown();
    ledger.apply(&at_version(5, "a", Some("1970-01-01T00:16:40Z")));
    assert_eq!(ledger.cooled_down(1061, |_| false, 60), []);
    assert_eq!(ledger.cooled_down(1121, |_| false, 60).len(), 1);
    assert_eq!(ledger.pools().next_cooldown_end(|_| false, 60), Some(1121));
}

#[test]
fn counts_add_up_while_addresses_cool_down() {
    let mut ledger = with_cooldown();
    ledger.apply(&at_version(5, "a", Some("1970-01-01T00:16:40Z")));
    ledger.apply(&reservation(2, json!(null), None));
    ledger.apply(&address("c", 3));
    let counts = address_counts(&ledger);
    assert_eq!(
        (
            counts.cooling_down,
            counts.reserved,
            counts.used,
            counts.free
        ),
        (1, 1, 1, 5)
    );
    ledger.apply_pool(&pool(json!({"spec": {"addresses": ["10.0.0.2-10.0.0.8"]}})));
    assert_eq!(
        (
            address_counts(&ledger).cooling_down,
            address_counts(&ledger).reserved
        ),
        (0, 1)
    );
}

#[test]
fn started_cooldown_wakes_its_task() {
    let mut ledger = with_cooldown();
    ledger.apply(&at_version(5, "a", Some("1970-01-01T00:16:40Z")));
    assert!(ledger.take_effects().cooldowns_changed);
    assert!(!ledger.take_effects().cooldowns_changed);
}
