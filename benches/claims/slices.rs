//! A pool with many slices: a restart, and claims of many owners.

use std::time::Instant;

use futures::StreamExt;
use serde_json::json;

use crate::api_client::{GROUP, pools};
use crate::cluster::Cluster;
use crate::meter::Meter;
use crate::outcome::{Figure, Outcome, median};
use support::consumer::unique;
use support::process::Memory;

/// The number of owners; each has ten slices.
const OWNERS: usize = 1_000;
/// The number of addresses of a slice.
const SIZE: usize = 4;
/// The time after readiness in which no write should happen, in seconds.
const QUIET: u64 = 20;
/// The number of measurements with and without slices.
const ROUNDS: usize = 3;

pub(crate) async fn run(
    cluster: &Cluster<'_>,
    series: String,
    slices: usize,
    count: usize,
) -> Outcome {
    let plain = cluster.consumer(&unique("plain"), 1).await;
    let consumer = cluster.consumer(&unique("sliced"), 1).await;
    let pool = &consumer.pools[0].name;
    let policy = json!({"size": SIZE, "per": "Label", "label": "rack", "keepSeconds": 86_400});
    let path = format!("{}/{pool}", pools(&consumer.namespace));
    consumer
        .api
        .merge(&path, &json!({"spec": {"slices": policy}}))
        .await;
    let scope = format!("p.{}.{pool}", consumer.namespace);
    let now = jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string();
    let create = |number: usize| {
        let first = std::net::Ipv4Addr::from(
            u32::try_from(0x0a00_0000 + number * SIZE).unwrap_or_default(),
        );
        let slice = json!({
            "apiVersion": format!("{GROUP}/v1alpha2"), "kind": "IPSlice",
            "metadata": {"name": format!("{scope}.{first}-30")},
            "spec": {"scope": scope, "block": format!("{first}/30"), "assignedAt": now, "emptySince": now,
                     "owner": {"kind": "Label", "name": format!("r{}", number % OWNERS)}},
        });
        let api = &consumer.api;
        async move {
            drop(
                api.create(&format!("/apis/{GROUP}/v1alpha2/ipslices"), &slice)
                    .await,
            )
        }
    };
    futures::stream::iter(0..slices)
        .for_each_concurrent(consumer.at_once, create)
        .await;
    cluster.start().await.kill();

    cluster.settle(None).await;
    let meter = Meter::start(&cluster.plane, None);
    let started = Instant::now();
    let mut manager = cluster.launch();
    Cluster::ready(&mut manager).await;
    let ready = started.elapsed().as_secs_f64();
    tokio::time::sleep(std::time::Duration::from_secs(QUIET)).await;
    let requests = meter.read().requests;
    let (writes, used) = (
        requests.writes + requests.pool_writes,
        Memory::of(manager.pid()),
    );

    let racks = OWNERS.min(slices);
    let mut rates = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        // The first claims of an owner remove the mark of a slice; those of the second group do
        // not.
        for (index, of) in [(0, &plain), (1, &consumer), (2, &consumer)] {
            let names: Vec<String> = (0..count)
                .map(|number| format!("c{round}-{index}-{number}"))
                .collect();
            cluster.settle(Some(&manager)).await;
            let (bound, made) = of.bind_labelled(&names, racks).await;
            rates[index].push(count as f64 / bound.whole.as_secs_f64());
            of.check_addresses(count).await;
            of.release(&made, None).await;
        }
    }
    manager.stop();
    let [plain, first, again] = rates.map(median);
    let figures = vec![
        Figure::new("start to ready", ready, "s"),
        Figure::new(
            format!("writes until {QUIET} s after ready"),
            writes as f64,
            "",
        )
        .at_most(0.0),
        Figure::new(format!("memory {QUIET} s after ready"), used.now, "MiB"),
        Figure::new("bound, pool without slices", plain, "per s"),
        Figure::new("bound, slices", first, "per s"),
        Figure::new("bound, slices, once more", again, "per s"),
        Figure::new("ratio to the pool without slices", again / plain, ""),
    ];
    Outcome {
        series,
        present: 0,
        claims: count,
        lines: Vec::new(),
        figures,
        raw: json!({"slices": slices}),
    }
}
