//! The API server rejects writes of the manager, because of webhooks, policies and owners. Claims
//! report the message of the API server, and recover within seconds.

use capi_ipam_api::{IPNetwork, conditions};
use capi_ipam_controller::client::error_chain;
use k8s_openapi::api::core::v1::ConfigMap;
use support::{
    policy::{DENIED, Policy, wait_until_rejected},
    prelude::*,
};

use crate::{consumer, environment, kstatus::kstatus};

/// How long a claim may take to recover: a retry follows within 10 s, and it takes several
/// requests.
const RECOVERY: Duration = Duration::from_secs(50);

/// The message of the API server for a webhook that it cannot reach.
const UNREACHABLE: &str = "failed calling webhook";

async fn with_pool() -> Consumer {
    let consumer = consumer().await;
    consumer.create_pool("web", "10.0.0.1").await;
    consumer
}

fn apply(object: &Value) {
    environment()
        .control_plane
        .kubectl_apply(&object.to_string());
}

/// A policy in the namespace of the consumer.
fn deny(consumer: &Consumer, operation: &str, kind: &str, expression: &str) -> Policy<'static> {
    let plane = &environment().control_plane;
    Policy::deny(plane, &consumer.namespace, [operation, kind], expression)
}

/// Removes a policy, and returns how long a claim may take to recover.
fn remove(policy: Policy<'_>) -> Patience {
    policy.remove();
    Patience::new(RECOVERY)
}

/// Waits until the condition of a claim and an event report a failure with these words.
async fn wait_until_reported(consumer: &Consumer, name: &str, reason: &str, words: &str) {
    let text = consumer.wait_for_message(name, reason, words).await;
    assert!(!text.contains("Status {"), "{text}");
    consumer
        .wait_for_event(name, "Warning", reason, words)
        .await;
}

/// Waits until the claim is bound, and asserts that it took seconds.
async fn assert_recovers(consumer: &Consumer, name: &str, since: Patience) {
    consumer.wait_for_address(name).await;
    assert!(!since.is_over(), "{:?}", since.elapsed());
}

#[tokio::test]
async fn unreachable_webhook_is_reported() {
    let consumer = with_pool().await;
    consumer.bind("a", "web").await;
    consumer.claim_waits("b", "web", "PoolExhausted").await;
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
    wait_until_rejected(&consumer, UNREACHABLE).await;
    consumer
        .modify_pool("web", |spec| {
            spec["addresses"] = json!(["10.0.0.1-10.0.0.3"])
        })
        .await;
    wait_until_reported(&consumer, "b", "AllocationFailed", UNREACHABLE).await;
    // It can still be deleted.
    consumer.create_claim("c", "web").await;
    wait_until_reported(&consumer, "c", "AllocationFailed", UNREACHABLE).await;
    consumer.release("c").await;
    environment().control_plane.kubectl(&[
        "delete",
        "validatingwebhookconfiguration",
        &configuration,
    ]);
    assert_recovers(&consumer, "b", Patience::new(RECOVERY)).await;
}

#[tokio::test]
async fn policy_against_the_ipaddress_is_reported() {
    let consumer = with_pool().await;
    let policy = deny(&consumer, "CREATE", "ipaddresses", "false");
    wait_until_rejected(&consumer, DENIED).await;
    consumer.create_claim("a", "web").await;
    wait_until_reported(&consumer, "a", "AllocationFailed", DENIED).await;
    assert_recovers(&consumer, "a", remove(policy)).await;
}

#[tokio::test]
async fn policy_against_the_finalizer_is_reported() {
    let consumer = with_pool().await;
    let policy = deny(
        &consumer,
        "UPDATE",
        "ipaddressclaims",
        "!has(object.metadata.finalizers) || !('ipam.cluster.x-k8s.io/ReleaseAddress' in object.metadata.finalizers)",
    );
    let denied = deny(&consumer, "CREATE", "ipaddresses", "false");
    // The manager has observed both.
    wait_until_rejected(&consumer, DENIED).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    denied.remove();
    consumer.create_claim("a", "web").await;
    wait_until_reported(&consumer, "a", "AllocationFailed", DENIED).await;
    assert_recovers(&consumer, "a", remove(policy)).await;
}

