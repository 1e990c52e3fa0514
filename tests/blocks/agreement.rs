//! What the management clusters agree on for a network.

use serde_json::json;
use support::wait::eventually;

use crate::site::{Hub, Site, names};

#[tokio::test]
async fn gateway_of_another_cluster_is_not_allocated() {
    let blocks = json!({"registry": "site", "size": 16, "spare": 0});
    let mut site = Site::start(Hub::nats(), blocks).await;
    let spec = json!({
        "addresses": ["10.0.1.0-10.0.1.15"], "prefix": 16, "gateway": "10.0.1.5", "network": "backbone",
    });
    site.west.consumer.create_pool("p", spec).await;
    site.east.create_pool("p", "10.0.1.0-10.0.1.15").await;
    eventually("east knows the gateway of west", || async {
        let blocks = site.east.network().await.status?.blocks?;
        (blocks.excluded == ["10.0.1.5"]).then_some(())
    })
    .await;
    site.east.bind("p", &names("e", 3)).await;

    // Also a manager that has never reached the registry leaves it out.
    site.hub.stop();
    site.east.restart();
    site.east
        .wait_for_registry("False", "RegistryUnreachable")
        .await;
    let bound = site.east.bind("p", &names("f", 12)).await;
    assert!(!bound.values().any(|address| address == "10.0.1.5"));
}

#[tokio::test]
async fn other_size_of_blocks_is_reported() {
    let first = json!({"registry": "site", "size": 4});
    let site = Site::start(Hub::nats(), first).await;
    site.west.create_pool("p", "10.0.1.0-10.0.1.15").await;
    site.west.bind("p", &names("w", 1)).await;
    site.east
        .create_network("other", json!({"registry": "site", "size": 4}))
        .await;
    site.wait_for_record("network.other").await;
    site.west
        .create_network("other", json!({"registry": "site", "size": 8}))
        .await;
    site.west
        .wait_for_network_message("other", "BlockSizeDiffers", "4 addresses")
        .await;
}
