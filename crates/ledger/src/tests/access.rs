//! Limits, allowed namespaces and headroom of global pools.

use capi_ipam_api::{InClusterKind, names};
use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};

use super::*;

fn global() -> PoolKey {
    PoolKey::new(InClusterKind::GlobalIPPool, None, "shared")
}

fn apply(ledger: &mut Ledger, generation: i64, access: &Value) {
    let mut pool = json!({
        "kind": "GlobalInClusterIPPool",
        "metadata": {"name": "shared", "uid": "u", "generation": generation, "finalizers": [names::PROTECT_POOL]},
        "spec": {"addresses": ["10.0.0.1-10.0.0.9"], "prefix": 24},
    });
    json_patch::merge(&mut pool, &json!({"spec": access}));
    ledger.apply_pool(&serde_json::from_value(pool).unwrap());
}

fn key_of(namespace: &str, name: &str) -> NamespacedName {
    NamespacedName::new(namespace, name)
}

fn reservation_of(
    number: u8,
    namespace: &str,
    name: &str,
    cluster: Option<&str>,
    version: u32,
) -> IPReservation {
    let object = json!({
        "metadata": {"name": format!("g.shared.10.0.0.{number}"), "uid": format!("r-{number}"),
                     "resourceVersion": version.to_string()},
        "spec": {"scope": "g.shared", "address": format!("10.0.0.{number}"),
                 "poolRef": {"kind": "GlobalInClusterIPPool", "name": "shared"},
                 "claimRef": {"namespace": namespace, "name": name, "uid": format!("uid-{name}"), "cluster": cluster}},
    });
    serde_json::from_value(object).unwrap()
}

fn address_of(number: u8, namespace: &str, name: &str, cluster: Option<&str>) -> IPAddress {
    let labels = cluster.map(|cluster| json!({"cluster.x-k8s.io/cluster-name": cluster}));
    let object = json!({
        "metadata": {"namespace": namespace, "name": name, "labels": labels},
        "spec": {"address": format!("10.0.0.{number}"), "prefix": 24, "claimRef": {"name": name},
                 "poolRef": {"apiGroup": names::GROUP, "kind": "GlobalInClusterIPPool", "name": "shared"}},
    });
    serde_json::from_value(object).unwrap()
}

fn slot_of(number: u8) -> Slot {
    Slot {
        scope: Scope::Pool(global()),
        block: Block::address([10, 0, 0, number].into()),
    }
}

fn in_cluster(cluster: &str) -> ClaimAttributes {
    ClaimAttributes {
        priority: 1,
        cluster: Some(cluster.into()),
        ..ClaimAttributes::default()
    }
}

fn check(ledger: &mut Ledger, number: u8, namespace: &str, name: &str) -> LimitCheck {
    ledger.check_limits(
        &global(),
        &slot_of(number),
        &key_of(namespace, name),
        Uid::of(&format!("uid-{name}")),
    )
}

#[test]
fn claims_beyond_a_limit_wait_until_an_address_is_released() {
    let mut ledger = ledger();
    apply(
        &mut ledger,
        1,
        &json!({"limits": {"perNamespace": 2, "perCluster": 1}}),
    );
    let propose = |ledger: &mut Ledger, namespace: &str, name: &str, cluster: &str| {
        ledger.propose(&global(), &key_of(namespace, name), in_cluster(cluster))
    };
    assert_eq!(
        propose(&mut ledger, "a", "c1", "one"),
        Outcome::Offer(slot_of(1))
    );
    let limit = LimitReached {
        limit: 1,
        cluster: Some("one".into()),
    };
    assert_eq!(
        propose(&mut ledger, "a", "c2", "one"),
        Outcome::NotNow(Reason::LimitReached(limit)),
        "the first proposal counts"
    );
    assert_eq!(
        propose(&mut ledger, "a", "c3", "two"),
        Outcome::Offer(slot_of(2))
    );
    let limit = LimitReached {
        limit: 2,
        cluster: None,
    };
    assert_eq!(
        propose(&mut ledger, "a", "c4", "three"),
        Outcome::NotNow(Reason::LimitReached(limit))
    );
    assert_eq!(
        propose(&mut ledger, "b", "c5", "one"),
        Outcome::Offer(slot_of(3)),
        "another namespace"
    );
    let first = reservation_of(1, "a", "c1", Some("one"), 5);
    ledger.insert_reservation(&first);
    assert!(take(&mut ledger).is_empty());
    ledger.delete(&first);
    assert_eq!(take(&mut ledger), [key_of("a", "c2")]);
    assert_eq!(
        propose(&mut ledger, "a", "c2", "one"),
        Outcome::Offer(slot_of(1))
    );
}

