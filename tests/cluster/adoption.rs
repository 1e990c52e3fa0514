//! IPAddress objects that exist before their claim: from a restore, from a move, or created
//! manually.

use support::prelude::*;

use crate::{consumer, start};

/// A consumer with a pool `web` of three addresses.
async fn with_pool() -> Consumer {
    let consumer = consumer().await;
    create_pool(&consumer).await;
    consumer
}

async fn create_pool(consumer: &Consumer) {
    consumer
        .create_pool("web", ("10.0.0.1-10.0.0.3", json!({"gateway": "10.0.0.9"})))
        .await;
}

#[tokio::test]
async fn manually_created_address_is_adopted() {
    let consumer = with_pool().await;
    let made = consumer.create_address("a", "web", "10.0.0.3").await;
    consumer.create_claim("a", "web").await;
    let adopted = consumer.wait_for_ip_address("a").await;
    assert_eq!((adopted.uid(), &adopted.spec), (made.uid(), &made.spec));
    consumer
        .wait_for_reservations("web", &[("10.0.0.3", "a")])
        .await;
    consumer.wait_for_counts("web", (3, 2, 1, 0)).await;
    for (name, address) in [("b", "10.0.0.1"), ("c", "10.0.0.2")] {
        consumer.bind_to(name, "web", address).await;
    }
    consumer.claim_waits("d", "web", "PoolExhausted").await;
    consumer.release("a").await;
    consumer.assert_address("d", "10.0.0.3").await;
}

#[tokio::test]
async fn address_without_a_claim_counts_as_in_use() {
    let consumer = with_pool().await;
    consumer.pause_pool("web").await;
    consumer.create_address("restored", "web", "10.0.0.1").await;
    consumer.wait_for_counts("web", (3, 2, 1, 0)).await;
    consumer.create_claim("a", "web").await;
    consumer.create_claim("restored", "web").await;
    consumer.resume_pool("web").await;
    consumer.assert_address("a", "10.0.0.2").await;
    consumer.assert_address("restored", "10.0.0.1").await;
}

#[tokio::test]
async fn address_is_adopted_in_an_exhausted_pool() {
    let consumer = consumer().await;
    consumer.create_pool("web", "10.0.0.1").await;
    // The sweeper keeps the address for its claim.
    consumer.pause_pool("web").await;
    consumer.create_address("b", "web", "10.0.0.1").await;
    consumer.wait_for_counts("web", (1, 0, 1, 0)).await;
    consumer.create_claim("a", "web").await;
    consumer.create_claim("b", "web").await;
    consumer.resume_pool("web").await;
    consumer.assert_address("b", "10.0.0.1").await;
    consumer.wait_for_reason("a", "PoolExhausted").await;
    consumer
        .wait_for_reservations("web", &[("10.0.0.1", "b")])
        .await;
}

#[tokio::test]
async fn adopted_address_outside_the_pool_is_kept() {
    let consumer = with_pool().await;
    let made = consumer.create_address("a", "web", "10.0.7.7").await;
    consumer.create_claim("a", "web").await;
    let adopted = consumer.wait_for_ip_address("a").await;
    assert_eq!((adopted.uid(), &adopted.spec), (made.uid(), &made.spec));
    consumer
        .wait_for_reservations("web", &[("10.0.7.7", "a")])
        .await;
    consumer.wait_for_counts("web", (3, 3, 0, 1)).await;
    consumer.release("a").await;
    consumer.wait_for_counts("web", (3, 3, 0, 0)).await;
}

#[tokio::test]
async fn duplicate_of_a_held_address_is_not_adopted() {
    let consumer = with_pool().await;
    consumer.bind_to("a", "web", "10.0.0.1").await;
    let made = consumer.create_address("b", "web", "10.0.0.1").await;
    consumer.create_claim("b", "web").await;
    let text = consumer.wait_for_reason("b", "DuplicateAddress").await;
    let holder = format!("p.{}.web.10.0.0.1", consumer.namespace);
    for part in [
        "10.0.0.1",
        &holder,
        "delete the machine of all but one of these claims",
    ] {
        assert!(text.contains(part), "{part:?} is missing: {text}");
    }
    consumer.assert_stays_unbound("b").await;
    let kept = consumer.the_address("b").await;
    assert_eq!((kept.uid(), kept.spec), (made.uid(), made.spec));
    consumer.assert_address("a", "10.0.0.1").await;

    // The claim is not bound: without the IPAddress another address is allocated.
    consumer.delete_object(&consumer.addresses(), "b").await;
    consumer.assert_address("b", "10.0.0.2").await;
    consumer
        .wait_for_reservations("web", &[("10.0.0.1", "a"), ("10.0.0.2", "b")])
        .await;
    consumer.wait_for_counts("web", (3, 1, 2, 0)).await;
}

