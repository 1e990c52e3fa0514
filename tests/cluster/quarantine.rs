//! Addresses at which another host answers: they are quarantined when their claim is released.

use capi_ipam_api::{IPReservation, Quarantine};
use capi_ipam_controller::client::error_chain;
use capi_ipam_provider::api::names;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use support::prelude::*;

use crate::consumer;

/// Reports a conflict of the address of a claim.
async fn report_conflict(consumer: &Consumer, claim: &str, duration: &str) {
    consumer
        .modify(&consumer.claims(), claim, |claim| {
            claim["metadata"]["annotations"] = json!({
                names::CONFLICT_ANNOTATION: "ARP reply of 52:54:00:12:34:56",
                names::QUARANTINE_FOR_ANNOTATION: duration,
            });
        })
        .await;
}

/// The quarantine of an address, and until when it is from now.
async fn quarantine_of(consumer: &Consumer, address: &str) -> (Quarantine, SignedDuration) {
    let found = consumer.reservation("web", address).await;
    let spec = found.expect("the address is reserved").spec;
    assert_eq!((spec.claim_ref, spec.released_at), (None, None));
    let quarantine = spec.quarantine.expect("the address is quarantined");
    let left = quarantine.until.0.duration_since(Timestamp::now());
    (quarantine, left)
}

fn until_in(seconds: i64) -> Value {
    json!(Time(Timestamp::now() + SignedDuration::from_secs(seconds)))
}

async fn wait_for_quarantined(consumer: &Consumer, expected: i64) {
    eventually(
        &format!("{expected} addresses are quarantined"),
        async || {
            let pool = answered(consumer.pools().get("web").await)??;
            let counts = pool.status?.ip_addresses?;
            (counts.quarantined == expected).then_some(())
        },
    )
    .await;
}

/// Creates the reservation of a quarantined address as `kubectl ipam quarantine` does. Returns
/// whether none existed.
async fn quarantine(consumer: &Consumer, address: &str, seconds: i64) -> bool {
    let scope = format!("p.{}.web", consumer.namespace);
    let wanted: IPReservation = object(json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "IPReservation",
        "metadata": {"name": format!("{scope}.{address}")},
        "spec": {
            "scope": scope, "address": address,
            "poolRef": {"kind": "InClusterIPPool", "namespace": consumer.namespace, "name": "web"},
            "quarantine": {"until": until_in(seconds), "reason": "by hand"},
        },
    }));
    match create(&consumer.reservations(), &wanted).await {
        Ok(_) => true,
        Err(error) if error.is_already_exists() => false,
        Err(error) => panic!("cannot quarantine {address}: {error}"),
    }
}

async fn next_claim_gets_another_address(policy: Value) {
    let consumer = consumer().await;
    let mut spec = json!({"addresses": ["10.0.0.1-10.0.0.3"], "prefix": 24});
    json_patch::merge(&mut spec, &policy);
    consumer.create_pool("web", spec).await;
    consumer.bind_to("a", "web", "10.0.0.1").await;
    report_conflict(&consumer, "a", "48h").await;
    for object in ["a", "web"] {
        let part = "10.0.0.1: ARP reply of 52:54:00:12:34:56";
        consumer
            .wait_for_event(object, "Warning", "AddressConflict", part)
            .await;
    }
    consumer.assert_address("a", "10.0.0.1").await;
    wait_for_quarantined(&consumer, 0).await;

    consumer.release("a").await;
    let (quarantine, left) = quarantine_of(&consumer, "10.0.0.1").await;
    assert_eq!(quarantine.reason, "ARP reply of 52:54:00:12:34:56");
    assert!(left > SignedDuration::from_hours(47) && left <= SignedDuration::from_hours(48));
    wait_for_quarantined(&consumer, 1).await;
    for (name, address) in [("a", "10.0.0.2"), ("b", "10.0.0.3")] {
        consumer.bind_to(name, "web", address).await;
    }
    let message = consumer.claim_waits("c", "web", "PoolExhausted").await;
    assert!(message.contains("1 quarantined"), "{message}");
    // The manager confirms that the record counts, as it does for other manual reservations.
    let name = format!("p.{}.web.10.0.0.1", consumer.namespace);
    eventually("the quarantine is ready", async || {
        let found = answered(consumer.reservations().get(&name).await)??;
        (found.is_ready()? && !found.labels().is_empty()).then_some(())
    })
    .await;
    // It ends earlier when its reservation is deleted.
    consumer.delete_reservation("web", "10.0.0.1").await;
    consumer.assert_address("c", "10.0.0.1").await;
}

#[tokio::test]
async fn next_claim_gets_another_address_lowest_first() {
    next_claim_gets_another_address(json!({})).await;
}

#[tokio::test]
async fn next_claim_gets_another_address_in_a_sticky_pool() {
    let policy = json!({"allocation": {"sticky": true}, "addressReuseGracePeriodSeconds": 1});
    next_claim_gets_another_address(policy).await;
}

#[tokio::test]
async fn expired_quarantine_frees_the_address() {
    let consumer = consumer().await;
    consumer.create_pool("web", "10.0.0.1").await;
    consumer.bind_to("a", "web", "10.0.0.1").await;
    report_conflict(&consumer, "a", "1h").await;
    consumer.release("a").await;
    consumer.claim_waits("b", "web", "PoolExhausted").await;
    let until = until_in(3);
    let name = format!("p.{}.web.10.0.0.1", consumer.namespace);
    let changed = consumer
        .modify(&consumer.reservations(), &name, |found| {
            found["spec"]["quarantine"]["until"] = until.clone();
        })
        .await;
    consumer.assert_address("b", "10.0.0.1").await;
    let until = changed.spec.quarantine.expect("a quarantine").until.0;
    assert!(Timestamp::now() > until, "it is allocated too early");
    consumer
        .wait_for_reservations("web", &[("10.0.0.1", "b")])
        .await;
}

