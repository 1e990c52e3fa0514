//! Quarantined addresses with restarts, and with two managers.

use capi_ipam_provider::api::names;
use support::prelude::*;

/// Reports a conflict of the address of a claim.
async fn report_conflict(consumer: &Consumer, claim: &str) {
    consumer
        .modify(&consumer.claims(), claim, |claim| {
            claim["metadata"]["annotations"] = json!({
                names::CONFLICT_ANNOTATION: "ARP reply",
            });
        })
        .await;
}

async fn is_quarantined(consumer: &Consumer, address: &str) -> bool {
    let found = consumer.reservation("web", address).await;
    found.is_some_and(|found| found.spec.quarantine.is_some())
}

/// Ends a quarantine by its time.
async fn end_now(consumer: &Consumer, address: &str) {
    let name = format!("p.{}.web.{address}", consumer.namespace);
    consumer
        .modify(&consumer.reservations(), &name, |found| {
            found["spec"]["quarantine"]["until"] = json!("2026-01-01T00:00:00Z");
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conflict_and_quarantine_survive_restarts() {
    let plane = ControlPlane::new();
    let mut manager = Manager::start(&plane, &[]);
    let consumer = Consumer::new(&plane).await;
    consumer.create_pool("web", "10.0.0.1-10.0.0.2").await;
    consumer.bind_to("a", "web", "10.0.0.1").await;
    report_conflict(&consumer, "a").await;
    manager.kill();
    consumer.delete("a").await;
    consumer.create_claim("b", "web").await;

    let mut manager = Manager::start(&plane, &[]);
    consumer.wait_until_deleted("a").await;
    assert!(is_quarantined(&consumer, "10.0.0.1").await);
    consumer.assert_address("b", "10.0.0.2").await;
    manager.kill();

    let _manager = Manager::start(&plane, &[]);
    consumer.claim_waits("c", "web", "PoolExhausted").await;
    assert!(is_quarantined(&consumer, "10.0.0.1").await);
    end_now(&consumer, "10.0.0.1").await;
    consumer.assert_address("c", "10.0.0.1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_managers_quarantine_once_and_end_once() {
    let plane = ControlPlane::new();
    let managers = [Manager::start(&plane, &[]), Manager::start(&plane, &[])];
    let consumer = Consumer::new(&plane).await;
    consumer.create_pool("web", "10.0.0.1-10.0.0.16").await;
    let names = numbered("old", 8);
    consumer.create_claims(&names, "web").await;
    let conflicting = consumer.wait_for_addresses(&names).await;
    join_all(names.iter().map(|name| report_conflict(&consumer, name))).await;
    consumer.release_all(&names).await;
    for address in conflicting.values() {
        assert!(is_quarantined(&consumer, address).await, "{address}");
    }
    let names = numbered("new", 8);
    consumer.create_claims(&names, "web").await;
    let others = consumer.wait_for_addresses(&names).await;
    for address in others.values() {
        assert!(!conflicting.values().any(|it| it == address), "{address}");
    }
    consumer.release_all(&names).await;
    join_all(conflicting.values().map(|it| end_now(&consumer, it))).await;
    consumer.wait_for_reservations("web", &[]).await;
    drop(managers);
}
