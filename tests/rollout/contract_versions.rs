//! API servers that serve one version of the Cluster API contract, or both.

use support::prelude::*;

/// The kinds of Cluster API.
const DEFINITIONS: [&str; 4] = [
    "clusters.cluster.x-k8s.io",
    "machines.cluster.x-k8s.io",
    "ipaddressclaims.ipam.cluster.x-k8s.io",
    "ipaddresses.ipam.cluster.x-k8s.io",
];

/// Serves the kinds of Cluster API in these versions only, and stores them in the first one.
fn serve(control_plane: &ControlPlane, served: &[&str]) {
    for name in DEFINITIONS {
        let definition = control_plane.kubectl(&["get", "crd", name, "-o=json"]);
        let mut definition: Value = serde_json::from_str(&definition).expect("kubectl writes JSON");
        for version in definition["spec"]["versions"]
            .as_array_mut()
            .expect("a CRD has versions")
        {
            let name = version["name"]
                .as_str()
                .expect("a version has a name")
                .to_owned();
            version["served"] = json!(served.contains(&name.as_str()));
            version["storage"] = json!(served.first() == Some(&name.as_str()));
        }
        control_plane.kubectl_replace(&definition.to_string());
    }
}

/// A claim as the API server stores it, in a version of the contract.
async fn claim_when(
    plane: &ControlPlane,
    namespace: &str,
    resource: &str,
    name: &str,
    done: fn(&Value) -> bool,
) -> Value {
    eventually(&format!("{resource} {name} is as expected"), || async {
        let claim = plane
            .try_kubectl(&["get", resource, name, "-n", namespace, "-o=json"])
            .ok()?;
        let claim: Value = serde_json::from_str(&claim).ok()?;
        done(&claim).then_some(claim)
    })
    .await
}

/// Starts a manager, and binds, refuses and releases claims in a version of the contract.
async fn work_in(plane: &ControlPlane, version: &str) {
    let resource = format!("ipaddressclaims.{version}.ipam.cluster.x-k8s.io");
    eventually(&format!("{resource} are served"), || async {
        plane
            .try_kubectl(&["get", &resource, "--all-namespaces"])
            .ok()
    })
    .await;
    let manager = Manager::start(plane, &[]);
    let consumer = Consumer::new(plane).await;
    let namespace = consumer.namespace.as_str();
    consumer.create_pool("web", "10.0.0.10").await;
    for name in ["first", "second"] {
        let claim = json!({
            "apiVersion": format!("ipam.cluster.x-k8s.io/{version}"), "kind": "IPAddressClaim",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"poolRef": {"apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "web"}},
        });
        plane.kubectl_apply(&claim.to_string());
        if name == "first" {
            claim_when(plane, namespace, &resource, name, |claim| {
                claim["status"]["addressRef"]["name"] == "first"
            })
            .await;
        }
    }
    let address = format!("ipaddresses.{version}.ipam.cluster.x-k8s.io");
    let address = plane.kubectl(&[
        "get",
        &address,
        "first",
        "-n",
        namespace,
        "-o=jsonpath={.spec.address}",
    ]);
    assert_eq!(address, "10.0.0.10");
    // The pool is exhausted.
    claim_when(plane, namespace, &resource, "second", |claim| {
        claim["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == "Ready")
    })
    .await;
    plane.kubectl(&[
        "delete",
        &resource,
        "first",
        "-n",
        namespace,
        "--timeout=120s",
    ]);
    claim_when(plane, namespace, &resource, "second", |claim| {
        claim["status"]["addressRef"]["name"] == "second"
    })
    .await;
    plane.kubectl(&[
        "delete",
        &resource,
        "second",
        "-n",
        namespace,
        "--timeout=120s",
    ]);
    assert!(manager.is_ready(), "{:?}", manager.probe("/readyz/caches"));
}

#[tokio::test(flavor = "multi_thread")]
async fn manager_works_with_either_version_of_the_contract() {
    let control_plane = ControlPlane::new();
    work_in(&control_plane, "v1beta1").await;
    work_in(&control_plane, "v1beta2").await;
    serve(&control_plane, &["v1beta2"]);
    work_in(&control_plane, "v1beta2").await;
    serve(&control_plane, &["v1beta1"]);
    work_in(&control_plane, "v1beta1").await;
}
