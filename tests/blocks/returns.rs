//! Empty blocks are returned.

use std::pin::pin;

use capi_ipam_api::IPSlice;
use futures::StreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use support::prelude::*;
use support::snapshot::restore_snapshot;

use crate::site::{Hub, ManagementCluster, NETWORK, Site};

/// How long no IPSlice is written after all blocks are returned.
const QUIET: Duration = Duration::from_secs(3);

async fn empty_block_goes_to_another_cluster(hub: Hub) {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0, "keepSeconds": 0});
    let site = Site::start(hub, blocks).await;
    let (west, east) = (&site.west, &site.east);
    west.create_pool("p", "10.0.1.0-10.0.1.3").await;
    east.create_pool("p", "10.0.1.0-10.0.1.3").await;
    let of_west = numbered("w-", 4);
    west.bind("p", &of_west).await;
    east.consumer.claim_waits("e", "p", "WaitingForBlock").await;
    west.consumer.release_all(&of_west).await;
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

/// The slices of a backup that is younger than the quarantine are those of blocks that nobody else has: they
/// are used without the registry.
async fn returned_block_stays_with_its_cluster(hub: Hub) {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0, "keepSeconds": 0, "quarantineSeconds": 3600});
    let mut site = Site::start(hub, blocks).await;
    for cluster in [&site.west, &site.east] {
        cluster.create_pool("p", "10.0.1.0-10.0.1.3").await;
    }
    site.return_block_after_snapshot().await;
    site.east.consumer.create_claim("e", "p").await;
    site.east
        .consumer
        .wait_for_reason("e", "WaitingForBlock")
        .await;
    site.east.consumer.assert_stays_unbound("e").await;

    site.hub.stop();
    site.west.kill();
    restore_snapshot(&mut site.west.control_plane);
    site.west.restart();
    site.west.bind("p", &numbered("x-", 1)).await;
    site.start_hub();
    site.wait_for_holder("10.0.1.0/30", Some("west")).await;
    site.west.bind("p", &numbered("y-", 1)).await;
    site.east.consumer.assert_stays_unbound("e").await;
}

#[tokio::test]
async fn block_returned_to_nats_stays_with_its_cluster() {
    Box::pin(returned_block_stays_with_its_cluster(Hub::nats())).await;
}

#[tokio::test]
async fn block_returned_to_an_api_server_stays_with_its_cluster() {
    Box::pin(returned_block_stays_with_its_cluster(Hub::kubernetes())).await;
}

/// An IPSlice is marked after a tenth of the time for which an empty block is kept.
#[tokio::test]
async fn block_in_use_again_is_kept() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0, "keepSeconds": 30});
    let site = Site::start(Hub::nats(), blocks).await;
    let west = &site.west;
    west.create_pool("p", "10.0.1.0-10.0.1.15").await;
    west.bind("p", &numbered("a-", 1)).await;
    west.consumer.release("a-0").await;
    west.wait_for_mark("10.0.1.0/30", true).await;
    let bound = west.bind("p", &numbered("b-", 1)).await;
    assert_eq!(bound["b-0"], "10.0.1.0");
    west.wait_for_mark("10.0.1.0/30", false).await;
    west.wait_for_blocks(&["10.0.1.0/30"]).await;
}

#[tokio::test]
async fn claims_that_replace_others_cost_no_write_of_the_block() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0, "keepSeconds": 3600});
    let site = Site::start(Hub::nats(), blocks).await;
    let west = &site.west;
    west.create_pool("p", "10.0.1.0-10.0.1.15").await;
    west.bind("p", &numbered("a-", 4)).await;
    let work = async {
        for name in numbered("a-", 4) {
            west.consumer.release(&name).await;
        }
        west.bind("p", &numbered("b-", 4)).await;
    };
    assert_eq!(slice_writes(west, Box::pin(work)).await, 0);
    west.wait_for_blocks(&["10.0.1.0/30"]).await;
}

/// Returns how often an IPSlice of a management cluster is written while `work` runs, and for some
/// time after it.
async fn slice_writes(cluster: &ManagementCluster, work: impl Future<Output = ()>) -> usize {
    let mut count = 0;
    let slices = Api::<IPSlice>::all(cluster.consumer.client.clone());
    let counting = async {
        let mut events = pin!(watcher(slices, watcher::Config::default()));
        while let Some(event) = events.next().await {
            if let Ok(Event::Apply(_) | Event::Delete(_)) = event {
                count += 1;
            }
        }
    };
    let work = async {
        work.await;
        tokio::time::sleep(QUIET).await;
    };
    tokio::select! {
        () = counting => {}
        () = work => {}
    }
    count
}

