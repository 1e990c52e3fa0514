//! New claims, one at a time, while the manager does background work that nobody waits for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::{StreamExt as _, stream};
use serde_json::{Value, json};
use support::wait::eventually_within;

use crate::api::{AT_ONCE, folder};
use crate::cluster::Cluster;
use crate::consumer::Consumer;
use crate::load::{Load, peak};
use crate::measure::{Figure, Outcome};
use crate::options::Work;
use crate::seed::{self, Seeded};

/// The pause before each request for a new claim.
const PAUSE: Duration = Duration::from_millis(10);
/// The minimum number of new claims.
const MIN_CLAIMS: usize = 50;
/// How long pools are changed, and how long the manager is observed while claims wait.
const DURATION: Duration = Duration::from_secs(30);
/// How long background work may take.
const TIMEOUT: Duration = Duration::from_mins(20);
/// The number of pools that are deleted together.
const DELETED: usize = 20;
/// The number of claims of each pool that changes, and the time between two changes.
const CLAIMS_OF_CHANGED: usize = 10;
const CHANGE_INTERVAL: Duration = Duration::from_secs(5);

/// What the work is about: bound claims, and the namespace whose pools or claims are the work.
struct Prepared {
    seeded: Option<Consumer>,
    others: Consumer,
}

pub(crate) async fn run(cluster: &mut Cluster<'_>, work: Work, count: usize) -> Outcome {
    let seeded = match work {
        Work::Repair => Some(Seeded::WithoutOwners),
        Work::TakeOver => Some(Seeded::WithoutReservations),
        Work::DeletedPools => Some(Seeded::Complete),
        Work::Waiting | Work::ChangedPools => None,
    };
    let seeded = match seeded {
        Some(state) => Some(seed::seed(cluster, count, state).await),
        None => None,
    };
    let new = cluster.consumer("new", 1).await;
    let mut manager = cluster.launch(&[]);
    Cluster::ready(&mut manager).await;
    let prepared = Prepared {
        seeded,
        others: prepare(cluster, work, count).await,
    };
    if !matches!(work, Work::Repair | Work::TakeOver) {
        cluster.settle(Some(&manager)).await;
    }
    let load = Load::of(cluster, &new, &manager, 1);
    let (is_done, began) = (AtomicBool::new(false), Instant::now());
    let background = async {
        prepared.run(work).await;
        is_done.store(true, Ordering::Relaxed);
        began.elapsed().as_secs_f64()
    };
    let is_enough = |made| is_done.load(Ordering::Relaxed) && made >= MIN_CLAIMS;
    let (took, meanwhile) = tokio::join!(background, load.one_by_one(PAUSE, is_enough));
    let peak = peak(&manager);
    if let (Work::Repair | Work::TakeOver, Some(seeded)) = (work, &prepared.seeded) {
        check_repaired(seeded).await;
    }
    cluster.settle(Some(&manager)).await;
    let alone = load.one_by_one(PAUSE, |made| made >= MIN_CLAIMS).await.bind;
    manager.stop();
    let bind = meanwhile.bind;
    let took = Figure::new("background work", took, "s");
    vec![
        Figure::new("new claim bound, p50", bind.p50_ms, "ms").at_most(15.0),
        Figure::new("new claim bound, p99", bind.p99_ms, "ms").at_most(60.0),
        Figure::new("new claim bound, longest", bind.longest_ms, "ms").at_most(200.0),
        Figure::new("without background work, p50", alone.p50_ms, "ms"),
        Figure::new("without background work, p99", alone.p99_ms, "ms"),
        Figure::ratio("p50, ratio to that without", bind.p50_ms / alone.p50_ms).at_most(1.5),
        if prepared.seeded.is_some() {
            took.at_most(300.0)
        } else {
            took
        },
        peak,
    ]
    .into()
}

