//! The API server refuses what the manager writes, because of webhooks, policies and owners: claims say so in the API
//! server's words, and recover within seconds.

use std::time::{Duration, Instant};

use capi_ipam::api::{InClusterIPPool, Pool};
use capi_ipam::support::consumer::{Consumer, eventually, object};
use capi_ipam::{consumer, world};
use capi_ipam_controller::client::ResourceClient;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, ResourceExt};
use serde_json::{json, Value};

/// How long a claim may take to recover: a retry follows within 10 s.
const RECOVERY: Duration = Duration::from_secs(20);

async fn with_pool() -> Consumer {
    let consumer = consumer().await;
    consumer.pool("web", json!({"addresses": ["10.0.0.1"], "prefix": 24})).await;
    consumer
}

fn apply(object: &Value) {
    world().control_plane.kubectl_apply(&object.to_string());
}

/// Denies an operation on a kind in the namespace of the consumer, unless the expression is true.
fn deny(consumer: &Consumer, operation: &str, kind: &str, expression: &str) -> Policy {
    let name = format!("{}-{kind}-{}", consumer.namespace, operation.to_lowercase());
    let api = "admissionregistration.k8s.io/v1";
    apply(&json!({
        "apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["ipam.cluster.x-k8s.io"], "apiVersions": ["*"], "operations": [operation],
                "resources": [kind],
            }]},
            "validations": [{"expression": expression, "message": "not before the review", "reason": "Forbidden"}],
        },
    }));
    apply(&json!({
        "apiVersion": api, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"], "matchResources": {"namespaceSelector": {
            "matchLabels": {"kubernetes.io/metadata.name": consumer.namespace}}}},
    }));
    Policy(name)
}

struct Policy(String);

impl Policy {
    fn remove(self) -> Instant {
        for kind in ["validatingadmissionpolicybinding", "validatingadmissionpolicy"] {
            world().control_plane.kubectl(&["delete", kind, &self.0]);
        }
        Instant::now()
    }
}

/// Waits until the API server refuses an IPAddress in the namespace.
async fn refused(consumer: &Consumer) {
    let probe = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddress",
        "metadata": {"name": "probe", "namespace": consumer.namespace},
        "spec": {"claimRef": {"name": "probe"}, "address": "10.9.9.9", "prefix": 24,
                 "poolRef": {"apiGroup": "example.com", "kind": "OtherPool", "name": "other"}},
    });
    eventually("an IPAddress is refused", || async {
        match consumer.addresses().create(&object(probe.clone())).await {
            Ok(_) => {
                consumer.remove(&consumer.addresses(), "probe").await;
                None
            }
            Err(_) => Some(()),
        }
    })
    .await;
}

/// Waits until a claim says that it cannot be served, and an event too, in these words.
async fn says(consumer: &Consumer, name: &str, reason: &str, words: &str) {
    let text = consumer.becomes_unready(name, reason).await;
    assert!(text.contains(words), "{text}");
    assert!(!text.contains("Status {"), "{text}");
    eventually("an event says so", || async {
        let events = consumer.events(name).await;
        events.iter().any(|(kind, why, note)| kind == "Warning" && why == reason && note.contains(words)).then_some(())
    })
    .await;
}

/// Waits until the claim is bound, and makes sure that it took seconds.
async fn recovers(consumer: &Consumer, name: &str, since: Instant) {
    consumer.bound(name).await;
    assert!(since.elapsed() < RECOVERY, "{:?}", since.elapsed());
}

#[tokio::test]
async fn a_webhook_that_is_down_is_reported() {
    let consumer = with_pool().await;
    consumer.claim("a", "web").await;
    consumer.bound("a").await;
    consumer.claim("b", "web").await;
    consumer.waits_for("b", "PoolExhausted").await;
    let configuration = format!("down-{}", consumer.namespace);
    apply(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": configuration},
        "webhooks": [{
            "name": "validation.ipaddress.ipam.cluster.x-k8s.io", "failurePolicy": "Fail", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/validate"},
            "rules": [{"apiGroups": ["ipam.cluster.x-k8s.io"], "apiVersions": ["*"], "operations": ["CREATE"],
                       "resources": ["ipaddresses"]}],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": consumer.namespace}},
        }],
    }));
    refused(&consumer).await;
    consumer.change_pool("web", |spec| spec["addresses"] = json!(["10.0.0.1-10.0.0.3"])).await;
    says(&consumer, "b", "AllocationFailed", "failed calling webhook").await;
    // It can be deleted all the same.
    consumer.claim("c", "web").await;
    says(&consumer, "c", "AllocationFailed", "failed calling webhook").await;
    consumer.release("c").await;
    world().control_plane.kubectl(&["delete", "validatingwebhookconfiguration", &configuration]);
    recovers(&consumer, "b", Instant::now()).await;
}

#[tokio::test]
async fn a_policy_against_the_address_is_reported() {
    let consumer = with_pool().await;
    let policy = deny(&consumer, "CREATE", "ipaddresses", "false");
    refused(&consumer).await;
    consumer.claim("a", "web").await;
    says(&consumer, "a", "AllocationFailed", "not before the review").await;
    recovers(&consumer, "a", policy.remove()).await;
}

#[tokio::test]
async fn a_policy_against_our_finalizer_is_reported() {
    let consumer = with_pool().await;
    let policy = deny(
        &consumer,
        "UPDATE",
        "ipaddressclaims",
        "!has(object.metadata.finalizers) || !('ipam.cluster.x-k8s.io/ReleaseAddress' in object.metadata.finalizers)",
    );
    let denied = deny(&consumer, "CREATE", "ipaddresses", "false");
    // Both are known by then.
    refused(&consumer).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    denied.remove();
    consumer.claim("a", "web").await;
    says(&consumer, "a", "AllocationFailed", "not before the review").await;
    recovers(&consumer, "a", policy.remove()).await;
}

