//! A pool with many slices: a restart, and claims of many owners.

use std::net::Ipv4Addr;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use serde_json::json;
use support::consumer::unique;

use crate::api::{AT_ONCE, GROUP, folder};
use crate::baseline::now;
use crate::cluster::Cluster;
use crate::measure::{Figure, Outcome, median};
use crate::restart::quiet_start;

const SLICES: usize = 10_000;
/// The number of owners; each has ten slices.
const OWNERS: usize = 1_000;
/// The number of addresses of a slice.
const SIZE: usize = 4;
/// The number of measurements with and without slices.
const ROUNDS: usize = 3;

pub(crate) async fn run(cluster: &Cluster<'_>, count: usize) -> Outcome {
    let (total, owners) = (
        cluster.options.scaled(SLICES),
        cluster.options.scaled(OWNERS),
    );
    let without = cluster.consumer("plain", 1).await;
    let with = &cluster.consumer("sliced", 1).await;
    let policy = json!({"size": SIZE, "per": "Label", "label": "rack", "keepSeconds": 86_400});
    with.change_pool(json!({ "slices": policy })).await;
    let (scope, now) = (
        &format!("p.{}.{}", with.namespace, with.pools[0].name),
        &now(),
    );
    let create = |number: usize| async move {
        let first = u32::try_from(0x0a00_0000 + number * SIZE).expect("the pool is large enough");
        let first = Ipv4Addr::from(first);
        let slice = json!({
            "apiVersion": format!("{GROUP}/v1alpha2"), "kind": "IPSlice",
            "metadata": {"name": format!("{scope}.{first}-30")},
            "spec": {
                "scope": scope, "block": format!("{first}/30"), "assignedAt": now, "emptySince": now,
                "owner": {"kind": "Label", "name": format!("r{}", number % owners)},
            },
        });
        with.api.create(&folder("", "ipslices"), &slice).await;
    };
    stream::iter(0..total)
        .for_each_concurrent(AT_ONCE, create)
        .await;
    cluster.start().await.kill();
    cluster.settle(None).await;
    let (mut manager, mut figures) = quiet_start(cluster, Duration::from_secs(20)).await;

    let mut rates = [Vec::new(), Vec::new(), Vec::new()];
    for _ in 0..cluster.options.rounds(ROUNDS) {
        // The first claims of an owner remove the mark of a slice; those of the second group do
        // not.
        for (rates, of) in rates.iter_mut().zip([&without, with, with]) {
            cluster.settle(Some(&manager)).await;
            let (bound, made) = of.bind(&unique("claim"), count, owners, None).await;
            rates.push(count as f64 / bound.whole.as_secs_f64());
            of.check_addresses(count).await;
            of.release(&made, None).await;
        }
    }
    manager.stop();
    let [without, first, again] = rates.map(median);
    figures.push(Figure::new("bound, pool without slices", without, "per s"));
    figures.push(Figure::ratio(
        "bound, slices, ratio to the pool without",
        again / without,
    ));
    figures.push(Figure::ratio(
        "bound, empty slices, ratio to the pool without",
        first / without,
    ));
    figures.into()
}
