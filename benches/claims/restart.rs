//! The manager is killed and started again where many claims are bound.

use std::time::Instant;

use capi_ipam::calls::{GROUP, reservations};
use capi_ipam::consumer::Consumer;
use capi_ipam::meter::{memory, Meter, seconds_of};
use capi_ipam::outcome::{Figure, median, Outcome};
use capi_ipam::cluster::Cluster;
use capi_ipam::support::consumer::unique;
use serde::Serialize;
use serde::de::IgnoredAny;
use serde_json::json;

/// How often the time to the first claim is measured.
const ROUNDS: usize = 3;
/// How many seconds after the manager is ready nothing should be written.
const QUIET: u64 = 10;

/// One start, in seconds.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Round {
    /// The floor, see [`listing`].
    listing: f64,
    ready: f64,
    first_bound: f64,
}

pub(crate) async fn run(stage: &Cluster<'_>, series: String, consumer: &Consumer, present: usize) -> Outcome {
    // What it finds to do the first time is not about restarts.
    stage.start().await.kill();

    let meter = Meter::start(&stage.plane, None);
    let started = Instant::now();
    let mut manager = stage.launch();
    Cluster::ready(&mut manager).await;
    let ready = started.elapsed().as_secs_f64();
    tokio::time::sleep(std::time::Duration::from_secs(QUIET)).await;
    let (used, processor) = (memory(manager.pid()), seconds_of(&manager.pid().to_string()));
    let cost = meter.read();
    let writes = cost.requests.writes + cost.requests.pool_writes;

    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        manager.kill();
        stage.settle(None).await;
        let floor = listing(stage).await;
        stage.settle(None).await;
        let name = unique("new");
        let claim = consumer.create(0, &name).await;
        let started = Instant::now();
        manager = stage.launch();
        let ready = async {
            Cluster::ready(&mut manager).await;
            started.elapsed()
        };
        let (ready, bound) = tokio::join!(ready, consumer.watch.bound(&name));
        let bound = bound.saturating_duration_since(started).as_secs_f64();
        rounds.push(Round { listing: floor, ready: ready.as_secs_f64(), first_bound: bound });
        consumer.release(&[claim], None).await;
    }
    consumer.check_addresses(present).await;
    manager.stop();

    let large = present > 10_000;
    let (most_seconds, most_memory) = if large { (10.0, 200.0) } else { (2.0, 40.0) };
    let figures = vec![
        Figure::new("start to ready", median(rounds.iter().map(|round| round.ready).chain([ready])), "s"),
        Figure::new("start to the first new claim bound", median(rounds.iter().map(|round| round.first_bound)), "s")
            .at_most(most_seconds),
        Figure::new(
            "the bare listing of addresses and reservations",
            median(rounds.iter().map(|round| round.listing)),
            "s",
        ),
        Figure::new(format!("writes until {QUIET} s after ready"), writes as f64, "").at_most(0.0),
        Figure::new(format!("memory {QUIET} s after ready"), used.now, "MiB").at_most(most_memory),
        Figure::new("memory at most", used.peak, "MiB").at_most(most_memory),
        Figure::new("processor time of the manager until then", processor, "s"),
    ];
    let raw = json!({"ready": ready, "rounds": rounds, "cost": cost, "memory": used, "processor": processor});
    Outcome { series, present, claims: ROUNDS, lines: Vec::new(), figures, raw }
}

/// The floor: how many seconds the listing of all IPAddresses and reservations takes, both at once, by who reads nothing of
/// them. A provider has to know what is taken before it gives out an address.
async fn listing(stage: &Cluster<'_>) -> f64 {
    let started = Instant::now();
    let (addresses, reservations) = (format!("/apis/{GROUP}/v1beta2/ipaddresses"), reservations());
    let calls = &stage.provider;
    tokio::join!(calls.list_at_once::<IgnoredAny>(&addresses), calls.list_at_once::<IgnoredAny>(&reservations));
    started.elapsed().as_secs_f64()
}