/// At a start, the IPAddresses and reservations of a pool can be listed before the pool.
#[test]
fn limit_counts_addresses_that_are_listed_before_the_pool() {
    let mut ledger = with_lab();
    let mut held = reservation_of(1, "a", "c1", None, 5);
    held.metadata.name = Some(in_lab(1).reservation_name());
    held.spec.scope = "n.lab".to_owned();
    ledger.apply(&held);
    Observe::<IPAddress>::apply(&mut ledger, &address_of(1, "a", "c1", None));
    apply(
        &mut ledger,
        1,
        &json!({"network": "lab", "limits": {"perNamespace": 1}}),
    );
    let limit = LimitReached {
        limit: 1,
        cluster: None,
    };
    assert_eq!(
        ledger.propose(&global(), &key_of("a", "c2"), 1),
        Outcome::NotNow(Reason::LimitReached(limit))
    );
}

/// A user who promises addresses does not use up the limit of the namespace, until its claims have
/// them.
#[test]
fn promise_counts_when_its_claim_has_the_address() {
    let mut ledger = ledger();
    apply(&mut ledger, 1, &json!({"limits": {"perNamespace": 1}}));
    let mut promise = reservation_of(1, "a", "vip", None, 1);
    promise.spec.claim_ref.as_mut().unwrap().uid = None;
    ledger.apply(&promise);
    let propose = |ledger: &mut Ledger, name: &str| {
        ledger.propose(&global(), &key_of("a", name), in_cluster("one"))
    };
    let Outcome::Offer(slot) = propose(&mut ledger, "one") else {
        panic!("the promise takes the quota")
    };
    ledger.drop_candidate(&slot);
    let vip = address_of(1, "a", "vip", None);
    Observe::<IPAddress>::apply(&mut ledger, &vip);
    assert!(matches!(
        propose(&mut ledger, "two"),
        Outcome::NotNow(Reason::LimitReached(LimitReached { limit: 1, .. }))
    ));
    Observe::<IPAddress>::delete(&mut ledger, &vip);
    assert!(matches!(propose(&mut ledger, "two"), Outcome::Offer(_)));
}

#[test]
fn tightened_limit_keeps_addresses_and_reports_them() {
    let mut ledger = ledger();
    apply(&mut ledger, 1, &json!({}));
    for number in 1..=4 {
        ledger.insert_reservation(&reservation_of(
            number,
            "a",
            &format!("c{number}"),
            None,
            number.into(),
        ));
    }
    assert_eq!(over_limit(&ledger, &global()), None);
    let rules = json!({"limits": {"perNamespace": 3}, "allowedNamespaces": {"from": "Names", "names": ["b"]}});
    apply(&mut ledger, 2, &rules);
    assert_eq!(
        over_limit(&ledger, &global()),
        Some(OverLimit {
            groups: 1,
            addresses: 1,
            not_allowed: 4
        })
    );
    let is_allowed = |ledger: &mut Ledger, namespace: &str| {
        ledger.is_allowed_or_waits(&global(), &key_of(namespace, "c"))
    };
    assert!(!is_allowed(&mut ledger, "a") && is_allowed(&mut ledger, "b"));
    let is_limited = |ledger: &mut Ledger, name: &str| {
        matches!(
            ledger.propose(&global(), &key_of("a", name), 1),
            Outcome::NotNow(Reason::LimitReached(_))
        )
    };
    assert!(is_limited(&mut ledger, "x"));
    apply(&mut ledger, 3, &json!({"limits": {"perNamespace": 5}}));
    let reconciled = take(&mut ledger);
    assert!(
        reconciled.contains(&key_of("a", "x")) && reconciled.contains(&key_of("a", "c")),
        "{reconciled:?}"
    );
    assert!(!is_limited(&mut ledger, "x") && is_limited(&mut ledger, "y"));
}

#[test]
fn order_of_reservations_decides_between_managers() {
    let mut ledger = ledger();
    apply(&mut ledger, 1, &json!({"limits": {"perNamespace": 1}}));
    // Another manager has reserved .2 before, but its watch event arrives after our response.
    let (ours, other) = (
        reservation_of(1, "a", "ours", None, 11),
        reservation_of(2, "a", "other", None, 10),
    );
    ledger.insert_reservation(&ours);
    assert_eq!(check(&mut ledger, 1, "a", "ours"), LimitCheck::Unknown);
    take(&mut ledger);
    Observe::<IPReservation>::apply(&mut ledger, &other);
    assert_eq!(take(&mut ledger), []);
    Observe::<IPReservation>::apply(&mut ledger, &ours);
    assert_eq!(
        take(&mut ledger),
        [key_of("a", "ours")],
        "it is checked now"
    );
    assert_eq!(check(&mut ledger, 2, "a", "other"), LimitCheck::Within);
    assert!(matches!(
        check(&mut ledger, 1, "a", "ours"),
        LimitCheck::Exceeded(_)
    ));
    take(&mut ledger);
    Observe::<IPReservation>::delete(&mut ledger, &other);
    assert_eq!(take(&mut ledger), [key_of("a", "ours")]);
    assert_eq!(check(&mut ledger, 1, "a", "ours"), LimitCheck::Within);
}

