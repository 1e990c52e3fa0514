//! The component that adds the finalizer to new claims when they are created.

use capi_ipam_api::names;
use support::prelude::*;

use crate::tenants::overlay;

const KIND: &str = InClusterKind::IPPool.name();

/// The API server reads the schemas of kinds for such policies once a minute, also after its start.
const POLICY_TIMEOUT: Duration = Duration::from_mins(3);

/// Installs the policy, with `more` of a kustomization, and waits until the API server applies it.
async fn install(plane: &ControlPlane, consumer: &Consumer, more: &str, probe: serde_json::Value) {
    let policy = overlay(&format!("components: [../finalizer-at-creation]\n{more}"));
    plane.kubectl(&[
        "apply",
        "--server-side",
        "-k",
        &policy.path().join("overlay").display().to_string(),
    ]);
    until_within(POLICY_TIMEOUT, "the policy is applied", || async {
        // Before the API server has read the schemas, it can answer 503.
        let claim = consumer
            .try_create_claim("probe", KIND, "web", probe.clone())
            .await
            .ok()?;
        let uid = claim.uid().unwrap_or_default();
        consumer
            .claims()
            .delete("probe", &uid)
            .await
            .expect("the claim can be deleted");
        Some(has_finalizer(&claim))
    })
    .await;
}

fn has_finalizer(claim: &IPAddressClaim) -> bool {
    claim
        .finalizers()
        .iter()
        .any(|finalizer| finalizer == names::RELEASE_ADDRESS)
}

#[tokio::test(flavor = "multi_thread")]
async fn new_claim_is_bound_at_once_and_a_restored_one_waits() {
    let (plane, consumer) = scene().await;
    consumer.create_pool("web", "10.0.0.1-10.0.0.99").await;
    install(&plane, &consumer, "", json!({})).await;
    let claim = consumer
        .create_claim_with("new", KIND, "web", json!({}))
        .await;
    assert!(
        has_finalizer(&claim) && claim.labels().contains_key(names::MOVE_LABEL),
        "{claim:?}"
    );
    let machine = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "m", "uid": "m"});
    let metadata = json!({"ownerReferences": [machine], "finalizers": ["example.com/in-use"]});
    let owned = consumer
        .create_claim_with("owned", KIND, "web", metadata)
        .await;
    assert_eq!((owned.finalizers().len(), owned.labels().len()), (2, 0));
    assert!(!has_finalizer(
        &consumer
            .create_claim_with("foreign", "IPPool", "web", json!({}))
            .await
    ));
    consumer.create_cluster("alpha", false).await;
    let _manager = Manager::start(&plane, &[]);
    for name in ["new", "owned"] {
        consumer.wait_for_address(name).await;
    }
    // A claim that was created with the finalizer waits for an hour: its Cluster may have been
    // moved with it.
    consumer
        .create_claim_with(
            "new-of-cluster",
            KIND,
            "web",
            json!({"clusterName": "alpha"}),
        )
        .await;
    consumer.wait_for_address("new-of-cluster").await;
    let metadata = json!({"clusterName": "alpha", "finalizers": [names::RELEASE_ADDRESS]});
    consumer
        .create_claim_with("restored", KIND, "web", metadata)
        .await;
    consumer
        .wait_for_reason("restored", "AwaitingAddress")
        .await;
    consumer
        .create_address("restored", "web", "10.0.0.77")
        .await;
    consumer.assert_address("restored", "10.0.0.77").await;
    consumer.release("new").await;

    plane.kubectl(&[
        "delete",
        "mutatingadmissionpolicybinding",
        "capi-ipam-in-cluster-claim-finalizer",
    ]);
    plane.kubectl(&[
        "delete",
        "mutatingadmissionpolicy",
        "capi-ipam-in-cluster-claim-finalizer",
    ]);
    consumer.bind("late", "web").await;
    consumer.release("new-of-cluster").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn label_selects_the_claims_that_get_the_finalizer() {
    let component =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("config/finalizer-at-creation");
    let text = std::fs::read_to_string(component.join("kustomization.yaml"))
        .expect("the component can be read");
    // The patches of the example in its comment.
    let example: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("#   "))
        .collect();
    let example = example.join("\n");
    let patches = example
        .split_once("patches:")
        .expect("the example has patches")
        .1;
    let (plane, consumer) = scene().await;
    let blue = json!({"labels": {"cluster.x-k8s.io/watch-filter": "blue"}});
    install(&plane, &consumer, &format!("patches:{patches}\n"), blue).await;
    assert!(!has_finalizer(&consumer.create_claim("other", "web").await));
}
