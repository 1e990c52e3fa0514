//! A registry that has lost writes: it was restored from a backup, or emptied.

use async_nats::jetstream::Context;
use async_nats::jetstream::stream::{Config, DiscardPolicy};
use support::prelude::*;
use support::registry::Backup;

use crate::site::{Hub, Site};

/// How long the manager can do something that it must not do.
const WAIT: Duration = Duration::from_secs(5);

/// Blocks of four addresses.
fn blocks() -> Value {
    json!({"registry": "site", "size": 4, "spare": 0, "keepSeconds": 3600})
}

/// No manager runs during the restore, as the documentation requires. The block that west has taken after
/// the backup looks free to east, which is started first.
async fn restored_registry_gives_no_block_twice(hub: Hub) {
    let mut site = Site::start(hub, blocks()).await;
    for cluster in [&site.west, &site.east] {
        cluster.create_pool("p", "10.0.1.0-10.0.1.15").await;
    }
    site.east.bind("p", &numbered("e-", 4)).await;
    let written = site.east.writes(&site.hub).await;
    let backup = Backup::take(&mut site.hub);
    let in_west = site.west.bind("p", &numbered("w-", 4)).await;
    site.east.wait_for_later_writes(&site.hub, written).await;
    site.west.kill();
    site.east.kill();
    backup.restore(&mut site.hub);

    let (west, east) = (&site.west, &site.east);
    let late = numbered("x-", 4);
    east.consumer.create_claims(&late, "p").await;
    east.restart();
    let text = east.wait_for_registry("False", "RegistryRestored").await;
    assert!(text.contains("west"), "{text}");
    east.consumer
        .wait_for_message("x-0", "WaitingForBlock", "it has lost some")
        .await;
    tokio::time::sleep(WAIT).await;
    assert_eq!(east.blocks().await.len(), 1, "west has written nothing yet");
    // Held blocks are used.
    east.consumer.release("e-0").await;
    east.consumer.create_claim("held", "p").await;
    east.restart();
    east.wait_for_registry("False", "RegistryRestored").await;

    west.restart();
    east.wait_for_registry("True", "RegistryReady").await;
    let in_east = east.consumer.wait_for_addresses(&late).await;
    east.consumer.wait_for_address("held").await;
    for (claim, address) in &in_east {
        assert!(!in_west.values().any(|other| other == address), "{claim}");
    }
    for block in west.blocks().await {
        site.wait_for_holder(&block, Some("west")).await;
    }
}

#[tokio::test]
async fn restored_bucket_gives_no_block_twice() {
    Box::pin(restored_registry_gives_no_block_twice(Hub::nats())).await;
}

#[tokio::test]
async fn restored_api_server_gives_no_block_twice() {
    Box::pin(restored_registry_gives_no_block_twice(Hub::kubernetes())).await;
}

/// No manager of the management cluster runs when the registry loses the record of its block, and its sign of
/// life shows no loss.
#[tokio::test]
async fn lost_record_of_a_held_block_is_noticed_at_the_start() {
    let site = Site::start(Hub::nats(), blocks()).await;
    let west = &site.west;
    west.create_pool("p", "10.0.1.0-10.0.1.15").await;
    west.bind("p", &numbered("w-", 1)).await;
    site.wait_for_record("cluster.east").await;
    west.kill();
    site.lose_record("10.0.1.0/30").await;
    west.restart();
    let text = west.wait_for_registry("False", "RegistryRestored").await;
    assert!(text.contains("east"), "{text}");
    site.wait_for_holder("10.0.1.0/30", Some("west")).await;
    west.bind("p", &numbered("x-", 3)).await;
    west.consumer.create_claim("y", "p").await;
    west.consumer
        .wait_for_message("y", "WaitingForBlock", "it has lost some")
        .await;
    tokio::time::sleep(WAIT).await;
    assert_eq!(west.blocks().await, ["10.0.1.0/30"], "others may be lost");
}

/// The backup is of a time when west had returned the block that it has taken back since.
#[tokio::test]
async fn block_in_use_that_a_backup_shows_as_returned_is_kept() {
    let blocks = json!({"registry": "site", "size": 4, "spare": 0, "keepSeconds": 0});
    let mut site = Site::start(Hub::nats(), blocks).await;
    for cluster in [&site.west, &site.east] {
        cluster.create_pool("p", "10.0.1.0-10.0.1.3").await;
    }
    site.west.bind("p", &numbered("w-", 1)).await;
    site.west.consumer.release("w-0").await;
    site.wait_for_holder("10.0.1.0/30", None).await;
    let written = site.east.writes(&site.hub).await;
    let backup = Backup::take(&mut site.hub);
    site.west.bind("p", &numbered("x-", 2)).await;
    site.east.wait_for_later_writes(&site.hub, written).await;
    site.west.kill();
    site.east.kill();
    backup.restore(&mut site.hub);

    let (west, east) = (&site.west, &site.east);
    east.consumer.create_claim("e", "p").await;
    east.restart();
    east.wait_for_registry("False", "RegistryRestored").await;
    west.restart();
    east.wait_for_registry("True", "RegistryReady").await;
    site.wait_for_holder("10.0.1.0/30", Some("west")).await;
    east.consumer.assert_stays_unbound("e").await;
}

