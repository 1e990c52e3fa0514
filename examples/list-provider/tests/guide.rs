//! The guide `docs/write-a-provider.md`: its code is that of this package, and its commands work.

#![allow(
    clippy::expect_used,
    reason = "test code: a failure ends the test with a message"
)]

#[path = "guide/markdown.rs"]
mod markdown;

use std::path::Path;

use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options};
use capi_ipam_testing::manager::Manager;

use self::markdown::{assert_dependencies, assert_same, blocks, file, run};

const GUIDE: &str = include_str!("../../../docs/write-a-provider.md");
const PACKAGE: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn code_of_the_guide_is_the_example() {
    assert_same(&blocks(GUIDE, "rust"), &file(PACKAGE, "src/main.rs"));
    let test = blocks(GUIDE, "rust,test").concat();
    assert_eq!(test, file(PACKAGE, "tests/conformance.rs"));
    let files = ["crd.yaml", "sample.yaml", "rbac.yaml", "deployment.yaml"]
        .map(|name| file(PACKAGE, &format!("config/{name}")));
    assert_eq!(blocks(GUIDE, "yaml"), files);
}

#[test]
fn dependencies_of_the_guide_are_those_of_the_example() {
    assert_dependencies(GUIDE, &file(PACKAGE, "Cargo.toml"));
}

#[test]
fn commands_of_the_guide_work() {
    let plane = ControlPlane::start(Options::default(), &Installation::default());
    let mut program = None;
    let commands = blocks(GUIDE, "sh");
    for command in commands.iter().flat_map(|block| block.lines()) {
        if let Some(flags) = command.strip_prefix("cargo run -- ") {
            // The port of the guide may be in use.
            let flags = flags
                .split(' ')
                .map(|flag| match flag.split_once("-address=") {
                    Some((name, _)) => format!("{name}-address=0"),
                    None => flag.to_owned(),
                });
            let flags: Vec<String> = flags.collect();
            let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
            let path = Path::new(env!("CARGO_BIN_EXE_list-provider"));
            program = Some(Manager::start_program(
                &plane,
                path,
                plane.kubeconfig(),
                &flags,
            ));
        } else {
            run(&plane, PACKAGE, command);
        }
    }
    assert!(program.is_some(), "the guide runs the program");
}
