//! Who may use a global pool: allowed namespaces, limits and headroom.

use support::prelude::*;

use crate::{consumer, environment};

const KIND: &str = "GlobalInClusterIPPool";

async fn create_pool(consumer: &Consumer, size: u8, access: Value) -> String {
    let pool = unique("shared");
    let mut spec = json!({"addresses": [format!("10.0.0.1-10.0.0.{size}")], "prefix": 24});
    json_patch::merge(&mut spec, &access);
    consumer.create_global_pool(&pool, spec).await;
    pool
}

async fn set_access(consumer: &Consumer, pool: &str, access: Value) {
    consumer
        .modify(&consumer.global_pools(), pool, |object| {
            json_patch::merge(&mut object["spec"], &access)
        })
        .await;
}

async fn pool_condition(consumer: &Consumer, pool: &str, status: &str, reason: &str) -> String {
    consumer
        .wait_for_condition(&consumer.global_pools(), pool, "OverLimit", status, reason)
        .await
}

/// Waits until the namespace has exactly these numbers of bound claims and of claims that wait for
/// a limit.
async fn wait_for_claims(consumer: &Consumer, bound: usize, waiting: usize) {
    let expected = BTreeMap::from([
        ("AddressAllocated".to_owned(), bound),
        ("QuotaExceeded".to_owned(), waiting),
    ]);
    until_within(
        Duration::from_mins(3),
        &format!("the claims report {expected:?}"),
        || async {
            let mut reasons = BTreeMap::<String, usize>::new();
            for claim in consumer.claims().list().await.ok()? {
                *reasons
                    .entry(ready(&claim).reason.unwrap_or_default().into_owned())
                    .or_default() += 1;
            }
            Some(reasons == expected)
        },
    )
    .await;
}

#[tokio::test]
async fn claims_beyond_a_limit_wait_and_delay_no_other_namespace() {
    let (one, two) = (consumer().await, consumer().await);
    let pool = create_pool(&one, 40, json!({"limits": {"perNamespace": 10}})).await;
    let names: Vec<_> = numbered("c", 32);
    one.create_global_claims(&names, &pool).await;
    wait_for_claims(&one, 10, 22).await;
    two.bind_global("a", &pool).await;
    let claims = one.claims().list().await.expect("claims can be read");
    let (bound, waiting): (Vec<_>, Vec<_>) = claims
        .iter()
        .partition(|claim| claim.bound_address().is_some());
    let waiting = waiting
        .first()
        .and_then(|claim| claim.metadata.name.as_deref())
        .expect("some claims wait");
    let text = one.wait_for_reason(waiting, "QuotaExceeded").await;
    assert!(
        text.contains("spec.limits.perNamespace") && text.contains(&pool),
        "{text}"
    );
    one.wait_for_event(waiting, "Warning", "QuotaExceeded", "")
        .await;
    let bound = bound
        .first()
        .and_then(|claim| claim.metadata.name.as_deref())
        .expect("some claims are bound");
    one.release(bound).await;
    wait_for_claims(&one, 10, 21).await;
    assert_eq!(one.allocated_addresses().await.len(), 10);
}

/// Only administrators can promise an address, so neither the limits nor the allowed namespaces
/// apply to it.
#[tokio::test]
async fn promise_is_kept_beyond_the_rules_and_takes_no_quota() {
    let consumer = consumer().await;
    let pool = create_pool(&consumer, 9, json!({"limits": {"perNamespace": 1}})).await;
    let promises = ["vip-1", "vip-2"].map(|name| {
        let address = if name == "vip-1" { "10.0.0.5" } else { "10.0.0.6" };
        json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "IPReservation",
            "metadata": {"name": format!("g.{pool}.{address}")},
            "spec": {"scope": format!("g.{pool}"), "address": address, "poolRef": {"kind": KIND, "name": pool},
                     "claimRef": {"namespace": consumer.namespace, "name": name}},
        })
    });
    for promise in promises {
        create(&consumer.reservations(), &object(promise))
            .await
            .expect("the reservation can be created");
    }
    // Promises without claims count for no limit.
    consumer.bind_global("first", &pool).await;
    consumer.create_global_claim("vip-1", &pool).await;
    assert_eq!(
        consumer.wait_for_address("vip-1").await,
        "10.0.0.5",
        "the limit does not apply"
    );
    set_access(
        &consumer,
        &pool,
        json!({"allowedNamespaces": {"from": "None"}}),
    )
    .await;
    consumer.create_global_claim("vip-2", &pool).await;
    assert_eq!(
        consumer.wait_for_address("vip-2").await,
        "10.0.0.6",
        "the allowed namespaces do not apply"
    );
    set_access(&consumer, &pool, json!({"allowedNamespaces": null})).await;
    assert_contains(
        &consumer
            .global_claim_waits("last", &pool, "QuotaExceeded")
            .await,
        "spec.limits.perNamespace",
    );
}

#[tokio::test]
async fn clusters_of_a_namespace_have_their_own_limit() {
    let consumer = consumer().await;
    let pool = create_pool(&consumer, 9, json!({"limits": {"perCluster": 1}})).await;
    for cluster in ["one", "two"] {
        consumer.create_cluster(cluster, false).await;
        let of_cluster = json!({"clusterName": cluster});
        consumer
            .create_claim_with(&format!("{cluster}-1"), KIND, &pool, of_cluster.clone())
            .await;
        consumer.wait_for_address(&format!("{cluster}-1")).await;
        consumer
            .create_claim_with(&format!("{cluster}-2"), KIND, &pool, of_cluster)
            .await;
        assert_contains(
            &consumer
                .wait_for_reason(&format!("{cluster}-2"), "QuotaExceeded")
                .await,
            &format!(
                "Cluster {cluster} uses 1 of 1 addresses that the pool allows each Cluster (spec.limits.perCluster)"
            ),
        );
    }
    consumer.bind_global("without-cluster", &pool).await;
    consumer.release("one-1").await;
    consumer.wait_for_address("one-2").await;
    let name = format!("g.{pool}.{}", consumer.allocated_addresses().await["one-2"]);
    let reservation = read(&consumer.reservations(), &name).await;
    assert_eq!(
        reservation
            .spec
            .claim_ref
            .and_then(|claim| claim.cluster)
            .as_deref(),
        Some("one")
    );
}

