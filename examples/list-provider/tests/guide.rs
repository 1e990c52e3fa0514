//! The guide `docs/write-a-provider.md`: its code is that of this package, and its commands work.

#![allow(
    clippy::expect_used,
    reason = "test code: a failure ends the test with a message"
)]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options};
use capi_ipam_testing::manager::Manager;

const GUIDE: &str = include_str!("../../../docs/write-a-provider.md");
const PACKAGE: &str = env!("CARGO_MANIFEST_DIR");

/// The code blocks of the guide in a language.
fn blocks(language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = GUIDE.lines();
    while let Some(line) = lines.next() {
        if let Some(found) = line.strip_prefix("```") {
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            if found == language {
                blocks.push(block.join("\n") + "\n");
            }
        }
    }
    assert!(!blocks.is_empty(), "the guide has a block {language}");
    blocks
}

/// A file of this package.
fn file(path: &str) -> String {
    std::fs::read_to_string(Path::new(PACKAGE).join(path)).expect("the file can be read")
}

fn without_blank_lines(text: &str) -> Vec<&str> {
    text.lines()
        .filter(|line| !line.trim().is_empty())
        .collect()
}

#[test]
fn code_of_the_guide_is_the_example() {
    let program = blocks("rust").concat();
    assert_eq!(
        without_blank_lines(&program),
        without_blank_lines(&file("src/main.rs"))
    );
    assert_eq!(blocks("rust,test").concat(), file("tests/conformance.rs"));
    let files = ["crd.yaml", "sample.yaml", "rbac.yaml", "deployment.yaml"]
        .map(|name| file(&format!("config/{name}")));
    assert_eq!(blocks("yaml"), files);
}

#[test]
fn dependencies_of_the_guide_are_those_of_the_example() {
    let names = |text: &str| -> BTreeSet<String> {
        let lines = text.lines().filter(|line| line.contains('='));
        lines
            .filter_map(|line| line.split(['=', '.', ' ']).next())
            .map(str::to_owned)
            .collect()
    };
    let manifest = file("Cargo.toml");
    let (_, dependencies) = manifest
        .split_once("[dependencies]")
        .expect("there are dependencies");
    let missing: Vec<String> = names(&blocks("toml").concat())
        .difference(&names(dependencies))
        .cloned()
        .collect();
    assert!(missing.is_empty(), "the example does not need {missing:?}");
}

/// Runs a command of the guide in the folder of the package.
fn run(plane: &ControlPlane, command: &str) {
    let programs = plane.kubectl_program();
    let programs = programs.parent().expect("kubectl is in a folder");
    let path = format!(
        "{}:{}",
        programs.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let output = Command::new("sh")
        .args(["-c", command])
        .current_dir(PACKAGE)
        .env("PATH", path)
        .env("KUBECONFIG", plane.kubeconfig())
        .output()
        .expect("a shell can be run");
    assert!(
        output.status.success(),
        "{command}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn commands_of_the_guide_work() {
    let plane = ControlPlane::start(Options::default(), &Installation::default());
    let mut program = None;
    for command in blocks("sh").iter().flat_map(|block| block.lines()) {
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
            run(&plane, command);
        }
    }
    assert!(program.is_some(), "the guide runs the program");
}
