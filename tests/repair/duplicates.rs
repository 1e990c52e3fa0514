//! Two IPAddress objects with one address.

use std::time::Duration;

use capi_ipam::support::consumer::{Consumer, eventually, ready};
use capi_ipam::{is_ready, metric, with_claims};
use kube::ResourceExt;
use serde_json::json;

const METRIC: &str = "capi_ipam_duplicate_addresses";

/// Has the IPAddress of `loser` say the address of another claim, as if it had been written past all checks: the object
/// is made anew, for nobody can change the address of one that is there. The claims stay bound, and `loser` paused.
async fn give_the_same(consumer: &Consumer, loser: &str, address: &str) {
    let addresses = consumer.addresses();
    let mut copy = addresses.get(loser).await.expect("addresses can be read").expect("it exists");
    copy.spec.address = address.to_owned();
    (copy.metadata.uid, copy.metadata.resource_version) = (None, None);
    // Else the provider would make it anew at once. It has seen the pause when it has seen a claim made after that.
    consumer.pause(&consumer.claims(), loser, true).await;
    let metadata = json!({"annotations": {"cluster.x-k8s.io/paused": ""}});
    consumer.claim_with("made-later", "InClusterIPPool", "web", metadata).await;
    consumer.waits_for("made-later", "Paused").await;
    consumer.release("made-later").await;
    consumer.force_away(&addresses, loser).await;
    addresses.create(&copy).await.expect("the copy can be made");
}

/// The reason and text of a claim that is bound and not ready.
async fn says_duplicate(consumer: &Consumer, name: &str) -> String {
    eventually(&format!("claim {name} says that its address is a duplicate"), || async {
        let claim = consumer.claims().get(name).await.expect("claims can be read")?;
        assert_eq!(claim.bound_address(), Some(name), "it stays bound");
        let ready = ready(&claim);
        let says = ready.status == "False" && ready.reason.as_deref() == Some("DuplicateAddress");
        says.then(|| ready.message.unwrap_or_default())
    })
    .await
}

#[tokio::test]
async fn of_two_bound_claims_with_one_address_one_is_told_and_none_is_touched() {
    let consumer = with_claims(9, &["a", "b"]).await;
    let before = consumer.addresses().get("a").await.expect("addresses can be read");
    give_the_same(&consumer, "b", "10.0.0.1").await;
    consumer.pause(&consumer.claims(), "b", false).await;
    let damaged = consumer.addresses().get("b").await.expect("addresses can be read").expect("it exists");

    let text = says_duplicate(&consumer, "b").await;
    for part in ["10.0.0.1", &format!("{}/a", consumer.namespace), &format!("p.{}.web.10.0.0.1", consumer.namespace)] {
        assert!(text.contains(part), "{part:?} is missing: {text}");
    }
    eventually("an event tells it", || async {
        let told = consumer.events("b").await;
        told.iter().any(|(kind, reason, _)| kind == "Warning" && reason == "DuplicateAddress").then_some(())
    })
    .await;
    eventually("the metric counts it", || async { (metric(METRIC)? >= 1.0).then_some(()) }).await;
    assert_eq!(consumer.bound("a").await, "10.0.0.1");
    assert_eq!(consumer.addresses().get("a").await.expect("addresses can be read"), before);
    let after = consumer.addresses().get("b").await.expect("addresses can be read").expect("it is not deleted");
    assert_eq!((after.uid(), &after.spec), (damaged.uid(), &damaged.spec));

    // It is told once.
    let claim = consumer.claims().get("b").await.expect("claims can be read");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(consumer.claims().get("b").await.expect("claims can be read"), claim);
    // The claim that is made anew gets another address, and the other keeps its own.
    consumer.release("b").await;
    consumer.claim("b", "web").await;
    assert_eq!(consumer.bound("b").await, "10.0.0.2");
    assert_eq!(consumer.bound("a").await, "10.0.0.1");
    consumer.reserved("web", &[("10.0.0.1", "a"), ("10.0.0.2", "b")]).await;
}

#[tokio::test]
async fn the_report_is_taken_back_when_the_other_claim_goes() {
    let consumer = with_claims(9, &["a", "b"]).await;
    give_the_same(&consumer, "b", "10.0.0.1").await;
    consumer.pause(&consumer.claims(), "b", false).await;
    says_duplicate(&consumer, "b").await;
    consumer.release("a").await;
    is_ready(&consumer, "b").await;
    assert_eq!(consumer.bound("b").await, "10.0.0.1");
    consumer.reserved("web", &[("10.0.0.1", "b")]).await;
    consumer.counts("web", (9, 8, 1, 0)).await;
    consumer.claim("c", "web").await;
    assert_eq!(consumer.bound("c").await, "10.0.0.2");
}

/// Where no reservation says who was first, the older claim was.
#[tokio::test]
async fn without_a_reservation_the_older_claim_keeps_the_address() {
    let consumer = with_claims(9, &["old"]).await;
    // Times of creation are whole seconds.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    consumer.claim("another", "web").await;
    assert_eq!(consumer.bound("another").await, "10.0.0.2");
    give_the_same(&consumer, "another", "10.0.0.1").await;
    let name = format!("p.{}.web.10.0.0.1", consumer.namespace);
    consumer.remove(&consumer.reservations(), &name).await;
    let holder = eventually("the address is reserved again", || async {
        consumer.reservation("web", "10.0.0.1").await?.spec.claim_ref
    });
    assert_eq!(holder.await.name, "old");
    consumer.pause(&consumer.claims(), "another", false).await;
    says_duplicate(&consumer, "another").await;
    is_ready(&consumer, "old").await;
    consumer.reserved("web", &[("10.0.0.1", "old")]).await;
}

#[tokio::test]
async fn an_unbound_claim_gets_another_address_when_its_own_is_that_of_a_dead_one() {
    let consumer = with_claims(9, &["a"]).await;
    let owner = json!({"apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddressClaim", "name": "b",
        "uid": "00000000-0000-0000-0000-000000000000", "controller": true, "blockOwnerDeletion": true});
    let metadata = json!({"annotations": {"cluster.x-k8s.io/paused": ""}});
    consumer.claim_with("b", "InClusterIPPool", "web", metadata).await;
    consumer.waits_for("b", "Paused").await;
    consumer.address_by_hand("b", "web", "10.0.0.1").await;
    consumer
        .change(&consumer.addresses(), "b", |address| address["metadata"]["ownerReferences"] = json!([owner]))
        .await;
    consumer.pause(&consumer.claims(), "b", false).await;
    assert_eq!(consumer.bound("b").await, "10.0.0.2");
    assert_eq!(consumer.bound("a").await, "10.0.0.1");
}