#[tokio::test]
async fn tightened_rules_take_no_address_back() {
    let consumer = consumer().await;
    let pool = create_pool(&consumer, 9, json!({})).await;
    for name in ["a", "b", "c"] {
        consumer.bind_global(name, &pool).await;
    }
    let before = consumer.allocated_addresses().await;
    set_access(&consumer, &pool, json!({"limits": {"perNamespace": 1}})).await;
    let text = pool_condition(&consumer, &pool, "True", "LimitsExceeded").await;
    assert_contains(&text, "1 namespace or Cluster has 2 addresses more");
    assert!(
        !text.contains(&consumer.namespace),
        "everybody may read global pools: {text}"
    );
    set_access(
        &consumer,
        &pool,
        json!({"limits": null, "allowedNamespaces": {"from": "None"}}),
    )
    .await;
    until("the pool reports the namespace", async || {
        let text = pool_condition(&consumer, &pool, "True", "LimitsExceeded").await;
        Some(
            text.contains(
                "3 addresses are in namespaces that spec.allowedNamespaces does not allow",
            ),
        )
    })
    .await;
    assert_contains(
        &consumer
            .global_claim_waits("d", &pool, "PoolNotAllowed")
            .await,
        "spec.allowedNamespaces",
    );
    assert_eq!(consumer.allocated_addresses().await, before);
    // A bound claim whose IPAddress is lost gets it again.
    consumer.force_delete(&consumer.addresses(), "a").await;
    until("the IPAddress is restored", async || {
        Some(consumer.allocated_addresses().await.get("a") == before.get("a"))
    })
    .await;
    set_access(&consumer, &pool, json!({"allowedNamespaces": null})).await;
    consumer.wait_for_address("d").await;
    until("the condition is removed", async || {
        let pool = consumer.global_pools().get(&pool).await.ok()??;
        let conditions = pool.status?.conditions;
        Some(
            conditions
                .iter()
                .all(|condition| condition.type_ != "OverLimit"),
        )
    })
    .await;
}

#[tokio::test]
async fn labelled_namespace_may_use_the_pool() {
    let consumer = consumer().await;
    let selector = json!({"matchLabels": {"tenant": consumer.namespace}});
    let rules = json!({"allowedNamespaces": {"from": "Selector", "selector": selector}});
    let pool = create_pool(&consumer, 9, rules).await;
    consumer
        .global_claim_waits("a", &pool, "PoolNotAllowed")
        .await;
    let label = format!("tenant={}", consumer.namespace);
    environment()
        .control_plane
        .kubectl(&["label", "namespace", &consumer.namespace, &label]);
    consumer.wait_for_address("a").await;
}

#[tokio::test]
async fn headroom_is_left_for_control_planes() {
    let consumer = consumer().await;
    let role = "cluster.x-k8s.io/control-plane";
    let headroom = json!({"headroom": {"addresses": 2, "for": {"matchExpressions": [
        {"key": role, "operator": "Exists"},
    ]}}});
    let pool = create_pool(&consumer, 3, headroom).await;
    consumer.bind_global("worker-1", &pool).await;
    assert_contains(
        &consumer
            .global_claim_waits("worker-2", &pool, "PoolExhausted")
            .await,
        "2 free addresses, which are only for the claims that its spec.headroom selects",
    );
    consumer
        .create_claim_with("labelled", KIND, &pool, json!({"labels": {role: ""}}))
        .await;
    consumer.wait_for_address("labelled").await;
    // A claim without the label uses the headroom if its Machine, which has the name of the owner,
    // has the label.
    let machine = object(json!({
        "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
        "metadata": {"name": "cp-2", "namespace": consumer.namespace, "labels": {role: ""}},
        "spec": {"clusterName": "alpha", "bootstrap": {"dataSecretName": "cp-2"}, "infrastructureRef": {
            "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "ExampleMachine", "name": "cp-2"}},
    }));
    create(&consumer.machines(), &machine)
        .await
        .expect("the Machine can be created");
    let owner = |name: &str| {
        json!({"ownerReferences": [{"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "ExampleMachine",
                                    "name": name, "uid": unique("uid")}]})
    };
    consumer
        .create_claim_with("cp-1", KIND, &pool, owner("cp-1"))
        .await;
    consumer.wait_for_reason("cp-1", "PoolExhausted").await;
    consumer
        .create_claim_with("cp-2", KIND, &pool, owner("cp-2"))
        .await;
    consumer.wait_for_address("cp-2").await;
}

#[tokio::test]
async fn invalid_rules_are_reported_by_the_pool() {
    let consumer = consumer().await;
    let selector = json!({"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]});
    let rules = json!({"headroom": {"addresses": 1, "for": selector}});
    let pool = create_pool(&consumer, 3, rules).await;
    let client = consumer.global_pools();
    assert_contains(
        &consumer
            .wait_for_condition(&client, &pool, "Ready", "False", "InvalidSpec")
            .await,
        "spec.headroom.for",
    );
    assert_contains(
        &consumer
            .global_claim_waits("a", &pool, "PoolNotReady")
            .await,
        "spec.headroom.for",
    );
}
