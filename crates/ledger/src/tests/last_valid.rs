//! What was known of an object stays in force until a valid object says otherwise, and a pool that
//! its network refuses takes nothing from others.

use capi_ipam_api::names::LEAVE_NETWORK_ANNOTATION;

use super::*;

/// A pool of the network `lab` with a gateway.
fn with_gateway(name: &str, addresses: &str, gateway: &str, change: serde_json::Value) -> Pool {
    let mut object = json!({
        "metadata": {"name": name, "uid": name},
        "spec": {"addresses": [addresses], "gateway": gateway, "network": "lab"},
    });
    json_patch::merge(&mut object, &change);
    pool(object)
}

/// Two ranges that overlap: a specification that the definition accepts.
fn overlapping() -> serde_json::Value {
    json!({"spec": {"ranges": [{"addresses": ["10.0.0.150-10.0.0.210"], "prefix": 24, "gateway": "10.0.0.3"}]}})
}

fn undecodable(pool: &Pool, spec: serde_json::Value) -> Invalid {
    Invalid {
        spec,
        error: "no text".to_owned(),
        metadata: Box::new(pool.metadata.clone()),
    }
}

fn in_network(pool: &str, last: u8) -> IPReservation {
    let slot = in_lab(last);
    serde_json::from_value(json!({
        "metadata": {"name": slot.reservation_name(), "uid": format!("{}-{pool}", slot.reservation_name())},
        "spec": {"scope": "n.lab", "address": block(last).to_string(), "claimRef": held_by(pool),
                 "poolRef": {"kind": "InClusterIPPool", "namespace": "n", "name": pool}},
    }))
    .unwrap()
}

/// Pool `p` contains 10.0.0.1 to 8, and pool `q` has the gateway 10.0.0.1.
fn network_with_gateway() -> Ledger {
    let mut ledger = with_lab();
    ledger.apply_pool(&with_gateway(
        "q",
        "10.0.0.100-10.0.0.200",
        "10.0.0.1",
        json!({}),
    ));
    ledger.apply_pool(&member("p", "10.0.0.1-10.0.0.8"));
    assert_eq!(free(&ledger, "p"), 7);
    ledger
}

#[test]
fn gateway_of_an_invalid_pool_is_not_allocated() {
    let mut ledger = network_with_gateway();
    ledger.apply_pool(&with_gateway(
        "q",
        "10.0.0.100-10.0.0.200",
        "10.0.0.1",
        overlapping(),
    ));
    assert!(
        ledger
            .pools()
            .pool_info(&named("q"))
            .unwrap()
            .usable
            .is_err()
    );
    assert_eq!(free(&ledger, "p"), 7, "not valid");
    let object = with_gateway("q", "10.0.0.100-10.0.0.200", "10.0.0.1", json!({}));
    ledger.apply_invalid_pool(&named("q"), &undecodable(&object, json!({})));
    assert_eq!(free(&ledger, "p"), 7, "not decodable");
    ledger.apply_pool(&with_gateway(
        "q",
        "10.0.0.100-10.0.0.200",
        "10.0.0.2",
        json!({}),
    ));
    assert_eq!(free(&ledger, "p"), 7, "another gateway");
    assert_eq!(
        ledger.propose(&key(), &claim("a"), 1),
        Outcome::Offer(in_lab(1))
    );
}

#[test]
fn readable_gateways_count_after_a_restart() {
    let status =
        json!({"status": {"observedGeneration": 1, "network": {"name": "lab", "phase": "Member"}}});
    let mut change = overlapping();
    json_patch::merge(&mut change, &status);
    let invalid = with_gateway("q", "10.0.0.100-10.0.0.200", "10.0.0.1", change);
    let mut started = ledger();
    started.apply_network(&lab(json!({})));
    started.apply_pool(&invalid);
    started.apply_pool(&member("p", "10.0.0.1-10.0.0.8"));
    assert_eq!(free(&started, "p"), 6, "10.0.0.1 and 10.0.0.3");

    let mut started = ledger();
    started.apply_network(&lab(json!({})));
    started.apply(&in_network("q", 101));
    let spec = json!({"gateway": "10.0.0.1", "network": 5});
    started.apply_invalid_pool(&named("q"), &undecodable(&invalid, spec));
    started.apply_pool(&member("p", "10.0.0.1-10.0.0.8"));
    assert_eq!(free(&started, "p"), 7);
}

