//! Claims and reservations that come from another cluster: `clusterctl move`, a backup that is restored.

use std::time::{Duration, Instant};

use capi_ipam::api::{InClusterIPPool, Pool};
use capi_ipam::support::consumer::{Consumer, eventually};
use capi_ipam::{consumer, world};
use kube::ResourceExt;
use serde_json::{json, Value};

/// What a claim carries that had an address where it comes from, and what a copy of one carries.
fn with_finalizer() -> Value {
    json!({"finalizers": ["ipam.cluster.x-k8s.io/ReleaseAddress"]})
}

async fn with_pool() -> Consumer {
    let consumer = consumer().await;
    consumer.pool("web", json!({"addresses": ["10.0.0.1-10.0.0.9"], "prefix": 24})).await;
    consumer
}

/// Makes a claim as `clusterctl move` and Velero do: its managed fields are restored after it has been created.
async fn arrives(consumer: &Consumer, name: &str) {
    copied(consumer, name, json!({})).await;
    let entry = |manager: &str, fields: Value| {
        json!({"manager": manager, "operation": "Update", "apiVersion": "ipam.cluster.x-k8s.io/v1beta2",
               "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields})
    };
    let finalizer = json!({".": {}, "v:\"ipam.cluster.x-k8s.io/ReleaseAddress\"": {}});
    let fields = [
        entry("machine-controller", json!({"f:spec": {".": {}, "f:poolRef": {}}})),
        entry("capi-ipam-in-cluster", json!({"f:metadata": {"f:finalizers": finalizer}})),
    ];
    let patch = format!("--patch={}", json!({"metadata": {"managedFields": fields}}));
    let namespace = format!("--namespace={}", consumer.namespace);
    world().control_plane.kubectl(&["patch", "ipaddressclaim", name, &namespace, "--type=merge", &patch]);
}

/// Makes a claim with our finalizer, as a copy of another one has it.
async fn copied(consumer: &Consumer, name: &str, mut metadata: Value) {
    metadata["finalizers"] = with_finalizer()["finalizers"].take();
    consumer.claim_with(name, InClusterIPPool::KIND.name(), "web", metadata).await;
}

#[tokio::test]
async fn a_claim_that_arrives_before_its_address_waits_for_it() {
    let consumer = with_pool().await;
    arrives(&consumer, "a").await;
    let text = consumer.waits_for("a", "AwaitingAddress").await;
    assert!(text.contains("ipam.cluster.x-k8s.io/ReleaseAddress"), "{text}");
    // Others are served meanwhile.
    consumer.claim("b", "web").await;
    assert_eq!(consumer.bound("b").await, "10.0.0.1");
    let made = consumer.address_by_hand("a", "web", "10.0.0.7").await;
    let address = consumer.bound_address("a").await;
    assert_eq!((address.uid(), &address.spec), (made.uid(), &made.spec));
    consumer.reserved("web", &[("10.0.0.1", "b"), ("10.0.0.7", "a")]).await;
    consumer.release("a").await;
}

#[tokio::test]
async fn a_copied_claim_is_bound_within_seconds() {
    let consumer = with_pool().await;
    let started = Instant::now();
    copied(&consumer, "a", json!({})).await;
    assert_eq!(consumer.bound("a").await, "10.0.0.1");
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_claim_that_arrives_with_its_cluster_waits() {
    let consumer = with_pool().await;
    consumer.cluster("alpha", false).await;
    copied(&consumer, "a", json!({"clusterName": "alpha"})).await;
    consumer.waits_for("a", "AwaitingAddress").await;
    consumer.address_by_hand("a", "web", "10.0.0.7").await;
    assert_eq!(consumer.bound("a").await, "10.0.0.7");
}

#[tokio::test]
async fn it_is_served_anew_when_somebody_takes_the_finalizer_off() {
    let consumer = with_pool().await;
    arrives(&consumer, "a").await;
    consumer.waits_for("a", "AwaitingAddress").await;
    consumer.change(&consumer.claims(), "a", |claim| claim["metadata"]["finalizers"] = json!([])).await;
    assert_eq!(consumer.bound("a").await, "10.0.0.1");
}

#[tokio::test]
async fn it_can_be_deleted_while_it_waits() {
    let consumer = with_pool().await;
    arrives(&consumer, "a").await;
    consumer.waits_for("a", "AwaitingAddress").await;
    consumer.release("a").await;
    consumer.counts("web", (9, 9, 0, 0)).await;
}

#[tokio::test]
async fn a_reservation_made_by_hand_is_labelled_to_be_moved_and_one_of_a_claim_is_not() {
    let consumer = with_pool().await;
    let promise = consumer.reserve("web", "10.0.0.5", json!({"namespace": consumer.namespace, "name": "vip"})).await;
    consumer.claim("a", "web").await;
    consumer.bound("a").await;
    let labelled = |name: String| {
        let reservations = consumer.reservations();
        async move {
            let found = reservations.get(&name).await.expect("reservations can be read").expect("it is there");
            found.labels().contains_key("clusterctl.cluster.x-k8s.io/move")
        }
    };
    eventually("it is labelled", || async { labelled(promise.name_any()).await.then_some(()) }).await;
    let of_claim = consumer.reservation("web", "10.0.0.1").await.expect("it is reserved");
    assert!(!labelled(of_claim.name_any()).await);
}