#[test]
fn limits_are_not_checked_during_a_list() {
    let mut ledger = ledger();
    apply(&mut ledger, 1, &json!({"limits": {"perNamespace": 1}}));
    Observe::<IPReservation>::init(&mut ledger);
    Observe::<IPReservation>::apply(&mut ledger, &reservation_of(1, "a", "c", None, 3));
    assert_eq!(
        check(&mut ledger, 1, "a", "c"),
        LimitCheck::Unknown,
        "an earlier one may follow"
    );
    take(&mut ledger);
    Observe::<IPReservation>::init_done(&mut ledger);
    assert_eq!(take(&mut ledger), [key_of("a", "c")]);
    assert_eq!(check(&mut ledger, 1, "a", "c"), LimitCheck::Within);
}

#[test]
fn labelled_namespace_wakes_its_claims() {
    let mut ledger = ledger();
    let selector = json!({"matchLabels": {"tenant": "platform"}});
    apply(
        &mut ledger,
        1,
        &json!({"allowedNamespaces": {"from": "Selector", "selector": selector}}),
    );
    let is_allowed = |ledger: &mut Ledger, namespace: &str| {
        ledger.is_allowed_or_waits(&global(), &key_of(namespace, "c"))
    };
    assert!(!is_allowed(&mut ledger, "a") && !is_allowed(&mut ledger, "b"));
    take(&mut ledger);
    let namespace = json!({"metadata": {"name": "a", "labels": {"tenant": "platform"}}});
    Observe::<Namespace>::apply(&mut ledger, &serde_json::from_value(namespace).unwrap());
    assert_eq!(take(&mut ledger), [key_of("a", "c")]);
    assert!(is_allowed(&mut ledger, "a") && !is_allowed(&mut ledger, "b"));
}

#[test]
fn headroom_is_for_selected_claims() {
    let mut ledger = ledger();
    let selector = json!({"matchLabels": {"role": "control-plane"}});
    apply(
        &mut ledger,
        1,
        &json!({"headroom": {"addresses": 8, "for": selector}}),
    );
    assert_eq!(
        ledger.propose(&global(), &key_of("a", "worker"), 1),
        Outcome::Offer(slot_of(1))
    );
    assert_eq!(
        ledger.propose(&global(), &key_of("a", "late-worker"), 1),
        Outcome::NO_ADDRESS
    );
    let selected = ClaimAttributes {
        priority: 2,
        uses_headroom: true,
        ..ClaimAttributes::default()
    };
    assert_eq!(
        ledger.propose(&global(), &key_of("a", "first"), selected),
        Outcome::Offer(slot_of(2))
    );
}

#[test]
fn cluster_of_an_address_counts_without_that_of_its_reservation() {
    let mut ledger = ledger();
    apply(&mut ledger, 1, &json!({"limits": {"perCluster": 1}}));
    ledger.insert_reservation(&reservation_of(1, "a", "old", None, 1));
    let attributes = in_cluster("one");
    assert!(matches!(
        ledger.propose(&global(), &key_of("a", "x"), attributes.clone()),
        Outcome::Offer(_)
    ));
    ledger.drop_candidate(&slot_of(2));
    Observe::<IPAddress>::apply(&mut ledger, &address_of(1, "a", "old", Some("one")));
    let limit = LimitReached {
        limit: 1,
        cluster: Some(Arc::from("one")),
    };
    assert_eq!(
        ledger.propose(&global(), &key_of("a", "y"), attributes),
        Outcome::NotNow(Reason::LimitReached(limit))
    );
}

#[test]
fn deleted_claims_do_not_wait_for_permission() {
    let mut ledger = ledger();
    apply(
        &mut ledger,
        1,
        &json!({"allowedNamespaces": {"from": "None"}}),
    );
    assert!(!ledger.is_allowed_or_waits(&global(), &key_of("a", "c")));
    ledger.prune_wait_queues(|_| false);
    ledger.remove_pool(&global());
    assert_eq!(
        ledger.pools.iter().count(),
        0,
        "no claim waits for the pool"
    );
}
