//! What users of kubectl expect without reading: names, `--watch`, `--dry-run`, and completion.

use std::cell::RefCell;
use std::path::Path;
use std::process::{Command, Stdio};

use capi_ipam_testing::consumer::Consumer;
use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options};
use capi_ipam_testing::process::Supervised;
use capi_ipam_testing::wait::eventually;
use serde_json::json;

use super::{create, definitions, json_of, reference, run};

/// A running `--watch`.
struct Watch(Supervised);

impl Watch {
    fn start(plane: &ControlPlane, arguments: &[&str]) -> Self {
        let log = plane
            .folder()
            .join(format!("watch-{}", arguments.join("-")));
        let admin = plane.kubeconfig().display().to_string();
        let all = [arguments, &["--watch", "--kubeconfig", &admin]].concat();
        let program = Path::new(env!("CARGO_BIN_EXE_kubectl-ipam"));
        Self(Supervised::spawn(program, &all, &[], &log))
    }

    /// Waits until the output has a text, and returns the output.
    async fn wait_for(&self, text: &str) -> String {
        eventually(text, async || {
            let output = self.0.output();
            output.contains(text).then_some(output)
        })
        .await
    }

    /// Waits for the end, and returns the exit code and the output.
    async fn end(mut self) -> (Option<i32>, String) {
        let program = RefCell::new(&mut self.0);
        let exited = async || program.borrow_mut().exit_status();
        let status = eventually("the end of the watch", exited).await;
        (status.code(), self.0.output())
    }

    /// Presses Ctrl-C.
    async fn interrupt(mut self) -> (Option<i32>, String) {
        self.0.signal("INT");
        self.end().await
    }
}

#[tokio::test]
async fn watch_prints_what_changes_until_interrupted() {
    let mut plane = ControlPlane::start(Options::default(), &Installation::of(definitions()));
    let consumer = Consumer::new(&plane).await;
    let namespace = consumer.namespace.clone();
    let spec = json!({ "addresses": ["10.0.0.10-10.0.0.12"], "prefix": 24 });
    create(&plane, "InClusterIPPool", Some(&namespace), "web", &spec);
    let web = || reference("InClusterIPPool", "web");

    let claims = Watch::start(&plane, &["claims", "-n", &namespace]);
    consumer.create_claim_for("one", web(), json!({})).await;
    claims.wait_for("one").await;
    consumer.create_claim_for("two", web(), json!({})).await;
    let output = claims.wait_for("two").await;
    assert_eq!(output.matches("NAME").count(), 1, "{output}");
    assert_eq!(output.matches("one").count(), 1, "{output}");
    assert_eq!(claims.interrupt().await.0, Some(0));

    // A watch that cannot go on says so.
    let claims = Watch::start(&plane, &["claims", "-n", &namespace]);
    claims.wait_for("one").await;
    plane.stop_api_server();
    let (code, output) = claims.end().await;
    assert_eq!(code, Some(3), "{output}");
    assert!(
        output.contains("warning: the watch has ended") && output.contains("error: cannot reach"),
        "{output}"
    );
}

