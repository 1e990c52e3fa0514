//! Pools in the old version, through a real API server.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use capi_ipam::api::InClusterKind::{self, GlobalIPPool, IPPool};
use capi_ipam::ask::{Asker, JSON, MERGE};
use capi_ipam::support::consumer::{Consumer, eventually, unique};
use capi_ipam::support::control_plane::{ControlPlane, NAMESPACE, Options};
use capi_ipam::support::manager::Manager;
use capi_ipam::support::webhooks::Webhooks;
use capi_ipam::wired;
use serde_json::{json, Value};

const KINDS: [InClusterKind; 2] = [IPPool, GlobalIPPool];
const ANNOTATION: &str = "cluster.x-k8s.io/conversion-data";

async fn asker() -> Asker {
    Asker::new(&Consumer::new(&wired().plane).await)
}

fn old(kind: InClusterKind, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "ipam.cluster.x-k8s.io/v1alpha1", "kind": kind.name(), "metadata": {"name": name}, "spec": spec})
}

/// What becomes of a specification of a subnet alone: what follows from it is filled in, as the Go provider does it.
fn filled(subnet: &str) -> Value {
    json!({"subnet": format!("{subnet}.0/24"), "start": format!("{subnet}.1"), "end": format!("{subnet}.254"),
           "prefix": 24})
}

/// A specification that only the stored version can say in full.
fn rich() -> Value {
    json!({"addresses": ["10.41.0.10-10.41.0.99", "10.41.0.200"], "prefix": 24, "gateway": "10.41.0.1",
           "excludedAddresses": ["10.41.0.50"], "addressReuseGracePeriodSeconds": 60,
           "allocateReservedIPAddresses": true, "network": unique("lab")})
}

/// What the old version says of it.
fn poor() -> Value {
    json!({"addresses": ["10.41.0.10-10.41.0.99", "10.41.0.200"], "prefix": 24, "gateway": "10.41.0.1"})
}

#[tokio::test]
async fn a_pool_made_in_the_old_version_is_served_in_both() {
    let asker = asker().await;
    for kind in KINDS {
        let name = unique("old");
        let spec = json!({"subnet": "10.40.0.0/24", "gateway": "10.40.0.1"});
        let made = asker.call("POST", &asker.path(kind, "v1alpha1", ""), JSON, &old(kind, &name, spec)).await;
        let mut spec = filled("10.40.0");
        spec["gateway"] = json!("10.40.0.1");
        assert_eq!(made.done()["spec"], spec);
        let new = asker.get(&asker.path(kind, "v1alpha2", &name)).await;
        let expected = json!({"addresses": ["10.40.0.1-10.40.0.254"], "prefix": 24, "gateway": "10.40.0.1"});
        assert_eq!(new["spec"], expected);
        assert_eq!(asker.get(&asker.path(kind, "v1alpha1", &name)).await["spec"], spec);
        // The provider serves it as any other, and its counts can be seen in both.
        for version in ["v1alpha1", "v1alpha2"] {
            let counts = eventually("there are counts", || async {
                let pool = asker.get(&asker.path(kind, version, &name)).await;
                pool["status"]["ipAddresses"].is_object().then(|| pool["status"]["ipAddresses"].clone())
            })
            .await;
            assert_eq!(counts, json!({"total": 253, "free": 253, "used": 0, "outOfRange": 0}));
        }
    }
}

#[tokio::test]
async fn a_pool_is_changed_and_deleted_in_the_old_version() {
    let asker = asker().await;
    for kind in KINDS {
        let name = unique("old");
        let path = asker.path(kind, "v1alpha1", &name);
        let spec = json!({"start": "10.40.1.10", "end": "10.40.1.20", "prefix": 24});
        asker.call("POST", &asker.path(kind, "v1alpha1", ""), JSON, &old(kind, &name, spec)).await.done();
        let change = json!({"spec": {"end": "10.40.1.30", "gateway": "10.40.1.1"}});
        let changed = asker.call("PATCH", &path, MERGE, &change).await.done();
        let expected = json!({"start": "10.40.1.10", "end": "10.40.1.30", "prefix": 24, "gateway": "10.40.1.1"});
        assert_eq!(changed["spec"], expected);
        let new = asker.get(&asker.path(kind, "v1alpha2", &name)).await;
        assert_eq!(new["spec"]["addresses"], json!(["10.40.1.10-10.40.1.30"]));
        // A change in the stored version wins over what the old one said.
        let other = json!({"spec": {"addresses": ["10.40.1.40"]}});
        asker.change(kind, &name, &other).await.done();
        assert_eq!(asker.get(&path).await["spec"]["addresses"], json!(["10.40.1.40"]));
        // What is wrong is refused here too.
        let bad = json!({"spec": {"addresses": ["nonsense"]}});
        asker.call("PATCH", &path, MERGE, &bad).await.refused(422, "spec.addresses", "nonsense");
        assert!(asker.call("DELETE", &path, JSON, &Value::Null).await.is_ok());
    }
}

