//! Two IPAddress objects with one address.

use support::prelude::*;

use crate::{metric, pause, wait_until_ready, with_claims};

const METRIC: &str = "capi_ipam_duplicate_addresses";

/// Recreates the IPAddress of `loser` with the address of another claim, bypassing all checks.
/// Addresses are immutable, so the object has to be recreated. The claims stay bound, and `loser`
/// stays paused.
async fn create_duplicate(consumer: &Consumer, loser: &str, address: &str) {
    let addresses = consumer.addresses();
    let mut copy = read(&addresses, loser).await;
    copy.spec.address = address.to_owned();
    (copy.metadata.uid, copy.metadata.resource_version) = (None, None);
    // Otherwise the manager would recreate it immediately.
    pause(consumer, loser).await;
    consumer.force_delete(&addresses, loser).await;
    addresses
        .create(&copy)
        .await
        .expect("the copy can be created");
}

/// Waits until a bound claim reports a duplicate, and returns the message.
async fn wait_for_duplicate(consumer: &Consumer, name: &str) -> String {
    eventually(
        &format!("claim {name} reports that its address is a duplicate"),
        || async {
            let claim = consumer
                .claims()
                .get(name)
                .await
                .expect("claims can be read")?;
            assert_eq!(claim.bound_address(), Some(name), "it stays bound");
            let ready = ready(&claim);
            let says =
                ready.status == "False" && ready.reason.as_deref() == Some("DuplicateAddress");
            says.then(|| ready.message.unwrap_or_default())
        },
    )
    .await
}

#[tokio::test]
async fn duplicate_of_bound_claims_is_reported_and_not_repaired() {
    let consumer = with_claims(9, &["a", "b"]).await;
    let before = consumer
        .addresses()
        .get("a")
        .await
        .expect("addresses can be read");
    create_duplicate(&consumer, "b", "10.0.0.1").await;
    consumer.set_paused(&consumer.claims(), "b", false).await;
    let damaged = consumer.the_address("b").await;

    let text = wait_for_duplicate(&consumer, "b").await;
    for part in [
        "10.0.0.1",
        &format!("{}/a", consumer.namespace),
        &format!("p.{}.web.10.0.0.1", consumer.namespace),
    ] {
        assert!(text.contains(part), "{part:?} is missing: {text}");
    }
    until("an event reports it", async || {
        let reported = consumer.events("b").await;
        Some(
            reported
                .iter()
                .any(|(kind, reason, _)| kind == "Warning" && reason == "DuplicateAddress"),
        )
    })
    .await;
    until("the metric counts it", async || {
        Some(metric(METRIC)? >= 1.0)
    })
    .await;
    consumer.assert_address("a", "10.0.0.1").await;
    assert_eq!(
        consumer
            .addresses()
            .get("a")
            .await
            .expect("addresses can be read"),
        before
    );
    let after = consumer.the_address("b").await;
    assert_eq!((after.uid(), &after.spec), (damaged.uid(), &damaged.spec));

    // It is reported once.
    let claim = consumer
        .claims()
        .get("b")
        .await
        .expect("claims can be read");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(
        consumer
            .claims()
            .get("b")
            .await
            .expect("claims can be read"),
        claim
    );
    // The recreated claim gets another address, and the other keeps its own.
    consumer.release("b").await;
    consumer.bind_to("b", "web", "10.0.0.2").await;
    consumer.assert_address("a", "10.0.0.1").await;
    consumer
        .wait_for_reservations("web", &[("10.0.0.1", "a"), ("10.0.0.2", "b")])
        .await;
}

#[tokio::test]
async fn duplicate_report_is_cleared_with_the_other_claim() {
    let consumer = with_claims(9, &["a", "b"]).await;
    create_duplicate(&consumer, "b", "10.0.0.1").await;
    consumer.set_paused(&consumer.claims(), "b", false).await;
    wait_for_duplicate(&consumer, "b").await;
    consumer.release("a").await;
    wait_until_ready(&consumer, "b").await;
    consumer.assert_address("b", "10.0.0.1").await;
    consumer
        .wait_for_reservations("web", &[("10.0.0.1", "b")])
        .await;
    consumer.wait_for_counts("web", (9, 8, 1, 0)).await;
    consumer.bind_to("c", "web", "10.0.0.2").await;
}

/// Without a reservation the older claim takes precedence.
#[tokio::test]
async fn older_claim_keeps_a_duplicate_without_reservation() {
    let consumer = with_claims(9, &["old"]).await;
    // Creation timestamps have whole seconds.
    tokio::time::sleep(Duration::from_millis(1100)).await;
    consumer.bind_to("another", "web", "10.0.0.2").await;
    create_duplicate(&consumer, "another", "10.0.0.1").await;
    let name = format!("p.{}.web.10.0.0.1", consumer.namespace);
    consumer
        .delete_object(&consumer.reservations(), &name)
        .await;
    let holder = eventually("the address is reserved again", || async {
        consumer
            .reservation("web", "10.0.0.1")
            .await?
            .spec
            .claim_ref
    });
    assert_eq!(holder.await.name, "old");
    consumer
        .set_paused(&consumer.claims(), "another", false)
        .await;
    wait_for_duplicate(&consumer, "another").await;
    wait_until_ready(&consumer, "old").await;
    consumer
        .wait_for_reservations("web", &[("10.0.0.1", "old")])
        .await;
}
