//! Pools: finalizer and status, deletion, changes while in use, cool-down, and reservations made by
//! operators.

use capi_ipam_api::Pool;
use support::prelude::*;

use crate::consumer;

/// A consumer with a pool `web` of `count` addresses.
async fn with_pool(count: u8) -> Consumer {
    let consumer = consumer().await;
    consumer
        .create_pool(
            "web",
            json!({"addresses": addresses(count), "prefix": 24, "gateway": "10.0.0.254"}),
        )
        .await;
    consumer
}

/// `count` addresses from 10.0.0.1.
fn addresses(count: u8) -> Value {
    json!([format!("10.0.0.1-10.0.0.{count}")])
}

#[tokio::test]
async fn new_pool_gets_finalizer_and_status() {
    async fn check(pools: &ResourceClient<Pool>, name: &str) {
        let ready = eventually("the pool has finalizer, counts and condition", || async {
            let pool = pools.get(name).await.ok()??;
            let status = json!(pool.status.as_ref()?);
            let counts = json!({"total": 9, "free": 9, "used": 0, "outOfRange": 0});
            let done = pool.finalizers() == ["ipam.cluster.x-k8s.io/ProtectPool"]
                && status["ipAddresses"] == counts;
            done.then_some(status["conditions"].clone())
        })
        .await;
        let types: Vec<&str> = ready
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|one| one["type"].as_str())
            .collect();
        assert_eq!(types, ["Ready", "Exhausted", "Overlapping", "OutOfRange"]);
        assert_eq!(
            [&ready[0]["type"], &ready[0]["status"], &ready[0]["reason"]],
            ["Ready", "True", "PoolReady"]
        );
        assert_eq!(ready[0]["observedGeneration"], 1);
    }
    let (consumer, name) = (consumer().await, unique("pool"));
    let spec = json!({"addresses": addresses(9), "prefix": 24});
    consumer.create_pool(&name, spec.clone()).await;
    consumer.create_global_pool(&name, spec).await;
    check(&consumer.pools(), &name).await;
    check(&consumer.global_pools(), &name).await;
}

#[tokio::test]
async fn foreign_labels_and_annotations_stay_on_a_pool() {
    let consumer = consumer().await;
    let pool = json!({"apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": InClusterKind::IPPool.name(),
        "metadata": {"name": "web", "namespace": consumer.namespace,
            "labels": {"zone": "a"}, "annotations": {"metric": "7"}, "finalizers": ["example.com/theirs"]},
        "spec": {"addresses": ["10.0.0.1"], "prefix": 24}});
    create(&consumer.pools(), &object(pool))
        .await
        .expect("the pool can be created");
    consumer.bind("a", "web").await;
    let pool = consumer.the_pool("web").await;
    assert_eq!(
        json!([pool.labels(), pool.annotations()]),
        json!([{"zone": "a"}, {"metric": "7"}])
    );
    assert_eq!(
        pool.finalizers(),
        ["example.com/theirs", "ipam.cluster.x-k8s.io/ProtectPool"]
    );
}

#[tokio::test]
async fn unused_pool_is_deleted_immediately() {
    let consumer = with_pool(2).await;
    consumer.wait_for_counts("web", (2, 2, 0, 0)).await;
    consumer.delete_pool("web").await;
    consumer.wait_until_pool_gone("web").await;
}

#[tokio::test]
async fn deleted_pool_stays_until_its_last_address_is_released() {
    let consumer = with_pool(5).await;
    for name in ["a", "b"] {
        consumer.bind(name, "web").await;
    }
    consumer.wait_for_counts("web", (5, 3, 2, 0)).await;
    consumer.delete_pool("web").await;
    let text = consumer
        .wait_for_pool_condition("web", "False", "Deleting")
        .await;
    let namespace = &consumer.namespace;
    let claims = format!(
        "waiting for 2 addresses to be released (claims {namespace}/a and {namespace}/b); delete the machines of these \
         claims"
    );
    let command = format!("kubectl ipam claims --namespace {namespace} --pool InClusterIPPool/web");
    assert!(
        text.starts_with(&claims) && text.ends_with(&command),
        "{text}"
    );
    consumer.create_claim("c", "web").await;
    let text = consumer.wait_for_reason("c", "PoolNotReady").await;
    let expected = format!(
        "InClusterIPPool {namespace}/web is being deleted and does not allocate addresses; delete the claim, so that its \
         controller creates it with another pool"
    );
    assert_eq!(text, expected);
    consumer.assert_stays_unbound("c").await;
    consumer.assert_address("a", "10.0.0.1").await;

    consumer.release("a").await;
    until("the message counts one address", async || {
        let text = consumer
            .wait_for_pool_condition("web", "False", "Deleting")
            .await;
        Some(text.contains(" 1 address"))
    })
    .await;
    consumer.release("b").await;
    consumer.wait_until_pool_gone("web").await;
    until("the claim reports the missing pool", async || {
        Some(
            consumer
                .wait_for_reason("c", "PoolNotReady")
                .await
                .contains("does not exist"),
        )
    })
    .await;
    consumer.wait_for_reservations("web", &[]).await;

    consumer
        .create_pool("web", json!({"addresses": addresses(1), "prefix": 24}))
        .await;
    consumer.assert_address("c", "10.0.0.1").await;
}

