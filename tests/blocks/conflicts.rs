//! The registry says something else than a cluster thinks.

use support::prelude::*;
use support::snapshot::restore_snapshot;

use crate::site::{Hub, NETWORK, Site};

#[tokio::test]
async fn lost_record_is_written_again() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0});
    let site = Site::start(Hub::nats(), blocks).await;
    site.west.create_pool("p", "10.0.1.0-10.0.1.15").await;
    site.west.bind("p", &numbered("w-", 1)).await;
    site.lose_record("10.0.1.0/30").await;
    site.wait_for_holder("10.0.1.0/30", Some("west")).await;
    site.west.bind("p", &numbered("x-", 1)).await;
}

/// The registry loses the record of a block while the manager of its cluster does not run, and
/// another cluster gets the block.
async fn block_of_two_clusters_is_drained_by_one(hub: Hub) {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0, "keepSeconds": 0});
    let site = Site::start(hub, blocks).await;
    site.west.create_pool("p", "10.0.1.0-10.0.1.31").await;
    site.east.create_pool("p", "10.0.1.0-10.0.1.31").await;
    site.east.bind("p", &numbered("e-", 1)).await;
    site.east.kill();
    site.lose_record("10.0.1.0/30").await;
    let request = json!({"annotations": {"ipam.cluster.x-k8s.io/requested-address": "10.0.1.3"}});
    site.west
        .consumer
        .create_claim_with_metadata("w", "p", request)
        .await;
    assert_eq!(site.west.consumer.wait_for_address("w").await, "10.0.1.3");

    // Both report the conflict. Nothing in use is taken away.
    site.east.restart();
    for cluster in [&site.east, &site.west] {
        let text = cluster.wait_for_conflict("True").await;
        let expected = ["10.0.1.0/30", "east", "west"];
        assert!(expected.iter().all(|part| text.contains(part)), "{text}");
    }
    // No further address of the block is allocated in either.
    let (of_west, of_east) = (numbered("x-", 2), numbered("y-", 2));
    let (in_west, in_east) =
        futures::join!(site.west.bind("p", &of_west), site.east.bind("p", &of_east));
    let block = ["10.0.1.0", "10.0.1.1", "10.0.1.2", "10.0.1.3"];
    for address in in_west.values().chain(in_east.values()) {
        assert!(!block.contains(&address.as_str()), "{address}");
    }

    // West has no address of it any more, and returns it.
    site.west.consumer.release("w").await;
    for cluster in [&site.east, &site.west] {
        cluster.wait_for_conflict("False").await;
        for (type_, reason, part) in [
            ("Warning", "BlocksShared", "10.0.1.0/30"),
            ("Normal", "NoConflict", ""),
        ] {
            cluster.wait_for_event(NETWORK, type_, reason, part).await;
        }
    }
    site.wait_for_holder("10.0.1.0/30", Some("east")).await;
    let bound = site.east.bind("p", &numbered("z-", 1)).await;
    assert!(block.contains(&bound["z-0"].as_str()), "{bound:?}");
}

#[tokio::test]
async fn block_of_two_clusters_of_nats_is_drained_by_one() {
    Box::pin(block_of_two_clusters_is_drained_by_one(Hub::nats())).await;
}

#[tokio::test]
async fn block_of_two_clusters_of_an_api_server_is_drained_by_one() {
    Box::pin(block_of_two_clusters_is_drained_by_one(Hub::kubernetes())).await;
}

/// East uses a block of west, as after `clusterctl move`. When west uses it no longer, the conflict ends, and
/// east does not take the block before its quarantine is over.
#[tokio::test]
async fn conflict_ends_with_the_return_of_the_block() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0, "keepSeconds": 0, "quarantineSeconds": 3600});
    let site = Site::start(Hub::nats(), blocks).await;
    let (west, east) = (&site.west, &site.east);
    for cluster in [west, east] {
        cluster.create_pool("p", "10.0.1.0-10.0.1.7").await;
    }
    west.bind("p", &numbered("w-", 1)).await;
    east.consumer.create_address("m", "p", "10.0.1.1").await;
    east.consumer.create_claim("m", "p").await;
    assert_eq!(east.consumer.wait_for_address("m").await, "10.0.1.1");
    for cluster in [west, east] {
        cluster.wait_for_conflict("True").await;
    }
    west.consumer.release("w-0").await;
    for cluster in [west, east] {
        cluster.wait_for_conflict("False").await;
    }
    site.wait_for_holder("10.0.1.0/30", None).await;
    site.wait_for_contender("10.0.1.0/30", "east").await;
    let bound = east.bind("p", &numbered("e-", 4)).await;
    let mut addresses = bound.values();
    assert!(
        addresses.all(|address| address.as_str() >= "10.0.1.4"),
        "{bound:?}"
    );
    east.consumer.create_claim("x", "p").await;
    east.consumer.assert_stays_unbound("x").await;
    // An operator ends the quarantine.
    site.lose_record("10.0.1.0/30").await;
    site.wait_for_holder("10.0.1.0/30", Some("east")).await;
    east.consumer.wait_for_address("x").await;
}

