//! The program against a real API server with a running manager.

#![allow(clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "test code: a failure ends the test")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use capi_ipam::api::crds;
use capi_ipam_testing::consumer::Consumer;
use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options};
use capi_ipam_testing::manager::Manager;
use capi_ipam_testing::process::built;
use capi_ipam_testing::wait::eventually;
use serde_json::{Value, json};

/// Runs the program and returns its exit code, its output and its error output.
fn run(kubeconfig: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output: Output = Command::new(env!("CARGO_BIN_EXE_kubectl-ipam"))
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(arguments)
        .output()
        .expect("the program can be started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().expect("no signal"), text(&output.stdout), text(&output.stderr))
}

/// Runs the program with `-o json`; it must succeed.
fn json_of(kubeconfig: &Path, arguments: &[&str]) -> Value {
    let (code, output, errors) = run(kubeconfig, &[arguments, &["-o", "json"]].concat());
    assert_eq!((code, errors.as_str()), (0, ""), "{arguments:?}: {output}");
    serde_json::from_str(&output).expect("the output is JSON")
}

/// The manager. `make test` builds it before; otherwise it is built here, with the features of all packages together.
fn manager() -> PathBuf {
    let path = built("manager");
    if !path.exists() {
        let build = ["test", "--locked", "--workspace", "--no-run"];
        let status = Command::new(env!("CARGO")).args(build).current_dir(env!("CARGO_MANIFEST_DIR")).status();
        assert!(status.expect("cargo can be started").success(), "the manager cannot be built");
    }
    path
}

fn definitions() -> String {
    let all = crds::all().expect("the definitions can be generated");
    let mut documents = Vec::new();
    for definition in all {
        let mut value = serde_json::to_value(definition).expect("a definition is JSON");
        // No webhook converts here.
        value["spec"]["conversion"] = Value::Null;
        documents.push(value.to_string());
    }
    documents.join("\n---\n")
}

fn reference(kind: &str, name: &str) -> Value {
    json!({ "apiGroup": "ipam.cluster.x-k8s.io", "kind": kind, "name": name })
}

fn create(control_plane: &ControlPlane, kind: &str, namespace: Option<&str>, name: &str, spec: &Value) {
    let object = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": kind,
        "metadata": { "name": name, "namespace": namespace }, "spec": spec,
    });
    control_plane.kubectl_apply(&object.to_string());
}

