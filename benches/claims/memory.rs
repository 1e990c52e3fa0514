//! The memory of the manager with large objects and with deleted pools, compared with the limit of
//! its container.

use std::time::{Duration, Instant};

use futures::StreamExt;
use serde_json::{Value, json};

use crate::api_client::{GROUP, Identity, claims, pools};
use crate::cluster::Cluster;
use crate::consumer::Consumer;
use crate::meter::Meter;
use crate::outcome::{Figure, Outcome};

/// The memory limit of the container in the manifests, in MiB.
const LIMIT: f64 = 512.0;
/// The maximum number of entries of one list of a pool.
const ENTRIES: usize = 4096;
/// The maximum size of the annotations of one object, in bytes.
const ANNOTATIONS: usize = 256 * 1024;
/// The number of claims for a measurement of the rate.
const CLAIMS: usize = 500;
/// The number of pools that are deleted together.
const DELETED: usize = 20;

fn peak(meter: &Meter<'_>) -> Figure {
    Figure::new(
        "peak memory",
        meter.read().memory.unwrap_or_default().peak,
        "MiB",
    )
    .at_most(LIMIT)
}

fn outcome(series: &str, present: usize, claims: usize, figures: Vec<Figure>) -> Outcome {
    let raw = json!({ "limit": LIMIT });
    Outcome {
        series: series.to_owned(),
        present,
        claims,
        lines: Vec::new(),
        figures,
        raw,
    }
}

/// Overlapping pools of one namespace with the maximum number of entries. One is edited each second
/// while claims are bound from another pool.
pub(crate) async fn large_pools(cluster: &Cluster<'_>, count: usize) -> Outcome {
    let consumer = cluster.consumer("usual", 1).await;
    let hostile = cluster.consumer("hostile", 0).await;
    let mut manager = cluster.start().await;
    let meter = Meter::start(&cluster.plane, Some(manager.pid()));
    let alone = rate(&consumer, "alone").await;

    let folder = pools(&hostile.namespace);
    let made = futures::stream::iter(0..count)
        .map(|number| {
            let (folder, api) = (&folder, &hostile.api);
            async move { api.create(folder, &large_pool(number)).await }
        })
        .buffer_unordered(4)
        .collect::<Vec<Identity>>()
        .await;
    cluster.quiet(Some(&manager)).await;
    let edit = async {
        let mut second = tokio::time::interval(Duration::from_secs(1));
        for (edit, pool) in made.iter().cycle().enumerate() {
            second.tick().await;
            let gateway = format!("10.200.0.{}", edit % 250 + 1);
            hostile
                .api
                .merge(
                    &format!("{folder}/{}", pool.name),
                    &json!({"spec": {"gateway": gateway}}),
                )
                .await;
        }
    };
    let beside = tokio::select! {
        beside = rate(&consumer, "beside") => beside,
        () = edit => unreachable!("the edits never end"),
    };
    // The initial list takes the most memory.
    let before = peak(&meter).value;
    manager.stop();
    let mut manager = cluster.start().await;
    let restarted = Meter::start(&cluster.plane, Some(manager.pid()));
    let figures = vec![
        Figure::new("peak memory during the creation", before, "MiB").at_most(LIMIT),
        Figure::new(
            "bind rate, relative to the rate without them",
            beside / alone,
            "",
        )
        .at_least(0.5),
        peak(&restarted),
    ];
    manager.stop();
    outcome("large-pools", count, CLAIMS, figures)
}

/// Every second address with a varying start, and as many exclusions without effect.
fn large_pool(number: usize) -> Value {
    let address = |place: usize| {
        format!(
            "10.{}.{}.{}",
            128 + place / 65_536,
            place / 256 % 256,
            place % 256
        )
    };
    let entries: Vec<String> = (0..ENTRIES)
        .map(|entry| address(256 + 2 * entry + 2 * (number % 64)))
        .collect();
    let excluded: Vec<String> = (0..ENTRIES).map(|entry| address(257 + 2 * entry)).collect();
    json!({
        "apiVersion": format!("{GROUP}/v1alpha2"), "kind": "InClusterIPPool", "metadata": {"name": format!("large-{number}")},
        "spec": {"addresses": entries, "excludedAddresses": excluded, "prefix": 8},
    })
}

/// The number of claims bound per second.
async fn rate(consumer: &Consumer, prefix: &str) -> f64 {
    let names: Vec<String> = (0..CLAIMS)
        .map(|number| format!("{prefix}-{number}"))
        .collect();
    let started = Instant::now();
    consumer.bind(&names, None).await;
    CLAIMS as f64 / started.elapsed().as_secs_f64()
}

/// Claims with the maximum size of annotations that wait for an exhausted pool.
pub(crate) async fn large_claims(cluster: &Cluster<'_>, count: usize) -> Outcome {
    let mut consumer = cluster.consumer("large", 0).await;
    consumer.add_pool("small", "10.0.0.1", 24).await;
    let mut manager = cluster.start().await;
    consumer.bind(&["holds".to_owned()], None).await;
    let meter = Meter::start(&cluster.plane, Some(manager.pid()));
    let folder = claims(&consumer.namespace);
    futures::stream::iter(0..count)
        .for_each_concurrent(8, |number| {
            let (folder, consumer) = (&folder, &consumer);
            async move {
                let claim = json!({
                    "apiVersion": format!("{GROUP}/v1beta2"), "kind": "IPAddressClaim",
                    "metadata": {
                        "name": format!("waits-{number}"), "namespace": consumer.namespace,
                        "annotations": {"example.com/note": "x".repeat(ANNOTATIONS - 64)},
                    },
                    "spec": {"poolRef": {"apiGroup": GROUP, "kind": "InClusterIPPool", "name": "small"}},
                });
                consumer.api.create(folder, &claim).await;
            }
        })
        .await;
    let _ = tokio::time::timeout(
        Duration::from_mins(5),
        consumer.watch.quiet(Duration::from_secs(3)),
    )
    .await;
    let figures = vec![peak(&meter)];
    manager.stop();
    outcome("large-claims", 0, count, figures)
}

/// Pools that are deleted together beside many reserved addresses.
pub(crate) async fn deleted_pools(cluster: &Cluster<'_>, series: &str, present: usize) -> Outcome {
    let mut consumer = cluster.consumer("torn-down", 0).await;
    for number in 0..DELETED {
        consumer
            .add_pool(
                &format!("empty-{number}"),
                &format!("10.{}.0.0/16", 100 + number),
                16,
            )
            .await;
    }
    let mut manager = cluster.start().await;
    let meter = Meter::start(&cluster.plane, Some(manager.pid()));
    let started = Instant::now();
    consumer.delete_pools().await;
    let folder = pools(&consumer.namespace);
    while consumer.api.version_and_count(&folder).await.1 > 0 {
        assert!(
            started.elapsed() < Duration::from_mins(10),
            "the pools are not removed"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let figures = vec![
        Figure::new(
            format!("deletion of {DELETED} pools"),
            started.elapsed().as_secs_f64(),
            "s",
        ),
        Figure::new("lists", meter.read().requests.lists as f64, ""),
        peak(&meter),
    ];
    manager.stop();
    outcome(series, present, 0, figures)
}
