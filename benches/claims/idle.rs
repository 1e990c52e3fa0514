//! One claim at a time, in an idle cluster.

use std::time::Duration;

use serde_json::json;

use crate::baseline::Baseline;
use crate::cluster::Cluster;
use crate::consumer::{Consumer, Timed};
use crate::meter::Meter;
use crate::outcome::{Figure, Outcome, Phase};
use support::consumer::unique;
use support::manager::Manager;

/// The pause before each claim.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) async fn run(cluster: &Cluster<'_>, count: usize) -> Outcome {
    let (bare, reserved) = (
        baseline(cluster, count, false).await,
        baseline(cluster, count, true).await,
    );

    let consumer = cluster.consumer("idle", 1).await;
    let mut manager = cluster.start().await;
    cluster.settle(Some(&manager)).await;
    let (bind, release) = one_by_one(cluster, &consumer, count, None, Some(&manager)).await;
    manager.stop();

    let (reserved_after, bare_after) = (
        baseline(cluster, count, true).await,
        baseline(cluster, count, false).await,
    );
    let middle = |one: &Phase, other: &Phase| f64::midpoint(one.p50_ms, other.p50_ms);
    let mut figures = vec![
        Figure::new("create to bound, p50", bind.p50_ms, "ms").at_most(20.0),
        Figure::new("create to bound, p99", bind.p99_ms, "ms"),
        Figure::new("create to bound, longest", bind.longest_ms, "ms"),
        Figure::new(
            "baseline, create to bound, p50",
            middle(&bare.0, &bare_after.0),
            "ms",
        ),
        Figure::new(
            "baseline with reservation, create to bound, p50",
            middle(&reserved.0, &reserved_after.0),
            "ms",
        ),
        Figure::new("delete to gone, p50", release.p50_ms, "ms"),
        Figure::new(
            "baseline, delete to gone, p50",
            middle(&bare.1, &bare_after.1),
            "ms",
        ),
        Figure::new(
            "baseline with reservation, delete to gone, p50",
            middle(&reserved.1, &reserved_after.1),
            "ms",
        ),
    ];
    // Both were measured together: the claims are released as soon as they are bound.
    figures.push(Figure::new("writes per bind and release", bind.writes(), "").at_most(9.0));
    let raw = json!({
        "provider": {"bind": bind, "release": release},
        "baselines": [{"bare": bare, "reserved": reserved}, {"bare": bare_after, "reserved": reserved_after}],
    });
    Outcome {
        series: "idle".to_owned(),
        present: 0,
        claims: count,
        lines: Vec::new(),
        figures,
        raw,
    }
}

async fn baseline(cluster: &Cluster<'_>, count: usize, reserve: bool) -> (Phase, Phase) {
    let consumer = cluster.consumer(&unique("baseline"), 1).await;
    let baseline = Baseline::new(
        &cluster.provider,
        &consumer.namespace,
        &consumer.pools,
        reserve,
    );
    cluster.settle(None).await;
    let phases = one_by_one(cluster, &consumer, count.div_ceil(2), Some(&baseline), None).await;
    consumer.delete_pools().await;
    phases
}

/// Creates and deletes one claim after the other.
pub(crate) async fn one_by_one(
    cluster: &Cluster<'_>,
    consumer: &Consumer,
    count: usize,
    baseline: Option<&Baseline>,
    manager: Option<&Manager>,
) -> (Phase, Phase) {
    let (mut bind, mut release) = (Timed::default(), Timed::default());
    let meter = Meter::start(&cluster.plane, manager.map(|manager| manager.pid()));
    for number in 0..count {
        tokio::time::sleep(PAUSE).await;
        let (bound, made) = consumer.bind(&[format!("idle-{number}")], baseline).await;
        tokio::time::sleep(PAUSE).await;
        let released = consumer.release(&made, baseline).await;
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