/// Managers run during the restore. The cache of records ignores what is older than it.
async fn registry_restored_beside_managers_gives_no_block_twice(hub: Hub) {
    let mut site = Site::start(hub, blocks()).await;
    for cluster in [&site.west, &site.east] {
        cluster.create_pool("p", "10.0.1.0-10.0.1.15").await;
    }
    site.east.bind("p", &numbered("e-", 4)).await;
    let written = site.west.writes(&site.hub).await;
    let backup = Backup::take(&mut site.hub);
    let in_west = site.west.bind("p", &numbered("w-", 4)).await;
    site.west.wait_for_later_writes(&site.hub, written).await;
    backup.restore(&mut site.hub);

    let (west, east) = (&site.west, &site.east);
    let late = numbered("x-", 4);
    east.consumer.create_claims(&late, "p").await;
    let in_east = east.consumer.wait_for_addresses(&late).await;
    for (claim, address) in &in_east {
        assert!(!in_west.values().any(|other| other == address), "{claim}");
    }
    for block in west.blocks().await {
        site.wait_for_holder(&block, Some("west")).await;
    }
}

#[tokio::test]
async fn bucket_restored_beside_managers_gives_no_block_twice() {
    Box::pin(registry_restored_beside_managers_gives_no_block_twice(
        Hub::nats(),
    ))
    .await;
}

#[tokio::test]
async fn api_server_restored_beside_managers_gives_no_block_twice() {
    Box::pin(registry_restored_beside_managers_gives_no_block_twice(
        Hub::kubernetes(),
    ))
    .await;
}

/// The name of the stream of the bucket.
const STREAM: &str = "KV_ipam";

/// NATS JetStream, as an administrator uses it.
pub(crate) async fn administrator(hub: &Hub) -> Context {
    let Hub::Nats(server) = hub else {
        panic!("the registry is a server of NATS");
    };
    let url = server.lock().url();
    let client = async_nats::connect(url).await.expect("the server runs");
    async_nats::jetstream::new(client)
}

/// No watch shows that a bucket is emptied: the next sign of life finds it out.
#[tokio::test]
async fn emptied_bucket_is_noticed() {
    let site = Site::start(Hub::nats(), blocks()).await;
    site.west.create_pool("p", "10.0.1.0-10.0.1.15").await;
    site.west.bind("p", &numbered("w-", 1)).await;
    let jetstream = administrator(&site.hub).await;
    let stream = jetstream.get_stream(STREAM).await.expect("it exists");
    stream.purge().await.expect("it can be emptied");
    let reason = "RegistryReplaced";
    let text = site.west.wait_for_registry("False", reason).await;
    assert!(text.contains("no record of its identity"), "{text}");
    site.west.bind("p", &numbered("x-", 1)).await;
}

/// The settings of the bucket are changed so that it can lose records.
#[tokio::test]
async fn bucket_that_loses_records_is_reported() {
    let site = Site::start(Hub::nats(), blocks()).await;
    let jetstream = administrator(&site.hub).await;
    let stream = jetstream.get_stream(STREAM).await.expect("it exists");
    let good = &stream.cached_info().config;
    let expiring = Config {
        max_age: Duration::from_hours(1),
        ..good.clone()
    };
    let replacing = Config {
        discard: DiscardPolicy::Old,
        ..good.clone()
    };
    for (bad, part) in [
        (expiring, "remove its TTL"),
        (replacing, "discard has to be new"),
    ] {
        let changed = jetstream.update_stream(&bad).await;
        changed.expect("it can be changed");
        let reason = "RegistryUnreachable";
        let text = site.west.wait_for_registry("False", reason).await;
        assert!(text.contains(part), "{text}");
        let changed = jetstream.update_stream(good).await;
        changed.expect("it can be changed");
        site.west.wait_for_registry("True", "RegistryReady").await;
    }
}

/// Held blocks are used, and claims that need another one wait until there is room.
#[tokio::test]
async fn full_bucket_is_reported_until_it_has_room() {
    let site = Site::start(Hub::nats(), blocks()).await;
    let west = &site.west;
    west.create_pool("p", "10.0.1.0-10.0.1.15").await;
    west.bind("p", &numbered("w-", 1)).await;
    let jetstream = administrator(&site.hub).await;
    let mut stream = jetstream.get_stream(STREAM).await.expect("it exists");
    let info = stream.info().await.expect("the server answers").clone();
    let full = Config {
        max_bytes: i64::try_from(info.state.bytes).expect("it is small"),
        ..info.config.clone()
    };
    let changed = jetstream.update_stream(&full).await;
    changed.expect("it can be changed");
    let bound = west.bind("p", &numbered("x-", 3)).await;
    assert_eq!(bound.len(), 3);
    west.consumer.create_claim("y", "p").await;
    west.consumer.wait_for_reason("y", "WaitingForBlock").await;
    let text = west.wait_for_registry("False", "RegistryUnreachable").await;
    assert!(
        text.contains("is full") && text.contains("raise its limit"),
        "{text}"
    );
    let changed = jetstream.update_stream(&info.config).await;
    changed.expect("it can be changed");
    west.consumer.wait_for_address("y").await;
    west.wait_for_registry("True", "RegistryReady").await;
}
