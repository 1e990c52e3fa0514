//! Pools: finalizer and status, deletion, changes while in use, cool-down, and reservations made by operators.

use std::time::{Duration, Instant};

use capi_ipam::api::{InClusterIPPool, IPReservation, Pool};
use capi_ipam::consumer;
use capi_ipam::support::consumer::{Consumer, eventually, object, stays, unique};
use capi_ipam_controller::client::{CallError, ResourceClient};
use capi_ipam_controller::{clock, patch};
use futures::future::join_all;
use kube::ResourceExt;
use serde_json::{json, Value};

/// A consumer with a pool `web` of so many addresses.
async fn with_pool(count: u8) -> Consumer {
    let consumer = consumer().await;
    consumer.pool("web", json!({"addresses": addresses(count), "prefix": 24, "gateway": "10.0.0.254"})).await;
    consumer
}

/// So many addresses from 10.0.0.1.
fn addresses(count: u8) -> Value {
    json!([format!("10.0.0.1-10.0.0.{count}")])
}

/// Waits until a pool is gone.
async fn pool_is_gone(consumer: &Consumer, name: &str) {
    eventually(&format!("pool {name} is gone"), || async {
        consumer.pools().get(name).await.expect("pools can be read").is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_new_pool_gets_finalizer_and_status() {
    async fn check<P: Pool>(pools: &ResourceClient<P>, name: &str) {
        let ready = eventually("the pool has finalizer, counts and condition", || async {
            let pool = pools.get(name).await.ok()??;
            let status = json!(pool.status()?);
            let counts = json!({"total": 9, "free": 9, "used": 0, "outOfRange": 0});
            let done = pool.finalizers() == ["ipam.cluster.x-k8s.io/ProtectPool"] && status["ipAddresses"] == counts;
            done.then_some(status["conditions"].clone())
        })
        .await;
        let types: Vec<&str> = ready.as_array().into_iter().flatten().filter_map(|one| one["type"].as_str()).collect();
        assert_eq!(types, ["Ready", "Exhausted", "Overlapping", "OutOfRange"]);
        assert_eq!([&ready[0]["type"], &ready[0]["status"], &ready[0]["reason"]], ["Ready", "True", "PoolReady"]);
        assert_eq!(ready[0]["observedGeneration"], 1);
    }
    let (consumer, name) = (consumer().await, unique("pool"));
    let spec = json!({"addresses": addresses(9), "prefix": 24});
    consumer.pool(&name, spec.clone()).await;
    consumer.global_pool(&name, spec).await;
    check(&consumer.pools(), &name).await;
    check(&consumer.global_pools(), &name).await;
}

#[tokio::test]
async fn labels_and_annotations_of_others_stay_on_a_pool() {
    let consumer = consumer().await;
    let pool = json!({"apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": InClusterIPPool::KIND.name(),
        "metadata": {"name": "web", "namespace": consumer.namespace,
            "labels": {"zone": "a"}, "annotations": {"metric": "7"}, "finalizers": ["example.com/theirs"]},
        "spec": {"addresses": ["10.0.0.1"], "prefix": 24}});
    consumer.pools().create(&object(pool)).await.expect("the pool can be made");
    consumer.claim("a", "web").await;
    consumer.bound("a").await;
    let pool = consumer.pools().get("web").await.expect("pools can be read").expect("the pool exists");
    assert_eq!(json!([pool.labels(), pool.annotations()]), json!([{"zone": "a"}, {"metric": "7"}]));
    assert_eq!(pool.finalizers(), ["example.com/theirs", "ipam.cluster.x-k8s.io/ProtectPool"]);
}

#[tokio::test]
async fn an_unused_pool_goes_at_once() {
    let consumer = with_pool(2).await;
    consumer.counts("web", (2, 2, 0, 0)).await;
    consumer.remove(&consumer.pools(), "web").await;
    pool_is_gone(&consumer, "web").await;
}

#[tokio::test]
async fn a_deleted_pool_stays_until_its_last_address_is_released() {
    let consumer = with_pool(5).await;
    for name in ["a", "b"] {
        consumer.claim(name, "web").await;
        consumer.bound(name).await;
    }
    consumer.counts("web", (5, 3, 2, 0)).await;
    consumer.remove(&consumer.pools(), "web").await;
    let text = consumer.pool_says("web", "False", "Deleting").await;
    assert!(text.contains("2 addresses"), "{text}");
    consumer.claim("c", "web").await;
    let text = consumer.waits_for("c", "PoolNotReady").await;
    assert!(text.contains("is being deleted"), "{text}");
    consumer.stays_unbound("c").await;
    assert_eq!(consumer.bound("a").await, "10.0.0.1");

    consumer.release("a").await;
    eventually("the text counts one address", || async {
        let text = consumer.pool_says("web", "False", "Deleting").await;
        text.contains(" 1 address").then_some(())
    })
    .await;
    consumer.release("b").await;
    pool_is_gone(&consumer, "web").await;
    eventually("the claim knows", || async {
        consumer.waits_for("c", "PoolNotReady").await.contains("does not exist").then_some(())
    })
    .await;
    consumer.reserved("web", &[]).await;

    consumer.pool("web", json!({"addresses": addresses(1), "prefix": 24})).await;
    assert_eq!(consumer.bound("c").await, "10.0.0.1");
}

#[tokio::test]
async fn a_deleted_global_pool_waits_for_all_namespaces() {
    let (one, two) = (consumer().await, consumer().await);
    let pool = unique("shared");
    one.global_pool(&pool, json!({"addresses": addresses(5), "prefix": 24})).await;
    for team in [&one, &two] {
        team.global_claim("a", &pool).await;
        team.bound("a").await;
    }
    one.remove(&one.global_pools(), &pool).await;
    one.release("a").await;
    let exists = async || one.global_pools().get(&pool).await.expect("pools can be read").is_some();
    stays("the pool", || async { exists().await }).await;
    two.bound("a").await;
    two.release("a").await;
    eventually("the pool is gone", || async { (!exists().await).then_some(()) }).await;
}

#[tokio::test]
async fn a_pool_shrinks_below_its_use_and_grows_again() {
    let consumer = with_pool(4).await;
    for name in ["a", "b", "c"] {
        consumer.claim(name, "web").await;
        consumer.bound(name).await;
    }
    consumer.change_pool("web", |spec| spec["addresses"] = addresses(1)).await;
    consumer.counts("web", (1, 0, 1, 2)).await;
    consumer.pool_says("web", "True", "PoolReady").await;
    consumer.claim("d", "web").await;
    consumer.waits_for("d", "PoolExhausted").await;
    assert_eq!(consumer.bound("c").await, "10.0.0.3");
    // An address out of range that is released does not come back.
    consumer.release("b").await;
    consumer.counts("web", (1, 0, 1, 1)).await;
    consumer.stays_unbound("d").await;
    consumer.release("a").await;
    assert_eq!(consumer.bound("d").await, "10.0.0.1");

    consumer.change_pool("web", |spec| spec["addresses"] = addresses(3)).await;
    consumer.counts("web", (3, 1, 2, 0)).await;
    consumer.claim("e", "web").await;
    assert_eq!(consumer.bound("e").await, "10.0.0.2");
}

#[tokio::test]
async fn a_changed_gateway_is_for_new_addresses() {
    let consumer = with_pool(4).await;
    consumer.claim("a", "web").await;
    let before = consumer.bound_address("a").await;
    assert_eq!(before.spec.gateway.as_deref(), Some("10.0.0.254"));
    // Now the gateway is an address that is in use: it counts as out of range, and is not given again.
    consumer.change_pool("web", |spec| (spec["gateway"], spec["prefix"]) = (json!("10.0.0.1"), json!(25))).await;
    consumer.counts("web", (3, 3, 0, 1)).await;
    consumer.claim("b", "web").await;
    let given = consumer.bound_address("b").await.spec;
    let text = (given.address.as_str(), given.prefix, given.gateway.as_deref());
    assert_eq!(text, ("10.0.0.2", 25, Some("10.0.0.1")));
    assert_eq!(consumer.bound_address("a").await, before);
    consumer.release("a").await;
    consumer.claim("c", "web").await;
    assert_eq!(consumer.bound("c").await, "10.0.0.3");
}

#[tokio::test]
async fn a_claim_does_not_wait_for_the_rest_of_its_address() {
    let consumer = consumer().await;
    let spec = json!({"addresses": ["10.0.0.1"], "prefix": 24, "addressReuseGracePeriodSeconds": 600});
    consumer.pool("web", spec).await;
    consumer.claim("a", "web").await;
    consumer.bound("a").await;
    consumer.release("a").await;
    consumer.counts("web", (1, 0, 0, 0)).await;
    let reservation = consumer.reservation("web", "10.0.0.1").await.expect("the address rests");
    assert!(reservation.spec.released_at.is_some());
}

#[tokio::test]
async fn an_address_rests_before_it_is_given_again() {
    const REST: Duration = Duration::from_secs(2);
    let consumer = consumer().await;
    let spec = json!({"addresses": ["10.0.0.1"], "prefix": 24, "addressReuseGracePeriodSeconds": 2});
    // At four moments of a second, since times are kept in whole seconds.
    join_all((0..4).map(async |quarter: u32| {
        let (pool, first, second) = (unique("pool"), unique("claim"), unique("claim"));
        consumer.pool(&pool, spec.clone()).await;
        consumer.claim(&first, &pool).await;
        consumer.bound(&first).await;
        consumer.claim(&second, &pool).await;
        consumer.waits_for(&second, "PoolExhausted").await;
        tokio::time::sleep(Duration::from_millis(250) * quarter).await;

        let begin = Instant::now();
        consumer.release(&first).await;
        assert_eq!(consumer.bound(&second).await, "10.0.0.1");
        let rested = begin.elapsed();
        assert!(rested >= REST, "given again after {rested:?}");
        consumer.counts(&pool, (1, 0, 1, 0)).await;
        consumer.reserved(&pool, &[("10.0.0.1", &second)]).await;
    }))
    .await;
}

#[tokio::test]
async fn a_resting_address_is_the_last_resort_and_keeps_no_pool() {
    let consumer = consumer().await;
    let spec = json!({"addresses": addresses(2), "prefix": 24, "addressReuseGracePeriodSeconds": 600});
    consumer.pool("web", spec).await;
    consumer.claim("a", "web").await;
    consumer.bound("a").await;
    consumer.release("a").await;
    consumer.counts("web", (2, 1, 0, 0)).await;
    // The claim comes back under its name: it is another one.
    consumer.claim("a", "web").await;
    assert_eq!(consumer.bound("a").await, "10.0.0.2");
    consumer.claim("b", "web").await;
    consumer.waits_for("b", "PoolExhausted").await;
    consumer.change_pool("web", |spec| spec["addressReuseGracePeriodSeconds"] = json!(0)).await;
    assert_eq!(consumer.bound("b").await, "10.0.0.1");

    consumer.change_pool("web", |spec| spec["addressReuseGracePeriodSeconds"] = json!(600)).await;
    consumer.pool_says("web", "True", "PoolReady").await;
    consumer.release("a").await;
    consumer.release("b").await;
    consumer.counts("web", (2, 0, 0, 0)).await;
    consumer.remove(&consumer.pools(), "web").await;
    pool_is_gone(&consumer, "web").await;
    consumer.reserved("web", &[]).await;
}

#[tokio::test]
async fn an_address_promised_by_name_is_for_that_claim_only() {
    let consumer = with_pool(3).await;
    let promise = json!({"namespace": consumer.namespace, "name": "vip"});
    consumer.reserve("web", "10.0.0.1", promise.clone()).await;
    consumer.counts("web", (3, 2, 0, 0)).await;
    // Of another namespace, or of no claim: kept out.
    consumer.reserve("web", "10.0.0.2", json!({"namespace": "elsewhere", "name": "vip"})).await;
    consumer.counts("web", (3, 1, 0, 0)).await;
    for (name, expected) in [("a", Some("10.0.0.3")), ("b", None), ("vip", Some("10.0.0.1"))] {
        consumer.claim(name, "web").await;
        match expected {
            Some(address) => assert_eq!(consumer.bound(name).await, address),
            None => drop(consumer.waits_for(name, "PoolExhausted").await),
        }
    }
    consumer.counts("web", (3, 0, 2, 0)).await;
    // The promise outlives the claim.
    consumer.release("vip").await;
    consumer.counts("web", (3, 0, 1, 0)).await;
    consumer.stays_unbound("b").await;
    consumer.claim("vip", "web").await;
    assert_eq!(consumer.bound("vip").await, "10.0.0.1");
    assert_eq!(json!(consumer.reservation("web", "10.0.0.1").await.expect("it stays").spec.claim_ref), promise);
}

#[tokio::test]
async fn a_promise_is_kept_in_another_order_too() {
    let consumer = with_pool(1).await;
    consumer.claim("a", "web").await;
    consumer.bound("a").await;
    consumer.claim("b", "web").await;
    consumer.waits_for("b", "PoolExhausted").await;
    consumer.claim("vip", "web").await;
    consumer.waits_for("vip", "PoolExhausted").await;
    // The claim waits already, behind another one, when it is promised an address that the pool gets.
    consumer.reserve("web", "10.0.0.2", json!({"namespace": consumer.namespace, "name": "vip"})).await;
    consumer.change_pool("web", |spec| spec["addresses"] = addresses(2)).await;
    assert_eq!(consumer.bound("vip").await, "10.0.0.2");
    consumer.waits_for("b", "PoolExhausted").await;
    consumer.counts("web", (2, 0, 2, 0)).await;
}

#[tokio::test]
async fn a_reservation_without_a_claim_keeps_its_address_out() {
    let consumer = with_pool(2).await;
    consumer.reserve("web", "10.0.0.1", json!(null)).await;
    consumer.counts("web", (2, 1, 0, 0)).await;
    consumer.claim("a", "web").await;
    assert_eq!(consumer.bound("a").await, "10.0.0.2");
    consumer.claim("b", "web").await;
    consumer.waits_for("b", "PoolExhausted").await;
    consumer.stays_unbound("b").await;
    assert_eq!(consumer.reservation("web", "10.0.0.1").await.expect("it stays").spec.claim_ref, None);
    // It is no use of the pool.
    consumer.release("b").await;
    consumer.release("a").await;
    consumer.remove(&consumer.pools(), "web").await;
    pool_is_gone(&consumer, "web").await;
}

#[tokio::test]
async fn a_reservation_takes_no_change_but_its_release() {
    let consumer = with_pool(9).await;
    let claim = json!({"namespace": consumer.namespace, "name": "a", "uid": "u"});
    let named = consumer.reserve("web", "10.0.0.1", json!({"namespace": consumer.namespace, "name": "a"})).await;
    let kept_out = consumer.reserve("web", "10.0.0.2", json!(null)).await;
    for (reservation, field, value) in [
        (&named, "scope", json!("p.other.web")),
        (&named, "address", json!("10.0.0.9")),
        (&named, "poolRef", json!({"kind": "GlobalInClusterIPPool", "name": "web"})),
        (&named, "prefixLength", json!(32)),
        (&named, "claimRef", claim.clone()),
        (&named, "claimRef", json!(null)),
        (&kept_out, "claimRef", claim),
    ] {
        let causes = refusal(&consumer, reservation, field, &value).await;
        assert_eq!(causes, [format!("spec.{field}")], "{value}");
    }
    let release = |reservation: &mut Value| reservation["spec"]["releasedAt"] = json!(clock::now());
    let written = consumer.change(&consumer.reservations(), &named.name_any(), release).await;
    assert!(written.spec.released_at.is_some());
}

/// The fields for which the API server refuses to have a field of a reservation changed.
async fn refusal(consumer: &Consumer, made: &IPReservation, field: &str, value: &Value) -> Vec<String> {
    let error = loop {
        let before = consumer.reservations().get(&made.name_any()).await.expect("reservations can be read");
        let before = before.expect("it is there");
        let mut after = json!(before);
        after["spec"][field] = value.clone();
        let refused = patch::write(&consumer.reservations(), &before, &object(after)).await;
        let error = refused.expect_err("no change is taken");
        // The manager labels it in between.
        if !error.is_conflict() {
            break error;
        }
    };
    assert!(error.is_invalid(), "{error}");
    let CallError::Failed { source, .. } = error else { panic!("the server answers: {error}") };
    let kube::Error::Api(status) = *source else { panic!("the server answers: {source}") };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.map(|cause| cause.field.clone()).collect()
}
