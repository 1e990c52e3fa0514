//! A cluster of three servers, of which one or two are away.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use capi_ipam_nats::{Bucket, KvError, KvObject};
use capi_ipam_testing::nats::{Cluster, Options};
use capi_ipam_testing::wait::{eventually, eventually_ok};

use crate::support::{Item, Watched, chain, connect, create, impatient, item, open, replicated};

/// A cluster with a bucket, and a client that gives up soon.
async fn cluster_with_bucket() -> (Cluster, Bucket<Item>) {
    let cluster = Cluster::start(&Options::default());
    let connection = connect(&impatient(cluster.urls())).await;
    // A cluster that has just started may have no leader for the bucket yet.
    let bucket = eventually_ok("the bucket is created", || async {
        let opened = Bucket::open(&connection, "ipam", &replicated()).await;
        opened.map_err(|error| chain(&error))
    })
    .await;
    (cluster, bucket)
}

/// The number of the server that leads the bucket, as another server sees it.
async fn leader(cluster: &Cluster) -> usize {
    eventually("the bucket has a leader", || async {
        let client = async_nats::connect(cluster.urls()).await.ok()?;
        let jetstream = async_nats::jetstream::new(client);
        let stream = jetstream.get_stream("KV_ipam").await.ok()?;
        let name = stream.cached_info().cluster.as_ref()?.leader.clone()?;
        Some(cluster.index_of(&name))
    })
    .await
}

/// Updates a key until it has a value, and reads again after each failure.
async fn update_until_done(bucket: &Bucket<Item>, key: &str, number: u64) -> KvObject<Item> {
    eventually_ok("the update is applied", || async {
        let held = bucket.read(key).await.map_err(|error| chain(&error))?;
        let held = held.ok_or("it does not exist")?;
        if held.value == Some(item(number)) {
            return Ok(held);
        }
        let updated = bucket.update(&held, &item(number)).await;
        updated.map_err(|error| chain(&error))
    })
    .await
}

