//! The sweeper: frees what nobody holds, reserves what is in use, and leaves all else alone.

use std::collections::BTreeSet;

use capi_ipam::api::{GlobalInClusterIPPool, InClusterIPPool, names, Pool};
use capi_ipam::support::consumer::{Consumer, eventually, stays, unique};
use capi_ipam::{consumer, world};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use serde_json::{json, Value};

/// A consumer with a pool `web` of so many addresses.
async fn with_pool(count: u8) -> Consumer {
    let consumer = consumer().await;
    consumer.pool("web", pool_spec(count)).await;
    consumer
}

fn pool_spec(count: u8) -> Value {
    json!({"addresses": [format!("10.0.0.1-10.0.0.{count}")], "prefix": 24})
}

/// The addresses of pool `web` that are reserved.
async fn reserved(consumer: &Consumer) -> BTreeSet<String> {
    let scope = format!("p.{}.web", consumer.namespace);
    let all = consumer.reservations().list().await.expect("reservations can be read");
    all.into_iter().filter(|all| all.spec.scope == scope).map(|all| all.spec.address).collect()
}

/// The names of the IPAddress objects of the namespace.
async fn given(consumer: &Consumer) -> BTreeSet<String> {
    consumer.given().await.into_keys().collect()
}

/// Waits until nothing else is left, and makes sure that it stays.
async fn only_these_stay<F: Future<Output = BTreeSet<String>>>(expected: &[&str], look: impl Fn() -> F) {
    let expected: BTreeSet<String> = expected.iter().map(|name| (*name).to_owned()).collect();
    let look = || async { look().await == expected };
    eventually(&format!("only {expected:?} are left"), || async { look().await.then_some(()) }).await;
    stays(&format!("{expected:?} and nothing else"), look).await;
}

#[tokio::test]
async fn an_address_without_a_claim_is_removed() {
    let consumer = with_pool(20).await;
    let shared = unique("shared");
    consumer.global_pool(&shared, pool_spec(5)).await;
    consumer.claim("bound", "web").await;
    assert_eq!(consumer.bound("bound").await, "10.0.0.1");

    // Nothing of it is removed before all is there.
    consumer.pause(&consumer.pools(), "web", true).await;
    consumer.pool_says("web", "False", "Paused").await;
    let pool = |kind: &str, name: &str| json!({"apiGroup": "ipam.cluster.x-k8s.io", "kind": kind, "name": name});
    let web = pool(InClusterIPPool::KIND.name(), "web");
    for (name, address) in
        [("left", "10.0.0.2"), ("twice", "10.0.0.1"), ("outside", "10.0.9.9"), ("in-use", "10.0.0.4")]
    {
        consumer.address_left_behind(name, web.clone(), address).await;
    }
    consumer.address_by_hand("by-hand", "web", "10.0.0.3").await;
    let global = pool(GlobalInClusterIPPool::KIND.name(), &shared);
    consumer.address_left_behind("global", global, "10.0.0.5").await;
    let addresses = consumer.addresses();
    let finalizers = json!([names::PROTECT_ADDRESS, "example.com/in-use"]);
    consumer.change(&addresses, "in-use", |made| made["metadata"]["finalizers"] = finalizers.clone()).await;
    consumer.counts("web", (20, 16, 4, 1)).await;
    consumer.pause(&consumer.pools(), "web", false).await;

    only_these_stay(&["bound", "by-hand", "in-use"], || given(&consumer)).await;
    consumer.counts("web", (20, 17, 3, 0)).await;
    consumer.counts_in(GlobalInClusterIPPool::KIND.name(), &shared, (5, 5, 0, 0)).await;
    consumer.change(&addresses, "in-use", |made| made["metadata"]["finalizers"] = json!([])).await;
    consumer.counts("web", (20, 18, 2, 0)).await;
}

#[tokio::test]
async fn address_made_by_hand_is_kept_and_reported() {
    let consumer = with_pool(2).await;
    consumer.address_by_hand("router", "web", "10.0.0.1").await;
    consumer.counts("web", (2, 1, 1, 0)).await;
    eventually("an event reports the IPAddress without a claim", || async {
        let events = consumer.events("router").await;
        events.iter().any(|(_, reason, text)| reason == "NoClaim" && text.contains("10.0.0.1")).then_some(())
    })
    .await;
    consumer.claim("a", "web").await;
    assert_eq!(consumer.bound("a").await, "10.0.0.2");
    consumer.claim("b", "web").await;
    consumer.waits_for("b", "PoolExhausted").await;
    stays("the address made by hand", || async { given(&consumer).await.contains("router") }).await;
    // A claim of its name gets it.
    consumer.claim("router", "web").await;
    assert_eq!(consumer.bound("router").await, "10.0.0.1");
}

#[tokio::test]
async fn an_address_of_others_or_paused_is_left_alone() {
    let consumer = with_pool(20).await;
    consumer.pool("held", pool_spec(5)).await;
    consumer.pause(&consumer.pools(), "held", true).await;
    consumer.pool_says("held", "False", "Paused").await;
    consumer.cluster("alpha", true).await;
    for (name, group, kind) in [
        ("other-group", "ipam.example.com", InClusterIPPool::KIND.name()),
        ("other-kind", "ipam.cluster.x-k8s.io", "Foo"),
    ] {
        let pool = json!({"apiGroup": group, "kind": kind, "name": "web"});
        consumer.address_left_behind(name, pool, "10.0.0.1").await;
    }
    let pool = |name: &str| json!({"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": name});
    consumer.address_left_behind("in-paused-pool", pool("held"), "10.0.0.1").await;
    consumer.address_in_cluster("in-paused-cluster", "web", "10.0.0.2", "alpha").await;
    consumer.counts("held", (5, 4, 1, 0)).await;
    consumer.counts("web", (20, 19, 1, 0)).await;

    // Made last: once it is gone, the others had their time.
    consumer.address_left_behind("left", pool("web"), "10.0.0.3").await;
    let kept = ["in-paused-cluster", "in-paused-pool", "other-group", "other-kind"];
    only_these_stay(&kept, || given(&consumer)).await;
    consumer.claim("a", "web").await;
    assert_eq!(consumer.bound("a").await, "10.0.0.1", "an address of another provider is not in our way");

    consumer.pause(&consumer.pools(), "held", false).await;
    consumer.change(&consumer.clusters(), "alpha", |cluster| cluster["spec"]["paused"] = json!(false)).await;
    only_these_stay(&["a", "other-group", "other-kind"], || given(&consumer)).await;
}

