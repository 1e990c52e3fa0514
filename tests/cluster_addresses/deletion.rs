//! When the addresses of Clusters are released.

use capi_ipam_api::{conditions, names};
use support::policy::{DENIED, Policy};
use support::prelude::*;
use support::wait::EVENT_TIMEOUT;
use xtask::rbac::{CLUSTER_ADDRESSING_RULES, Rule};

use crate::scene::{ANNOTATION, AT_ONCE, NEVER, Scene, condition, endpoint, item, pods};

/// The finalizer of somebody who deletes the machines of a Cluster.
const MACHINES: &str = "example.com/machines";

fn finalize(scene: &Scene, finalizers: Value) {
    let finalizers = json!({"metadata": {"finalizers": finalizers}});
    scene.patch_cluster("alpha", finalizers);
}

async fn claim_is_gone(scene: &Scene, name: &str) {
    let claims = scene.claims();
    until(&format!("claim {name} is gone"), async || {
        Some(answered(claims.get(name).await)?.is_none())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_are_kept_until_the_cluster_is_gone() {
    let scene = Scene::start().await;
    scene.create_addressing(json!([endpoint(), pods()])).await;
    scene.create_selected_cluster("alpha", json!({})).await;
    scene.wait_for_cluster("alpha").await;
    finalize(&scene, json!([MACHINES]));
    scene.delete("cluster", "alpha");
    // Somebody deletes a claim by hand, or its namespace.
    scene.delete("ipaddressclaim", "alpha-endpoint");
    scene.create_claim("machine", "vips").await;
    scene.assert_address("machine", "10.0.0.11").await;
    consistently("the address is kept", async || {
        let addresses = scene.allocated_addresses().await;
        addresses.get("alpha-endpoint").map(String::as_str) == Some("10.0.0.10")
    })
    .await;
    finalize(&scene, json!(null));
    for claim in ["alpha-endpoint", "alpha-pods"] {
        claim_is_gone(&scene, claim).await;
    }
    scene.create_claim("next", "vips").await;
    scene.assert_address("next", "10.0.0.10").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn addressing_is_kept_until_its_clusters_are_gone() {
    let scene = Scene::start().await;
    scene.create_addressing(json!([endpoint()])).await;
    scene.create_selected_cluster("alpha", json!({})).await;
    scene.wait_for_cluster("alpha").await;
    scene.delete("clusteraddressing", "bonn");
    scene
        .wait_for_status("it waits", |status| {
            condition(status, conditions::READY).1 == conditions::DELETING
        })
        .await;
    // A further Cluster gets no address any more.
    scene.create_selected_cluster("beta", json!({})).await;
    scene.delete("cluster", "alpha");
    claim_is_gone(&scene, "alpha-endpoint").await;
    let addressings = scene.addressings();
    until("the ClusterAddressing is gone", async || {
        Some(answered(addressings.get("bonn").await)?.is_none())
    })
    .await;
    let beta = scene.cluster("beta").await;
    assert_eq!(beta["spec"]["controlPlaneEndpoint"], Value::Null);
    assert_eq!(scene.allocated_addresses().await, BTreeMap::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn next_cluster_of_the_name_gets_addresses_afterwards() {
    let scene = Scene::start().await;
    scene.create_addressing(json!([endpoint()])).await;
    scene.create_selected_cluster("alpha", json!({})).await;
    let first = scene.wait_for_cluster("alpha").await;
    scene.delete("cluster", "alpha");
    let clusters = scene.clusters();
    until("the Cluster is gone", async || {
        Some(answered(clusters.get("alpha").await)?.is_none())
    })
    .await;
    scene.create_selected_cluster("alpha", json!({})).await;
    let second = scene.wait_for_cluster("alpha").await;
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
    let claim = scene.the_claim("alpha-endpoint").await;
    assert_eq!(
        json!(claim.owner_references()[0].uid),
        second["metadata"]["uid"]
    );
    assert!(claim.metadata.deletion_timestamp.is_none());
}

/// The Cluster `alpha` as it is created again, by a restore or by `kubectl replace --force`, and
/// the uid of the first one.
async fn manifest_of_alpha(scene: &Scene) -> (Value, Value) {
    let mut again = scene.wait_for_cluster("alpha").await;
    let metadata = &again["metadata"];
    let first = metadata["uid"].clone();
    again["metadata"] = json!({
        "name": "alpha", "namespace": metadata["namespace"], "labels": metadata["labels"],
        "annotations": metadata["annotations"],
    });
    (again, first)
}

/// Creates the Cluster `alpha` when the first one is gone.
async fn create_again(scene: &Scene, again: Value) {
    let clusters = scene.clusters();
    until("the Cluster is gone", async || {
        Some(answered(clusters.get("alpha").await)?.is_none())
    })
    .await;
    let created = create(&clusters, &object(again)).await;
    created.expect("the Cluster can be created again");
}

/// An item that is delivered as a ConfigMap.
fn load_balancers() -> Value {
    let to = json!([{"resource": "MetalLB"}]);
    item("lb", "InClusterPrefixPool", "pods", to)
}

/// Asserts that the endpoint of `alpha` is that of its claim, and not allocated to others.
async fn assert_endpoint_is_kept(scene: &Scene) {
    let cluster = scene.wait_for_cluster("alpha").await;
    let host = &cluster["spec"]["controlPlaneEndpoint"]["host"];
    assert_eq!(*host, json!("10.0.0.10"));
    let record = cluster["metadata"]["annotations"][ANNOTATION].to_string();
    assert_contains(&record, "10.0.0.10");
    scene.create_claim("machine", "vips").await;
    scene.assert_address("machine", "10.0.0.11").await;
    let addresses = scene.allocated_addresses().await;
    assert_eq!(addresses["alpha-endpoint"], "10.0.0.10");
}

/// `kubectl replace --force` with a manifest that has the endpoint.
#[tokio::test(flavor = "multi_thread")]
async fn cluster_that_is_created_again_without_the_record_keeps_its_endpoint() {
    let scene = Scene::with_options(Options::default(), &AT_ONCE).await;
    scene.create_addressing(json!([endpoint()])).await;
    scene.create_selected_cluster("alpha", json!({})).await;
    let (mut again, first) = manifest_of_alpha(&scene).await;
    again["metadata"]["annotations"].take();
    scene.delete("cluster", "alpha");
    create_again(&scene, again).await;
    wait_for_other_owner(&scene, &first).await;
    assert_endpoint_is_kept(&scene).await;
}

/// A restore creates the IPAddress last.
#[tokio::test(flavor = "multi_thread")]
async fn claim_whose_address_does_not_exist_is_kept_for_the_next_cluster() {
    let scene = Scene::with_options(Options::default(), &AT_ONCE).await;
    scene.create_addressing(json!([endpoint()])).await;
    scene.create_selected_cluster("alpha", json!({})).await;
    let (mut again, first) = manifest_of_alpha(&scene).await;
    again["metadata"]["annotations"].take();
    scene
        .force_delete(&scene.addresses(), "alpha-endpoint")
        .await;
    scene.delete("cluster", "alpha");
    create_again(&scene, again).await;
    // Longer than the grace period.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let claim = scene.the_claim("alpha-endpoint").await;
    assert!(claim.metadata.deletion_timestamp.is_none());
    scene
        .create_address("alpha-endpoint", "vips", "10.0.0.10")
        .await;
    wait_for_other_owner(&scene, &first).await;
    assert_endpoint_is_kept(&scene).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_claim_is_kept_while_the_cluster_has_its_address_without_the_record() {
    let scene = Scene::start().await;
    scene.create_addressing(json!([endpoint()])).await;
    scene.create_selected_cluster("alpha", json!({})).await;
    scene.wait_for_cluster("alpha").await;
    scene.delete("ipaddressclaim", "alpha-endpoint");
    let none = json!({"metadata": {"annotations": {ANNOTATION: null}}});
    scene.patch_cluster("alpha", none);
    assert_endpoint_is_kept(&scene).await;
}

/// The metadata of a claim that the webhook has created.
fn metadata_of_claim() -> Value {
    json!({
        "labels": {"cluster.x-k8s.io/cluster-name": "alpha", (names::CLUSTER_ADDRESSING_LABEL): "bonn"},
        "finalizers": [names::PROTECT_CLUSTER_ADDRESS],
    })
}

/// Creates the Cluster `alpha` with a record of addresses.
async fn create_with_record(scene: &Scene, record: Value, spec: Value) {
    let mut cluster: Value = scene.selected_cluster("alpha", spec);
    cluster["metadata"]["annotations"] = json!({ANNOTATION: record.to_string()});
    let created = create(&scene.clusters(), &object(cluster)).await;
    created.expect("the Cluster can be created");
}

/// A backup has the address that another Cluster has meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn restored_cluster_whose_claim_has_another_address_is_reported() {
    let scene = Scene::start().await;
    let record = json!({
        "item:endpoint": "10.0.0.50", "spec.controlPlaneEndpoint.host": "10.0.0.50",
    });
    let spec = json!({"controlPlaneEndpoint": {"host": "10.0.0.50", "port": 6443}});
    create_with_record(&scene, record, spec).await;
    scene
        .bind_with_metadata("alpha-endpoint", "vips", metadata_of_claim())
        .await;
    scene.create_addressing(json!([endpoint()])).await;
    let message = scene.wait_for_problem("ClaimMissing").await;
    assert_contains(&message, "alpha-endpoint");
    scene.assert_address("alpha-endpoint", "10.0.0.10").await;
}

/// A record of the endpoint and of the prefix of the load balancers, and the fields with it.
fn record_of_both() -> (Value, Value) {
    let record = json!({
        "item:endpoint": "10.0.0.10", "item:lb": "10.128.0.0/20",
        "spec.controlPlaneEndpoint.host": "10.0.0.10",
    });
    let spec = json!({"controlPlaneEndpoint": {"host": "10.0.0.10", "port": 6443}});
    (record, spec)
}

/// Creates the claim of the load balancers, as a restore does.
async fn restore_load_balancers(scene: &Scene, metadata: Value) {
    let kind = InClusterKind::PrefixPool.name();
    scene
        .create_claim_with("alpha-lb", kind, "pods", metadata)
        .await;
    scene.assert_address("alpha-lb", "10.128.0.0").await;
}

async fn wait_for_owner(scene: &Scene, claim: &str) {
    until("the Cluster owns the claim", async || {
        let claim = scene.the_claim(claim).await;
        Some(!claim.owner_references().is_empty())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn config_maps_are_restored_when_the_last_claim_is_bound() {
    let scene = Scene::start().await;
    let (record, spec) = record_of_both();
    create_with_record(&scene, record, spec).await;
    scene
        .create_addressing(json!([endpoint(), load_balancers()]))
        .await;
    scene
        .bind_with_metadata("alpha-endpoint", "vips", metadata_of_claim())
        .await;
    wait_for_owner(&scene, "alpha-endpoint").await;
    restore_load_balancers(&scene, metadata_of_claim()).await;
    scene.wait_for_config_map("alpha-lb-metallb").await;
    wait_for_owner(&scene, "alpha-lb").await;
}

/// The garbage collection has not deleted the ConfigMap of the earlier Cluster yet.
#[tokio::test(flavor = "multi_thread")]
async fn claims_are_protected_before_config_maps_are_restored() {
    let scene = Scene::with_options(Options::default(), &AT_ONCE).await;
    let config_map = format!("--namespace={}", scene.namespace);
    scene
        .plane
        .kubectl(&["create", "configmap", "alpha-lb-metallb", &config_map]);
    let (record, spec) = record_of_both();
    create_with_record(&scene, record, spec).await;
    let mut metadata = metadata_of_claim();
    metadata["finalizers"].take();
    scene
        .bind_with_metadata("alpha-endpoint", "vips", metadata.clone())
        .await;
    restore_load_balancers(&scene, metadata).await;
    scene
        .create_addressing(json!([endpoint(), load_balancers()]))
        .await;
    let message = scene.wait_for_problem("DeliveryFailed").await;
    assert_contains(&message, "ConfigMap alpha-lb-metallb exists");
    for claim in ["alpha-endpoint", "alpha-lb"] {
        scene.delete("ipaddressclaim", claim);
    }
    assert_endpoint_is_kept(&scene).await;
    scene.delete("configmap", "alpha-lb-metallb");
    scene.wait_for_config_map("alpha-lb-metallb").await;
    for claim in ["alpha-endpoint", "alpha-lb"] {
        wait_for_owner(&scene, claim).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn delivery_is_completed_while_the_addressing_is_deleted() {
    let scene = Scene::start().await;
    let record = json!({"item:lb": "10.128.0.0/20", "unfinished": "at creation"});
    create_with_record(&scene, record, json!({})).await;
    let kind = InClusterKind::PrefixPool.name();
    scene
        .create_claim_with("alpha-lb", kind, "pods", metadata_of_claim())
        .await;
    scene.assert_address("alpha-lb", "10.128.0.0").await;
    scene.patch_cluster("alpha", json!({"spec": {"paused": true}}));
    scene.create_addressing(json!([load_balancers()])).await;
    scene.wait_for_problem("Paused").await;
    scene.delete("clusteraddressing", "bonn");
    scene.patch_cluster("alpha", json!({"spec": {"paused": null}}));
    scene.wait_for_config_map("alpha-lb-metallb").await;
    until("the record is complete", async || {
        let cluster = scene.cluster("alpha").await;
        let record = cluster["metadata"]["annotations"][ANNOTATION].to_string();
        Some(!record.contains("unfinished"))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_that_cannot_be_deleted_does_not_keep_others() {
    let scene = Scene::with_options(Options::default(), &AT_ONCE).await;
    scene.create_addressing(json!([endpoint()])).await;
    for cluster in ["alpha", "beta"] {
        scene.create_selected_cluster(cluster, json!({})).await;
        scene.wait_for_cluster(cluster).await;
    }
    let is_other = "oldObject.metadata.name != 'alpha-endpoint'";
    let denied = ["DELETE", "ipaddressclaims"];
    let policy = Policy::deny(&scene.plane, &scene.namespace, denied, is_other);
    let namespace = format!("--namespace={}", scene.namespace);
    let delete = [
        "delete",
        "ipaddressclaim",
        "alpha-endpoint",
        "--dry-run=server",
        &namespace,
    ];
    eventually("the deletion is denied", async || {
        scene
            .plane
            .try_kubectl(&delete)
            .err()
            .filter(|error| error.contains(DENIED))
    })
    .await;
    for cluster in ["alpha", "beta"] {
        scene.delete("cluster", cluster);
    }
    claim_is_gone(&scene, "beta-endpoint").await;
    scene
        .wait_for_status("the status is current", |status| status.clusters == 0)
        .await;
    scene.assert_address("alpha-endpoint", "10.0.0.10").await;
    policy.remove();
    claim_is_gone(&scene, "alpha-endpoint").await;
}

async fn wait_for_other_owner(scene: &Scene, first: &Value) {
    until("the new Cluster owns the claim", async || {
        let claim = scene.the_claim("alpha-endpoint").await;
        Some(json!(claim.owner_references()[0].uid) != *first)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_that_is_created_again_keeps_its_addresses() {
    let scene = Scene::with_options(Options::default(), &NEVER).await;
    scene
        .create_addressing(json!([endpoint(), load_balancers()]))
        .await;
    scene.create_selected_cluster("alpha", json!({})).await;
    let (again, first) = manifest_of_alpha(&scene).await;
    scene.delete("cluster", "alpha");
    // As the garbage collection does.
    scene.delete("configmap", "alpha-lb-metallb");
    create_again(&scene, again).await;
    wait_for_other_owner(&scene, &first).await;
    scene.assert_address("alpha-endpoint", "10.0.0.10").await;
    scene.wait_for_config_map("alpha-lb-metallb").await;
    scene
        .wait_for_status("it has no problem", |status| {
            status.ready == 1 && status.problems.is_empty()
        })
        .await;
}

/// The garbage collection deletes the claim before the Cluster exists again.
#[tokio::test(flavor = "multi_thread")]
async fn terminating_claim_keeps_its_address_for_the_next_cluster() {
    let scene = Scene::with_flags(&NEVER).await;
    scene.create_addressing(json!([endpoint()])).await;
    scene.create_selected_cluster("alpha", json!({})).await;
    let (again, first) = manifest_of_alpha(&scene).await;
    scene.delete("cluster", "alpha");
    until("the claim is being deleted", async || {
        let claim = scene.the_claim("alpha-endpoint").await;
        Some(claim.metadata.deletion_timestamp.is_some())
    })
    .await;
    create(&scene.clusters(), &object(again))
        .await
        .expect("the Cluster can be created again");
    wait_for_other_owner(&scene, &first).await;
    consistently("the address is kept", async || {
        let addresses = scene.allocated_addresses().await;
        addresses.get("alpha-endpoint").map(String::as_str) == Some("10.0.0.10")
    })
    .await;
}

/// A pool can limit how long a claim may be terminating: not that of a Cluster that exists.
#[tokio::test(flavor = "multi_thread")]
async fn time_limit_of_a_pool_does_not_apply_to_clusters() {
    let scene = Scene::start().await;
    let limit = json!({"terminating": {"afterSeconds": 60}});
    scene
        .modify_pool("vips", |spec| spec["reclaim"] = limit.clone())
        .await;
    scene.create_addressing(json!([endpoint()])).await;
    scene.create_selected_cluster("alpha", json!({})).await;
    scene.wait_for_cluster("alpha").await;
    let machine = json!({"finalizers": [MACHINES]});
    scene.bind_with_metadata("machine", "vips", machine).await;
    for claim in ["machine", "alpha-endpoint"] {
        scene.delete("ipaddressclaim", claim);
    }
    let text = scene.wait_until_unready("machine", "Deleting").await;
    assert_contains(&text, "(or at ");
    let text = scene.wait_until_unready("alpha-endpoint", "Deleting").await;
    assert!(!text.contains("(or at "), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn claim_that_is_deleted_before_the_delivery_is_replaced() {
    let scene = Scene::start().await;
    let services = scene.create_exhausted_item().await;
    scene.create_addressing(json!([endpoint(), services])).await;
    scene.create_selected_cluster("alpha", json!({})).await;
    scene.assert_address("alpha-endpoint", "10.0.0.10").await;
    let first = scene.the_claim("alpha-endpoint").await.uid();
    scene.delete("ipaddressclaim", "alpha-endpoint");
    let claims = scene.claims();
    until("another claim is created", async || {
        let found = answered(claims.get("alpha-endpoint").await)?;
        Some(found.is_some_and(|found| found.uid() != first))
    })
    .await;
    scene.release("taken").await;
    let cluster = scene.wait_for_cluster("alpha").await;
    let addresses = scene.allocated_addresses().await;
    let host = &cluster["spec"]["controlPlaneEndpoint"]["host"];
    assert_eq!(*host, json!(addresses["alpha-endpoint"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn value_of_the_user_after_the_claim_releases_it() {
    let scene = Scene::start().await;
    let services = scene.create_exhausted_item().await;
    scene.create_addressing(json!([endpoint(), services])).await;
    scene.create_selected_cluster("alpha", json!({})).await;
    scene.assert_address("alpha-endpoint", "10.0.0.10").await;
    let own = json!({"spec": {"controlPlaneEndpoint": {"host": "10.9.9.9", "port": 443}}});
    scene.patch_cluster("alpha", own);
    scene.release("taken").await;
    let cluster = scene.wait_for_cluster("alpha").await;
    assert_eq!(cluster["spec"]["controlPlaneEndpoint"]["host"], "10.9.9.9");
    let blocks = &cluster["spec"]["clusterNetwork"]["services"]["cidrBlocks"];
    assert_eq!(*blocks, json!(["10.64.0.0/20"]));
    claim_is_gone(&scene, "alpha-endpoint").await;
}

/// Somebody removes the finalizer of the ClusterAddressing, as `clusterctl move` does.
#[tokio::test(flavor = "multi_thread")]
async fn claims_without_their_addressing_are_released() {
    let scene = Scene::start().await;
    scene.create_addressing(json!([endpoint()])).await;
    scene.create_selected_cluster("alpha", json!({})).await;
    scene.wait_for_cluster("alpha").await;
    scene.delete("clusteraddressing", "bonn");
    let addressings = scene.addressings();
    scene.set_finalizers(&addressings, "bonn", &[]).await;
    until("the ClusterAddressing is gone", async || {
        Some(answered(addressings.get("bonn").await)?.is_none())
    })
    .await;
    scene.assert_address("alpha-endpoint", "10.0.0.10").await;
    scene.delete("cluster", "alpha");
    claim_is_gone(&scene, "alpha-endpoint").await;
}

/// Nobody deletes the claims of a Cluster that is gone: there is no garbage collection.
#[tokio::test(flavor = "multi_thread")]
async fn component_grants_what_a_life_of_a_cluster_needs() {
    let options = Options {
        audit: true,
        ..Options::default()
    };
    let scene = Scene::with_options(options, &AT_ONCE).await;
    let values = item(
        "lb",
        "InClusterPrefixPool",
        "pods",
        json!([{"resource": "Values"}]),
    );
    scene.create_addressing(json!([endpoint(), values])).await;
    scene.create_selected_cluster("alpha", json!({})).await;
    scene.wait_for_cluster("alpha").await;
    // It exists already, and is read.
    let annotation = json!({"metadata": {"annotations": {ANNOTATION: null}}});
    scene.patch_cluster("alpha", annotation);
    scene.wait_for_cluster("alpha").await;
    scene.delete("cluster", "alpha");
    scene.delete("clusteraddressing", "bonn");
    let addressings = scene.addressings();
    until_within(EVENT_TIMEOUT, "the ClusterAddressing is gone", async || {
        Some(answered(addressings.get("bonn").await)?.is_none())
    })
    .await;
    assert_eq!(scene.allocated_addresses().await, BTreeMap::new());
    let requested: BTreeSet<(String, String)> = scene
        .plane
        .requested_access()
        .into_iter()
        .map(|request| (request.resource, request.verb))
        .collect();
    // The bundle of the webhook is written with self-managed certificates only.
    let is_tested_here = |rule: &&Rule| rule.group != "admissionregistration.k8s.io";
    for rule in CLUSTER_ADDRESSING_RULES.iter().filter(is_tested_here) {
        for resource in rule.resources {
            for verb in rule.verbs {
                let permission = (resource.to_string(), verb.to_string());
                // With streaming lists a watch needs no list.
                let is_used = *verb == "list" || requested.contains(&permission);
                assert!(is_used, "{permission:?} is not needed: {requested:?}");
            }
        }
    }
}
