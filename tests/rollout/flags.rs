//! Startup errors are reported in one line.

use std::process::{Command, Output};

use support::prelude::*;

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_manager"))
        .args(arguments)
        .output()
        .expect("the manager can be started")
}

fn refuses(arguments: &[&str], code: i32, text: &str) {
    let output = run(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{error}");
    let last = error.lines().last().unwrap_or_default();
    assert!(
        last.starts_with("error: ") && last.contains(text),
        "{arguments:?}: {error}"
    );
    assert_eq!(
        error
            .lines()
            .filter(|line| line.starts_with("error"))
            .count(),
        1,
        "{error}"
    );
}

#[test]
fn invalid_flag_prints_one_line_and_an_exit_code() {
    refuses(&["--no-such-flag"], 2, "--no-such-flag");
    refuses(&["--concurrency=0"], 2, "--concurrency");
    refuses(&["--leader-elect-lease-duration=soon"], 2, "15s");
    refuses(
        &["--leader-elect-lease-duration=1s"],
        1,
        "--leader-elect-renew-deadline",
    );
    refuses(
        &["--leader-elect-lease-duration=-1s"],
        2,
        "must not be negative",
    );
    refuses(&["--sweep-interval=0"], 2, "must be longer than 0");
    refuses(&["--log-level=a=b=c"], 1, "--log-level");
    refuses(&["--kubeconfig=/no/such/file"], 1, "/no/such/file");
    refuses(
        &[
            "--health-probe-bind-address=nowhere",
            "--kubeconfig=/no/such/file",
        ],
        1,
        "/no/such/file",
    );
}

/// Every flag of the Go provider, with the forms of values that Go's flags accept.
#[test]
fn arguments_of_the_go_provider_are_accepted() {
    for arguments in [
        &["--leader-elect"][..],
        &["--leader-elect=T", "--insecure-diagnostics=1"],
        &["--leader-elect=FALSE", "--insecure-diagnostics"],
        &[
            "--health-probe-bind-address",
            ":8081",
            "--diagnostics-address",
            "localhost:8443",
        ],
        &["--health-probe-bind-address=", "--diagnostics-address="],
        &[
            "--namespace=a",
            "--namespace",
            "b",
            "--watch-filter=x",
            "--watch-filter=y",
        ],
        &["--namespace=", "--watch-filter=", "--kubeconfig="],
        &["--webhook-port=0x24e3", "--webhook-port", "9443"],
        &[
            "--webhook-cert-dir=",
            "--webhook-cert-name=",
            "--webhook-key-name=",
        ],
        &[
            "--webhook-cert-dir",
            "/certs/",
            "--webhook-cert-name",
            "a.crt",
            "--webhook-key-name",
            "a.key",
        ],
        &["--tls-min-version=", "--tls-cipher-suites="],
        &[
            "--tls-min-version",
            "VersionTLS13",
            "--tls-cipher-suites=A,B",
            "--tls-cipher-suites=C",
        ],
        // Beside them, the durations of this provider.
        &[
            "--leader-elect-lease-duration=1.5m",
            "--leader-elect-retry-period=.5s",
            "--sweep-grace=0",
        ],
    ] {
        let output = run(&[arguments, &["--help"]].concat());
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

#[test]
fn help_and_version_exit_successfully() {
    assert!(run(&["--help"]).status.success());
    assert!(String::from_utf8_lossy(&run(&["--version"]).stdout).starts_with("manager 2."));
}

#[tokio::test(flavor = "multi_thread")]
async fn startup_waits_for_the_api_server_and_the_crds() {
    let mut control_plane = ControlPlane::new();
    let definition = "crd/ipreservations.ipam.cluster.x-k8s.io";
    let saved = control_plane.kubectl(&["get", definition, "-o=json"]);
    control_plane.kubectl(&["delete", definition, "--timeout=120s"]);
    control_plane.stop_api_server();
    let manager = Manager::launch(&control_plane, control_plane.provider_kubeconfig(), &[]);
    manager.wait_for_log("waiting for the API server");
    assert!(!manager.is_ready());
    control_plane.start_api_server();
    manager.wait_for_log("definition=\"ipreservations.ipam.cluster.x-k8s.io\"");
    assert!(!manager.is_ready());
    let mut definition: serde_json::Value =
        serde_json::from_str(&saved).expect("kubectl writes JSON");
    definition["metadata"] = json!({"name": definition["metadata"]["name"]});
    definition["status"] = json!(null);
    control_plane.kubectl_apply(&definition.to_string());
    manager.wait_until_ready();

    let consumer = Consumer::new(&control_plane).await;
    consumer.create_pool("web", "10.0.0.10").await;
    consumer.bind_to("a", "web", "10.0.0.10").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn signal_stops_the_manager_while_it_waits() {
    let mut control_plane = ControlPlane::new();
    control_plane.stop_api_server();
    let mut manager = Manager::launch(
        &control_plane,
        control_plane.provider_kubeconfig(),
        &["--leader-elect"],
    );
    manager.wait_for_log("waiting for the API server");
    manager.stop();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(
        manager.exit_status().is_some_and(|status| status.success()),
        "{}",
        manager.log()
    );
}
