//! Empty blocks are returned.

use serde_json::json;

use crate::site::{Hub, NETWORK, Site, names};

async fn empty_block_goes_to_another_cluster(hub: Hub) {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0, "keepSeconds": 0});
    let site = Site::start(hub, blocks).await;
    let (west, east) = (&site.west, &site.east);
    west.create_pool("p", "10.0.1.0-10.0.1.3").await;
    east.create_pool("p", "10.0.1.0-10.0.1.3").await;
    let of_west = names("w", 4);
    west.bind("p", &of_west).await;
    east.consumer.create_claim("e", "p").await;
    east.consumer.wait_for_reason("e", "WaitingForBlock").await;
    for name in &of_west {
        west.consumer.release(name).await;
    }
    east.consumer.wait_for_address("e").await;
    west.wait_for_blocks(&[]).await;
    east.wait_for_blocks(&["10.0.1.0/30"]).await;
    for (cluster, reason) in [
        (west, "BlockTaken"),
        (west, "BlockReturned"),
        (east, "BlockTaken"),
    ] {
        cluster
            .wait_for_event(NETWORK, "Normal", reason, "10.0.1.0/30")
            .await;
    }
}

#[tokio::test]
async fn empty_block_goes_to_another_cluster_of_nats() {
    Box::pin(empty_block_goes_to_another_cluster(Hub::nats())).await;
}

#[tokio::test]
async fn empty_block_goes_to_another_cluster_of_an_api_server() {
    Box::pin(empty_block_goes_to_another_cluster(Hub::kubernetes())).await;
}

#[tokio::test]
async fn block_in_use_again_is_kept() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0, "keepSeconds": 3600});
    let site = Site::start(Hub::nats(), blocks).await;
    let west = &site.west;
    west.create_pool("p", "10.0.1.0-10.0.1.15").await;
    west.bind("p", &names("a", 1)).await;
    west.consumer.release("a-0").await;
    west.wait_for_mark("10.0.1.0/30", true).await;
    let bound = west.bind("p", &names("b", 1)).await;
    assert_eq!(bound["b-0"], "10.0.1.0");
    west.wait_for_mark("10.0.1.0/30", false).await;
    west.wait_for_blocks(&["10.0.1.0/30"]).await;
}
