//! `clusters`: the addresses of Clusters.

use capi_ipam_testing::consumer::Consumer;
use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options};
use capi_ipam_testing::manager::Manager;
use capi_ipam_testing::wait::eventually;
use serde_json::{Value, json};

use super::{commands, create, definitions, json_of, manager, run, shell};

const PAGE: &str = include_str!("../../../../docs/kubectl-ipam.md");

/// A claim of the Cluster `alpha`; of an item of a ClusterAddressing, or of a machine.
fn claim(namespace: &str, name: &str, pool: &str, is_item: bool) -> Value {
    let mut labels = json!({ "cluster.x-k8s.io/cluster-name": "alpha" });
    if is_item {
        labels["ipam.cluster.x-k8s.io/cluster-addressing"] = json!("bonn");
    }
    json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddressClaim",
        "metadata": { "name": name, "namespace": namespace, "labels": labels },
        "spec": { "clusterName": "alpha", "poolRef": {
            "apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": pool } },
    })
}

#[tokio::test]
async fn addresses_of_clusters_are_listed() {
    let program = manager();
    let installation = Installation::of(definitions());
    let plane = ControlPlane::start(Options::default(), &installation);
    let admin = plane.kubeconfig();
    let manager = Manager::start_program(&plane, &program, admin, &["--webhook-port=0"]);
    manager.wait_until_ready();
    let consumer = Consumer::new(&plane).await;
    let namespace = consumer.namespace.as_str();
    consumer.create_cluster("alpha", false).await;
    let spec = json!({ "addresses": ["10.0.0.10-10.0.0.16"], "prefix": 24 });
    create(&plane, "InClusterIPPool", Some(namespace), "vips", &spec);
    for (name, pool, is_item) in [
        ("alpha-endpoint", "vips", true),
        ("m-1", "vips", false),
        ("m-2", "absent", false),
    ] {
        plane.kubectl_apply(&claim(namespace, name, pool, is_item).to_string());
    }
    consumer.wait_for_address("m-1").await;
    let address = consumer.wait_for_address("alpha-endpoint").await;
    let expected = json!([{
        "namespace": namespace, "name": "alpha", "items": { "endpoint": address }, "machines": 1,
        "waiting": 1, "problems": [], "slices": [],
    }]);
    let list = eventually("the Cluster is listed", async || {
        let mut list = json_of(admin, &["clusters", "-n", namespace]);
        let problems = list["items"][0]["problems"].take().to_string();
        list["items"][0]["problems"] = json!([]);
        let is_named = problems.contains("absent does not exist");
        (list["items"] == expected && is_named).then_some(list)
    })
    .await;
    assert_eq!(list["kind"], "ClusterList");
    let (code, output, errors) = run(admin, &["clusters", "nobody", "-n", namespace]);
    assert_eq!((code, output.as_str()), (6, ""));
    assert!(errors.contains("nobody"), "{errors}");
    plane.kubectl(&[
        "config",
        "set-context",
        "--current",
        "--namespace",
        namespace,
    ]);
    let documented = commands(PAGE, "## Clusters");
    let (code, output) = shell(&plane, &documented[0]);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains(&format!("endpoint={address}")), "{output}");
}
