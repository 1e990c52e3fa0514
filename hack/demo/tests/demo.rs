//! The demo shows what it says. It needs the programs that `make test` builds.

#![allow(clippy::expect_used, reason = "test code: a failure ends the test")]

use std::process::{Command, Stdio};

#[test]
fn demo_ends_by_itself_without_a_terminal() {
    let output = Command::new(env!("CARGO_BIN_EXE_demo"))
        .stdin(Stdio::null())
        .output()
        .expect("the demo can be started");
    let shown = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{shown}\n{errors}");
    for expected in ["machine-4   10.0.0.15", "machine-6   10.0.0.14", "Done."] {
        assert!(
            shown.contains(expected),
            "{expected:?} is missing in:\n{shown}"
        );
    }
}