#[test]
fn gateways_of_a_deleted_pool_count_while_it_is_in_use() {
    let mut ledger = network_with_gateway();
    ledger.apply(&in_network("q", 101));
    ledger.remove_pool(&named("q"));
    assert_eq!(free(&ledger, "p"), 7, "its machines use the gateway");
    ledger.delete(&in_network("q", 101));
    assert_eq!(free(&ledger, "p"), 8);
}

#[test]
fn exclusions_of_an_invalid_network_stay() {
    let mut ledger = ledger();
    let excluding = |generation: i64, entries: serde_json::Value| {
        lab(json!({"metadata": {"generation": generation}, "spec": {"excluded": entries}}))
    };
    ledger.apply_network(&excluding(1, json!(["10.0.0.5"])));
    ledger.apply_pool(&member("p", "10.0.0.1-10.0.0.8"));
    assert_eq!(free(&ledger, "p"), 7);
    ledger.apply_network(&excluding(2, json!(["10.0.0.x"])));
    assert_eq!(free(&ledger, "p"), 7, "not valid");
    let invalid = Invalid {
        spec: json!({}),
        error: "no list".to_owned(),
        metadata: Box::new(excluding(3, json!([])).metadata),
    };
    Observe::<IPNetwork>::apply_invalid(&mut ledger, &invalid);
    assert_eq!(free(&ledger, "p"), 7, "not decodable");
    ledger.apply_network(&excluding(4, json!([])));
    assert_eq!(free(&ledger, "p"), 8);
    // At a start, what can be read is excluded.
    let mut started = super::ledger();
    started.apply_network(&excluding(2, json!(["10.0.0.x", "10.0.0.6"])));
    started.apply(&in_network("p", 101));
    started.apply_pool(&member("p", "10.0.0.1-10.0.0.8"));
    assert_eq!(free(&started, "p"), 7);
}

#[test]
fn refused_pool_excludes_no_gateways() {
    let denied = json!({"metadata": {"generation": 2}, "spec": {"namespaces": {"from": "None"}}});
    for is_in_use in [false, true] {
        let mut ledger = network_with_gateway();
        if is_in_use {
            ledger.apply(&in_network("q", 101));
        }
        // A global pool is always allowed.
        let global = json!({"kind": "GlobalInClusterIPPool", "spec": {"network": "lab"},
                            "metadata": {"name": "g", "uid": "g", "namespace": null}});
        ledger.apply_pool(&pool(global));
        let global = PoolKey::new(InClusterKind::GlobalIPPool, None, "g");
        assert_eq!(ledger.pools().counts(&global).free, 7);
        ledger.apply_network(&lab(denied.clone()));
        let after = if is_in_use { 7 } else { 8 };
        assert_eq!(
            ledger.pools().counts(&global).free,
            after,
            "in use: {is_in_use}"
        );
        // Its owner cannot take further addresses from the others.
        let gateways = json!({"spec": {"gateway": "10.0.0.2", "ranges": [
            {"addresses": ["10.9.0.1"], "prefix": 24, "gateway": "10.0.0.3"}]}});
        ledger.apply_pool(&with_gateway(
            "q",
            "10.0.0.100-10.0.0.200",
            "10.0.0.1",
            gateways,
        ));
        assert_eq!(
            ledger.pools().counts(&global).free,
            after,
            "in use: {is_in_use}"
        );
        if is_in_use {
            ledger.delete(&in_network("q", 101));
        }
        assert_eq!(
            ledger.pools().counts(&global).free,
            8,
            "in use: {is_in_use}"
        );
        ledger.apply_network(&lab(json!({"metadata": {"generation": 3}})));
        assert_eq!(ledger.pools().counts(&global).free, 6, "accepted again");
    }
}

