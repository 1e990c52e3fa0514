//! What the management clusters agree on for a network.

use std::collections::{BTreeMap, BTreeSet};

use capi_ipam_api::{IPNetwork, conditions};
use serde_json::json;
use support::consumer::{create, object};
use support::wait::eventually;

use crate::site::{Hub, NETWORK, REGISTRY, Site, names};

/// A network without its registry says so, also after a restart. Nothing is released.
#[tokio::test]
async fn network_without_its_registry_is_not_ready() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0});
    let site = Site::start(Hub::nats(), blocks).await;
    let west = &site.west;
    west.create_pool("p", "10.0.1.0-10.0.1.15").await;
    west.bind("p", &names("a", 3)).await;

    let registries = west.registries();
    west.consumer.delete_object(&registries, REGISTRY).await;
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

    let created = create(&registries, &object(site.hub.registry("west"))).await;
    created.expect("the registry is valid");
    west.wait_for_network_message(NETWORK, "NetworkReady", "")
        .await;
    assert_eq!(west.consumer.wait_for_address("b").await, "10.0.1.3");
}

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

/// Whether the bound addresses are outside of 10.0.1.0/29.
fn are_outside(bound: &BTreeMap<String, String>) -> bool {
    let inside: BTreeSet<String> = (0..8).map(|last| format!("10.0.1.{last}")).collect();
    !bound.values().any(|address| inside.contains(address))
}

/// The record of the network was lost, and another management cluster has written it again with
/// another size.
#[tokio::test]
async fn block_of_another_size_is_not_free() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0});
    let site = Site::start(Hub::nats(), blocks).await;
    site.create_record("10.0.1.0/29", "north").await;
    site.west.create_pool("p", "10.0.1.0-10.0.1.15").await;
    let bound = site.west.bind("p", &names("w", 2)).await;
    assert!(are_outside(&bound), "{bound:?}");
}

#[tokio::test]
async fn overlap_with_a_block_of_another_size_is_a_conflict() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0});
    let site = Site::start(Hub::nats(), blocks).await;
    site.west.create_pool("p", "10.0.1.0-10.0.1.15").await;
    site.west.bind("p", &names("w", 2)).await;
    site.create_record("10.0.1.0/29", "north").await;
    let message = site.west.wait_for_conflict("True").await;
    assert!(message.contains("10.0.1.0/30"), "{message}");
    assert!(message.contains("north"), "{message}");
    let bound = site.west.bind("p", &names("x", 2)).await;
    assert!(are_outside(&bound), "{bound:?}");

    // The conflict ends with the other record.
    site.lose_record("10.0.1.0/29").await;
    site.west.wait_for_conflict("False").await;
    site.west.bind("p", &names("y", 4)).await;
}

/// The record of a block in use is lost, and another management cluster has taken one that overlaps.
#[tokio::test]
async fn conflict_with_a_block_of_another_size_is_shown_to_both() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0});
    let site = Site::start(Hub::nats(), blocks).await;
    site.west.create_pool("p", "10.0.1.0-10.0.1.15").await;
    site.west.bind("p", &names("w", 2)).await;
    site.create_record("10.0.1.0/29", "north").await;
    site.west.wait_for_conflict("True").await;
    site.lose_record("10.0.1.0/30").await;
    site.wait_for_holder("10.0.1.0/30", Some("west")).await;
    site.west.wait_for_conflict("True").await;
}
