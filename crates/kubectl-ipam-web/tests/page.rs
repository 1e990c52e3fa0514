//! The scripts of the page of `web`: the tests of their pure parts, and their types. Both need
//! Node.js; without it on the machine they are skipped.

#![allow(
    clippy::expect_used,
    clippy::print_stderr,
    reason = "test code: a failure ends the test"
)]

use std::path::Path;
use std::process::Command;

use capi_ipam_testing::control_plane::ensure;

/// Whether a program is on the machine. The search path decides, as in a shell.
fn is_installed(program: &str) -> bool {
    let is_there = Command::new(program).arg("--version").output().is_ok();
    if !is_there {
        eprintln!("skipped: {program} is not installed");
    }
    is_there
}

/// Runs a command in the folder of this package. Fails with its output.
fn run(command: &mut Command) {
    let command = command.current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = command.output().expect("the program can be started");
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn pure_parts_of_the_scripts_pass_their_tests() {
    if is_installed("node") {
        run(Command::new("node").args(["--test", "tests/page/"]));
    }
}

#[test]
fn scripts_have_the_types_of_the_server() {
    if is_installed("node") && is_installed("npm") {
        let folder = ensure(&["typescript"]);
        let compiler = Path::new(&folder).join("tsc");
        run(Command::new(compiler).args(["--project", "src/page"]));
    }
}
