//! The example in docs/cluster-addresses.md.

use std::fs;

use k8s_openapi::api::core::v1::ConfigMap;
use support::prelude::*;
use support::repository::in_repository;

use crate::scene::Scene;

#[tokio::test(flavor = "multi_thread")]
async fn documented_example_works() {
    let page = in_repository("docs/cluster-addresses.md");
    let page = fs::read_to_string(page).expect("the page can be read");
    let blocks = page.split("```yaml\n").skip(1);
    let blocks: Vec<&str> = blocks.filter_map(|rest| rest.split("```").next()).collect();
    let [addressing, cluster, resource_set] = &*blocks else {
        panic!("the page has three examples: {blocks:?}");
    };
    let mut scene = Scene::start().await;
    scene.plane.kubectl_apply(addressing);
    scene.plane.kubectl_apply(cluster);
    scene.consumer = scene.consumer.in_namespace("default");
    let alpha = scene.wait_for_cluster("alpha").await;
    let host = &alpha["spec"]["controlPlaneEndpoint"]["host"];
    assert_eq!(host, "10.0.0.10");
    let blocks = &alpha["spec"]["clusterNetwork"]["pods"]["cidrBlocks"];
    assert_eq!(*blocks, json!(["10.128.0.0/20"]));
    // The ConfigMap that the ClusterResourceSet names.
    let api = Api::namespaced(scene.consumer.client.clone(), "default");
    let config_maps = ResourceClient::<ConfigMap>::new(api, &());
    let found = config_maps.get("alpha-lb-metallb").await;
    assert!(found.expect("ConfigMaps can be read").is_some());
    assert_contains(resource_set, "name: alpha-lb-metallb");
    scene
        .wait_for_status("the Cluster is counted", |status| status.ready == 1)
        .await;
}
