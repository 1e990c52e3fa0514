//! The registry is away, or a manager ends.

use serde_json::json;

use crate::site::{Hub, REGISTRY, Site, names};

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
    for (type_, reason, part) in [
        ("Warning", "RegistryUnreachable", "no block is taken"),
        ("Normal", "RegistryReady", "can be used again"),
    ] {
        site.west
            .wait_for_event(REGISTRY, type_, reason, part)
            .await;
    }
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