#[tokio::test]
async fn deleting_a_claim_with_a_duplicate_releases_nothing() {
    let consumer = with_pool().await;
    consumer.bind("a", "web").await;
    consumer.create_address("b", "web", "10.0.0.1").await;
    consumer.claim_waits("b", "web", "DuplicateAddress").await;
    consumer.release("b").await;
    consumer
        .wait_for_reservations("web", &[("10.0.0.1", "a")])
        .await;
    consumer.wait_for_counts("web", (3, 2, 1, 0)).await;
    consumer.bind_to("c", "web", "10.0.0.2").await;
}

#[tokio::test]
async fn duplicate_is_adopted_after_the_holder_is_deleted() {
    let consumer = with_pool().await;
    consumer.bind("a", "web").await;
    let made = consumer.create_address("b", "web", "10.0.0.1").await;
    consumer.claim_waits("b", "web", "DuplicateAddress").await;
    consumer.release("a").await;
    let adopted = consumer.wait_for_ip_address("b").await;
    assert_eq!((adopted.uid(), adopted.spec), (made.uid(), made.spec));
    consumer
        .wait_for_reservations("web", &[("10.0.0.1", "b")])
        .await;
}

#[tokio::test]
async fn address_of_a_previous_claim_is_no_duplicate() {
    let consumer = with_pool().await;
    for (name, address) in [("a", "10.0.0.1"), ("b", "10.0.0.2")] {
        consumer.bind_to(name, "web", address).await;
    }
    // The result of a failed move: the owner is a deleted claim, and the address belongs to another
    // claim.
    consumer.pause_pool("web").await;
    let owner = json!({"apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddressClaim", "name": "c",
        "uid": "00000000-0000-0000-0000-000000000000", "controller": true, "blockOwnerDeletion": true});
    consumer.create_claim("c", "web").await;
    consumer.create_address("c", "web", "10.0.0.1").await;
    consumer
        .modify(&consumer.addresses(), "c", |address| {
            address["metadata"]["ownerReferences"] = json!([owner]);
            address["metadata"]["finalizers"] = json!(["ipam.cluster.x-k8s.io/ProtectAddress"]);
        })
        .await;
    consumer.resume_pool("web").await;
    consumer.assert_address("c", "10.0.0.3").await;
    consumer.assert_address("a", "10.0.0.1").await;
    consumer
        .wait_for_reservations(
            "web",
            &[("10.0.0.1", "a"), ("10.0.0.2", "b"), ("10.0.0.3", "c")],
        )
        .await;
}

/// As after a restore of a backup: the claim has another uid than the one for which the address is
/// reserved.
#[tokio::test]
async fn restored_claim_takes_over_the_reservation_of_its_name() {
    let consumer = with_pool().await;
    consumer.pause_pool("web").await;
    let dead = "00000000-0000-0000-0000-000000000000";
    let holder = json!({"namespace": consumer.namespace, "name": "a", "uid": dead});
    let before = consumer.reserve("web", "10.0.0.2", holder).await;
    let claim = consumer.create_claim("a", "web").await;
    consumer.create_address("a", "web", "10.0.0.2").await;
    consumer.resume_pool("web").await;
    consumer.assert_address("a", "10.0.0.2").await;
    let after = consumer
        .reservation("web", "10.0.0.2")
        .await
        .expect("the address is reserved");
    assert_eq!(after.uid(), before.uid(), "it is never deleted");
    assert_eq!(
        after.spec.claim_ref.and_then(|claim| claim.uid),
        claim.uid()
    );
    consumer.release("a").await;
    consumer.wait_for_reservations("web", &[]).await;
}

