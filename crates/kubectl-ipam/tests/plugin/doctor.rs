//! `doctor`.

use std::path::Path;
use std::process::Command;

use capi_ipam_testing::consumer::Consumer;
use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options};
use capi_ipam_testing::manager::Manager;
use capi_ipam_testing::wait::eventually;
use serde_json::{Value, json};

use super::{create, definitions, json_of, manager, reference, run};

#[tokio::test]
async fn doctor_finds_each_fault_made_by_hand() {
    let program = manager();
    let plane = ControlPlane::start(Options::default(), &Installation::of(definitions()));
    let admin = plane.kubeconfig();
    let flags = [
        "--webhook-port=0",
        "--leader-elect",
        "--leader-election-namespace=default",
    ];
    let mut manager = Manager::start_program(&plane, &program, admin, &flags);
    manager.wait_until_ready();
    let consumer = Consumer::new(&plane).await;
    let namespace = consumer.namespace.as_str();
    let spec = json!({ "addresses": ["10.0.0.10-10.0.0.99"], "prefix": 24 });
    create(&plane, "InClusterIPPool", Some(namespace), "web", &spec);
    for name in ["one", "two", "three"] {
        consumer
            .create_claim_for(name, reference("InClusterIPPool", "web"), json!({}))
            .await;
        consumer.wait_for_address(name).await;
    }
    eventually("the cluster is healthy", async || {
        (run(admin, &["doctor"]).0 == 0).then_some(())
    })
    .await;
    let (code, output) = run_skewed(&plane, 120, &["doctor"]);
    assert_eq!(code, 0, "judged by the clock of this machine: {output}");

    create(&plane, "InClusterIPPool", Some(namespace), "copy", &spec);
    remove_schema(&plane);
    let invalid = json!({ "addresses": ["10.1.0.300"], "prefix": 24 });
    create_without_schema(&plane, &format!("{namespace}-invalid"), &invalid).await;
    let small = json!({ "addresses": ["10.2.0.10-10.2.0.11"], "prefix": 24 });
    create(&plane, "InClusterIPPool", Some(namespace), "small", &small);
    consumer
        .create_claim_for("outside", reference("InClusterIPPool", "small"), json!({}))
        .await;
    consumer.wait_for_address("outside").await;
    let fewer = json!({ "spec": { "addresses": ["10.2.0.11"] } }).to_string();
    plane.kubectl(&[
        "patch",
        "inclusterippool",
        "small",
        "-n",
        namespace,
        "--type=merge",
        "-p",
        &fewer,
    ]);
    eventually("both pools have conditions", async || {
        let (_, output, _) = run(admin, &["doctor"]);
        (output.contains("PoolNotReady") && output.contains("AddressesOutOfRange")).then_some(())
    })
    .await;
    let homeless = json!({ "addresses": ["10.5.0.1"], "prefix": 24, "network": "none" });
    create(
        &plane,
        "InClusterIPPool",
        Some(namespace),
        "homeless",
        &homeless,
    );
    conflict_while_joining(&plane, &consumer).await;
    manager.stop();
    let remove = |resource: &str| {
        let without = r#"{"metadata":{"finalizers":null}}"#;
        plane.kubectl(&["delete", resource, "-n", namespace, "--wait=false"]);
        plane.kubectl(&[
            "patch",
            resource,
            "-n",
            namespace,
            "--type=merge",
            "-p",
            without,
        ]);
    };
    remove("ipaddresses.ipam.cluster.x-k8s.io/two");
    remove("ipaddressclaims.ipam.cluster.x-k8s.io/three");
    consumer
        .create_address_for("twin", reference("InClusterIPPool", "web"), "10.0.0.10")
        .await;
    consumer
        .create_claim_for("lost", reference("InClusterIPPool", "none"), json!({}))
        .await;
    consumer
        .create_address_for("stray", reference("InClusterIPPool", "gone"), "10.3.0.1")
        .await;
    let unreadable = json!({ "addresses": "10.4.0.1", "prefix": 24 });
    create_without_schema(&plane, &format!("{namespace}-unreadable"), &unreadable).await;
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

    names_are_accepted_by_kubectl(&plane, namespace);
    let (code, output, errors) = run(admin, &["doctor", "-o", "json"]);
    assert_eq!((code, errors.as_str()), (1, ""), "{output}");
    let report: Value = serde_json::from_str(&output).expect("the output is JSON");
    let found: Vec<(String, String)> = report["items"]
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
        ("NoLeader", "lease default/7bb7acb4.ipam.cluster.x-k8s.io"),
        (
            "WebhookUnavailable",
            "capi-ipam-in-cluster-validating-webhook-configuration",
        ),
        (
            "WebhookUntrusted",
            "capi-ipam-in-cluster-validating-webhook-configuration",
        ),
        ("DuplicateAddress", "address 10.0.0.10"),
        // Its cause is first.
        ("MoveStalled", "InClusterIPPool NS/right"),
        ("DuplicateAddress", "address 10.7.0.10"),
        ("LostAddress", "ipaddressclaim NS/two"),
        ("MissingPool", "InClusterIPPool NS/gone"),
        ("MissingPool", "InClusterIPPool NS/none"),
        ("PoolNotReady", "GlobalInClusterIPPool NS-invalid"),
        ("PoolNotReady", "InClusterIPPool NS/homeless"),
        ("UnreadableObject", "objects"),
        ("OrphanAddress", "ipaddress NS/stray"),
        ("OrphanAddress", "ipaddress NS/three"),
        ("OrphanAddress", "ipaddress NS/twin"),
        ("AbandonedReservation", "ipreservation p.NS.web.10.0.0.12"),
        ("PoolsOverlap", "InClusterIPPool NS/copy"),
        ("AddressesOutOfRange", "InClusterIPPool NS/small"),
        ("PoolExhausted", "InClusterIPPool NS/left"),
        ("PoolExhausted", "InClusterIPPool NS/right"),
    ];
    assert_eq!(
        found,
        expected.map(|(check, object)| (check.to_owned(), object.to_owned())),
        "{output}"
    );
    findings_are_selected(admin, namespace);
}

