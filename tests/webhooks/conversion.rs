//! Pools in the old version, through a real API server.

use std::net::Ipv4Addr;

use capi_ipam_api::InClusterKind::{GlobalIPPool, IPPool};
use support::prelude::*;

use crate::{
    api_client::{ApiClient, JSON, MERGE},
    shared,
};

const KINDS: [InClusterKind; 2] = [IPPool, GlobalIPPool];
const ANNOTATION: &str = "cluster.x-k8s.io/conversion-data";

async fn client() -> ApiClient {
    ApiClient::new(&Consumer::new(&shared().plane).await)
}

fn old(kind: InClusterKind, name: &str, spec: Value) -> Value {
    json!({"apiVersion": "ipam.cluster.x-k8s.io/v1alpha1", "kind": kind.name(), "metadata": {"name": name}, "spec": spec})
}

/// The conversion of a spec with only a subnet: the derived fields are filled in, as in the Go
/// provider.
async fn create_old(client: &ApiClient, kind: InClusterKind, name: &str, spec: Value) -> Value {
    let pools = client.path(kind, "v1alpha1", "");
    let pool = old(kind, name, spec);
    client.call("POST", &pools, JSON, &pool).await.into_object()
}

fn filled(subnet: &str) -> Value {
    json!({"subnet": format!("{subnet}.0/24"), "start": format!("{subnet}.1"), "end": format!("{subnet}.254"),
           "prefix": 24})
}

/// A spec with fields that only the stored version has.
fn rich() -> Value {
    json!({"addresses": ["10.41.0.10-10.41.0.99", "10.41.0.200"], "prefix": 24, "gateway": "10.41.0.1",
           "excludedAddresses": ["10.41.0.50"], "addressReuseGracePeriodSeconds": 60,
           "allocateReservedIPAddresses": true, "network": unique("lab")})
}

/// The same spec in the old version.
fn poor() -> Value {
    json!({"addresses": ["10.41.0.10-10.41.0.99", "10.41.0.200"], "prefix": 24, "gateway": "10.41.0.1"})
}

#[tokio::test]
async fn pool_created_in_v1alpha1_is_served_in_both_versions() {
    let client = client().await;
    for kind in KINDS {
        let name = unique("old");
        let spec = json!({"subnet": "10.40.0.0/24", "gateway": "10.40.0.1"});
        let made = create_old(&client, kind, &name, spec).await;
        let mut spec = filled("10.40.0");
        spec["gateway"] = json!("10.40.0.1");
        assert_eq!(made["spec"], spec);
        let new = client.get(&client.path(kind, "v1alpha2", &name)).await;
        let expected =
            json!({"addresses": ["10.40.0.1-10.40.0.254"], "prefix": 24, "gateway": "10.40.0.1"});
        assert_eq!(new["spec"], expected);
        assert_eq!(
            client.get(&client.path(kind, "v1alpha1", &name)).await["spec"],
            spec
        );
        // The provider serves it like any other pool, and both versions show its counts.
        for version in ["v1alpha1", "v1alpha2"] {
            let counts = eventually("the pool has counts", || async {
                let pool = client.get(&client.path(kind, version, &name)).await;
                pool["status"]["ipAddresses"]
                    .is_object()
                    .then(|| pool["status"]["ipAddresses"].clone())
            })
            .await;
            assert_eq!(
                counts,
                json!({"total": 253, "free": 253, "used": 0, "outOfRange": 0})
            );
        }
    }
}

#[tokio::test]
async fn pool_is_updated_and_deleted_in_v1alpha1() {
    let client = client().await;
    for kind in KINDS {
        let name = unique("old");
        let path = client.path(kind, "v1alpha1", &name);
        let spec = json!({"start": "10.40.1.10", "end": "10.40.1.20", "prefix": 24});
        create_old(&client, kind, &name, spec).await;
        let change = json!({"spec": {"end": "10.40.1.30", "gateway": "10.40.1.1"}});
        let changed = client
            .call("PATCH", &path, MERGE, &change)
            .await
            .into_object();
        let expected = json!({"start": "10.40.1.10", "end": "10.40.1.30", "prefix": 24, "gateway": "10.40.1.1"});
        assert_eq!(changed["spec"], expected);
        let new = client.get(&client.path(kind, "v1alpha2", &name)).await;
        assert_eq!(new["spec"]["addresses"], json!(["10.40.1.10-10.40.1.30"]));
        // A change in the stored version takes precedence over the old value.
        let other = json!({"spec": {"addresses": ["10.40.1.40"]}});
        client.patch(kind, &name, &other).await.into_object();
        assert_eq!(
            client.get(&path).await["spec"]["addresses"],
            json!(["10.40.1.40"])
        );
        // Invalid values are denied in the old version, too.
        let bad = json!({"spec": {"addresses": ["nonsense"]}});
        client
            .call("PATCH", &path, MERGE, &bad)
            .await
            .assert_denied(422, "spec.addresses", "nonsense");
        assert!(
            client
                .call("DELETE", &path, JSON, &Value::Null)
                .await
                .is_ok()
        );
    }
}

