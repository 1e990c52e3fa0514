//! Two managers of one pool, one of them behind the other in turns: what either reads late takes no address out of use.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::StreamExt;
use serde_json::json;

use crate::serving;
use crate::support::consumer::{Consumer, eventually_within};
use crate::support::control_plane::{ControlPlane, Options};
use crate::support::manager::Manager;
use crate::versions::at_rest;

/// What 10.0.0.0/24 has beside network and broadcast address.
const TOTAL: i64 = 254;
/// How many claims come and go in one round.
const BURST: usize = 120;

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{prefix}-{number}")).collect()
}

async fn delete_all(consumer: &Consumer, names: &[String]) {
    futures::stream::iter(names).for_each_concurrent(16, |name| consumer.delete(name)).await;
}

async fn all_gone(consumer: &Consumer, what: &str) {
    eventually_within(Duration::from_mins(3), &format!("{what} are gone"), || async {
        let claims = consumer.claims().list().await.ok()?;
        let addresses = consumer.addresses().list().await.ok()?;
        (claims.is_empty() && addresses.is_empty()).then_some(())
    })
    .await;
}

/// Waits until a claim is bound, and deletes it at once.
async fn bind_and_delete(consumer: &Consumer, name: &str) {
    eventually_within(Duration::from_mins(2), &format!("claim {name} is bound"), || async {
        consumer.claims().get(name).await.ok()??.bound_address().map(drop)
    })
    .await;
    consumer.delete(name).await;
}

/// Claims are made and deleted at the same time: half of each burst at once, the others during the next one.
async fn bursts(consumer: &Consumer) {
    let mut before: Vec<String> = Vec::new();
    for round in 0..3 {
        let (stay, leave) = (names(&format!("stay{round}"), BURST / 2), names(&format!("leave{round}"), BURST / 2));
        let leaving = futures::stream::iter(&leave).for_each_concurrent(24, async |name| {
            consumer.claim(name, "web").await;
            bind_and_delete(consumer, name).await;
        });
        tokio::join!(leaving, delete_all(consumer, &before), consumer.claim_all(&stay, "web"));
        before = stay;
    }
    futures::stream::iter(&before).for_each_concurrent(24, |name| bind_and_delete(consumer, name)).await;
}

/// Stops the two managers in turns for a moment, so that one of them is always behind and answers reach it late.
async fn lag(managers: &mut [Manager; 2], over: &AtomicBool) {
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
async fn binds_all(consumer: &Consumer, prefix: &str) {
    let names = names(prefix, usize::try_from(TOTAL).expect("a small number"));
    consumer.claim_all(&names, "web").await;
    let bound = consumer.all_bound(&names).await;
    assert_eq!(bound.values().collect::<HashSet<_>>().len(), names.len(), "no address is bound twice");
    consumer.counts("web", (TOTAL, 0, TOTAL, 0)).await;
    delete_all(consumer, &names).await;
    all_gone(consumer, prefix).await;
    consumer.counts("web", (TOTAL, TOTAL, 0, 0)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_addresses_are_free_after_bursts_with_two_managers() {
    let plane = ControlPlane::start(Options::default());
    let consumer = Consumer::new(&plane).await;
    let mut managers = [serving(&plane, &[]), serving(&plane, &[])];
    consumer.pool("web", json!({"addresses": ["10.0.0.0/24"], "prefix": 24})).await;
    consumer.counts("web", (TOTAL, TOTAL, 0, 0)).await;
    let over = AtomicBool::new(false);
    let work = async {
        bursts(&consumer).await;
        over.store(true, Ordering::Relaxed);
    };
    tokio::join!(work, lag(&mut managers, &over));
    all_gone(&consumer, "the claims of all rounds").await;
    eventually_within(Duration::from_mins(2), "no reservation is left", || async {
        consumer.reservations().list().await.ok()?.is_empty().then_some(())
    })
    .await;
    consumer.counts("web", (TOTAL, TOTAL, 0, 0)).await;
    at_rest(&consumer).await;

    // What each of the two knows, alone.
    for (alone, other) in [(0, 1), (1, 0)] {
        managers[other].signal("STOP");
        binds_all(&consumer, &format!("alone{alone}")).await;
        managers[other].signal("CONT");
        at_rest(&consumer).await;
    }
    consumer.counts("web", (TOTAL, TOTAL, 0, 0)).await;
}
