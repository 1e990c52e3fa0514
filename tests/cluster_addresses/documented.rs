//! The examples in docs/cluster-addresses.md.

use std::fs;
use std::process::Command;

use capi_ipam_provider::api::names::RELEASE_ADDRESS;
use k8s_openapi::api::core::v1::ConfigMap;
use support::prelude::*;
use support::repository::in_repository;

use crate::scene::{Scene, endpoint};

/// The blocks of the page in a language.
fn blocks(language: &str) -> Vec<String> {
    let page = in_repository("docs/cluster-addresses.md");
    let page = fs::read_to_string(page).expect("the page can be read");
    let start = format!("```{language}\n");
    let blocks = page.split(start.as_str()).skip(1);
    let blocks = blocks.filter_map(|rest| rest.split("```").next());
    blocks.map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn documented_example_works() {
    let blocks = blocks("yaml");
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

#[tokio::test(flavor = "multi_thread")]
async fn documented_commands_switch_the_feature_off() {
    let blocks = blocks("sh");
    // The commands of the first block are those of a test with clusterctl.
    let [_, commands] = &*blocks else {
        panic!("the page has two blocks of commands: {blocks:?}");
    };
    let mut scene = Scene::start().await;
    scene.create_addressing(json!([endpoint()])).await;
    scene.create_selected_cluster("alpha", json!({})).await;
    scene.wait_for_cluster("alpha").await;
    scene.manager.stop();
    scene.manager = Manager::start(&scene.plane, &[]);
    let script = format!("kubectl() {{ \"$KUBECTL\" --kubeconfig=\"$FILE\" \"$@\"; }}\n{commands}");
    let output = Command::new("sh")
        .args(["-euc", &script])
        .env("KUBECTL", scene.plane.kubectl_program())
        .env("FILE", scene.plane.kubeconfig())
        .output()
        .expect("a shell can be started");
    assert!(output.status.success(), "{output:?}");
    // The address is kept until the Cluster is gone.
    let finalizers = scene
        .the_claim("alpha-endpoint")
        .await
        .finalizers()
        .to_vec();
    assert_eq!(finalizers, [RELEASE_ADDRESS]);
    scene.delete("clusteraddressing", "bonn");
    let addressings = scene.addressings();
    until("the ClusterAddressing is gone", async || {
        Some(answered(addressings.get("bonn").await)?.is_none())
    })
    .await;
    scene.assert_address("alpha-endpoint", "10.0.0.10").await;
    scene.delete("cluster", "alpha");
    let claims = scene.claims();
    until("the claim is gone", async || {
        Some(answered(claims.get("alpha-endpoint").await)?.is_none())
    })
    .await;
}
