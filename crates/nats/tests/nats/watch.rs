//! Watches.

use std::collections::BTreeMap;
use std::time::Duration;

use capi_ipam_nats::BucketOptions;
use capi_ipam_testing::nats::{Node, Options};
use capi_ipam_testing::wait::eventually;

use crate::support::{
    Item, Watched, connect, create, item, node_with_bucket, open, settings, single,
};
use crate::writes::delete_bucket;

/// The number of consumers of the bucket at the server.
async fn consumers(node: &Node) -> usize {
    let client = async_nats::connect(node.url()).await.expect("it runs");
    let jetstream = async_nats::jetstream::new(client);
    let stream = jetstream.get_stream("KV_ipam").await.expect("it exists");
    let info = stream.get_info().await.expect("it answers");
    info.state.consumer_count
}

#[tokio::test]
async fn empty_bucket_is_listed() {
    let (_node, bucket) = node_with_bucket().await;
    let mut watched = Watched::start(&bucket, "").await;
    assert_eq!(watched.objects, BTreeMap::new());
    create(&bucket, "a", 1).await;
    watched
        .until("the first object arrives", |watched| {
            watched.numbers() == BTreeMap::from([("a", 1)])
        })
        .await;
    assert_eq!(watched.lists, 1);
}

#[tokio::test]
async fn prefix_selects_whole_parts_of_keys() {
    let (_node, bucket) = node_with_bucket().await;
    for key in ["block.a.1", "block.a.2", "block.ab.1", "use.a.1"] {
        create(&bucket, key, 1).await;
    }
    let mut watched = Watched::start(&bucket, "block.a").await;
    let keys: Vec<_> = watched.objects.keys().cloned().collect();
    assert_eq!(keys, ["block.a.1", "block.a.2"]);
    create(&bucket, "use.a.2", 1).await;
    create(&bucket, "block.a.3", 1).await;
    watched
        .until("the third block arrives", |watched| {
            watched.objects.len() == 3
        })
        .await;
    assert!(watched.objects.contains_key("block.a.3"));
}

#[tokio::test]
async fn deletions_are_listed_and_watched_as_markers() {
    let (_node, bucket) = node_with_bucket().await;
    let before = create(&bucket, "before", 1).await;
    bucket.delete(&before).await.expect("it is ours");
    let after = create(&bucket, "after", 1).await;
    let mut watched = Watched::start(&bucket, "").await;
    assert_eq!(watched.deleted(), ["before"]);
    bucket.delete(&after).await.expect("it is ours");
    watched
        .until("the deletion arrives", |watched| watched.objects.is_empty())
        .await;
    assert_eq!(watched.deleted(), ["before", "after"]);
}

#[tokio::test]
async fn value_that_cannot_be_decoded_does_not_stop_others() {
    let (node, bucket) = node_with_bucket().await;
    let client = async_nats::connect(node.url()).await.expect("it runs");
    let jetstream = async_nats::jetstream::new(client);
    let publish = async |key: &str| {
        let published = jetstream
            .publish(format!("$KV.ipam.{key}"), "[".into())
            .await;
        published.expect("it is sent").await.expect("it is stored");
    };
    publish("bad.1").await;
    create(&bucket, "good.1", 1).await;
    let mut watched = Watched::start(&bucket, "").await;
    publish("bad.2").await;
    create(&bucket, "good.2", 2).await;
    watched
        .until("the good object arrives", |watched| {
            watched.objects.len() == 2
        })
        .await;
    let keys: Vec<_> = watched.objects.keys().cloned().collect();
    assert_eq!(keys, ["good.1", "good.2"]);
    assert_eq!(
        watched.invalid,
        ["bad.1", "bad.2"].map(str::to_owned).into()
    );
    let bad = bucket.read("bad.1").await.expect("it answers");
    let bad = bad.expect("it exists");
    assert!(bad.problem.is_some(), "{bad:?}");
    bucket
        .update(&bad, &item(3))
        .await
        .expect("it is corrected");
    watched
        .until("the corrected object arrives", |watched| {
            watched.objects.contains_key("bad.1")
        })
        .await;
}