#[tokio::test]
async fn address_of_another_pool_is_not_adopted() {
    let consumer = with_pool().await;
    consumer.create_pool("other", "10.0.0.1-10.0.0.3").await;
    // The sweeper keeps its address.
    consumer.pause_pool("other").await;
    consumer.create_address("a", "other", "10.0.0.2").await;
    consumer.wait_for_counts("other", (3, 2, 1, 0)).await;
    consumer.create_claim("a", "web").await;
    assert_contains(
        &consumer
            .wait_for_message("a", "AllocationFailed", "InClusterIPPool other")
            .await,
        "delete the IPAddress",
    );
    consumer.assert_stays_unbound("a").await;
    consumer.delete_object(&consumer.addresses(), "a").await;
    consumer.assert_address("a", "10.0.0.1").await;
    consumer.wait_for_counts("other", (3, 3, 0, 0)).await;
}

#[tokio::test]
async fn invalid_address_is_not_adopted() {
    let consumer = with_pool().await;
    consumer.create_address("a", "web", "10.0.0.01").await;
    consumer.create_claim("a", "web").await;
    consumer
        .wait_for_message("a", "AllocationFailed", "10.0.0.01")
        .await;
    consumer.delete_object(&consumer.addresses(), "a").await;
    consumer.assert_address("a", "10.0.0.1").await;
}

#[tokio::test]
async fn terminating_address_is_deleted_before_allocation() {
    let consumer = with_pool().await;
    let made = consumer.create_address("a", "web", "10.0.0.3").await;
    let held = json!(["example.com/in-use"]);
    consumer
        .modify(&consumer.addresses(), "a", |address| {
            address["metadata"]["finalizers"] = held.clone()
        })
        .await;
    consumer.delete_object(&consumer.addresses(), "a").await;
    consumer.create_claim("a", "web").await;
    consumer.assert_stays_unbound("a").await;
    consumer
        .set_finalizers(&consumer.addresses(), "a", &[])
        .await;
    let address = consumer.wait_for_ip_address("a").await;
    assert_ne!(address.uid(), made.uid());
    consumer.wait_for_counts("web", (3, 2, 1, 0)).await;
}

#[tokio::test]
async fn lost_status_is_restored_from_the_address() {
    let consumer = with_pool().await;
    for name in ["a", "b"] {
        consumer.bind(name, "web").await;
    }
    let before = consumer.wait_for_ip_address("b").await;
    // As `clusterctl move` does: the claim is recreated without status, beside its IPAddress.
    consumer.pause_pool("web").await;
    consumer.force_delete(&consumer.claims(), "b").await;
    consumer
        .create_claim_with_metadata("b", "web", json!({}))
        .await;
    consumer.wait_for_reason("b", "PoolNotReady").await;
    consumer.resume_pool("web").await;
    let after = consumer.wait_for_ip_address("b").await;
    assert_eq!((after.uid(), &after.spec), (before.uid(), &before.spec));
    consumer
        .wait_for_reservations("web", &[("10.0.0.1", "a"), ("10.0.0.2", "b")])
        .await;
    consistently("counts", || async {
        let pool = consumer.the_pool("web").await;
        support::consumer::counts_of(&pool).is_some_and(|counts| counts.2 == 2)
    })
    .await;
    until("one controller among the owners", async || {
        let owners = consumer
            .addresses()
            .get("b")
            .await
            .ok()??
            .metadata
            .owner_references?;
        Some(
            owners
                .iter()
                .filter(|owner| owner.controller == Some(true))
                .count()
                == 1,
        )
    })
    .await;
}

#[tokio::test]
async fn reservation_of_an_address_in_use_is_reported_as_invalid() {
    let consumer = with_pool().await;
    consumer.pause_pool("web").await;
    consumer.create_address("a", "web", "10.0.0.1").await;
    consumer.wait_for_counts("web", (3, 2, 1, 0)).await;
    let promise = consumer.reserve_for("web", "10.0.0.1", "vip").await;
    for name in ["a", "vip"] {
        consumer.create_claim(name, "web").await;
    }
    consumer.resume_pool("web").await;
    // The other claim is older, so the next address may be left to it.
    let given = consumer.wait_for_address("vip").await;
    assert!(
        ["10.0.0.2", "10.0.0.3"].contains(&given.as_str()),
        "{given}: the address in use is not allocated"
    );
    assert_contains(
        &consumer.wait_for_reason("a", "DuplicateAddress").await,
        &promise.name_any(),
    );
    // Events about global objects are in the namespace `default`.
    let default = consumer.in_namespace("default");
    default
        .wait_for_event(
            &promise.name_any(),
            "Warning",
            "InvalidReservation",
            "in use by an IPAddress",
        )
        .await;
    consumer
        .delete_object(&consumer.reservations(), &promise.name_any())
        .await;
    consumer.assert_address("a", "10.0.0.1").await;
}