#[tokio::test]
async fn every_command_shows_the_objects_of_the_cluster() {
    let manager = manager();
    let control_plane = ControlPlane::start(Options::default(), &Installation::of(definitions()));
    let admin = control_plane.kubeconfig();
    let manager = Manager::start_program(&control_plane, &manager, admin, &["--webhook-port=0"]);
    manager.wait_until_ready();
    let consumer = Consumer::new(&control_plane).await;
    let namespace = consumer.namespace.as_str();
    let spec = json!({ "addresses": ["10.0.0.10-10.0.0.12"], "prefix": 24, "gateway": "10.0.0.1",
                       "addressReuseGracePeriodSeconds": 600 });
    create(&control_plane, "InClusterIPPool", Some(namespace), "web", &spec);
    let prefixes = json!({ "prefixes": ["fd00::/62"], "allocationPrefixLength": 64, "network": "backbone" });
    create(&control_plane, "GlobalInClusterPrefixPool", None, "pods", &prefixes);
    let web = || reference("InClusterIPPool", "web");
    let labels = json!({ "labels": { "cluster.x-k8s.io/cluster-name": "prod" } });
    consumer.create_cluster("prod", false).await;
    consumer.create_claim_for("one", web(), labels).await;
    assert_eq!(consumer.wait_for_address("one").await, "10.0.0.10");
    consumer.create_claim_for("two", web(), json!({})).await;
    assert_eq!(consumer.wait_for_address("two").await, "10.0.0.11");
    consumer.create_claim_for("net", reference("GlobalInClusterPrefixPool", "pods"), json!({})).await;
    assert_eq!(consumer.wait_for_address("net").await, "fd00::");
    let ask = |arguments: &[&str]| json_of(admin, &[&["-n", namespace], arguments].concat());

    // The next address is the one that the next claim gets.
    assert_eq!(ask(&["free", "web"])["addresses"], json!(["10.0.0.12"]));
    let next = ask(&["free", "pods", "--count", "2"]);
    assert_eq!(next["addresses"], json!(["fd00:0:0:1::/64", "fd00:0:0:2::/64"]));

    // The released address cools down: the next claim does not get it.
    control_plane.kubectl(&["delete", "ipaddressclaim", "two", "--namespace", namespace]);
    consumer.wait_until_deleted("two").await;
    consumer.create_claim_for("three", web(), json!({})).await;
    assert_eq!(consumer.wait_for_address("three").await, "10.0.0.12");
    consumer.create_claim_for("four", web(), json!({})).await;
    consumer.wait_for_reason("four", "PoolExhausted").await;
    assert_eq!(ask(&["free", "web"])["addresses"], json!([]));

    let waiting = ask(&["claims", "--waiting", "--pool", "ip/web"]);
    assert_eq!(waiting["claims"].as_array().map(Vec::len), Some(1), "{waiting}");
    assert_eq!(
        (&waiting["claims"][0]["name"], &waiting["claims"][0]["reason"]),
        (&json!("four"), &json!("PoolExhausted"))
    );
    let claims = ask(&["claims"]);
    let addresses: Vec<_> =
        claims["claims"].as_array().expect("a list").iter().map(|claim| claim["address"].clone()).collect();
    assert_eq!(addresses, [Value::Null, json!("fd00::/64"), json!("10.0.0.10"), json!("10.0.0.12")]);

    let holder = ask(&["who", "10.0.0.10"])["holders"][0].clone();
    assert_eq!(holder["claim"], json!(format!("{namespace}/one")), "{holder}");
    assert_eq!((&holder["cluster"], &holder["state"]), (&json!("prod"), &json!("Allocated")), "{holder}");
    let cooling = ask(&["who", "10.0.0.11"])["holders"][0].clone();
    assert_eq!((&cooling["state"], &cooling["claim"]), (&json!("CoolingDown"), &json!(format!("{namespace}/two"))));
    let inside = ask(&["who", "fd00::77"]);
    assert_eq!(
        (&inside["holders"][0]["address"], &inside["pools"][0]["network"]),
        (&json!("fd00::/64"), &json!("backbone"))
    );

    let counts = json!({ "total": 3, "used": 2, "free": 0, "coolingDown": 1, "reserved": 0, "outOfRange": 0 });
    let shown = ask(&["show", "web"]);
    assert_eq!(shown["counts"], counts);
    assert_eq!(shown["waiting"][0]["name"], json!("four"));
    eventually("the counts of the status", async || {
        let pools = ask(&["pools"]);
        let web = pools["pools"].as_array()?.iter().find(|line| line["pool"]["name"] == "web")?.clone();
        (web["counts"] == counts && web["waiting"] == 1 && web["ready"] == "True").then_some(())
    })
    .await;

    for format in ["table", "wide", "yaml", "csv", "name"] {
        for command in
            [&["pools", "-A"][..], &["claims", "-A"], &["who", "10.0.0.10"], &["show", "web", "-n", namespace]]
        {
            let (code, output, errors) = run(admin, &[command, &["-o", format]].concat());
            assert_eq!((code, errors.as_str()), (0, ""), "{command:?} {format}");
            assert!(!output.is_empty() && !output.contains('\u{1b}'), "{command:?} {format}: {output}");
        }
    }
    for (arguments, expected) in
        [(&["show", "none"][..], 6), (&["who", "192.0.2.1"], 6), (&["who", "10.0.0"], 2), (&["who"], 2)]
    {
        let (code, output, errors) = run(admin, arguments);
        assert_eq!((code, output.as_str()), (expected, ""), "{arguments:?}: {errors}");
    }

    missing_rights_are_named(&control_plane, namespace);
}

