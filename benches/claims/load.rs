//! Claims that are bound and released: many at a time, one at a time, and in pairs of rounds.

use std::time::{Duration, Instant};

use serde::Serialize;
use support::consumer::unique;
use support::manager::Manager;
use support::process::Memory;

use crate::baseline::Baseline;
use crate::cluster::Cluster;
use crate::consumer::{Consumer, Timed};
use crate::measure::{Figure, Meter, Phase, median};

/// How long a provider counts as new. It may send more reads, since late writes of the previous one
/// are possible. Releases are measured after that.
const NEW: Duration = Duration::from_secs(31);
/// The maximum number of claims of a short round, in which the API server runs less than one
/// garbage collection.
const SHORT: usize = 1_000;

/// Who serves claims.
#[derive(Clone, Copy)]
pub(crate) enum By<'a> {
    Manager(&'a Manager),
    Baseline(&'a Baseline),
}

impl<'a> By<'a> {
    fn manager(self) -> Option<&'a Manager> {
        match self {
            Self::Manager(manager) => Some(manager),
            Self::Baseline(_) => None,
        }
    }

    fn baseline(self) -> Option<&'a Baseline> {
        match self {
            Self::Manager(_) => None,
            Self::Baseline(baseline) => Some(baseline),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Manager(_) => "provider",
            Self::Baseline(baseline) if baseline.reserve => "baseline-with-reservation",
            Self::Baseline(_) => "baseline",
        }
    }
}

/// The claims of a round.
pub(crate) struct Load<'a> {
    pub(crate) cluster: &'a Cluster<'a>,
    pub(crate) consumer: &'a Consumer,
    pub(crate) by: By<'a>,
    pub(crate) count: usize,
    /// The number of values of the label `rack` of the claims; 0: no label.
    pub(crate) racks: usize,
}

impl<'a> Load<'a> {
    /// Claims without labels, whose objects of addresses a manager creates.
    pub(crate) fn of(
        cluster: &'a Cluster<'a>,
        consumer: &'a Consumer,
        manager: &'a Manager,
        count: usize,
    ) -> Self {
        Self {
            cluster,
            consumer,
            by: By::Manager(manager),
            count,
            racks: 0,
        }
    }
}

/// The phases of one round.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cycle {
    pub(crate) bind: Phase,
    pub(crate) release: Phase,
}