/// Waits until a watch has exactly this value.
async fn wait_for(watched: &mut Watched, key: &str, number: u64) {
    let expected = BTreeMap::from([(key, number)]);
    watched
        .until("the value arrives", |watched| watched.numbers() == expected)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_leader_is_replaced() {
    let (mut cluster, bucket) = cluster_with_bucket().await;
    create(&bucket, "a", 1).await;
    let mut watched = Watched::start(&bucket, "").await;
    for number in 2..4 {
        let leader = leader(&cluster).await;
        cluster.node(leader).kill();
        update_until_done(&bucket, "a", number).await;
        wait_for(&mut watched, "a", number).await;
        cluster.node(leader).start_again();
        cluster.wait_until_healthy();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_leader_is_replaced_and_undoes_nothing() {
    let (mut cluster, bucket) = cluster_with_bucket().await;
    let held = create(&bucket, "a", 1).await;
    let mut watched = Watched::start(&bucket, "").await;
    let leader = leader(&cluster).await;
    cluster.node(leader).pause();
    // This write waits in a socket of the paused server, or is answered by nobody.
    let lost = bucket.update(&held, &item(100)).await;
    println!("{lost:?}");
    let current = update_until_done(&bucket, "a", 2).await;
    cluster.node(leader).resume();
    cluster.wait_until_healthy();
    let current = match bucket.read("a").await {
        Ok(Some(read)) if read.revision > current.revision => {
            panic!("a late write has replaced {current:?}: {read:?}")
        }
        _ => current,
    };
    let value = current.value.expect("it is a value").number;
    wait_for(&mut watched, "a", value).await;
    update_until_done(&bucket, "a", 3).await;
    wait_for(&mut watched, "a", 3).await;
}

/// Clients of a leader that is separated from the others cannot write, and a watch there catches up
/// when the separation ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn separated_leader_accepts_no_write() {
    let (cluster, bucket) = cluster_with_bucket().await;
    create(&bucket, "a", 1).await;
    let leader = leader(&cluster).await;
    let mut urls = cluster.urls();
    let behind = connect(&impatient(vec![urls.remove(leader)])).await;
    let behind = open(&behind, &replicated()).await;
    let others = connect(&impatient(urls)).await;
    let others = open(&others, &replicated()).await;
    let mut watched = Watched::start(&behind, "").await;
    wait_for(&mut watched, "a", 1).await;
    cluster.separate(leader);
    let held = behind.read("a").await.ok().flatten();
    if let Some(held) = held {
        let started = Instant::now();
        let error = behind.update(&held, &item(100)).await;
        let error = error.expect_err("two of three have not stored it");
        println!("{} after {:?}", chain(&error), started.elapsed());
        assert!(!matches!(error, KvError::Full { .. } | KvError::Invalid(_)));
    }
    let created = behind.create("b", &item(100)).await;
    assert!(created.is_err(), "{created:?}");
    let current = update_until_done(&others, "a", 2).await;
    // Whatever the separated server answers, it stores nothing.
    for number in 101..103 {
        if let Ok(Some(held)) = behind.read("a").await {
            let written = behind.update(&held, &item(number)).await;
            assert!(written.is_err(), "{written:?}");
        }
    }
    cluster.join(leader);
    let read = eventually("the server has joined", || async {
        let read = behind.read("a").await.ok().flatten()?;
        (read.revision >= current.revision).then_some(read)
    })
    .await;
    assert_eq!(read, current);
    wait_for(&mut watched, "a", 2).await;
    update_until_done(&behind, "a", 3).await;
    wait_for(&mut watched, "a", 3).await;
}

/// Without a majority nothing is written, and everything ends within its deadline.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bucket_without_majority_is_unavailable() {
    let (mut cluster, bucket) = cluster_with_bucket().await;
    let held = create(&bucket, "a", 1).await;
    let mut watched = Watched::start(&bucket, "").await;
    let leader = leader(&cluster).await;
    let away = [(leader + 1) % 3, (leader + 2) % 3];
    for index in away {
        cluster.node(index).kill();
    }
    // As long as the leader does not know, a write may still be applied.
    let bucket = &bucket;
    let held = &held;
    eventually("the bucket is unavailable", || async {
        let started = Instant::now();
        let error = bucket.update(held, &item(100)).await;
        let error = error.expect_err("two of three have not stored it");
        let elapsed = started.elapsed();
        // Two requests with a deadline of a second each.
        assert!(elapsed < Duration::from_secs(20), "{elapsed:?}");
        let is_unavailable = matches!(error, KvError::Unavailable { .. });
        println!("{} after {elapsed:?}", chain(&error));
        is_unavailable.then_some(())
    })
    .await;
    for index in away {
        cluster.node(index).start_again();
    }
    cluster.wait_until_healthy();
    update_until_done(bucket, "a", 2).await;
    wait_for(&mut watched, "a", 2).await;
}

/// The data of one server is that of an old backup. The two others know better.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_backup_of_one_server_is_corrected() {
    let (mut cluster, bucket) = cluster_with_bucket().await;
    create(&bucket, "a", 1).await;
    let index = leader(&cluster).await;
    cluster.node(index).stop();
    let backup = cluster.node(index).back_up();
    cluster.node(index).start_again();
    cluster.wait_until_healthy();
    for number in 2..5 {
        update_until_done(&bucket, "a", number).await;
    }
    let mut watched = Watched::start(&bucket, "").await;
    let node = cluster.node(index);
    node.stop();
    node.restore(&backup);
    node.start_again();
    cluster.wait_until_healthy();
    let current = update_until_done(&bucket, "a", 5).await;
    wait_for(&mut watched, "a", 5).await;
    for url in cluster.urls() {
        let connection = connect(&impatient(vec![url])).await;
        let bucket = open(&connection, &replicated()).await;
        assert_eq!(
            bucket.read("a").await.expect("it answers"),
            Some(current.clone())
        );
    }
}