#[tokio::test]
async fn a_policy_against_the_release_is_reported() {
    let consumer = with_pool().await;
    consumer.claim("a", "web").await;
    consumer.bound("a").await;
    let policy = deny(&consumer, "DELETE", "ipaddresses", "false");
    let probe = json!({"apiGroup": "example.com", "kind": "OtherPool", "name": "other"});
    consumer.address_by_hand_for("probe", probe, "10.9.9.9").await;
    eventually("a deletion is refused", || async {
        let found = consumer.addresses().get("probe").await.ok()?;
        let Some(found) = found else { panic!("the policy came too late") };
        let dry = ["--namespace", &consumer.namespace, "delete", "--dry-run=server", "ipaddress.ipam.cluster.x-k8s.io"];
        world().control_plane.try_kubectl(&[&dry[..], &[&found.name_any()]].concat()).is_err().then_some(())
    })
    .await;
    consumer.delete("a").await;
    says(&consumer, "a", "ReleaseFailed", "not before the review").await;
    let removed = policy.remove();
    consumer.gone("a").await;
    assert!(removed.elapsed() < RECOVERY, "{:?}", removed.elapsed());
}

#[tokio::test]
async fn an_address_that_another_controls_is_reported() {
    let consumer = with_pool().await;
    let maps: ResourceClient<ConfigMap> = ResourceClient::new(Api::namespaced(consumer.client.clone(), &consumer.namespace), &());
    let owner = maps.create(&object(json!({"metadata": {"name": "server", "namespace": consumer.namespace}}))).await;
    let owner = owner.expect("a config map can be made");
    consumer.address_by_hand("a", "web", "10.0.0.1").await;
    consumer
        .change(&consumer.addresses(), "a", |address| {
            address["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "server",
                "uid": owner.uid(), "controller": true}]);
        })
        .await;
    consumer.claim("a", "web").await;
    says(&consumer, "a", "AllocationFailed", "Only one reference can have Controller set to true").await;
    let others = |address: &mut Value| address["metadata"]["ownerReferences"] = json!([]);
    consumer.change(&consumer.addresses(), "a", others).await;
    recovers(&consumer, "a", Instant::now()).await;
}

/// The last finalizer is removed by a replacement of the claim, of which no annotations are in memory.
#[tokio::test]
async fn a_claim_that_has_to_keep_an_annotation_is_released() {
    let consumer = with_pool().await;
    let metadata = json!({"annotations": {"example.com/team": "a"}});
    consumer.claim_with("a", InClusterIPPool::KIND.name(), "web", metadata).await;
    consumer.bound("a").await;
    let _policy = deny(&consumer, "UPDATE", "ipaddressclaims", "has(object.metadata.annotations)");
    consumer.claim("probe", "nowhere").await;
    consumer.waits_for("probe", "PoolNotReady").await;
    eventually("a change without annotations is refused", || async {
        let namespace = ["--namespace", &consumer.namespace];
        let label = ["label", "--overwrite", "ipaddressclaim", "probe", "probe=x", "--dry-run=server"];
        world().control_plane.try_kubectl(&[&namespace[..], &label[..]].concat()).is_err().then_some(())
    })
    .await;
    consumer.release("a").await;
}

/// Of an update that leaves the finalizers alone.
const SAME_FINALIZERS: &str = "(has(object.metadata.finalizers) ? object.metadata.finalizers : []) == \
     (has(oldObject.metadata.finalizers) ? oldObject.metadata.finalizers : [])";

/// Waits until the API server refuses finalizers on pools of the namespace.
async fn finalizers_refused(consumer: &Consumer) {
    consumer.pool("probe", json!({"addresses": ["10.9.9.9"], "prefix": 24})).await;
    consumer.pool_says("probe", "True", "PoolReady").await;
    eventually("a finalizer is refused", || async {
        let before = consumer.pools().get("probe").await.expect("pools can be read").expect("it exists");
        let mut after = before.clone();
        let finalizers = after.metadata.finalizers.get_or_insert_default();
        finalizers.push(format!("example.com/probe-{}", finalizers.len()));
        let written = capi_ipam_controller::patch::write(&consumer.pools(), &before, &after).await;
        written.is_err_and(|error| error.is_invalid() || error.is_forbidden()).then_some(())
    })
    .await;
}

#[tokio::test]
async fn pool_says_why_its_finalizer_is_refused() {
    let consumer = consumer().await;
    let policy = deny(&consumer, "UPDATE", "inclusterippools", SAME_FINALIZERS);
    finalizers_refused(&consumer).await;
    consumer.pool("web", json!({"addresses": ["10.0.0.1"], "prefix": 24})).await;
    consumer.claim("a", "web").await;
    let text = consumer.pool_says("web", "False", "InitializationFailed").await;
    assert!(text.contains("not before the review") && !text.contains("Status {"), "{text}");
    eventually("an event says so", || async {
        let events = consumer.events("web").await;
        events.iter().any(|(kind, why, _)| kind == "Warning" && why == "InitializationFailed").then_some(())
    })
    .await;
    let removed = policy.remove();
    assert_eq!(consumer.bound("a").await, "10.0.0.1");
    assert!(removed.elapsed() < RECOVERY, "{:?}", removed.elapsed());
    consumer.pool_says("web", "True", "PoolReady").await;
}