impl Load<'_> {
    /// Waits until the API server is idle. Long rounds contain a few garbage collections at random
    /// times: if all began with an empty heap, a little more garbage would always or never cause
    /// one more.
    async fn prepare(&self) {
        if self.count > SHORT {
            self.cluster.quiet(self.by.manager()).await;
        } else {
            self.cluster.settle(self.by.manager()).await;
        }
    }

    fn meter(&self) -> Meter<'_> {
        Meter::start(
            &self.cluster.plane,
            self.by.manager().map(|manager| manager.pid()),
        )
    }

    /// Binds and releases claims. A round by itself waits until the manager is not new any more.
    pub(crate) async fn cycle(&self) -> Cycle {
        let began = Instant::now();
        let (bind, made) = self.bind().await;
        self.consumer.check_addresses(self.count).await;
        if self.by.manager().is_some() && !self.cluster.options.quick {
            tokio::time::sleep(NEW.saturating_sub(began.elapsed())).await;
        }
        self.prepare().await;
        let release = self.release(&made).await;
        self.consumer.check_addresses(0).await;
        Cycle { bind, release }
    }

    async fn bind(&self) -> (Phase, Vec<crate::api::Identity>) {
        self.prepare().await;
        let prefix = unique("claim");
        let meter = self.meter();
        let profile = self
            .cluster
            .start_profile(&format!("bind-{}-{prefix}", self.by.name()));
        let (timed, made) = self
            .consumer
            .bind(&prefix, self.count, self.racks, self.by.baseline())
            .await;
        let phase = Phase::new(&timed, meter.read_later().await);
        if let Some(profile) = profile {
            profile.await.expect("the profile is written");
        }
        (phase, made)
    }

    async fn release(&self, made: &[crate::api::Identity]) -> Phase {
        let meter = self.meter();
        let profile =
            self.cluster
                .start_profile(&format!("release-{}-{}", self.by.name(), unique("claims")));
        let timed = self.consumer.release(made, self.by.baseline()).await;
        let phase = Phase::new(&timed, meter.read_later().await);
        if let Some(profile) = profile {
            profile.await.expect("the profile is written");
        }
        phase
    }

    /// A round among others of the same manager, in which addresses are checked if wanted: a list
    /// of 100,000 addresses is much more work for the API server than a round.
    pub(crate) async fn round(&self, is_checked: bool) -> Cycle {
        let (bind, made) = self.bind().await;
        if is_checked {
            self.consumer.check_addresses(self.count).await;
        }
        Cycle {
            bind,
            release: self.release(&made).await,
        }
    }

    /// Runs pairs of rounds, one with a change and one without. `set` makes the change (`true`) and
    /// takes it back. It is taken back before and after the run.
    ///
    /// The speed of a machine drifts, and the control plane does periodic work. So the order of the
    /// pairs alternates: without, with, with, without. A run that compares two equal states in this
    /// way measures the noise.
    pub(crate) async fn pairs(&self, count: usize, set: impl AsyncFn(bool)) -> Pairs {
        let mut pairs = Pairs::default();
        let mut is_set = false;
        for number in 0..self.cluster.options.rounds(count) {
            let begins_with_change = number % 2 == 1;
            for is_changed in [begins_with_change, !begins_with_change] {
                if is_changed != is_set {
                    set(is_changed).await;
                    is_set = is_changed;
                }
                let round = self.round(is_changed && number == 0).await;
                let rounds = if is_changed {
                    &mut pairs.with
                } else {
                    &mut pairs.without
                };
                rounds.push(round);
            }
        }
        if is_set {
            set(false).await;
        }
        pairs
    }

    /// Binds and releases one claim after the other until there are enough, with a pause before
    /// each request.
    pub(crate) async fn one_by_one(
        &self,
        pause: Duration,
        is_enough: impl Fn(usize) -> bool,
    ) -> Cycle {
        let (mut bind, mut release) = (Timed::default(), Timed::default());
        let prefix = unique("single");
        let meter = self.meter();
        while !is_enough(bind.each.len()) {
            tokio::time::sleep(pause).await;
            let prefix = format!("{prefix}-{}", bind.each.len());
            let (bound, made) = self.consumer.bind(&prefix, 1, 0, self.by.baseline()).await;
            tokio::time::sleep(pause).await;
            let released = self.consumer.release(&made, self.by.baseline()).await;
            for (all, one) in [(&mut bind, bound), (&mut release, released)] {
                all.whole += one.whole;
                all.each.extend(one.each);
            }
        }
        bind.each.sort();
        release.each.sort();
        let cost = meter.read();
        Cycle {
            bind: Phase::new(&bind, cost),
            release: Phase::new(&release, cost),
        }
    }
}

/// As many rounds with a change as without it.
#[derive(Default, Serialize)]
pub(crate) struct Pairs {
    without: Vec<Cycle>,
    with: Vec<Cycle>,
}

impl Pairs {
    /// The sum over the rounds without the change, divided by that over those with it.
    pub(crate) fn ratio(&self, of: impl Fn(&Cycle) -> f64) -> f64 {
        let sum = |rounds: &[Cycle]| rounds.iter().map(&of).sum::<f64>();
        sum(&self.without) / sum(&self.with)
    }

    /// The processor time of API server and etcd per bound claim, as a ratio to the default.
    pub(crate) fn server_ratio(&self) -> Figure {
        let ratio = 1.0 / self.ratio(|round| round.bind.server_ms());
        Figure::ratio(
            "CPU of the API server and etcd per bound claim, ratio to the default",
            ratio,
        )
    }

    /// Rates with the change, and ratios to those without it.
    pub(crate) fn figures(&self, name: &str) -> Vec<Figure> {
        let processor = |round: &Cycle| round.bind.manager_ms() + round.release.manager_ms();
        let bound = median(self.with.iter().map(|round| round.bind.per_second()));
        let ratio = |what: &str, value: f64| {
            Figure::ratio(format!("{name}: {what}, ratio to the default"), value)
        };
        vec![
            Figure::new(format!("{name}: bound"), bound, "per s"),
            Figure::new(
                format!("{name}: CPU of the manager"),
                median(self.with.iter().map(processor)),
                "ms",
            ),
            ratio("bind", self.ratio(|round| round.bind.seconds)),
            ratio("bind, p99", self.ratio(|round| round.bind.p99_ms)),
            ratio("release", self.ratio(|round| round.release.seconds)),
            ratio("release, p99", self.ratio(|round| round.release.p99_ms)),
            ratio("CPU of the manager", self.ratio(processor)),
        ]
    }
}

/// The peak memory of a manager.
pub(crate) fn peak(manager: &Manager) -> Figure {
    Figure::new("peak memory", Memory::of(manager.pid()).peak, "MiB")
}
