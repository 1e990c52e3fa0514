//! Architecture rules that the compiler does not enforce. What a crate may use is declared in its
//! Cargo.toml.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "test code: a failure ends the test"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

#[path = "architecture/complexity.rs"]
mod complexity;
#[path = "architecture/imports.rs"]
mod imports;
#[path = "architecture/sources.rs"]
mod sources;

/// The maximum number of lines of a source file.
const MAX_LINES: usize = 1000;

/// Names that a folder must not contain outside of its tests: a crate is generic, or a module does
/// not use another.
const FORBIDDEN_NAMES: &[(&str, &[&str])] = &[
    (
        "crates/ip",
        &["kube::", "inclusterippool", "inclusterprefixpool"],
    ),
    (
        "crates/controller",
        &[
            "ipam.",
            "ipaddress",
            "ippool",
            "prefixpool",
            "ipreservation",
            "poolref",
        ],
    ),
    (
        "crates/webhook",
        &[
            "ipam.",
            "ipaddress",
            "ippool",
            "prefixpool",
            "ipreservation",
            "poolref",
        ],
    ),
    (
        "crates/provider",
        &["inclusterippool", "inclusterprefixpool", "ipreservation"],
    ),
    (
        "crates/testing",
        &["inclusterippool", "inclusterprefixpool", "ipreservation"],
    ),
    (
        "crates/objects",
        &[
            "ipam.",
            "ipaddress",
            "ippool",
            "prefixpool",
            "ipreservation",
        ],
    ),
    (
        "crates/contract",
        &["inclusterippool", "inclusterprefixpool", "ipreservation"],
    ),
    (
        "crates/nats",
        &["ipaddress", "ippool", "prefixpool", "ipreservation"],
    ),
    // The ledger neither locks, waits nor calls anybody.
    (
        "crates/ledger",
        &["tokio", "parking_lot", "mutex", "eventhandler", "trigger<"],
    ),
    // Admission reads the state of the cluster through its trait `View`.
    ("src/admission", &["in_cluster::"]),
];

#[test]
fn source_files_are_short() {
    let too_long = |file: &PathBuf| {
        let lines = text(file).lines().count();
        (lines > MAX_LINES).then(|| format!("{} has {lines} lines", file.display()))
    };
    let found: Vec<_> = ["src", "crates", "tests"]
        .into_iter()
        .flat_map(sources)
        .filter_map(|file| too_long(&file))
        .collect();
    assert!(
        found.is_empty(),
        "a file has at most {MAX_LINES} lines:\n{}",
        found.join("\n")
    );
}

#[test]
fn folders_do_not_name_what_they_must_not_use() {
    for (folder, names) in FORBIDDEN_NAMES {
        for file in sources(folder).iter().filter(|file| {
            !file
                .iter()
                .any(|part| part == "tests" || part == "tests.rs")
        }) {
            let text = text(file);
            let code = text
                .split("\n#[cfg(test)]\nmod tests")
                .next()
                .unwrap_or_default()
                .to_lowercase();
            for name in *names {
                // The crates of this workspace are named after the product.
                let found = code
                    .lines()
                    .find(|line| line.contains(name) && !line.contains("capi_ipam"));
                assert!(
                    found.is_none(),
                    "{} must not contain {name:?}: {}",
                    file.display(),
                    found.unwrap_or_default()
                );
            }
        }
    }
}

#[test]
fn provider_sdk_depends_on_no_webhook_crate() {
    let dependencies = dependencies("capi-ipam-provider");
    assert!(
        dependencies
            .iter()
            .any(|name| name == "capi-ipam-controller"),
        "{dependencies:?}"
    );
    for unwanted in [
        "rcgen",
        "x509-parser",
        "capi-ipam-webhook",
        "capi-ipam-ip",
        "capi-ipam-api",
        "capi-ipam",
    ] {
        let is_absent = dependencies.iter().all(|name| name != unwanted);
        assert!(is_absent, "capi-ipam-provider depends on {unwanted}");
    }
}

