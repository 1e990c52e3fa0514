//! Claims whose requests overtake each other, and claims whose pool can no longer allocate.

use super::*;

fn names(count: usize) -> Vec<NamespacedName> {
    (0..count)
        .map(|number| claim(&format!("c{}", (number * 7) % count)))
        .collect()
}

fn last_of(proposal: &Outcome<Slot>) -> u8 {
    let Outcome::Offer(slot) = proposal else {
        panic!("{proposal:?}")
    };
    (0..=255).find(|last| block(*last) == slot.block).unwrap()
}

fn large(order: &str) -> Pool {
    pool(json!({"spec": {"addresses": ["10.0.0.1-10.0.0.100"], "allocation": {"order": order}}}))
}

#[test]
fn claim_that_started_first_gets_the_next_address() {
    for order in ["LowestFirst", "RoundRobin"] {
        let mut ledger = ledger();
        ledger.apply_pool(&large(order));
        let claims = names(32);
        claims
            .iter()
            .for_each(|claim| ledger.start(&key(), claim, Uid::of(claim.name()), 1));
        // Their requests overtake each other.
        for claims in [&claims[16..], &claims[..16]] {
            for claim in claims.iter().rev() {
                let position = names(32).iter().position(|known| known == claim).unwrap();
                let expected = u8::try_from(position).unwrap() + 1;
                assert_eq!(
                    last_of(&ledger.propose(&key(), claim, 1)),
                    expected,
                    "{order}"
                );
            }
        }
        claims.iter().for_each(|claim| ledger.end(&key(), claim));
        assert_eq!(
            last_of(&ledger.propose(&key(), &claim("next"), 1)),
            33,
            "{order}"
        );
    }
}

#[test]
fn claims_that_waited_for_the_pool_get_addresses_in_order() {
    let mut ledger = ledger();
    let claims = names(20);
    for claim in &claims {
        ledger.start(&key(), claim, Uid::of(claim.name()), 1);
    }
    // Their lookups overtake each other.
    for claim in claims.iter().rev() {
        ledger.pool_or_wait(&key(), claim, 1);
        ledger.end(&key(), claim);
    }
    ledger.apply_pool(&large("LowestFirst"));
    let mut order = Vec::new();
    for claim in take(&mut ledger) {
        if !order.contains(&claim) {
            order.push(claim);
        }
    }
    assert_eq!(order, claims, "they are reconciled in this order");
    for (position, claim) in claims.iter().enumerate().rev() {
        let expected = u8::try_from(position).unwrap() + 1;
        assert_eq!(last_of(&ledger.propose(&key(), claim, 1)), expected);
    }
}

#[test]
fn claim_that_ends_without_a_request_leaves_no_gap() {
    let mut ledger = ledger();
    ledger.apply_pool(&large("LowestFirst"));
    for name in ["a", "b", "c"] {
        ledger.start(&key(), &claim(name), Uid::of(name), 1);
    }
    assert_eq!(
        last_of(&ledger.propose(&key(), &claim("b"), 1)),
        2,
        "the first one is for a"
    );
    ledger.end(&key(), &claim("a"));
    assert_eq!(
        last_of(&ledger.propose(&key(), &claim("c"), 1)),
        1,
        "a does not request one"
    );
    for name in ["b", "c"] {
        ledger.end(&key(), &claim(name));
    }
    ledger.remove_pool(&key());
    for last in [1, 2] {
        ledger.drop_candidate(&value(last));
    }
    assert_eq!(known_pools(&ledger), []);
}

#[test]
fn last_addresses_are_not_left_to_claims_ahead() {
    let mut ledger = ledger();
    ledger.apply_pool(&pool(json!({"spec": {"addresses": ["10.0.0.1-10.0.0.2"]}})));
    for name in ["a", "b", "c"] {
        ledger.start(&key(), &claim(name), Uid::of(name), 1);
    }
    assert_eq!(
        last_of(&ledger.propose(&key(), &claim("c"), 1)),
        1,
        "a and b may not need one"
    );
}

/// A pool without a free address. Three claims wait for one.
fn with_waiting_claims() -> Ledger {
    let mut ledger = ledger();
    ledger.apply_pool(&pool(json!({"spec": {"addresses": ["10.0.0.1"]}})));
    ledger.apply(&address("x", 1));
    for (name, priority) in [("b", 2), ("a", 1), ("c", 3)] {
        assert_eq!(
            ledger.propose(&key(), &claim(name), priority),
            Outcome::NO_ADDRESS
        );
    }
    take(&mut ledger);
    ledger
}

#[test]
fn waiting_claims_are_rechecked_when_their_pool_stops() {
    let changes = [
        json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}}),
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        json!({"spec": {"network": "missing"}}),
        json!({"spec": {"addresses": ["nonsense"]}}),
    ];
    for change in changes.into_iter().map(Some).chain([None]) {
        let mut ledger = with_waiting_claims();
        let mut object = json!({"spec": {"addresses": ["10.0.0.1"]}});
        let Some(change) = change else {
            ledger.remove_pool(&key());
            let rechecked = (["a", "b", "c"].map(claim).to_vec(), false);
            assert_eq!(ledger.take_rechecks(9), rechecked);
            assert_eq!(
                ledger.pool_or_wait(&key(), &claim("a"), 1),
                PoolLookup::Missing,
                "it has seen the pool"
            );
            continue;
        };
        json_patch::merge(&mut object, &change);
        ledger.apply_pool(&pool(object));
        let first = (["a", "b"].map(claim).to_vec(), true);
        assert_eq!(ledger.take_rechecks(2), first, "{change}");
        let last = (vec![claim("c")], false);
        assert_eq!(ledger.take_rechecks(2), last, "{change}");
        assert_eq!(take(&mut ledger), [], "{change}: they have low priority");
    }
}

#[test]
fn waiting_claims_are_not_rechecked_at_other_changes() {
    let mut ledger = with_waiting_claims();
    ledger.apply_pool(&pool(
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"addresses": ["10.0.0.1"]}}),
    ));
    ledger.apply_pool(&pool(
        json!({"spec": {"addresses": ["10.0.0.1"], "addressReuseGracePeriodSeconds": 9}}),
    ));
    assert_eq!(ledger.take_rechecks(9), (Vec::new(), false));
    assert_eq!(take(&mut ledger), []);
}
