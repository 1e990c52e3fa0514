//! The Helm chart: the same objects as the kustomize tree, and installed with the real helm.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "test code: a failure ends the test with a message"
)]

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    thread::sleep,
};

use capi_ipam_testing::control_plane::{ControlPlane, Installation, Options};
use support::{
    control_plane::{ensure, kustomize},
    prelude::*,
};

/// Objects by kind and name.
type Objects = BTreeMap<(String, String), Value>;

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn chart() -> String {
    folder().join("charts/capi-ipam").display().to_string()
}

/// Runs helm, and returns its output or its error output.
fn helm(arguments: &[&str]) -> Result<String, String> {
    static HELM: OnceLock<PathBuf> = OnceLock::new();
    let program = HELM.get_or_init(|| Path::new(&ensure(&["helm"])).join("helm"));
    let output = Command::new(program)
        .args(arguments)
        .output()
        .expect("helm can be started");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("helm writes UTF-8");
    let problems = text(output.stderr);
    if !output.status.success() {
        return Err(problems);
    }
    // Helm warns on every command of symbolic links, for example.
    assert_eq!(problems, "", "helm {arguments:?}");
    Ok(text(output.stdout))
}

/// The objects of the chart with some values, in the namespace of the manifests.
fn template(values: &[&str]) -> Objects {
    let chart = chart();
    let mut arguments = vec!["template", "ipam", &chart, "--namespace", NAMESPACE];
    arguments.extend(values.iter().flat_map(|value| ["--set-json", value]));
    objects(&helm(&arguments).unwrap_or_else(|error| panic!("{values:?}: {error}")))
}

/// The objects of a stream of YAML documents, without namespaces.
fn objects(text: &str) -> Objects {
    let documents = serde_saphyr::from_multiple::<Value>(text).expect("the documents are YAML");
    let named = documents
        .into_iter()
        .filter(|object| object.is_object() && object["kind"] != "Namespace");
    named
        .map(|object| {
            let part = |value: &Value| {
                value
                    .as_str()
                    .expect("an object has a kind and a name")
                    .to_owned()
            };
            (
                (part(&object["kind"]), part(&object["metadata"]["name"])),
                object,
            )
        })
        .collect()
}

fn manifest(name: &str) -> Objects {
    objects(
        &std::fs::read_to_string(folder().join("manifests").join(name))
            .expect("the manifest can be read"),
    )
}

fn assert_equal(chart: &Objects, expected: &Objects) {
    let names = |all: &Objects| all.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(chart), names(expected));
    for (name, object) in expected {
        let patch = json_patch::diff(object, &chart[name]);
        assert!(
            patch.0.is_empty(),
            "{name:?} differs from the kustomize tree: {patch}"
        );
    }
}

/// A copy of the objects with a change of the Deployment.
fn with_deployment(mut all: Objects, change: impl Fn(&mut Value)) -> Objects {
    all.iter_mut()
        .filter(|((kind, _), _)| kind == "Deployment")
        .for_each(|(_, object)| change(object));
    all
}

#[test]
fn defaults_are_those_of_the_kustomize_tree() {
    let chart = chart();
    helm(&["lint", "--strict", &chart]).unwrap_or_else(|error| panic!("{error}"));
    let keep = "crds.keep=false";
    assert_equal(
        &template(&[keep]),
        &manifest("install-without-cert-manager.yaml"),
    );
    assert_equal(
        &template(&[keep, "certificates=\"cert-manager\""]),
        &manifest("install.yaml"),
    );
}