/// While there is no server, the gate says why. The deleted bucket makes the process not ready.
#[tokio::test]
async fn gate_says_why_there_is_no_list() {
    let (mut node, bucket) = node_with_bucket().await;
    delete_bucket(&node).await;
    node.kill();
    let mut watched = Watched::open(&bucket, "");
    let health = watched.health.clone();
    let listed = tokio::spawn(async move {
        watched
            .until("the bucket is listed", |watched| watched.lists > 0)
            .await;
    });
    eventually("the server is away", || async {
        let pending = health.pending();
        pending.concat().contains("unavailable").then_some(())
    })
    .await;
    assert_eq!(health.problems(), [""; 0]);
    node.start_again();
    node.wait_until_healthy();
    let expected = "Item: bucket ipam does not exist: create it";
    eventually("the bucket is missing", || async {
        (health.problems() == [expected]).then_some(())
    })
    .await;
    let connection = connect(&settings(vec![node.url()])).await;
    open(&connection, &single()).await;
    listed.await.expect("it is listed");
}

#[tokio::test]
async fn bucket_that_is_deleted_and_created_again_is_listed_again() {
    let (node, bucket) = node_with_bucket().await;
    create(&bucket, "old", 1).await;
    let mut watched = Watched::start(&bucket, "").await;
    delete_bucket(&node).await;
    let connection = connect(&settings(vec![node.url()])).await;
    let again = open(&connection, &single()).await;
    create(&again, "new", 2).await;
    watched
        .until("the new bucket is listed", |watched| {
            watched.numbers() == BTreeMap::from([("new", 2)])
        })
        .await;
    create(&again, "later", 3).await;
    watched
        .until("the watch goes on", |watched| {
            watched.objects.contains_key("later")
        })
        .await;
}

/// A bucket of an administrator starts with revision 1 each time. A consumer that resumes after the
/// last revision that it saw would miss all keys of the second one.
#[tokio::test]
async fn bucket_that_starts_with_the_same_revision_has_no_gap() {
    let (node, bucket) = node_with_bucket().await;
    let client = async_nats::connect(node.url()).await.expect("it runs");
    let jetstream = async_nats::jetstream::new(client);
    let stream = jetstream.get_stream("KV_ipam").await.expect("it exists");
    let mut config = stream.get_info().await.expect("it answers").config;
    config.first_sequence = None;
    delete_bucket(&node).await;
    jetstream
        .create_stream(config.clone())
        .await
        .expect("it is valid");
    create(&bucket, "old.1", 1).await;
    create(&bucket, "old.2", 2).await;
    let mut watched = Watched::start(&bucket, "").await;
    delete_bucket(&node).await;
    jetstream.create_stream(config).await.expect("it is valid");
    for number in 1..=3 {
        create(&bucket, &format!("new.{number}"), number).await;
    }
    let expected = BTreeMap::from([("new.1", 1), ("new.2", 2), ("new.3", 3)]);
    watched
        .until("the new bucket is listed", |watched| {
            watched.numbers() == expected
        })
        .await;
}

/// The server is restored from an old backup, and then takes more writes than it has lost.
#[tokio::test]
async fn restored_backup_is_listed_again() {
    let (mut node, bucket) = node_with_bucket().await;
    create(&bucket, "kept", 1).await;
    node.stop();
    let backup = node.back_up();
    node.start_again();
    node.wait_until_healthy();
    let mut watched = Watched::start(&bucket, "").await;
    create(&bucket, "lost", 2).await;
    watched
        .until("the object arrives", |watched| {
            watched.objects.contains_key("lost")
        })
        .await;
    node.stop();
    node.restore(&backup);
    node.start_again();
    node.wait_until_healthy();
    let connection = connect(&settings(vec![node.url()])).await;
    let other = open(&connection, &single()).await;
    for number in 0..3 {
        create(&other, &format!("new.{number}"), number).await;
    }
    let expected = BTreeMap::from([("kept", 1), ("new.0", 0), ("new.1", 1), ("new.2", 2)]);
    watched
        .until("the backup is listed", |watched| {
            watched.numbers() == expected
        })
        .await;
}

/// A watch in a storm of restarts has one consumer, and none after it is dropped.
#[tokio::test]
async fn consumers_do_not_leak() {
    let (mut node, bucket) = node_with_bucket().await;
    let mut watches = Vec::new();
    for _ in 0..3 {
        watches.push(Watched::start(&bucket, "").await);
    }
    assert_eq!(consumers(&node).await, 3);
    for round in 1..=3 {
        // In the second round the server is paused instead.
        if round == 2 {
            node.pause();
            tokio::time::sleep(Duration::from_secs(2)).await;
            node.resume();
        } else {
            node.kill();
            node.start_again();
        }
        node.wait_until_healthy();
        let key = format!("round.{round}");
        eventually("the server answers", || async {
            bucket.create(&key, &item(round)).await.ok()
        })
        .await;
        for watched in &mut watches {
            watched
                .until("the object arrives", |watched| {
                    watched.objects.contains_key(&key)
                })
                .await;
        }
        assert_eq!(consumers(&node).await, 3, "round {round}");
    }
    drop(watches);
    let node = &node;
    eventually("the consumers are deleted", || async move {
        (consumers(node).await == 0).then_some(())
    })
    .await;
}

