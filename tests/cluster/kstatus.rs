//! What tools that follow the rules of kstatus report of pools and networks: Flux, Argo CD, and
//! `kubectl wait` in part.

use capi_ipam_api::Pool;
use kube::core::DynamicObject;
use serde::Serialize;
use support::prelude::*;

use crate::{consumer, environment, lenient_consumer};

/// The status of a custom resource by the rules of kstatus:
/// <https://github.com/kubernetes-sigs/cli-utils/blob/master/pkg/kstatus/README.md>.
pub(crate) fn kstatus(object: &impl Serialize) -> &'static str {
    let object = json!(object);
    let (metadata, status) = (&object["metadata"], &object["status"]);
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
    consumer.the_pool("web").await
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
    consumer.create_pool("web", "10.0.0.1").await;
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
    consumer.create_pool("web", "nonsense").await;
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
    consumer.bind("a", "web").await;
    consistently("the pool is current", || async {
        kstatus(&pool(&consumer).await) == "Current"
    })
    .await;
}

#[tokio::test]
async fn paused_and_deleted_pools_are_not_failed() {
    let consumer = consumer().await;
    consumer.create_pool("web", "10.0.0.1").await;
    consumer.bind("a", "web").await;
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
    consumer.delete_pool("web").await;
    wait_for_kstatus(&consumer, "Terminating").await;
}

#[tokio::test]
async fn invalid_network_is_failed_until_it_is_corrected() {
    let (consumer, name) = (consumer().await, unique("net"));
    // Only the webhook can refuse this.
    consumer
        .create_network(&name, json!({"excluded": ["fd00::9-fd00::1"]}))
        .await;
    consumer
        .wait_for_network_condition(&name, "False", "InvalidSpec")
        .await;
    let failed = read(&consumer.networks(), &name).await;
    assert_eq!(kstatus(&failed), "Failed", "{failed:?}");
    consumer
        .modify(&consumer.networks(), &name, |network| {
            network["spec"] = json!({"excluded": ["10.0.0.1"]});
        })
        .await;
    until("the network is current", async || {
        let corrected = read(&consumer.networks(), &name).await;
        let status = corrected.status.as_ref()?;
        let is_stalled = status.conditions.iter().any(|it| it.type_ == "Stalled");
        Some(!is_stalled && kstatus(&corrected) == "Current")
    })
    .await;
    consumer.delete_object(&consumer.networks(), &name).await;
}

/// No provider processes an object of the namespace `default` at once: the responses to the
/// creation show the state before.
#[tokio::test]
async fn unprocessed_object_is_in_progress() {
    let (consumer, name) = (consumer().await, unique("net"));
    let metadata = json!({"name": name});
    let api = "ipam.cluster.x-k8s.io/v1alpha2";
    let objects = [
        json!({"apiVersion": api, "kind": "IPNetwork", "metadata": metadata, "spec": {}}),
        json!({"apiVersion": api, "kind": "GlobalInClusterIPPool", "metadata": metadata,
               "spec": {"addresses": ["10.0.0.1"], "prefix": 24}}),
        json!({"apiVersion": api, "kind": "GlobalInClusterPrefixPool", "metadata": metadata,
               "spec": {"prefixes": ["fd00::/60"]}}),
    ];
    for object in objects {
        let file = environment()
            .control_plane
            .folder()
            .join(format!("{name}.json"));
        std::fs::write(&file, object.to_string()).expect("the file can be written");
        let file = format!("--filename={}", file.display());
        let created = environment()
            .control_plane
            .kubectl(&["create", &file, "--output=json"]);
        let created: DynamicObject = serde_json::from_str(&created).expect("it is an object");
        assert_eq!(created.data["status"], json!({"observedGeneration": -1}));
        assert_eq!(kstatus(&created), "InProgress");
    }
    until("the network is current", async || {
        Some(kstatus(&read(&consumer.networks(), &name).await) == "Current")
    })
    .await;
    consumer.delete_object(&consumer.networks(), &name).await;
}
