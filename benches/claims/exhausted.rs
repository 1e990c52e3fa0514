//! Many claims wait for an exhausted pool, whose addresses are released one after the other.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::cluster::Cluster;
use crate::meter::Meter;
use crate::outcome::{Figure, Outcome, percentile};

/// The usual number of addresses of the pool. All are released if at least as many claims wait.
const ADDRESSES: usize = 200;

pub(crate) async fn run(cluster: &Cluster<'_>, waiting: usize) -> Outcome {
    let mut consumer = cluster.consumer("exhausted", 0).await;
    let addresses = cluster.options.scaled(ADDRESSES).min(ADDRESSES);
    consumer
        .add_pool("small", &format!("10.0.0.1-10.0.0.{addresses}"), 24)
        .await;
    let mut manager = cluster.start().await;
    cluster.settle(Some(&manager)).await;
    let names: Vec<String> = (0..addresses)
        .map(|number| format!("holds-{number}"))
        .collect();
    let (_, held) = consumer.bind(&names, None).await;

    let meter = Meter::start(&cluster.plane, Some(manager.pid()));
    let names: Vec<String> = (0..waiting)
        .map(|number| format!("waits-{number}"))
        .collect();
    consumer.create_all(&names).await;
    // A provider may write the status of each waiting claim.
    let settled = consumer.watch.quiet(Duration::from_secs(3));
    let _ = tokio::time::timeout(Duration::from_mins(5), settled).await;
    let arrival = meter.read();

    let meter = Meter::start(&cluster.plane, Some(manager.pid()));
    let mut times = Vec::new();
    let released = held.len().min(waiting);
    for claim in &held[..released] {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let before = consumer.watch.counts().bound;
        let asked = Instant::now();
        consumer.delete(&claim.name, &claim.uid).await;
        consumer
            .watch
            .until("the next claim is bound", |counts| counts.bound > before)
            .await;
        let bound = consumer.watch.counts().last_bound.expect("one is bound");
        times.push(bound.saturating_duration_since(asked));
        consumer.watch.wait_for_deletion(&claim.name).await;
    }
    let cost = meter.read();
    times.sort();
    consumer.check_addresses(addresses).await;
    manager.stop();

    let each = |count: u64| count as f64 / released as f64;
    let figures = vec![
        Figure::new(
            "delete to the next claim bound, p50",
            percentile(&times, 50),
            "ms",
        ),
        Figure::new(
            "delete to the next claim bound, p99",
            percentile(&times, 99),
            "ms",
        ),
        Figure::new(
            "writes per release and bind",
            each(cost.requests.writes) - 1.0,
            "",
        )
        .at_most(8.0),
        Figure::new("reads per release and bind", each(cost.requests.reads), ""),
        Figure::new(
            "writes per waiting claim",
            arrival.requests.writes as f64 / waiting as f64 - 1.0,
            "",
        ),
        Figure::new("peak memory", cost.memory.unwrap_or_default().peak, "MiB"),
    ];
    let milliseconds: Vec<f64> = times
        .iter()
        .map(|time| time.as_secs_f64() * 1000.0)
        .collect();
    let raw = json!({"deleteToBoundMs": milliseconds, "arrival": arrival, "cost": cost});
    Outcome {
        series: "exhausted".to_owned(),
        present: addresses,
        claims: waiting,
        lines: Vec::new(),
        figures,
        raw,
    }
}
