//! Deleted, replaced and wrong reservations.

use capi_ipam_api::IPReservation;
use support::prelude::*;

use crate::with_claims;

/// Replaces the reservation of an address with one for another holder, bypassing all checks. The
/// manager may recreate the deleted one concurrently.
async fn replace_holder(consumer: &Consumer, address: &str, holder: serde_json::Value) {
    let reservations = consumer.reservations();
    loop {
        if let Some(found) = consumer.reservation("web", address).await
            && let Err(error) = reservations
                .delete(&found.name_any(), &found.uid().unwrap_or_default())
                .await
        {
            assert!(error.is_conflict(), "{error}");
        }
        match consumer.try_reserve("web", address, holder.clone()).await {
            Ok(_) => return,
            Err(error) => assert!(error.is_already_exists(), "{error}"),
        }
    }
}

/// As `kubectl ipam unreserve` does with the promise of an address that its claim uses.
#[tokio::test]
async fn deleted_promise_of_an_address_in_use_is_replaced_at_once() {
    let (_plane, _manager, consumer) = scene_with_manager(&["--sweep-interval=1h"]).await;
    consumer.create_pool("web", "10.0.0.1-10.0.0.9").await;
    consumer.reserve_for("web", "10.0.0.7", "a").await;
    consumer.bind_to("a", "web", "10.0.0.7").await;
    consumer.delete_reservation("web", "10.0.0.7").await;
    consumer
        .wait_for_reservations("web", &[("10.0.0.7", "a")])
        .await;
    eventually(
        "the reservation is that of the claim, not a promise",
        || async {
            let found = consumer.reservation("web", "10.0.0.7").await?;
            found.spec.claim_ref?.uid.map(drop)
        },
    )
    .await;
    // It is released with the claim.
    consumer.release("a").await;
    consumer.wait_for_reservations("web", &[]).await;
}

#[tokio::test]
async fn reservation_naming_a_dead_claim_is_repaired() {
    let consumer = with_claims(4, &["a", "b"]).await;
    let dead = "00000000-0000-0000-0000-000000000000";
    // Of a claim that never existed; of a previous claim of the name; of another claim that has its
    // own address.
    let b = consumer.the_claim("b").await.metadata.uid;
    for (name, uid) in [("never", json!(dead)), ("a", json!(dead)), ("b", json!(b))] {
        let holder = json!({"namespace": consumer.namespace, "name": name, "uid": uid});
        replace_holder(&consumer, "10.0.0.1", holder).await;
        consumer.create_claim("new", "web").await;
        let address = consumer.wait_for_address("new").await;
        assert_ne!(address, "10.0.0.1", "the address is in use");
        consumer.assert_address("a", "10.0.0.1").await;
        if name != "a" {
            consumer
                .wait_for_reservations(
                    "web",
                    &[("10.0.0.1", "a"), ("10.0.0.2", "b"), (&address, "new")],
                )
                .await;
        }
        consumer.release("new").await;
    }
    consumer.release("a").await;
    consumer.bind("a", "web").await;
    consumer.wait_for_counts("web", (4, 2, 2, 0)).await;
}

/// The reservation names an unbound claim: it gets another address, and then the reservation is
/// repaired.
#[tokio::test]
async fn reservation_for_a_waiting_claim_frees_no_address_in_use() {
    let consumer = with_claims(4, &["a"]).await;
    let metadata = json!({"annotations": {"cluster.x-k8s.io/paused": ""}});
    let waits = consumer
        .create_claim_with_metadata("waits", "web", metadata)
        .await;
    consumer.wait_for_reason("waits", "Paused").await;
    let holder =
        json!({"namespace": consumer.namespace, "name": "waits", "uid": waits.metadata.uid});
    replace_holder(&consumer, "10.0.0.1", holder).await;
    consumer
        .set_paused(&consumer.claims(), "waits", false)
        .await;
    consumer.assert_address("waits", "10.0.0.2").await;
    consumer.assert_address("a", "10.0.0.1").await;
    consumer
        .wait_for_reservations("web", &[("10.0.0.1", "a"), ("10.0.0.2", "waits")])
        .await;
}

