//! The CRDs: they match those of the Go provider apart from a list of additions, and a real API
//! server rejects invalid objects with them, without webhooks. `v1alpha1` is not covered, since it
//! needs a conversion webhook.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code: a failure ends the test"
)]

#[path = "crds/cluster_addressings.rs"]
mod cluster_addressings;
#[path = "crds/entries.rs"]
mod entries;
#[path = "crds/facts.rs"]
mod facts;
#[path = "crds/pool_sets.rs"]
mod pool_sets;
#[path = "crds/rules.rs"]
mod rules;
#[path = "crds/slices.rs"]
mod slices;
#[path = "crds/table.rs"]
mod table;
#[path = "crds/updates.rs"]
mod updates;

use std::{
    fs,
    path::Path,
    sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    },
    thread::sleep,
};

use capi_ipam_api::crds;
use support::prelude::*;

/// The committed CRDs.
const COMMITTED: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/config/crd/ipam.cluster.x-k8s.io.yaml"
);

/// The CRDs generated from the types.
static DEFINITIONS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let all = crds::all().expect("the CRDs can be generated");
    all.iter()
        .map(|definition| serde_json::to_value(definition).expect("a definition is JSON"))
        .collect()
});

/// A data file beside the tests.
fn data(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name);
    let text =
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).expect("the data is JSON")
}

/// An object, in the namespace `default` if it is namespaced.
fn object(kind: &str, name: &str, spec: &Value) -> Value {
    let mut metadata = json!({"name": name});
    if kind.starts_with("InCluster") {
        metadata["namespace"] = json!("default");
    }
    json!({"apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": kind, "metadata": metadata, "spec": spec})
}

/// Runs kubectl with a file of objects, and returns its error output when it fails.
fn with_file(plane: &ControlPlane, arguments: &[&str], objects: &Value) -> Result<String, String> {
    static WRITTEN: AtomicU32 = AtomicU32::new(0);
    let file = plane.folder().join(format!(
        "objects-{}.json",
        WRITTEN.fetch_add(1, Ordering::Relaxed)
    ));
    fs::write(&file, objects.to_string()).expect("the file can be written");
    let file = format!("--filename={}", file.display());
    plane.try_kubectl(&[arguments, &[&file]].concat())
}

/// Waits until the API server has observed a change.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let patience = Patience::new(Duration::from_mins(2));
    while !is_so() {
        assert!(
            !patience.is_over(),
            "did not happen within 2 minutes: {what}"
        );
        sleep(Duration::from_millis(100));
    }
}
