//! The installed manager: with the flags of its Deployment and the permissions of its service
//! account.

use std::thread::sleep;

use support::{
    clusterctl::PROVIDER, manager::built, ports::free_port, prelude::*, repository::in_repository,
};

const DEPLOYMENT: &str = "capi-ipam-in-cluster-controller-manager";

/// The Deployment in the cluster.
pub(crate) fn deployment(plane: &ControlPlane) -> Value {
    let found = plane.kubectl(&[
        "--namespace",
        NAMESPACE,
        "get",
        "deployment",
        DEPLOYMENT,
        "--output=json",
    ]);
    serde_json::from_str(&found).expect("kubectl writes JSON")
}

/// The pod template of the Deployment.
pub(crate) fn pod(deployment: &Value) -> Value {
    let template = &deployment["spec"]["template"];
    let mut metadata = template["metadata"].clone();
    metadata["name"] = json!("manager");
    metadata["namespace"] = json!(NAMESPACE);
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"] })
}

/// Installs the component for addresses of Clusters, and its webhook.
pub(crate) fn apply_cluster_addressing(plane: &ControlPlane) {
    plane.permit("cluster-addressing");
    let file = in_repository("config/cluster-addressing-webhook/manifests.yaml");
    plane.kubectl(&["apply", "-f", &file.display().to_string()]);
    let configuration =
        "mutatingwebhookconfiguration/capi-ipam-in-cluster-mutating-webhook-configuration";
    let label = "cluster.x-k8s.io/provider=ipam-in-cluster";
    plane.kubectl(&["label", configuration, label]);
}

/// Starts the manager of the Deployment, and configures the API server to call its webhooks.
/// Without a kubelet the manager listens on free ports of this machine. `more` are additional
/// flags.
pub(crate) fn start(plane: &ControlPlane, more: &[&str]) -> (Manager, Webhooks) {
    let webhooks = Webhooks::new(plane);
    let own = webhooks.flags();
    let flags: Vec<&str> = own
        .iter()
        .map(String::as_str)
        .chain(more.iter().copied())
        .collect();
    let manager = launch(plane, &flags);
    manager.wait_for_log("certificate loaded");
    webhooks.redirect_installed(plane, PROVIDER, true);
    wait_until_working(plane, &manager);
    (manager, webhooks)
}

/// Like [`start`], where the manager generates its certificate and injects the CA bundle.
pub(crate) fn start_self_managed(plane: &ControlPlane) -> (Manager, Webhooks) {
    let webhooks = Webhooks::without_certificate(plane);
    webhooks.redirect_installed(plane, PROVIDER, false);
    let [port, _] = webhooks.flags();
    let manager = launch(
        plane,
        &[
            &port,
            "--webhook-cert-hosts=127.0.0.1",
            "--webhook-cert-interval=500ms",
        ],
    );
    wait_until_working(plane, &manager);
    (manager, webhooks)
}

fn launch(plane: &ControlPlane, more: &[&str]) -> Manager {
    let deployment = deployment(plane);
    let pod = &deployment["spec"]["template"]["spec"];
    let account = pod["serviceAccountName"]
        .as_str()
        .expect("the pod has an account");
    let kubeconfig = plane.kubeconfig_of_account(NAMESPACE, account);
    let arguments = pod["containers"][0]["args"]
        .as_array()
        .expect("the container has arguments");
    let arguments = arguments
        .iter()
        .map(|argument| argument.as_str().expect("an argument is a text"));
    let metrics = format!("--diagnostics-address=127.0.0.1:{}", free_port());
    let mut flags: Vec<&str> = arguments
        .filter(|flag| !flag.starts_with("--diagnostics-address="))
        .collect();
    flags.push(&metrics);
    flags.extend(more);
    Manager::start_program(plane, &built("manager"), &kubeconfig, &flags)
}

/// Waits until the manager works, and the API server calls its webhooks for validation and
/// conversion.
fn wait_until_working(plane: &ControlPlane, manager: &Manager) {
    manager.wait_for_log("the controller starts");
    manager.wait_until_ready();
    let patience = Patience::new(Duration::from_mins(2));
    // The API server observes the change of each CRD separately.
    for (kind, namespace) in [
        ("InClusterIPPool", Some("default")),
        ("GlobalInClusterIPPool", None),
    ] {
        let pool = json!({
            "apiVersion": "ipam.cluster.x-k8s.io/v1alpha1", "kind": kind,
            "metadata": { "name": "probe", "namespace": namespace }, "spec": { "subnet": "198.18.0.0/24" },
        });
        while let Err(error) = plane.dry_create(&pool) {
            assert!(!patience.is_over(), "the webhooks are not called: {error}");
            sleep(Duration::from_millis(50));
        }
    }
}
