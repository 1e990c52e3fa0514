//! Many concurrent claims: bound and released by the provider, and by the baselines before and
//! after it.
//!
//! The speed of a machine drifts, so each round of the provider is between two rounds of the
//! baselines, in the order baseline, baseline with reservation, provider, baseline with
//! reservation, baseline. A steady drift then has the same effect on all three. Each round of the
//! provider is compared with the mean of its two neighbours, and the ratio of a series is that of
//! the sums over all rounds. The API server runs no consistency checks of its watch cache, and runs
//! its garbage collector before a short round, so that no round pays for another one. Long rounds
//! contain a few collections at random times: if all began with an empty heap, a little more
//! garbage would always or never cause one more collection. No manager runs while a baseline is
//! measured, since it would serve the same claims.

use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;

use crate::api_client::Identity;
use crate::baseline::Baseline;
use crate::cluster::Cluster;
use crate::consumer::Consumer;
use crate::meter::Meter;
use crate::outcome::{Figure, Line, Outcome, Phase, mean, median};
use support::consumer::unique;
use support::manager::Manager;

/// How long a provider counts as new. It may send more reads, since late writes of the previous one
/// are possible. Releases are measured after that.
const NEW: Duration = Duration::from_secs(31);

/// A measurement.
pub(crate) struct Rounds<'a> {
    pub(crate) series: String,
    pub(crate) count: usize,
    pub(crate) pools: usize,
    /// The bound claims before each round; without it each round begins with empty pools.
    pub(crate) present: Option<(&'a Consumer, usize)>,
}

/// The phases of one round.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cycle {
    pub(crate) bind: Phase,
    pub(crate) release: Phase,
}

/// Both baselines, measured one after the other.
#[derive(Clone, Debug, Serialize)]
struct Baselines {
    bare: Cycle,
    reserved: Cycle,
}

impl Rounds<'_> {
    pub(crate) async fn run(&self, cluster: &Cluster<'_>) -> Outcome {
        let rounds = cluster.options.rounds(match self.count {
            0..=200 => 7,
            201..=1_000 => 5,
            1_001..=3_000 => 3,
            _ => 1,
        });
        self.baseline(cluster, self.count.min(500), true).await;
        let (mut baselines, mut provided) = (vec![self.baselines(cluster, true).await], Vec::new());
        for round in 0..rounds {
            provided.push(self.provider(cluster).await);
            baselines.push(self.baselines(cluster, round % 2 == 1).await);
        }
        let lines = vec![
            line("bind", &provided, &baselines, |cycle| &cycle.bind),
            line("release", &provided, &baselines, |cycle| &cycle.release),
        ];
        let mut figures = Vec::new();
        for line in &lines {
            let Line {
                what,
                phase,
                of_baseline,
                of_reserving_baseline,
                ..
            } = line;
            let of_server = line.server_ms / line.reserving_baseline_server_ms;
            let name =
                format!("CPU of the API server and etcd, {what}: of the baseline with reservation");
            figures.push(Figure::new(name, of_server, "").at_most(1.1));
            figures.push(
                Figure::new(format!("{what}, ratio to the baseline"), *of_baseline, "")
                    .at_least(0.65),
            );
            figures.push(
                Figure::new(
                    format!("{what}, ratio to the baseline with reservation"),
                    *of_reserving_baseline,
                    "",
                )
                .at_least(0.85),
            );
            figures
                .push(Figure::new(format!("writes per {what}"), phase.writes(), "").at_most(4.0));
            let pool_writes =
                phase.cost.requests.pool_writes as f64 / phase.cost.seconds / self.pools as f64;
            figures.push(
                Figure::new(format!("writes of a pool, {what}"), pool_writes, "a second")
                    .at_most(4.0),
            );
        }
        if let Some(memory) = provided.last().and_then(|cycle| cycle.release.cost.memory) {
            figures.push(Figure::new("peak memory", memory.peak, "MiB"));
        }
        let speeds: Vec<f64> = baselines
            .iter()
            .map(|baselines| baselines.bare.bind.per_second)
            .collect();
        let (fastest, slowest) = (
            speeds.iter().copied().fold(0.0, f64::max),
            speeds.iter().copied().fold(f64::MAX, f64::min),
        );
        figures.push(Figure::new(
            "fastest to slowest baseline",
            fastest / slowest,
            "",
        ));
        Outcome {
            series: self.series.clone(),
            present: self.present.map_or(0, |(_, present)| present),
            claims: self.count,
            lines,
            figures,
            raw: json!({"provider": provided, "baselines": baselines}),
        }
    }

    /// Measures both baselines; the one without reservations first or last.
    async fn baselines(&self, cluster: &Cluster<'_>, plain_first: bool) -> Baselines {
        if plain_first {
            let bare = self.baseline(cluster, self.count, false).await;
            Baselines {
                bare,
                reserved: self.baseline(cluster, self.count, true).await,
            }
        } else {
            let reserved = self.baseline(cluster, self.count, true).await;
            Baselines {
                bare: self.baseline(cluster, self.count, false).await,
                reserved,
            }
        }
    }

    async fn baseline(&self, cluster: &Cluster<'_>, count: usize, reserve: bool) -> Cycle {
        let consumer = cluster.consumer(&unique("baseline"), self.pools).await;
        let mut baseline = Baseline::new(
            &cluster.provider,
            &consumer.namespace,
            &consumer.pools,
            reserve,
        );
        if reserve && cluster.options.complete_baseline {
            baseline.complete().await;
        }
        let cycle = cycle(cluster, &consumer, count, 0, Some(&baseline), None).await;
        consumer.delete_pools().await;
        cycle
    }

    async fn provider(&self, cluster: &Cluster<'_>) -> Cycle {
        match self.present {
            Some((consumer, present)) => {
                let mut manager = cluster.start().await;
                let cycle =
                    cycle(cluster, consumer, self.count, present, None, Some(&manager)).await;
                manager.stop();
                cycle
            }
            None => {
                let consumer = cluster.consumer(&unique(&self.series), self.pools).await;
                let mut manager = cluster.start().await;
                let cycle = cycle(cluster, &consumer, self.count, 0, None, Some(&manager)).await;
                consumer.delete_pools().await;
                manager.stop();
                cycle
            }
        }
    }
}

