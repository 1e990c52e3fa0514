//! Claims with a damaged finalizer, status or IPAddress.

use support::prelude::*;

use crate::{pause, wait_until_ready, with_claims};

#[tokio::test]
async fn lost_finalizer_is_restored() {
    let consumer = with_claims(9, &["a"]).await;
    let pools = consumer.pools();
    let before = consumer.wait_for_ip_address("a").await;
    consumer.set_finalizers(&consumer.claims(), "a", &[]).await;
    consumer
        .set_finalizers(&consumer.addresses(), "a", &[])
        .await;
    consumer.set_finalizers(&pools, "web", &[]).await;
    until("all three have their finalizers", async || {
        let has = |finalizers: &[String], name: &str| {
            finalizers.iter().any(|present| present.ends_with(name))
        };
        let claim = consumer.claims().get("a").await.ok()??;
        let address = consumer.addresses().get("a").await.ok()??;
        let pool = pools.get("web").await.ok()??;
        Some(
            has(claim.finalizers(), "/ReleaseAddress")
                && has(address.finalizers(), "/ProtectAddress")
                && has(pool.finalizers(), "/ProtectPool"),
        )
    })
    .await;
    let after = consumer.wait_for_ip_address("a").await;
    assert_eq!((after.uid(), after.spec), (before.uid(), before.spec));
    consumer.release("a").await;
    consumer.wait_for_counts("web", (9, 9, 0, 0)).await;
}

/// Without our finalizer the deletion does not wait for the manager; it still releases the address.
#[tokio::test]
async fn claim_deleted_without_finalizer_leaves_nothing_behind() {
    let consumer = with_claims(9, &["a"]).await;
    consumer.set_paused(&consumer.claims(), "a", true).await;
    consumer.force_delete(&consumer.claims(), "a").await;
    eventually("its address and reservation are deleted", || async {
        let gone = consumer.allocated_addresses().await.is_empty()
            && consumer.reservation("web", "10.0.0.1").await.is_none();
        gone.then_some(())
    })
    .await;
    consumer.wait_for_counts("web", (9, 9, 0, 0)).await;
}

#[tokio::test]
async fn wrong_address_reference_of_a_claim_is_repaired() {
    let consumer = with_claims(9, &["a", "b"]).await;
    let name =
        |to: &str| json!([{"op": "replace", "path": "/status/addressRef/name", "value": to}]);
    for wrong in ["b", "nobody"] {
        let patch =
            serde_json::from_value(name(wrong)).expect("the test writes patches as they should be");
        consumer
            .claims()
            .patch_status("a", patch)
            .await
            .expect("the status can be changed");
        until("the claim names its own address", async || {
            Some(consumer.claims().get("a").await.ok()??.bound_address() == Some("a"))
        })
        .await;
        consumer.assert_address("a", "10.0.0.1").await;
    }
    consumer.assert_address("b", "10.0.0.2").await;
    consumer
        .wait_for_reservations("web", &[("10.0.0.1", "a"), ("10.0.0.2", "b")])
        .await;
}

#[tokio::test]
async fn lost_status_is_restored_with_the_same_address() {
    let consumer = with_claims(9, &["a", "b"]).await;
    let patch = json!([{"op": "remove", "path": "/status"}]);
    let patch = serde_json::from_value(patch).expect("the test writes patches as they should be");
    let before = consumer.wait_for_ip_address("a").await;
    consumer
        .claims()
        .patch_status("a", patch)
        .await
        .expect("the status can be changed");
    let after = consumer.wait_for_ip_address("a").await;
    assert_eq!((after.uid(), after.spec), (before.uid(), before.spec));
}

#[tokio::test]
async fn force_deleted_address_is_recreated_with_the_same_value() {
    let consumer = with_claims(3, &["a", "b"]).await;
    for number in 0..3 {
        let before = consumer.wait_for_ip_address("a").await;
        consumer.force_delete(&consumer.addresses(), "a").await;
        consumer.create_claim(&format!("new{number}"), "web").await;
        if number == 0 {
            // Before the others, so that it is this one which gets the free address.
            consumer.assert_address("new0", "10.0.0.3").await;
        }
        until("the IPAddress is recreated", async || {
            let found = consumer.addresses().get("a").await.ok()??;
            Some(found.uid() != before.uid())
        })
        .await;
        let after = consumer.wait_for_ip_address("a").await;
        assert_eq!(after.spec, before.spec);
    }
    consumer.wait_for_reason("new1", "PoolExhausted").await;
    consumer.wait_for_counts("web", (3, 0, 3, 0)).await;
    let holders = [("10.0.0.1", "a"), ("10.0.0.2", "b"), ("10.0.0.3", "new0")];
    consumer.wait_for_reservations("web", &holders).await;
}

/// The IPAddress of a bound claim was deleted, and its address is in use by an IPAddress without a
/// claim.
#[tokio::test]
async fn bound_claim_gets_no_other_address_while_its_own_is_used() {
    let consumer = with_claims(9, &["a"]).await;
    let pool =
        json!({"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "web"});
    // The manager must not observe the deletion of the IPAddress before the pause.
    pause(&consumer, "a").await;
    consumer
        .create_address_for("squatter", pool, "10.0.0.1")
        .await;
    consumer.force_delete(&consumer.addresses(), "a").await;
    consumer.set_paused(&consumer.claims(), "a", false).await;
    let text = eventually("the claim reports that its address is in use", || async {
        let claim = consumer.claims().get("a").await.ok()??;
        assert_eq!(claim.bound_address(), Some("a"));
        let ready = ready(&claim);
        (ready.reason.as_deref() == Some("DuplicateAddress"))
            .then(|| ready.message.unwrap_or_default())
    })
    .await;
    assert!(
        text.contains("10.0.0.1") && text.contains("/squatter"),
        "{text}"
    );
    assert!(
        !consumer.allocated_addresses().await.contains_key("a"),
        "it gets no other address"
    );
    consumer
        .delete_object(&consumer.addresses(), "squatter")
        .await;
    wait_until_ready(&consumer, "a").await;
    consumer.assert_address("a", "10.0.0.1").await;
    consumer
        .wait_for_reservations("web", &[("10.0.0.1", "a")])
        .await;
}
