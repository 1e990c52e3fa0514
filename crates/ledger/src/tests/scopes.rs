//! A pool keeps its scope while its network is invalid, being deleted, missing or not restored yet.

use super::*;
use capi_ipam_api::names::LEAVE_NETWORK_ANNOTATION;

fn labelled(name: &str, site: Option<&str>, change: serde_json::Value) -> Pool {
    let mut object = json!({"metadata": {"name": name, "uid": name, "labels": {"site": site}}});
    json_patch::merge(&mut object, &change);
    pool(object)
}

fn selecting(change: serde_json::Value) -> IPNetwork {
    let selector = json!({"spec": {"pools": {"matchLabels": {"site": "a"}}}});
    let mut object = serde_json::to_value(lab(selector)).unwrap();
    json_patch::merge(&mut object, &change);
    serde_json::from_value(object).unwrap()
}

fn being_deleted() -> serde_json::Value {
    json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
}

/// The annotation of a pool that leaves a network.
fn leaving(network: &str) -> serde_json::Value {
    json!({"metadata": {"annotations": {LEAVE_NETWORK_ANNOTATION: network}}})
}

fn in_scope(pool: &str, slot: &Slot, claim_ref: serde_json::Value) -> IPReservation {
    serde_json::from_value(json!({
        "metadata": {"name": slot.reservation_name(), "uid": format!("{}-{pool}", slot.reservation_name())},
        "spec": {"scope": slot.scope.name(), "address": slot.block.base().to_string(), "claimRef": claim_ref,
                 "poolRef": {"kind": "InClusterIPPool", "namespace": "n", "name": pool}},
    }))
    .unwrap()
}

fn network_scope() -> Scope {
    Scope::Network("lab".into())
}

fn can_allocate(ledger: &Ledger, name: &str) -> bool {
    ledger
        .pools()
        .pool_info(&named(name))
        .unwrap()
        .can_allocate()
}

/// Two pools that the network selects, with one address in use each.
fn two_members() -> Ledger {
    let mut ledger = ledger();
    ledger.apply_network(&selecting(json!({})));
    for (name, last) in [("p", 1), ("q", 2)] {
        ledger.apply_pool(&labelled(name, Some("a"), json!({})));
        ledger.apply(&in_scope(name, &in_lab(last), held_by(name)));
    }
    ledger
}

/// Both pools are in the network, allocate nothing, and nothing of them is moved.
fn assert_kept(ledger: &mut Ledger, case: &str) {
    for name in ["p", "q"] {
        assert_eq!(scope_of(ledger, name), network_scope(), "{case}: {name}");
        assert!(!can_allocate(ledger, name), "{case}: {name}");
        assert_eq!(
            ledger.propose(&named(name), &claim("x"), 1),
            Outcome::NO_ADDRESS,
            "{case}: {name}"
        );
    }
    assert!(ledger.misplaced(10, |_| true).is_empty(), "{case}");
    let view = ledger.network("lab");
    assert_eq!((view.members.len(), view.reservations), (2, 2), "{case}");
}

#[test]
fn selected_pools_stay_in_a_network_that_is_unusable() {
    let invalid = json!({"metadata": {"generation": 2}, "spec": {"excluded": ["fd00::9-fd00::1"]}});
    let operator =
        json!({"matchExpressions": [{"key": "site", "operator": "Like", "values": ["a"]}]});
    let unreadable = json!({"metadata": {"generation": 3}, "spec": {"pools": operator}});
    let narrowed = json!({"metadata": {"generation": 4}, "spec": {"namespaces": {"from": "None"}}});
    for (case, change) in [
        ("deleting", being_deleted()),
        ("invalid", invalid),
        ("unreadable", unreadable),
        ("narrowed", narrowed),
    ] {
        let mut ledger = two_members();
        ledger.apply_network(&selecting(change));
        assert_kept(&mut ledger, case);
        ledger.apply_network(&selecting(json!({"metadata": {"generation": 5}})));
        assert!(
            can_allocate(&ledger, "p") && can_allocate(&ledger, "q"),
            "{case}: it is usable again"
        );
        remove_network(&mut ledger, "lab");
        assert_kept(&mut ledger, &format!("{case}, then missing"));
    }
}

