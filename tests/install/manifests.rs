//! The content of the released files.

use std::{fs, path::Path};

use support::{
    clusterctl::{VERSION, documents, manifest},
    control_plane::kustomize,
    prelude::*,
};

/// Cluster-scoped kinds.
const CLUSTER_WIDE: [&str; 5] = [
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "Namespace",
    "ValidatingWebhookConfiguration",
];

fn find<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects
        .iter()
        .filter(|object| object["kind"] == kind)
        .collect()
}

/// Replaces variables by their defaults.
fn with_defaults(text: &str) -> String {
    let mut rest = text;
    let mut whole = String::new();
    while let Some((before, after)) = rest.split_once("${") {
        let (variable, after) = after.split_once('}').expect("a variable ends");
        let (name, default) = variable.split_once(":=").expect("a variable has a default");
        assert!(
            name.chars()
                .all(|letter| letter.is_ascii_uppercase() || letter == '_'),
            "{name}"
        );
        whole += before;
        whole += default;
        rest = after;
    }
    whole + rest
}

#[test]
fn all_objects_have_the_provider_label_and_namespace() {
    for file in ["install.yaml", "install-without-cert-manager.yaml"] {
        assert_labels_and_namespace(&documents(&manifest(file)));
    }
}

fn assert_labels_and_namespace(objects: &[Value]) {
    assert_eq!(find(objects, "Namespace").len(), 1);
    for object in objects {
        let (kind, metadata) = (
            object["kind"].as_str().expect("each has a kind"),
            &object["metadata"],
        );
        assert_eq!(
            metadata["labels"]["cluster.x-k8s.io/provider"], "ipam-in-cluster",
            "{kind} {}",
            metadata["name"]
        );
        let namespace = metadata.get("namespace");
        assert_eq!(
            namespace.is_none(),
            CLUSTER_WIDE.contains(&kind),
            "{kind} {}",
            metadata["name"]
        );
        assert!(
            namespace.is_none_or(|namespace| namespace == NAMESPACE),
            "{kind} {}",
            metadata["name"]
        );
    }
    for definition in find(objects, "CustomResourceDefinition") {
        let labels = &definition["metadata"]["labels"];
        assert!(
            labels["cluster.x-k8s.io/v1beta1"].is_string()
                && labels["cluster.x-k8s.io/v1beta2"].is_string()
        );
        // The identity of a management cluster in a registry is its own.
        let kind = &definition["spec"]["names"]["kind"];
        let is_moved = kind != "IPReservation" && kind != "IPRegistry";
        assert_eq!(
            labels
                .get("clusterctl.cluster.x-k8s.io/move-hierarchy")
                .is_some(),
            is_moved
        );
    }
}

/// Every kustomization under `config` that is not a component.
#[test]
fn kustomizations_build() {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("config");
    let mut seen = 0;
    for folder in fs::read_dir(config).expect("config can be read") {
        let folder = folder.expect("config can be read").path();
        let kustomization =
            fs::read_to_string(folder.join("kustomization.yaml")).expect("each folder has one");
        if !kustomization.contains("kind: Component") {
            assert!(
                !documents(&kustomize(&folder)).is_empty(),
                "{}",
                folder.display()
            );
            seen += 1;
        }
    }
    assert!(seen >= 9, "config has kustomizations");
}

#[test]
fn manifest_without_cert_manager_has_no_reference_to_it() {
    let objects = documents(&manifest("install-without-cert-manager.yaml"));
    assert!(
        !objects
            .iter()
            .any(|object| object.to_string().contains("cert-manager.io"))
    );
    let arguments =
        &find(&objects, "Deployment")[0]["spec"]["template"]["spec"]["containers"][0]["args"];
    assert!(
        arguments
            .to_string()
            .contains("--webhook-certs=self-managed")
    );
    let others = documents(&manifest("install.yaml"));
    assert!(
        !others
            .iter()
            .any(|object| object.to_string().contains("self-managed")),
        "off by default"
    );
}

#[test]
fn clusterctl_components_match_the_install_manifest() {
    let body = |name: &str| {
        let text = manifest(name);
        text.split_once('\n')
            .map(|(_, body)| body.to_owned())
            .expect("the first line names its source")
    };
    let components = body("ipam-components.yaml");
    assert!(components.matches("${").count() >= 4);
    assert_eq!(with_defaults(&components), body("install.yaml"));
}

#[test]
fn image_tag_and_metadata_match_the_version() {
    let objects = documents(&manifest("install.yaml"));
    let [deployment] = find(&objects, "Deployment")[..] else {
        panic!("the manifest has one Deployment")
    };
    let [manager] = &deployment["spec"]["template"]["spec"]["containers"]
        .as_array()
        .expect("the pod has containers")[..]
    else {
        panic!("the pod has one container")
    };
    assert_eq!(manager["name"], "manager");
    assert_eq!(manager["image"], format!("localhost/capi-ipam:{VERSION}"));
    assert_eq!(manager["securityContext"]["readOnlyRootFilesystem"], true);
    assert!(manager["resources"]["limits"]["memory"].is_string());
    assert!(manager["resources"]["limits"].get("cpu").is_none());
    for probe in ["livenessProbe", "readinessProbe"] {
        assert_eq!(manager[probe]["httpGet"]["port"], "healthz");
    }
    assert!(
        deployment["spec"]["replicas"]
            .as_u64()
            .is_some_and(|replicas| replicas >= 2)
    );

    let metadata: Value =
        serde_saphyr::from_str(&manifest("metadata.yaml")).expect("the metadata is YAML");
    let series: Vec<(u64, u64, &str)> = metadata["releaseSeries"]
        .as_array()
        .expect("there are series")
        .iter()
        .map(|series| {
            let number = |name: &str| series[name].as_u64().expect("versions are numbers");
            (
                number("major"),
                number("minor"),
                series["contract"].as_str().expect("each has a contract"),
            )
        })
        .collect();
    let mut version = env!("CARGO_PKG_VERSION")
        .split('.')
        .map(|part| part.parse::<u64>().unwrap_or_default());
    let (major, minor) = (
        version.next().expect("there is a major"),
        version.next().expect("there is a minor"),
    );
    assert!(series.contains(&(major, minor, "v1beta2")), "{series:?}");
    assert!(series.contains(&(1, 1, "v1beta2")) && series.contains(&(1, 0, "v1beta1")));
}

/// A selector matches the pods of the Deployment, and a port is one of its ports.
#[test]
fn services_select_the_manager_pods() {
    let objects = documents(&manifest("install.yaml"));
    let template = &find(&objects, "Deployment")[0]["spec"]["template"];
    let ports = template["spec"]["containers"][0]["ports"]
        .as_array()
        .expect("there are ports");
    let services = find(&objects, "Service");
    assert_eq!(services.len(), 2);
    for service in services {
        let selector = service["spec"]["selector"]
            .as_object()
            .expect("a service selects");
        assert!(
            selector
                .iter()
                .all(|(label, value)| template["metadata"]["labels"][label] == *value)
        );
        for port in service["spec"]["ports"]
            .as_array()
            .expect("a service has ports")
        {
            assert!(
                ports
                    .iter()
                    .any(|known| known["name"] == port["targetPort"]),
                "{port}"
            );
        }
    }
    let budget = find(&objects, "PodDisruptionBudget");
    assert_eq!(
        budget[0]["spec"]["selector"],
        find(&objects, "Deployment")[0]["spec"]["selector"]
    );
}
