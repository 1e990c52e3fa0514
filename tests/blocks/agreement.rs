//! What has to be equal in all management clusters of a network.

use std::sync::Arc;

use capi_ipam_api::{IPNetwork, conditions};
use support::prelude::*;

use crate::faults::start_with_api_server;
use crate::interceptor::{Held, Interceptor};
use crate::site::{Hub, ManagementCluster, NETWORK, Site};

/// A network without its registry says so, also after a restart. Nothing is released.
#[tokio::test]
async fn network_without_its_registry_is_not_ready() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0});
    let site = Site::start(Hub::nats(), blocks).await;
    let west = &site.west;
    west.create_pool("p", "10.0.1.0-10.0.1.15").await;
    west.bind("p", &numbered("a-", 3)).await;

    west.delete_registry().await;
    let text = "create the IPRegistry site";
    west.wait_for_network_message(NETWORK, "RegistryNotFound", text)
        .await;
    west.wait_for_event(NETWORK, "Warning", "RegistryNotFound", text)
        .await;
    // A manager that starts does not know which blocks are those of this management cluster.
    let before = west.network().await;
    west.restart();
    west.consumer.create_claim("b", "p").await;
    west.consumer
        .wait_for_message("b", "WaitingForBlock", text)
        .await;
    let after = west.network().await;
    let ready = |network: &IPNetwork| {
        let conditions = network.status.clone().unwrap_or_default().conditions;
        conditions::find(&conditions, "Ready").cloned()
    };
    assert_eq!(ready(&before), ready(&after));

    let created = create(&west.registries(), &object(site.hub.registry("west"))).await;
    created.expect("the registry is valid");
    west.wait_for_network_message(NETWORK, "NetworkReady", "")
        .await;
    assert_eq!(west.consumer.wait_for_address("b").await, "10.0.1.3");
}

/// Restarts the manager of a cluster. It writes a sign of life then, and compares it with those of the others.
async fn show_life(site: &Site, cluster: &ManagementCluster) {
    let before = cluster.writes(&site.hub).await;
    cluster.restart();
    eventually(
        &format!("{} shows that it is alive", cluster.id),
        || async { (cluster.writes(&site.hub).await > before).then_some(()) },
    )
    .await;
}

#[tokio::test]
async fn different_gateways_are_reported_until_they_are_equal() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0});
    let site = Site::start(Hub::nats(), blocks).await;
    let (west, east) = (&site.west, &site.east);
    for (cluster, gateway) in [(west, "10.0.1.5"), (east, "10.0.1.9")] {
        let spec = json!({
            "addresses": ["10.0.1.0-10.0.1.15"], "prefix": 16, "gateway": gateway, "network": NETWORK,
        });
        cluster.consumer.create_pool("p", spec).await;
        cluster.consumer.wait_until_pool_ready("p").await;
    }
    for cluster in [west, east, west] {
        show_life(&site, cluster).await;
    }
    for (cluster, other) in [(west, east), (east, west)] {
        let message = cluster
            .wait_for_condition(NETWORK, "ExclusionsDiffer", "True")
            .await;
        assert!(message.contains(other.id), "{message}");
        cluster
            .wait_for_event(NETWORK, "Warning", "ExclusionsDiffer", other.id)
            .await;
    }
    west.bind("p", &numbered("a-", 3)).await;
    let bound = east.bind("p", &numbered("a-", 3)).await;
    let mut addresses = bound.values();
    assert!(
        addresses.any(|address| address == "10.0.1.5"),
        "the gateway of west: {bound:?}"
    );

    let change = |spec: &mut Value| spec["gateway"] = json!("10.0.1.9");
    west.consumer.modify_pool("p", change).await;
    for cluster in [west, east] {
        show_life(&site, cluster).await;
    }
    for cluster in [west, east] {
        cluster
            .wait_for_condition(NETWORK, "ExclusionsDiffer", "False")
            .await;
        cluster
            .wait_for_event(NETWORK, "Normal", "ExclusionsEqual", "the same addresses")
            .await;
        let bound = cluster.bind("p", &numbered("b-", 3)).await;
        assert!(!bound.values().any(|address| address == "10.0.1.9"));
    }
}

