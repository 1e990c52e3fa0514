//! The endpoints of the webhook service.

use std::path::Path;

use support::prelude::*;

const READY: &str = "10.1.0.1";

/// Creates a pod with the status that a kubelet would report.
fn replica(control_plane: &ControlPlane, name: &str, address: &str, is_ready: bool) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {
            "cluster.x-k8s.io/provider": "ipam-in-cluster", "control-plane": "controller-manager",
        }},
        "spec": {
            "nodeName": "node",
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "manager", "image": "manager",
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
                "ports": [{"name": "webhook-server", "containerPort": 9443}],
            }],
        },
    });
    control_plane.kubectl_apply(&pod.to_string());
    let status = json!({"status": {
        "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
        "conditions": [{"type": "Ready", "status": if is_ready { "True" } else { "False" }}],
    }});
    let patch = status.to_string();
    control_plane.kubectl(&[
        "-n",
        NAMESPACE,
        "patch",
        "pod",
        name,
        "--subresource=status",
        "--type=merge",
        "-p",
        &patch,
    ]);
}

/// The addresses of the service, and whether they get requests.
fn endpoints(control_plane: &ControlPlane) -> Vec<(String, bool)> {
    let slices = control_plane.kubectl(&["-n", NAMESPACE, "get", "endpointslices", "-o=json"]);
    let slices: Value = serde_json::from_str(&slices).expect("kubectl writes JSON");
    let slices = slices["items"].as_array().cloned().unwrap_or_default();
    let all = slices
        .iter()
        .flat_map(|slice| slice["endpoints"].as_array().cloned().unwrap_or_default());
    let mut all: Vec<_> = all
        .map(|endpoint| {
            let address = endpoint["addresses"][0]
                .as_str()
                .unwrap_or_default()
                .to_owned();
            (address, endpoint["conditions"]["ready"] == json!(true))
        })
        .collect();
    all.sort();
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn only_ready_replicas_receive_webhook_requests() {
    let control_plane = ControlPlane::start(Options {
        endpoint_slices: true,
        ..Options::default()
    });
    control_plane.kubectl_apply(
        &json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}}).to_string(),
    );
    replica(&control_plane, "ready", READY, true);
    replica(&control_plane, "crashing", "10.1.0.2", false);
    replica(&control_plane, "terminating", "10.1.0.3", true);
    control_plane.kubectl(&[
        "-n",
        NAMESPACE,
        "delete",
        "pod",
        "terminating",
        "--wait=false",
    ]);
    let service = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/webhook/service.yaml");
    let service = std::fs::read_to_string(service).expect("the service is part of the package");
    control_plane.kubectl_apply(&service);

    let all = eventually("the service has all replicas", || async {
        let all = endpoints(&control_plane);
        (all.len() == 3).then_some(all)
    })
    .await;
    let asked: Vec<_> = all
        .iter()
        .filter(|(_, is_ready)| *is_ready)
        .map(|(address, _)| address.as_str())
        .collect();
    assert_eq!(asked, [READY], "{all:?}");
}
