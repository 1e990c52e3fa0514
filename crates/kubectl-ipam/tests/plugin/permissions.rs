//! What the caller may not read is unknown: never zero, empty or missing. Each command, without
//! each kind.

use std::path::Path;

use capi_ipam_testing::consumer::Consumer;
use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options};
use capi_ipam_testing::manager::Manager;
use capi_ipam_testing::wait::eventually;
use serde_json::{Value, json};

use super::{create, definitions, json_of, manager, reference, run};

const GROUP: &str = "ipam.cluster.x-k8s.io";

/// The resources that the commands list, with their group.
const RESOURCES: [(&str, &str); 24] = [
    (GROUP, "inclusterippools"),
    (GROUP, "globalinclusterippools"),
    (GROUP, "inclusterprefixpools"),
    (GROUP, "globalinclusterprefixpools"),
    (GROUP, "ippoolsets"),
    (GROUP, "globalippoolsets"),
    (GROUP, "ipaddresses"),
    (GROUP, "ipaddressclaims"),
    (GROUP, "ipnetworks"),
    (GROUP, "ipregistries"),
    (GROUP, "ipreservations"),
    (GROUP, "ipslices"),
    (GROUP, "clusteraddressings"),
    ("", "namespaces"),
    ("coordination.k8s.io", "leases"),
    (
        "admissionregistration.k8s.io",
        "validatingwebhookconfigurations",
    ),
    (
        "admissionregistration.k8s.io",
        "mutatingwebhookconfigurations",
    ),
    ("discovery.k8s.io", "endpointslices"),
    ("apps", "deployments"),
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("", "events"),
    ("", "secrets"),
    ("cluster.x-k8s.io", "clusters"),
    ("cluster.x-k8s.io", "machines"),
];

const COMMANDS: [&[&str]; 19] = [
    &["pools"],
    &["pools", "-A"],
    &["networks"],
    &["claims"],
    &["claims", "-A", "--waiting"],
    &["who", "10.0.0.10"],
    &["who", "10.0.0.11"],
    &["who", "10.0.0.77"],
    &["who", "10.9.0.1"],
    &["show", "web"],
    &["show", "shared"],
    &["show", "globalprefix/pods"],
    &["reserve", "web", "--dry-run=server"],
    &["reserve", "web", "10.0.0.50", "--dry-run=server"],
    &["quarantine", "10.0.0.51", "--pool=web", "--dry-run=server"],
    &["clusters"],
    &["plan"],
    &["adopt"],
    &["doctor"],
];

/// The output of a command, without the parts of doctor: they have ages, and a state that depends on what
/// could be checked. Also without the end of a new quarantine.
fn report(output: &str) -> Value {
    let mut report: Value = serde_json::from_str(output).expect("the output is JSON");
    if let Some(fields) = report.as_object_mut() {
        fields.remove("parts");
        fields.remove("healthy");
        fields.remove("until");
    }
    report
}

/// What a text must not say if a permission is missing.
const CLAIMS_OF_ABSENCE: [&str; 5] = [
    "Nothing holds",
    "Nothing found",
    "No pool contains",
    "no pool contains",
    "does not exist",
];

/// A user for each resource, who may list all others.
fn create_users(plane: &ControlPlane) {
    let mut objects = Vec::new();
    for (_, without) in RESOURCES {
        let mut rules: Vec<Value> = RESOURCES
            .iter()
            .filter(|(_, resource)| *resource != without)
            .map(|(group, resource)| json!({ "apiGroups": [group], "resources": [resource], "verbs": ["list"] }))
            .collect();
        rules.push(
            json!({ "apiGroups": [GROUP], "resources": ["ipreservations"], "verbs": ["create"] }),
        );
        let name = format!("without-{without}");
        let version = "rbac.authorization.k8s.io/v1";
        let role =
            json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name });
        let subject =
            json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name });
        objects.push(
            json!({ "apiVersion": version, "kind": "ClusterRole", "metadata": { "name": name }, "rules": rules }),
        );
        objects.push(json!({
            "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": { "name": name }, "roleRef": role,
            "subjects": [subject],
        }));
    }
    plane.kubectl_apply(
        &objects
            .iter()
            .map(Value::to_string)
            .collect::<Vec<_>>()
            .join("\n---\n"),
    );
}

