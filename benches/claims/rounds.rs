//! Many claims at once: bound and released by the provider, and by the floors before and after it.
//!
//! The speed of a machine drifts, so each round of the provider stands between two rounds of the floors, in the order
//! bare, reserved, provider, reserved, bare. A steady drift then weighs the same on all three. Each round of the provider
//! stands against the mean of its two neighbours, and the ratio of a series is that of the sums over all rounds. The API
//! server compares no caches with etcd, and collects its garbage before a short round, so that none pays for what others
//! left or for what happens to fall on it. A long one is left to chance: there are a few collections in it, and if all
//! began with an empty heap, a little more garbage would always or never make one more of them. No manager runs while a floor is measured: it would work along, on the same
//! machine, at claims that are none of its own.

use std::time::{Duration, Instant};

use capi_ipam::calls::Identity;
use capi_ipam::consumer::Consumer;
use capi_ipam::baseline::Floor;
use capi_ipam::meter::Meter;
use capi_ipam::outcome::{Figure, Line, median, Outcome, Phase};
use capi_ipam::cluster::Cluster;
use capi_ipam::support::consumer::unique;
use capi_ipam::support::manager::Manager;
use serde::Serialize;
use serde_json::json;

/// How long a provider may count as just started. It may read more than later, for it cannot know what the one before it has
/// left under way; releases are measured after that.
const YOUNG: Duration = Duration::from_secs(31);

/// What is measured.
pub(crate) struct Rounds<'a> {
    pub(crate) series: String,
    pub(crate) count: usize,
    pub(crate) pools: usize,
    /// Claims are bound already; without, each round begins with empty pools.
    pub(crate) present: Option<(&'a Consumer, usize)>,
}

/// Claims bound and released.
#[derive(Clone, Debug, Serialize)]
struct Cycle {
    bind: Phase,
    release: Phase,
}

/// Both floors, measured one after the other.
#[derive(Clone, Debug, Serialize)]
struct Floors {
    bare: Cycle,
    reserved: Cycle,
}

impl Rounds<'_> {
    pub(crate) async fn run(&self, stage: &Cluster<'_>) -> Outcome {
        let rounds = match self.count {
            0..=200 => 7,
            201..=1_000 => 5,
            1_001..=3_000 => 3,
            _ => 1,
        };
        self.floor(stage, self.count.min(500), true).await;
        let (mut floors, mut provided) = (vec![self.floors(stage, true).await], Vec::new());
        for round in 0..rounds {
            provided.push(self.provider(stage).await);
            floors.push(self.floors(stage, round % 2 == 1).await);
        }
        let lines = vec![
            line("bind", &provided, &floors, |cycle| &cycle.bind),
            line("release", &provided, &floors, |cycle| &cycle.release),
        ];
        let mut figures = Vec::new();
        for Line { what, phase, of_bare, of_reserved, .. } in &lines {
            figures.push(Figure::new(format!("{what}, of the bare floor"), *of_bare, "").at_least(0.65));
            figures.push(Figure::new(format!("{what}, of the reserved floor"), *of_reserved, "").at_least(0.85));
            figures.push(Figure::new(format!("writes a {what}"), phase.writes(), "").at_most(4.0));
            let pool_writes = phase.cost.requests.pool_writes as f64 / phase.cost.seconds / self.pools as f64;
            figures.push(Figure::new(format!("writes of a pool, {what}"), pool_writes, "a second").at_most(4.0));
        }
        if let Some(memory) = provided.last().and_then(|cycle| cycle.release.cost.memory) {
            figures.push(Figure::new("memory at most", memory.peak, "MiB"));
        }
        let speeds: Vec<f64> = floors.iter().map(|floors| floors.bare.bind.per_second).collect();
        let (fastest, slowest) =
            (speeds.iter().copied().fold(0.0, f64::max), speeds.iter().copied().fold(f64::MAX, f64::min));
        figures.push(Figure::new("fastest of the bare floors to the slowest", fastest / slowest, ""));
        Outcome {
            series: self.series.clone(),
            present: self.present.map_or(0, |(_, present)| present),
            claims: self.count,
            lines,
            figures,
            raw: json!({"provider": provided, "floors": floors}),
        }
    }

    /// Both floors; the bare one first or last.
    async fn floors(&self, stage: &Cluster<'_>, bare_first: bool) -> Floors {
        if bare_first {
            let bare = self.floor(stage, self.count, false).await;
            Floors { bare, reserved: self.floor(stage, self.count, true).await }
        } else {
            let reserved = self.floor(stage, self.count, true).await;
            Floors { bare: self.floor(stage, self.count, false).await, reserved }
        }
    }

    async fn floor(&self, stage: &Cluster<'_>, count: usize, reserve: bool) -> Cycle {
        let consumer = stage.consumer(&unique("floor"), self.pools).await;
        let floor = Floor::new(&stage.provider, &consumer.namespace, &consumer.pools, reserve);
        let cycle = cycle(stage, &consumer, count, 0, Some(&floor), None).await;
        consumer.remove_pools().await;
        cycle
    }

    async fn provider(&self, stage: &Cluster<'_>) -> Cycle {
        match self.present {
            Some((consumer, present)) => {
                let mut manager = stage.start().await;
                let cycle = cycle(stage, consumer, self.count, present, None, Some(&manager)).await;
                manager.stop();
                cycle
            }
            None => {
                let consumer = stage.consumer(&unique(&self.series), self.pools).await;
                let mut manager = stage.start().await;
                let cycle = cycle(stage, &consumer, self.count, 0, None, Some(&manager)).await;
                consumer.remove_pools().await;
                manager.stop();
                cycle
            }
        }
    }
}