/// Makes the pools and claims of the background work.
async fn prepare(cluster: &Cluster<'_>, work: Work, count: usize) -> Consumer {
    let pools = match work {
        Work::DeletedPools => DELETED,
        Work::ChangedPools => count,
        _ => 0,
    };
    let mut consumer = cluster.consumer("background", pools).await;
    match work {
        Work::Waiting => {
            consumer
                .add_pool("small", "10.200.0.1-10.200.0.2", 24)
                .await;
            let create =
                async |number: usize| drop(consumer.create(0, &format!("waits-{number}"), 0).await);
            stream::iter(0..count)
                .for_each_concurrent(AT_ONCE, create)
                .await;
        }
        Work::ChangedPools => drop(consumer.bind("c", count * CLAIMS_OF_CHANGED, 0, None).await),
        _ => {}
    }
    consumer
}

impl Prepared {
    async fn run(&self, work: Work) {
        match (work, &self.seeded) {
            (Work::Repair | Work::TakeOver, Some(seeded)) => wait_for_repair(seeded).await,
            (Work::DeletedPools, _) => delete_all(&self.others).await,
            (Work::ChangedPools, _) => change_all(&self.others).await,
            _ => tokio::time::sleep(DURATION).await,
        }
    }
}

async fn delete_all(consumer: &Consumer) {
    let delete = async |(number, uid): (usize, String)| {
        drop(consumer.api.delete(&consumer.pool(number), &uid).await)
    };
    let all: Vec<_> = consumer
        .pools
        .iter()
        .map(|pool| pool.uid.clone())
        .enumerate()
        .collect();
    stream::iter(all).for_each_concurrent(AT_ONCE, delete).await;
    wait_for(consumer, "inclusterippools", 0).await;
}

async fn change_all(consumer: &Consumer) {
    let (began, mut interval) = (Instant::now(), tokio::time::interval(CHANGE_INTERVAL));
    let mut round = 0;
    while began.elapsed() < DURATION {
        interval.tick().await;
        round += 1;
        let change = json!({"spec": {"excludedAddresses": [format!("10.255.0.{round}")]}});
        // One edit after the other: many at once would delay the claims by themselves.
        for number in 0..consumer.pools.len() {
            consumer.api.merge(&consumer.pool(number), &change).await;
        }
    }
}

fn has_owners(object: &Value) -> bool {
    object["metadata"]["ownerReferences"]
        .as_array()
        .is_some_and(|owners| owners.len() >= 2)
}

/// Waits until a kind has this number of objects.
async fn wait_for(consumer: &Consumer, plural: &str, count: usize) {
    let namespace = if plural == "ipreservations" {
        ""
    } else {
        &consumer.namespace
    };
    let folder = &folder(namespace, plural);
    eventually_within(
        TIMEOUT,
        &format!("there are {count} {plural}"),
        || async move {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let found = consumer.api.version_and_count(folder).await.ok()?.1;
            (if count == 0 {
                found == 0
            } else {
                found >= count
            })
            .then_some(())
        },
    )
    .await;
}

/// Waits until the objects of all seeded claims are complete. Reads few of them.
async fn wait_for_repair(seeded: &Consumer) {
    let folder = &folder(&seeded.namespace, "ipaddresses");
    for number in (1..seeded.present).step_by((seeded.present / 50).max(1)) {
        let path = &format!("{folder}/{}", seed::name(number));
        eventually_within(TIMEOUT, &format!("{path} has owners"), || async move {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let found: Value = seeded.api.send("GET", path, &Value::Null).await.ok()?;
            has_owners(&found).then_some(())
        })
        .await;
    }
    wait_for(seeded, "ipreservations", seeded.present).await;
}

/// Asserts that each seeded claim has an IPAddress with its owners, and a reservation.
async fn check_repaired(seeded: &Consumer) {
    seeded.check_addresses(0).await;
    let folder = &folder(&seeded.namespace, "ipaddresses");
    eventually_within(
        Duration::from_mins(1),
        "the objects of all claims are repaired",
        || async move {
            let all: Vec<Value> = seeded.api.list(folder).await;
            all.iter().all(has_owners).then_some(())
        },
    )
    .await;
}
