//! The operator against a real API server.

#![allow(clippy::expect_used, reason = "test code: a failure ends the test")]

#[path = "../../list-provider/tests/guide/markdown.rs"]
mod markdown;

use std::path::Path;

use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options};
use capi_ipam_testing::manager::Manager;
use capi_ipam_testing::wait::eventually;

use self::markdown::{assert_dependencies, assert_same, blocks, file, run};

const DEFINITIONS: &str = include_str!("../config/crds.yaml");
const SAMPLE: &str = include_str!("../config/sample.yaml");
const GUIDE: &str = include_str!("../../../docs/write-an-operator.md");
const PACKAGE: &str = env!("CARGO_MANIFEST_DIR");
const MAX_LINES: usize = 150;

fn start(plane: &ControlPlane) -> Manager {
    let program = Path::new(env!("CARGO_BIN_EXE_operator"));
    let manager = Manager::start_program(plane, program, plane.kubeconfig(), &["--leader-elect"]);
    manager.wait_until_ready();
    manager
}

/// Waits until `kubectl get` prints something of an object.
async fn wait_for(plane: &ControlPlane, object: &str, path: &str, expected: &str) {
    eventually(&format!("{object} has {path} {expected}"), || async {
        let output = format!("-o=jsonpath={path}");
        let found = plane.kubectl(&["get", object, "--ignore-not-found", &output]);
        (found == expected).then_some(())
    })
    .await;
}

#[tokio::test]
async fn server_keeps_its_rack() {
    let plane = ControlPlane::start(Options::default(), &Installation::of(DEFINITIONS));
    let manager = start(&plane);
    let ready = "{.status.conditions[?(@.type=='Ready')].reason}";
    let other_place = "--patch={\"spec\":{\"place\":9}}";
    plane.kubectl_apply(SAMPLE);
    wait_for(&plane, "server/web", ready, "Reconciled").await;
    // The rack of the other server does not exist yet.
    wait_for(&plane, "server/db", ready, "RackNotUsable").await;
    plane.kubectl_apply(
        "{apiVersion: example.com/v1, kind: Rack, metadata: {name: b}, spec: {places: 2}}",
    );
    wait_for(&plane, "server/db", ready, "Reconciled").await;
    plane.kubectl(&["patch", "server", "web", "--type=merge", other_place]);
    wait_for(&plane, "server/web", ready, "InvalidSpec").await;
    plane.kubectl(&[
        "patch",
        "rack",
        "a",
        "--type=merge",
        "--patch={\"spec\":{\"places\":9}}",
    ]);
    wait_for(&plane, "server/web", ready, "Reconciled").await;

    plane.kubectl(&["delete", "rack", "a", "--wait=false"]);
    plane.kubectl(&["delete", "server", "db"]);
    let message = "{.status.conditions[?(@.type=='Ready')].message}";
    wait_for(&plane, "rack/a", message, "used by Server web").await;
    plane.kubectl(&["delete", "server", "web"]);
    wait_for(&plane, "rack/a", "{.metadata.name}", "").await;
    drop(manager);
}

#[test]
fn code_of_the_guide_is_the_example() {
    let main = file(PACKAGE, "src/main.rs");
    assert_same(&blocks(GUIDE, "rust"), &main);
    assert!(main.lines().count() <= MAX_LINES, "the example is too long");
    assert_dependencies(GUIDE, &file(PACKAGE, "Cargo.toml"));
}

#[test]
fn commands_of_the_guide_work() {
    let plane = ControlPlane::start(Options::default(), &Installation::default());
    let mut manager = None;
    for command in blocks(GUIDE, "sh").iter().flat_map(|block| block.lines()) {
        if command.starts_with("cargo run -- ") {
            manager = Some(start(&plane));
        } else {
            run(&plane, PACKAGE, command);
        }
    }
    assert!(manager.is_some(), "the guide runs the program");
}
