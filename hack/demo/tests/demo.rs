//! The demo shows what it says. It needs the programs that `make test` builds.

#![allow(clippy::expect_used, reason = "test code: a failure ends the test")]

use std::io::{BufRead, BufReader, Read};
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
    assert!(!shown.contains('\u{1b}'), "a file has no escape sequences");
    let network = shown.lines().find(|line| line.starts_with("  site "));
    let pools = network.and_then(|line| line.split_whitespace().nth(1));
    assert_eq!(pools, Some("1"), "{shown}");
    let quoted = r#"--type=merge -p '{"spec":{"gateway":"10.0.0.300"}}'"#;
    for expected in [
        "machine-4   10.0.0.15",
        "machine-6   10.0.0.14",
        quoted,
        "Done.",
    ] {
        assert!(
            shown.contains(expected),
            "{expected:?} is missing in:\n{shown}"
        );
    }
}

#[test]
fn demo_of_two_clusters_shows_what_it_says() {
    let output = Command::new(env!("CARGO_BIN_EXE_demo-clusters"))
        .stdin(Stdio::null())
        .output()
        .expect("the demo can be started");
    let shown = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{shown}\n{errors}");
    for expected in [
        "10.40.0.1 ",
        "10.40.0.5 ",
        "cannot be reached",
        "machine-5   10.40.0.",
        "RegistryRestored: the registry has lost writes",
        "waiting for these management clusters: east",
        "No address is in use twice:",
        "machine-8   10.40.0.12",
        "Done.",
    ] {
        assert!(
            shown.contains(expected),
            "{expected:?} is missing in:\n{shown}"
        );
    }
}

/// As in `make demo | head`.
#[test]
fn demo_ends_quietly_when_nobody_reads_its_output() {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_demo"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the demo can be started");
    let mut output = BufReader::new(demo.stdout.take().expect("it has an output"));
    let mut line = String::new();
    output.read_line(&mut line).expect("a line can be read");
    drop(output);
    let mut errors = String::new();
    let mut stderr = demo.stderr.take().expect("it has an error output");
    stderr.read_to_string(&mut errors).expect("it is a text");
    let status = demo.wait().expect("the demo ends");
    assert!(status.success() && !errors.contains("panicked"), "{errors}");
}
