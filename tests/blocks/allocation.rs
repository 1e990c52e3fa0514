//! Allocation from blocks, and which blocks are taken.

use crate::site::{Hub, ManagementCluster, Site};
use support::prelude::*;

/// Both clusters bind claims at the same time. No address is allocated twice.
async fn clusters_share_one_range(hub: Hub) {
    let blocks = json!({"registry": "site", "size": 16, "spare": 0, "keepSeconds": 3600});
    let site = Site::start(hub, blocks).await;
    let (west, east) = (&site.west, &site.east);
    futures::join!(
        west.create_pool("p", "10.0.1.0-10.0.1.255"),
        east.create_pool("p", "10.0.1.0-10.0.1.255")
    );
    let (of_west, of_east) = (numbered("w-", 60), numbered("e-", 60));
    let (in_west, in_east) = futures::join!(west.bind("p", &of_west), east.bind("p", &of_east));
    let all: BTreeSet<&String> = in_west.values().chain(in_east.values()).collect();
    assert_eq!(all.len(), 120, "each address is allocated once");

    // 60 addresses need four blocks of 16.
    let (west_blocks, east_blocks) = futures::join!(west.blocks(), east.blocks());
    let distinct: BTreeSet<&String> = west_blocks.iter().chain(&east_blocks).collect();
    assert_eq!(distinct.len(), west_blocks.len() + east_blocks.len());
    assert!((4..=5).contains(&west_blocks.len()), "{west_blocks:?}");
    wait_for_counts(west, west_blocks.len(), east_blocks.len()).await;
    wait_for_counts(east, east_blocks.len(), west_blocks.len()).await;
}

/// Waits until the status of the network has these counts of blocks.
async fn wait_for_counts(cluster: &ManagementCluster, held: usize, others: usize) {
    let what = format!("{} has {held} blocks, others {others}", cluster.id);
    eventually(&what, || async {
        let blocks = cluster.network().await.status?.blocks?;
        let is_right = usize::try_from(blocks.held) == Ok(held)
            && usize::try_from(blocks.others) == Ok(others)
            && blocks.conflicts == 0;
        is_right.then_some(())
    })
    .await;
}

#[tokio::test]
async fn clusters_share_one_range_through_nats() {
    Box::pin(clusters_share_one_range(Hub::nats())).await;
}

#[tokio::test]
async fn clusters_share_one_range_through_another_api_server() {
    Box::pin(clusters_share_one_range(Hub::kubernetes())).await;
}

#[tokio::test]
async fn limit_and_exhaustion_are_reported() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0, "most": 1});
    let site = Site::start(Hub::nats(), blocks).await;
    let (west, east) = (&site.west, &site.east);
    west.create_pool("p", "10.0.1.0-10.0.1.7").await;
    east.create_pool("p", "10.0.1.0-10.0.1.3").await;
    west.bind("p", &numbered("w-", 4)).await;

    // West may have one block; the range of east is taken.
    west.consumer.create_claim("more", "p").await;
    let text = west
        .consumer
        .wait_for_message("more", "WaitingForBlock", "spec.blocks.most")
        .await;
    assert!(text.contains("network backbone"), "{text}");
    // The pool says so before a claim waits.
    let pools = east.consumer.pools();
    east.consumer
        .wait_for_condition(&pools, "p", "Exhausted", "True", "WaitingForBlock")
        .await;
    east.consumer.create_claim("none", "p").await;
    east.consumer
        .wait_for_message("none", "WaitingForBlock", "other management clusters")
        .await;

    // A higher limit serves the claim.
    let networks = west.consumer.networks();
    west.consumer
        .modify(&networks, "backbone", |network| {
            network["spec"]["blocks"]["most"] = json!(2);
        })
        .await;
    assert_eq!(west.consumer.wait_for_address("more").await, "10.0.1.4");
}

#[tokio::test]
async fn full_pool_that_gets_another_block_is_not_exhausted() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0});
    let site = Site::start(Hub::nats(), blocks).await;
    site.west.create_pool("p", "10.0.1.0-10.0.1.7").await;
    site.west.bind("p", &numbered("w-", 4)).await;
    let pools = site.west.consumer.pools();
    let condition = |status, reason| {
        let consumer = &site.west.consumer;
        consumer.wait_for_condition(&pools, "p", "Exhausted", status, reason)
    };
    condition("False", "BlockNeeded").await;
    site.west.bind("p", &numbered("x-", 4)).await;
    condition("True", "NoFreeAddress").await;
}

#[tokio::test]
async fn spare_blocks_are_taken_ahead() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 2});
    let site = Site::start(Hub::nats(), blocks).await;
    let west = &site.west;
    west.create_pool("p", "10.0.1.0-10.0.1.31").await;
    west.wait_for_blocks(&["10.0.1.0/30", "10.0.1.4/30"]).await;
    west.bind("p", &numbered("w-", 1)).await;
    west.wait_for_blocks(&["10.0.1.0/30", "10.0.1.4/30", "10.0.1.8/30"])
        .await;
}

#[tokio::test]
async fn joining_pool_takes_the_blocks_of_its_addresses_first() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0});
    let site = Site::start(Hub::nats(), blocks).await;
    let west = &site.west;
    let spec = json!({"addresses": ["10.0.1.0-10.0.1.15"], "prefix": 16});
    west.consumer.create_pool("p", spec).await;
    west.bind("p", &numbered("w-", 6)).await;

    west.consumer
        .modify_pool("p", |spec| spec["network"] = json!("backbone"))
        .await;
    west.wait_for_blocks(&["10.0.1.0/30", "10.0.1.4/30"]).await;
    let bound = west.bind("p", &numbered("x-", 2)).await;
    let expected: BTreeSet<String> = ["10.0.1.6", "10.0.1.7"].map(str::to_owned).into();
    assert_eq!(bound.into_values().collect::<BTreeSet<_>>(), expected);
}

#[tokio::test]
async fn requested_address_takes_its_block() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0});
    let site = Site::start(Hub::nats(), blocks).await;
    let (west, east) = (&site.west, &site.east);
    west.create_pool("p", "10.0.1.0-10.0.1.15").await;
    east.create_pool("p", "10.0.1.0-10.0.1.15").await;
    let request = json!({"annotations": {"ipam.cluster.x-k8s.io/requested-address": "10.0.1.9"}});
    west.consumer
        .create_claim_with_metadata("w", "p", request.clone())
        .await;
    assert_eq!(west.consumer.wait_for_address("w").await, "10.0.1.9");
    west.wait_for_blocks(&["10.0.1.8/30"]).await;

    // It is in a block of the other cluster.
    east.consumer
        .create_claim_with_metadata("e", "p", request)
        .await;
    east.consumer
        .wait_for_message("e", "WaitingForBlock", "10.0.1.9")
        .await;
}