#[tokio::test]
async fn other_size_of_blocks_is_reported() {
    let first = json!({"registry": "site", "size": 4});
    let site = Site::start(Hub::nats(), first).await;
    site.west.create_pool("p", "10.0.1.0-10.0.1.15").await;
    site.west.bind("p", &numbered("w-", 1)).await;
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
    // The network has no block, so the size can be corrected.
    let corrected = site.west.set_block_size("other", 4);
    corrected.expect("the size can be changed");
    site.west
        .wait_for_network_message("other", "NetworkReady", "")
        .await;

    eventually("the status counts the block", || async {
        let blocks = site.west.network().await.status?.blocks?;
        (blocks.held > 0).then_some(())
    })
    .await;
    let denied = site.west.set_block_size(NETWORK, 8);
    let error = denied.expect_err("the network has a block");
    assert!(error.contains("spec.blocks.size"), "{error}");
    assert!(error.contains("status.blocks.held is 0"), "{error}");
}

/// Both create the record of the network at the same moment: one of them does so too late.
#[tokio::test(flavor = "multi_thread")]
async fn first_record_of_a_network_decides_the_size() {
    let interceptor = Arc::new(Interceptor::default());
    let hub = Hub::kubernetes();
    let blocks = json!({"registry": "site", "size": 4});
    let west = ManagementCluster::start("west", &hub, &blocks);
    let late = async {
        let east = start_with_api_server(&interceptor, &hub, "east").await;
        interceptor.hold(Held::NetworkRecords, true);
        let blocks = json!({"registry": "site", "size": 8, "spare": 0});
        east.create_network("other", blocks).await;
        let spec = json!({"addresses": ["10.0.1.0-10.0.1.15"], "prefix": 16, "network": "other"});
        east.consumer.create_pool("p", spec).await;
        east.consumer.create_claim("c", "p").await;
        east
    };
    let (west, east) = futures::join!(west, late);
    let write = ("east", "create network record".to_owned());
    eventually("east creates the record of the network", || async {
        interceptor.seen().contains(&write).then_some(())
    })
    .await;
    west.create_network("other", blocks).await;
    let registry = hub.open().await;
    eventually("west has created the record of the network", || async {
        registry.read("network.other").await.ok()?.map(drop)
    })
    .await;
    interceptor.hold(Held::NetworkRecords, false);
    east.wait_for_network_message("other", "BlockSizeDiffers", "4 addresses")
        .await;
    east.consumer.assert_stays_unbound("c").await;
    east.wait_for_blocks(&[]).await;
}

/// The steps of docs/management-clusters.md.
#[tokio::test]
async fn size_is_changed_when_all_blocks_are_returned() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 1});
    let site = Site::start(Hub::nats(), blocks).await;
    let clusters = [&site.west, &site.east];
    for cluster in clusters {
        cluster.create_pool("p", "10.0.1.0-10.0.1.31").await;
        cluster.bind("p", &numbered("a-", 1)).await;
        cluster.consumer.release("a-0").await;
    }
    let mut held = Vec::new();
    for cluster in clusters {
        held.extend(cluster.blocks().await);
        let changed = cluster.change_blocks(NETWORK, &json!({"spare": 0, "keepSeconds": 0}));
        changed.expect("they can be changed");
    }
    for cluster in clusters {
        cluster.wait_for_blocks(&[]).await;
        eventually("the size can be changed", || async {
            cluster.set_block_size(NETWORK, 8).ok()
        })
        .await;
    }
    for block in &held {
        site.wait_for_holder(block, None).await;
        site.lose_record(block).await;
    }
    let registry = site.hub.open().await;
    let key = format!("network.{NETWORK}");
    let record = registry.read(&key).await.expect("the registry answers");
    let deleted = registry.delete(&record.expect("it exists")).await;
    deleted.expect("the record can be deleted");
    for cluster in clusters {
        cluster.bind("p", &numbered("b-", 1)).await;
        let blocks = cluster.blocks().await;
        assert!(
            blocks.iter().all(|block| block.ends_with("/29")),
            "{blocks:?}"
        );
    }
}

/// The record of the network was lost, and another management cluster has written it again with
/// another size.
#[tokio::test]
async fn no_block_is_taken_beside_one_of_another_size() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0});
    let site = Site::start(Hub::nats(), blocks).await;
    let west = &site.west;
    west.create_pool("p", "10.0.1.0-10.0.1.15").await;
    west.bind("p", &numbered("w-", 2)).await;
    site.create_record("10.0.1.8/29", "north").await;
    let text = "8 addresses in management cluster north";
    west.wait_for_network_message(NETWORK, "BlockSizeDiffers", text)
        .await;
    // Held blocks are used.
    west.bind("p", &numbered("x-", 2)).await;
    west.consumer.claim_waits("y", "p", "WaitingForBlock").await;
    west.consumer.assert_stays_unbound("y").await;
    site.lose_record("10.0.1.8/29").await;
    assert_eq!(west.consumer.wait_for_address("y").await, "10.0.1.4");
}
