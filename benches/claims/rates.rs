//! Claims of the provider, and of the baselines before and after it.
//!
//! The speed of a machine drifts, so each round of the provider is between two rounds of the
//! baselines, in the order baseline, baseline with reservation, provider, baseline with
//! reservation, baseline. A steady drift then has the same effect on all three. Each round of the
//! provider is compared with the mean of its two neighbours, and the ratio of a series is that of
//! the sums over all rounds. The API server runs no consistency checks of its watch cache, and runs
//! its garbage collector before a short round, so that no round pays for another one. No manager
//! runs while a baseline is measured, since it would serve the same claims.

use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use crate::cluster::Cluster;
use crate::consumer::Consumer;
use crate::load::{By, Cycle, Load, peak};
use crate::measure::{Figure, Outcome, Phase, mean, median};

/// Between two claims on an idle system.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// Both baselines, measured one after the other.
#[derive(Serialize)]
struct Baselines {
    bare: Cycle,
    reserved: Cycle,
}

/// Many claims at a time, in new pools or in one with bound claims.
pub(crate) async fn run(
    cluster: &Cluster<'_>,
    pools: usize,
    count: usize,
    present: Option<&Consumer>,
) -> Outcome {
    let rounds = cluster.options.rounds(match count {
        0..=200 => 7,
        201..=1_000 => 5,
        1_001..=3_000 => 3,
        _ => 1,
    });
    // The first one warms up the API server.
    baseline(cluster, pools, count.min(500), true, true).await;
    let (mut baselines, mut cycles, mut figures) = (Vec::new(), Vec::new(), Vec::new());
    baselines.push(both(cluster, pools, count, true, true).await);
    for round in 0..rounds {
        let new = if present.is_none() {
            Some(cluster.consumer("rates", pools).await)
        } else {
            None
        };
        let mut manager = cluster.start().await;
        if let Some(consumer) = present.or(new.as_ref()) {
            let by = By::Manager(&manager);
            cycles.push(
                Load {
                    cluster,
                    consumer,
                    by,
                    count,
                    racks: 0,
                }
                .cycle()
                .await,
            );
        }
        if let Some(new) = new {
            new.delete_pools().await;
        }
        if round + 1 == rounds {
            figures.push(peak(&manager));
        }
        manager.stop();
        baselines.push(both(cluster, pools, count, round % 2 == 1, true).await);
    }
    figures.extend(compare("bind", pools, &cycles, &baselines, |cycle| {
        &cycle.bind
    }));
    figures.extend(compare("release", pools, &cycles, &baselines, |cycle| {
        &cycle.release
    }));
    Outcome::new(figures, json!({"provider": cycles, "baselines": baselines}))
}

/// One claim at a time on an idle system.
pub(crate) async fn idle(cluster: &Cluster<'_>, count: usize) -> Outcome {
    let half = count.div_ceil(2);
    let before = both(cluster, 1, half, true, false).await;
    let consumer = cluster.consumer("idle", 1).await;
    let mut manager = cluster.start().await;
    cluster.settle(Some(&manager)).await;
    let by = By::Manager(&manager);
    let cycle = Load {
        cluster,
        consumer: &consumer,
        by,
        count,
        racks: 0,
    };
    let cycle = cycle.one_by_one(PAUSE, |made| made >= count).await;
    manager.stop();
    let after = both(cluster, 1, half, false, false).await;
    let mut figures = one_by_one_figures(&cycle);
    for (name, of) in [
        (
            "baseline",
            (|both: &Baselines| &both.bare) as fn(&Baselines) -> &Cycle,
        ),
        ("baseline with reservation", |both| &both.reserved),
    ] {
        let middle = |phase: fn(&Cycle) -> &Phase| {
            f64::midpoint(phase(of(&before)).p50_ms, phase(of(&after)).p50_ms)
        };
        figures.push(Figure::new(
            format!("{name}: creation to bound, p50"),
            middle(|cycle| &cycle.bind),
            "ms",
        ));
        figures.push(Figure::new(
            format!("{name}: deletion to gone, p50"),
            middle(|cycle| &cycle.release),
            "ms",
        ));
    }
    figures.push(Figure::ratio("writes per bind and release", cycle.bind.writes()).at_most(9.0));
    figures.into()
}