#[tokio::test]
async fn policy_against_the_release_is_reported() {
    let consumer = with_pool().await;
    consumer.bind("a", "web").await;
    let policy = deny(&consumer, "DELETE", "ipaddresses", "false");
    let probe = json!({"apiGroup": "example.com", "kind": "OtherPool", "name": "other"});
    consumer
        .create_address_for("probe", probe, "10.9.9.9")
        .await;
    until("a deletion is refused", async || {
        let found = consumer.addresses().get("probe").await.ok()?;
        let Some(found) = found else {
            panic!("the policy was enforced too late")
        };
        let dry = [
            "--namespace",
            &consumer.namespace,
            "delete",
            "--dry-run=server",
            "ipaddress.ipam.cluster.x-k8s.io",
        ];
        let deleted = environment()
            .control_plane
            .try_kubectl(&[&dry[..], &[&found.name_any()]].concat());
        Some(deleted.is_err_and(|text| text.contains(DENIED)))
    })
    .await;
    consumer.delete("a").await;
    wait_until_reported(&consumer, "a", "ReleaseFailed", DENIED).await;
    let removed = remove(policy);
    consumer.wait_until_deleted("a").await;
    assert!(!removed.is_over(), "{:?}", removed.elapsed());
}

#[tokio::test]
async fn address_with_a_foreign_controller_is_reported() {
    let consumer = with_pool().await;
    let maps: ResourceClient<ConfigMap> = ResourceClient::new(
        Api::namespaced(consumer.client.clone(), &consumer.namespace),
        &(),
    );
    let owner = object(json!({"metadata": {"name": "server", "namespace": consumer.namespace}}));
    let owner = create(&maps, &owner)
        .await
        .expect("a config map can be created");
    consumer.create_address("a", "web", "10.0.0.1").await;
    consumer
        .modify(&consumer.addresses(), "a", |address| {
            address["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "server",
                "uid": owner.uid(), "controller": true}]);
        })
        .await;
    consumer.create_claim("a", "web").await;
    wait_until_reported(
        &consumer,
        "a",
        "AllocationFailed",
        "Only one reference can have Controller set to true",
    )
    .await;
    let others = |address: &mut Value| address["metadata"]["ownerReferences"] = json!([]);
    consumer.modify(&consumer.addresses(), "a", others).await;
    assert_recovers(&consumer, "a", Patience::new(RECOVERY)).await;
}

/// The last finalizer is removed by a PUT of the claim, whose annotations are not cached.
#[tokio::test]
async fn claim_with_a_protected_annotation_is_released() {
    let consumer = with_pool().await;
    let metadata = json!({"annotations": {"example.com/team": "a"}});
    consumer.bind_with_metadata("a", "web", metadata).await;
    let _policy = deny(
        &consumer,
        "UPDATE",
        "ipaddressclaims",
        "has(object.metadata.annotations)",
    );
    consumer
        .claim_waits("probe", "nowhere", "PoolNotReady")
        .await;
    until("a change without annotations is rejected", async || {
        let namespace = ["--namespace", &consumer.namespace];
        let label = [
            "label",
            "--overwrite",
            "ipaddressclaim",
            "probe",
            "probe=x",
            "--dry-run=server",
        ];
        let changed = environment()
            .control_plane
            .try_kubectl(&[&namespace[..], &label[..]].concat());
        Some(changed.is_err_and(|text| text.contains(DENIED)))
    })
    .await;
    consumer.release("a").await;
}

/// Whether an update does not change the finalizers.
const SAME_FINALIZERS: &str = "(has(object.metadata.finalizers) ? object.metadata.finalizers : []) == \
     (has(oldObject.metadata.finalizers) ? oldObject.metadata.finalizers : [])";

/// Waits until the API server rejects new finalizers on the pool `probe`, which has that of the
/// manager.
async fn wait_until_finalizers_rejected(consumer: &Consumer) {
    until("a finalizer is rejected", async || {
        let before = consumer
            .pools()
            .get("probe")
            .await
            .ok()?
            .expect("it exists");
        let mut after = before.clone();
        let finalizers = after.metadata.finalizers.get_or_insert_default();
        finalizers.push(format!("example.com/probe-{}", finalizers.len()));
        let written = capi_ipam_controller::patch::write(&consumer.pools(), &before, &after).await;
        Some(written.is_err_and(|error| error_chain(&error).contains(DENIED)))
    })
    .await;
}

