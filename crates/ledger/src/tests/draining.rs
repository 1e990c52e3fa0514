//! Draining parts of a pool, and pools with several ranges.

use super::*;

fn with_spec(spec: serde_json::Value) -> Ledger {
    let mut ledger = ledger();
    ledger.apply_pool(&pool(json!({ "spec": spec })));
    ledger
}

fn propose(ledger: &mut Ledger, name: &str) -> Option<u8> {
    match ledger.propose(&key(), &claim(name), 1) {
        Outcome::Offer(slot) => (1..=SIZE).find(|last| block(*last) == slot.block),
        _ => None,
    }
}

fn counts(ledger: &Ledger) -> (i64, i64, i64, i64) {
    let counts = address_counts(ledger);
    assert_eq!(
        counts.total,
        counts.free + counts.used + counts.reserved + counts.cooling_down + counts.drained
    );
    (counts.free, counts.used, counts.reserved, counts.drained)
}

fn draining_use(ledger: &Ledger) -> Option<DrainingUse> {
    ledger.pool_report(&key(), Vec::new())?.draining
}

#[test]
fn draining_addresses_are_not_proposed_in_any_order() {
    for order in ["LowestFirst", "RoundRobin", "Random"] {
        let mut ledger =
            with_spec(json!({"draining": ["10.0.0.1-10.0.0.6"], "allocation": {"order": order}}));
        assert_eq!(counts(&ledger), (2, 0, 0, 6));
        let mut proposed = [propose(&mut ledger, "a"), propose(&mut ledger, "b")];
        proposed.sort_unstable();
        assert_eq!(proposed, [Some(7), Some(8)], "{order}");
        assert_eq!(propose(&mut ledger, "c"), None);
    }
}

#[test]
fn addresses_in_use_are_counted_until_they_are_released() {
    let mut ledger = with_spec(json!({}));
    for last in [1, 2, 8] {
        ledger.apply(&reservation(last, held_by(&format!("c{last}")), None));
    }
    assert_eq!(draining_use(&ledger), None);
    ledger.apply_pool(&pool(
        json!({"metadata": {"generation": 2}, "spec": {"draining": ["10.0.0.1-10.0.0.4"]}}),
    ));
    let left = |addresses: usize, names: &[&str]| {
        Some(DrainingUse {
            addresses,
            claims: names.iter().map(|name| claim(name)).collect(),
        })
    };
    assert_eq!(draining_use(&ledger), left(2, &["c1", "c2"]));
    assert_eq!(counts(&ledger), (3, 0, 3, 2));
    ledger.delete(&reservation(1, held_by("c1"), None));
    assert_eq!(draining_use(&ledger), left(1, &["c2"]));
    assert_eq!(counts(&ledger), (3, 0, 2, 3));
    assert_eq!(propose(&mut ledger, "new"), Some(5));
    ledger.delete(&reservation(2, held_by("c2"), None));
    assert_eq!(draining_use(&ledger), left(0, &[]));
    ledger.apply_pool(&pool(json!({"metadata": {"generation": 3}})));
    assert_eq!(draining_use(&ledger), None);
    assert_eq!(propose(&mut ledger, "next"), Some(1));
}

#[test]
fn claims_of_the_lowest_addresses_are_named() {
    let mut ledger = with_spec(json!({}));
    for last in [8, 3, 5, 1, 7] {
        ledger.apply(&reservation(last, held_by(&format!("c{last}")), None));
    }
    assert_eq!(ledger.first_claims(&key()), ["c1", "c3", "c5"].map(claim));
}

#[test]
fn lowest_first_uses_the_ranges_in_their_order() {
    let ranges = json!([
        {"addresses": ["10.0.0.7-10.0.0.8"], "prefix": 24},
        {"addresses": ["10.0.0.1-10.0.0.2"], "prefix": 24},
    ]);
    let mut ledger = with_spec(json!({"addresses": ["10.0.0.4"], "ranges": ranges}));
    let proposed: Vec<_> = (0..5)
        .map(|number| propose(&mut ledger, &format!("c{number}")).unwrap())
        .collect();
    assert_eq!(proposed, [4, 7, 8, 1, 2]);
    ledger.drop_candidate(&value(8));
    ledger.drop_candidate(&value(1));
    assert_eq!(propose(&mut ledger, "c5"), Some(8));
}

proptest! {
    #[test]
    fn counts_agree_with_a_recount(
        changes in proptest::collection::vec((1..=SIZE, any::<bool>()), 0..30),
        draining in proptest::collection::vec(1..=SIZE, 1..5),
    ) {
        let entries: Vec<String> = draining.iter().map(|last| format!("10.0.0.{last}")).collect();
        let mut ledger = with_spec(json!({ "draining": entries }));
        let mut held = BTreeSet::new();
        for (last, is_added) in changes {
            let reservation = reservation(last, held_by(&format!("c{last}")), None);
            if is_added && held.insert(last) {
                ledger.apply(&reservation);
            } else if !is_added && held.remove(&last) {
                ledger.delete(&reservation);
                // A deleted reservation is not added again: its uid is never reused.
                break;
            }
        }
        let mut recounted = with_spec(json!({}));
        held.iter().for_each(|last| recounted.apply(&reservation(*last, held_by(&format!("c{last}")), None)));
        recounted.apply_pool(&pool(json!({"metadata": {"generation": 2}, "spec": { "draining": entries }})));
        prop_assert_eq!(counts(&ledger), counts(&recounted));
        prop_assert_eq!(draining_use(&ledger), draining_use(&recounted));
        let in_use = held.iter().filter(|last| draining.contains(last)).count();
        prop_assert_eq!(draining_use(&ledger).map(|left| left.addresses), Some(in_use));
        let lowest = (1..=SIZE).find(|last| !held.contains(last) && !draining.contains(last));
        prop_assert_eq!(propose(&mut ledger, "new"), lowest);
    }
}