#[tokio::test]
async fn released_mark_on_a_bound_claim_frees_nothing() {
    let consumer = with_claims(4, &["a"]).await;
    let patch = json!([{"op": "add", "path": "/spec/releasedAt", "value": "2020-01-01T00:00:00Z"}]);
    let name = format!("p.{}.web.10.0.0.1", consumer.namespace);
    let patch = serde_json::from_value(patch).expect("the test writes patches as they should be");
    consumer
        .reservations()
        .patch(&name, patch)
        .await
        .expect("the reservation can be released");
    consumer.bind_to("b", "web", "10.0.0.2").await;
    consumer
        .wait_for_reservations("web", &[("10.0.0.1", "a"), ("10.0.0.2", "b")])
        .await;
    until("the released mark is removed", || async {
        Some(
            consumer
                .reservation("web", "10.0.0.1")
                .await?
                .spec
                .released_at
                .is_none(),
        )
    })
    .await;
    consumer
        .wait_for_reservations("web", &[("10.0.0.1", "a"), ("10.0.0.2", "b")])
        .await;
}

#[tokio::test]
async fn report_only_sweep_frees_nothing() {
    let control_plane = ControlPlane::new();
    let flags = [
        "--sweep-interval=200ms",
        "--sweep-grace=1s",
        "--sweep-report-only",
    ];
    let manager = Manager::start(&control_plane, &flags);
    let consumer = Consumer::new(&control_plane).await;
    consumer.create_pool("web", "10.0.0.1-10.0.0.4").await;
    let pool =
        json!({"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "web"});
    consumer
        .create_leftover_address("left", pool, "10.0.0.2")
        .await;
    let holder = json!({"namespace": consumer.namespace, "name": "never", "uid": "dead"});
    consumer.reserve("web", "10.0.0.1", holder).await;
    let reservation = consumer
        .reservation("web", "10.0.0.1")
        .await
        .expect("it exists")
        .name_any();
    let everywhere = consumer.in_namespace("default");
    for (scene, object, words) in [
        (&consumer, "left", "no IPAddressClaim left exists"),
        (&everywhere, &reservation, "does not use 10.0.0.1"),
    ] {
        until(&format!("an event reports {object}"), async || {
            let events = scene.events(object).await;
            Some(
                events
                    .iter()
                    .any(|(_, reason, text)| reason == "NoClaim" && text.contains(words)),
            )
        })
        .await;
    }
    consumer.bind_to("a", "web", "10.0.0.3").await;
    assert!(consumer.reservation("web", "10.0.0.1").await.is_some());
    assert!(
        consumer
            .addresses()
            .get("left")
            .await
            .expect("addresses can be read")
            .is_some()
    );
    assert!(!manager.was_forbidden(), "{}", manager.log());
}

/// So that `kubectl wait` ends. A claim that takes the address over changes the generation.
#[tokio::test]
async fn valid_reservation_of_a_user_becomes_ready_once() {
    let (plane, _manager, consumer) = scene_with_manager(&["--sweep-interval=1s"]).await;
    consumer.create_pool("web", "10.0.0.1-10.0.0.9").await;
    let excluded = consumer.reserve("web", "10.0.0.5", json!(null)).await;
    let promised = consumer.reserve_for("web", "10.0.0.7", "vip").await;
    let wait_for = |reservation: &IPReservation| {
        let name = format!("ipreservation/{}", reservation.name_any());
        plane.kubectl(&["wait", "--for=condition=Ready", &name, "--timeout=60s"]);
    };
    wait_for(&excluded);
    wait_for(&promised);
    consumer.bind_to("vip", "web", "10.0.0.7").await;
    consumer.bind_to("a", "web", "10.0.0.1").await;
    wait_for(&promised);
    let all = async || {
        let all = consumer.reservations().list().await;
        all.expect("they can be listed")
    };
    let at_rest = eventually("nothing writes reservations", || async {
        let before = all().await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        (before == all().await).then_some(before)
    })
    .await;
    let mut states: Vec<_> = at_rest
        .iter()
        .map(|found| (found.spec.address.as_str(), found.is_ready()))
        .collect();
    states.sort_unstable();
    let expected = [
        ("10.0.0.1", None),
        ("10.0.0.5", Some(true)),
        ("10.0.0.7", Some(true)),
    ];
    assert_eq!(states, expected);
}