#[tokio::test]
async fn pool_reports_why_its_finalizer_is_rejected() {
    let consumer = consumer().await;
    // Before the policy: the API server enforces it at any time after its creation.
    consumer.create_pool("probe", "10.9.9.9").await;
    consumer.wait_until_pool_ready("probe").await;
    let policy = deny(&consumer, "UPDATE", "inclusterippools", SAME_FINALIZERS);
    wait_until_finalizers_rejected(&consumer).await;
    consumer.create_pool("web", "10.0.0.1").await;
    consumer.create_claim("a", "web").await;
    let text = consumer
        .wait_for_pool_message("web", "InitializationFailed", DENIED)
        .await;
    assert!(!text.contains("Status {"), "{text}");
    let pool = consumer.the_pool("web").await;
    let reconciling = conditions::find(
        &pool.status.as_ref().expect("it has a status").conditions,
        "Reconciling",
    );
    assert!(
        reconciling.is_some_and(|condition| condition.status == "True"),
        "{pool:?}"
    );
    assert_eq!(kstatus(&pool), "InProgress");
    consumer
        .wait_for_event("web", "Warning", "InitializationFailed", "")
        .await;
    let removed = remove(policy);
    consumer.assert_address("a", "10.0.0.1").await;
    assert!(!removed.is_over(), "{:?}", removed.elapsed());
    consumer.wait_until_pool_ready("web").await;
}

/// A network that is ready, whose name has the prefix of the policies of a test.
/// Events about objects without a namespace are in the namespace `default`.
async fn wait_for_warning(consumer: &Consumer, name: &str) {
    let default = consumer.in_namespace("default");
    default
        .wait_for_event(name, "Warning", "InitializationFailed", DENIED)
        .await;
}

async fn ready_network(consumer: &Consumer, name: &str) {
    consumer.create_network(name, json!({})).await;
    consumer
        .wait_for_network_condition(name, "True", "NetworkReady")
        .await;
}

/// Waits until the API server rejects a change of a network.
async fn wait_until_network_rejected(
    consumer: &Consumer,
    name: &str,
    change: impl Fn(&mut IPNetwork),
) {
    let networks = consumer.networks();
    until("a change of a network is rejected", async || {
        let before = networks.get(name).await.ok()?.expect("it exists");
        let mut after = before.clone();
        change(&mut after);
        let written = capi_ipam_controller::patch::write(&networks, &before, &after).await;
        Some(written.is_err_and(|error| error_chain(&error).contains(DENIED)))
    })
    .await;
}

#[tokio::test]
async fn network_reports_why_its_finalizer_is_rejected() {
    let (consumer, prefix) = (consumer().await, unique("net"));
    let (probe, name) = (format!("{prefix}-probe"), format!("{prefix}-web"));
    ready_network(&consumer, &probe).await;
    let target = ["UPDATE", "ipnetworks"];
    let plane = &environment().control_plane;
    let policy = Policy::deny_global(plane, &prefix, target, SAME_FINALIZERS);
    wait_until_network_rejected(&consumer, &probe, |network| {
        let finalizers = network.metadata.finalizers.get_or_insert_default();
        finalizers.push(format!("example.com/probe-{}", finalizers.len()));
    })
    .await;
    consumer.create_open_network(&name).await;
    consumer
        .create_pool("web", ("10.0.0.1", json!({"network": name})))
        .await;
    assert_contains(
        &consumer
            .wait_for_network_condition(&name, "False", "InitializationFailed")
            .await,
        DENIED,
    );
    let networks = consumer.networks();
    let found = networks.get(&name).await.expect("it can be read");
    let found = found.expect("it exists");
    assert_eq!(kstatus(&found), "InProgress");
    let status = found.status.expect("it has a status");
    assert_eq!(status.block_lengths, None, "no pool joins it");
    wait_for_warning(&consumer, &name).await;
    policy.remove();
    consumer
        .wait_for_network_condition(&name, "True", "NetworkReady")
        .await;
    consumer.bind_to("a", "web", "10.0.0.1").await;
}

#[tokio::test]
async fn rejected_status_of_a_network_is_an_event() {
    let (consumer, prefix) = (consumer().await, unique("net"));
    let (probe, name) = (format!("{prefix}-probe"), format!("{prefix}-web"));
    ready_network(&consumer, &probe).await;
    ready_network(&consumer, &name).await;
    let plane = &environment().control_plane;
    let target = ["UPDATE", "ipnetworks/status"];
    let policy = Policy::deny_global(plane, &prefix, target, "false");
    wait_until_network_rejected(&consumer, &probe, |network| {
        network.status.get_or_insert_default().pools += 1;
    })
    .await;
    consumer
        .modify(&consumer.networks(), &name, |network| {
            network["spec"] = json!({"excluded": ["10.0.0.1"]});
        })
        .await;
    wait_for_warning(&consumer, &name).await;
    policy.remove();
    until("the network is current", async || {
        let found = consumer.networks().get(&name).await.ok()??;
        Some(kstatus(&found) == "Current")
    })
    .await;
}
