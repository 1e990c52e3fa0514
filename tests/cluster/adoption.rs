//! IPAddress objects that are there before their claim: from a restore, a move, or made by hand.

use capi_ipam::api::{InClusterIPPool, Pool};
use capi_ipam::consumer;
use capi_ipam::support::consumer::{Consumer, eventually, stays};
use kube::ResourceExt;
use serde_json::json;

/// A consumer with a pool `web` of three addresses.
async fn with_pool() -> Consumer {
    let consumer = consumer().await;
    let spec = json!({"addresses": ["10.0.0.1-10.0.0.3"], "prefix": 24, "gateway": "10.0.0.9"});
    consumer.pool("web", spec).await;
    consumer
}

#[tokio::test]
async fn an_address_made_by_hand_is_adopted() {
    let consumer = with_pool().await;
    let made = consumer.address_by_hand("a", "web", "10.0.0.3").await;
    consumer.claim("a", "web").await;
    let adopted = consumer.bound_address("a").await;
    assert_eq!((adopted.uid(), &adopted.spec), (made.uid(), &made.spec));
    consumer.reserved("web", &[("10.0.0.3", "a")]).await;
    consumer.counts("web", (3, 2, 1, 0)).await;
    for (name, address) in [("b", "10.0.0.1"), ("c", "10.0.0.2")] {
        consumer.claim(name, "web").await;
        assert_eq!(consumer.bound(name).await, address);
    }
    consumer.claim("d", "web").await;
    consumer.waits_for("d", "PoolExhausted").await;
    consumer.release("a").await;
    assert_eq!(consumer.bound("d").await, "10.0.0.3");
}

#[tokio::test]
async fn an_address_without_a_claim_is_in_use_at_once() {
    let consumer = with_pool().await;
    consumer.pause(&consumer.pools(), "web", true).await;
    consumer.pool_says("web", "False", "Paused").await;
    consumer.address_by_hand("restored", "web", "10.0.0.1").await;
    consumer.counts("web", (3, 2, 1, 0)).await;
    consumer.claim("a", "web").await;
    consumer.claim("restored", "web").await;
    consumer.pause(&consumer.pools(), "web", false).await;
    assert_eq!(consumer.bound("a").await, "10.0.0.2");
    assert_eq!(consumer.bound("restored").await, "10.0.0.1");
}

#[tokio::test]
async fn the_address_of_a_full_pool_is_adopted() {
    let consumer = consumer().await;
    consumer.pool("web", json!({"addresses": ["10.0.0.1"], "prefix": 24})).await;
    // The sweeper leaves the address to its claim.
    consumer.pause(&consumer.pools(), "web", true).await;
    consumer.pool_says("web", "False", "Paused").await;
    consumer.address_by_hand("b", "web", "10.0.0.1").await;
    consumer.counts("web", (1, 0, 1, 0)).await;
    consumer.claim("a", "web").await;
    consumer.claim("b", "web").await;
    consumer.pause(&consumer.pools(), "web", false).await;
    assert_eq!(consumer.bound("b").await, "10.0.0.1");
    consumer.waits_for("a", "PoolExhausted").await;
    consumer.reserved("web", &[("10.0.0.1", "b")]).await;
}

#[tokio::test]
async fn an_address_outside_of_the_pool_is_kept() {
    let consumer = with_pool().await;
    let made = consumer.address_by_hand("a", "web", "10.0.7.7").await;
    consumer.claim("a", "web").await;
    let adopted = consumer.bound_address("a").await;
    assert_eq!((adopted.uid(), &adopted.spec), (made.uid(), &made.spec));
    consumer.reserved("web", &[("10.0.7.7", "a")]).await;
    consumer.counts("web", (3, 3, 0, 1)).await;
    consumer.release("a").await;
    consumer.counts("web", (3, 3, 0, 0)).await;
}

#[tokio::test]
async fn an_address_that_another_claim_holds_is_not_used_twice() {
    let consumer = with_pool().await;
    consumer.claim("a", "web").await;
    assert_eq!(consumer.bound("a").await, "10.0.0.1");
    let made = consumer.address_by_hand("b", "web", "10.0.0.1").await;
    consumer.claim("b", "web").await;
    let text = consumer.waits_for("b", "DuplicateAddress").await;
    let holder = format!("p.{}.web.10.0.0.1", consumer.namespace);
    for part in ["10.0.0.1", &holder, "delete the IPAddress"] {
        assert!(text.contains(part), "{part:?} is missing: {text}");
    }
    consumer.stays_unbound("b").await;
    let kept = consumer.addresses().get("b").await.expect("addresses can be read").expect("it is left alone");
    assert_eq!((kept.uid(), kept.spec), (made.uid(), made.spec));
    assert_eq!(consumer.bound("a").await, "10.0.0.1");

    // As the text says: then another address is given.
    consumer.remove(&consumer.addresses(), "b").await;
    assert_eq!(consumer.bound("b").await, "10.0.0.2");
    consumer.reserved("web", &[("10.0.0.1", "a"), ("10.0.0.2", "b")]).await;
    consumer.counts("web", (3, 1, 2, 0)).await;
}

