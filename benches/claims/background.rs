//! New claims, one at a time, while the manager does background work that nobody waits for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::StreamExt;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api_client::{Identity, addresses, pools, reservations};
use crate::cluster::Cluster;
use crate::consumer::Consumer;
use crate::meter::Meter;
use crate::options::Background;
use crate::outcome::{Figure, Outcome, percentile};
use crate::seed::{self, Seeded};

/// The pause after each new claim.
const PAUSE: Duration = Duration::from_millis(20);
/// The minimum number of new claims.
const MIN_CLAIMS: usize = 50;
/// How long pools are changed, and how long the manager is observed while claims wait.
const DURATION: Duration = Duration::from_secs(30);
/// The number of pools that are deleted together.
const DELETED: usize = 20;
/// The number of pools that are changed together, the number of claims of each, and the time
/// between two changes.
const CHANGED: usize = 100;
const CLAIMS_OF_CHANGED: usize = 10;
const CHANGE_INTERVAL: Duration = Duration::from_secs(5);

pub(crate) async fn run(
    cluster: &mut Cluster<'_>,
    series: String,
    background: Background,
    count: usize,
) -> Outcome {
    let state = match background {
        Background::Repair => Seeded::WithoutOwners,
        Background::TakeOver => Seeded::WithoutReservations,
        _ => Seeded::Complete,
    };
    let is_seeded = !matches!(background, Background::Waiting | Background::ChangedPools);
    let seeded = if is_seeded {
        Some(seed::seed(cluster, count, state).await.0)
    } else {
        None
    };
    let new = cluster.consumer("new", 1).await;
    let mut manager = match background {
        Background::Repair | Background::TakeOver => {
            let mut manager = cluster.launch();
            Cluster::ready(&mut manager).await;
            manager
        }
        _ => cluster.start().await,
    };
    let prepared = prepare(cluster, background, count).await;
    if prepared.is_some() {
        cluster.settle(Some(&manager)).await;
    }
    let (is_done, began) = (AtomicBool::new(false), Instant::now());
    let meter = Meter::start(&cluster.plane, Some(manager.pid()));
    let work = async {
        match (background, &seeded, &prepared) {
            (Background::Repair | Background::TakeOver, Some(seeded), _) => {
                wait_for_repair(seeded, count).await
            }
            (Background::DeletedPools, _, Some((consumer, made))) => {
                delete_all(consumer, made).await
            }
            (Background::ChangedPools, _, Some((consumer, made))) => {
                change_all(consumer, made).await
            }
            _ => tokio::time::sleep(DURATION).await,
        }
        is_done.store(true, Ordering::Relaxed);
        began.elapsed()
    };
    let (took, (bind, release)) = tokio::join!(
        work,
        one_by_one(&new, "meanwhile", |made| is_done.load(Ordering::Relaxed)
            && made >= MIN_CLAIMS)
    );
    let cost = meter.read();
    if let (true, Some(seeded)) = (
        matches!(state, Seeded::WithoutOwners | Seeded::WithoutReservations),
        &seeded,
    ) {
        check_repaired(seeded, count).await;
    }
    cluster.settle(Some(&manager)).await;
    let (alone, _) = one_by_one(&new, "alone", |made| made >= MIN_CLAIMS).await;
    manager.stop();

    let mut figures = vec![
        Figure::new("new claim bound, p50", percentile(&bind, 50), "ms").at_most(15.0),
        Figure::new("new claim bound, p90", percentile(&bind, 90), "ms"),
        Figure::new("new claim bound, p99", percentile(&bind, 99), "ms").at_most(60.0),
        Figure::new("new claim bound, longest", percentile(&bind, 100), "ms").at_most(200.0),
        Figure::new("release, p99", percentile(&release, 99), "ms"),
        Figure::new("without background work, p50", percentile(&alone, 50), "ms"),
        Figure::new("without background work, p99", percentile(&alone, 99), "ms"),
        Figure::new(
            "p50, ratio to that without",
            percentile(&bind, 50) / percentile(&alone, 50),
            "",
        )
        .at_most(1.5),
        Figure::new("new claims meanwhile", bind.len() as f64, ""),
        Figure::new("peak memory", cost.memory.unwrap_or_default().peak, "MiB"),
    ];
    let took = Figure::new("background work", took.as_secs_f64(), "s");
    figures.push(if is_seeded { took.at_most(300.0) } else { took });
    let raw = json!({
        "bindMs": bind.iter().map(|time| time.as_secs_f64() * 1_000.0).collect::<Vec<_>>(), "cost": cost,
    });
    Outcome {
        series,
        present: if is_seeded { count } else { 0 },
        claims: bind.len(),
        lines: Vec::new(),
        figures,
        raw,
    }
}

