//! Claims of one namespace, while a user of another one keeps changing a pool for which thousands
//! of claims wait.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::api_client::pools;
use crate::cluster::Cluster;
use crate::meter::Meter;
use crate::outcome::{Figure, Outcome, median};

/// The claims that wait for the pool of the other user.
const WAITING: usize = 1_500;
/// The time between two changes of that pool: each of them wakes all these claims.
const CHANGE_INTERVAL: Duration = Duration::from_millis(100);
/// The number of measurements with and without the changes.
const ROUNDS: usize = 3;

pub(crate) async fn run(cluster: &Cluster<'_>, series: String, count: usize) -> Outcome {
    let consumer = cluster.consumer("quiet", 1).await;
    let other = cluster.consumer("noisy", 1).await;
    let path = format!("{}/{}", pools(&other.namespace), other.pools[0].name);
    // A network that does not exist: the pool does not allocate.
    other
        .api
        .merge(&path, &json!({"spec": {"network": "missing"}}))
        .await;
    let mut manager = cluster.start().await;
    let names: Vec<String> = (0..WAITING)
        .map(|number| format!("waiting-{number}"))
        .collect();
    other.create_all(&names).await;
    cluster.settle(Some(&manager)).await;

    let (mut alone, mut attacked, mut processor) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        for is_attacked in [false, true] {
            let names: Vec<String> = (0..count)
                .map(|number| format!("{is_attacked}-{round}-{number}"))
                .collect();
            let meter = Meter::start(&cluster.plane, Some(manager.pid()));
            let changes = async {
                let mut number = 0_u32;
                loop {
                    tokio::time::sleep(CHANGE_INTERVAL).await;
                    number += 1;
                    let change = json!({"spec": {"addressReuseGracePeriodSeconds": number}});
                    other.api.merge(&path, &change).await;
                }
            };
            let started = Instant::now();
            let (timed, claims) = if is_attacked {
                tokio::select! {
                    () = changes => unreachable!("it changes the pool until the claims are bound"),
                    bound = consumer.bind(&names, None) => bound,
                }
            } else {
                consumer.bind(&names, None).await
            };
            let cost = meter.read();
            let rate = count as f64 / timed.whole.as_secs_f64();
            if is_attacked {
                attacked.push(rate);
                processor.push(cost.processor.manager / started.elapsed().as_secs_f64() * 100.0);
            } else {
                alone.push(rate);
            }
            consumer.release(&claims, None).await;
            cluster.settle(Some(&manager)).await;
        }
    }
    manager.stop();
    let ratio = median(attacked.iter().copied()) / median(alone.iter().copied());
    let figures = vec![
        Figure::new(
            "bound, no changes of the other pool",
            median(alone.iter().copied()),
            "per s",
        ),
        Figure::new(
            "bound, 10 changes per second",
            median(attacked.iter().copied()),
            "per s",
        ),
        Figure::new("ratio", ratio, "").at_least(0.5),
        Figure::new(
            "processor of the manager meanwhile",
            median(processor.iter().copied()),
            "% of a core",
        ),
    ];
    let raw = json!({"alone": alone, "attacked": attacked});
    Outcome {
        series,
        present: 0,
        claims: count,
        lines: Vec::new(),
        figures,
        raw,
    }
}
