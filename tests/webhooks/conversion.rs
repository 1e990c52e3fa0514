//! Pools in the old version, through a real API server.

use serde_json::{Value, json};

use crate::wired;

#[test]
fn a_pool_made_in_the_old_version_is_served_in_both() {
    let plane = &wired().plane;
    let old = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha1", "kind": "InClusterIPPool",
        "metadata": {"name": "old", "namespace": "default"},
        "spec": {"subnet": "10.40.0.0/24", "gateway": "10.40.0.1"},
    });
    plane.kubectl_apply(&old.to_string());
    let read = |version: &str| -> Value {
        let text = plane.kubectl(&["get", &format!("inclusterippools.{version}.ipam.cluster.x-k8s.io/old"), "-o=json"]);
        serde_json::from_str(&text).expect("kubectl writes JSON")
    };
    assert_eq!(read("v1alpha2")["spec"]["addresses"], json!(["10.40.0.1-10.40.0.254"]));
    assert_eq!(read("v1alpha1")["spec"]["subnet"], "10.40.0.0/24");
}
