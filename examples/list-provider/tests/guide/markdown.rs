//! The code blocks of a guide, and its commands.

use std::path::Path;
use std::process::Command;

use capi_ipam_testing::control_plane::ControlPlane;

/// The code blocks of a guide in a language.
pub(crate) fn blocks(guide: &str, language: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = guide.lines();
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

/// A file of a package.
pub(crate) fn file(package: &str, path: &str) -> String {
    std::fs::read_to_string(Path::new(package).join(path)).expect("the file can be read")
}

/// Asserts that a file consists of code blocks, apart from blank lines.
pub(crate) fn assert_same(blocks: &[String], file: &str) {
    let lines = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        lines.map(str::to_owned).collect()
    };
    assert_eq!(lines(&blocks.concat()), lines(file));
}

/// Asserts that a package needs all dependencies of a guide.
pub(crate) fn assert_dependencies(guide: &str, manifest: &str) {
    let (_, dependencies) = manifest
        .split_once("[dependencies]")
        .expect("there are dependencies");
    let name = |line: &str| line.split(['=', '.', ' ']).next().map(str::to_owned);
    let names = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| line.contains('='));
        lines.filter_map(name).collect()
    };
    let needed = names(dependencies);
    for named in names(&blocks(guide, "toml").concat()) {
        assert!(needed.contains(&named), "the example does not need {named}");
    }
}

/// Runs a command of a guide in the folder of a package.
pub(crate) fn run(plane: &ControlPlane, package: &str, command: &str) {
    let programs = plane.kubectl_program();
    let programs = programs.parent().expect("kubectl is in a folder");
    let path = format!(
        "{}:{}",
        programs.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let output = Command::new("sh")
        .args(["-c", command])
        .current_dir(package)
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