#[test]
fn network_that_cannot_be_decoded_keeps_its_pools() {
    let mut ledger = two_members();
    let invalid = Invalid {
        spec: serde_json::Value::Null,
        error: "no list".to_owned(),
        metadata: serde_json::from_value(json!({"name": "lab", "uid": "lab"})).unwrap(),
    };
    Observe::<IPNetwork>::apply_invalid(&mut ledger, &invalid);
    assert_kept(&mut ledger, "changed");
    let refusal = info_of(&ledger).unwrap().network_problem.clone();
    assert_eq!(refusal, Some(NetworkRefusal::Invalid("lab".into())));
    // It is listed again, and is not removed.
    Observe::<IPNetwork>::init(&mut ledger);
    Observe::<IPNetwork>::apply_invalid(&mut ledger, &invalid);
    Observe::<IPNetwork>::init_done(&mut ledger);
    assert_eq!(
        info_of(&ledger).unwrap().network_problem,
        Some(NetworkRefusal::Invalid("lab".into()))
    );
}

#[test]
fn namespace_that_loses_its_label_keeps_pools_in_the_network() {
    let mut ledger = two_members();
    set_namespace(
        &mut ledger,
        "n",
        &BTreeMap::from([("tenant".to_owned(), "a".to_owned())]),
    );
    let namespaces = json!({"from": "Selector", "selector": {"matchLabels": {"tenant": "a"}}});
    ledger.apply_network(&selecting(json!({"spec": {"namespaces": namespaces}})));
    assert!(can_allocate(&ledger, "p"));
    set_namespace(&mut ledger, "n", &BTreeMap::new());
    assert_kept(&mut ledger, "another label");
    remove_namespace(&mut ledger, "n");
    assert_kept(&mut ledger, "no namespace");
    // A pool that never was a member is none.
    ledger.apply_pool(&labelled("r", Some("a"), json!({})));
    assert_eq!(scope_of(&ledger, "r"), Scope::Pool(named("r")));
    assert!(can_allocate(&ledger, "r"));
}

#[test]
fn restarted_manager_keeps_pools_in_a_missing_network() {
    let mut ledger = ledger();
    for (name, phase) in [("p", "Member"), ("q", "Joining")] {
        let status = json!({"observedGeneration": 1, "network": {"name": "lab", "phase": phase}});
        ledger.apply_pool(&labelled(name, Some("a"), json!({"status": status})));
    }
    for (name, last) in [("p", 1), ("q", 2)] {
        ledger.apply(&in_scope(name, &in_lab(last), held_by(name)));
    }
    assert_kept(&mut ledger, "missing");
    let status = json!({"observedGeneration": 1, "network": {"name": "lab", "phase": "Leaving"}});
    ledger.apply_pool(&labelled("r", None, json!({"status": status})));
    assert!(can_allocate(&ledger, "r"), "it has left the network");
    // The network exists again with another selector: with addresses in use they stay.
    ledger.apply_network(&selecting(
        json!({"spec": {"pools": {"matchLabels": {"site": "b"}}}}),
    ));
    for name in ["p", "q"] {
        assert_eq!(scope_of(&ledger, name), network_scope());
        assert!(can_allocate(&ledger, name));
    }
    // The way out is an explicit word.
    ledger.apply_pool(&labelled("p", Some("a"), leaving("lab")));
    assert_eq!(scope_of(&ledger, "p"), Scope::Pool(key()));
    assert!(can_allocate(&ledger, "p"));
    assert_eq!(ledger.misplaced(10, |_| true).len(), 1);
}

#[test]
fn pools_restored_before_their_network_do_not_allocate() {
    let restored = labelled("p", Some("a"), json!({}));
    let reservation = in_scope("p", &in_lab(1), held_by("p"));
    for reservation_first in [true, false] {
        let mut ledger = ledger();
        if reservation_first {
            ledger.apply(&reservation);
        }
        ledger.apply_pool(&restored);
        ledger.apply(&reservation);
        assert_eq!(scope_of(&ledger, "p"), network_scope());
        assert!(!can_allocate(&ledger, "p"));
        assert!(ledger.misplaced(10, |_| true).is_empty());
        ledger.apply_network(&selecting(json!({})));
        assert!(can_allocate(&ledger, "p"));
        assert_eq!(
            ledger.propose(&key(), &claim("x"), 1),
            Outcome::Offer(in_lab(2))
        );
    }
    // An exclusion that a user has created in any scope is no evidence.
    let mut ledger = ledger();
    ledger.apply_pool(&restored);
    ledger.apply(&in_scope("p", &in_lab(1), json!(null)));
    assert!(can_allocate(&ledger, "p"));
}