/// What a crate below the controller may use: none of these crates can send a request or wait for
/// one.
#[test]
fn kinds_and_ledger_link_no_client() {
    let objects = "capi-ipam-objects";
    let contract = "capi-ipam-contract";
    let api: &[&str] = &[objects, contract, "capi-ipam-ip"];
    let ledger: &[&str] = &[
        objects,
        contract,
        "capi-ipam-ip",
        "capi-ipam-api",
        "capi-ipam-protocol",
    ];
    let rollout: &[&str] = &[
        objects,
        contract,
        "capi-ipam-ip",
        "capi-ipam-api",
        "capi-ipam-protocol",
        "capi-ipam-ledger",
    ];
    let rules: [(&str, &[&str]); 5] = [
        (objects, &[]),
        (contract, &[objects]),
        ("capi-ipam-api", api),
        ("capi-ipam-ledger", ledger),
        ("capi-ipam-rollout", rollout),
    ];
    for (package, allowed) in rules {
        let dependencies = dependencies(package);
        for own in dependencies.iter().filter(|name| is_of_workspace(name)) {
            assert!(
                allowed.contains(&own.as_str()),
                "{package} depends on {own}"
            );
        }
        for unwanted in ["kube-client", "kube-runtime", "hyper", "tokio"] {
            let is_absent = dependencies.iter().all(|name| name != unwanted);
            assert!(is_absent, "{package} depends on {unwanted}");
        }
    }
}

#[test]
fn test_kit_depends_on_the_sdk_only() {
    let dependencies = dependencies("capi-ipam-testing");
    let own: Vec<_> = dependencies
        .iter()
        .filter(|name| is_of_workspace(name))
        .collect();
    let allowed = |name: &str| {
        [
            "capi-ipam-contract",
            "capi-ipam-controller",
            "capi-ipam-objects",
            "capi-ipam-protocol",
            "capi-ipam-provider",
        ]
        .contains(&name)
    };
    assert!(
        own.iter().all(|name| allowed(name)),
        "the test kit works for every provider: {own:?}"
    );
}

/// Its buckets are a source of the controller crate, and it knows no addresses. Providers that need
/// no NATS do not link its client.
#[test]
fn nats_crate_depends_on_the_controller_crate_only() {
    let found = dependencies("capi-ipam-nats");
    for own in found.iter().filter(|name| is_of_workspace(name)) {
        let is_allowed = ["capi-ipam-controller", "capi-ipam-objects"].contains(&own.as_str());
        assert!(is_allowed, "capi-ipam-nats depends on {own}");
    }
    let has_second_provider = found.iter().any(|name| name == "aws-lc-rs");
    assert!(!has_second_provider, "one cryptography provider: ring");
    for package in ["capi-ipam-controller", "capi-ipam-provider"] {
        let is_absent = dependencies(package)
            .iter()
            .all(|name| name != "async-nats");
        assert!(is_absent, "{package} depends on async-nats");
    }
}

/// Without its feature `nats`, the registry does not link the client of NATS.
#[test]
fn registry_links_nats_only_with_its_feature() {
    let package = "capi-ipam-registry";
    let allowed = [
        "capi-ipam-api",
        "capi-ipam-contract",
        "capi-ipam-controller",
        "capi-ipam-ip",
        "capi-ipam-nats",
        "capi-ipam-objects",
    ];
    let found = dependencies(package);
    for own in found.iter().filter(|name| is_of_workspace(name)) {
        assert!(
            allowed.contains(&own.as_str()),
            "{package} depends on {own}"
        );
    }
    assert!(found.iter().any(|name| name == "async-nats"));
    let without = dependencies_with(package, &["--no-default-features"]);
    for unwanted in ["async-nats", "capi-ipam-nats"] {
        let is_absent = without.iter().all(|name| name != unwanted);
        assert!(
            is_absent,
            "without features, {package} depends on {unwanted}"
        );
    }
}

#[test]
fn manager_does_not_depend_on_the_kubectl_plugin() {
    for package in [
        "capi-ipam",
        "capi-ipam-provider",
        "capi-ipam-controller",
        "capi-ipam-webhook",
    ] {
        for unwanted in ["kubectl-ipam", "clap_complete", "clap_mangen"] {
            let is_absent = dependencies(package).iter().all(|name| name != unwanted);
            assert!(is_absent, "{package} depends on {unwanted}");
        }
    }
}

#[test]
fn kubectl_plugin_does_not_depend_on_the_manager() {
    let dependencies = dependencies("kubectl-ipam");
    assert!(
        dependencies.iter().any(|name| name == "capi-ipam-ledger"),
        "it uses the ledger of the manager"
    );
    for unwanted in ["capi-ipam", "capi-ipam-webhook", "rcgen"] {
        assert!(
            dependencies.iter().all(|name| name != unwanted),
            "kubectl-ipam depends on {unwanted}"
        );
    }
}