fn missing_rights_are_named(control_plane: &ControlPlane, namespace: &str) {
    control_plane.kubectl(&["create", "serviceaccount", "nobody", "--namespace", namespace]);
    let nobody = control_plane.kubeconfig_of_account(namespace, "nobody");
    let (code, _, errors) = run(&nobody, &["pools"]);
    assert_eq!(code, 4, "{errors}");
    let right = format!("ask for the verb list on inclusterippools.ipam.cluster.x-k8s.io in {namespace} (Role)");
    assert!(errors.contains(&right), "{errors}");
    // A tenant sees the pools and claims of the namespace.
    // With the group: networking.k8s.io has IPAddresses too.
    let resources =
        ["inclusterippools", "ipaddressclaims", "ipaddresses"].map(|it| format!("{it}.ipam.cluster.x-k8s.io"));
    let resources = format!("--resource={}", resources.join(","));
    let role = ["create", "role", "reader", "--verb=list", &resources, "--namespace", namespace];
    control_plane.kubectl(&role);
    let binding = format!("--serviceaccount={namespace}:nobody");
    control_plane.kubectl(&["create", "rolebinding", "reader", "--role=reader", &binding, "--namespace", namespace]);
    let (code, output, errors) = run(&nobody, &["pools"]);
    assert_eq!(code, 4, "{errors}");
    assert!(output.contains("web") && errors.contains("globalinclusterippools"), "{output}{errors}");
    let (code, output, errors) = run(&nobody, &["claims"]);
    assert_eq!((code, errors.as_str()), (0, ""), "{output}");
    let (code, output, errors) = run(&nobody, &["free", "web"]);
    assert_eq!((code, output.as_str()), (4, ""), "{errors}");
    assert!(errors.contains("ipreservations"), "{errors}");
}

#[tokio::test]
async fn cluster_without_definitions_and_go_provider_are_supported() {
    let bare = ControlPlane::start(Options { bare: true, ..Options::default() }, &Installation::default());
    let (code, output, errors) = run(bare.kubeconfig(), &["pools"]);
    assert_eq!((code, output.as_str()), (5, ""), "{errors}");
    assert!(errors.contains("inclusterippools.ipam.cluster.x-k8s.io is not installed"), "{errors}");
    drop(bare);

    // The Go provider has neither reservations nor prefix pools, and writes no conditions.
    let is_go = |document: &&str| !document.contains("IPReservation") && !document.contains("PrefixPool");
    let all = definitions();
    let documents: Vec<&str> = all.split("\n---\n").filter(is_go).collect();
    let control_plane = ControlPlane::start(Options::default(), &Installation::of(documents.join("\n---\n")));
    let consumer = Consumer::new(&control_plane).await;
    let namespace = consumer.namespace.as_str();
    let spec = json!({ "addresses": ["10.0.0.10"], "prefix": 24 });
    create(&control_plane, "InClusterIPPool", Some(namespace), "web", &spec);
    consumer.create_address_for("vm", reference("InClusterIPPool", "web"), "10.0.0.10").await;
    let admin = control_plane.kubeconfig();
    let pools = json_of(admin, &["pools", "-n", namespace]);
    assert_eq!((&pools["pools"][0]["ready"], &pools["pools"][0]["counts"]), (&json!("Unknown"), &Value::Null));
    let shown = json_of(admin, &["show", "web", "-n", namespace]);
    assert_eq!((&shown["counts"]["used"], &shown["counts"]["free"]), (&json!(1), &json!(0)));
    assert_eq!(json_of(admin, &["who", "10.0.0.10"])["holders"][0]["claim"], json!(format!("{namespace}/vm")));
}

#[test]
fn unreachable_cluster_has_its_own_exit_code() {
    let folder = std::env::temp_dir().join(format!("kubectl-ipam-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the folder can be created");
    let path = folder.join("kubeconfig");
    let (code, _, errors) = run(&path, &["pools"]);
    assert_eq!(code, 3, "{errors}");
    assert!(errors.starts_with("error: no cluster is configured"), "{errors}");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{ "name": "a", "cluster": { "server": "https://127.0.0.1:1" } }],
        "users": [{ "name": "a", "user": {} }],
        "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
    });
    std::fs::write(&path, config.to_string()).expect("the kubeconfig can be written");
    let (code, _, errors) = run(&path, &["pools"]);
    assert_eq!(code, 3, "{errors}");
    assert!(errors.contains("cannot reach the API server https://127.0.0.1:1"), "{errors}");
    let (code, _, errors) = run(&path, &["pools", "--context", "none"]);
    assert_eq!((code, errors.lines().count()), (3, 1), "{errors}");
    std::fs::remove_dir_all(&folder).expect("the folder can be removed");
}

