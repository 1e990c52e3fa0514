//! Pools that join and leave a network while addresses of them are in use.

use capi_ipam_api::MemberPhase;
use capi_ipam_api::names::LEAVE_NETWORK_ANNOTATION;

use super::*;

/// A pool that belongs to the network if it has the label, and otherwise leaves it.
fn selected(name: &str, addresses: &str, is_member: bool) -> Pool {
    let labels = json!({"net": is_member.then_some("lab")});
    let annotations = json!({LEAVE_NETWORK_ANNOTATION: "lab"});
    pool(
        json!({"metadata": {"name": name, "uid": name, "labels": labels, "annotations": annotations},
               "spec": {"addresses": [addresses]}}),
    )
}

/// The network, which selects pools by the label.
fn by_label() -> IPNetwork {
    lab(json!({"spec": {"pools": {"matchLabels": {"net": "lab"}}}}))
}

fn reserved(pool: &str, scope: &Scope, last: u8, claim_ref: serde_json::Value) -> IPReservation {
    let slot = Slot {
        scope: scope.clone(),
        block: block(last),
    };
    serde_json::from_value(json!({
        "metadata": {"name": slot.reservation_name(), "uid": format!("{}-{pool}", slot.reservation_name())},
        "spec": {"scope": scope.name(), "address": block(last).to_string(), "claimRef": claim_ref,
                 "poolRef": {"kind": "InClusterIPPool", "namespace": "n", "name": pool}},
    }))
    .unwrap()
}

fn own(name: &str) -> Scope {
    Scope::Pool(named(name))
}

#[test]
fn addresses_of_a_joining_pool_are_not_free_in_the_network() {
    let mut ledger = ledger();
    ledger.apply_network(&by_label());
    ledger.apply_pool(&selected("p", "10.0.0.1-10.0.0.8", false));
    ledger.apply_pool(&selected("q", "10.0.0.1-10.0.0.8", true));
    // Bound, reserved before its IPAddress exists, cooling down, excluded, and proposed.
    ledger.apply(&address("a", 1));
    reserve(&mut ledger, 1, "a");
    reserve(&mut ledger, 2, "b");
    ledger.insert_reservation(&reservation(3, held_by("c"), Some("2026-01-01T00:00:00Z")));
    ledger.insert_reservation(&reservation(4, json!(null), None));
    assert!(ledger.hold_candidate(&key(), &value(5)));
    assert_eq!(free(&ledger, "q"), 8);

    ledger.apply_pool(&selected("p", "10.0.0.1-10.0.0.8", true));
    assert_eq!((free(&ledger, "p"), free(&ledger, "q")), (3, 3));
    assert_eq!(
        ledger.propose(&named("q"), &claim("x"), 1),
        Outcome::Offer(in_lab(6))
    );
    assert_eq!(
        (
            ledger.misplaced(10, |_| true).len(),
            ledger.misplaced(2, |_| true).len()
        ),
        (4, 2)
    );
    assert_eq!(
        ledger.network("lab").members[0],
        (key(), MemberPhase::Joining)
    );
    assert!(
        ledger.unreserved(10, |_| true).is_empty(),
        "the reservation is moved, not made up"
    );
    assert!(
        ledger
            .abandoned_reservations(|_, _, has_address| has_address)
            .iter()
            .all(|it| it.slot.block == block(2))
    );

    assert!(ledger.misplaced(2, |pool| *pool == named("q")).is_empty());

    // A reservation is moved: first the new one, then the old one is deleted.
    ledger.insert_reservation(&reserved(
        "p",
        &Scope::Network("lab".into()),
        1,
        held_by("a"),
    ));
    ledger.delete(&reservation(1, held_by("a"), None));
    ledger.delete(&reservation(2, held_by("b"), None));
    ledger.delete(&reservation(3, held_by("c"), None));
    ledger.drop_candidate(&value(5));
    assert_eq!(
        (free(&ledger, "p"), free(&ledger, "q")),
        (5, 5),
        "in use: 1, excluded: 4, proposed: 6"
    );
    assert_eq!(ledger.misplaced(10, |_| true).len(), 1);
    ledger.delete(&reservation(4, json!(null), None));
    assert_eq!(
        ledger.network("lab").members[0],
        (key(), MemberPhase::Member)
    );
}

