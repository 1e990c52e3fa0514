//! The program against a real API server with a running manager.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code: a failure ends the test"
)]

#[path = "../browser/mod.rs"]
mod browser;
mod clusters;
mod convert;
mod day;
mod doctor;
mod flags;
mod habits;
mod history;
mod metal3;
mod night;
mod permissions;
mod quarantine;
mod reads;
mod registry;
mod reserve;
mod rollout;
mod web;
mod web_blocks;
mod web_failures;
mod web_views;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use capi_ipam_api::crds;
use capi_ipam_testing::control_plane::ControlPlane;
use capi_ipam_testing::process::built;
use serde_json::{Value, json};

/// Runs the program and returns its exit code, its output and its error output.
fn run(kubeconfig: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output: Output = Command::new(env!("CARGO_BIN_EXE_kubectl-ipam"))
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(arguments)
        .output()
        .expect("the program can be started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().expect("no signal"),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// Runs the program with `-o json`; it must succeed.
fn json_of(kubeconfig: &Path, arguments: &[&str]) -> Value {
    let (code, output, errors) = run(kubeconfig, &[arguments, &["-o", "json"]].concat());
    assert_eq!((code, errors.as_str()), (0, ""), "{arguments:?}: {output}");
    serde_json::from_str(&output).expect("the output is JSON")
}

/// The shell commands in a section of a page, block by block; in the whole page without a heading.
fn commands(page: &str, heading: &str) -> Vec<String> {
    let (_, section) = page.split_once(heading).expect("the heading exists");
    let section = match heading {
        "" => section,
        _ => section.split("\n## ").next().unwrap_or_default(),
    };
    let blocks = section.split("```sh\n").skip(1);
    let block = |text: &str| text.split("```").next().unwrap_or_default().to_owned();
    blocks.map(block).collect()
}

/// Runs commands of a page in a shell, and returns the exit code and the output.
fn shell(plane: &ControlPlane, script: &str) -> (Option<i32>, String) {
    let plugin = Path::new(env!("CARGO_BIN_EXE_kubectl-ipam"));
    let kubectl = plane.kubectl_program();
    let folder = |program: &Path| program.parent().expect("a folder").display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("bash")
        .args(["-e", "-c", script])
        .env("KUBECONFIG", plane.kubeconfig())
        .env("PATH", [folder(plugin), folder(&kubectl), path].join(":"))
        .current_dir(plane.folder())
        .output()
        .expect("a shell can be started");
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    (output.status.code(), text)
}

/// The manager. `make test` builds it before; otherwise it is built here, with the features of all
/// packages together.
fn manager() -> PathBuf {
    let path = built("manager");
    if !path.exists() {
        let build = ["test", "--locked", "--workspace", "--no-run"];
        let status = Command::new(env!("CARGO"))
            .args(build)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status();
        assert!(
            status.expect("cargo can be started").success(),
            "the manager cannot be built"
        );
    }
    path
}

/// The definitions of the provider, without conversion by a webhook.
fn definitions() -> String {
    let all = crds::all().expect("the definitions can be generated");
    let mut documents = Vec::new();
    for definition in all {
        let mut value = serde_json::to_value(definition).expect("a definition is JSON");
        // No webhook converts here.
        value["spec"]["conversion"] = Value::Null;
        documents.push(value.to_string());
    }
    documents.join("\n---\n")
}

/// A reference to a pool.
fn reference(kind: &str, name: &str) -> Value {
    json!({ "apiGroup": "ipam.cluster.x-k8s.io", "kind": kind, "name": name })
}

/// Creates a pool.
fn create(
    control_plane: &ControlPlane,
    kind: &str,
    namespace: Option<&str>,
    name: &str,
    spec: &Value,
) {
    let object = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": kind,
        "metadata": { "name": name, "namespace": namespace }, "spec": spec,
    });
    control_plane.kubectl_apply(&object.to_string());
}