/// etcd of a management cluster is restored from a snapshot, whose IPSlices show a block that
/// another management cluster has meanwhile.
async fn restored_cluster_allocates_no_address_of_another(runs_meanwhile: bool) {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0, "keepSeconds": 0});
    let mut site = Site::start(Hub::nats(), blocks).await;
    for cluster in [&site.west, &site.east] {
        cluster.create_pool("p", "10.0.1.0-10.0.1.31").await;
    }
    site.return_block_after_snapshot().await;
    let in_east = site.east.bind("p", &numbered("e-", 4)).await;
    site.wait_for_holder("10.0.1.0/30", Some("east")).await;

    if !runs_meanwhile {
        site.west.kill();
    }
    restore_snapshot(&mut site.west.control_plane);
    site.west.consumer.create_claim("new", "p").await;
    if !runs_meanwhile {
        site.west.restart();
    }
    let address = site.west.consumer.wait_for_address("new").await;
    assert!(
        !in_east.values().any(|other| *other == address),
        "{address} is in use in east: {in_east:?}"
    );
    site.west.wait_for_conflict("True").await;
}

#[tokio::test]
async fn restored_management_cluster_allocates_no_address_of_another() {
    Box::pin(restored_cluster_allocates_no_address_of_another(false)).await;
}

/// The manager runs during the restore.
#[tokio::test]
async fn manager_of_a_restored_cluster_uses_no_block_of_another() {
    Box::pin(restored_cluster_allocates_no_address_of_another(true)).await;
}

/// The registry has lost the record of a block in use. Another management cluster has taken the block,
/// and its manager does not run when the conflict is found.
#[tokio::test]
async fn contested_block_is_not_used_after_a_restart() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0, "keepSeconds": 3600});
    let site = Site::start(Hub::nats(), blocks).await;
    let (west, east) = (&site.west, &site.east);
    for cluster in [west, east] {
        cluster.create_pool("p", "10.0.1.0-10.0.1.15").await;
    }
    east.bind("p", &numbered("e-", 3)).await;
    east.kill();
    site.lose_record("10.0.1.0/30").await;
    let in_west = west.bind("p", &numbered("w-", 1)).await;
    assert_eq!(in_west["w-0"], "10.0.1.0", "the manager of east is away");
    west.kill();
    east.restart();
    let message = east.wait_for_conflict("True").await;
    assert!(message.contains("west"), "{message}");
    site.wait_for_contender("10.0.1.0/30", "east").await;

    west.consumer.create_claim("x", "p").await;
    west.restart();
    assert_eq!(west.consumer.wait_for_address("x").await, "10.0.1.4");
    west.wait_for_conflict("True").await;
}

/// The registry loses the record of a block in use, whose network shares no blocks any more, while no
/// manager runs that has seen the record.
#[tokio::test]
async fn block_is_defended_after_the_end_of_sharing_and_a_restart() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0, "keepSeconds": 0});
    let site = Site::start(Hub::nats(), blocks).await;
    let (west, east) = (&site.west, &site.east);
    west.create_pool("p", "10.0.1.0-10.0.1.3").await;
    east.create_pool("p", "10.0.1.0-10.0.1.3").await;
    west.bind("p", &numbered("w-", 1)).await;
    west.stop_sharing();
    west.kill();
    site.lose_record("10.0.1.0/30").await;
    east.bind("p", &numbered("e-", 1)).await;
    west.restart();
    let message = east.wait_for_conflict("True").await;
    assert!(message.contains("west"), "{message}");
    // East allocates no further address of it until west uses none.
    east.consumer.create_claim("f", "p").await;
    west.consumer.release("w-0").await;
    east.wait_for_conflict("False").await;
    east.consumer.wait_for_address("f").await;
}