async fn deleted_network_returns_its_blocks(hub: Hub) {
    let blocks = json!({"registry": "site", "size": 4, "spare": 1, "keepSeconds": 3600});
    let site = Site::start(hub, blocks).await;
    let west = &site.west;
    west.create_pool("p", "10.0.1.0-10.0.1.7").await;
    west.bind("p", &numbered("a-", 4)).await;
    let all = ["10.0.1.0/30", "10.0.1.4/30"];
    west.wait_for_blocks(&all).await;
    let work = async {
        for name in numbered("a-", 4) {
            west.consumer.release(&name).await;
        }
        let (pools, networks) = (west.consumer.pools(), west.consumer.networks());
        west.consumer.delete_unused_pool(&pools, "p").await;
        west.consumer.delete_object(&networks, NETWORK).await;
        west.wait_for_blocks(&[]).await;
        for block in all {
            site.wait_for_holder(block, None).await;
        }
    };
    let writes = slice_writes(west, Box::pin(work)).await;
    // Each is confirmed, marked and deleted.
    assert!(writes <= 12, "{writes} writes");
    for block in all {
        site.wait_for_holder(block, None).await;
    }
}

#[tokio::test]
async fn deleted_network_returns_its_blocks_to_nats() {
    Box::pin(deleted_network_returns_its_blocks(Hub::nats())).await;
}

#[tokio::test]
async fn deleted_network_returns_its_blocks_to_an_api_server() {
    Box::pin(deleted_network_returns_its_blocks(Hub::kubernetes())).await;
}

/// Without pools, the length of the blocks of a network is not known.
#[tokio::test]
async fn last_block_of_a_network_without_pools_is_returned() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0, "keepSeconds": 3});
    let site = Site::start(Hub::nats(), blocks).await;
    let west = &site.west;
    west.create_pool("p", "10.0.1.0-10.0.1.7").await;
    west.bind("p", &numbered("a-", 1)).await;
    west.wait_for_blocks(&["10.0.1.0/30"]).await;
    west.consumer.release("a-0").await;
    let pools = west.consumer.pools();
    west.consumer.delete_unused_pool(&pools, "p").await;
    site.wait_for_holder("10.0.1.0/30", None).await;
    west.wait_for_blocks(&[]).await;
}

#[tokio::test]
async fn network_that_shares_no_blocks_any_more_returns_them() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 1, "keepSeconds": 3600});
    let site = Site::start(Hub::nats(), blocks).await;
    let west = &site.west;
    west.create_pool("p", "10.0.1.0-10.0.1.7").await;
    west.bind("p", &numbered("a-", 1)).await;
    let all = ["10.0.1.0/30", "10.0.1.4/30"];
    west.wait_for_blocks(&all).await;
    let work = async {
        west.consumer.release("a-0").await;
        west.stop_sharing();
        west.wait_for_blocks(&[]).await;
        for block in all {
            site.wait_for_holder(block, None).await;
        }
    };
    let writes = slice_writes(west, Box::pin(work)).await;
    assert!(writes <= 12, "{writes} writes");
    // Its pool allocates without the registry.
    west.bind("p", &numbered("b-", 8)).await;
    west.wait_for_blocks(&[]).await;
}

/// The registry cannot be reached when a network stops to share blocks.
#[tokio::test]
async fn record_without_its_network_is_returned_after_an_outage() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0, "keepSeconds": 3600});
    let mut site = Site::start(Hub::nats(), blocks).await;
    site.west.create_pool("p", "10.0.1.0-10.0.1.7").await;
    site.west.bind("p", &numbered("a-", 1)).await;
    site.hub.stop();
    site.west
        .wait_for_registry("False", "RegistryUnreachable")
        .await;
    site.west.consumer.release("a-0").await;
    site.west.stop_sharing();
    // The IPSlice says where the record is, also to a process that starts during the outage.
    site.west.restart();
    site.start_hub();
    site.wait_for_holder("10.0.1.0/30", None).await;
    site.west.wait_for_blocks(&[]).await;
}
