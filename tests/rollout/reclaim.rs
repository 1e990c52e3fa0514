//! The time after which the address of a claim is released although other controllers keep the
//! claim.

use capi_ipam_provider::api::names;
use jiff::{SignedDuration, Timestamp};
use support::prelude::*;

const IN_USE: &str = "example.com/in-use";
const LIMIT: SignedDuration = SignedDuration::from_secs(60);

fn deleted(claim: &IPAddressClaim) -> Timestamp {
    claim
        .metadata
        .deletion_timestamp
        .as_ref()
        .expect("the claim is being deleted")
        .0
}

/// The claims are deleted before the pool has a limit, and the manager is not running for a part of
/// the time.
#[tokio::test(flavor = "multi_thread")]
async fn address_is_released_after_the_time_of_the_pool() {
    let (control_plane, mut manager, consumer) = scene_with_manager(&[]).await;
    for pool in ["limited", "unlimited"] {
        consumer.create_pool(pool, "10.0.0.1").await;
        consumer
            .bind_with_metadata(pool, pool, json!({"finalizers": [IN_USE]}))
            .await;
        consumer.delete(pool).await;
    }
    consumer
        .claim_waits("next", "limited", "PoolExhausted")
        .await;
    consumer.wait_until_unready("limited", "Deleting").await;
    let limit = json!({"terminating": {"afterSeconds": 60}});
    consumer
        .modify_pool("limited", |spec| spec["reclaim"] = limit.clone())
        .await;
    let terminating = eventually("the claim shows when its address is released", || async {
        let found = consumer.the_claim("limited").await;
        ready(&found)
            .message
            .unwrap_or_default()
            .contains("(or at ")
            .then_some(found)
    })
    .await;
    let end = deleted(&terminating)
        .saturating_add(LIMIT)
        .expect("the time is valid");
    tokio::time::sleep(Duration::from_secs(15)).await;
    manager.stop();
    let _manager = Manager::start(&control_plane, &[]);
    let left = Duration::try_from(end.duration_since(Timestamp::now())).unwrap_or_default();
    tokio::time::sleep(left.saturating_sub(Duration::from_secs(2))).await;
    let reported = ready(&consumer.the_claim("limited").await);
    let allocated = consumer.allocated_addresses().await;
    // On a loaded machine the start or the answers can take until the end of the time.
    if Timestamp::now() < end {
        assert_eq!(reported.reason.as_deref(), Some("Deleting"), "{reported:?}");
        assert!(allocated.contains_key("limited"));
    }

    eventually("the address is allocated again", || async {
        consumer.the_claim("next").await.bound_address().map(drop)
    })
    .await;
    println!(
        "allocated again {:#} after the end of the time",
        Timestamp::now().duration_since(end)
    );
    let text = consumer
        .wait_until_unready("limited", "ReleasedEarly")
        .await;
    let pool = format!("InClusterIPPool {}/limited permits", consumer.namespace);
    assert!(text.contains(&pool) && text.ends_with(IN_USE), "{text}");
    let finalizers = eventually("our finalizer is removed", || async {
        let found = consumer.the_claim("limited").await;
        (!found
            .finalizers()
            .iter()
            .any(|name| name == names::RELEASE_ADDRESS))
        .then(|| found.finalizers().to_vec())
    })
    .await;
    assert_eq!(finalizers, [IN_USE]);
    let reported = ready(&consumer.the_claim("unlimited").await);
    assert_eq!(reported.reason.as_deref(), Some("Deleting"), "{reported:?}");
    assert!(
        consumer
            .allocated_addresses()
            .await
            .contains_key("unlimited")
    );
    until("an event names the finalizer", async || {
        let events = consumer.events("limited").await;
        Some(
            events
                .iter()
                .any(|(_, reason, note)| reason == "ReleasedEarly" && note.contains(IN_USE)),
        )
    })
    .await;
}
