//! The recipes for addresses of Clusters, with the core manager of Cluster API: its webhooks require
//! variables of a ClusterClass, and its topology controller creates the infrastructure, whose kinds
//! are definitions only.

use std::fs;

use support::clusterctl::{Releases, documents, install_stub, start_core_with};
use support::prelude::*;
use support::repository::in_repository;

use crate::installed;

/// The objects of a recipe, without the Cluster at its end, and the Cluster.
pub(crate) fn recipe(name: &str, namespace: &str) -> (Vec<Value>, Value) {
    let file = in_repository(&format!("docs/recipes/{name}.yaml"));
    let text = fs::read_to_string(file).expect("the recipe can be read");
    let mut objects = documents(&text);
    for object in &mut objects {
        object["metadata"]["namespace"] = json!(namespace);
    }
    let cluster = objects.pop().expect("the recipe has a Cluster");
    (objects, cluster)
}

/// Installs the kinds of a provider that a recipe names: the templates, and what is created from
/// them.
fn install_kinds(plane: &ControlPlane, objects: &[Value]) {
    for object in objects {
        let api = object["apiVersion"].as_str().expect("it has a version");
        let (group, version) = api.split_once('/').expect("it has a group");
        let kind = object["kind"].as_str().expect("it has a kind");
        let Some(created) = kind.strip_suffix("Template") else {
            continue;
        };
        for kind in [kind, created] {
            install_kind(plane, group, version, kind);
        }
    }
}

pub(crate) fn install_kind(plane: &ControlPlane, group: &str, version: &str, kind: &str) {
    let plural = format!("{}s", kind.to_lowercase());
    install_stub(plane, group, version, &plural, kind);
}

#[tokio::test(flavor = "multi_thread")]
async fn recipes_give_required_variables_to_their_clusters() {
    let releases = Releases::write();
    let plane = ControlPlane::start(Options {
        bare: true,
        controller_manager: true,
        ..Options::default()
    });
    releases.init(&plane);
    let _core = start_core_with(&plane, &["--feature-gates=ClusterTopology=true"]);
    installed::apply_cluster_addressing(&plane);
    let _provider = installed::start(&plane, &["--cluster-addressing"]);
    for name in ["metal3", "proxmox", "vsphere"] {
        let consumer = Consumer::new(&plane).await;
        check_recipe(&plane, &consumer, name).await;
        check_template(&releases, &plane, &consumer, name);
    }
}

/// A Cluster without a class is created before the rest, which has the address of its endpoint.
fn check_template(releases: &Releases, plane: &ControlPlane, consumer: &Consumer, name: &str) {
    let apply = |text: &str| {
        let mut objects = documents(text);
        for object in &mut objects {
            object["metadata"]["namespace"] = json!(consumer.namespace);
        }
        for object in &objects {
            plane.kubectl_apply(&object.to_string());
        }
    };
    let read = |file: &str| {
        let file = in_repository(&format!("docs/recipes/{file}.yaml"));
        fs::read_to_string(file).expect("the recipe can be read")
    };
    apply(&read("endpoints"));
    let template = read(&format!("{name}-template"));
    let (cluster, _) = template.split_once("\n---\n").expect("it has a Cluster");
    apply(cluster);
    let namespace = format!("--namespace={}", consumer.namespace);
    let host = |object: &str| {
        let output = "--output=jsonpath={.spec.controlPlaneEndpoint.host}";
        plane.kubectl(&["get", object, &namespace, output])
    };
    let endpoint = host(&format!("cluster/{name}-2"));
    assert_eq!(endpoint, "198.51.100.10");
    let file = in_repository(&format!("docs/recipes/{name}-template.yaml"));
    let from = format!("--from={}", file.display());
    let mut command = releases.command(&["generate", "yaml", &from]);
    for variable in ["CONTROL_PLANE_ENDPOINT_IP", "CLUSTER_APIENDPOINT_HOST"] {
        command.env(variable, &endpoint);
    }
    let output = command.output().expect("clusterctl can be started");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("it is text");
    assert_contains(&text, "name: address, value: \"198.51.100.10\"");
    apply(&text);
    assert_eq!(host(&format!("cluster/{name}-2")), endpoint);
    let objects = documents(&text);
    let kind = objects[1]["kind"].as_str().expect("it has a kind");
    assert_eq!(host(&format!("{kind}/{name}-2")), endpoint);
}

async fn check_recipe(plane: &ControlPlane, consumer: &Consumer, name: &str) {
    let (objects, mut cluster) = recipe(name, &consumer.namespace);
    install_kinds(plane, &objects);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    plane.kubectl_apply(&list.to_string());

    // Nobody sets the variable of a Cluster that is not selected.
    let labels = cluster["metadata"]["labels"].take();
    let file = plane.folder().join("cluster.json");
    let create = |cluster: &Value| {
        fs::write(&file, cluster.to_string()).expect("a file can be written");
        let file = format!("--filename={}", file.display());
        plane.try_kubectl(&["create", &file, "--output=json"])
    };
    let required = "required variable \"apiServerAddress\" must be set";
    eventually_ok("the variable is required", async || {
        match create(&cluster) {
            Err(message) if message.contains(required) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    cluster["metadata"]["labels"] = labels;
    let created = eventually_ok("the Cluster is created", async || create(&cluster)).await;
    let created: Value = serde_json::from_str(&created).expect("kubectl writes JSON");
    let endpoint = &created["spec"]["controlPlaneEndpoint"];
    assert_eq!(*endpoint, json!({"host": "192.0.2.10", "port": 6443}));
    let variables = created["spec"]["topology"]["variables"].as_array();
    let variables = variables.expect("it has variables");
    let expected = json!({"name": "apiServerAddress", "value": "192.0.2.10"});
    assert!(variables.contains(&expected), "{variables:?}");

    // The topology controller hands it on to the infrastructure, and to kube-vip.
    let namespace = format!("--namespace={}", consumer.namespace);
    let read = async |reference: &str| {
        let what = format!("{name}: the {reference} exists");
        eventually_ok(&what, async || {
            let cluster = format!("cluster/{name}-1");
            let cluster = plane.try_kubectl(&["get", &cluster, &namespace, "--output=json"])?;
            let cluster: Value = serde_json::from_str(&cluster).expect("kubectl writes JSON");
            let found = &cluster["spec"][reference];
            let (Some(kind), Some(object)) = (found["kind"].as_str(), found["name"].as_str())
            else {
                return Err(format!("{:#}", cluster["status"]["conditions"]));
            };
            plane.try_kubectl(&["get", kind, object, &namespace, "--output=json"])
        })
        .await
    };
    let infrastructure: Value =
        serde_json::from_str(&read("infrastructureRef").await).expect("it is JSON");
    assert_eq!(infrastructure["spec"]["controlPlaneEndpoint"], *endpoint);
    let control_plane = read("controlPlaneRef").await;
    assert_contains(&control_plane, "name: address, value: \\\"192.0.2.10\\\"");
}