#[test]
fn addresses_of_a_leaving_pool_stay_reserved_in_the_network() {
    let mut ledger = ledger();
    ledger.apply_network(&by_label());
    ledger.apply_pool(&selected("p", "10.0.0.1-10.0.0.8", true));
    ledger.apply_pool(&selected("q", "10.0.0.1-10.0.0.8", true));
    let lab = Scope::Network("lab".into());
    ledger.apply(&address("a", 1));
    ledger.insert_reservation(&reserved("p", &lab, 1, held_by("a")));
    ledger.apply_pool(&selected("p", "10.0.0.1-10.0.0.8", false));
    assert_eq!((free(&ledger, "p"), free(&ledger, "q")), (7, 7));
    assert_eq!(
        ledger.network("lab").members[0],
        (key(), MemberPhase::Leaving)
    );
    let expected = Misplaced {
        pool: key(),
        slot: in_lab(1),
        scope: own("p"),
        uid: "n.lab.10.0.0.1-p".to_owned(),
        is_in_use: true,
    };
    assert_eq!(ledger.misplaced(10, |_| true), [expected]);
    assert_eq!(
        ledger.held_in(&key()),
        Some(in_lab(1)),
        "it prevents the deletion of the pool"
    );
    assert_eq!(ledger.in_use(&key(), &|_| true), [block(1)]);
    ledger.insert_reservation(&reserved("p", &own("p"), 1, held_by("a")));
    ledger.delete(&reserved("p", &lab, 1, held_by("a")));
    assert_eq!((free(&ledger, "p"), free(&ledger, "q")), (7, 8));
    assert_eq!(ledger.network("lab").members.len(), 1);
}

#[test]
fn end_of_what_kept_the_reservations_notifies_their_move() {
    let paused = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}});
    let invalid = json!({"spec": {"addresses": ["10.0.0.9-10.0.0.1"]}});
    for (case, obstacle) in [("paused", paused), ("invalid", invalid)] {
        let mut ledger = ledger();
        ledger.apply_network(&by_label());
        let mut member = serde_json::to_value(selected("p", "10.0.0.1-10.0.0.8", true)).unwrap();
        ledger.apply_pool(&pool(member.clone()));
        reserve(&mut ledger, 1, "a");
        let valid = member.clone();
        json_patch::merge(&mut member, &obstacle);
        ledger.apply_pool(&pool(member));
        drop(ledger.take_effects());
        assert!(ledger.misplaced(10, |_| true).is_empty(), "{case}");

        ledger.apply_pool(&pool(valid));
        assert_eq!(ledger.misplaced(10, |_| true).len(), 1, "{case}");
        assert!(ledger.take_effects().scopes_changed, "{case}");
    }
}

#[test]
fn network_that_appears_notifies_the_moves_of_its_pools() {
    let mut ledger = ledger();
    // Restored: its claims have reservations in both scopes, and the network is missing.
    ledger.apply(&reserved(
        "p",
        &Scope::Network("lab".into()),
        1,
        held_by("a"),
    ));
    reserve(&mut ledger, 2, "b");
    ledger.apply_pool(&selected("p", "10.0.0.1-10.0.0.8", true));
    drop(ledger.take_effects());
    assert!(ledger.misplaced(10, |_| true).is_empty());

    ledger.apply_network(&by_label());
    assert_eq!(ledger.misplaced(10, |_| true).len(), 1);
    assert!(ledger.take_effects().scopes_changed);
}

#[test]
fn refused_pool_keeps_its_reservations_where_they_are() {
    let mut ledger = with_lab();
    ledger.apply_pool(&member("p", "10.0.0.1-10.0.0.8"));
    ledger.apply_pool(&member("q", "10.0.0.1-10.0.0.8"));
    ledger.apply(&address("a", 1));
    ledger.insert_reservation(&reserved(
        "p",
        &Scope::Network("lab".into()),
        1,
        held_by("a"),
    ));
    ledger.apply_network(&lab(json!({"spec": {"namespaces": {"from": "None"}}})));
    assert!(
        ledger.misplaced(10, |_| true).is_empty() && ledger.unreserved(10, |_| true).is_empty()
    );
    assert!(
        ledger
            .abandoned_reservations(|_, _, has_address| has_address)
            .is_empty()
    );
    let view = ledger.network("lab");
    let members = [named("p"), named("q")].map(|pool| (pool, MemberPhase::Member));
    assert_eq!(
        (view.reservations, view.members.as_slice()),
        (1, &members[..])
    );
    assert_eq!(view.needed_by, 1, "the other pool holds no address");
    ledger.apply_network(&lab(json!({})));
    assert_eq!((free(&ledger, "p"), free(&ledger, "q")), (7, 7));
}

