//! The registry in a bucket with three replicas.

use std::sync::Arc;
use std::time::Duration;

use capi_ipam_controller::client::error_chain;
use capi_ipam_registry::{BucketOptions, Created, Entry, NatsRegistry, Registry, RegistryError};
use capi_ipam_testing::nats::{Cluster, Options};
use capi_ipam_testing::wait::{eventually, eventually_ok};

use crate::nats::{BUCKET, options, settings};
use crate::support::{Watched, block_key, block_record, create, holder};

/// Opens a bucket with three replicas, with a client that gives up soon.
async fn open(servers: Vec<String>) -> Registry {
    let mut settings = settings(servers);
    settings.deadlines.request = Duration::from_secs(2);
    let replicated = BucketOptions {
        single: false,
        ..options()
    };
    let opened = eventually_ok("the registry is open", || async {
        let opened = NatsRegistry::open(&settings, BUCKET, &replicated).await;
        opened.map_err(|error| error_chain(&error))
    });
    Arc::new(opened.await)
}

/// Writes a record again: a majority of the servers confirms that the holder has the block.
async fn confirm(registry: &Registry, held: &Entry) -> Result<Entry, RegistryError> {
    let record = held.record().expect("it is a record");
    registry.update(held, record).await
}

/// The number of the server that leads the bucket.
async fn leader(cluster: &Cluster) -> usize {
    eventually("the bucket has a leader", || async {
        let client = async_nats::connect(cluster.urls()).await.ok()?;
        let jetstream = async_nats::jetstream::new(client);
        let stream = jetstream.get_stream(format!("KV_{BUCKET}")).await.ok()?;
        let name = stream.cached_info().cluster.as_ref()?.leader.clone()?;
        Some(cluster.index_of(&name))
    })
    .await
}

/// Takes a block until it is confirmed for `cluster`, as a controller does.
async fn take(registry: &Registry, key: &str, cluster: &str) {
    let record = block_record(key, cluster);
    eventually_ok("the block is taken", || async {
        let created = registry.create(key, &record).await;
        let created = created.map_err(|error| error_chain(&error))?;
        let (Created::Ours(held) | Created::Theirs(held)) = created;
        assert_eq!(holder(&held), cluster);
        let confirmed = confirm(registry, &held).await;
        confirmed.map_err(|error| error_chain(&error))
    })
    .await;
}

/// A leader that was deposed and does not know it answers reads for some seconds. It confirms
/// nothing, and what it was asked to write is not found afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deposed_leader_confirms_nothing() {
    let cluster = Cluster::start(&Options::default());
    let all = open(cluster.urls()).await;
    let held = create(&all, &block_key(1), "west").await;
    let leader = leader(&cluster).await;
    let mut urls = cluster.urls();
    let behind = open(vec![urls.remove(leader)]).await;
    let others = open(urls).await;
    cluster.separate(leader);
    let unconfirmed = confirm(&behind, &held).await;
    assert!(unconfirmed.is_err(), "two of three have not stored it");
    let key = block_key(2);
    let record = block_record(&key, "west");
    let created = behind.create(&key, &record).await;
    assert!(created.is_err(), "{created:?}");
    // The majority gives the block to another cluster.
    take(&others, &key, "east").await;
    if let Ok(Created::Theirs(seen)) = behind.create(&key, &record).await {
        assert_eq!(holder(&seen), "east");
    }
    cluster.join(leader);
    eventually("the server has joined", || async {
        let read = behind.read(&key).await.ok().flatten()?;
        (holder(&read) == "east").then_some(())
    })
    .await;
}

/// The leader is killed while blocks are taken. No confirmed block is lost, and the watch shows all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_leader_loses_no_confirmed_block() {
    let mut cluster = Cluster::start(&Options::default());
    let registry = open(cluster.urls()).await;
    let watched = Watched::complete(&registry).await;
    for round in 0..2 {
        take(&registry, &block_key(2 * round), "west").await;
        let leader = leader(&cluster).await;
        cluster.node(leader).kill();
        take(&registry, &block_key(2 * round + 1), "west").await;
        cluster.node(leader).start_again();
        cluster.wait_until_healthy();
        let expected = vec!["west"; 2 * round as usize + 2];
        watched.until_holders(&expected).await;
    }
    let lost = registry
        .create(&block_key(0), &block_record(&block_key(0), "east"))
        .await;
    assert!(
        matches!(
            &lost,
            Ok(Created::Theirs(_)) | Err(RegistryError::Unknown { .. })
        ),
        "{lost:?}"
    );
}