#[tokio::test]
async fn an_old_client_that_writes_back_what_it_read_loses_nothing() {
    let asker = asker().await;
    for kind in KINDS {
        let (name, spec) = (unique("rich"), rich());
        asker.create(kind, &name, &spec).await.done();
        let (old_path, new_path) = (asker.path(kind, "v1alpha1", &name), asker.path(kind, "v1alpha2", &name));
        // The provider writes its finalizer at some time, so this may take another go, as with any client.
        eventually("the old client has replaced the pool", || async {
            let mut read = asker.get(&old_path).await;
            assert_eq!(read["spec"], poor());
            read["spec"]["gateway"] = json!("10.41.0.2");
            read["metadata"]["labels"] = json!({"a": "b"});
            let said = asker.call("PUT", &old_path, JSON, &read).await;
            (said.code != 409).then(|| said.done())
        })
        .await;
        let mut expected = spec;
        expected["gateway"] = json!("10.41.0.2");
        let pool = asker.get(&new_path).await;
        assert_eq!(pool["spec"], expected);
        assert_eq!(pool["metadata"]["labels"], json!({"a": "b"}));
        assert_eq!(pool["metadata"]["annotations"][ANNOTATION], Value::Null, "it is for the other version only");
        // The same with a patch that knows nothing of the annotation.
        asker.call("PATCH", &old_path, MERGE, &json!({"spec": {"gateway": "10.41.0.3"}})).await.done();
        expected["gateway"] = json!("10.41.0.3");
        assert_eq!(asker.get(&new_path).await["spec"], expected);
    }
}

#[test]
fn kubectl_replaces_what_it_got() {
    let (plane, name) = (&wired().plane, unique("kubectl"));
    let pool = json!({"apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "GlobalInClusterIPPool",
                      "metadata": {"name": name}, "spec": rich()});
    plane.kubectl_apply(&pool.to_string());
    let file = plane.folder().join(format!("{name}.json"));
    for _ in 0..20 {
        let resource = format!("globalinclusterippools.v1alpha1.ipam.cluster.x-k8s.io/{name}");
        let text = plane.kubectl(&["get", &resource, "-o=json"]);
        assert!(text.contains("v1alpha1") && text.contains("10.41.0.1"), "{text}");
        fs::write(&file, text.replace("\"10.41.0.1\"", "\"10.41.0.2\"")).expect("a file can be written");
        match plane.try_kubectl(&["replace", "-f", &file.display().to_string()]) {
            Ok(_) => break,
            Err(text) => assert!(text.contains("the object has been modified"), "{text}"),
        }
    }
    let text = plane.kubectl(&["get", "globalinclusterippools", &name, "-o=json"]);
    let pool: Value = serde_json::from_str(&text).expect("kubectl writes JSON");
    let spec = &pool["spec"];
    assert_eq!((&spec["gateway"], &spec["excludedAddresses"]), (&json!("10.41.0.2"), &json!(["10.41.0.50"])));
    assert_eq!(spec["addressReuseGracePeriodSeconds"], 60);
}

/// Pools with two versions that the Go provider has stored, or what it made of them in the old version, by kind and
/// name.
fn taken_over(file: &str) -> BTreeMap<(String, String), Value> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/takeover").join(file);
    let text = fs::read_to_string(file).expect("the data can be read");
    let mut list: Value = serde_json::from_str(&text).expect("the data is JSON");
    let items = std::mem::take(list["items"].as_array_mut().expect("it is a list"));
    let text = |value: &Value| value.as_str().expect("it is a text").to_owned();
    let converted = items.into_iter().filter(|item| text(&item["kind"]).ends_with("InClusterIPPool"));
    converted.map(|item| ((text(&item["kind"]), text(&item["metadata"]["name"])), item)).collect()
}

#[tokio::test]
async fn pools_that_the_go_provider_stored_are_read_as_it_read_them() {
    let asker = asker().await;
    let old = taken_over("pools-as-v1alpha1.json");
    for ((kind, name), mut pool) in taken_over("objects.json") {
        let expected = &old[&(kind.clone(), name.clone())];
        let kind = InClusterKind::of(&kind).expect("it is a kind of ours");
        pool.as_object_mut().expect("a pool is an object").remove("status");
        for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "namespace"] {
            pool["metadata"].as_object_mut().expect("it is an object").remove(field);
        }
        asker.call("POST", &asker.path(kind, "v1alpha2", ""), JSON, &pool).await.done();
        let mut found = asker.get(&asker.path(kind, "v1alpha1", &name)).await;
        assert_eq!(found["spec"], expected["spec"], "{kind} {name}");
        // What the old version cannot say is carried along; else the annotations are the same.
        let annotations = &mut found["metadata"]["annotations"];
        if let Some(all) = annotations.as_object_mut() {
            all.remove(ANNOTATION);
        }
        let or_none = |value: &Value| value.as_object().cloned().unwrap_or_default();
        assert_eq!(or_none(annotations), or_none(&expected["metadata"]["annotations"]), "{kind} {name}");
        assert_eq!(found["metadata"]["finalizers"], expected["metadata"]["finalizers"]);
        let stored = asker.get(&asker.path(kind, "v1alpha2", &name)).await;
        assert_eq!(stored["spec"], pool["spec"], "{kind} {name}");
        assert_eq!(or_none(&stored["metadata"]["annotations"]), or_none(&pool["metadata"]["annotations"]));
    }
}

