//! Which addresses Clusters get, and when.

use capi_ipam_api::conditions;
use capi_ipam_api::names::{
    CLUSTER_ADDRESSING_LABEL, MEMBER_POOL_ANNOTATION, PROTECT_CLUSTER_ADDRESS,
};
use k8s_openapi::api::core::v1::ConfigMap;
use support::prelude::*;

use crate::scene::{ANNOTATION, Scene, condition, endpoint, item, pods};

#[tokio::test(flavor = "multi_thread")]
async fn cluster_gets_all_its_addresses() {
    let scene = Scene::start().await;
    let to = json!([{"resource": "MetalLB"}]);
    let load_balancers = item("lb", "InClusterPrefixPool", "pods", to);
    scene
        .create_addressing(json!([endpoint(), pods(), load_balancers]))
        .await;
    scene.create_selected_cluster("alpha", json!({})).await;
    let cluster = scene.wait_for_cluster("alpha").await;
    let spec = &cluster["spec"];
    assert_eq!(
        spec["controlPlaneEndpoint"],
        json!({"host": "10.0.0.10", "port": 6443})
    );
    let blocks = &spec["clusterNetwork"]["pods"]["cidrBlocks"];
    let allocated = scene.allocated_addresses().await;
    assert_eq!(*blocks, json!([format!("{}/20", allocated["alpha-pods"])]));

    let claim = scene.the_claim("alpha-endpoint").await;
    assert_eq!(claim.cluster_name(), Some("alpha"));
    let owner = &claim.owner_references()[0];
    assert_eq!(json!(owner.uid), cluster["metadata"]["uid"]);
    assert!(
        claim
            .finalizers()
            .iter()
            .any(|it| it == PROTECT_CLUSTER_ADDRESS)
    );

    let api = Api::namespaced(scene.consumer.client.clone(), &scene.consumer.namespace);
    let config_maps = ResourceClient::<ConfigMap>::new(api, &());
    let found = config_maps.get("alpha-lb-metallb").await;
    let found = found.expect("ConfigMaps can be read").expect("it exists");
    let manifest = &found.data.expect("it has data")["manifest.yaml"];
    let manifest: Value = serde_json::from_str(manifest).expect("it is JSON");
    let block = format!("{}/20", allocated["alpha-lb"]);
    assert_eq!(manifest["spec"]["addresses"], json!([block]));

    let status = scene
        .wait_for_status("the Cluster is counted", |status| status.ready == 1)
        .await;
    assert_eq!((status.clusters, status.problems.len()), (1, 0));
    let ready = condition(&status, conditions::READY);
    assert_eq!(ready, ("True".to_owned(), "AddressesReady".to_owned()));
    let has_event = async || {
        let events = scene.events("alpha").await;
        Some(
            events
                .iter()
                .any(|(_, reason, _)| reason == "AddressesDelivered"),
        )
    };
    until("an event says so", has_event).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_while_a_pool_is_empty() {
    let scene = Scene::start().await;
    let services = scene.create_exhausted_item().await;
    scene.create_addressing(json!([endpoint(), services])).await;
    scene.create_selected_cluster("alpha", json!({})).await;
    let message = scene.wait_for_problem("PoolExhausted").await;
    assert_contains(&message, "IPAddressClaim alpha-services: ");
    let status = scene
        .wait_for_status("it is not ready", |status| !status.conditions.is_empty())
        .await;
    let ready = condition(&status, conditions::READY);
    assert_eq!(ready, ("False".to_owned(), "DeliveryFailed".to_owned()));
    // The address of the other item is bound, and kept for the Cluster.
    scene.assert_address("alpha-endpoint", "10.0.0.10").await;
    let spec = &scene.cluster("alpha").await["spec"];
    assert_eq!(spec["controlPlaneEndpoint"], Value::Null);
    scene.release("taken").await;
    let cluster = scene.wait_for_cluster("alpha").await;
    assert_eq!(cluster["spec"]["controlPlaneEndpoint"]["host"], "10.0.0.10");
    let blocks = &cluster["spec"]["clusterNetwork"]["services"]["cidrBlocks"];
    assert_eq!(*blocks, json!(["10.64.0.0/20"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn item_of_a_set_gets_an_address_of_a_pool_with_room() {
    let scene = Scene::start().await;
    scene.create_pool("one", "10.1.0.1").await;
    scene.bind_to("taken", "one", "10.1.0.1").await;
    let endpoint = scene.create_set(&["one", "vips"]).await;
    scene.create_addressing(json!([endpoint])).await;
    scene.create_selected_cluster("alpha", json!({})).await;
    let cluster = scene.wait_for_cluster("alpha").await;
    assert_eq!(cluster["spec"]["controlPlaneEndpoint"]["host"], "10.0.0.10");
    let address = scene.wait_for_ip_address("alpha-endpoint").await;
    let member = address.annotations().get(MEMBER_POOL_ANNOTATION);
    assert_eq!(member.map(String::as_str), Some("InClusterIPPool/vips"));
    // The claim is released with its Cluster.
    scene.delete("cluster", "alpha");
    let is_released = async || Some(scene.allocated_addresses().await.len() == 1);
    until("the address is released", is_released).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_empty_fields_of_selected_clusters_are_written() {
    let scene = Scene::start().await;
    scene.create_cluster("other", false).await;
    let own = json!({"controlPlaneEndpoint": {"host": "10.9.9.9", "port": 443}});
    scene.create_selected_cluster("own", own.clone()).await;
    let paused = json!({"paused": true});
    scene.create_selected_cluster("paused", paused).await;
    scene.create_addressing(json!([endpoint(), pods()])).await;
    // An existing Cluster keeps what its user has written.
    let cluster = scene.wait_for_cluster("own").await;
    assert_eq!(
        cluster["spec"]["controlPlaneEndpoint"],
        own["controlPlaneEndpoint"]
    );
    let claims = scene.claims();
    let all = retry_unanswered(|| claims.list()).await;
    let names: Vec<String> = all
        .expect("claims can be listed")
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    assert_eq!(names, ["own-pods"]);
    let message = scene.wait_for_problem("Paused").await;
    assert_eq!(message, "the Cluster is paused");
    scene.patch_cluster("paused", json!({"spec": {"paused": false}}));
    scene.wait_for_cluster("paused").await;
    // A Cluster is selected later.
    let label = json!({"metadata": {"labels": {"site": "bonn"}}});
    scene.patch_cluster("other", label);
    scene.wait_for_cluster("other").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_address_is_reported_and_kept() {
    let scene = Scene::start().await;
    scene.create_addressing(json!([endpoint(), pods()])).await;
    scene.create_selected_cluster("alpha", json!({})).await;
    scene.wait_for_cluster("alpha").await;
    let other = json!({"spec": {"controlPlaneEndpoint": {"host": "10.9.9.9"}}});
    scene.patch_cluster("alpha", other);
    let message = scene.wait_for_problem("AddressChanged").await;
    let expected =
        "spec.controlPlaneEndpoint is 10.9.9.9, not 10.0.0.10; the field is not changed back";
    assert_eq!(message, expected);
    let status = scene
        .wait_for_status("it is ready", |status| status.ready == 1)
        .await;
    assert_eq!(condition(&status, conditions::READY).0, "True");
    assert_eq!(condition(&status, conditions::DRIFTED).0, "True");
    let back = json!({"spec": {"controlPlaneEndpoint": {"host": "10.0.0.10"}}});
    scene.patch_cluster("alpha", back);
    scene
        .wait_for_status("the problem is gone", |status| status.problems.is_empty())
        .await;
    // What does not concern addresses causes no write.
    let version = scene.cluster("alpha").await["metadata"]["resourceVersion"].clone();
    consistently("the Cluster is not written", async || {
        scene.cluster("alpha").await["metadata"]["resourceVersion"] == version
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_clusters_get_different_addresses() {
    let scene = Scene::start().await;
    scene.create_addressing(json!([endpoint()])).await;
    let names = numbered("c", 40);
    let created = names
        .iter()
        .map(|name| scene.create_selected_cluster(name, json!({})));
    join_all(created).await;
    let mut hosts = BTreeSet::new();
    for name in &names {
        let cluster = scene.wait_for_cluster(name).await;
        hosts.insert(cluster["spec"]["controlPlaneEndpoint"]["host"].to_string());
    }
    assert_eq!(hosts.len(), names.len(), "{hosts:?}");
    scene
        .wait_for_status("all are counted", |status| {
            status.ready == 40 && status.clusters == 40
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_of_a_cluster_class_are_set() {
    let scene = Scene::start().await;
    let variable = |name: &str, path: Option<&str>, format: &str| json!({"variable": {"name": name, "path": path, "format": format}});
    let to = json!([
        variable("vip", None, "Address"),
        variable("network", Some("vip.cidr"), "CIDR")
    ]);
    let endpoint = item("endpoint", "InClusterIPPool", "vips", to);
    scene.create_addressing(json!([endpoint])).await;
    let topology = json!({"topology": {
        "classRef": {"name": "class"}, "version": "v1.34.0",
        "variables": [{"name": "network", "value": {"mtu": 1500}}, {"name": "size", "value": "large"}]}});
    scene.create_selected_cluster("alpha", topology).await;
    let cluster = scene.wait_for_cluster("alpha").await;
    let expected = json!([
        {"name": "network", "value": {"mtu": 1500, "vip": {"cidr": "10.0.0.10/24"}}},
        {"name": "size", "value": "large"},
        {"name": "vip", "value": "10.0.0.10"},
    ]);
    assert_eq!(cluster["spec"]["topology"]["variables"], expected);
    assert_eq!(cluster["spec"]["topology"]["classRef"]["name"], "class");
}

#[tokio::test(flavor = "multi_thread")]
async fn manager_works_without_the_permissions() {
    let plane = ControlPlane::new();
    let flags = ["--cluster-addressing"];
    let manager =
        Manager::launch(&plane, plane.provider_kubeconfig(), &flags).may_lack_permissions();
    manager.wait_until_ready();
    let consumer = Consumer::new(&plane).await;
    consumer.create_pool("vips", "10.0.0.10-10.0.0.99").await;
    consumer.bind_to("machine", "vips", "10.0.0.10").await;
    until("the API server refuses the watch", async || {
        Some(manager.was_forbidden())
    })
    .await;
    assert!(manager.is_ready(), "{}", manager.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn records_and_pools_of_others_are_reported() {
    let scene = Scene::start().await;
    scene.create_pool("other", "10.7.0.10").await;
    scene.create_selected_cluster("alpha", json!({})).await;
    let metadata = json!({"labels": {
        "cluster.x-k8s.io/cluster-name": "alpha", CLUSTER_ADDRESSING_LABEL: "bonn"}});
    scene
        .bind_with_metadata("alpha-endpoint", "other", metadata)
        .await;
    scene.create_addressing(json!([endpoint()])).await;
    let message = scene.wait_for_problem("ClaimNameInUse").await;
    assert_contains(&message, "it claims from InClusterIPPool other");
    scene.delete("ipaddressclaim", "alpha-endpoint");
    let cluster = scene.wait_for_cluster("alpha").await;
    assert_eq!(cluster["spec"]["controlPlaneEndpoint"]["host"], "10.0.0.10");
    let record = json!({"metadata": {"annotations": {ANNOTATION: "{}"}}});
    scene.patch_cluster("alpha", record);
    let message = scene.wait_for_problem("DeliveryFailed").await;
    assert_contains(&message, ANNOTATION);
    let none = json!({"metadata": {"annotations": {ANNOTATION: null}}});
    scene.patch_cluster("alpha", none);
    scene
        .wait_for_status("it is written again", |status| status.ready == 1)
        .await;
}

/// The claim is not one that the manager watches for Clusters.
#[tokio::test(flavor = "multi_thread")]
async fn claim_of_a_user_with_the_name_of_an_item_can_be_deleted() {
    let scene = Scene::start().await;
    scene.create_addressing(json!([endpoint()])).await;
    scene.create_claim("alpha-endpoint", "vips").await;
    scene.create_selected_cluster("alpha", json!({})).await;
    scene.wait_for_problem("ClaimNameInUse").await;
    scene.release("alpha-endpoint").await;
    scene.wait_for_cluster("alpha").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn manager_works_without_the_definition() {
    let plane = ControlPlane::new();
    plane.permit("cluster-addressing");
    let definition = "clusteraddressings.ipam.cluster.x-k8s.io";
    let saved = plane.kubectl(&["get", "crd", definition, "-o=json"]);
    plane.kubectl(&["delete", "crd", definition]);
    let manager = Manager::start(&plane, &["--cluster-addressing"]);
    manager.wait_for_log(definition);
    let consumer = Consumer::new(&plane).await;
    consumer.create_pool("vips", "10.0.0.10-10.0.0.99").await;
    consumer.bind_to("machine", "vips", "10.0.0.10").await;
    let mut saved: Value = serde_json::from_str(&saved).expect("kubectl writes JSON");
    saved["metadata"] = json!({"name": definition});
    saved["status"] = Value::Null;
    plane.kubectl_apply(&saved.to_string());
    plane.wait_until_served(definition);
    let scene = Scene {
        plane,
        manager,
        consumer,
        webhooks: None,
    };
    scene.create_addressing(json!([endpoint()])).await;
    scene.create_selected_cluster("alpha", json!({})).await;
    let cluster = scene.wait_for_cluster("alpha").await;
    assert_eq!(cluster["spec"]["controlPlaneEndpoint"]["host"], "10.0.0.11");
    assert_contains(
        &cluster["metadata"]["annotations"][ANNOTATION].to_string(),
        "10.0.0.11",
    );
}
