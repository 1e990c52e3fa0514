//! Restarts of the manager with many bound claims.

use std::time::Instant;

use serde::Serialize;
use serde_json::json;

use crate::api_client::{GROUP, reservations};
use crate::cluster::Cluster;
use crate::consumer::Consumer;
use crate::meter::{Meter, seconds_of};
use crate::outcome::{Figure, Outcome, median};
use support::consumer::unique;
use support::process::Memory;

/// The number of measurements of the time to the first claim.
const ROUNDS: usize = 3;
/// The number of seconds after readiness in which no write should happen.
const QUIET: u64 = 10;

/// One start, in seconds.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Round {
    /// The baseline, see [`listing`].
    listing: f64,
    ready: f64,
    first_bound: f64,
}

pub(crate) async fn run(
    cluster: &Cluster<'_>,
    series: String,
    consumer: &Consumer,
    present: usize,
) -> Outcome {
    // Work that it finds at the first start does not concern restarts.
    cluster.start().await.kill();

    let meter = Meter::start(&cluster.plane, None);
    let started = Instant::now();
    let mut manager = cluster.launch();
    Cluster::ready(&mut manager).await;
    let ready = started.elapsed().as_secs_f64();
    tokio::time::sleep(std::time::Duration::from_secs(QUIET)).await;
    let (used, processor) = (
        Memory::of(manager.pid()),
        seconds_of(&manager.pid().to_string()),
    );
    let cost = meter.read();
    let writes = cost.requests.writes + cost.requests.pool_writes;

    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        manager.kill();
        cluster.settle(None).await;
        let baseline = listing(cluster).await;
        cluster.settle(None).await;
        let name = unique("new");
        let claim = consumer.create(0, &name).await;
        let started = Instant::now();
        manager = cluster.launch();
        let ready = async {
            Cluster::ready(&mut manager).await;
            started.elapsed()
        };
        let (ready, bound) = tokio::join!(ready, consumer.watch.wait_for_bound(&name));
        let bound = bound.saturating_duration_since(started).as_secs_f64();
        rounds.push(Round {
            listing: baseline,
            ready: ready.as_secs_f64(),
            first_bound: bound,
        });
        consumer.release(&[claim], None).await;
    }
    consumer.check_addresses(present).await;
    manager.stop();

    let baseline = median(rounds.iter().map(|round| round.listing));
    let (most_seconds, most_memory) = if present > 10_000 {
        (1.2 * baseline, 90.0)
    } else {
        // A manager is fast if it binds before the API server has sent everything.
        (0.75 * baseline, 22.0)
    };
    let figures = vec![
        Figure::new(
            "start to ready",
            median(rounds.iter().map(|round| round.ready).chain([ready])),
            "s",
        ),
        Figure::new(
            "start to the first new claim bound",
            median(rounds.iter().map(|round| round.first_bound)),
            "s",
        )
        .at_most(most_seconds),
        Figure::new(
            "baseline: streams of claims, addresses and reservations",
            baseline,
            "s",
        ),
        Figure::new(
            format!("writes until {QUIET} s after ready"),
            writes as f64,
            "",
        )
        .at_most(0.0),
        Figure::new(format!("memory {QUIET} s after ready"), used.now, "MiB").at_most(most_memory),
        Figure::new("peak memory", used.peak, "MiB"),
        Figure::new("processor time of the manager until then", processor, "s"),
    ];
    let raw = json!({"ready": ready, "rounds": rounds, "cost": cost, "memory": used, "processor": processor});
    Outcome {
        series,
        present,
        claims: ROUNDS,
        lines: Vec::new(),
        figures,
        raw,
    }
}

/// The baseline: the seconds for the concurrent streams of all claims, IPAddresses and
/// reservations, without parsing. A provider has to know the addresses in use before it allocates.
async fn listing(cluster: &Cluster<'_>) -> f64 {
    let started = Instant::now();
    let [claims, addresses] =
        ["ipaddressclaims", "ipaddresses"].map(|plural| format!("/apis/{GROUP}/v1beta2/{plural}"));
    let (api, reservations) = (&cluster.provider, reservations());
    tokio::join!(
        api.stream(&claims),
        api.stream(&addresses),
        api.stream(&reservations)
    );
    started.elapsed().as_secs_f64()
}
