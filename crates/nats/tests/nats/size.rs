//! A large bucket.

use std::time::Instant;

use capi_ipam_testing::nats::{Node, Options};
use capi_ipam_testing::process::Memory;
use futures::{StreamExt, TryStreamExt};

use crate::support::{Watched, connect, item, open, settings, single};

/// The number of keys.
const KEYS: u64 = 10_000;

/// The time and the memory of the list are printed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn list_of_ten_thousand_keys_is_complete() {
    let node = Node::start(Options::default());
    let connection = connect(&settings(vec![node.url()])).await;
    let bucket = open(&connection, &single()).await;
    let created = futures::stream::iter(0..KEYS)
        .map(|number| {
            let bucket = bucket.clone();
            async move {
                bucket
                    .create(&format!("block.{number}"), &item(number))
                    .await
            }
        })
        .buffer_unordered(64)
        .try_for_each(|_| std::future::ready(Ok(())));
    created.await.expect("they are created");
    let before = Memory::of(std::process::id());
    let start = Instant::now();
    let watched = Watched::start(&bucket, "").await;
    let elapsed = start.elapsed();
    let after = Memory::of(std::process::id());
    println!(
        "list of {KEYS} keys: {elapsed:?}, {:.1} MiB more memory at the peak",
        after.peak - before.now
    );
    assert_eq!(watched.objects.len() as u64, KEYS);
    let is_right =
        |number| watched.numbers().get(format!("block.{number}").as_str()) == Some(&number);
    assert!([0, 1, KEYS - 1].into_iter().all(is_right));
    assert_eq!(watched.lists, 1);
}