#[test]
fn refused_pool_counts_for_no_lengths_and_counts() {
    let mut ledger = ledger();
    ledger.apply_network(&lab(json!({"spec": {"namespaces": {"from": "None"}}})));
    let status = json!({"observedGeneration": 1, "network": {"name": "lab", "phase": "Member"}});
    ledger.apply_pool(&pool(json!({"spec": {"network": "lab"}, "status": status})));
    let info = info_of(&ledger).unwrap();
    assert_eq!(
        info.network_problem,
        Some(NetworkRefusal::NotAllowed("lab".into()))
    );
    let view = ledger.network("lab");
    assert_eq!((view.total, view.free), (0, 0));
    assert!(!view.keeps_lengths && !view.is_used(), "{view:?}");
    assert_eq!(view.oldest_lengths.ipv4, None);
}

#[test]
fn undecodable_address_stays_in_use() {
    let mut ledger = with_pool();
    let invalid = |spec: serde_json::Value| Invalid {
        spec,
        error: "no number".to_owned(),
        metadata: Box::new(address("a", 1).metadata),
    };
    let readable = json!({"address": "10.0.0.1", "prefix": "x", "poolRef":
        {"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "p"}});
    Observe::<IPAddress>::apply_invalid(&mut ledger, &invalid(readable));
    assert_eq!(counts(&ledger), (8, 7, 1, 0));
    // A later list shows it in a state of which nothing can be read.
    Observe::<IPAddress>::init(&mut ledger);
    Observe::<IPAddress>::apply_invalid(&mut ledger, &invalid(json!({})));
    Observe::<IPAddress>::init_done(&mut ledger);
    assert_eq!(counts(&ledger), (8, 7, 1, 0));
    Observe::<IPAddress>::delete_invalid(&mut ledger, &invalid(json!({})));
    assert_eq!(counts(&ledger), (8, 8, 0, 0));
}

#[test]
fn slices_of_an_invalid_pool_are_not_returned() {
    let sliced = |change: serde_json::Value| {
        let mut object = json!({"spec": {"slices": {"size": 4, "per": "Namespace"}}});
        json_patch::merge(&mut object, &change);
        pool(object)
    };
    let retention = |ledger: &Ledger| ledger.slices().first().unwrap().retention;
    let slice: capi_ipam_api::IPSlice = serde_json::from_value(json!({
        "metadata": {"name": "p.n.p.10.0.0.0-30", "uid": "s"},
        "spec": {"scope": "p.n.p", "block": "10.0.0.0/30", "owner": {"kind": "Namespace", "name": "a"},
                 "emptySince": "2026-01-01T00:00:00Z"},
    }))
    .unwrap();
    let mut running = ledger();
    running.apply_pool(&sliced(json!({})));
    running.apply(&slice);
    assert_eq!(retention(&running), SliceRetention::Owner);
    let ranges = json!([{"addresses": ["10.0.0.5-10.0.0.20"], "prefix": 24}]);
    running.apply_pool(&sliced(json!({"spec": {"ranges": ranges}})));
    assert!(info_of(&running).unwrap().usable.is_err());
    assert_eq!(retention(&running), SliceRetention::Owner);
    let object = sliced(json!({}));
    running.apply_invalid_pool(&key(), &undecodable(&object, json!({})));
    assert_eq!(retention(&running), SliceRetention::Owner);
    running.apply_pool(&pool(json!({})));
    assert_eq!(retention(&running), SliceRetention::None);

    let mut started = ledger();
    started.apply(&slice);
    started.apply_invalid_pool(&key(), &undecodable(&object, json!({})));
    assert_eq!(retention(&started), SliceRetention::Unknown);
}

#[test]
fn pool_in_use_that_loses_its_fields_stays_in_its_network() {
    let mut ledger = with_lab();
    let versioned = |generation: i64, version: &str, network: serde_json::Value| {
        let metadata = json!({"generation": generation, "resourceVersion": version});
        pool(json!({"metadata": metadata, "spec": {"network": network}}))
    };
    ledger.apply_pool(&versioned(1, "10", json!("lab")));
    ledger.apply(&in_network("p", 1));
    ledger.apply_pool(&versioned(2, "11", json!(null)));
    let kept = info_of(&ledger).unwrap();
    assert_eq!(kept.scope, Scope::Network("lab".into()));
    assert!(kept.is_kept_in_network && kept.can_allocate(), "{kept:?}");
    assert_eq!(
        kept.removed_fields.names().collect::<Vec<_>>(),
        ["spec.network"]
    );
    // Nothing of it is in use any more.
    ledger.delete(&in_network("p", 1));
    let left = info_of(&ledger).unwrap();
    assert_eq!(left.scope, Scope::Pool(key()));
    assert!(!left.is_kept_in_network);
}

#[test]
fn annotation_lets_a_pool_in_use_leave_its_network() {
    let mut ledger = with_lab();
    ledger.apply_pool(&member("p", "10.0.0.1-10.0.0.8"));
    ledger.apply(&in_network("p", 1));
    let annotated = |network: &str| {
        pool(json!({"metadata": {"uid": "p", "annotations": {LEAVE_NETWORK_ANNOTATION: network}}}))
    };
    ledger.apply_pool(&annotated("other"));
    assert_eq!(scope_of(&ledger, "p"), Scope::Network("lab".into()));
    ledger.apply_pool(&annotated("lab"));
    assert_eq!(scope_of(&ledger, "p"), Scope::Pool(key()));
    assert_eq!(ledger.misplaced(10, |_| true).len(), 1);
}

#[test]
fn definition_without_fields_opens_nothing() {
    let mut ledger = with_lab();
    let metadata = json!({"generation": 1, "resourceVersion": "10"});
    ledger.apply_pool(&pool(
        json!({"metadata": metadata, "spec": {"network": "lab", "draining": ["10.0.0.8"]}}),
    ));
    // It is listed with fewer fields, and has had another status since.
    let listed = json!({"generation": 1, "resourceVersion": "11"});
    ledger.apply_pool(&pool(json!({"metadata": listed})));
    assert!(ledger.networks().have_definitions_problem());
    let info = info_of(&ledger).unwrap();
    assert_eq!(info.scope, Scope::Network("lab".into()));
    assert!(!info.can_allocate() && info.is_draining, "{info:?}");
    // Nor does an edit while the field is missing, of a pool without addresses in use.
    let edited = json!({"generation": 2, "resourceVersion": "12"});
    ledger.apply_pool(&pool(json!({"metadata": edited})));
    assert_eq!(scope_of(&ledger, "p"), Scope::Network("lab".into()));
    // A pool that shows no network may have lost its name.
    ledger.apply_pool(&pool(json!({"metadata": {"name": "q", "uid": "q"}})));
    let unnamed = ledger.pools().pool_info(&named("q")).unwrap();
    let problem = unnamed.network_problem.clone();
    assert!(
        matches!(problem, Some(NetworkRefusal::DefinitionOutdated(_))),
        "{problem:?}"
    );
    ledger.set_definitions_problem(None);
    assert!(
        ledger
            .pools()
            .pool_info(&named("q"))
            .unwrap()
            .can_allocate()
    );
}

#[test]
fn network_without_its_fields_opens_nothing() {
    let mut ledger = ledger();
    let shown = |version: &str, spec: serde_json::Value| {
        lab(json!({"metadata": {"generation": 1, "resourceVersion": version}, "spec": spec}))
    };
    ledger.apply_network(&shown("10", json!({"excluded": ["10.0.0.1"]})));
    ledger.apply_pool(&member("p", "10.0.0.1-10.0.0.8"));
    ledger.apply_network(&shown("11", json!({})));
    assert!(ledger.networks().have_definitions_problem());
    assert_eq!(free(&ledger, "p"), 7);
}