/// The limits of the stored version apply to what an object of the old version is converted to.
#[tokio::test]
async fn v1alpha1_has_the_limits_of_the_stored_version() {
    let client = client().await;
    let addresses = |count: u32| -> Vec<String> {
        let first = u32::from(Ipv4Addr::new(10, 0, 0, 0));
        let all = (0..count).map(|number| Ipv4Addr::from(first + number).to_string());
        all.collect()
    };
    let create = async |spec: Value, annotations: Value| {
        let mut pool = old(IPPool, &unique("long"), spec);
        pool["metadata"]["annotations"] = annotations;
        let pools = client.path(IPPool, "v1alpha1", "");
        client.call("POST", &pools, JSON, &pool).await
    };
    let mut spec = json!({"addresses": addresses(4096), "prefix": 8});
    create(spec.clone(), json!({})).await.into_object();
    // The range becomes an entry.
    (spec["start"], spec["end"]) = (json!("10.9.0.1"), json!("10.9.0.9"));
    let limit = "at most 4096 are allowed";
    let denied = create(spec, json!({})).await;
    denied.assert_denied(422, "spec.addresses", limit);
    let stored = json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "InClusterIPPool", "status": {},
        "spec": {"excludedAddresses": addresses(5000)},
    });
    let spec = json!({"addresses": ["10.0.0.0/8"], "prefix": 8});
    let denied = create(spec, json!({ANNOTATION: stored.to_string()})).await;
    denied.assert_denied(422, "spec.excludedAddresses", limit);
}

#[tokio::test]
async fn v1alpha1_round_trip_loses_nothing() {
    let client = client().await;
    for kind in KINDS {
        let (name, spec) = (unique("rich"), rich());
        client.create(kind, &name, &spec).await.into_object();
        let (old_path, new_path) = (
            client.path(kind, "v1alpha1", &name),
            client.path(kind, "v1alpha2", &name),
        );
        // The provider writes its finalizer concurrently, so this may need a retry.
        eventually("the old client has replaced the pool", || async {
            let mut read = client.get(&old_path).await;
            assert_eq!(read["spec"], poor());
            read["spec"]["gateway"] = json!("10.41.0.2");
            read["metadata"]["labels"] = json!({"a": "b"});
            let response = client.call("PUT", &old_path, JSON, &read).await;
            (response.code != 409).then(|| response.into_object())
        })
        .await;
        let mut expected = spec;
        expected["gateway"] = json!("10.41.0.2");
        let pool = client.get(&new_path).await;
        assert_eq!(pool["spec"], expected);
        assert_eq!(pool["metadata"]["labels"], json!({"a": "b"}));
        assert_eq!(
            pool["metadata"]["annotations"][ANNOTATION],
            Value::Null,
            "the annotation is for the other version only"
        );
        // The same with a patch without the annotation.
        client
            .call(
                "PATCH",
                &old_path,
                MERGE,
                &json!({"spec": {"gateway": "10.41.0.3"}}),
            )
            .await
            .into_object();
        expected["gateway"] = json!("10.41.0.3");
        assert_eq!(client.get(&new_path).await["spec"], expected);
    }
}

/// The status decides to which network a pool belongs, so only those who may write it can.
#[tokio::test]
async fn v1alpha1_writes_keep_the_status_and_cannot_set_it() {
    let client = client().await;
    for kind in KINDS {
        let name = unique("forged");
        let (old_path, new_path) = (
            client.path(kind, "v1alpha1", &name),
            client.path(kind, "v1alpha2", &name),
        );
        let status =
            json!({"observedGeneration": 1, "network": {"name": "lab", "phase": "Member"}});
        let data = json!({"apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": kind.name(), "spec": {},
                          "status": status});
        let mut pool = old(
            kind,
            &name,
            json!({"addresses": ["10.41.2.1"], "prefix": 24}),
        );
        pool["metadata"]["annotations"] = json!({ANNOTATION: data.to_string()});
        pool["status"] = status;
        client
            .call("POST", &client.path(kind, "v1alpha1", ""), JSON, &pool)
            .await
            .into_object();
        let read = async || client.get(&new_path).await["status"].clone();
        assert_eq!(read().await["network"], Value::Null);
        let written = eventually("the pool has conditions", || async {
            let status = read().await;
            (!status["conditions"].is_null()).then_some(status)
        })
        .await;
        let change = json!({"metadata": {"labels": {"a": "b"}, "annotations": {ANNOTATION: data.to_string()}},
                            "status": {"network": {"name": "lab", "phase": "Member"}}});
        client
            .call("PATCH", &old_path, MERGE, &change)
            .await
            .into_object();
        assert_eq!(read().await, written);
    }
}

