//! The registry is away, or a manager ends.

use capi_ipam_registry::{Created, NetworkRecord, Record, RegistryError};
use support::prelude::*;
use tokio::net::TcpListener;

use crate::site::{Hub, REGISTRY, Site};

async fn wait_for_registry_event(site: &Site, (type_, reason, part): (&str, &str, &str)) {
    site.west
        .wait_for_event(REGISTRY, type_, reason, part)
        .await;
}

async fn held_blocks_work_without_the_registry(hub: Hub) {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0});
    let mut site = Site::start(hub, blocks).await;
    site.west.create_pool("p", "10.0.1.0-10.0.1.15").await;
    site.west.bind("p", &numbered("a-", 2)).await;

    site.hub.stop();
    // Two addresses of the block are left, and one is released.
    site.west.bind("p", &numbered("b-", 2)).await;
    site.west.consumer.release("a-0").await;
    site.west.bind("p", &numbered("c-", 1)).await;
    site.west.consumer.create_claim("d", "p").await;
    site.west
        .consumer
        .wait_for_reason("d", "RegistryUnreachable")
        .await;
    site.west
        .wait_for_registry("False", "RegistryUnreachable")
        .await;

    // A manager that is killed publishes nothing any more.
    let event = ("Warning", "RegistryUnreachable", "no block is taken");
    wait_for_registry_event(&site, event).await;

    // Also a manager that starts meanwhile.
    site.west.restart();
    site.west.consumer.release("b-0").await;
    site.west.consumer.wait_for_address("d").await;
    site.west.consumer.create_claim("e", "p").await;
    site.west
        .consumer
        .wait_for_reason("e", "RegistryUnreachable")
        .await;

    site.start_hub();
    site.west.consumer.wait_for_address("e").await;
    site.west.wait_for_registry("True", "RegistryReady").await;
    let event = ("Normal", "RegistryReady", "can be used again");
    wait_for_registry_event(&site, event).await;
    site.west
        .wait_for_blocks(&["10.0.1.0/30", "10.0.1.4/30"])
        .await;
}

#[tokio::test]
async fn held_blocks_work_without_nats() {
    Box::pin(held_blocks_work_without_the_registry(Hub::nats())).await;
}

#[tokio::test]
async fn held_blocks_work_without_the_other_api_server() {
    Box::pin(held_blocks_work_without_the_registry(Hub::kubernetes())).await;
}

/// The servers accept connections and send no answer. With a deadline for each of the 16, the start would
/// take longer than a claim is waited for.
#[tokio::test]
async fn held_blocks_work_with_silent_servers() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0});
    let site = Site::start(Hub::nats(), blocks).await;
    site.west.create_pool("p", "10.0.1.0-10.0.1.15").await;
    site.west.bind("p", &numbered("a-", 1)).await;

    let mut silent = Vec::new();
    let mut urls = Vec::new();
    for _ in 0..16 {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        urls.push(format!("nats://{address}"));
        silent.push(listener);
    }
    site.west.use_servers(&json!(urls));
    site.west.restart();
    site.west.bind("p", &numbered("b-", 1)).await;
}

/// The other API server is upgraded: it restarts, and its definition of IPBlock gets a further field.
#[tokio::test]
async fn upgrade_of_the_other_api_server_changes_no_block() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0});
    let mut site = Site::start(Hub::kubernetes(), blocks).await;
    for cluster in [&site.west, &site.east] {
        cluster.create_pool("p", "10.0.1.0-10.0.1.31").await;
        cluster.bind("p", &numbered("a-", 3)).await;
    }
    let before = (site.west.blocks().await, site.east.blocks().await);

    site.hub.stop();
    site.west.bind("p", &numbered("b-", 1)).await;
    site.start_hub();
    let Hub::Kubernetes(hub) = &site.hub else {
        panic!("the registry is another API server");
    };
    let field = json!([{
        "op": "add",
        "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/zone",
        "value": {"type": "string"},
    }]);
    hub.kubectl(&[
        "patch",
        "crd",
        "ipblocks.ipam.cluster.x-k8s.io",
        "--type=json",
        &format!("--patch={field}"),
    ]);
    let names = numbered("c-", 3);
    futures::join!(site.west.bind("p", &names), site.east.bind("p", &names));
    let after = (site.west.blocks().await, site.east.blocks().await);
    for (before, after) in [(before.0, &after.0), (before.1, &after.1)] {
        assert!(
            before.iter().all(|block| after.contains(block)),
            "{before:?}, {after:?}"
        );
    }
    assert!(
        !after.0.iter().any(|block| after.1.contains(block)),
        "{after:?}"
    );
}

/// Sets how long the names of networks have to be that have a record.
fn set_min_length_of_names(hub: &Hub, length: u32) {
    let Hub::Kubernetes(hub) = hub else {
        panic!("the registry is another API server");
    };
    let field = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/network/properties/network\
                 /minLength";
    let patch = json!([{"op": "replace", "path": field, "value": length}]);
    hub.kubectl(&[
        "patch",
        "crd",
        "ipblocks.ipam.cluster.x-k8s.io",
        "--type=json",
        &format!("--patch={patch}"),
    ]);
}

/// Waits until the registry refuses the record of a network whose name has one letter.
async fn wait_until_refused(hub: &Hub) {
    let registry = hub.open().await;
    let record = Record::Network(NetworkRecord {
        network: "x".to_owned(),
        size: 4,
        size_of: "north".to_owned(),
        quarantine_seconds: None,
    });
    eventually("the registry refuses the record", || async {
        match registry.create("network.x", &record).await {
            Err(RegistryError::Invalid { .. }) => Some(()),
            Ok(Created::Ours(entry)) => {
                let _ = registry.delete(&entry).await;
                None
            }
            _ => None,
        }
    })
    .await;
}

/// The network is the first one by name, and so its record is written before those of the others.
#[tokio::test]
async fn refused_record_of_a_network_does_not_stop_the_others() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0});
    let site = Site::start(Hub::kubernetes(), blocks.clone()).await;
    set_min_length_of_names(&site.hub, 2);
    wait_until_refused(&site.hub).await;
    let west = &site.west;
    west.create_network("a", blocks).await;
    west.create_pool_in("a", "refused", "10.0.2.0-10.0.2.15")
        .await;
    west.consumer
        .claim_waits("w", "refused", "WaitingForBlock")
        .await;

    west.create_pool("p", "10.0.1.0-10.0.1.15").await;
    // Each block is taken although the record is refused again and again.
    for prefix in ["a", "b", "c"] {
        west.bind("p", &numbered(&format!("{prefix}-"), 4)).await;
    }
    west.wait_for_registry("True", "RegistryReady").await;

    set_min_length_of_names(&site.hub, 1);
    west.consumer.wait_for_address("w").await;
}