#[tokio::test]
async fn doctor_finds_each_fault_made_by_hand() {
    let program = manager();
    let plane = ControlPlane::start(Options::default(), &Installation::of(definitions()));
    let admin = plane.kubeconfig();
    let flags = ["--webhook-port=0", "--leader-elect", "--leader-election-namespace=default"];
    let mut manager = Manager::start_program(&plane, &program, admin, &flags);
    manager.wait_until_ready();
    let consumer = Consumer::new(&plane).await;
    let namespace = consumer.namespace.as_str();
    let spec = json!({ "addresses": ["10.0.0.10-10.0.0.99"], "prefix": 24 });
    create(&plane, "InClusterIPPool", Some(namespace), "web", &spec);
    for name in ["one", "two", "three"] {
        consumer.create_claim_for(name, reference("InClusterIPPool", "web"), json!({})).await;
        consumer.wait_for_address(name).await;
    }
    eventually("the cluster is healthy", async || (run(admin, &["doctor"]).0 == 0).then_some(())).await;

    create(&plane, "InClusterIPPool", Some(namespace), "copy", &spec);
    manager.stop();
    let remove = |resource: &str| {
        let without = r#"{"metadata":{"finalizers":null}}"#;
        plane.kubectl(&["delete", resource, "-n", namespace, "--wait=false"]);
        plane.kubectl(&["patch", resource, "-n", namespace, "--type=merge", "-p", without]);
    };
    remove("ipaddresses.ipam.cluster.x-k8s.io/two");
    remove("ipaddressclaims.ipam.cluster.x-k8s.io/three");
    consumer.create_address_for("twin", reference("InClusterIPPool", "web"), "10.0.0.10").await;
    consumer.create_claim_for("lost", reference("InClusterIPPool", "none"), json!({})).await;
    let webhook = json!({
        "name": "inclusterippool.example.com", "failurePolicy": "Ignore", "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "clientConfig": { "service": { "namespace": "default", "name": "hooks" } },
        "rules": [{ "apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["none"], "operations": ["CREATE"] }],
    });
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": "capi-ipam-in-cluster-validating-webhook-configuration" }, "webhooks": [webhook],
    });
    plane.kubectl_apply(&configuration.to_string());

    let (code, output, errors) = run(admin, &["doctor", "-o", "json"]);
    assert_eq!((code, errors.as_str()), (1, ""), "{output}");
    let report: Value = serde_json::from_str(&output).expect("the output is JSON");
    let found: Vec<(String, String)> = report["findings"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|finding| {
            let part = |name: &str| finding[name].as_str().expect("text").to_owned();
            assert!(!part("repair").is_empty(), "{finding}");
            (part("check"), part("object").replace(namespace, "NS"))
        })
        .collect();
    let expected = [
        ("DuplicateAddress", "address 10.0.0.10"),
        ("LostAddress", "ipaddressclaim NS/two"),
        ("MissingPool", "ipaddressclaim NS/lost"),
        ("NoLeader", "lease default/7bb7acb4.ipam.cluster.x-k8s.io"),
        ("WebhookUnavailable", "capi-ipam-in-cluster-validating-webhook-configuration"),
        ("WebhookUntrusted", "capi-ipam-in-cluster-validating-webhook-configuration"),
        ("OrphanAddress", "ipaddress NS/three"),
        ("OrphanAddress", "ipaddress NS/twin"),
        ("AbandonedReservation", "ipreservation p.NS.web.10.0.0.12"),
        ("PoolsOverlap", "InClusterIPPool NS/copy"),
        ("PoolsOverlap", "InClusterIPPool NS/web"),
    ];
    assert_eq!(found, expected.map(|(check, object)| (check.to_owned(), object.to_owned())), "{output}");
}
