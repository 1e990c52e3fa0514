//! The registry is away, or a manager ends.

use serde_json::json;

use crate::site::{Hub, REGISTRY, Site, names};

async fn wait_for_registry_event(site: &Site, (type_, reason, part): (&str, &str, &str)) {
    site.west
        .wait_for_event(REGISTRY, type_, reason, part)
        .await;
}

async fn held_blocks_work_without_the_registry(hub: Hub) {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0});
    let mut site = Site::start(hub, blocks).await;
    site.west.create_pool("p", "10.0.1.0-10.0.1.15").await;
    site.west.bind("p", &names("a", 2)).await;

    site.hub.stop();
    // Two addresses of the block are left, and one is released.
    site.west.bind("p", &names("b", 2)).await;
    site.west.consumer.release("a-0").await;
    site.west.bind("p", &names("c", 1)).await;
    site.west.consumer.create_claim("d", "p").await;
    site.west
        .consumer
        .wait_for_reason("d", "RegistryUnreachable")
        .await;
    site.west
        .wait_for_registry("False", "RegistryUnreachable")
        .await;

    // A manager that is killed publishes nothing any more.
    let event = ("Warning", "RegistryUnreachable", "no block is taken");
    wait_for_registry_event(&site, event).await;

    // Also a manager that starts meanwhile.
    site.west.restart();
    site.west.consumer.release("b-0").await;
    site.west.consumer.wait_for_address("d").await;
    site.west.consumer.create_claim("e", "p").await;
    site.west
        .consumer
        .wait_for_reason("e", "RegistryUnreachable")
        .await;

    site.hub.start();
    site.west.consumer.wait_for_address("e").await;
    site.west.wait_for_registry("True", "RegistryReady").await;
    let event = ("Normal", "RegistryReady", "can be used again");
    wait_for_registry_event(&site, event).await;
    site.west
        .wait_for_blocks(&["10.0.1.0/30", "10.0.1.4/30"])
        .await;
}

#[tokio::test]
async fn held_blocks_work_without_nats() {
    Box::pin(held_blocks_work_without_the_registry(Hub::nats())).await;
}

#[tokio::test]
async fn held_blocks_work_without_the_other_api_server() {
    Box::pin(held_blocks_work_without_the_registry(Hub::kubernetes())).await;
}

/// The other API server is upgraded: it restarts, and its definition of IPBlock gets a further field.
#[tokio::test]
async fn upgrade_of_the_other_api_server_changes_no_block() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0});
    let mut site = Site::start(Hub::kubernetes(), blocks).await;
    for cluster in [&site.west, &site.east] {
        cluster.create_pool("p", "10.0.1.0-10.0.1.31").await;
        cluster.bind("p", &names("a", 3)).await;
    }
    let before = (site.west.blocks().await, site.east.blocks().await);

    site.hub.stop();
    site.west.bind("p", &names("b", 1)).await;
    site.hub.start();
    let Hub::Kubernetes(hub) = &site.hub else {
        panic!("the registry is another API server");
    };
    let field = json!([{
        "op": "add",
        "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/zone",
        "value": {"type": "string"},
    }]);
    hub.kubectl(&[
        "patch",
        "crd",
        "ipblocks.ipam.cluster.x-k8s.io",
        "--type=json",
        &format!("--patch={field}"),
    ]);
    let names = names("c", 3);
    futures::join!(site.west.bind("p", &names), site.east.bind("p", &names));
    let after = (site.west.blocks().await, site.east.blocks().await);
    for (before, after) in [(before.0, &after.0), (before.1, &after.1)] {
        assert!(
            before.iter().all(|block| after.contains(block)),
            "{before:?}, {after:?}"
        );
    }
    assert!(
        !after.0.iter().any(|block| after.1.contains(block)),
        "{after:?}"
    );
}
