//! Rounds with a change and rounds without it, in pairs.
//!
//! One manager serves all rounds. The speed of a machine drifts, and the control plane does periodic
//! work. So the order of the pairs alternates: without, with, with, without. A run that compares two
//! equal states in this way measures the noise.

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

/// As many rounds with a change as without it.
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

    /// Runs `count` pairs of rounds. `set` makes the change (`true`) and takes it back. It is taken
    /// back before and after the run.
    pub(crate) async fn run(&self, count: usize, set: impl AsyncFn(bool)) -> Rounds {
        let mut rounds = Rounds {
            without: Vec::new(),
            with: Vec::new(),
        };
        let mut is_set = false;
        for number in 0..count {
            let begins_with_change = number % 2 == 1;
            for is_changed in [begins_with_change, !begins_with_change] {
                if is_changed != is_set {
                    set(is_changed).await;
                    is_set = is_changed;
                }
                if is_changed {
                    // A list of 100,000 addresses is much more work for the API server than a round.
                    rounds.with.push(self.measure(number == 0).await);
                } else {
                    rounds.without.push(self.round().await);
                }
            }
        }
        if is_set {
            set(false).await;
        }
        rounds
    }
}

impl Rounds {
    /// The sum over the rounds without the change, divided by that over those with it.
    pub(crate) fn ratio(&self, of: impl Fn(&Round) -> f64) -> f64 {
        let without: f64 = self.without.iter().map(&of).sum();
        let with: f64 = self.with.iter().map(&of).sum();
        without / with
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

    /// The figures of each round.
    pub(crate) fn raw(&self) -> Value {
        let figures = |rounds: &[Round]| -> Vec<Value> { rounds.iter().map(Round::raw).collect() };
        json!({"without": figures(&self.without), "with": figures(&self.with)})
    }
}

impl Round {
    /// Processor time of the manager per claim that is bound and released, in milliseconds.
    fn processor_ms(&self) -> f64 {
        self.bind.processor_ms() + self.release.processor_ms()
    }

    fn raw(&self) -> Value {
        json!({"bind": self.bind, "release": self.release})
    }

    pub(crate) fn bind_seconds(&self) -> f64 {
        self.bind.seconds
    }

    /// Processor time of API server and etcd per bound claim, in milliseconds.
    pub(crate) fn bind_server_ms(&self) -> f64 {
        self.bind.server_ms()
    }

    /// Processor time of the manager per bound claim, in milliseconds.
    pub(crate) fn bind_processor_ms(&self) -> f64 {
        self.bind.processor_ms()
    }

    /// Writes per bound claim, without that of the consumer.
    pub(crate) fn bind_writes(&self) -> f64 {
        self.bind.writes()
    }
}