#[tokio::test]
async fn a_list_of_pools_from_both_versions_is_read_in_either() {
    let asker = asker().await;
    let spec = json!({"subnet": "10.42.0.0/24"});
    for name in ["old-a", "old-b"] {
        asker.call("POST", &asker.path(IPPool, "v1alpha1", ""), JSON, &old(IPPool, name, spec.clone())).await.done();
    }
    for name in ["new-a", "new-b"] {
        asker.create(IPPool, name, &rich()).await.done();
    }
    let read = async |version: &str| -> BTreeMap<String, Value> {
        let list = asker.get(&asker.path(IPPool, version, "")).await;
        let items = list["items"].as_array().expect("it is a list").iter();
        for item in items.clone() {
            assert_eq!(item["apiVersion"], format!("ipam.cluster.x-k8s.io/{version}"));
        }
        items
            .map(|item| (item["metadata"]["name"].as_str().unwrap_or_default().to_owned(), item["spec"].clone()))
            .collect()
    };
    let old = read("v1alpha1").await;
    assert_eq!(old.keys().collect::<Vec<_>>(), ["new-a", "new-b", "old-a", "old-b"]);
    assert_eq!((&old["old-a"], &old["old-b"]), (&filled("10.42.0"), &filled("10.42.0")));
    assert_eq!(old["new-a"], poor());
    let new = read("v1alpha2").await;
    assert_eq!(new["old-a"]["addresses"], json!(["10.42.0.1-10.42.0.254"]));
    assert_eq!(new["new-b"]["excludedAddresses"], json!(["10.41.0.50"]));
}

/// Makes sure that pools can be written and read in the old version.
async fn is_converted(asker: &Asker, name: &str) {
    let spec = json!({"subnet": "10.43.0.0/24"});
    asker.call("POST", &asker.path(IPPool, "v1alpha1", ""), JSON, &old(IPPool, name, spec)).await.done();
    assert_eq!(asker.get(&asker.path(IPPool, "v1alpha1", name)).await["spec"], filled("10.43.0"));
    let list = asker.get(&asker.path(IPPool, "v1alpha1", "")).await;
    assert!(list["items"].as_array().is_some_and(|items| !items.is_empty()));
}

#[tokio::test(flavor = "multi_thread")]
async fn conversion_does_not_wait_for_the_lease_nor_for_lists() {
    let plane = ControlPlane::start(Options::default());
    let webhooks = Webhooks::new(&plane);
    let own = webhooks.flags();
    let consumer = Consumer::new(&plane).await;
    let asker = Asker::new(&consumer);
    {
        // Somebody else leads and does nothing.
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "7bb7acb4.ipam.cluster.x-k8s.io", "namespace": NAMESPACE},
            "spec": {"holderIdentity": "another", "leaseDurationSeconds": 3600,
                     "acquireTime": "2099-01-01T00:00:00.000000Z", "renewTime": "2099-01-01T00:00:00.000000Z"},
        });
        plane.kubectl_apply(&lease.to_string());
        let elected = ["--leader-elect"];
        let flags: Vec<&str> = own.iter().map(String::as_str).chain(elected).collect();
        let manager = Manager::start(&plane, &flags);
        webhooks.wire(&plane);
        is_converted(&asker, "waiting").await;
        assert!(!manager.log().contains("acquired leadership lease"), "{}", manager.log());
    }
    // Somebody who may list nothing but the leases and kinds never becomes ready.
    plane.kubectl(&["-n", NAMESPACE, "create", "serviceaccount", "nobody"]);
    let kubeconfig = plane.kubeconfig_of_account(NAMESPACE, "nobody");
    let flags: Vec<&str> = own.iter().map(String::as_str).collect();
    let manager = Manager::launch(&plane, &kubeconfig, &flags).may_lack_permissions();
    manager.wait_for_log("certificate loaded");
    is_converted(&asker, "unready").await;
    assert!(!manager.is_ready());
    // What depends on what is in use cannot be told: whoever asks is to try again.
    let shrink = json!({"spec": {"addresses": ["10.43.0.1"]}});
    asker.try_change(IPPool, "unready", &shrink).await.refused(503, "", "still being listed");
    let grow = json!({"spec": {"addresses": ["10.43.0.0/24"]}});
    asker.try_change(IPPool, "unready", &grow).await.done();
}