#[tokio::test]
async fn deleted_global_pool_waits_for_all_namespaces() {
    let (one, two) = (consumer().await, consumer().await);
    let pool = unique("shared");
    one.create_global_pool(&pool, json!({"addresses": addresses(5), "prefix": 24}))
        .await;
    for team in [&one, &two] {
        team.bind_global("a", &pool).await;
    }
    one.delete_object(&one.global_pools(), &pool).await;
    one.release("a").await;
    let exists = async || {
        one.global_pools()
            .get(&pool)
            .await
            .expect("pools can be read")
            .is_some()
    };
    consistently("the pool", || async { exists().await }).await;
    two.wait_for_address("a").await;
    two.release("a").await;
    until("the pool is gone", async || Some(!exists().await)).await;
}

#[tokio::test]
async fn pool_shrunk_below_its_use_counts_out_of_range_addresses() {
    let consumer = with_pool(4).await;
    for name in ["a", "b", "c"] {
        consumer.bind(name, "web").await;
    }
    consumer
        .modify_pool("web", |spec| spec["addresses"] = addresses(1))
        .await;
    consumer.wait_for_counts("web", (1, 0, 1, 2)).await;
    consumer.wait_until_pool_ready("web").await;
    consumer.claim_waits("d", "web", "PoolExhausted").await;
    consumer.assert_address("c", "10.0.0.3").await;
    // A released address that is out of range does not become free.
    consumer.release("b").await;
    consumer.wait_for_counts("web", (1, 0, 1, 1)).await;
    consumer.assert_stays_unbound("d").await;
    consumer.release("a").await;
    consumer.assert_address("d", "10.0.0.1").await;

    consumer
        .modify_pool("web", |spec| spec["addresses"] = addresses(3))
        .await;
    consumer.wait_for_counts("web", (3, 1, 2, 0)).await;
    consumer.bind_to("e", "web", "10.0.0.2").await;
}

#[tokio::test]
async fn changed_gateway_applies_to_new_addresses_only() {
    let consumer = with_pool(4).await;
    consumer.create_claim("a", "web").await;
    let before = consumer.wait_for_ip_address("a").await;
    assert_eq!(before.spec.gateway.as_deref(), Some("10.0.0.254"));
    // The new gateway is an address in use: it counts as out of range, and is not allocated again.
    consumer
        .modify_pool("web", |spec| {
            (spec["gateway"], spec["prefix"]) = (json!("10.0.0.1"), json!(25))
        })
        .await;
    consumer.wait_for_counts("web", (3, 3, 0, 1)).await;
    consumer.create_claim("b", "web").await;
    let given = consumer.wait_for_ip_address("b").await.spec;
    let text = (
        given.address.as_str(),
        given.prefix,
        given.gateway.as_deref(),
    );
    assert_eq!(text, ("10.0.0.2", 25, Some("10.0.0.1")));
    assert_eq!(consumer.wait_for_ip_address("a").await, before);
    consumer.release("a").await;
    consumer.bind_to("c", "web", "10.0.0.3").await;
}

#[tokio::test]
async fn deleted_claim_does_not_wait_for_the_cooldown() {
    let consumer = consumer().await;
    let spec =
        json!({"addresses": ["10.0.0.1"], "prefix": 24, "addressReuseGracePeriodSeconds": 600});
    consumer.create_pool("web", spec).await;
    consumer.bind("a", "web").await;
    consumer.release("a").await;
    consumer.wait_for_counts("web", (1, 0, 0, 0)).await;
    let reservation = consumer
        .reservation("web", "10.0.0.1")
        .await
        .expect("the address cools down");
    assert!(reservation.spec.released_at.is_some());
}

#[tokio::test]
async fn released_address_cools_down_before_reuse() {
    const REST: Duration = Duration::from_secs(2);
    let consumer = consumer().await;
    let spec =
        json!({"addresses": ["10.0.0.1"], "prefix": 24, "addressReuseGracePeriodSeconds": 2});
    // At four offsets within a second, since timestamps have whole seconds.
    join_all((0..4).map(async |quarter: u32| {
        let (pool, first, second) = (unique("pool"), unique("claim"), unique("claim"));
        consumer.create_pool(&pool, spec.clone()).await;
        consumer.bind(&first, &pool).await;
        consumer.claim_waits(&second, &pool, "PoolExhausted").await;
        tokio::time::sleep(Duration::from_millis(250) * quarter).await;

        let begin = Instant::now();
        consumer.release(&first).await;
        consumer.assert_address(&second, "10.0.0.1").await;
        let rested = begin.elapsed();
        assert!(rested >= REST, "reused after {rested:?}");
        consumer.wait_for_counts(&pool, (1, 0, 1, 0)).await;
        consumer
            .wait_for_reservations(&pool, &[("10.0.0.1", &second)])
            .await;
    }))
    .await;
}

