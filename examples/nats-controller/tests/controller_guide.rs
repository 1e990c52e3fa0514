//! The guide `docs/write-a-controller.md`: its code is that of this package, and its commands work.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "test code: a failure ends the test with a message"
)]

#[path = "../../list-provider/tests/guide/markdown.rs"]
mod markdown;

use std::path::Path;

use async_nats::HeaderMap;
use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options as PlaneOptions};
use capi_ipam_testing::manager::Manager;
use capi_ipam_testing::nats::{Node, Options};
use capi_ipam_testing::wait::eventually;

use self::markdown::{assert_dependencies, assert_same, blocks, file, run};

const GUIDE: &str = include_str!("../../../docs/write-a-controller.md");
const PACKAGE: &str = env!("CARGO_MANIFEST_DIR");

/// The maximum number of lines with content of the controller of keys.
const MAX_LINES: usize = 110;

#[test]
fn code_of_the_guide_is_the_example() {
    let main = file(PACKAGE, "src/main.rs");
    assert_same(&blocks(GUIDE, "rust"), &main);
    let kubernetes = file(PACKAGE, "src/bin/team_labels.rs");
    assert_same(&blocks(GUIDE, "rust,kubernetes"), &kubernetes);
    let test = blocks(GUIDE, "rust,test").concat();
    assert_eq!(test, file(PACKAGE, "tests/team_labels.rs"));
    let lines = main.lines().filter(|line| !line.trim().is_empty());
    assert!(lines.count() <= MAX_LINES, "the example is too long");
}

/// A workspace sets the version and the edition of the example.
#[test]
fn programs_of_the_guide_are_those_of_the_example() {
    let package = blocks(GUIDE, "toml,package").concat();
    let (fields, programs) = package.split_once("[[bin]]").expect("it has programs");
    let manifest = file(PACKAGE, "Cargo.toml");
    assert!(manifest.contains(programs.trim_end()), "{programs}");
    let default = fields.lines().find(|line| line.starts_with("default-run"));
    assert!(
        manifest.contains(default.expect("it has a default")),
        "{fields}"
    );
}

#[test]
fn dependencies_of_the_guide_are_those_of_the_example() {
    assert_dependencies(GUIDE, &file(PACKAGE, "Cargo.toml"));
}

/// Does what the program `nats` does with a command of the guide.
async fn run_nats(node: &Node, command: &str) {
    let words: Vec<&str> = command.split(' ').collect();
    let [_, "kv", operation, bucket, key, argument] = words[..] else {
        panic!("{command}");
    };
    let client = async_nats::connect(node.url()).await;
    let jetstream = async_nats::jetstream::new(client.expect("the server runs"));
    let (mut headers, mut value) = (HeaderMap::new(), String::new());
    match operation {
        "put" => argument.trim_matches('\'').clone_into(&mut value),
        "del" => headers.insert("KV-Operation", "DEL"),
        _ => panic!("{command}"),
    }
    let subject = format!("$KV.{bucket}.{key}");
    // The program creates the bucket when it becomes the leader.
    eventually("the bucket exists", || async {
        let (subject, value) = (subject.clone(), value.clone());
        let sent = jetstream.publish_with_headers(subject, headers.clone(), value.into());
        sent.await.ok()?.await.ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_of_the_guide_work() {
    let plane = ControlPlane::start(PlaneOptions::default(), &Installation::default());
    let node = Node::start(Options::default());
    let mut program = None;
    let commands = blocks(GUIDE, "sh");
    for command in commands.iter().flat_map(|block| block.lines()) {
        if let Some(flags) = command.strip_prefix("cargo run -- ") {
            // The server of the guide has another port.
            let flags = flags.replace("nats://localhost:4222", &node.url());
            let flags: Vec<&str> = flags.split(' ').collect();
            let path = Path::new(env!("CARGO_BIN_EXE_nats-controller"));
            let started = Manager::start_program(&plane, path, plane.kubeconfig(), &flags);
            started.wait_until_ready();
            program = Some(started);
        } else if command.starts_with("nats ") {
            run_nats(&node, command).await;
        } else {
            run(&plane, PACKAGE, command);
        }
    }
    assert!(program.is_some(), "the guide runs the program");
}