#[test]
fn possible_scopes_are_those_before_and_after_a_move() {
    let mut ledger = ledger();
    let in_network = Scope::Network("lab".into());
    assert_eq!(
        ledger.pools().possible_scopes(&key()),
        [own("p")],
        "the pool is not known"
    );
    ledger.apply_pool(&selected("p", "10.0.0.1-10.0.0.8", false));
    reserve(&mut ledger, 1, "a");
    assert_eq!(ledger.pools().possible_scopes(&key()), [own("p")]);
    // The network selects the pool; at first it is not initialized.
    ledger.apply_pool(&selected("p", "10.0.0.1-10.0.0.8", true));
    ledger.apply_network(&lab(
        json!({"spec": {"pools": {"matchLabels": {"net": "lab"}}}, "status": null}),
    ));
    assert_eq!(
        ledger.pools().possible_scopes(&key()),
        [own("p"), in_network.clone()],
        "another manager may know the length"
    );
    ledger.apply_network(&by_label());
    assert_eq!(
        ledger.pools().possible_scopes(&key()),
        [in_network.clone(), own("p")]
    );
    ledger.insert_reservation(&reserved("p", &in_network, 1, held_by("a")));
    ledger.delete(&reservation(1, held_by("a"), None));
    assert_eq!(
        ledger.pools().possible_scopes(&key()),
        [in_network.clone(), own("p")],
        "the manager lags behind"
    );
    ledger.apply_pool(&selected("p", "10.0.0.1-10.0.0.8", false));
    assert_eq!(
        ledger.pools().possible_scopes(&key()),
        [own("p"), in_network.clone()]
    );
    ledger.delete(&reserved("p", &in_network, 1, held_by("a")));
    assert_eq!(ledger.pools().possible_scopes(&key()), [own("p")]);
    // The network that the pool names need not exist.
    ledger.apply_pool(&pool(json!({"spec": {"network": "other"}})));
    assert_eq!(
        ledger.pools().possible_scopes(&key()),
        [own("p"), Scope::Network("other".into())]
    );
}

/// The pools: names and address ranges, first and last.
const POOLS: [(&str, u8, u8); 3] = [("p", 1, 6), ("q", 4, 9), ("r", 2, 3)];

