//! Two management clusters with one identity.

use serde_json::json;
use support::consumer::{create, object};

use crate::site::{Hub, ManagementCluster, Site, names};

/// Both stop taking blocks, and say why. Both go on when only one of them has the identity.
#[tokio::test]
async fn two_clusters_with_one_id_take_no_block() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0});
    let site = Site::start(Hub::nats(), blocks).await;
    let (west, east) = (&site.west, &site.east);
    west.create_pool("p", "10.0.1.0-10.0.1.15").await;
    west.bind("p", &names("w", 4)).await;

    // A copy of west that was restored from a backup has its identity.
    replace_registry(east, site.hub.registry("west")).await;
    for cluster in [west, east] {
        let text = cluster.wait_for_registry("False", "ClusterIDInUse").await;
        assert!(text.contains("clusterID west"), "{text}");
    }
    west.consumer.create_claim("more", "p").await;
    west.consumer
        .wait_for_message(
            "more",
            "WaitingForBlock",
            "identity of this management cluster",
        )
        .await;

    replace_registry(east, site.hub.registry("east")).await;
    for cluster in [west, east] {
        cluster.wait_for_registry("True", "RegistryReady").await;
    }
    assert_eq!(west.consumer.wait_for_address("more").await, "10.0.1.4");
}

/// The identity of an IPRegistry is immutable: another one takes its place.
async fn replace_registry(cluster: &ManagementCluster, registry: serde_json::Value) {
    let registries = cluster.registries();
    cluster.consumer.delete_object(&registries, "site").await;
    let created = create(&registries, &object(registry)).await;
    created.expect("the registry is valid");
}
