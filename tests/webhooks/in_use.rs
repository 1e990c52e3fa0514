//! What is in use stays in its pool, and its pool stays; and what always passes.

use std::fs;
use std::path::Path;

use capi_ipam::api::InClusterKind::{self, GlobalIPPool, GlobalPrefixPool, IPPool, PrefixPool};
use capi_ipam::ask::{ask, Asker, JSON, MERGE};
use capi_ipam::support::consumer::{Consumer, eventually, stays, unique};
use capi_ipam::support::control_plane::{ControlPlane, Options};
use capi_ipam::{wired, Wired};
use serde_json::{json, Value};

/// A pool of which one address is in use.
struct Used {
    consumer: Consumer,
    asker: Asker,
    kind: InClusterKind,
    name: String,
    address: String,
}

impl Used {
    async fn pool(kind: InClusterKind) -> Self {
        let consumer = Consumer::new(&wired().plane).await;
        let (asker, name) = (Asker::new(&consumer), unique("used"));
        let spec = match kind {
            IPPool | GlobalIPPool => json!({"addresses": ["10.0.0.5-10.0.0.9"], "prefix": 24}),
            PrefixPool | GlobalPrefixPool => json!({"prefixes": ["fd00::/62"], "allocationPrefixLength": 64}),
        };
        asker.create(kind, &name, &spec).await.done();
        consumer.claim_with("holder", kind.name(), &name, json!({})).await;
        let address = consumer.bound("holder").await;
        let used = Self { consumer, asker, kind, name, address };
        used.counts_one().await;
        used
    }

    /// Waits until the provider has counted the address, and so knows it.
    async fn counts_one(&self) {
        eventually("one address is counted", || async {
            (self.read().await?["status"]["ipAddresses"]["used"] == 1).then_some(())
        })
        .await;
    }

    async fn read(&self) -> Option<Value> {
        let path = self.asker.path(self.kind, "v1alpha2", &self.name);
        let said = self.asker.call("GET", &path, JSON, &Value::Null).await;
        (said.code != 404).then(|| said.done())
    }

    async fn annotate(&self, annotation: &str) {
        let patch = json!({"metadata": {"annotations": {annotation: ""}}});
        self.asker.change(self.kind, &self.name, &patch).await.done();
    }
}

#[tokio::test]
async fn what_drops_an_address_in_use_is_refused_and_names_it() {
    for kind in InClusterKind::ALL {
        let used = Used::pool(kind).await;
        let less = match kind {
            IPPool | GlobalIPPool => vec![
                json!({"addresses": ["10.0.0.6-10.0.0.9"]}),
                json!({"addresses": ["10.0.0.6-10.0.0.9", "10.0.0.100"]}),
                json!({"excludedAddresses": ["10.0.0.0/29"]}),
                json!({"gateway": "10.0.0.5"}),
                json!({"addresses": ["10.0.1.5-10.0.1.9"]}),
                json!({"addresses": ["10.0.0.5-10.0.0.6"], "prefix": 30, "excludedAddresses": ["10.0.0.5"]}),
                json!({"addresses": ["fd00::1"], "prefix": 64}),
            ],
            PrefixPool | GlobalPrefixPool => vec![
                json!({"prefixes": ["fd00:0:0:1::/64"]}),
                json!({"excludedPrefixes": ["fd00::5"]}),
                json!({"prefixes": ["fd01::/48"]}),
            ],
        };
        let old = used.read().await.expect("the pool is there");
        for change in less {
            let said = used.asker.try_change(kind, &used.name, &json!({"spec": change})).await;
            said.refused(400, "", &format!("do not contain allocated addresses: {}", used.address));
            let mut new = old.clone();
            json_patch::merge(&mut new, &json!({"spec": change}));
            ask(&wired().webhooks, kind, "UPDATE", &old, &new).await.refused(400, "", &used.address);
        }
        let more = match kind {
            IPPool | GlobalIPPool => json!({"addresses": ["10.0.0.5"], "gateway": "10.0.0.6", "prefix": 25}),
            PrefixPool | GlobalPrefixPool => json!({"prefixes": ["fd00::/64"], "gateway": "fd00::1"}),
        };
        used.asker.change(kind, &used.name, &json!({"spec": more})).await.done();
        assert_eq!(used.consumer.bound("holder").await, used.address);
    }
}

