//! The component that adds the finalizer to new claims when they are created.

use std::time::{Duration, Instant};

use capi_ipam::api::{InClusterKind, names};
use capi_ipam_provider::api::IPAddressClaim;
use kube::ResourceExt;
use serde_json::json;

use crate::support::consumer::Consumer;
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::manager::Manager;
use crate::support::wait::{eventually, eventually_within};
use crate::tenants::overlay;

const KIND: &str = InClusterKind::IPPool.name();

/// The API server reads the schemas of kinds for such policies once a minute, also after its start.
const POLICY_TIMEOUT: Duration = Duration::from_mins(3);

/// Installs the policy, with `more` of a kustomization, and waits until the API server applies it.
async fn install(plane: &ControlPlane, consumer: &Consumer, more: &str, probe: serde_json::Value) {
    let policy = overlay(&format!("components: [../finalizer-at-creation]\n{more}"));
    plane.kubectl(&["apply", "--server-side", "-k", &policy.path().join("overlay").display().to_string()]);
    eventually_within(POLICY_TIMEOUT, "the policy is applied", || async {
        // Before the API server has read the schemas, it can answer 503.
        let claim = consumer.try_create_claim("probe", KIND, "web", probe.clone()).await.ok()?;
        let uid = claim.uid().unwrap_or_default();
        consumer.claims().delete("probe", &uid).await.expect("the claim can be deleted");
        has_finalizer(&claim).then_some(())
    })
    .await;
}

fn has_finalizer(claim: &IPAddressClaim) -> bool {
    claim.finalizers().iter().any(|finalizer| finalizer == names::RELEASE_ADDRESS)
}

#[tokio::test(flavor = "multi_thread")]
async fn new_claim_is_bound_at_once_and_a_restored_one_waits() {
    let plane = ControlPlane::start(Options::default());
    let consumer = Consumer::new(&plane).await;
    consumer.create_pool("web", json!({"addresses": ["10.0.0.1-10.0.0.99"], "prefix": 24})).await;
    install(&plane, &consumer, "", json!({})).await;
    let claim = consumer.create_claim_with("new", KIND, "web", json!({"annotations": {"a": "b"}})).await;
    assert!(has_finalizer(&claim) && claim.annotations().contains_key(names::FINALIZER_ADDED_IN), "{claim:?}");
    assert!(claim.labels().contains_key(names::MOVE_LABEL));
    let machine = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "m", "uid": "m"});
    let metadata = json!({"ownerReferences": [machine], "finalizers": ["example.com/in-use"]});
    let owned = consumer.create_claim_with("owned", KIND, "web", metadata).await;
    assert_eq!((owned.finalizers().len(), owned.labels().len()), (2, 0));
    let foreign = consumer.create_claim_with("foreign", "IPPool", "web", json!({})).await;
    assert!(!has_finalizer(&foreign) && foreign.annotations().is_empty());
    // A backup contains finalizer and annotation; the annotation is that of a new claim of this namespace.
    let restored = json!({
        "finalizers": [names::RELEASE_ADDRESS],
        "annotations": {names::FINALIZER_ADDED_IN: claim.annotations()[names::FINALIZER_ADDED_IN]},
    });
    consumer.create_cluster("alpha", false).await;
    let mut metadata = restored.clone();
    metadata["clusterName"] = json!("alpha");
    let claim = consumer.create_claim_with("restored", KIND, "web", metadata).await;
    assert!(has_finalizer(&claim) && claim.annotations().is_empty(), "{claim:?}");

    let started = Instant::now();
    let _manager = Manager::start(&plane, &[]);
    consumer.wait_for_address("new").await;
    assert!(started.elapsed() < Duration::from_secs(5), "a new claim waits for no restore");
    consumer.wait_for_reason("restored", "AwaitingAddress").await;
    consumer.create_address("restored", "web", "10.0.0.77").await;
    assert_eq!(consumer.wait_for_address("restored").await, "10.0.0.77");
    consumer.release("new").await;

    // Without the policy, a claim of another cluster keeps its annotation.
    plane.kubectl(&["delete", "mutatingadmissionpolicybinding", "capi-ipam-in-cluster-claim-finalizer"]);
    plane.kubectl(&["delete", "mutatingadmissionpolicy", "capi-ipam-in-cluster-claim-finalizer"]);
    let mut metadata = restored;
    metadata["annotations"][names::FINALIZER_ADDED_IN] = json!("2026-01-01T00:00:00Z");
    metadata["clusterName"] = json!("alpha");
    let number = std::sync::atomic::AtomicU32::default();
    eventually("the policy is no longer applied", || async {
        let name = format!("moved-{}", number.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        let moved = consumer.create_claim_with(&name, KIND, "web", metadata.clone()).await;
        (!moved.annotations().is_empty()).then_some(name)
    })
    .await;
    let name = format!("moved-{}", number.into_inner() - 1);
    consumer.wait_for_reason(&name, "AwaitingAddress").await;
    consumer.create_claim("late", "web").await;
    consumer.wait_for_address("late").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn label_selects_the_claims_that_get_the_finalizer() {
    let component = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("config/finalizer-at-creation");
    let text = std::fs::read_to_string(component.join("kustomization.yaml")).expect("the component can be read");
    // The patches of the example in its comment.
    let example: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("#   ")).collect();
    let example = example.join("\n");
    let patches = example.split_once("patches:").expect("the example has patches").1;
    let plane = ControlPlane::start(Options::default());
    let consumer = Consumer::new(&plane).await;
    let blue = json!({"labels": {"cluster.x-k8s.io/watch-filter": "blue"}});
    install(&plane, &consumer, &format!("patches:{patches}\n"), blue).await;
    assert!(!has_finalizer(&consumer.create_claim("other", "web").await));
}
