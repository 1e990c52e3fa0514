//! What tools that follow the rules of kstatus report of a pool: Flux, Argo CD, and `kubectl wait`
//! in part.

use capi_ipam_api::Pool;
use serde_json::{Value, json};

use crate::{consumer, environment, lenient_consumer};
use support::consumer::{Consumer, object};
use support::wait::{consistently, eventually};

/// The status of a custom resource by the rules of kstatus:
/// <https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md>.
pub(crate) fn kstatus(pool: &Pool) -> &'static str {
    let pool = json!(pool);
    let (metadata, status) = (&pool["metadata"], &pool["status"]);
    let condition = |wanted: &str| {
        let all = status["conditions"].as_array().into_iter().flatten();
        all.into_iter()
            .find(|one| one["type"] == wanted)
            .map(|one| one["status"] == "True")
    };
    let is_processed = status["observedGeneration"].is_null()
        || status["observedGeneration"] == metadata["generation"];
    if !metadata["deletionTimestamp"].is_null() {
        "Terminating"
    } else if !is_processed || condition("Reconciling") == Some(true) {
        "InProgress"
    } else if condition("Stalled") == Some(true) {
        "Failed"
    } else if condition("Ready") == Some(false) {
        "InProgress"
    } else {
        "Current"
    }
}

async fn pool(consumer: &Consumer) -> Pool {
    consumer
        .pools()
        .get("web")
        .await
        .expect("pools can be read")
        .expect("the pool exists")
}

async fn wait_for_kstatus(consumer: &Consumer, expected: &str) -> Pool {
    eventually(&format!("the pool is {expected}"), || async {
        let pool = pool(consumer).await;
        (pool.status.is_some() && kstatus(&pool) == expected).then_some(pool)
    })
    .await
}

/// Replaces the specification, and returns the pool as the API server stored it, before the
/// provider processed it.
async fn edit(consumer: &Consumer, spec: &Value) -> Pool {
    eventually("the pool is replaced", || async {
        let mut edited = json!(pool(consumer).await);
        edited["spec"] = spec.clone();
        consumer.pools().replace(&object(edited)).await.ok()
    })
    .await
}

#[tokio::test]
async fn edited_pool_is_in_progress_until_it_is_processed() {
    let consumer = consumer().await;
    consumer
        .create_pool("web", json!({"addresses": ["10.0.0.1"], "prefix": 24}))
        .await;
    assert_eq!(
        wait_for_kstatus(&consumer, "Current")
            .await
            .status
            .and_then(|status| status.observed_generation),
        Some(1)
    );
    let edited = edit(
        &consumer,
        &json!({"addresses": ["10.0.0.1-10.0.0.9"], "prefix": 24}),
    )
    .await;
    assert_eq!(
        (edited.metadata.generation, kstatus(&edited)),
        (Some(2), "InProgress")
    );
    let processed = wait_for_kstatus(&consumer, "Current")
        .await
        .status
        .expect("it has a status");
    assert_eq!(
        (
            processed.observed_generation,
            processed.ip_addresses.map(|counts| counts.total)
        ),
        (Some(2), Some(9))
    );

    let (plane, pool) = (&environment().control_plane, "inclusterippools/web");
    let wait = |condition: &str| {
        plane.try_kubectl(&[
            "wait",
            pool,
            "-n",
            &consumer.namespace,
            &format!("--for={condition}"),
            "--timeout=30s",
        ])
    };
    for condition in [
        "condition=Ready",
        "jsonpath={.status.observedGeneration}=2",
        "condition=Exhausted=false",
    ] {
        wait(condition).unwrap_or_else(|error| panic!("{condition}: {error}"));
    }
}

#[tokio::test]
async fn invalid_pool_is_failed_until_it_is_corrected() {
    let consumer = lenient_consumer().await;
    consumer
        .create_pool("web", json!({"addresses": ["nonsense"], "prefix": 24}))
        .await;
    wait_for_kstatus(&consumer, "Failed").await;
    edit(&consumer, &json!({"addresses": ["10.0.0.1"], "prefix": 24})).await;
    let corrected = wait_for_kstatus(&consumer, "Current")
        .await
        .status
        .expect("it has a status");
    assert!(
        corrected
            .conditions
            .iter()
            .all(|condition| condition.type_ != "Stalled"),
        "{:?}",
        corrected.conditions
    );
    // A claim changes the counts and not the generation.
    consumer.create_claim("a", "web").await;
    consumer.wait_for_address("a").await;
    consistently("the pool is current", || async {
        kstatus(&pool(&consumer).await) == "Current"
    })
    .await;
}

#[tokio::test]
async fn paused_and_deleted_pools_are_not_failed() {
    let consumer = consumer().await;
    consumer
        .create_pool("web", json!({"addresses": ["10.0.0.1"], "prefix": 24}))
        .await;
    consumer.create_claim("a", "web").await;
    consumer.wait_for_address("a").await;
    let annotate =
        |value: Value| json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": value}}});
    consumer
        .modify(&consumer.pools(), "web", |pool| {
            json_patch::merge(pool, &annotate(json!("")))
        })
        .await;
    wait_for_kstatus(&consumer, "InProgress").await;
    consumer
        .modify(&consumer.pools(), "web", |pool| {
            json_patch::merge(pool, &annotate(Value::Null))
        })
        .await;
    wait_for_kstatus(&consumer, "Current").await;
    consumer.delete_object(&consumer.pools(), "web").await;
    wait_for_kstatus(&consumer, "Terminating").await;
}