/// Creates and deletes one claim after the other, until `is_enough` for the number of claims.
/// Returns the sorted times.
async fn one_by_one(
    consumer: &Consumer,
    prefix: &str,
    is_enough: impl Fn(usize) -> bool,
) -> (Vec<Duration>, Vec<Duration>) {
    let (mut bind, mut release) = (Vec::new(), Vec::new());
    while !is_enough(bind.len()) {
        let (bound, made) = consumer
            .bind(&[format!("{prefix}-{}", bind.len())], None)
            .await;
        let released = consumer.release(&made, None).await;
        bind.extend(bound.each);
        release.extend(released.each);
        tokio::time::sleep(PAUSE).await;
    }
    bind.sort();
    release.sort();
    (bind, release)
}

/// Makes the pools and claims of the background work.
async fn prepare(
    cluster: &Cluster<'_>,
    background: Background,
    count: usize,
) -> Option<(Consumer, Vec<Identity>)> {
    let pool_count = match background {
        Background::Repair | Background::TakeOver => return None,
        Background::Waiting => 0,
        Background::DeletedPools => DELETED,
        Background::ChangedPools => CHANGED,
    };
    let mut consumer = cluster.consumer("background", pool_count).await;
    match background {
        Background::Waiting => {
            consumer
                .add_pool("small", "10.200.0.1-10.200.0.2", 24)
                .await;
            let names: Vec<String> = (0..count).map(|number| format!("waits-{number}")).collect();
            consumer.create_all(&names).await;
            consumer.watch.quiet(Duration::from_secs(5)).await;
        }
        Background::ChangedPools => {
            let names: Vec<String> = (0..CHANGED * CLAIMS_OF_CHANGED)
                .map(|number| format!("c-{number}"))
                .collect();
            consumer.bind(&names, None).await;
        }
        _ => {}
    }
    let made = consumer.pools.iter();
    let made = made.map(|pool| Identity {
        name: pool.name.clone(),
        uid: pool.uid.clone(),
        ..Identity::default()
    });
    let made = made.collect();
    Some((consumer, made))
}

async fn delete_all(consumer: &Consumer, made: &[Identity]) {
    let folder = pools(&consumer.namespace);
    let delete = |pool: &Identity| {
        let (path, uid) = (format!("{folder}/{}", pool.name), pool.uid.clone());
        async move { drop(consumer.api.delete(&path, &uid).await) }
    };
    futures::stream::iter(made)
        .for_each_concurrent(consumer.at_once, delete)
        .await;
    while !consumer.api.list::<Value>(&folder).await.is_empty() {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

async fn change_all(consumer: &Consumer, made: &[Identity]) {
    let folder = &pools(&consumer.namespace);
    let (began, mut interval) = (Instant::now(), tokio::time::interval(CHANGE_INTERVAL));
    let mut round = 0;
    while began.elapsed() < DURATION {
        interval.tick().await;
        round += 1;
        let change = json!({"spec": {"excludedAddresses": [format!("10.255.0.{round}")]}});
        let change = &change;
        let edit = |pool: &Identity| {
            let path = format!("{folder}/{}", pool.name);
            async move { drop(consumer.api.merge(&path, change).await) }
        };
        // One edit after the other: many at once would delay the claims by themselves.
        futures::stream::iter(made)
            .for_each_concurrent(1, edit)
            .await;
    }
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    owner_references: Vec<Value>,
}

fn has_owners(object: &Object) -> bool {
    object.metadata.owner_references.len() >= 2
}

/// Waits until the objects of all seeded claims are complete. Reads few of them before it counts
/// all.
async fn wait_for_repair(seeded: &Consumer, count: usize) {
    let folder = addresses(&seeded.namespace);
    for number in (1..count).step_by((count / 50).max(1)) {
        let path = format!("{folder}/{}", seed::name(number));
        loop {
            let found = seeded
                .api
                .send::<Object>("GET", &path, "application/json", &Value::Null)
                .await;
            if has_owners(&found.expect("the IPAddress exists")) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
    while seeded.api.version_and_count(&reservations()).await.1 < count {
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Asserts that each seeded claim has an IPAddress with its owners, and a reservation.
async fn check_repaired(seeded: &Consumer, count: usize) {
    seeded.check_addresses(count).await;
    for _ in 0..60 {
        let all: Vec<Object> = seeded.api.list(&addresses(&seeded.namespace)).await;
        let reserved = seeded.api.version_and_count(&reservations()).await.1;
        if all.iter().all(has_owners) && reserved >= count {
            return;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("the objects of some claims were not repaired");
}