#[test]
fn pools_leave_a_deleted_network_by_an_explicit_change() {
    let mut ledger = two_members();
    ledger.apply_network(&selecting(being_deleted()));
    ledger.apply_pool(&labelled("p", None, json!({})));
    assert_eq!(
        scope_of(&ledger, "p"),
        network_scope(),
        "it has addresses in use"
    );
    ledger.apply_pool(&labelled("p", None, leaving("lab")));
    assert_eq!(scope_of(&ledger, "p"), Scope::Pool(key()));
    assert!(can_allocate(&ledger, "p"));
    assert_eq!(ledger.misplaced(10, |_| true).len(), 1);
    let mut without_selector = being_deleted();
    without_selector["spec"] = json!({"pools": null});
    ledger.apply_network(&selecting(without_selector));
    ledger.delete(&in_scope("q", &in_lab(2), held_by("q")));
    assert_eq!(scope_of(&ledger, "q"), Scope::Pool(named("q")));
    assert_eq!(ledger.network("lab").needed_by, 0);
}

#[test]
fn refused_pool_keeps_addresses_without_a_reservation_in_scope() {
    let mut ledger = two_members();
    // An IPAddress that another provider has created.
    ledger.apply(&address("go", 5));
    assert_eq!(free(&ledger, "q"), 5);
    ledger.apply_network(&selecting(
        json!({"metadata": {"generation": 2}, "spec": {"namespaces": {"from": "None"}}}),
    ));
    let global = json!({"kind": "GlobalInClusterIPPool", "spec": {"network": "lab"},
                        "metadata": {"name": "g", "uid": "g", "namespace": null}});
    ledger.apply_pool(&pool(global));
    let global = PoolKey::new(InClusterKind::GlobalIPPool, None, "g");
    assert_eq!(
        ledger.pools().counts(&global).free,
        5,
        "10.0.0.1, 2 and 5 are in use"
    );
    ledger.apply_network(&selecting(json!({})));
    ledger.apply_network(&selecting(
        json!({"metadata": {"name": "other", "uid": "other"}}),
    ));
    assert!(!can_allocate(&ledger, "p"), "two networks select it");
    assert_eq!(
        (scope_of(&ledger, "p"), ledger.pools().counts(&global).free),
        (network_scope(), 5)
    );
}

/// A pool of prefixes of length 28, with the label of the network or without it.
fn prefixes(site: Option<&str>) -> Pool {
    pool(json!({
        "kind": "InClusterPrefixPool", "metadata": {"name": "r", "uid": "r", "labels": {"site": site}},
        "spec": {"addresses": null, "prefix": null, "prefixes": ["10.9.0.0/24"], "allocationPrefixLength": 28},
    }))
}

fn reserved_prefix(scope: &Scope, last: u8) -> IPReservation {
    let slot = Slot {
        scope: scope.clone(),
        block: Block::new([10, 9, 0, last].into(), 28),
    };
    serde_json::from_value(json!({
        "metadata": {"name": slot.reservation_name(), "uid": slot.reservation_name()},
        "spec": {"scope": scope.name(), "address": format!("10.9.0.{last}"), "prefixLength": 28,
                 "claimRef": held_by(&format!("prefix-{last}")),
                 "poolRef": {"kind": "InClusterPrefixPool", "namespace": "n", "name": "r"}},
    }))
    .unwrap()
}

