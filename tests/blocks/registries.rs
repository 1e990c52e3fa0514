//! Two registries of one management cluster, which has the same identity in both.

use capi_ipam_api::BlockRecord;
use capi_ipam_api::names::REPLACED_REGISTRY_ANNOTATION;
use capi_ipam_registry::Record;
use support::prelude::*;

use crate::site::{Hub, ManagementCluster, NETWORK, REGISTRY, Site, key_of};

/// How long the manager can do something that it must not do.
const WAIT: Duration = Duration::from_secs(5);

/// The registry cannot be reached when its network stops to share blocks. The manager of the other
/// one leaves the IPSlices alone, and writes no record of them.
#[tokio::test]
async fn block_is_returned_to_the_registry_that_its_slice_names() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0, "keepSeconds": 0});
    let mut site = Site::start(Hub::nats(), blocks).await;
    let west = &site.west;
    let other = Hub::nats();
    other.create_bucket().await;
    create_other_registry(west, &other).await;
    let blocks = json!({"registry": "other", "size": 4, "spare": 0, "keepSeconds": 0});
    west.create_network("second", blocks).await;
    west.create_pool("p", "10.0.1.0-10.0.1.7").await;
    west.create_pool_in("second", "q", "10.0.1.0-10.0.1.7")
        .await;
    west.bind("p", &numbered("a-", 1)).await;
    west.bind("q", &numbered("b-", 1)).await;
    let held = ["10.0.1.0/30"];
    assert_eq!(west.blocks().await, held);
    assert_eq!(west.blocks_of("second").await, held);

    site.hub.stop();
    let west = &site.west;
    west.wait_for_registry("False", "RegistryUnreachable").await;
    // A block that is empty while the network shares it would lose its IPSlice.
    west.stop_sharing();
    west.consumer.release("a-0").await;
    tokio::time::sleep(WAIT).await;
    assert_eq!(west.blocks().await, held, "its registry has the record");
    let records = other.open().await;
    let unrelated = records.read(&key_of(NETWORK, held[0])).await;
    assert_eq!(unrelated.expect("the registry answers"), None);

    site.start_hub();
    site.wait_for_holder(held[0], None).await;
    let west = &site.west;
    west.wait_for_blocks(&[]).await;
    assert_eq!(west.blocks_of("second").await, held);
    let own = records.read(&key_of("second", held[0])).await;
    assert!(own.expect("the registry answers").is_some());
}

#[tokio::test]
async fn other_servers_are_another_registry() {
    Box::pin(empty_registry_is_another_one(Hub::nats(), Hub::nats())).await;
}

#[tokio::test]
async fn other_kubeconfig_is_another_registry() {
    let (hub, other) = (Hub::kubernetes(), Hub::kubernetes());
    Box::pin(empty_registry_is_another_one(hub, other)).await;
}

/// No block is taken from a registry without records, and nothing is written to it, before an operator has
/// confirmed it.
async fn empty_registry_is_another_one(hub: Hub, other: Hub) {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0, "keepSeconds": 3600});
    let site = Site::start(hub, blocks).await;
    let (west, east) = (&site.west, &site.east);
    for cluster in [west, east] {
        cluster.create_pool("p", "10.0.1.0-10.0.1.15").await;
    }
    let in_east = east.bind("p", &numbered("e-", 4)).await;
    west.bind("p", &numbered("w-", 4)).await;
    eventually("the status of west names east", || async {
        let status = west.registries().get(REGISTRY).await.ok()??.status?;
        let mut clusters = status.clusters.iter();
        clusters.any(|cluster| cluster.id == "east").then_some(())
    })
    .await;
    other.create_bucket().await;
    west.use_servers_of(&other);
    let text = west.wait_for_registry("False", "RegistryReplaced").await;
    let (_, known) = text.rsplit_once('=').expect("it names the annotation");
    west.consumer.create_claim("x", "p").await;
    west.consumer
        .wait_for_message("x", "WaitingForBlock", "is not the registry")
        .await;
    // Held blocks are used.
    west.consumer.release("w-0").await;
    west.consumer.wait_for_address("x").await;
    let records = other.open().await;
    for key in ["cluster.west", "registry", &key_of(NETWORK, "10.0.1.0/30")] {
        let found = records.read(key).await.expect("the registry answers");
        assert_eq!(found, None, "{key}");
    }
    west.restart();
    west.wait_for_registry("False", "RegistryReplaced").await;

    // Both use it from now on. Until the other one does, its blocks are not in it.
    let annotation = format!("{REPLACED_REGISTRY_ANNOTATION}={known}");
    let use_other = |cluster: &ManagementCluster| {
        cluster.use_servers_of(&other);
        let arguments = ["annotate", "ipregistries", REGISTRY, &annotation];
        cluster.control_plane.kubectl(&arguments);
    };
    use_other(west);
    let text = west.wait_for_registry("False", "RegistryRestored").await;
    assert!(text.contains("management clusters: east"), "{text}");
    west.consumer.create_claim("y", "p").await;
    west.restart();
    west.wait_for_registry("False", "RegistryRestored").await;
    west.consumer.assert_stays_unbound("y").await;
    use_other(east);
    for cluster in [east, west] {
        cluster.wait_for_registry("True", "RegistryReady").await;
        site_records(&other, cluster).await;
    }
    let address = west.consumer.wait_for_address("y").await;
    assert!(
        !in_east.values().any(|other| *other == address),
        "{address}"
    );
}

