//! The manager as it was installed: with the flags of its Deployment and the permissions of its service account.

use serde_json::{Value, json};

use crate::support::clusterctl::PROVIDER;
use crate::support::control_plane::{ControlPlane, NAMESPACE};
use crate::support::manager::{Manager, built};
use crate::support::webhooks::{Webhooks, free_port};

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
/// at an address of its own is at a free port of this machine.
pub(crate) fn start(plane: &ControlPlane) -> (Manager, Webhooks) {
    let deployment = deployment(plane);
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let account = deployment["spec"]["template"]["spec"]["serviceAccountName"].as_str().expect("there is an account");
    let kubeconfig = plane.kubeconfig_of_account(NAMESPACE, account);
    let arguments = container["args"].as_array().expect("there are arguments");
    let arguments = arguments.iter().map(|argument| argument.as_str().expect("an argument is a text").to_owned());
    let mut flags: Vec<String> = arguments.filter(|flag| !flag.starts_with("--diagnostics-address=")).collect();
    flags.push(format!("--diagnostics-address=127.0.0.1:{}", free_port()));
    let webhooks = Webhooks::new(plane);
    flags.extend(webhooks.flags());
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let manager = Manager::start_program(plane, &built("manager"), &kubeconfig, &flags);
    manager.wait_for_log("certificate loaded");
    webhooks.wire_installed(plane, PROVIDER);
    manager.wait_for_log("the controller starts");
    manager.wait_until_ready();
    (manager, webhooks)
}