fn findings_are_selected(admin: &Path, namespace: &str) {
    for (arguments, text) in [
        (
            &["doctor", "-n", "defaul"][..],
            "namespace defaul does not exist; did you mean default?",
        ),
        (
            &["doctor", "nowhere/web"],
            "namespace nowhere does not exist",
        ),
    ] {
        let (code, _, errors) = run(admin, arguments);
        assert!(code == 6 && errors.contains(text), "{code}: {errors}");
    }
    let pool = format!("{namespace}/small");
    for (arguments, included, excluded) in [
        (&["doctor", "-n", "default"][..], "NoLeader", "LostAddress"),
        (&["doctor", "-n", namespace], "LostAddress", "doctor -n"),
        (
            &["doctor", pool.as_str()],
            "AddressesOutOfRange",
            "LostAddress",
        ),
        (&["doctor", "--errors"], "LostAddress", "\n  warning "),
    ] {
        let (code, output, _) = run(admin, arguments);
        assert_eq!(code, 1, "{output}");
        assert!(
            output.contains(included) && !output.contains(excluded),
            "{arguments:?}: {output}"
        );
    }
}

/// Runs the program on a machine whose clock is wrong by this many seconds.
fn run_skewed(plane: &ControlPlane, seconds: i64, arguments: &[&str]) -> (i32, String) {
    let library = plane.folder().join("skew.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/chaos/skew.c");
    let compiled = Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .arg(&library)
        .args([source, "-ldl"])
        .status();
    assert!(compiled.expect("a C compiler is installed").success());
    let output = Command::new(env!("CARGO_BIN_EXE_kubectl-ipam"))
        .env("LD_PRELOAD", &library)
        .env("CLOCK_SKEW_SECONDS", seconds.to_string())
        .arg("--kubeconfig")
        .arg(plane.kubeconfig())
        .args(arguments)
        .output()
        .expect("the program can be started");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code().expect("no signal"), text)
}