/// What in a part is not true in the whole: a value that is neither the same nor unknown.
fn difference(path: &str, part: &Value, whole: &Value) -> Option<String> {
    let wrong = || Some(format!("{path}: {part} instead of {whole}"));
    match (part, whole) {
        (Value::Null, _) => None,
        (Value::Object(part), Value::Object(whole)) => {
            for (name, value) in whole {
                let path = format!("{path}.{name}");
                match part.get(name) {
                    // Without a permission, more checks are not possible.
                    Some(_) if name == "unchecked" => {}
                    // A reservation is older than the IPAddress.
                    Some(_) if name == "since" => {}
                    Some(Value::String(state)) if name == "state" && state == "Held" => {}
                    Some(found) => {
                        if let Some(wrong) = difference(&path, found, value) {
                            return Some(wrong);
                        }
                    }
                    None => return Some(format!("{path}: omitted instead of {value}")),
                }
            }
            let added = part.iter().find(|(name, value)| {
                !whole.contains_key(*name)
                    && !value.is_null()
                    && !["missing", "unchecked"].contains(&name.as_str())
            });
            added.map(|(name, value)| format!("{path}.{name}: {value} is added"))
        }
        (Value::Array(part), Value::Array(whole)) => {
            let unlike = |item: &&Value| {
                !whole
                    .iter()
                    .any(|other| difference(path, item, other).is_none())
            };
            part.iter()
                .find(unlike)
                .map(|item| format!("{path}: {item} is not in {whole:?}"))
        }
        _ if part == whole => None,
        _ => wrong(),
    }
}

/// Checks a command of a user who may not list a resource. `whole` is the output of the
/// administrator.
fn check(admin: &Path, namespace: &str, without: &str, command: &[&str], whole: &Value) {
    let user = format!("--as=without-{without}");
    let arguments = [command, &["-n", namespace, &user]].concat();
    let arguments: Vec<&str> = if command.contains(&"-A") {
        arguments
            .into_iter()
            .filter(|it| *it != "-n" && *it != namespace)
            .collect()
    } else {
        arguments
    };
    let context = format!("{command:?} without {without}");
    let (code, output, errors) = run(admin, &[&arguments[..], &["-o", "json"]].concat());
    if output.is_empty() {
        assert_eq!(code, 4, "{context}: {errors}");
        assert!(
            errors.contains(without) && !errors.contains("does not exist"),
            "{context}: {errors}"
        );
        return;
    }
    let part = report(&output);
    // What doctor has found is more important than what it could not check.
    let incomplete = |code: i32| code == 4 || code == 1 && command == ["doctor"];
    if part.get("missing").is_none() {
        assert_eq!((&part, errors.as_str()), (whole, ""), "{context}");
        assert!(code < 2, "{context}: {code}");
        return;
    }
    assert!(incomplete(code), "{context}: {output}{errors}");
    assert_eq!(difference("", &part, whole), None, "{context}");
    assert!(
        part["missing"].to_string().contains(without),
        "{context}: {output}"
    );
    let (code, output, errors) = run(admin, &arguments);
    assert!(incomplete(code), "{context}: {output}{errors}");
    // Who holds an address is known without its pool.
    let is_holder_known = !["ipaddresses", "ipreservations"].contains(&without);
    for text in CLAIMS_OF_ABSENCE
        .into_iter()
        .filter(|text| !(is_holder_known && *text == "Nothing holds"))
    {
        assert!(!output.contains(text), "{context}: {output}");
    }
    assert!(
        format!("{output}{errors}").contains(without),
        "{context}: {output}{errors}"
    );
}