/// Waits until a registry has the records of the blocks of a cluster.
async fn site_records(hub: &Hub, cluster: &ManagementCluster) {
    let records = hub.open().await;
    for block in cluster.blocks().await {
        let key = key_of(NETWORK, &block);
        eventually(&format!("record {key}"), || async {
            records.read(&key).await.ok()?.map(drop)
        })
        .await;
    }
}

/// Without webhooks, too.
#[tokio::test]
async fn registry_in_use_is_kept() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0, "keepSeconds": 3600});
    let site = Site::start(Hub::nats(), blocks).await;
    let west = &site.west;
    west.create_pool("p", "10.0.1.0-10.0.1.15").await;
    west.bind("p", &numbered("a-", 1)).await;
    let arguments = ["delete", "ipregistries", REGISTRY, "--wait=false"];
    west.control_plane.kubectl(&arguments);
    let text = west.wait_for_registry("False", "Deleting").await;
    assert_eq!(text, format!("used by IPNetwork {NETWORK}"));
    // Blocks are taken from it as before.
    west.bind("p", &numbered("b-", 8)).await;
    west.delete_registry().await;
}

/// No webhook has prevented that a network names another registry before its blocks are returned.
#[tokio::test]
async fn block_of_another_registry_is_taken_again() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0, "keepSeconds": 0});
    let site = Site::start(Hub::nats(), blocks).await;
    let west = &site.west;
    let other = Hub::nats();
    other.create_bucket().await;
    create_other_registry(west, &other).await;
    west.create_pool("p", "10.0.1.0-10.0.1.15").await;
    west.bind("p", &numbered("a-", 2)).await;

    // Another management cluster has the next block in the other registry.
    let records = other.open().await;
    let key = key_of(NETWORK, "10.0.1.4/30");
    let east = Record::Block(BlockRecord {
        network: NETWORK.to_owned(),
        block: "10.0.1.4/30".to_owned(),
        cluster: "east".to_owned(),
        ..BlockRecord::default()
    });
    let created = records.create(&key, &east).await;
    created.expect("the record can be created");
    west.stop_sharing();
    west.share_through("other");
    eventually("the block is one of the other registry", || async {
        let slices = west.consumer.slices().list().await.ok()?;
        let [slice] = slices.as_slice() else {
            return None;
        };
        let is_confirmed = slice.spec.confirmed_at.is_some();
        (is_confirmed && slice.spec.registry.as_deref() == Some("other")).then_some(())
    })
    .await;
    let own = records.read(&key_of(NETWORK, "10.0.1.0/30")).await;
    assert!(own.expect("the registry answers").is_some());
    let more = west.bind("p", &numbered("b-", 3)).await;
    let mut addresses: Vec<_> = more.into_values().collect();
    addresses.sort_unstable();
    assert_eq!(addresses, ["10.0.1.2", "10.0.1.3", "10.0.1.8"]);
}

/// Creates an IPRegistry named `other` in which the management cluster has the same identity.
async fn create_other_registry(cluster: &ManagementCluster, hub: &Hub) {
    let mut registry = hub.registry(cluster.id);
    registry["metadata"]["name"] = json!("other");
    let created = create(&cluster.registries(), &object(registry)).await;
    created.expect("the registry is valid");
    cluster
        .wait_for_registry_named("other", "True", "RegistryReady")
        .await;
}
