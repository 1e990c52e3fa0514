//! Restarts of the manager with many bound claims.

use std::time::{Duration, Instant};

use support::consumer::unique;
use support::manager::Manager;
use support::process::Memory;

use crate::api::folder;
use crate::cluster::Cluster;
use crate::consumer::Consumer;
use crate::measure::{Figure, Meter, Outcome, median};

/// The number of measurements of the time to the first claim.
const ROUNDS: usize = 3;

pub(crate) async fn run(cluster: &Cluster<'_>, consumer: &Consumer) -> Outcome {
    // Work that it finds at the first start does not concern restarts.
    cluster.start().await.kill();
    let (mut manager, mut figures) = quiet_start(cluster, Duration::from_secs(10)).await;
    let (mut listed, mut bound) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        manager.kill();
        cluster.settle(None).await;
        listed.push(listing(cluster).await);
        let first;
        (manager, first) = first_bound(cluster, consumer).await;
        bound.push(first);
    }
    consumer.check_addresses(0).await;
    manager.stop();
    let listed = median(listed);
    // A manager is fast if it binds before the API server has sent everything.
    let (most_seconds, most_memory) = if consumer.present > 10_000 {
        (1.2, 90.0)
    } else {
        (0.75, 22.0)
    };
    let bound = Figure::new("start to the first new claim bound", median(bound), "s");
    figures.push(bound.at_most(most_seconds * listed));
    figures.push(Figure::new(
        "baseline: streams of claims, addresses and reservations",
        listed,
        "s",
    ));
    let memory = figures
        .iter_mut()
        .find(|figure| figure.name.starts_with("memory"));
    if let Some(memory) = memory {
        *memory = memory.clone().at_most(most_memory);
    }
    figures.into()
}

/// Starts the manager, and measures what it does until some time after it is ready.
pub(crate) async fn quiet_start(cluster: &Cluster<'_>, quiet: Duration) -> (Manager, Vec<Figure>) {
    let meter = Meter::start(&cluster.plane, None);
    let started = Instant::now();
    let mut manager = cluster.launch(&[]);
    Cluster::ready(&mut manager).await;
    let ready = started.elapsed().as_secs_f64();
    tokio::time::sleep(quiet).await;
    let cost = meter.read();
    let memory = Memory::of(manager.pid()).now;
    let figures = vec![
        Figure::new("start to ready", ready, "s"),
        Figure::ratio(
            format!("writes until {quiet:?} after ready"),
            cost.writes + cost.pool_writes,
        )
        .at_most(0.0),
        Figure::new(format!("memory {quiet:?} after ready"), memory, "MiB"),
    ];
    (manager, figures)
}

/// Starts the manager while a new claim waits, and releases the claim. Returns the seconds until it
/// was bound.
pub(crate) async fn first_bound(cluster: &Cluster<'_>, consumer: &Consumer) -> (Manager, f64) {
    cluster.settle(None).await;
    let name = unique("new");
    let claim = consumer.create(0, &name, 0).await;
    let started = Instant::now();
    let mut manager = cluster.launch(&[]);
    let ((), bound) = tokio::join!(
        Cluster::ready(&mut manager),
        consumer.watch.wait_for_bound(&name)
    );
    consumer.release(&[claim], None).await;
    (
        manager,
        bound.saturating_duration_since(started).as_secs_f64(),
    )
}

/// The baseline: the seconds for the concurrent streams of all claims, IPAddresses and
/// reservations, without parsing. A provider has to know the addresses in use before it allocates.
async fn listing(cluster: &Cluster<'_>) -> f64 {
    let started = Instant::now();
    let stream = async |plural: &str| cluster.provider.stream(&folder("", plural)).await;
    tokio::join!(
        stream("ipaddressclaims"),
        stream("ipaddresses"),
        stream("ipreservations")
    );
    started.elapsed().as_secs_f64()
}