#[tokio::test]
async fn reserved_address_is_allocated_after_its_release() {
    let consumer = consumer().await;
    consumer.create_pool("web", "10.0.0.1").await;
    consumer.pause_pool("web").await;
    consumer.create_address("by-hand", "web", "10.0.0.1").await;
    consumer.wait_for_counts("web", (1, 0, 1, 0)).await;
    consumer.reserve_for("web", "10.0.0.1", "vip").await;
    consumer.create_claim("vip", "web").await;
    consumer.resume_pool("web").await;
    consumer.wait_for_reason("vip", "PoolExhausted").await;
    consumer
        .delete_object(&consumer.addresses(), "by-hand")
        .await;
    consumer.assert_address("vip", "10.0.0.1").await;
}

#[tokio::test]
async fn reserved_address_that_left_the_pool_is_not_allocated() {
    let consumer = with_pool().await;
    let paused = json!({"annotations": {"cluster.x-k8s.io/paused": ""}});
    let claim = consumer
        .create_claim_with_metadata("a", "web", paused)
        .await;
    consumer.wait_for_reason("a", "Paused").await;
    let holder = json!({"namespace": consumer.namespace, "name": "a", "uid": claim.uid()});
    consumer.reserve("web", "10.0.0.2", holder).await;
    let changed =
        json!({"addresses": ["10.0.1.1-10.0.1.3"], "prefix": 24, "gateway": "10.0.1.254"});
    consumer
        .modify_pool("web", |spec| *spec = changed.clone())
        .await;
    // The counts alone can be those from before the change.
    consumer.wait_until_pool_ready("web").await;
    consumer.wait_for_counts("web", (3, 3, 0, 0)).await;
    consumer.set_paused(&consumer.claims(), "a", false).await;
    let address = consumer.wait_for_ip_address("a").await;
    let given = (
        address.spec.address.as_str(),
        address.spec.gateway.as_deref(),
    );
    assert_eq!(
        given,
        ("10.0.1.1", Some("10.0.1.254")),
        "address and gateway match the same spec"
    );
    consumer
        .wait_for_reservations("web", &[("10.0.1.1", "a")])
        .await;
}

/// The events with which the provider reports a change of an existing IPAddress.
async fn address_changes(consumer: &Consumer, name: &str) -> Vec<(String, String)> {
    let events = consumer.events(name).await.into_iter();
    let about_changes = events
        .filter(|(_, reason, _)| ["AddressAdopted", "AddressRepaired"].contains(&reason.as_str()));
    about_changes
        .map(|(_, reason, note)| (reason, note))
        .collect()
}

#[tokio::test]
async fn adoption_and_repair_are_events_of_the_address() {
    // The rate of events is limited, and the other tests cause many.
    let quiet = start(|_| {});
    let consumer = Consumer::new(&quiet.control_plane).await;
    create_pool(&consumer).await;
    consumer.create_address("a", "web", "10.0.0.3").await;
    consumer.create_claim("a", "web").await;
    consumer.create_claim("b", "web").await;
    consumer.wait_for_address("a").await;
    consumer.wait_for_address("b").await;
    let text = consumer
        .wait_for_event("a", "Normal", "AddressAdopted", "")
        .await;
    assert_eq!(
        text,
        "adopted by claim a, which keeps the address; set: finalizer, owner references"
    );
    consumer
        .set_finalizers(&consumer.addresses(), "a", &[])
        .await;
    let text = consumer
        .wait_for_event("a", "Normal", "AddressRepaired", "")
        .await;
    assert_eq!(text, "repaired for the bound claim a; set again: finalizer");
    assert_eq!(address_changes(&consumer, "a").await.len(), 2);
    // Neither an allocation nor a release is such a change.
    consumer.release("b").await;
    consumer.release("a").await;
    assert_eq!(address_changes(&consumer, "b").await, []);
    assert_eq!(address_changes(&consumer, "a").await.len(), 2);
}