#[tokio::test]
async fn what_may_not_be_listed_is_unknown() {
    let program = manager();
    let plane = ControlPlane::start(Options::default(), &Installation::of(definitions()));
    let admin = plane.kubeconfig();
    let flags = [
        "--webhook-port=0",
        "--leader-elect",
        "--leader-election-namespace=default",
    ];
    let manager = Manager::start_program(&plane, &program, admin, &flags);
    manager.wait_until_ready();
    create_users(&plane);
    let consumer = Consumer::new(&plane).await;
    let namespace = consumer.namespace.as_str();
    let spec = json!({ "addresses": ["10.0.0.10-10.0.0.99"], "prefix": 24, "addressReuseGracePeriodSeconds": 6000 });
    create(&plane, "InClusterIPPool", Some(namespace), "web", &spec);
    let spec = json!({ "addresses": ["10.1.0.0/24"], "prefix": 24, "slices": { "size": 16, "per": "Namespace" } });
    create(&plane, "GlobalInClusterIPPool", None, "shared", &spec);
    create(
        &plane,
        "IPNetwork",
        None,
        "lab",
        &json!({ "namespaces": { "from": "All" } }),
    );
    let spec = json!({ "prefixes": ["fd00::/62"], "allocationPrefixLength": 64, "network": "lab" });
    create(&plane, "GlobalInClusterPrefixPool", None, "pods", &spec);
    create(&plane, "InClusterPrefixPool", Some(namespace), "own", &spec);
    let full = json!({ "addresses": ["10.2.0.10"], "prefix": 24 });
    create(&plane, "InClusterIPPool", Some(namespace), "full", &full);
    for (claim, kind, pool) in [
        ("one", "InClusterIPPool", "web"),
        ("two", "InClusterIPPool", "web"),
        ("three", "GlobalInClusterIPPool", "shared"),
        ("four", "GlobalInClusterPrefixPool", "pods"),
        ("five", "InClusterPrefixPool", "own"),
        ("six", "InClusterIPPool", "full"),
    ] {
        let owner = json!({ "labels": { "cluster.x-k8s.io/cluster-name": "prod" } });
        if claim == "one" {
            consumer.create_cluster("prod", false).await;
        }
        consumer
            .create_claim_for(claim, reference(kind, pool), owner)
            .await;
        consumer.wait_for_address(claim).await;
    }
    plane.kubectl(&["delete", "ipaddressclaim", "two", "--namespace", namespace]);
    consumer.wait_until_deleted("two").await;
    consumer
        .create_claim_for("seven", reference("InClusterIPPool", "full"), json!({}))
        .await;
    consumer.wait_for_reason("seven", "PoolExhausted").await;
    let kubectl_ipam = |arguments: &[&str]| run(admin, &[arguments, &["-n", namespace]].concat());
    assert_eq!(
        kubectl_ipam(&["reserve", "web", "10.0.0.12", "--for", "later"]).0,
        0
    );
    assert_eq!(kubectl_ipam(&["reserve", "web", "10.0.0.13"]).0, 0);
    eventually("the counts of the status are current", async || {
        let pools = json_of(admin, &["pools", "-n", namespace]);
        let counts = |name: &str| {
            pools["items"]
                .as_array()?
                .iter()
                .find(|it| it["pool"]["name"] == name)
                .cloned()
        };
        let is_current =
            counts("web")?["counts"]["reserved"] == 2 && counts("full")?["counts"]["free"] == 0;
        let found = run(admin, &["doctor", "-o", "name"]).1;
        let expected = "inclusterippool.ipam.cluster.x-k8s.io/full\n";
        (is_current && found == expected).then_some(())
    })
    .await;
    // The API server uses new roles with a delay.
    for (_, without) in RESOURCES {
        let user = format!("--as=without-{without}");
        let other = if without == "ipnetworks" {
            &["claims"][..]
        } else {
            &["networks"]
        };
        eventually("the role is in use", async || {
            (run(admin, &[other, &[&user]].concat()).0 != 4).then_some(())
        })
        .await;
    }

    for command in COMMANDS {
        let own: &[&str] = if command.contains(&"-A") {
            &[]
        } else {
            &["-n", namespace]
        };
        let (code, output, errors) = run(admin, &[command, own, &["-o", "json"]].concat());
        let whole = if code == 6 {
            Value::Null
        } else {
            report(&output)
        };
        assert!(
            matches!(
                (code, command[0]),
                (0, _) | (6, "who") | (1, "doctor" | "plan")
            ),
            "{command:?}: {errors}"
        );
        // Only these commands list objects of other groups.
        let is_wide = ["doctor", "plan", "adopt", "reserve"].contains(&command[0]);
        for (_, without) in RESOURCES
            .into_iter()
            .filter(|(group, _)| is_wide || *group == GROUP)
        {
            if code < 2 {
                check(admin, namespace, without, command, &whole);
            } else {
                not_found_needs_all(admin, without, command);
            }
        }
    }
    nothing_is_claimed_without_any_permission(admin, namespace);
    role_of_a_namespace_is_enough_for_its_pools(&plane, namespace).await;
}