#[tokio::test]
async fn claim_of_a_kind_that_is_not_served_is_found() {
    let plane = ControlPlane::start(Options::default(), &Installation::of(definitions()));
    let admin = plane.kubeconfig();
    let consumer = Consumer::new(&plane).await;
    let namespace = consumer.namespace.as_str();
    // An API group that is not served, and two that are.
    for (name, group, kind) in [
        ("absent", "ipam.metal3.io", "IPPool"),
        ("wrong", "cluster.x-k8s.io", "InClusterIPPool"),
        ("other", "cluster.x-k8s.io", "Cluster"),
    ] {
        let pool = json!({ "apiGroup": group, "kind": kind, "name": "p" });
        consumer.create_claim_for(name, pool, json!({})).await;
    }
    for (name, kind) in [
        ("case", "inclusterippool"),
        ("plural", "InClusterIPPools"),
        ("metal3", "IPPool"),
    ] {
        consumer
            .create_claim_for(name, reference(kind, "p"), json!({}))
            .await;
    }
    let group = json!({ "apiGroup": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "InClusterIPPool", "name": "p" });
    let has_group = consumer
        .try_create_claim_for("group", group, json!({}))
        .await
        .is_ok();
    let claims = json_of(admin, &["claims", "-n", namespace]);
    let lines: Vec<_> = claims["items"].as_array().expect("a list").iter().collect();
    let names: Vec<_> = lines
        .iter()
        .map(|line| line["name"].as_str().expect("a name"))
        .collect();
    assert_eq!(
        names
            .iter()
            .filter(|name| **name != "group")
            .collect::<Vec<_>>(),
        [&"absent", &"case", &"metal3", &"other", &"plural", &"wrong"]
    );
    for line in &lines {
        let is_of_other = line["name"] == "other";
        let reason = if is_of_other {
            "OtherProvider"
        } else {
            "UnknownPoolKind"
        };
        assert_eq!(
            (&line["state"], &line["reason"]),
            (&json!("Unserved"), &json!(reason))
        );
        let found = json_of(
            admin,
            &[
                "who",
                line["name"].as_str().expect("a name"),
                "-n",
                namespace,
            ],
        );
        assert_eq!(&found["items"][0], *line);
    }
    assert_eq!(
        json_of(admin, &["claims", "-n", namespace, "--waiting"])["items"],
        claims["items"]
    );

    let (code, output, errors) = run(admin, &["doctor"]);
    assert_eq!((code, errors.as_str()), (1, ""), "{output}");
    assert!(
        output.contains("kind IPPool is not served; did you mean InClusterIPPool?"),
        "{output}"
    );
    for expected in [
        "kind InClusterIPPool of cluster.x-k8s.io is not served; did you mean InClusterIPPool of ipam.cluster.x-k8s.io?",
        "kind IPPool of ipam.metal3.io is not served: the API server has no such API group",
    ] {
        assert!(output.contains(expected), "{output}");
    }
    assert_eq!(
        output.contains("of ipam.cluster.x-k8s.io/v1alpha2 is not served"),
        has_group,
        "{output}"
    );
    // The advice: the claim is created again with the right kind.
    for name in [
        "case", "plural", "metal3", "group", "absent", "wrong", "other",
    ] {
        plane
            .try_kubectl(&["delete", "ipaddressclaim", name, "--namespace", namespace])
            .ok();
    }
    create(
        &plane,
        "InClusterIPPool",
        Some(namespace),
        "p",
        &json!({ "addresses": ["10.0.0.10"], "prefix": 24 }),
    );
    consumer
        .create_claim_for("case", reference("InClusterIPPool", "p"), json!({}))
        .await;
    let (_, output, _) = run(admin, &["doctor"]);
    assert!(!output.contains("UnknownPoolKind"), "{output}");
}