/// The server of the page knows no objects, and the plugin without the page has no server.
#[test]
fn page_is_a_crate_of_its_own() {
    let found = dependencies("kubectl-ipam-web");
    let own = found.iter().find(|name| is_of_workspace(name));
    assert!(own.is_none(), "kubectl-ipam-web depends on {own:?}");
    // Probes and metrics of a manager, which the plugin does not start, are served with axum, too.
    let without = ["--no-default-features", "--depth=1"];
    let direct = dependencies_with("kubectl-ipam", &without);
    for unwanted in ["axum", "kubectl-ipam-web"] {
        let is_absent = direct.iter().all(|name| name != unwanted);
        assert!(
            is_absent,
            "without features, kubectl-ipam depends on {unwanted}"
        );
    }
}

#[test]
fn address_crate_does_no_io() {
    let dependencies = dependencies("capi-ipam-ip");
    for unwanted in ["kube", "k8s-openapi", "tokio", "serde_json"] {
        assert!(
            dependencies.iter().all(|name| name != unwanted),
            "capi-ipam-ip depends on {unwanted}"
        );
    }
}

#[test]
fn shell_scripts_can_be_parsed() {
    let mut scripts = files_below("hack", "sh");
    scripts.push(Path::new(env!("CARGO_MANIFEST_DIR")).join(".ci/run"));
    assert!(scripts.len() > 5, "{scripts:?}");
    for script in scripts {
        let parsed = Command::new("bash").arg("-n").arg(&script).output();
        let parsed = parsed.expect("bash can be run");
        let message = String::from_utf8_lossy(&parsed.stderr);
        assert!(parsed.status.success(), "{}: {message}", script.display());
    }
}

/// Unit tests of a program run only if `hack/test.sh` names it.
#[test]
fn unit_tests_of_all_programs_are_run() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo can be run");
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo writes JSON");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("hack/test.sh");
    let script = fs::read_to_string(script).expect("the script can be read");
    let words: Vec<&str> = script.split_whitespace().collect();
    let packages = metadata["packages"].as_array().expect("there are packages");
    let targets = packages
        .iter()
        .filter_map(|package| package["targets"].as_array())
        .flatten();
    let mut count = 0;
    for target in targets {
        if target["kind"] == json!(["bin"]) && target["test"] == true {
            let name = target["name"].as_str().expect("it has a name");
            assert!(
                words.windows(2).any(|pair| pair == ["--bin", name]),
                "{name}"
            );
            count += 1;
        }
    }
    assert!(count >= 7, "{count}");
}

/// Each mutant of the fault plans is a patch of the sources: a change of a line that it names makes
/// it useless. A change that breaks one is mended together with it.
#[test]
fn mutants_can_be_applied() {
    let mutants = files_below("tests/faults/mutants", "patch");
    assert!(mutants.len() >= 20, "{mutants:?}");
    for mutant in mutants {
        let applied = Command::new("git")
            .args(["apply", "--check"])
            .arg(&mutant)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output();
        let applied = applied.expect("git can be run");
        let message = String::from_utf8_lossy(&applied.stderr);
        assert!(applied.status.success(), "{}: {message}", mutant.display());
    }
}

/// The model can run the protocol because it is a plain function of plain values.
#[test]
fn protocol_depends_on_nothing() {
    let found = dependencies("capi-ipam-protocol");
    assert!(found.is_empty(), "{found:?}");
}

fn is_of_workspace(name: &str) -> bool {
    name.starts_with("capi-ipam")
}

/// The names of a crate's normal dependencies, direct and indirect.
fn dependencies(package: &str) -> Vec<String> {
    dependencies_with(package, &[])
}

/// The same with more arguments of cargo.
fn dependencies_with(package: &str, arguments: &[&str]) -> Vec<String> {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--locked",
            "--offline",
            "--edges=normal",
            "--prefix=none",
            "--package",
            package,
        ])
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo can be run");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines()
        .skip(1)
        .filter_map(|line| line.split(' ').next())
        .map(str::to_owned)
        .collect()
}

/// All Rust files below a folder of the repository.
fn sources(folder: &str) -> Vec<PathBuf> {
    files_below(folder, "rs")
}

/// All files with an extension below a folder of the repository.
fn files_below(folder: &str, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("folders can be read") {
            let path = entry.expect("folders can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found
}

fn text(file: &Path) -> String {
    fs::read_to_string(file).expect("sources can be read")
}