/// An address that nothing contains and nothing holds: without a permission that is unknown.
fn not_found_needs_all(admin: &Path, without: &str, command: &[&str]) {
    let user = format!("--as=without-{without}");
    let (code, output, errors) = run(admin, &[command, &[&user]].concat());
    let is_read =
        without.ends_with("pools") || ["ipaddresses", "ipreservations"].contains(&without);
    let expected = if is_read { 4 } else { 6 };
    assert_eq!(
        code, expected,
        "{command:?} without {without}: {output}{errors}"
    );
    if is_read {
        assert!(
            CLAIMS_OF_ABSENCE.iter().all(|text| !errors.contains(text)),
            "{errors}"
        );
        assert!(
            format!("{output}{errors}").contains(without),
            "{output}{errors}"
        );
    }
}

fn nothing_is_claimed_without_any_permission(admin: &Path, namespace: &str) {
    for command in COMMANDS {
        let (code, output, errors) = run(
            admin,
            &[command, &["-n", namespace, "--as=nobody"]].concat(),
        );
        let is_doctor = command == ["doctor"];
        // `-A` and `-n` exclude each other.
        if command.contains(&"-A") {
            continue;
        }
        assert_eq!(code, 4, "{command:?}: {output}{errors}");
        for text in CLAIMS_OF_ABSENCE {
            assert!(
                !output.contains(text) && !errors.contains(text),
                "{command:?}: {output}{errors}"
            );
        }
        assert_eq!(
            output.contains("nothing could be checked"),
            is_doctor,
            "{command:?}: {output}"
        );
    }
}

/// A tenant who may list the claims and addresses of the namespace, and nothing of the cluster.
async fn role_of_a_namespace_is_enough_for_its_pools(plane: &ControlPlane, namespace: &str) {
    let admin = plane.kubeconfig();
    let resources = ["inclusterippools", "ipaddressclaims", "ipaddresses"]
        .map(|it| format!("{it}.{GROUP}"))
        .join(",");
    let resources = format!("--resource={resources}");
    plane.kubectl(&[
        "create",
        "role",
        "tenant",
        "--verb=list",
        &resources,
        "--namespace",
        namespace,
    ]);
    plane.kubectl(&[
        "create",
        "rolebinding",
        "tenant",
        "--role=tenant",
        "--user=tenant",
        "--namespace",
        namespace,
    ]);
    let ask = |arguments: &[&str]| {
        run(
            admin,
            &[arguments, &["-n", namespace, "--as=tenant"]].concat(),
        )
    };
    eventually("the role is in use", async || {
        (ask(&["claims"]).0 == 0).then_some(())
    })
    .await;
    let (code, output, errors) = ask(&["show", "ip/web"]);
    assert_eq!(code, 4, "{output}{errors}");
    assert!(
        output.contains("90 total, 1 used, ? free, ? reserved, ? cooling down,\n"),
        "{output}"
    );
    assert!(
        output.contains("Map: unknown")
            && output.contains("Incomplete: you may not list ipreservations"),
        "{output}"
    );
    assert_eq!(errors, "", "the permissions are named once");
    let (code, output, errors) = ask(&["pools", "-o", "json"]);
    assert_eq!(code, 4, "{errors}");
    let pools: Value = serde_json::from_str(&output).expect("the output is JSON");
    let waiting: Vec<_> = pools["items"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|line| line["waiting"].clone())
        .collect();
    assert_eq!(
        waiting,
        [json!(1), json!(0)],
        "all claims of the namespace can be read: {output}"
    );
    let (code, output, _) = ask(&["who", "10.0.0.11"]);
    assert!(
        code == 4 && output.contains("It is unknown who holds 10.0.0.11."),
        "{output}"
    );
}