#[test]
fn options_are_the_components_of_the_kustomize_tree() {
    let base = template(&[]);
    let added = |values: &[&str]| {
        let mut all = template(values);
        all.retain(|name, object| base.get(name) != Some(object));
        all
    };
    let monitoring =
        added(&["metrics={\"serviceMonitor\":true,\"rules\":true,\"readerRole\":true}"]);
    assert_equal(
        &monitoring,
        &objects(&kustomize(&folder().join("config/prometheus"))),
    );

    let editors = added(&["poolEditors=true"]);
    let labels: Vec<_> = editors
        .values()
        .map(|role| role["metadata"]["labels"].clone())
        .collect();
    assert_eq!(editors.len(), 1, "{editors:?}");
    for group in ["admin", "edit"] {
        assert_eq!(
            labels[0][format!("rbac.authorization.k8s.io/aggregate-to-{group}")],
            "true",
            "{labels:?}"
        );
    }

    let addressing = added(&["clusterAddressing=true"]);
    let roles = addressing
        .iter()
        .filter(|((kind, _), _)| kind.starts_with("ClusterRole"));
    assert_eq!(roles.count(), 3, "{addressing:?}");
    let flagged = addressing.values().filter_map(|object| {
        object["spec"]["template"]["spec"]["containers"][0]["args"].as_array()
    });
    let flagged: Vec<_> = flagged.filter_map(|arguments| arguments.last()).collect();
    assert_eq!(flagged, [&json!("--cluster-addressing")]);

    for (value, role) in [
        (
            "dnsEndpoints=true",
            "capi-ipam-in-cluster-dns-endpoints-role",
        ),
        (
            "metrics.rollouts=true",
            "capi-ipam-in-cluster-rollout-metrics-role",
        ),
    ] {
        let found = added(&[value]);
        let has_role = found
            .keys()
            .any(|(kind, name)| kind == "ClusterRole" && name == role);
        assert!(has_role, "{found:?}");
    }

    for (certificates, annotation) in [
        ("self-managed", Value::Null),
        (
            "cert-manager",
            json!(format!("{NAMESPACE}/capi-ipam-in-cluster-serving-cert")),
        ),
    ] {
        let certificates = format!("certificates=\"{certificates}\"");
        let all = added(&["clusterAddressingWebhook=true", &certificates]);
        let webhook = all
            .values()
            .find(|object| object["kind"] == "MutatingWebhookConfiguration");
        let metadata = &webhook.expect("it is added")["metadata"];
        let found = &metadata["annotations"]["cert-manager.io/inject-ca-from"];
        assert_eq!(*found, annotation, "{certificates}");
    }

    let policy = added(&[
        "networkPolicy.enabled=true",
        "networkPolicy.apiServers=[\"10.0.0.11/32\"]",
    ]);
    let ingress = &policy.values().next().expect("there is a policy")["spec"]["ingress"];
    assert_eq!(
        ingress[0]["from"],
        json!([{"ipBlock": {"cidr": "10.0.0.11/32"}}])
    );
    assert_eq!(ingress[0]["ports"][0]["port"], "webhook-server");

    let kept = |all: &Objects| {
        let definitions = all
            .iter()
            .filter(|((kind, _), _)| kind == "CustomResourceDefinition");
        definitions
            .map(|(_, crd)| crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep")
            .collect::<Vec<_>>()
    };
    assert!(kept(&base).len() >= 5 && kept(&base).iter().all(|kept| *kept));
}

#[test]
fn values_change_the_deployment() {
    let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
    let values = [
        "image.repository=\"registry.example.com/capi-ipam\"".to_owned(),
        format!("image.digest=\"{digest}\""),
        "imagePullSecrets=[{\"name\":\"registry\"}]".to_owned(),
        "replicas=3".to_owned(),
        "resources.limits.memory=\"1Gi\"".to_owned(),
        "tolerations=[]".to_owned(),
        "namespaces=[\"a\",\"b\"]".to_owned(),
        "watchFilter=\"blue\"".to_owned(),
        "extraArgs=[\"--sweep-report-only\"]".to_owned(),
        "podAnnotations={\"example.com/team\":\"x\"}".to_owned(),
    ];
    let changed = template(&values.each_ref().map(String::as_str));
    let expected = with_deployment(template(&[]), |deployment| {
        deployment["spec"]["replicas"] = json!(3);
        let template = &mut deployment["spec"]["template"];
        template["metadata"]["annotations"]["example.com/team"] = json!("x");
        let pod = &mut template["spec"];
        pod["imagePullSecrets"] = json!([{"name": "registry"}]);
        pod.as_object_mut()
            .expect("it is an object")
            .remove("tolerations");
        let container = &mut pod["containers"][0];
        container["image"] = json!(format!("registry.example.com/capi-ipam@{digest}"));
        container["resources"]["limits"]["memory"] = json!("1Gi");
        let arguments = container["args"]
            .as_array_mut()
            .expect("there are arguments");
        let more = [
            "--namespace=a",
            "--namespace=b",
            "--watch-filter=blue",
            "--sweep-report-only",
        ];
        arguments.extend(more.map(|flag| json!(flag)));
    });
    assert_equal(&changed, &expected);
}

#[test]
fn invalid_values_are_errors_that_name_them() {
    for (value, expected) in [
        ("certificates=\"none\"", "certificates"),
        ("replica=1", "replica"),
        ("image.digest=\"abc\"", "digest"),
        ("networkPolicy.enabled=true", "apiServers"),
        ("namespaces=[\"Not_A_Name\"]", "namespaces"),
    ] {
        let error = helm(&["template", "ipam", &chart(), "--set-json", value]).expect_err(value);
        assert!(error.contains(expected), "{value}: {error}");
    }
}

#[test]
fn namespace_of_the_release_is_used_everywhere() {
    let text = helm(&[
        "template",
        "ipam",
        &chart(),
        "--namespace",
        "other",
        "--set",
        "certificates=cert-manager",
    ]);
    let text = text.expect("the chart can be rendered");
    assert!(!text.contains(NAMESPACE), "{text}");
    assert!(
        text.contains("capi-ipam-in-cluster-webhook-service.other.svc"),
        "{text}"
    );
}

#[test]
fn version_is_that_of_the_program() {
    let text = std::fs::read_to_string(folder().join("charts/capi-ipam/Chart.yaml"))
        .expect("the chart can be read");
    let chart: Value = serde_saphyr::from_str(&text).expect("it is YAML");
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(chart["version"], version);
    assert_eq!(chart["appVersion"], format!("v{version}"));
}

/// Uninstalling the chart keeps pools and reservations.
#[test]
fn pools_survive_an_uninstallation() {
    let plane = ControlPlane::start(Options::default(), &Installation::default());
    let kubeconfig = plane.kubeconfig().display().to_string();
    let (chart, access) = (
        chart(),
        ["--kubeconfig", &kubeconfig, "--namespace", NAMESPACE],
    );
    let run = |arguments: &[&str]| {
        helm(&[arguments, &access[..]].concat())
            .unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
    };
    run(&["install", "ipam", &chart, "--create-namespace"]);
    run(&[
        "upgrade",
        "ipam",
        &chart,
        "--set",
        "replicas=1,poolEditors=true",
    ]);
    let deployment = "deployment/capi-ipam-in-cluster-controller-manager";
    let replicas = plane.kubectl(&[
        "get",
        deployment,
        "-n",
        NAMESPACE,
        "-o",
        "jsonpath={.spec.replicas}",
    ]);
    assert_eq!(replicas, "1");
    // No manager serves the webhooks here.
    plane.kubectl(&["delete", "validatingwebhookconfigurations", "--all"]);
    let pool = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "InClusterIPPool",
        "metadata": {"name": "web", "namespace": "default"}, "spec": {"addresses": ["10.0.0.1"], "prefix": 24},
    });
    // The API server observes the deletion with a delay.
    let patience = Patience::new(Duration::from_mins(2));
    while let Err(error) = plane.dry_create(&pool) {
        assert!(!patience.is_over(), "{error}");
        sleep(Duration::from_millis(50));
    }
    plane.kubectl_apply(&pool.to_string());
    run(&["uninstall", "ipam"]);
    assert!(
        plane
            .try_kubectl(&["get", deployment, "-n", NAMESPACE])
            .is_err()
    );
    plane.kubectl(&["get", "inclusterippools", "web", "-n", "default"]);
}
