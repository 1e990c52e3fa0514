//! Reservations that are deleted, replaced or wrong.

use capi_ipam::support::consumer::{Consumer, eventually};
use capi_ipam::with_claims;
use kube::ResourceExt;
use serde_json::json;

/// Puts a reservation of another holder in the place of the one of that address, as if it had been edited past all
/// checks. The manager may put back in between what is deleted.
async fn replace_holder(consumer: &Consumer, address: &str, holder: serde_json::Value) {
    let reservations = consumer.reservations();
    loop {
        if let Some(found) = consumer.reservation("web", address).await
            && let Err(error) = reservations.delete(&found.name_any(), &found.uid().unwrap_or_default()).await
        {
            assert!(error.is_conflict(), "{error}");
        }
        match consumer.try_reserve("web", address, holder.clone()).await {
            Ok(_) => return,
            Err(error) => assert!(error.is_already_exists(), "{error}"),
        }
    }
}

#[tokio::test]
async fn a_reservation_of_a_bound_claim_is_made_again_whoever_asks_meanwhile() {
    let consumer = with_claims(4, &["a", "b"]).await;
    for number in 0..5 {
        let name = format!("p.{}.web.10.0.0.1", consumer.namespace);
        consumer.remove(&consumer.reservations(), &name).await;
        let new = format!("new{number}");
        consumer.claim(&new, "web").await;
        let address = consumer.bound(&new).await;
        assert_ne!(address, "10.0.0.1");
        consumer.reserved("web", &[("10.0.0.1", "a"), ("10.0.0.2", "b"), (&address, &new)]).await;
        consumer.release(&new).await;
    }
    assert_eq!(consumer.bound("a").await, "10.0.0.1");
}

#[tokio::test]
async fn a_reservation_for_a_dead_claim_in_the_place_of_a_live_one_is_put_right() {
    let consumer = with_claims(4, &["a", "b"]).await;
    let dead = "00000000-0000-0000-0000-000000000000";
    // Of a claim that never was; of an earlier one of the name; of another one that has its own.
    let b = consumer.claims().get("b").await.expect("claims can be read").expect("it exists").metadata.uid;
    for (name, uid) in [("never", json!(dead)), ("a", json!(dead)), ("b", json!(b))] {
        let holder = json!({"namespace": consumer.namespace, "name": name, "uid": uid});
        replace_holder(&consumer, "10.0.0.1", holder).await;
        consumer.claim("new", "web").await;
        let address = consumer.bound("new").await;
        assert_ne!(address, "10.0.0.1", "the address is in use");
        assert_eq!(consumer.bound("a").await, "10.0.0.1");
        if name != "a" {
            consumer.reserved("web", &[("10.0.0.1", "a"), ("10.0.0.2", "b"), (&address, "new")]).await;
        }
        consumer.release("new").await;
    }
    consumer.release("a").await;
    consumer.claim("a", "web").await;
    consumer.bound("a").await;
    consumer.counts("web", (4, 2, 2, 0)).await;
}

/// The claim that the reservation names lives and has nothing yet: it gets another address, and then the reservation is
/// its own no longer.
#[tokio::test]
async fn a_reservation_for_a_claim_that_waits_does_not_give_it_an_address_in_use() {
    let consumer = with_claims(4, &["a"]).await;
    let metadata = json!({"annotations": {"cluster.x-k8s.io/paused": ""}});
    let waits = consumer.claim_with("waits", "InClusterIPPool", "web", metadata).await;
    consumer.waits_for("waits", "Paused").await;
    let holder = json!({"namespace": consumer.namespace, "name": "waits", "uid": waits.metadata.uid});
    replace_holder(&consumer, "10.0.0.1", holder).await;
    consumer.pause(&consumer.claims(), "waits", false).await;
    assert_eq!(consumer.bound("waits").await, "10.0.0.2");
    assert_eq!(consumer.bound("a").await, "10.0.0.1");
    consumer.reserved("web", &[("10.0.0.1", "a"), ("10.0.0.2", "waits")]).await;
}

#[tokio::test]
async fn a_released_reservation_of_a_bound_claim_does_not_free_its_address() {
    let consumer = with_claims(4, &["a"]).await;
    let patch = json!([{"op": "add", "path": "/spec/releasedAt", "value": "2020-01-01T00:00:00Z"}]);
    let name = format!("p.{}.web.10.0.0.1", consumer.namespace);
    let patch = serde_json::from_value(patch).expect("the test writes patches as they should be");
    consumer.reservations().patch(&name, patch).await.expect("the reservation can be released");
    consumer.claim("b", "web").await;
    assert_eq!(consumer.bound("b").await, "10.0.0.2");
    consumer.reserved("web", &[("10.0.0.1", "a"), ("10.0.0.2", "b")]).await;
    eventually("it is not released any more", || async {
        consumer.reservation("web", "10.0.0.1").await?.spec.released_at.is_none().then_some(())
    })
    .await;
    consumer.reserved("web", &[("10.0.0.1", "a"), ("10.0.0.2", "b")]).await;
}

/// What an earlier claim of the same name left: its reservation, and its IPAddress with it as owner.
#[tokio::test]
async fn leftovers_of_an_earlier_claim_of_the_name_are_no_burden() {
    let consumer = with_claims(4, &["a"]).await;
    let dead = "00000000-0000-0000-0000-000000000000";
    let holder = json!({"namespace": consumer.namespace, "name": "again", "uid": dead});
    consumer.reserve("web", "10.0.0.3", holder.clone()).await;
    consumer.reserve("web", "10.0.0.4", holder).await;
    consumer.claim("again", "web").await;
    assert_eq!(consumer.bound("again").await, "10.0.0.2");
    eventually("the leftovers are freed", || async {
        (consumer.reservation("web", "10.0.0.3").await.is_none()
            && consumer.reservation("web", "10.0.0.4").await.is_none())
        .then_some(())
    })
    .await;
    consumer.reserved("web", &[("10.0.0.1", "a"), ("10.0.0.2", "again")]).await;
}