#[tokio::test]
async fn cooling_down_address_does_not_block_pool_deletion() {
    let consumer = consumer().await;
    let spec =
        json!({"addresses": addresses(2), "prefix": 24, "addressReuseGracePeriodSeconds": 600});
    consumer.create_pool("web", spec).await;
    consumer.bind("a", "web").await;
    consumer.release("a").await;
    consumer.wait_for_counts("web", (2, 1, 0, 0)).await;
    // A recreated claim of the same name is another claim.
    consumer.bind_to("a", "web", "10.0.0.2").await;
    consumer.claim_waits("b", "web", "PoolExhausted").await;
    consumer
        .modify_pool("web", |spec| {
            spec["addressReuseGracePeriodSeconds"] = json!(0)
        })
        .await;
    consumer.assert_address("b", "10.0.0.1").await;

    consumer
        .modify_pool("web", |spec| {
            spec["addressReuseGracePeriodSeconds"] = json!(600)
        })
        .await;
    consumer.wait_until_pool_ready("web").await;
    consumer.release("a").await;
    consumer.release("b").await;
    consumer.wait_for_counts("web", (2, 0, 0, 0)).await;
    consumer.delete_pool("web").await;
    consumer.wait_until_pool_gone("web").await;
    consumer.wait_for_reservations("web", &[]).await;
}

#[tokio::test]
async fn reservation_for_a_claim_name_is_exclusive() {
    let consumer = with_pool(3).await;
    let promise = json!({"namespace": consumer.namespace, "name": "vip"});
    consumer.reserve("web", "10.0.0.1", promise.clone()).await;
    consumer.wait_for_counts("web", (3, 2, 0, 0)).await;
    // A reservation for a claim of another namespace, or for no claim, excludes the address.
    consumer
        .reserve(
            "web",
            "10.0.0.2",
            json!({"namespace": "elsewhere", "name": "vip"}),
        )
        .await;
    consumer.wait_for_counts("web", (3, 1, 0, 0)).await;
    for (name, expected) in [
        ("a", Some("10.0.0.3")),
        ("b", None),
        ("vip", Some("10.0.0.1")),
    ] {
        consumer.create_claim(name, "web").await;
        match expected {
            Some(address) => consumer.assert_address(name, address).await,
            None => drop(consumer.wait_for_reason(name, "PoolExhausted").await),
        }
    }
    consumer.wait_for_counts("web", (3, 0, 2, 0)).await;
    // The reservation outlives the claim.
    consumer.release("vip").await;
    consumer.wait_for_counts("web", (3, 0, 1, 0)).await;
    consumer.assert_stays_unbound("b").await;
    consumer.bind_to("vip", "web", "10.0.0.1").await;
    assert_eq!(
        json!(
            consumer
                .reservation("web", "10.0.0.1")
                .await
                .expect("it stays")
                .spec
                .claim_ref
        ),
        promise
    );
}

#[tokio::test]
async fn waiting_claim_gets_an_address_reserved_for_it_later() {
    let consumer = with_pool(1).await;
    consumer.bind("a", "web").await;
    consumer.claim_waits("b", "web", "PoolExhausted").await;
    consumer.claim_waits("vip", "web", "PoolExhausted").await;
    // The claim already waits behind another one when an address is reserved for it and added to
    // the pool.
    consumer.reserve_for("web", "10.0.0.2", "vip").await;
    consumer
        .modify_pool("web", |spec| spec["addresses"] = addresses(2))
        .await;
    consumer.assert_address("vip", "10.0.0.2").await;
    consumer.wait_for_reason("b", "PoolExhausted").await;
    consumer.wait_for_counts("web", (2, 0, 2, 0)).await;
}

#[tokio::test]
async fn reservation_without_a_claim_excludes_its_address() {
    let consumer = with_pool(2).await;
    consumer.reserve("web", "10.0.0.1", json!(null)).await;
    consumer.wait_for_counts("web", (2, 1, 0, 0)).await;
    consumer.bind_to("a", "web", "10.0.0.2").await;
    consumer.claim_waits("b", "web", "PoolExhausted").await;
    consumer.assert_stays_unbound("b").await;
    assert_eq!(
        consumer
            .reservation("web", "10.0.0.1")
            .await
            .expect("it stays")
            .spec
            .claim_ref,
        None
    );
    // It does not count as in use.
    consumer.release("b").await;
    consumer.release("a").await;
    consumer.delete_pool("web").await;
    consumer.wait_until_pool_gone("web").await;
}