/// The commands of `doctor` for a restored claim can be run as they are printed, with its address.
#[tokio::test]
async fn repair_of_a_restored_claim_ends_its_findings() {
    let program = manager();
    let plane = ControlPlane::start(Options::default(), &Installation::of(definitions()));
    let admin = plane.kubeconfig();
    let manager = Manager::start_program(&plane, &program, admin, &["--webhook-port=0"]);
    manager.wait_until_ready();
    let consumer = Consumer::new(&plane).await;
    let namespace = consumer.namespace.as_str();
    let spec = json!({ "addresses": ["10.0.0.10-10.0.0.99"], "prefix": 24 });
    create(&plane, "InClusterIPPool", Some(namespace), "web", &spec);
    // A claim of a Cluster that is as new was restored with it.
    consumer.create_cluster("prod", false).await;
    let others = ["example.com/a", "example.com/b"];
    let own = "ipam.cluster.x-k8s.io/ReleaseAddress";
    let metadata = json!({ "clusterName": "prod", "finalizers": [others[0], own, others[1]] });
    consumer
        .create_claim_for("vm", reference("InClusterIPPool", "web"), metadata)
        .await;
    consumer.wait_for_reason("vm", "AwaitingAddress").await;

    let (_, output, _) = run(admin, &["doctor", "-o", "json"]);
    let report: Value = serde_json::from_str(&output).expect("the output is JSON");
    let commands: Vec<&str> = report["items"]
        .as_array()
        .expect("a list")
        .iter()
        .filter(|finding| finding["check"] == "ClaimsWait")
        .flat_map(|finding| finding["commands"].as_array().expect("commands"))
        .map(|command| command.as_str().expect("text"))
        .collect();
    assert_eq!(commands.len(), 2, "{output}");
    for command in commands {
        run_command(&plane, &command.replace("ADDRESS", "10.0.0.77"));
    }
    assert_eq!(consumer.wait_for_address("vm").await, "10.0.0.77");
    let path = "--output=jsonpath={.metadata.finalizers}";
    let claim = "ipaddressclaims.ipam.cluster.x-k8s.io/vm";
    let left = plane.kubectl(&["get", claim, "-n", namespace, path]);
    let expected = json!([others[0], others[1], own]).to_string();
    assert_eq!(left.trim(), expected);
    let (_, output, _) = run(admin, &["doctor"]);
    assert!(
        !output.contains("RestoredWithoutAddress") && !output.contains("ClaimsWait"),
        "{output}"
    );
}

/// Runs a command line of kubectl, of which `kubectl ipam` is this program.
pub(crate) fn run_command(plane: &ControlPlane, command: &str) {
    let script = format!(
        "kubectl() {{ if [ \"$1\" = ipam ]; then shift; \"$PLUGIN\" --kubeconfig \"$FILE\" \"$@\"
         else \"$KUBECTL\" --kubeconfig \"$FILE\" \"$@\"; fi; }}
         {command}"
    );
    let output = std::process::Command::new("sh")
        .args(["-euc", &script])
        .env("PLUGIN", env!("CARGO_BIN_EXE_kubectl-ipam"))
        .env("KUBECTL", plane.kubectl_program())
        .env("FILE", plane.kubeconfig())
        .output()
        .expect("a shell can be started");
    assert!(output.status.success(), "{command}: {output:?}");
}

#[tokio::test]
async fn missing_definition_is_not_the_go_provider() {
    let plane = ControlPlane::start(Options::default(), &Installation::of(definitions()));
    let admin = plane.kubeconfig();
    plane.kubectl(&[
        "delete",
        "customresourcedefinition",
        "ipreservations.ipam.cluster.x-k8s.io",
    ]);
    eventually("the definition is missing", async || {
        (run(admin, &["doctor"]).0 == 5).then_some(())
    })
    .await;
    let (code, output, errors) = run(admin, &["doctor"]);
    assert_eq!((code, errors.as_str()), (5, ""), "{output}");
    let finding =
        "error MissingDefinition: customresourcedefinition ipreservations.ipam.cluster.x-k8s.io\n";
    assert!(output.contains(finding), "{output}");
    assert!(output.contains("12 of 13 kinds"), "{output}");
    // The other commands cannot tell what is reserved.
    let (code, _, errors) = run(admin, &["who", "10.0.0.1"]);
    assert_eq!(code, 5, "{errors}");
}

