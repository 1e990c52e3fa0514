//! Two managers of one pool, one with a stale cache: late reads do not make an address unusable.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicBool, Ordering},
};

use futures::StreamExt;
use support::prelude::*;

use crate::{
    GLOBAL,
    lagging::{ADDRESSES_IN_USE, Lagging, Reads},
    serving, serving_namespace,
    versions::at_rest,
};

/// The size of 10.0.0.0/24 without network and broadcast address.
const TOTAL: i64 = 254;
/// The number of claims that are created and deleted in one round.
const BURST: usize = 120;

async fn wait_until_all_deleted(consumer: &Consumer, what: &str) {
    until_within(
        Duration::from_mins(3),
        &format!("{what} are gone"),
        || async {
            let claims = consumer.claims().list().await.ok()?;
            let addresses = consumer.addresses().list().await.ok()?;
            Some(claims.is_empty() && addresses.is_empty())
        },
    )
    .await;
}

/// Waits until a claim is bound, and deletes it at once.
async fn bind_and_delete(consumer: &Consumer, name: &str) {
    consumer
        .wait_until_bound(name, Duration::from_mins(5))
        .await;
    consumer.delete(name).await;
}

/// Creates and deletes claims at the same time: half of each burst immediately, the others during
/// the next one.
async fn bursts(consumer: &Consumer) {
    let mut before: Vec<String> = Vec::new();
    for round in 0..3 {
        let (stay, leave) = (
            numbered(&format!("stay{round}-"), BURST / 2),
            numbered(&format!("leave{round}-"), BURST / 2),
        );
        let leaving = futures::stream::iter(&leave).for_each_concurrent(24, async |name| {
            consumer.create_claim(name, "web").await;
            bind_and_delete(consumer, name).await;
        });
        tokio::join!(
            leaving,
            consumer.delete_all(&before),
            consumer.create_claims(&stay, "web")
        );
        before = stay;
    }
    futures::stream::iter(&before)
        .for_each_concurrent(24, |name| bind_and_delete(consumer, name))
        .await;
}

/// Suspends the two managers alternately, so that one of them always has stale caches and late
/// responses.
async fn suspend_alternately(managers: &mut [Manager; 2], over: &AtomicBool) {
    let mut turn = 0;
    while !over.load(Ordering::Relaxed) {
        let manager = &mut managers[turn % 2];
        manager.signal("STOP");
        tokio::time::sleep(Duration::from_millis(150)).await;
        manager.signal("CONT");
        tokio::time::sleep(Duration::from_millis(60)).await;
        turn += 1;
    }
}

/// Binds as many claims as the pool has addresses while only one manager runs, and releases them.
async fn assert_binds_all(consumer: &Consumer, prefix: &str) {
    let names = numbered(prefix, usize::try_from(TOTAL).expect("a small number"));
    consumer.create_claims(&names, "web").await;
    let bound = consumer.wait_for_addresses(&names).await;
    assert_eq!(
        bound.values().collect::<HashSet<_>>().len(),
        names.len(),
        "no address is bound twice"
    );
    consumer.wait_for_counts("web", (TOTAL, 0, TOTAL, 0)).await;
    consumer.delete_all(&names).await;
    wait_until_all_deleted(consumer, prefix).await;
    consumer.wait_for_counts("web", (TOTAL, TOTAL, 0, 0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_addresses_are_free_after_bursts_with_two_managers() {
    let (plane, consumer) = scene().await;
    let mut managers = [serving(&plane, &[]), serving(&plane, &[])];
    consumer.create_pool("web", "10.0.0.0/24").await;
    consumer.wait_for_counts("web", (TOTAL, TOTAL, 0, 0)).await;
    let over = AtomicBool::new(false);
    let work = async {
        bursts(&consumer).await;
        over.store(true, Ordering::Relaxed);
    };
    let started = Instant::now();
    tokio::join!(work, suspend_alternately(&mut managers, &over));
    println!("the bursts took {:?}", started.elapsed());
    wait_until_all_deleted(&consumer, "the claims of all rounds").await;
    eventually_within(Duration::from_mins(2), "no reservation is left", || async {
        consumer
            .reservations()
            .list()
            .await
            .ok()?
            .is_empty()
            .then_some(())
    })
    .await;
    consumer.wait_for_counts("web", (TOTAL, TOTAL, 0, 0)).await;
    at_rest(&consumer).await;
    println!("at rest after {:?}", started.elapsed());

    // Each of the two alone.
    for (alone, other) in [(0, 1), (1, 0)] {
        managers[other].signal("STOP");
        assert_binds_all(&consumer, &format!("alone{alone}-")).await;
        managers[other].signal("CONT");
        at_rest(&consumer).await;
        println!(
            "manager {alone} alone can use all addresses, after {:?}",
            started.elapsed()
        );
    }
    consumer.wait_for_counts("web", (TOTAL, TOTAL, 0, 0)).await;
}

/// The manager of namespace two reads reservations. Before the response arrives they are deleted,
/// and its watch reports the deletion.
async fn assert_late_response_is_ignored(reads: Reads, taken: usize) {
    let plane = ControlPlane::new();
    let (one, two) = two_consumers(&plane).await;
    let _of_one = serving_namespace(&plane, &one);
    let lagging = Lagging::start(&plane).await;
    let flag = format!("--namespace={}", two.namespace);
    let flags = [flag.as_str(), "--sweep-interval=1s", "--sweep-grace=1s"];
    let of_two = Manager::launch(&plane, lagging.kubeconfig(), &flags);
    of_two.wait_until_ready();
    let total = taken + 1;
    one.create_global_pool("shared", format!("10.0.0.1-10.0.0.{total}"))
        .await;
    two.bind_global("first", "shared").await;
    two.release("first").await;
    let total = i64::try_from(total).expect("a small number");
    one.wait_for_counts_of(GLOBAL, "shared", (total, total, 0, 0))
        .await;

    // The manager of namespace two does not know which addresses are in use, so it reads.
    lagging.hold_watches(ADDRESSES_IN_USE);
    let held = numbered("held", taken);
    one.create_global_claims(&held, "shared").await;
    one.wait_for_addresses(&held).await;
    lagging.hold_reads(reads);
    two.create_global_claim("asks", "shared").await;
    lagging.wait_until_read_is_held().await;
    // At the same time, since the manager waits at most 10 s for the response.
    one.delete_all(&held).await;
    join_all(held.iter().map(|name| one.wait_until_deleted(name))).await;
    lagging.hold_watches(&[]);
    // Enough time to receive the deletion events, and less than the timeout of a read.
    tokio::time::sleep(Duration::from_secs(2)).await;
    lagging.hold_reads(Reads::None);
    two.wait_for_address("asks").await;

    // All other addresses are free, also for this manager.
    let others = numbered("others", taken);
    two.create_global_claims(&others, "shared").await;
    let bound = two.wait_for_addresses(&others).await;
    assert_eq!(bound.values().collect::<HashSet<_>>().len(), taken);
}

#[tokio::test(flavor = "multi_thread")]
async fn late_read_of_a_deleted_reservation_is_ignored() {
    assert_late_response_is_ignored(Reads::One, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_list_of_deleted_reservations_is_ignored() {
    assert_late_response_is_ignored(Reads::All, 20).await;
}