/// The most claims of a short round: the API server collects its garbage less than once in it.
const SHORT: usize = 1_000;

async fn prepare(stage: &Cluster<'_>, count: usize, manager: Option<&Manager>) {
    if count > SHORT {
        stage.quiet(manager).await;
    } else {
        stage.settle(manager).await;
    }
}

/// Binds claims, checks their addresses, and releases them.
async fn cycle(
    stage: &Cluster<'_>,
    consumer: &Consumer,
    count: usize,
    present: usize,
    floor: Option<&Floor>,
    manager: Option<&Manager>,
) -> Cycle {
    let began = Instant::now();
    prepare(stage, count, manager).await;
    let prefix = unique("claim");
    let names: Vec<String> = (0..count).map(|number| format!("{prefix}-{number}")).collect();
    let meter = Meter::start(&stage.plane, manager.map(Manager::pid));
    let (timed, made): (_, Vec<Identity>) = consumer.bind(&names, floor).await;
    let bind = Phase::new(&timed, meter.read_later().await);
    consumer.check_addresses(present + count).await;
    if manager.is_some() {
        tokio::time::sleep(YOUNG.saturating_sub(began.elapsed())).await;
    }
    prepare(stage, count, manager).await;
    let meter = Meter::start(&stage.plane, manager.map(Manager::pid));
    let timed = consumer.release(&made, floor).await;
    let release = Phase::new(&timed, meter.read_later().await);
    consumer.check_addresses(present).await;
    Cycle { bind, release }
}

/// The rounds of the provider against those of the floors around them.
fn line(what: &'static str, provided: &[Cycle], floors: &[Floors], phase: impl Fn(&Cycle) -> &Phase) -> Line {
    let floor = |of: &dyn Fn(&Floors) -> f64| -> f64 {
        let around = floors.windows(2).map(|around| around.iter().map(of).sum::<f64>() / around.len() as f64);
        around.sum::<f64>() / provided.iter().map(|cycle| phase(cycle).seconds).sum::<f64>()
    };
    let speed = |of: &dyn Fn(&Floors) -> f64| median(floors.iter().map(of));
    let mut rounds: Vec<&Phase> = provided.iter().map(&phase).collect();
    rounds.sort_by(|one, other| one.seconds.total_cmp(&other.seconds));
    Line {
        what,
        phase: rounds[rounds.len() / 2].clone(),
        bare_per_second: speed(&|floors| phase(&floors.bare).per_second),
        reserved_per_second: speed(&|floors| phase(&floors.reserved).per_second),
        of_bare: floor(&|floors| phase(&floors.bare).seconds),
        of_reserved: floor(&|floors| phase(&floors.reserved).seconds),
    }
}