/// The maximum number of claims of a short round, in which the API server runs less than one
/// garbage collection.
const SHORT: usize = 1_000;

async fn prepare(cluster: &Cluster<'_>, count: usize, manager: Option<&Manager>) {
    if count > SHORT {
        cluster.quiet(manager).await;
    } else {
        cluster.settle(manager).await;
    }
}

/// Binds claims, checks their addresses, and releases them.
pub(crate) async fn cycle(
    cluster: &Cluster<'_>,
    consumer: &Consumer,
    count: usize,
    present: usize,
    baseline: Option<&Baseline>,
    manager: Option<&Manager>,
) -> Cycle {
    let began = Instant::now();
    prepare(cluster, count, manager).await;
    let prefix = unique("claim");
    let names: Vec<String> = (0..count)
        .map(|number| format!("{prefix}-{number}"))
        .collect();
    let who = match baseline {
        None => "provider",
        Some(baseline) if baseline.reserve => "baseline-with-reservation",
        Some(_) => "baseline",
    };
    let meter = Meter::start(&cluster.plane, manager.map(|manager| manager.pid()));
    let profile = cluster.start_profile(&format!("bind-{who}-{prefix}"));
    let (timed, made): (_, Vec<Identity>) = consumer.bind(&names, baseline).await;
    let bind = Phase::new(&timed, meter.read_later().await);
    finish(profile).await;
    consumer.check_addresses(present + count).await;
    if manager.is_some() && !cluster.options.quick {
        tokio::time::sleep(NEW.saturating_sub(began.elapsed())).await;
    }
    prepare(cluster, count, manager).await;
    let meter = Meter::start(&cluster.plane, manager.map(|manager| manager.pid()));
    let profile = cluster.start_profile(&format!("release-{who}-{prefix}"));
    let timed = consumer.release(&made, baseline).await;
    let release = Phase::new(&timed, meter.read_later().await);
    finish(profile).await;
    consumer.check_addresses(present).await;
    Cycle { bind, release }
}

async fn finish(profile: Option<tokio::task::JoinHandle<()>>) {
    if let Some(profile) = profile {
        profile.await.expect("the profile is written");
    }
}

/// Compares the rounds of the provider with those of the adjacent baselines.
fn line(
    what: &'static str,
    provided: &[Cycle],
    baselines: &[Baselines],
    phase: impl Fn(&Cycle) -> &Phase,
) -> Line {
    let baseline = |of: &dyn Fn(&Baselines) -> f64| -> f64 {
        let around = baselines
            .windows(2)
            .map(|around| around.iter().map(of).sum::<f64>() / around.len() as f64);
        around.sum::<f64>()
            / provided
                .iter()
                .map(|cycle| phase(cycle).seconds)
                .sum::<f64>()
    };
    let speed = |of: &dyn Fn(&Baselines) -> f64| median(baselines.iter().map(of));
    let mut rounds: Vec<&Phase> = provided.iter().map(&phase).collect();
    rounds.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
    Line {
        what,
        phase: rounds[rounds.len() / 2].clone(),
        baseline_per_second: speed(&|baselines| phase(&baselines.bare).per_second),
        reserving_baseline_per_second: speed(&|baselines| phase(&baselines.reserved).per_second),
        of_baseline: baseline(&|baselines| phase(&baselines.bare).seconds),
        of_reserving_baseline: baseline(&|baselines| phase(&baselines.reserved).seconds),
        server_ms: mean(provided.iter().map(|cycle| phase(cycle).server_ms())),
        baseline_server_ms: mean(
            baselines
                .iter()
                .map(|baselines| phase(&baselines.bare).server_ms()),
        ),
        reserving_baseline_server_ms: mean(
            baselines
                .iter()
                .map(|baselines| phase(&baselines.reserved).server_ms()),
        ),
    }
}
