//! What claims say, and what others make of it.

use std::time::{Duration, Instant};

use capi_ipam::consumer;
use capi_ipam::support::consumer::{Consumer, eventually, ready, unique};
use capi_ipam_provider::api::IPAddressClaim;
use serde_json::{json, Value};

/// The condition `Ready` of an object that aggregates the `v1beta1` conditions of its claims, as the vSphere provider does
/// on a VSphereVM: a claim without one is still being created, and one that is False makes the whole False.
fn aggregated(claims: &[IPAddressClaim]) -> (bool, String) {
    let conditions: Vec<Value> = claims
        .iter()
        .filter_map(|claim| {
            let list = json!(claim.status)["deprecated"]["v1beta1"]["conditions"].take();
            list.as_array()?.iter().find(|condition| condition["type"] == "Ready").cloned()
        })
        .collect();
    let done = conditions.iter().filter(|condition| condition["status"] == "True").count();
    let reason = if conditions.len() < claims.len() { "being created" } else { "completed" };
    (conditions.len() == claims.len() && done == claims.len(), format!("{done}/{} {reason}", claims.len()))
}

/// The condition of an object that mirrors `Ready` of its claim in `v1beta2`: status, reason and message are copied.
fn mirrored(claim: &IPAddressClaim) -> (String, String, String) {
    let ready = ready(claim);
    (ready.status.into_owned(), ready.reason.unwrap_or_default().into_owned(), ready.message.unwrap_or_default())
}

#[tokio::test]
async fn claims_are_ready_for_readers_of_both_versions() {
    let consumer = consumer().await;
    consumer.pool("web", json!({"addresses": ["10.0.0.1-10.0.0.2"], "prefix": 24})).await;
    for name in ["a", "b", "c"] {
        consumer.claim(name, "web").await;
        if name != "c" {
            consumer.bound(name).await;
        }
    }
    consumer.waits_for("c", "PoolExhausted").await;
    let claims = || async { consumer.claims().list().await.expect("claims can be read") };
    assert_eq!(aggregated(&claims().await), (false, "2/3 completed".to_owned()));

    consumer.change_pool("web", |spec| spec["addresses"] = json!(["10.0.0.1-10.0.0.3"])).await;
    consumer.bound("c").await;
    let all = claims().await;
    assert_eq!(aggregated(&all), (true, "3/3 completed".to_owned()));
    for claim in &all {
        assert_eq!(mirrored(claim), ("True".to_owned(), "AddressAllocated".to_owned(), String::new()));
    }
}

/// Has a claim that waits be reconciled, without a change for it.
async fn touch(consumer: &Consumer, name: &str) {
    let label = unique("l");
    consumer.change(&consumer.claims(), name, |claim| claim["metadata"]["labels"] = json!({"touched": label})).await;
}

/// Two managers whose caches lag differently would rewrite it in turns.
#[tokio::test]
async fn a_message_is_rewritten_after_it_has_differed_for_a_while() {
    let consumer = consumer().await;
    consumer.pool("web", json!({"addresses": ["10.0.0.1"], "prefix": 24})).await;
    consumer.claim("a", "web").await;
    consumer.bound("a").await;
    consumer.claim("b", "web").await;
    let before = consumer.waits_for("b", "PoolExhausted").await;
    assert!(before.contains("1 in total"), "{before}");
    // One more address, which is not for claims.
    consumer.reserve("web", "10.0.0.2", Value::Null).await;
    consumer.change_pool("web", |spec| spec["addresses"] = json!(["10.0.0.1-10.0.0.2"])).await;
    consumer.counts("web", (2, 0, 1, 0)).await;
    let changed = Instant::now();
    touch(&consumer, "b").await;
    let after = eventually("the message is rewritten", || async {
        let text = consumer.waits_for("b", "PoolExhausted").await;
        (text != before).then_some(text)
    })
    .await;
    assert!(after.contains("2 in total"), "{after}");
    let took = changed.elapsed();
    assert!((Duration::from_secs(4)..Duration::from_secs(20)).contains(&took), "{took:?}");
}