#[derive(Clone, Debug)]
enum Step {
    Join(usize, bool),
    Hold(usize, bool, u8),
    Drop(usize, bool, u8),
    Reserve(usize, bool, u8),
    Unreserve(usize, bool, u8),
    InsertAddress(usize, u8),
    RemoveAddress(usize, u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let place = || (0..POOLS.len(), proptest::bool::ANY, 1..=10_u8);
    let step = prop_oneof![
        (0..POOLS.len(), proptest::bool::ANY).prop_map(|(pool, joins)| Step::Join(pool, joins)),
        place().prop_map(|(pool, inside, last)| Step::Hold(pool, inside, last)),
        place().prop_map(|(pool, inside, last)| Step::Drop(pool, inside, last)),
        place().prop_map(|(pool, inside, last)| Step::Reserve(pool, inside, last)),
        place().prop_map(|(pool, inside, last)| Step::Unreserve(pool, inside, last)),
        (0..POOLS.len(), 1..=10_u8).prop_map(|(pool, last)| Step::InsertAddress(pool, last)),
        (0..POOLS.len(), 1..=10_u8).prop_map(|(pool, last)| Step::RemoveAddress(pool, last)),
    ];
    proptest::collection::vec(step, 0..100)
}

proptest! {
    /// An address is free in a pool unless it is held or in use in the scope of the pool, or held
    /// anywhere by a pool of that scope.
    #[test]
    fn joining_and_leaving_agree_with_a_naive_model(steps in steps()) {
        let mut ledger = ledger();
        ledger.apply_network(&by_label());
        let object = |pool: usize, joins: bool| {
            let (name, first, last) = POOLS[pool];
            selected(name, &format!("10.0.0.{first}-10.0.0.{last}"), joins)
        };
        let place = |pool: usize, inside: bool| if inside { Scope::Network("lab".into()) } else { own(POOLS[pool].0) };
        let mut joined = [false; POOLS.len()];
        // The pool that holds an address of a scope, by a proposal or by a reservation.
        let (mut proposed, mut reserved_by) = (BTreeMap::new(), BTreeMap::new());
        let mut owners = BTreeSet::new();
        (0..POOLS.len()).for_each(|pool| ledger.apply_pool(&object(pool, false)));
        for step in steps {
            match step {
                Step::Join(pool, joins) => {
                    joined[pool] = joins;
                    ledger.apply_pool(&object(pool, joins));
                }
                Step::Hold(pool, inside, last) => {
                    let slot = Slot { scope: place(pool, inside), block: block(last) };
                    let is_new = ledger.hold_candidate(&named(POOLS[pool].0), &slot);
                    prop_assert_eq!(is_new, !proposed.contains_key(&slot));
                    proposed.entry(slot).or_insert(pool);
                }
                Step::Drop(pool, inside, last) => {
                    let slot = Slot { scope: place(pool, inside), block: block(last) };
                    ledger.drop_candidate(&slot);
                    proposed.remove(&slot);
                }
                Step::Reserve(pool, inside, last) => {
                    let slot = Slot { scope: place(pool, inside), block: block(last) };
                    ledger.apply(&reserved(POOLS[pool].0, &slot.scope, last, held_by("x")));
                    proposed.remove(&slot);
                    reserved_by.insert(slot, pool);
                }
                Step::Unreserve(pool, inside, last) => {
                    let slot = Slot { scope: place(pool, inside), block: block(last) };
                    if reserved_by.get(&slot) == Some(&pool) {
                        ledger.delete(&reserved(POOLS[pool].0, &slot.scope, last, held_by("x")));
                        reserved_by.remove(&slot);
                    }
                }
                Step::InsertAddress(pool, last) => {
                    let mut held = address(&format!("{}-{last}", POOLS[pool].0), last);
                    held.spec.pool_ref.name = POOLS[pool].0.to_owned();
                    ledger.apply(&held);
                    owners.insert((pool, last));
                }
                Step::RemoveAddress(pool, last) => {
                    let mut held = address(&format!("{}-{last}", POOLS[pool].0), last);
                    held.spec.pool_ref.name = POOLS[pool].0.to_owned();
                    ledger.delete(&held);
                    owners.remove(&(pool, last));
                }
            }
            for (pool, (name, first, last)) in POOLS.into_iter().enumerate() {
                let scope = place(pool, joined[pool]);
                let is_taken = |last: u8| {
                    let held = |(slot, by): (&Slot, &usize)| {
                        slot.block == block(last) && (slot.scope == scope || place(*by, joined[*by]) == scope)
                    };
                    proposed.iter().any(held)
                        || reserved_by.iter().any(held)
                        || owners.iter().any(|(by, used)| *used == last && place(*by, joined[*by]) == scope)
                };
                let expected = (first..=last).filter(|last| !is_taken(*last)).count();
                prop_assert_eq!(free(&ledger, name), i64::try_from(expected).unwrap(), "{}", name);
            }
        }
    }
}

#[test]
fn attempt_is_not_repeated_in_the_scope_that_the_pool_has_left() {
    let mut ledger = ledger();
    ledger.apply_network(&by_label());
    ledger.apply_pool(&selected("p", "10.0.0.1-10.0.0.8", false));
    ledger.apply_pool(&selected("q", "10.0.0.1-10.0.0.8", true));
    // The reservation of this address may exist or not.
    let claim_uid = Uid::of("uid-a");
    ledger
        .addresses_mut()
        .remember_attempt(claim_uid, &key(), &value(1));
    assert_eq!(ledger.attempt(claim_uid, &key()), Some(value(1)));
    ledger.apply_pool(&selected("p", "10.0.0.1-10.0.0.8", true));
    // Another pool of the network allocates the address meanwhile.
    assert_eq!(
        ledger.propose(&named("q"), &claim("x"), 1),
        Outcome::Offer(in_lab(1))
    );
    assert_eq!(ledger.attempt(claim_uid, &key()), None);
}

#[test]
fn pools_of_others_do_not_use_up_the_limit_of_moves() {
    let mut ledger = ledger();
    ledger.apply_network(&by_label());
    for name in ["p", "q"] {
        ledger.apply_pool(&selected(name, "10.0.0.1-10.0.0.8", false));
    }
    for last in 1..=4 {
        ledger.insert_reservation(&reservation(last, json!(null), None));
    }
    ledger.insert_reservation(&reserved("q", &own("q"), 8, held_by("a")));
    for name in ["p", "q"] {
        ledger.apply_pool(&selected(name, "10.0.0.1-10.0.0.8", true));
    }
    let found = ledger.misplaced(1, |pool| *pool == named("q"));
    assert_eq!(found.len(), 1);
    assert_eq!(
        (&found[0].pool, found[0].slot.block),
        (&named("q"), block(8))
    );
}
