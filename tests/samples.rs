//! Documented examples work: the samples, the kustomizations, and the objects in README.md.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code: a failure ends the test"
)]

use std::{
    fs,
    path::{Path, PathBuf},
};

use capi_ipam_api::IPReservation;
use support::prelude::*;

/// The kind of reservations.
const RESERVATION: &str = "IPReservation";
/// The kind of registries. That of the samples cannot be reached.
const REGISTRY: &str = "IPRegistry";

/// The claim that a sample reservation is for.
const PROMISED: &str = "
apiVersion: ipam.cluster.x-k8s.io/v1beta2
kind: IPAddressClaim
metadata:
  name: web-1
  namespace: default
spec:
  poolRef:
    apiGroup: ipam.cluster.x-k8s.io
    kind: InClusterIPPool
    name: web-v6
";

#[test]
fn samples_work_as_described() {
    let plane = ControlPlane::new();
    let _manager = Manager::start(&plane, &[]);
    let mut waited_for = 0;
    for file in samples() {
        let text = fs::read_to_string(&file).expect("samples can be read");
        assert!(
            text.starts_with("# "),
            "{} does not say what it does",
            file.display()
        );
        apply(&plane, &text);
        for object in documents(&text) {
            let (kind, name) = identity(&object);
            if kind == RESERVATION {
                continue;
            }
            let expected = match &*kind {
                REGISTRY => "condition=Ready=False",
                _ => "condition=Ready",
            };
            wait(&plane, expected, &format!("{kind}/{name}"));
            waited_for += 1;
        }
    }
    assert!(waited_for >= 5, "the samples contain pools and claims");

    // 90 addresses: one is excluded and one is allocated.
    wait(
        &plane,
        "jsonpath={.status.ipAddresses.total}=90",
        "inclusterippool/web",
    );
    wait(
        &plane,
        "jsonpath={.status.ipAddresses.free}=88",
        "inclusterippool/web",
    );
    plane.kubectl_apply(PROMISED);
    wait(&plane, "condition=Ready", "ipaddressclaim/web-1");
    wait(
        &plane,
        "jsonpath={.spec.address}=fd00:1::abc",
        "ipaddress.ipam.cluster.x-k8s.io/web-1",
    );
}

#[test]
fn sample_reservations_have_the_required_names() {
    let mut seen = 0;
    for file in samples() {
        for object in documents(&fs::read_to_string(&file).expect("samples can be read")) {
            if text_at(&object, "/kind") != RESERVATION {
                continue;
            }
            let reservation: IPReservation =
                serde_json::from_value(object).expect("the sample is a reservation");
            reservation
                .slot()
                .unwrap_or_else(|problem| panic!("{}: {problem}", file.display()));
            seen += 1;
        }
    }
    assert!(seen >= 2, "the samples contain reservations");
}

#[test]
fn kustomizations_include_all_files_of_their_folder() {
    let mut seen = 0;
    for folder in fs::read_dir(root().join("config")).expect("config can be read") {
        let folder = folder.expect("config can be read").path();
        let kustomization =
            fs::read_to_string(folder.join("kustomization.yaml")).expect("each folder has one");
        for file in yaml_files(&folder)
            .iter()
            .filter(|file| !file.ends_with("kustomization.yaml"))
        {
            let name = file
                .file_name()
                .and_then(|name| name.to_str())
                .expect("the name is UTF-8");
            assert!(
                kustomization.contains(name),
                "{} is left out beside it",
                file.display()
            );
        }
        seen += 1;
    }
    assert!(seen >= 10, "config has kustomizations");
}

#[test]
fn old_version_is_not_served_without_webhooks() {
    let plane = ControlPlane::new();
    let overlay = root().join("config/crd-without-webhooks");
    plane.kubectl(&[
        "apply",
        "--server-side",
        "--force-conflicts",
        "-k",
        overlay.to_str().expect("the path is UTF-8"),
    ]);
    for kind in ["inclusterippools", "globalinclusterippools"] {
        let served =
            "jsonpath={.spec.versions[?(@.served==true)].name} {.spec.conversion.strategy}";
        let crd = format!("{kind}.ipam.cluster.x-k8s.io");
        assert_eq!(
            plane.kubectl(&["get", "crd", &crd, "-o", served]),
            "v1alpha2 None"
        );
    }
}

#[test]
fn readme_objects_can_be_applied() {
    let Ok(readme) = fs::read_to_string(root().join("README.md")) else {
        return;
    };
    let blocks = yaml_blocks(&readme);
    if blocks.is_empty() {
        return;
    }
    let plane = ControlPlane::new();
    for block in blocks {
        apply(&plane, &block);
    }
}

/// The pages about pools, in the order of docs/README.md.
const PAGES: [&str; 7] = [
    "pools",
    "global-pools",
    "pool-sets",
    "networks",
    "reservations",
    "slices",
    "reclaim",
];

