//! Claims whose finalizer, status or IPAddress is damaged.

use capi_ipam::support::consumer::{eventually, ready};
use capi_ipam::{is_ready, with_claims};
use kube::ResourceExt;
use serde_json::json;

#[tokio::test]
async fn a_lost_finalizer_is_put_back() {
    let consumer = with_claims(9, &["a"]).await;
    let pools = consumer.pools();
    let before = consumer.bound_address("a").await;
    consumer.change(&consumer.claims(), "a", |claim| claim["metadata"]["finalizers"] = json!([])).await;
    consumer.change(&consumer.addresses(), "a", |address| address["metadata"]["finalizers"] = json!([])).await;
    consumer.change(&pools, "web", |pool| pool["metadata"]["finalizers"] = json!([])).await;
    eventually("all three have their finalizers", || async {
        let has = |finalizers: &[String], name: &str| finalizers.iter().any(|present| present.ends_with(name));
        let claim = consumer.claims().get("a").await.ok()??;
        let address = consumer.addresses().get("a").await.ok()??;
        let pool = pools.get("web").await.ok()??;
        (has(claim.finalizers(), "/ReleaseAddress")
            && has(address.finalizers(), "/ProtectAddress")
            && has(pool.finalizers(), "/ProtectPool"))
        .then_some(())
    })
    .await;
    let after = consumer.bound_address("a").await;
    assert_eq!((after.uid(), after.spec), (before.uid(), before.spec));
    consumer.release("a").await;
    consumer.counts("web", (9, 9, 0, 0)).await;
}

/// Without our finalizer nobody waits for us; what the claim held is taken back all the same.
#[tokio::test]
async fn a_claim_deleted_without_its_finalizer_leaves_nothing() {
    let consumer = with_claims(9, &["a"]).await;
    consumer.pause(&consumer.claims(), "a", true).await;
    consumer.force_away(&consumer.claims(), "a").await;
    eventually("its address and reservation are gone", || async {
        let gone = consumer.given().await.is_empty() && consumer.reservation("web", "10.0.0.1").await.is_none();
        gone.then_some(())
    })
    .await;
    consumer.counts("web", (9, 9, 0, 0)).await;
}

#[tokio::test]
async fn a_claim_that_names_another_address_gets_its_own_back() {
    let consumer = with_claims(9, &["a", "b"]).await;
    let name = |to: &str| json!([{"op": "replace", "path": "/status/addressRef/name", "value": to}]);
    for wrong in ["b", "nobody"] {
        let patch = serde_json::from_value(name(wrong)).expect("the test writes patches as they should be");
        consumer.claims().patch_status("a", patch).await.expect("the status can be changed");
        eventually("the claim names its own address", || async {
            (consumer.claims().get("a").await.ok()??.bound_address() == Some("a")).then_some(())
        })
        .await;
        assert_eq!(consumer.bound("a").await, "10.0.0.1");
    }
    assert_eq!(consumer.bound("b").await, "10.0.0.2");
    consumer.reserved("web", &[("10.0.0.1", "a"), ("10.0.0.2", "b")]).await;
}

#[tokio::test]
async fn a_lost_status_is_written_again_with_the_same_address() {
    let consumer = with_claims(9, &["a", "b"]).await;
    let patch = json!([{"op": "remove", "path": "/status"}]);
    let patch = serde_json::from_value(patch).expect("the test writes patches as they should be");
    let before = consumer.bound_address("a").await;
    consumer.claims().patch_status("a", patch).await.expect("the status can be changed");
    let after = consumer.bound_address("a").await;
    assert_eq!((after.uid(), after.spec), (before.uid(), before.spec));
}

#[tokio::test]
async fn an_address_deleted_by_force_comes_back_the_same_while_others_ask_for_one() {
    let consumer = with_claims(3, &["a", "b"]).await;
    for number in 0..3 {
        let before = consumer.bound_address("a").await;
        consumer.force_away(&consumer.addresses(), "a").await;
        consumer.claim(&format!("new{number}"), "web").await;
        eventually("the IPAddress is there again", || async {
            let found = consumer.addresses().get("a").await.ok()??;
            (found.uid() != before.uid()).then_some(())
        })
        .await;
        let after = consumer.bound_address("a").await;
        assert_eq!(after.spec, before.spec);
    }
    assert_eq!(consumer.bound("new0").await, "10.0.0.3");
    consumer.waits_for("new1", "PoolExhausted").await;
    consumer.counts("web", (3, 0, 3, 0)).await;
}

/// The IPAddress of a bound claim is gone, and its address in use by something that no claim asked for.
#[tokio::test]
async fn a_bound_claim_gets_no_other_address_while_somebody_has_its_own() {
    let consumer = with_claims(9, &["a"]).await;
    let pool = json!({"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "web"});
    consumer.pause(&consumer.claims(), "a", true).await;
    consumer.address_by_hand_for("squatter", pool, "10.0.0.1").await;
    consumer.force_away(&consumer.addresses(), "a").await;
    consumer.pause(&consumer.claims(), "a", false).await;
    let text = eventually("the claim says that its address is in use", || async {
        let claim = consumer.claims().get("a").await.ok()??;
        assert_eq!(claim.bound_address(), Some("a"));
        let ready = ready(&claim);
        (ready.reason.as_deref() == Some("DuplicateAddress")).then(|| ready.message.unwrap_or_default())
    })
    .await;
    assert!(text.contains("10.0.0.1") && text.contains("/squatter"), "{text}");
    assert!(!consumer.given().await.contains_key("a"), "it has no other address");
    consumer.remove(&consumer.addresses(), "squatter").await;
    is_ready(&consumer, "a").await;
    assert_eq!(consumer.bound("a").await, "10.0.0.1");
    consumer.reserved("web", &[("10.0.0.1", "a")]).await;
}