#[tokio::test]
async fn a_reservation_without_a_claim_is_freed_and_no_other() {
    let consumer = with_pool(20).await;
    let namespace = &consumer.namespace;
    consumer.claim("bound", "web").await;
    assert_eq!(consumer.bound("bound").await, "10.0.0.1");
    let metadata = json!({"annotations": {"cluster.x-k8s.io/paused": ""}});
    let unbound = consumer.claim_with("unbound", InClusterIPPool::KIND.name(), "web", metadata).await;
    consumer.waits_for("unbound", "Paused").await;
    let bound = consumer.claims().get("bound").await.expect("claims can be read").expect("the claim exists");
    let of = |name: &str, uid: Option<String>| json!({"namespace": namespace, "name": name, "uid": uid});
    // These stay: held by a claim that lives unbound, promised, kept out.
    consumer.reserve("web", "10.0.0.5", of("unbound", unbound.uid())).await;
    consumer.reserve("web", "10.0.0.6", json!({"namespace": namespace, "name": "later"})).await;
    consumer.reserve("web", "10.0.0.7", json!(null)).await;
    // These go: of a claim that never was, of an earlier claim of the name, of a claim bound to another address.
    consumer.reserve("web", "10.0.0.8", of("never", Some("dead".to_owned()))).await;
    consumer.reserve("web", "10.0.0.9", of("unbound", Some("dead".to_owned()))).await;
    consumer.reserve("web", "10.0.0.10", of("bound", bound.uid())).await;

    only_these_stay(&["10.0.0.1", "10.0.0.5", "10.0.0.6", "10.0.0.7"], || reserved(&consumer)).await;
    consumer.counts("web", (20, 16, 1, 0)).await;
    consumer.pause(&consumer.claims(), "unbound", false).await;
    assert_eq!(consumer.bound("unbound").await, "10.0.0.5");
    assert_eq!(consumer.bound("bound").await, "10.0.0.1");
}

#[tokio::test]
async fn many_abandoned_addresses_go_little_by_little() {
    let consumer = with_pool(20).await;
    for last in 1..=12 {
        let claim = json!({"namespace": consumer.namespace, "name": format!("c{last}"), "uid": format!("dead-{last}")});
        consumer.reserve("web", &format!("10.0.0.{last}"), claim).await;
    }
    eventually("all are freed", || async { reserved(&consumer).await.is_empty().then_some(()) }).await;
    // By the manager's clock, for who looks on may look late.
    let namespace = format!("namespace=\"{}\"", consumer.namespace);
    let freed = eventually("the log tells of all", || async {
        let log = world().manager.log();
        let lines =
            log.lines().filter(|line| line.contains("of a claim that is gone is freed") && line.contains(&namespace));
        let times: Vec<Timestamp> = lines.filter_map(|line| line.split(' ').next()?.parse().ok()).collect();
        (times.len() == 12).then_some(times)
    })
    .await;
    // Five in each pass, and a pass each second.
    for six in freed.windows(6) {
        let took = six[5].duration_since(six[0]);
        assert!(took >= SignedDuration::from_millis(900), "six are freed in {took:?}");
    }
    consumer.counts("web", (20, 20, 0, 0)).await;
}

#[tokio::test]
async fn a_bound_claim_gets_a_lost_reservation_back() {
    let consumer = with_pool(2).await;
    consumer.claim("a", "web").await;
    assert_eq!(consumer.bound("a").await, "10.0.0.1");
    let claim = consumer.claims().get("a").await.expect("claims can be read");
    consumer.counts("web", (2, 1, 1, 0)).await;
    let lost = format!("p.{}.web.10.0.0.1", consumer.namespace);
    let before = consumer.reservations().get(&lost).await.expect("reservations can be read").expect("it exists");
    consumer.remove(&consumer.reservations(), &lost).await;
    consumer.claim("b", "web").await;
    consumer.claim("c", "web").await;
    let after = eventually("the reservation is there again", || async {
        let address = consumer.addresses().get("a").await.expect("addresses can be read").expect("it stays");
        assert_eq!(address.spec.address, "10.0.0.1");
        let found = consumer.reservations().get(&lost).await.expect("reservations can be read")?;
        assert_eq!(found.spec, before.spec, "nobody else gets the address");
        Some(found)
    });
    assert_ne!(after.await.uid(), before.uid());
    let (served, waits) = eventually("one of the two is served", || async {
        let given = given(&consumer).await;
        [("b", "c"), ("c", "b")].into_iter().find(|(served, _)| given.contains(*served))
    })
    .await;
    assert_eq!(consumer.bound(served).await, "10.0.0.2");
    consumer.waits_for(waits, "PoolExhausted").await;
    consumer.reserved("web", &[("10.0.0.1", "a"), ("10.0.0.2", served)]).await;
    consumer.counts("web", (2, 0, 2, 0)).await;
    assert_eq!(consumer.claims().get("a").await.expect("claims can be read"), claim, "the claim is not touched");
}