#[test]
fn pool_with_another_block_length_does_not_join_by_label() {
    let key = PoolKey::new(InClusterKind::PrefixPool, Some("n"), "r");
    let own = Scope::Pool(key.clone());
    let mut ledger = two_members();
    ledger.apply_pool(&prefixes(None));
    (0..4).for_each(|number| ledger.apply(&reserved_prefix(&own, number * 16)));
    ledger.apply_pool(&prefixes(Some("a")));
    assert_eq!(ledger.pools().scope(&key), own);
    assert!(!ledger.pools().pool_info(&key).unwrap().can_allocate());
    assert!(ledger.misplaced(10, |_| true).is_empty());
    let view = ledger.network("lab");
    assert_eq!(
        (view.members.len(), view.reserved_lengths.ipv4),
        (2, Some(32))
    );
    assert!(can_allocate(&ledger, "p"));
    // A pool that names the network, too.
    let mut naming = prefixes(None);
    json_patch_spec(&mut naming, "lab");
    ledger.apply_pool(&naming);
    assert_eq!(ledger.pools().scope(&key), own);
    assert!(ledger.misplaced(10, |_| true).is_empty());
    ledger.apply_pool(&prefixes(None));
    assert!(ledger.pools().pool_info(&key).unwrap().can_allocate());
}

fn json_patch_spec(pool: &mut Pool, network: &str) {
    let mut object = serde_json::to_value(&*pool).unwrap();
    object["spec"]["network"] = json!(network);
    *pool = serde_json::from_value(object).unwrap();
}

#[test]
fn only_pool_recreated_with_another_length_is_not_stuck() {
    let mut ledger = ledger();
    ledger.apply_network(&selecting(
        json!({"status": {"blockLengths": {"ipv4": 32}}}),
    ));
    ledger.apply_pool(&prefixes(Some("a")));
    let view = ledger.network("lab");
    assert!(
        !view.keeps_lengths,
        "its length is that of no pool and no reservation"
    );
    ledger.apply_network(&selecting(json!({"status": null})));
    assert_eq!(ledger.network("lab").oldest_lengths.ipv4, Some(28));
    ledger.apply_network(&selecting(
        json!({"status": {"blockLengths": {"ipv4": 28}}}),
    ));
    let key = PoolKey::new(InClusterKind::PrefixPool, Some("n"), "r");
    assert_eq!(ledger.pools().scope(&key), network_scope());
    assert!(ledger.pools().pool_info(&key).unwrap().can_allocate());
}

proptest! {
    #[test]
    fn state_of_a_network_does_not_depend_on_the_order(order in Just((0..9_usize).collect::<Vec<_>>()).prop_shuffle()) {
        let build = |order: &[usize]| {
            let mut ledger = ledger();
            for step in order {
                match step {
                    0 => ledger.apply_network(&selecting(json!({"status": null}))),
                    1 => ledger.apply_pool(&labelled("p", Some("a"), json!({}))),
                    2 => ledger.apply_pool(&labelled("q", Some("a"), json!({}))),
                    3 => ledger.apply_pool(&prefixes(Some("a"))),
                    4 => ledger.apply(&in_scope("p", &in_lab(1), held_by("p"))),
                    5 => ledger.apply(&in_scope("q", &in_lab(2), held_by("q"))),
                    number => {
                        let last = u8::try_from(*number).unwrap_or_default() * 16;
                        ledger.apply(&reserved_prefix(&network_scope(), last));
                    }
                }
            }
            ledger.network("lab")
        };
        prop_assert_eq!(build(&order), build(&(0..9).collect::<Vec<_>>()));
        prop_assert_eq!(build(&order).reserved_lengths.ipv4, Some(28), "three of five reservations");
    }
}

#[test]
fn change_of_a_network_reaches_all_pools() {
    let mut ledger = ledger();
    ledger.apply_network(&selecting(json!({})));
    let names: Vec<String> = (0..300).map(|number| format!("p{number}")).collect();
    names
        .iter()
        .for_each(|name| ledger.apply_pool(&labelled(name, Some("a"), json!({}))));
    for (change, expected) in [(being_deleted(), 0), (json!({}), 300)] {
        ledger.apply_network(&selecting(change));
        assert_eq!(
            names
                .iter()
                .filter(|name| can_allocate(&ledger, name))
                .count(),
            expected
        );
        assert_eq!(ledger.network("lab").members.len(), 300);
    }
}
