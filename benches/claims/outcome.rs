//! The outcome of a series: figures and their targets.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::consumer::Timed;
use crate::meter::Cost;

/// The target of a figure.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Target {
    AtLeast(f64),
    AtMost(f64),
}

/// One figure of a series.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Figure {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    pub(crate) target: Option<Target>,
}

impl Figure {
    pub(crate) fn new(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self {
            name: name.into(),
            value,
            unit,
            target: None,
        }
    }

    pub(crate) fn at_least(self, limit: f64) -> Self {
        Self {
            target: Some(Target::AtLeast(limit)),
            ..self
        }
    }

    pub(crate) fn at_most(self, limit: f64) -> Self {
        Self {
            target: Some(Target::AtMost(limit)),
            ..self
        }
    }

    /// Whether the figure meets its target; `None` without a target.
    pub(crate) fn is_reached(&self) -> Option<bool> {
        match self.target? {
            Target::AtLeast(limit) => Some(self.value >= limit),
            Target::AtMost(limit) => Some(self.value <= limit),
        }
    }
}

/// One phase, binding or release, of many claims.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Phase {
    pub(crate) claims: usize,
    pub(crate) seconds: f64,
    pub(crate) per_second: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p90_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) longest_ms: f64,
    pub(crate) cost: Cost,
}

impl Phase {
    pub(crate) fn new(timed: &Timed, cost: Cost) -> Self {
        let (claims, seconds) = (timed.each.len(), timed.whole.as_secs_f64());
        Self {
            claims,
            seconds,
            per_second: claims as f64 / seconds,
            p50_ms: percentile(&timed.each, 50),
            p90_ms: percentile(&timed.each, 90),
            p99_ms: percentile(&timed.each, 99),
            longest_ms: percentile(&timed.each, 100),
            cost,
        }
    }

    /// Writes of claims, addresses and reservations per claim, without that of the consumer.
    pub(crate) fn writes(&self) -> f64 {
        self.cost.requests.writes as f64 / self.claims as f64 - 1.0
    }

    /// Reads of single objects per claim.
    pub(crate) fn reads(&self) -> f64 {
        self.cost.requests.reads as f64 / self.claims as f64
    }

    /// Processor time of API server and etcd per claim in milliseconds, also for the watches of
    /// this program.
    pub(crate) fn server_ms(&self) -> f64 {
        let processor = self.cost.processor;
        (processor.api_server + processor.etcd) * 1000.0 / self.claims as f64
    }

    /// Processor time of the manager per claim in milliseconds.
    pub(crate) fn processor_ms(&self) -> f64 {
        self.cost.processor.manager * 1000.0 / self.claims as f64
    }
}

/// A line of the table of rates.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Line {
    pub(crate) what: &'static str,
    /// The median round.
    pub(crate) phase: Phase,
    pub(crate) baseline_per_second: f64,
    pub(crate) reserving_baseline_per_second: f64,
    pub(crate) of_baseline: f64,
    pub(crate) of_reserving_baseline: f64,
    /// The processor time of API server and etcd per claim, in milliseconds: of the provider and of
    /// the baselines.
    pub(crate) server_ms: f64,
    pub(crate) baseline_server_ms: f64,
    pub(crate) reserving_baseline_server_ms: f64,
}

/// The outcome of a series.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Outcome {
    pub(crate) series: String,
    /// The number of bound claims before the series.
    pub(crate) present: usize,
    pub(crate) claims: usize,
    pub(crate) lines: Vec<Line>,
    pub(crate) figures: Vec<Figure>,
    /// The raw measurements.
    pub(crate) raw: Value,
}

/// A percentile of sorted times, in milliseconds.
pub(crate) fn percentile(times: &[Duration], percent: usize) -> f64 {
    let place = (times.len() * percent).div_ceil(100).saturating_sub(1);
    times.get(place).map_or(0.0, |time| milliseconds(*time))
}

pub(crate) fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// The mean; 0 of no values.
pub(crate) fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.into_iter().collect();
    if values.is_empty() {
        0.0
    } else {
        values.iter().sum::<f64>() / values.len() as f64
    }
}

/// The median; 0 of no values.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let count = values.len();
    match values.get(count / 2) {
        None => 0.0,
        Some(middle) if count % 2 == 1 => *middle,
        Some(upper) => f64::midpoint(values[count / 2 - 1], *upper),
    }
}