/// Two pools in which one address is in use join a network: the reservation of the second one
/// cannot be moved.
async fn conflict_while_joining(plane: &ControlPlane, consumer: &Consumer) {
    let (admin, namespace) = (plane.kubeconfig(), consumer.namespace.as_str());
    create(
        plane,
        "IPNetwork",
        None,
        "lab",
        &json!({ "namespaces": { "from": "All" } }),
    );
    for pool in ["left", "right"] {
        create(
            plane,
            "InClusterIPPool",
            Some(namespace),
            pool,
            &json!({ "addresses": ["10.7.0.10"], "prefix": 24 }),
        );
        consumer
            .create_claim_for(pool, reference("InClusterIPPool", pool), json!({}))
            .await;
        consumer.wait_for_address(pool).await;
        let join = json!({ "spec": { "network": "lab" } }).to_string();
        plane.kubectl(&[
            "patch",
            "inclusterippool",
            pool,
            "-n",
            namespace,
            "--type=merge",
            "-p",
            &join,
        ]);
    }
    eventually("a pool has joined, the other one cannot", async || {
        let (_, output, _) = run(admin, &["doctor"]);
        let lab = json_of(admin, &["networks"])["items"][0].clone();
        let phases = [&lab["members"][0]["phase"], &lab["members"][1]["phase"]];
        let is_joining = phases == [&json!("Joining"), &json!("Member")];
        (is_joining && output.contains("MoveStalled") && output.contains("IPNetwork none"))
            .then_some(())
    })
    .await;
}

/// Removes the schema of global pools: an older one did not check everything either.
fn remove_schema(plane: &ControlPlane) {
    let definition = "customresourcedefinition/globalinclusterippools.ipam.cluster.x-k8s.io";
    let schema = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let paths = [0, 1].map(|version| format!("/spec/versions/{version}/schema/openAPIV3Schema"));
    let patch = paths.map(|path| json!({ "op": "replace", "path": path, "value": schema }));
    plane.kubectl(&[
        "patch",
        definition,
        "--type=json",
        "-p",
        &json!(patch).to_string(),
    ]);
}

/// Creates a global pool as soon as the API server does not use the schema any more.
async fn create_without_schema(plane: &ControlPlane, name: &str, spec: &Value) {
    let pool = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "GlobalInClusterIPPool",
        "metadata": { "name": name }, "spec": spec,
    });
    let path = plane.folder().join("pool.json");
    std::fs::write(&path, pool.to_string()).expect("the folder is writable");
    let path = path.display().to_string();
    eventually("the pool can be created", async || {
        plane.try_kubectl(&["create", "-f", &path]).ok()
    })
    .await;
}

/// Each name is one that kubectl finds, in the namespace of the test or in that of the lease.
fn names_are_accepted_by_kubectl(plane: &ControlPlane, namespace: &str) {
    let (code, output, _) = run(plane.kubeconfig(), &["doctor", "-o", "name"]);
    assert_eq!(code, 1, "{output}");
    for name in ["ipaddressclaim", "ipaddress", "inclusterippool"] {
        let start = format!("{name}.ipam.cluster.x-k8s.io/");
        assert!(
            output.lines().any(|line| line.starts_with(&start)),
            "{output}"
        );
    }
    for name in output.lines() {
        let namespace = if name.starts_with("lease.") {
            "default"
        } else {
            namespace
        };
        let printed = plane.kubectl(&["get", name, "--namespace", namespace, "--output=name"]);
        assert_eq!(printed.trim(), name);
    }
}