#[tokio::test]
async fn names_versions_and_dry_runs_are_those_of_kubectl() {
    let plane = ControlPlane::start(Options::default(), &Installation::of(definitions()));
    let admin = plane.kubeconfig();
    let consumer = Consumer::new(&plane).await;
    let namespace = consumer.namespace.as_str();
    let spec = json!({ "addresses": ["10.50.0.0/24"], "prefix": 24, "gateway": "10.50.0.1",
                       "excludedAddresses": ["10.50.0.20"] });
    create(&plane, "InClusterIPPool", Some(namespace), "small", &spec);
    create(&plane, "IPNetwork", None, "lab", &json!({}));
    let pool = reference("InClusterIPPool", "small");
    consumer.create_claim_for("vm-1", pool, json!({})).await;
    let ask = |arguments: &[&str]| run(admin, &[arguments, &["-n", namespace]].concat());

    // Names.
    let found = json_of(admin, &["claims", "vm-1", "-n", namespace]);
    assert_eq!(found["items"].as_array().map(Vec::len), Some(1), "{found}");
    let found = json_of(admin, &["networks", "lab"]);
    assert_eq!(found["items"].as_array().map(Vec::len), Some(1), "{found}");
    // Namespaces.
    for command in [
        "pools", "claims", "clusters", "plan", "adopt", "export", "doctor",
    ] {
        let (code, _, errors) = run(admin, &[command, "-n", "defaul"]);
        let expected = "namespace defaul does not exist; did you mean default?";
        assert!(
            code == 6 && errors.contains(expected),
            "{command}: {errors}"
        );
    }
    let other = json!({ "apiVersion": "ipam.cluster.x-k8s.io/v1beta2", "kind": "IPAddressClaim",
                        "metadata": { "name": "vm-2", "namespace": "default" },
                        "spec": { "poolRef": reference("InClusterIPPool", "small") } });
    plane.kubectl_apply(&other.to_string());
    let named = [format!("{namespace}/vm-1"), "default/vm-2".to_owned()];
    let (_, table, _) = run(admin, &["claims", &named[0], &named[1]]);
    assert!(table.starts_with("NAMESPACE"), "{table}");
    let absent = format!("does not exist in the namespace {namespace}; list the claims");
    for (arguments, text) in [
        (&["claims", "nope"][..], absent.as_str()),
        (
            &["claims", "vm-1", "nope", "--waiting"],
            "claim nope does not exist",
        ),
        (&["networks", "nope"], "network nope does not exist"),
        (&["pools", "nope"], "pool nope does not exist"),
    ] {
        let (code, output, errors) = ask(arguments);
        assert_eq!((code, output.as_str()), (6, ""), "{arguments:?}: {errors}");
        assert!(errors.contains(text), "{arguments:?}: {errors}");
    }
    let (code, _, errors) = ask(&["pools", "small", "-l", "a=b"]);
    assert_eq!(code, 2, "kubectl refuses names with a selector: {errors}");
    let (code, output, errors) = ask(&["claims", "-l", "a=b"]);
    assert_eq!((code, output.as_str()), (0, ""));
    assert_eq!(errors, "Nothing found.\n");

    // Versions.
    let version = format!("Client Version: v{}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(ask(&["version"]).1, version);

    // Dry runs.
    let (code, output, errors) = ask(&["reserve", "small", "10.50.0.30", "--dry-run=client"]);
    let name = format!("ipreservation p.{namespace}.small.10.50.0.30");
    let expected = format!("{name} created (dry run): 10.50.0.30 is excluded from allocation\n");
    assert_eq!((code, output, errors.as_str()), (0, expected, ""));
    assert_eq!(
        ask(&["reserve", "small", "10.50.0.30"]).0,
        0,
        "nothing was reserved"
    );
    let (code, output, _) = ask(&["unreserve", "small", "10.50.0.30", "--dry-run=client"]);
    assert_eq!((code, output), (0, format!("{name} deleted (dry run)\n")));

    // An address that the pool does not allocate has its cause.
    for (address, why) in [
        (
            "10.50.0.20",
            "10.50.0.20 is excluded by the specification of",
        ),
        ("10.50.0.1", "10.50.0.1 is the gateway of"),
        (
            "10.50.0.0",
            "10.50.0.0 is a network, broadcast or router address",
        ),
        ("10.50.1.0", "does not contain 10.50.1.0"),
        ("", "the address is empty"),
    ] {
        let (code, _, errors) = ask(&["reserve", "small", address]);
        assert!(code == 2 && errors.contains(why), "{address}: {errors}");
    }
    assert!(ask(&["who", ""]).2.contains("the address is empty"));
}

#[tokio::test]
async fn tab_after_kubectl_ipam_completes_commands_flags_and_objects() {
    let plane = ControlPlane::start(Options::default(), &Installation::of(definitions()));
    let consumer = Consumer::new(&plane).await;
    let namespace = consumer.namespace.as_str();
    let spec = json!({ "addresses": ["10.0.0.0/24"], "prefix": 24 });
    for (kind, of_pool, name) in [
        ("InClusterIPPool", Some(namespace), "web"),
        ("InClusterIPPool", Some(namespace), "same"),
        ("GlobalInClusterIPPool", None, "same"),
    ] {
        create(&plane, kind, of_pool, name, &spec);
    }
    let pool = reference("InClusterIPPool", "web");
    consumer.create_claim_for("vm-1", pool, json!({})).await;

    // What an installation has in PATH.
    let folder = plane.folder().join("path");
    std::fs::create_dir(&folder).expect("a folder");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("kubectl_complete-ipam");
    std::fs::copy(&script, folder.join("kubectl_complete-ipam")).expect("the script exists");
    let program = env!("CARGO_BIN_EXE_kubectl-ipam");
    std::os::unix::fs::symlink(program, folder.join("kubectl-ipam")).expect("a link");
    let kubectl = plane.kubectl_program();
    let path = format!("{}:/usr/bin:/bin", folder.display());
    let complete = |words: &[&str], kubeconfig: &Path| -> Vec<String> {
        let output = Command::new(&kubectl)
            .args(["__complete", "ipam"])
            .args(words)
            .env("PATH", &path)
            .env("KUBECONFIG", kubeconfig)
            .output()
            .expect("kubectl can be started");
        let text = String::from_utf8(output.stdout).expect("text");
        let name = |line: &str| line.split('\t').next().unwrap_or_default().to_owned();
        text.lines().map(name).collect()
    };
    let admin = plane.kubeconfig();
    let ask = |words: &[&str]| complete(words, admin);

    let commands = ask(&[""]);
    for command in ["pools", "doctor", "show", "reserve"] {
        assert!(commands.iter().any(|it| it == command), "{commands:?}");
    }
    assert_eq!(ask(&["cla"]), ["claims", ":4"]);
    assert_eq!(ask(&["pools", "--no-h"]), ["--no-headers", ":4"]);
    assert_eq!(ask(&["pools", "-o", "w"]), ["wide", ":4"]);
    assert_eq!(ask(&["pools", "--namespace", namespace]), [namespace, ":4"]);
    let of_namespace = ["-n", namespace];
    let pools = ask(&[&["show"][..], &of_namespace, &[""]].concat());
    assert_eq!(pools, ["IP/same", "web", "GlobalIP/same", ":4"]);
    let claims = ask(&[&["claims"][..], &of_namespace, &["v"]].concat());
    assert_eq!(claims, ["vm-1", ":4"]);
    let joined = format!("{namespace}/vm-1");
    assert_eq!(ask(&["who", "-A", namespace]), [joined.as_str(), ":4"]);

    // Without an answer there are no candidates, and no message.
    assert_eq!(complete(&["show", ""], Path::new("/nonexistent")), [":4"]);
}

/// As in `kubectl ipam pools | head`.
#[tokio::test]
async fn closed_pipe_ends_the_program_quietly() {
    let plane = ControlPlane::start(Options::default(), &Installation::of(definitions()));
    let commands = [
        &["--help"][..],
        &["pools", "--all-namespaces"],
        &["claims", "--all-namespaces", "--output=json"],
        &["doctor"],
        &["doctor", "--output=yaml"],
    ];
    for command in commands {
        let mut program = Command::new(env!("CARGO_BIN_EXE_kubectl-ipam"))
            .args(command)
            .env("KUBECONFIG", plane.kubeconfig())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program can be started");
        drop(program.stdout.take());
        let output = program.wait_with_output().expect("the program ends");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code().is_some(), "{command:?}: a signal");
        let is_quiet = !errors.contains("panicked") && !errors.contains("Broken pipe");
        assert!(is_quiet, "{command:?}: {errors}");
    }
}
