//! Two registries of one management cluster, which has the same identity in both.

use std::time::Duration;

use capi_ipam_registry::Backend;
use serde_json::json;
use support::consumer::{create, object};

use crate::site::{Hub, NETWORK, Site, key_of, names};

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
    let mut registry = other.registry("west");
    registry["metadata"]["name"] = json!("other");
    let created = create(&west.registries(), &object(registry)).await;
    created.expect("the registry is valid");
    west.wait_for_registry_named("other", "True", "RegistryReady")
        .await;
    let blocks = json!({"registry": "other", "size": 4, "spare": 0, "keepSeconds": 0});
    west.create_network("second", blocks).await;
    west.create_pool("p", "10.0.1.0-10.0.1.7").await;
    west.create_pool_in("second", "q", "10.0.1.0-10.0.1.7")
        .await;
    west.bind("p", &names("a", 1)).await;
    west.bind("q", &names("b", 1)).await;
    let held = ["10.0.1.0/30"];
    assert_eq!(west.blocks().await, held);
    assert_eq!(west.blocks_of("second").await, held);

    site.hub.stop();
    let west = &site.west;
    west.wait_for_registry("False", "RegistryUnreachable").await;
    west.consumer.release("a-0").await;
    west.stop_sharing();
    tokio::time::sleep(WAIT).await;
    assert_eq!(west.blocks().await, held, "its registry has the record");
    let records = other.open().await;
    let unrelated = records.read(&key_of(NETWORK, held[0])).await;
    assert_eq!(unrelated.expect("the registry answers"), None);

    site.hub.start();
    site.wait_for_holder(held[0], None).await;
    let west = &site.west;
    west.wait_for_blocks(&[]).await;
    assert_eq!(west.blocks_of("second").await, held);
    let own = records.read(&key_of("second", held[0])).await;
    assert!(own.expect("the registry answers").is_some());
}