#[tokio::test]
async fn a_claim_with_a_duplicate_address_takes_nothing_with_it() {
    let consumer = with_pool().await;
    consumer.claim("a", "web").await;
    consumer.bound("a").await;
    consumer.address_by_hand("b", "web", "10.0.0.1").await;
    consumer.claim("b", "web").await;
    consumer.waits_for("b", "DuplicateAddress").await;
    consumer.release("b").await;
    consumer.reserved("web", &[("10.0.0.1", "a")]).await;
    consumer.counts("web", (3, 2, 1, 0)).await;
    consumer.claim("c", "web").await;
    assert_eq!(consumer.bound("c").await, "10.0.0.2");
}

#[tokio::test]
async fn a_duplicate_is_served_when_the_holder_goes() {
    let consumer = with_pool().await;
    consumer.claim("a", "web").await;
    consumer.bound("a").await;
    let made = consumer.address_by_hand("b", "web", "10.0.0.1").await;
    consumer.claim("b", "web").await;
    consumer.waits_for("b", "DuplicateAddress").await;
    consumer.release("a").await;
    let adopted = consumer.bound_address("b").await;
    assert_eq!((adopted.uid(), adopted.spec), (made.uid(), made.spec));
    consumer.reserved("web", &[("10.0.0.1", "b")]).await;
}

#[tokio::test]
async fn the_address_of_an_earlier_claim_is_no_duplicate() {
    let consumer = with_pool().await;
    for (name, address) in [("a", "10.0.0.1"), ("b", "10.0.0.2")] {
        consumer.claim(name, "web").await;
        assert_eq!(consumer.bound(name).await, address);
    }
    // What a move that went wrong leaves: the owner is a claim that is no more, the address is another's.
    consumer.pause(&consumer.pools(), "web", true).await;
    consumer.pool_says("web", "False", "Paused").await;
    let owner = json!({"apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddressClaim", "name": "c",
        "uid": "00000000-0000-0000-0000-000000000000", "controller": true, "blockOwnerDeletion": true});
    consumer.claim("c", "web").await;
    consumer.address_by_hand("c", "web", "10.0.0.1").await;
    consumer
        .change(&consumer.addresses(), "c", |address| {
            address["metadata"]["ownerReferences"] = json!([owner]);
            address["metadata"]["finalizers"] = json!(["ipam.cluster.x-k8s.io/ProtectAddress"]);
        })
        .await;
    consumer.pause(&consumer.pools(), "web", false).await;
    assert_eq!(consumer.bound("c").await, "10.0.0.3");
    assert_eq!(consumer.bound("a").await, "10.0.0.1");
    consumer.reserved("web", &[("10.0.0.1", "a"), ("10.0.0.2", "b"), ("10.0.0.3", "c")]).await;
}

#[tokio::test]
async fn an_address_of_another_pool_is_refused() {
    let consumer = with_pool().await;
    consumer.pool("other", json!({"addresses": ["10.0.0.1-10.0.0.3"], "prefix": 24})).await;
    // The sweeper leaves its address alone.
    consumer.pause(&consumer.pools(), "other", true).await;
    consumer.pool_says("other", "False", "Paused").await;
    consumer.address_by_hand("a", "other", "10.0.0.2").await;
    consumer.counts("other", (3, 2, 1, 0)).await;
    consumer.claim("a", "web").await;
    let text = consumer.waits_for("a", "AllocationFailed").await;
    for part in ["InClusterIPPool other", "delete it"] {
        assert!(text.contains(part), "{part:?} is missing: {text}");
    }
    consumer.stays_unbound("a").await;
    consumer.remove(&consumer.addresses(), "a").await;
    assert_eq!(consumer.bound("a").await, "10.0.0.1");
    consumer.counts("other", (3, 3, 0, 0)).await;
}

#[tokio::test]
async fn an_address_that_is_none_is_refused() {
    let consumer = with_pool().await;
    consumer.address_by_hand("a", "web", "10.0.0.01").await;
    consumer.claim("a", "web").await;
    let text = consumer.waits_for("a", "AllocationFailed").await;
    assert!(text.contains("10.0.0.01"), "{text}");
    consumer.remove(&consumer.addresses(), "a").await;
    assert_eq!(consumer.bound("a").await, "10.0.0.1");
}

#[tokio::test]
async fn an_address_that_is_being_deleted_is_let_go_first() {
    let consumer = with_pool().await;
    let made = consumer.address_by_hand("a", "web", "10.0.0.3").await;
    let held = json!(["example.com/in-use"]);
    consumer.change(&consumer.addresses(), "a", |address| address["metadata"]["finalizers"] = held.clone()).await;
    consumer.remove(&consumer.addresses(), "a").await;
    consumer.claim("a", "web").await;
    consumer.stays_unbound("a").await;
    consumer.change(&consumer.addresses(), "a", |address| address["metadata"]["finalizers"] = json!([])).await;
    let address = consumer.bound_address("a").await;
    assert_ne!(address.uid(), made.uid());
    consumer.counts("web", (3, 2, 1, 0)).await;
}