#[tokio::test]
async fn free_address_is_quarantined_at_once() {
    let consumer = consumer().await;
    let spec =
        json!({"addresses": ["10.0.0.1-10.0.0.3"], "prefix": 24, "allocation": {"requests": true}});
    consumer.create_pool("web", spec).await;
    assert!(quarantine(&consumer, "10.0.0.1", 3_600).await);
    wait_for_quarantined(&consumer, 1).await;
    consumer.bind_to("a", "web", "10.0.0.2").await;
    let requested = json!({"annotations": {names::REQUESTED_ADDRESS: "10.0.0.1"}});
    let pool =
        json!({"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "web"});
    consumer.create_claim_for("r", pool, requested).await;
    let message = consumer
        .wait_for_reason("r", "RequestedAddressUnavailable")
        .await;
    assert!(message.contains("quarantined until"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn allocation_and_quarantine_of_one_address_exclude_each_other() {
    let consumer = consumer().await;
    consumer.create_pool("web", "10.0.0.1-10.0.0.40").await;
    let mut addresses = BTreeSet::new();
    for round in 1..=20 {
        let (name, address) = (format!("c{round}"), format!("10.0.0.{round}"));
        let quarantined = quarantine(&consumer, &address, 3_600);
        let (_, is_quarantined) = tokio::join!(consumer.create_claim(&name, "web"), quarantined);
        let bound = consumer.wait_for_address(&name).await;
        assert!(
            !is_quarantined || bound != address,
            "{bound} is quarantined"
        );
        assert!(addresses.insert(bound));
    }
}

#[tokio::test]
async fn promise_of_an_address_with_a_conflict_ends() {
    let consumer = consumer().await;
    consumer.create_pool("web", "10.0.0.1-10.0.0.3").await;
    consumer.reserve_for("web", "10.0.0.3", "a").await;
    consumer.bind_to("a", "web", "10.0.0.3").await;
    report_conflict(&consumer, "a", "1h").await;
    consumer.release("a").await;
    quarantine_of(&consumer, "10.0.0.3").await;
    consumer.bind_to("a", "web", "10.0.0.1").await;
}

#[tokio::test]
async fn quarantine_moves_with_its_pool_to_a_network() {
    let consumer = consumer().await;
    let network = unique("net");
    consumer.create_open_network(&network).await;
    consumer.create_pool("web", "10.0.0.1-10.0.0.3").await;
    assert!(quarantine(&consumer, "10.0.0.1", 3_600).await);
    wait_for_quarantined(&consumer, 1).await;
    let before = quarantine_of(&consumer, "10.0.0.1").await.0;
    consumer
        .modify_pool("web", |spec| spec["network"] = json!(network))
        .await;
    let name = format!("n.{network}.10.0.0.1");
    let moved = eventually("the quarantine is moved", async || {
        answered(consumer.reservations().get(&name).await)?
    })
    .await;
    assert_eq!(moved.spec.quarantine, Some(before));
    wait_for_quarantined(&consumer, 1).await;
    consumer.bind_to("a", "web", "10.0.0.2").await;
}

#[tokio::test]
async fn end_too_far_in_the_future_is_limited() {
    let consumer = consumer().await;
    consumer.create_pool("web", "10.0.0.1-10.0.0.3").await;
    assert!(quarantine(&consumer, "10.0.0.1", 400 * 24 * 3_600).await);
    let left = eventually("the end is limited", async || {
        let (_, left) = quarantine_of(&consumer, "10.0.0.1").await;
        (left <= SignedDuration::from_hours(30 * 24)).then_some(left)
    })
    .await;
    assert!(left > SignedDuration::from_hours(29 * 24), "{left}");
}

#[tokio::test]
async fn api_server_refuses_an_invalid_quarantine() {
    let consumer = consumer().await;
    consumer.create_pool("web", "10.0.0.1-10.0.0.3").await;
    consumer.bind_to("a", "web", "10.0.0.1").await;
    let held = consumer.reservation("web", "10.0.0.1").await;
    let held = serde_json::to_value(held).expect("objects are JSON");
    let good = json!({"until": until_in(60), "reason": "x"});
    for (change, field) in [
        (json!({"quarantine": good}), "spec.quarantine"),
        (
            json!({"claimRef": null, "quarantine": good, "releasedAt": until_in(0)}),
            "spec.quarantine",
        ),
        (
            json!({"claimRef": null, "quarantine": {"until": until_in(60), "reason": ""}}),
            "spec.quarantine.reason",
        ),
        (
            json!({"claimRef": null, "quarantine": {"until": until_in(60), "reason": "x".repeat(257)}}),
            "spec.quarantine.reason",
        ),
        (
            json!({"claimRef": null, "quarantine": {"until": "soon", "reason": "x"}}),
            "spec.quarantine.until",
        ),
        (json!({"claimRef": null}), "spec.claimRef"),
    ] {
        let mut spec = held["spec"].clone();
        json_patch::merge(&mut spec, &change);
        let patch = json!([{"op": "replace", "path": "/spec", "value": spec}]);
        let patch = serde_json::from_value(patch).expect("a patch");
        let name = held["metadata"]["name"].as_str().expect("a name");
        let patched = consumer.reservations().patch(name, patch).await;
        let error = error_chain(&patched.expect_err(field));
        assert!(error.contains(field), "{field}: {error}");
    }
}