/// Also a watch that nothing disturbs lists again: what was removed without a marker is noticed.
#[tokio::test]
async fn resync_notices_what_was_removed_by_hand() {
    let node = Node::start(Options::default());
    let connection = connect(&settings(vec![node.url()])).await;
    let options = BucketOptions {
        resync_interval: Duration::from_millis(500),
        ..single()
    };
    let bucket = open(&connection, &options).await;
    create(&bucket, "a", 1).await;
    let removed = create(&bucket, "b", 2).await;
    let mut watched = Watched::start(&bucket, "").await;
    let client = async_nats::connect(node.url()).await.expect("it runs");
    let jetstream = async_nats::jetstream::new(client);
    let stream = jetstream.get_stream("KV_ipam").await.expect("it exists");
    let purged = stream.purge().filter("$KV.ipam.b").await;
    assert_eq!(purged.expect("it may").purged, 1, "{removed:?}");
    watched
        .until("the removal is noticed", |watched| {
            watched.numbers() == BTreeMap::from([("a", 1)])
        })
        .await;
    assert_eq!(consumers(&node).await, 1);
}

/// The server stops to send when much was not read yet. What it has not sent then is removed, so no
/// message shows that nothing is left.
#[tokio::test]
async fn list_does_not_wait_for_what_was_removed() {
    let (node, bucket) = node_with_bucket().await;
    for number in 0..8 {
        let large = Item {
            cluster: "x".repeat(900_000),
            number,
        };
        let created = bucket.create(&format!("large.{number}"), &large).await;
        created.expect("it does not exist");
    }
    create(&bucket, "small.1", 1).await;
    create(&bucket, "small.2", 2).await;
    let mut watched = Watched::open(&bucket, "");
    watched
        .until("the list has begun", Watched::is_listing)
        .await;
    let client = async_nats::connect(node.url()).await.expect("it runs");
    let jetstream = async_nats::jetstream::new(client);
    let stream = jetstream.get_stream("KV_ipam").await.expect("it exists");
    let mut removed = vec!["small.*".to_owned()];
    removed.extend((1..8).map(|number| format!("large.{number}")));
    for keys in removed {
        let purged = stream.purge().filter(format!("$KV.ipam.{keys}")).await;
        assert!(purged.expect("it may").purged > 0, "{keys}");
    }
    watched
        .until("the list is complete", |watched| watched.lists > 0)
        .await;
    assert!(watched.objects.contains_key("large.0"));
    assert!(!watched.objects.contains_key("small.2"));
}

/// The marker of another program does not expire, so it is in each list.
#[tokio::test]
async fn marker_of_another_program_is_delivered_once() {
    let node = Node::start(Options::default());
    let connection = connect(&settings(vec![node.url()])).await;
    let options = BucketOptions {
        resync_interval: Duration::from_millis(200),
        ..single()
    };
    let bucket = open(&connection, &options).await;
    create(&bucket, "a", 1).await;
    let client = async_nats::connect(node.url()).await.expect("it runs");
    let jetstream = async_nats::jetstream::new(client);
    let mut headers = async_nats::HeaderMap::new();
    headers.insert("KV-Operation", "DEL");
    let sent = jetstream.publish_with_headers("$KV.ipam.a", headers, "".into());
    let sent = sent.await.expect("it is sent");
    sent.await.expect("it is stored");
    let mut watched = Watched::start(&bucket, "").await;
    watched
        .until("it lists again", |watched| watched.lists >= 3)
        .await;
    assert_eq!(watched.deleted(), ["a"]);
}

#[tokio::test]
async fn watch_goes_on_after_a_restart() {
    let (mut node, bucket) = node_with_bucket().await;
    let mut held = create(&bucket, "a", 1).await;
    let mut watched = Watched::start(&bucket, "").await;
    for number in 2..4 {
        node.restart();
        held = eventually("the server answers", || async {
            bucket.update(&held, &item(number)).await.ok()
        })
        .await;
        watched
            .until("the update arrives", |watched| {
                watched.numbers() == BTreeMap::from([("a", number)])
            })
            .await;
    }
}