/// A write that would remove fields fails, also if there is no room for another annotation.
#[tokio::test]
async fn v1alpha1_write_removes_no_field_that_it_cannot_keep() {
    let client = client().await;
    for size in [200_000, 262_000] {
        let name = unique("full");
        let mut pool = client.pool(IPPool, &name, &rich());
        pool["metadata"]["annotations"] = json!({"notes": "x".repeat(size)});
        client
            .call("POST", &client.path(IPPool, "v1alpha2", ""), JSON, &pool)
            .await
            .into_object();
        let label = json!({"metadata": {"labels": {"a": "b"}}});
        let path = client.path(IPPool, "v1alpha1", &name);
        // On a busy machine the answer to a large write can be late.
        let response = eventually("the write is answered", async || {
            let response = client.call("PATCH", &path, MERGE, &label).await;
            (response.code != 504).then_some(response)
        })
        .await;
        assert_eq!(response.is_ok(), size == 200_000, "{response:?}");
        let stored = client.get(&client.path(IPPool, "v1alpha2", &name)).await;
        assert_eq!(stored["spec"], pool["spec"], "{size}");
    }
}

#[tokio::test]
async fn list_of_pools_is_readable_in_both_versions() {
    let (client, rich) = (client().await, rich());
    create_old(&client, IPPool, "old", json!({"subnet": "10.42.0.0/24"})).await;
    client.create(IPPool, "new", &rich).await.into_object();
    let of_subnet = json!({"addresses": ["10.42.0.1-10.42.0.254"], "prefix": 24});
    for (version, new, old) in [
        ("v1alpha1", poor(), filled("10.42.0")),
        ("v1alpha2", rich, of_subnet),
    ] {
        let list = client.get(&client.path(IPPool, version, "")).await;
        let items = list["items"].as_array().expect("it is a list").iter();
        let shown =
            items.map(|item| json!([item["apiVersion"], item["metadata"]["name"], item["spec"]]));
        let api = format!("ipam.cluster.x-k8s.io/{version}");
        let expected = [json!([api, "new", new]), json!([api, "old", old])];
        assert_eq!(shown.collect::<Vec<_>>(), expected);
    }
}

/// Asserts that pools can be written and read in the old version.
async fn assert_is_converted(client: &ApiClient, name: &str) {
    let spec = json!({"subnet": "10.43.0.0/24"});
    create_old(client, IPPool, name, spec).await;
    assert_eq!(
        client.get(&client.path(IPPool, "v1alpha1", name)).await["spec"],
        filled("10.43.0")
    );
    let list = client.get(&client.path(IPPool, "v1alpha1", "")).await;
    assert!(
        list["items"]
            .as_array()
            .is_some_and(|items| !items.is_empty())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn conversion_needs_no_lease_and_no_synced_cache() {
    let plane = ControlPlane::new();
    let webhooks = Webhooks::new(&plane);
    let own = webhooks.flags();
    let consumer = Consumer::new(&plane).await;
    let client = ApiClient::new(&consumer);
    {
        // Another client holds the lease and does nothing.
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
        webhooks.register(&plane);
        assert_is_converted(&client, "waiting").await;
        assert!(
            !manager.log().contains("acquired leadership lease"),
            "{}",
            manager.log()
        );
    }
    // A manager with permissions only for leases and CRDs never syncs its caches.
    plane.kubectl(&["-n", NAMESPACE, "create", "serviceaccount", "nobody"]);
    let kubeconfig = plane.kubeconfig_of_account(NAMESPACE, "nobody");
    let flags: Vec<&str> = own.iter().map(String::as_str).collect();
    let manager = Manager::launch(&plane, &kubeconfig, &flags).may_lack_permissions();
    manager.wait_for_log("certificate loaded");
    // It serves the webhooks shortly after this message.
    let probe = old(IPPool, "probe", json!({"subnet": "10.43.0.0/24"}));
    let path = format!("{}?dryRun=All", client.path(IPPool, "v1alpha1", ""));
    eventually("a pool is converted", || async {
        client
            .call("POST", &path, JSON, &probe)
            .await
            .is_ok()
            .then_some(())
    })
    .await;
    assert_is_converted(&client, "unready").await;
    assert!(!manager.is_ready());
    // Reviews that depend on the addresses in use cannot be decided: the client has to retry.
    let shrink = json!({"spec": {"addresses": ["10.43.0.1"]}});
    client
        .dry_run_patch(IPPool, "unready", &shrink)
        .await
        .assert_denied(503, "", "still being listed");
    let grow = json!({"spec": {"addresses": ["10.43.0.0/24"]}});
    client
        .dry_run_patch(IPPool, "unready", &grow)
        .await
        .into_object();
}