#[tokio::test]
async fn status_can_be_lost() {
    let consumer = with_pool().await;
    for name in ["a", "b"] {
        consumer.claim(name, "web").await;
        consumer.bound(name).await;
    }
    let before = consumer.bound_address("b").await;
    // As `clusterctl move` does it: the claim is made anew, without status, beside its IPAddress.
    consumer.pause(&consumer.pools(), "web", true).await;
    consumer.pool_says("web", "False", "Paused").await;
    consumer.force_away(&consumer.claims(), "b").await;
    consumer.claim_with("b", InClusterIPPool::KIND.name(), "web", json!({})).await;
    consumer.waits_for("b", "PoolNotReady").await;
    consumer.pause(&consumer.pools(), "web", false).await;
    let after = consumer.bound_address("b").await;
    assert_eq!((after.uid(), &after.spec), (before.uid(), &before.spec));
    consumer.reserved("web", &[("10.0.0.1", "a"), ("10.0.0.2", "b")]).await;
    stays("counts", || async {
        let pool = consumer.pools().get("web").await.expect("pools can be read").expect("the pool exists");
        crate::support::consumer::counts_of(&pool).is_some_and(|counts| counts.2 == 2)
    })
    .await;
    eventually("one controller among the owners", || async {
        let owners = consumer.addresses().get("b").await.ok()??.metadata.owner_references?;
        (owners.iter().filter(|owner| owner.controller == Some(true)).count() == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_promise_of_what_somebody_else_has_is_not_kept_and_is_told() {
    let consumer = with_pool().await;
    consumer.pause(&consumer.pools(), "web", true).await;
    consumer.pool_says("web", "False", "Paused").await;
    consumer.address_by_hand("a", "web", "10.0.0.1").await;
    consumer.counts("web", (3, 2, 1, 0)).await;
    let promise = consumer.reserve("web", "10.0.0.1", json!({"namespace": consumer.namespace, "name": "vip"})).await;
    for name in ["a", "vip"] {
        consumer.claim(name, "web").await;
    }
    consumer.pause(&consumer.pools(), "web", false).await;
    assert_eq!(consumer.bound("vip").await, "10.0.0.2", "the other one may be at work");
    let text = consumer.waits_for("a", "DuplicateAddress").await;
    assert!(text.contains(&promise.name_any()), "{text}");
    let everywhere = Consumer { namespace: "default".to_owned(), ..consumer.clone() };
    eventually("an event tells that the promise cannot be kept", || async {
        let told = everywhere.events(&promise.name_any()).await;
        told.iter()
            .any(|(_, reason, text)| reason == "InvalidReservation" && text.contains("in use by an IPAddress"))
            .then_some(())
    })
    .await;
    consumer.remove(&consumer.reservations(), &promise.name_any()).await;
    assert_eq!(consumer.bound("a").await, "10.0.0.1");
}

#[tokio::test]
async fn a_promise_is_kept_once_the_address_is_given_up() {
    let consumer = consumer().await;
    consumer.pool("web", json!({"addresses": ["10.0.0.1"], "prefix": 24})).await;
    consumer.pause(&consumer.pools(), "web", true).await;
    consumer.pool_says("web", "False", "Paused").await;
    consumer.address_by_hand("by-hand", "web", "10.0.0.1").await;
    consumer.counts("web", (1, 0, 1, 0)).await;
    consumer.reserve("web", "10.0.0.1", json!({"namespace": consumer.namespace, "name": "vip"})).await;
    consumer.claim("vip", "web").await;
    consumer.pause(&consumer.pools(), "web", false).await;
    consumer.waits_for("vip", "PoolExhausted").await;
    consumer.remove(&consumer.addresses(), "by-hand").await;
    assert_eq!(consumer.bound("vip").await, "10.0.0.1");
}

#[tokio::test]
async fn reserved_address_that_the_pool_lost_is_not_used() {
    let consumer = with_pool().await;
    let paused = json!({"annotations": {"cluster.x-k8s.io/paused": ""}});
    let claim = consumer.claim_with("a", "InClusterIPPool", "web", paused).await;
    consumer.waits_for("a", "Paused").await;
    let holder = json!({"namespace": consumer.namespace, "name": "a", "uid": claim.uid()});
    consumer.reserve("web", "10.0.0.2", holder).await;
    let changed = json!({"addresses": ["10.0.1.1-10.0.1.3"], "prefix": 24, "gateway": "10.0.1.254"});
    consumer.change_pool("web", |spec| *spec = changed.clone()).await;
    consumer.counts("web", (3, 3, 0, 0)).await;
    consumer.pause(&consumer.claims(), "a", false).await;
    let address = consumer.bound_address("a").await;
    let given = (address.spec.address.as_str(), address.spec.gateway.as_deref());
    assert_eq!(given, ("10.0.1.1", Some("10.0.1.254")), "address and gateway are of the same specification");
    consumer.reserved("web", &[("10.0.1.1", "a")]).await;
}