/// The times of a cycle of single claims.
pub(crate) fn one_by_one_figures(Cycle { bind, release }: &Cycle) -> Vec<Figure> {
    vec![
        Figure::new("creation to bound, p50", bind.p50_ms, "ms").at_most(20.0),
        Figure::new("creation to bound, p99", bind.p99_ms, "ms"),
        Figure::new("creation to bound, longest", bind.longest_ms, "ms"),
        Figure::new("deletion to gone, p50", release.p50_ms, "ms"),
        Figure::new("deletion to gone, p99", release.p99_ms, "ms"),
    ]
}

/// Measures both baselines; the one without reservations first or last.
async fn both(
    cluster: &Cluster<'_>,
    pools: usize,
    count: usize,
    bare_first: bool,
    at_once: bool,
) -> Baselines {
    let first = baseline(cluster, pools, count, !bare_first, at_once).await;
    let second = baseline(cluster, pools, count, bare_first, at_once).await;
    let (bare, reserved) = if bare_first {
        (first, second)
    } else {
        (second, first)
    };
    Baselines { bare, reserved }
}

async fn baseline(
    cluster: &Cluster<'_>,
    pools: usize,
    count: usize,
    reserve: bool,
    at_once: bool,
) -> Cycle {
    let consumer = cluster.consumer("baseline", pools).await;
    let baseline = cluster.baseline(&consumer, reserve).await;
    let load = Load {
        cluster,
        consumer: &consumer,
        by: By::Baseline(&baseline),
        count,
        racks: 0,
    };
    let cycle = if at_once {
        load.cycle().await
    } else {
        cluster.settle(None).await;
        load.one_by_one(PAUSE, |made| made >= count).await
    };
    consumer.delete_pools().await;
    cycle
}

/// Compares a phase of the provider with that of the adjacent baselines.
fn compare(
    what: &str,
    pools: usize,
    cycles: &[Cycle],
    baselines: &[Baselines],
    phase: fn(&Cycle) -> &Phase,
) -> Vec<Figure> {
    let provider = |of: fn(&Phase) -> f64| cycles.iter().map(move |cycle| of(phase(cycle)));
    let bare = |of: fn(&Phase) -> f64| baselines.iter().map(move |both| of(phase(&both.bare)));
    let reserved =
        |of: fn(&Phase) -> f64| baselines.iter().map(move |both| of(phase(&both.reserved)));
    let seconds: f64 = provider(|phase| phase.seconds).sum();
    let around = |all: Vec<f64>| {
        all.windows(2)
            .map(|pair| f64::midpoint(pair[0], pair[1]))
            .sum::<f64>()
    };
    let of_bare = around(bare(|phase| phase.seconds).collect()) / seconds;
    let of_reserved = around(reserved(|phase| phase.seconds).collect()) / seconds;
    let server = mean(provider(Phase::server_ms));
    let of_server = server / mean(reserved(Phase::server_ms));
    let pool_writes = median(provider(|phase| {
        phase.cost.pool_writes / phase.cost.seconds
    })) / pools as f64;
    let figure = |name: &str, value: f64, unit| Figure::new(format!("{what}: {name}"), value, unit);
    vec![
        figure("claims", median(provider(Phase::per_second)), "per s"),
        figure(
            "claims of the baseline",
            median(bare(Phase::per_second)),
            "per s",
        ),
        figure(
            "claims of the baseline with reservation",
            median(reserved(Phase::per_second)),
            "per s",
        ),
        figure("ratio to the baseline", of_bare, "").at_least(0.65),
        figure("ratio to the baseline with reservation", of_reserved, "").at_least(0.85),
        figure("p50", median(provider(|phase| phase.p50_ms)), "ms"),
        figure("p99", median(provider(|phase| phase.p99_ms)), "ms"),
        figure("longest", median(provider(|phase| phase.longest_ms)), "ms"),
        figure("writes per claim", median(provider(Phase::writes)), "").at_most(4.0),
        figure(
            "reads per claim",
            median(provider(|phase| phase.cost.reads / phase.claims)),
            "",
        ),
        figure("writes of a pool", pool_writes, "per s").at_most(4.0),
        figure(
            "CPU of the manager per claim",
            mean(provider(Phase::manager_ms)),
            "ms",
        ),
        figure("CPU of the API server and etcd per claim", server, "ms"),
        figure(
            "the same of the baseline",
            mean(bare(Phase::server_ms)),
            "ms",
        ),
        figure(
            "the same, ratio to the baseline with reservation",
            of_server,
            "",
        )
        .at_most(1.1),
    ]
}