/// A reader applies the examples one after the other. None is refused, or answered with a warning,
/// because of an earlier one.
#[test]
fn documented_objects_can_be_applied_in_order() {
    let plane = ControlPlane::new();
    let webhooks = Webhooks::new(&plane);
    let flags = webhooks.flags();
    let _manager = Manager::start(&plane, &flags.each_ref().map(String::as_str));
    webhooks.register(&plane);
    let file = plane.folder().join("object.json");
    let mut applied = 0;
    for page in PAGES {
        let text = fs::read_to_string(root().join(format!("docs/{page}.md")));
        for block in yaml_blocks(&text.expect("the page can be read")) {
            for object in documents(&block)
                .iter()
                .filter(|object| is_of_provider(object))
            {
                // The setting deserves its warning, which the page announces.
                let warns = object.pointer("/spec/reclaim/terminating").is_some();
                fs::write(&file, object.to_string()).expect("the folder is writable");
                let mut arguments = vec!["apply", "-f", file.to_str().expect("UTF-8")];
                if !warns {
                    arguments.push("--warnings-as-errors");
                }
                if let Err(error) = plane.try_kubectl(&arguments) {
                    panic!("docs/{page}.md: {error}\n{object}");
                }
                applied += 1;
            }
        }
    }
    assert!(applied >= 18, "the pages contain {applied} objects");
}

/// Whether an object of a block is complete, and of a kind of this provider.
fn is_of_provider(object: &Value) -> bool {
    text_at(object, "/apiVersion").starts_with("ipam.cluster.x-k8s.io/")
        && !text_at(object, "/metadata/name").is_empty()
}

#[test]
fn yaml_blocks_are_found_in_markdown() {
    let text = "```yaml\na\n---\nb\n```\n```sh\nls\n```\n  ```yaml\n  c:\n    d: 1\n  ```\n````yaml title\ne\n````\n";
    assert_eq!(yaml_blocks(text), ["a\n---\nb\n", "c:\n  d: 1\n", "e\n"]);
}

/// Applies the objects in a text except kustomizations, with their namespaces.
fn apply(plane: &ControlPlane, text: &str) {
    for object in documents(text).iter().filter(|object| is_applied(object)) {
        let namespace = text_at(object, "/metadata/namespace");
        if !["", "default"].contains(&namespace) {
            plane.kubectl_apply(&format!(
                "{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}}}}}"
            ));
        }
        plane.kubectl_apply(&object.to_string());
    }
}

/// Runs `kubectl wait` for an object in the namespace `default` or without a namespace.
fn wait(plane: &ControlPlane, what: &str, object: &str) {
    plane.kubectl(&[
        "wait",
        "--namespace=default",
        "--timeout=120s",
        &format!("--for={what}"),
        object,
    ]);
}

fn is_applied(object: &Value) -> bool {
    text_at(object, "/kind") != "Kustomization"
}

fn identity(object: &Value) -> (String, String) {
    (
        text_at(object, "/kind").to_owned(),
        text_at(object, "/metadata/name").to_owned(),
    )
}

fn text_at<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The documents of a YAML file.
fn documents(text: &str) -> Vec<Value> {
    let text = format!("\n{text}");
    let documents = text.split("\n---").map(|document| {
        let read = serde_saphyr::from_str::<Option<Value>>(document);
        read.unwrap_or_else(|error| panic!("this is not YAML: {error}\n{document}"))
    });
    documents.flatten().collect()
}

/// The YAML blocks of a Markdown text, without their indentation.
fn yaml_blocks(markdown: &str) -> Vec<String> {
    let mut lines = markdown.lines();
    let mut blocks = Vec::new();
    while let Some(line) = lines.next() {
        let fence = line.trim_start();
        let ticks = fence.chars().take_while(|letter| *letter == '`').count();
        if ticks < 3 {
            continue;
        }
        let indentation = line.len() - fence.len();
        let is_yaml = fence.trim_start_matches('`').split_whitespace().next() == Some("yaml");
        let end = "`".repeat(ticks);
        let mut block = String::new();
        for line in lines.by_ref().take_while(|line| line.trim() != end) {
            block.push_str(line.get(indentation..).unwrap_or(line));
            block.push('\n');
        }
        if is_yaml {
            blocks.push(block);
        }
    }
    blocks
}

fn samples() -> Vec<PathBuf> {
    let mut files = yaml_files(&root().join("config/samples"));
    files.retain(|file| !file.ends_with("kustomization.yaml"));
    assert!(files.len() >= 7, "samples are missing: {files:?}");
    files
}

fn yaml_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", folder.display()));
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("the folder can be read").path())
        .collect();
    files.retain(|file| {
        file.extension()
            .is_some_and(|extension| extension == "yaml")
    });
    files.sort();
    files
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}
