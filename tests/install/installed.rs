//! The manager as it was installed: with the flags of its Deployment and the permissions of its service account.

use capi_ipam::support::clusterctl::PROVIDER;
use capi_ipam::support::control_plane::{ControlPlane, NAMESPACE};
use capi_ipam::support::manager::{built, Manager};
use capi_ipam::support::ports::free_port;
use capi_ipam::support::webhooks::Webhooks;
use serde_json::{json, Value};

const DEPLOYMENT: &str = "capi-ipam-in-cluster-controller-manager";

/// The Deployment in the cluster.
pub(crate) fn deployment(plane: &ControlPlane) -> Value {
    let found = plane.kubectl(&["--namespace", NAMESPACE, "get", "deployment", DEPLOYMENT, "--output=json"]);
    serde_json::from_str(&found).expect("kubectl writes JSON")
}

/// The pod that the Deployment asks for.
pub(crate) fn pod(deployment: &Value) -> Value {
    let template = &deployment["spec"]["template"];
    let mut metadata = template["metadata"].clone();
    metadata["name"] = json!("manager");
    metadata["namespace"] = json!(NAMESPACE);
    json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"] })
}

/// Starts what the Deployment says, and leads the API server to its webhooks. No kubelet does it: what a pod would have
/// at an address of its own is at a free port of this machine. `more` are flags that somebody added to the Deployment.
pub(crate) fn start(plane: &ControlPlane, more: &[&str]) -> (Manager, Webhooks) {
    let webhooks = Webhooks::new(plane);
    let own = webhooks.flags();
    let flags: Vec<&str> = own.iter().map(String::as_str).chain(more.iter().copied()).collect();
    let manager = launch(plane, &flags);
    manager.wait_for_log("certificate loaded");
    webhooks.wire_installed(plane, PROVIDER, true);
    is_at_work(&manager);
    (manager, webhooks)
}

/// The same where the manager makes its certificate itself, and tells the API server to trust it.
pub(crate) fn start_self_managed(plane: &ControlPlane) -> (Manager, Webhooks) {
    let webhooks = Webhooks::without_certificate(plane);
    webhooks.wire_installed(plane, PROVIDER, false);
    let [port, _] = webhooks.flags();
    let manager = launch(plane, &[&port, "--webhook-cert-hosts=127.0.0.1", "--webhook-cert-interval=500ms"]);
    is_at_work(&manager);
    (manager, webhooks)
}

fn launch(plane: &ControlPlane, more: &[&str]) -> Manager {
    let deployment = deployment(plane);
    let pod = &deployment["spec"]["template"]["spec"];
    let account = pod["serviceAccountName"].as_str().expect("there is an account");
    let kubeconfig = plane.kubeconfig_of_account(NAMESPACE, account);
    let arguments = pod["containers"][0]["args"].as_array().expect("there are arguments");
    let arguments = arguments.iter().map(|argument| argument.as_str().expect("an argument is a text"));
    let metrics = format!("--diagnostics-address=127.0.0.1:{}", free_port());
    let mut flags: Vec<&str> = arguments.filter(|flag| !flag.starts_with("--diagnostics-address=")).collect();
    flags.push(&metrics);
    flags.extend(more);
    Manager::start_program(plane, &built("manager"), &kubeconfig, &flags)
}

fn is_at_work(manager: &Manager) {
    manager.wait_for_log("the controller starts");
    manager.wait_until_ready();
}
