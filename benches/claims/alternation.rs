//! Rounds with a change, each between two rounds without it.
//!
//! One manager serves all rounds. Each round with the change is compared with the mean of its
//! neighbours, because the speed of a machine drifts.

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::consumer::Consumer;
use crate::meter::Meter;
use crate::outcome::{Figure, Phase, median};
use support::consumer::unique;
use support::manager::Manager;

/// The claims of each round.
pub(crate) struct Alternation<'a> {
    pub(crate) cluster: &'a Cluster<'a>,
    pub(crate) consumer: &'a Consumer,
    pub(crate) manager: &'a Manager,
    /// The bound claims before each round.
    pub(crate) before: usize,
    pub(crate) count: usize,
    /// The number of values of the label `rack` of the claims; 0: no label.
    pub(crate) racks: usize,
}

/// What is compared of two rounds.
type Measure = fn(&Round) -> f64;

/// The claims of one round, bound and released.
pub(crate) struct Round {
    bind: Phase,
    release: Phase,
}

/// Rounds with a change, and the rounds before, between and after them.
pub(crate) struct Rounds {
    pub(crate) without: Vec<Round>,
    pub(crate) with: Vec<Round>,
}

impl Alternation<'_> {
    /// Binds and releases claims.
    pub(crate) async fn round(&self) -> Round {
        self.measure(false).await
    }

    /// Binds claims, checks their addresses with `checks`, and releases them.
    async fn measure(&self, checks: bool) -> Round {
        self.cluster.settle(Some(self.manager)).await;
        let prefix = unique("claim");
        let names: Vec<String> = (0..self.count)
            .map(|number| format!("{prefix}-{number}"))
            .collect();
        let meter = || Meter::start(&self.cluster.plane, Some(self.manager.pid()));
        let started = meter();
        let (bound, made) = self.consumer.bind_labelled(&names, self.racks).await;
        let bind = Phase::new(&bound, started.read_later().await);
        if checks {
            self.consumer
                .check_addresses(self.before + self.count)
                .await;
        }
        let started = meter();
        let released = self.consumer.release(&made, None).await;
        Round {
            bind,
            release: Phase::new(&released, started.read_later().await),
        }
    }

    /// Runs `count` rounds with a change, which `set` makes (`true`) and takes back.
    pub(crate) async fn run(&self, count: usize, set: impl AsyncFn(bool)) -> Rounds {
        let mut rounds = Rounds {
            without: vec![self.round().await],
            with: Vec::new(),
        };
        for number in 0..count {
            set(true).await;
            // A list of 100,000 addresses is much more work for the API server than a round.
            rounds.with.push(self.measure(number == 0).await);
            set(false).await;
            rounds.without.push(self.round().await);
        }
        rounds
    }
}

impl Rounds {
    /// The sum over the neighbours of the rounds with the change, divided by the sum over these.
    pub(crate) fn ratio(&self, of: impl Fn(&Round) -> f64) -> f64 {
        let around: f64 = self
            .without
            .windows(2)
            .map(|around| around.iter().map(&of).sum::<f64>() / 2.0)
            .sum();
        around / self.with.iter().map(&of).sum::<f64>()
    }

    /// Rates with the change and ratios to those without it.
    pub(crate) fn figures(&self, name: &str) -> Vec<Figure> {
        let bound = median(self.with.iter().map(|round| round.bind.per_second));
        let processor = median(self.with.iter().map(Round::processor_ms));
        let ratios: [(&str, Measure); 5] = [
            ("bind", Round::bind_seconds),
            ("bind, p99", |round| round.bind.p99_ms),
            ("release", |round| round.release.seconds),
            ("release, p99", |round| round.release.p99_ms),
            ("processor of the manager per claim", Round::processor_ms),
        ];
        let mut figures = vec![
            Figure::new(format!("{name}: bound"), bound, "per s"),
            Figure::new(
                format!("{name}: processor of the manager per claim"),
                processor,
                "ms",
            ),
        ];
        for (what, of) in ratios {
            let what = format!("{name}: {what}, ratio to the default");
            figures.push(Figure::new(what, self.ratio(of), ""));
        }
        figures
    }

    /// The seconds of each round.
    pub(crate) fn raw(&self) -> Value {
        let seconds = |rounds: &[Round]| -> Vec<_> {
            rounds
                .iter()
                .map(|round| [round.bind.seconds, round.release.seconds])
                .collect()
        };
        json!({"without": seconds(&self.without), "with": seconds(&self.with)})
    }
}

impl Round {
    /// Processor time of the manager per claim that is bound and released, in milliseconds.
    fn processor_ms(&self) -> f64 {
        self.bind.processor_ms() + self.release.processor_ms()
    }

    pub(crate) fn bind_seconds(&self) -> f64 {
        self.bind.seconds
    }

    /// Processor time of API server and etcd per bound claim, in milliseconds.
    pub(crate) fn bind_server_ms(&self) -> f64 {
        self.bind.server_ms()
    }

    /// Writes per bound claim, without that of the consumer.
    pub(crate) fn bind_writes(&self) -> f64 {
        self.bind.writes()
    }
}
