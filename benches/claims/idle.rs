//! One claim at a time, with nothing else under way.

use std::time::Duration;

use capi_ipam::consumer::{Consumer, Timed};
use capi_ipam::baseline::Floor;
use capi_ipam::meter::Meter;
use capi_ipam::outcome::{Figure, Outcome, Phase};
use capi_ipam::cluster::Cluster;
use capi_ipam::support::consumer::unique;
use capi_ipam::support::manager::Manager;
use serde_json::json;

/// How long nothing happens before each claim.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) async fn run(stage: &Cluster<'_>, count: usize) -> Outcome {
    let (bare, reserved) = (floor(stage, count, false).await, floor(stage, count, true).await);

    let consumer = stage.consumer("idle", 1).await;
    let mut manager = stage.start().await;
    stage.settle(Some(&manager)).await;
    let (bind, release) = one_by_one(stage, &consumer, count, None, Some(&manager)).await;
    manager.stop();

    let (reserved_after, bare_after) = (floor(stage, count, true).await, floor(stage, count, false).await);
    let middle = |one: &Phase, other: &Phase| f64::midpoint(one.p50_ms, other.p50_ms);
    let mut figures = vec![
        Figure::new("create to bound, p50", bind.p50_ms, "ms").at_most(20.0),
        Figure::new("create to bound, p99", bind.p99_ms, "ms"),
        Figure::new("the bare floor, p50", middle(&bare.0, &bare_after.0), "ms"),
        Figure::new("the reserved floor, p50", middle(&reserved.0, &reserved_after.0), "ms"),
        Figure::new("delete to gone, p50", release.p50_ms, "ms"),
        Figure::new("the bare floor of that, p50", middle(&bare.1, &bare_after.1), "ms"),
        Figure::new("the reserved floor of that, p50", middle(&reserved.1, &reserved_after.1), "ms"),
    ];
    // Both were measured together: the claims are released as soon as they are bound.
    figures.push(Figure::new("writes a bind and release", bind.writes(), "").at_most(9.0));
    let raw = json!({
        "provider": {"bind": bind, "release": release},
        "floors": [{"bare": bare, "reserved": reserved}, {"bare": bare_after, "reserved": reserved_after}],
    });
    Outcome { series: "idle".to_owned(), present: 0, claims: count, lines: Vec::new(), figures, raw }
}

async fn floor(stage: &Cluster<'_>, count: usize, reserve: bool) -> (Phase, Phase) {
    let consumer = stage.consumer(&unique("floor"), 1).await;
    let floor = Floor::new(&stage.provider, &consumer.namespace, &consumer.pools, reserve);
    stage.settle(None).await;
    let phases = one_by_one(stage, &consumer, count.div_ceil(2), Some(&floor), None).await;
    consumer.remove_pools().await;
    phases
}

/// Makes and deletes one claim after the other.
async fn one_by_one(
    stage: &Cluster<'_>,
    consumer: &Consumer,
    count: usize,
    floor: Option<&Floor>,
    manager: Option<&Manager>,
) -> (Phase, Phase) {
    let (mut bind, mut release) = (Timed::default(), Timed::default());
    let meter = Meter::start(&stage.plane, manager.map(Manager::pid));
    for number in 0..count {
        tokio::time::sleep(PAUSE).await;
        let (bound, made) = consumer.bind(&[format!("idle-{number}")], floor).await;
        tokio::time::sleep(PAUSE).await;
        let released = consumer.release(&made, floor).await;
        for (all, one) in [(&mut bind, bound), (&mut release, released)] {
            all.whole += one.whole;
            all.each.extend(one.each);
        }
    }
    bind.each.sort();
    release.each.sort();
    let cost = meter.read();
    (Phase::new(&bind, cost), Phase::new(&release, cost))
}