#[tokio::test]
async fn an_address_that_was_given_back_may_be_dropped() {
    let used = Used::pool(IPPool).await;
    used.consumer.release("holder").await;
    let dropped = json!({"spec": {"addresses": ["10.0.0.6-10.0.0.9"]}});
    eventually("the address may go", || async {
        used.asker.change(IPPool, &used.name, &dropped).await.is_ok().then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_pool_in_use_is_not_deleted() {
    for kind in InClusterKind::ALL {
        let used = Used::pool(kind).await;
        let said = used.asker.delete(kind, &used.name).await;
        said.refused(400, "", "Pool has IPAddresses allocated. Cannot delete Pool until all IPAddresses have been");
        said.refused(400, "", &format!("In use: {}", used.address));
        let old = used.read().await.expect("the pool is there");
        assert_eq!(old["metadata"]["deletionTimestamp"], Value::Null);
        ask(&wired().webhooks, kind, "DELETE", &old, &Value::Null).await.refused(400, "", &used.address);
        // Once nothing is in use it goes.
        used.consumer.release("holder").await;
        eventually("the pool can be deleted", || async {
            let said = used.asker.delete(kind, &used.name).await;
            (said.code != 400).then_some(())
        })
        .await;
        eventually("the pool is gone", || async { used.read().await.is_none().then_some(()) }).await;
    }
}

#[tokio::test]
async fn a_pool_in_use_that_may_be_deleted_stays_until_its_claims_are_gone() {
    let annotations =
        ["ipam.cluster.x-k8s.io/skip-validate-delete-webhook", "clusterctl.cluster.x-k8s.io/delete-for-move"];
    for (kind, annotation) in [
        (IPPool, annotations[0]),
        (GlobalIPPool, annotations[1]),
        (PrefixPool, annotations[1]),
        (GlobalPrefixPool, annotations[0]),
    ] {
        let used = Used::pool(kind).await;
        used.annotate(annotation).await;
        assert!(used.asker.delete(kind, &used.name).await.is_ok());
        stays("the pool", || async { used.read().await.is_some() }).await;
        // What is on its way out may be changed in any way, and be deleted again.
        let bare = match kind {
            IPPool | GlobalIPPool => json!({"spec": {"addresses": ["10.0.0.6"]}}),
            PrefixPool | GlobalPrefixPool => json!({"spec": {"prefixes": ["fd00:0:0:2::/64"]}}),
        };
        used.asker.change(kind, &used.name, &bare).await.done();
        let without = json!({"metadata": {"annotations": null}});
        used.asker.change(kind, &used.name, &without).await.done();
        assert!(used.asker.delete(kind, &used.name).await.is_ok());
        used.consumer.release("holder").await;
        eventually("the pool is gone", || async { used.read().await.is_none().then_some(()) }).await;
    }
}

#[tokio::test]
async fn a_pool_that_is_used_by_nobody_can_be_deleted() {
    let asker = Asker::new(&Consumer::new(&wired().plane).await);
    for kind in InClusterKind::ALL {
        let (name, spec) = (unique("unused"), json!({"addresses": ["10.0.0.1"], "prefix": 24}));
        let prefixes = json!({"prefixes": ["fd00::/48"]});
        let spec = if matches!(kind, IPPool | GlobalIPPool) { spec } else { prefixes };
        asker.create(kind, &name, &spec).await.done();
        assert!(asker.delete(kind, &name).await.is_ok());
    }
}

/// A control plane whose definitions refuse nothing, until [`restore`].
fn without_rules() -> ControlPlane {
    let plane = ControlPlane::start(Options::default());
    let all = plane.kubectl(&["get", "crd", "-o=json"]);
    let mut all: Value = serde_json::from_str(&all).expect("kubectl writes JSON");
    for definition in all["items"].as_array_mut().expect("there are definitions") {
        let ours = InClusterKind::of(definition["spec"]["names"]["kind"].as_str().unwrap_or_default()).is_some();
        if ours {
            strip(definition);
            replace(&plane, definition);
        }
    }
    plane
}

/// Takes the rules off the texts and lists in a schema; its types stay.
fn strip(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for rule in
                ["x-kubernetes-validations", "pattern", "minItems", "maxItems", "minLength", "minimum", "maximum"]
            {
                // Not when it is the name of a field.
                if fields.get(rule).is_some_and(|value| !value.is_object()) {
                    fields.remove(rule);
                }
            }
            fields.values_mut().for_each(strip);
        }
        Value::Array(values) => values.iter_mut().for_each(strip),
        _ => {}
    }
}

fn replace(plane: &ControlPlane, definition: &Value) {
    let patch = json!([{"op": "replace", "path": "/spec/versions", "value": definition["spec"]["versions"]}]);
    let name = definition["metadata"]["name"].as_str().expect("definitions have names");
    plane.kubectl(&["patch", "crd", name, "--type=json", "-p", &patch.to_string()]);
}

/// Puts the committed definitions back.
fn restore(plane: &ControlPlane) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("config/crd/ipam.cluster.x-k8s.io.yaml");
    let text = fs::read_to_string(file).expect("the definitions can be read");
    for document in text.split("\n---\n").filter(|document| document.contains("kind: CustomResourceDefinition")) {
        let definition: Value = serde_saphyr::from_str(document).expect("the definitions are YAML");
        replace(plane, &definition);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_pool_from_before_can_be_labelled_finished_and_mended() {
    let plane = without_rules();
    let consumer = Consumer::new(&plane).await;
    let asker = Asker::new(&consumer);
    let specs = [
        (IPPool, json!({"addresses": ["10.0.0.300", "fd00::/64"], "prefix": 24, "gateway": "x"})),
        (GlobalIPPool, json!({"addresses": [], "prefix": 24})),
        (PrefixPool, json!({"prefixes": ["fd00::1/48"], "allocationPrefixLength": 64})),
        (GlobalPrefixPool, json!({"prefixes": ["fd00::/65"], "allocationPrefixLength": 64, "gateway": "10.0.0.1"})),
    ];
    for (kind, spec) in &specs {
        eventually("the definition refuses nothing any more", || async {
            asker.create(*kind, "bad", spec).await.is_ok().then_some(())
        })
        .await;
    }
    restore(&plane);
    let wired = Wired::with_plane(plane, &[]);
    for (kind, spec) in &specs {
        // The rules hold again.
        eventually("the rules hold", || async {
            (asker.try_create(*kind, "another", spec).await.code == 422).then_some(())
        })
        .await;
        let metadata =
            json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["e.example/f"]}});
        asker.change(*kind, "bad", &metadata).await.done();
        let status = format!("{}/status", asker.path(*kind, "v1alpha2", "bad"));
        let counts = json!({"status": {"ipAddresses": {"total": 0, "free": 0, "used": 0, "outOfRange": 0}}});
        asker.call("PATCH", &status, MERGE, &counts).await.done();
        // A change that leaves it bad is none.
        asker.try_change(*kind, "bad", &json!({"spec": {"gateway": "y"}})).await.refused(422, "spec", "");
        let good = match kind {
            IPPool | GlobalIPPool => json!({"addresses": ["10.0.0.1"], "prefix": 24}),
            PrefixPool | GlobalPrefixPool => json!({"prefixes": ["fd00::/48"], "allocationPrefixLength": 64}),
        };
        asker.try_replace(*kind, "bad", &good).await.done();
        assert!(asker.delete(*kind, "bad").await.is_ok());
        asker.change(*kind, "bad", &json!({"metadata": {"finalizers": null}})).await.done();
    }
    drop(wired);
}
