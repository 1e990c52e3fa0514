//! The metrics of controllers.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use super::{Description, Labels};

pub(super) const RECONCILE_SECONDS: Description = Description {
    name: "controller_reconcile_seconds",
    kind: "histogram",
    labels: &[
        "controller",
        "outcome: success, requeue, error, panic, timeout",
    ],
    help: "Duration of reconciles",
};

pub(super) const QUEUE_OBJECTS: Description = Description {
    name: "controller_queue_objects",
    kind: "gauge",
    labels: &[
        "controller",
        "state: due, due_low_priority, delayed, running",
    ],
    help: "Objects that wait for a reconcile, by priority, that wait for a retry, or that are being reconciled",
};

pub(super) const RETRIES: Description = Description {
    name: "controller_retries_total",
    kind: "counter",
    labels: &["controller"],
    help: "Failed reconciles that are retried",
};

/// Upper bounds of the durations of reconciles, in seconds: most take a few requests.
const BUCKETS: [f64; 11] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0,
];

/// The states of objects in the queue.
const STATES: [&str; 4] = ["due", "due_low_priority", "delayed", "running"];

/// How a reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Success,
    Requeue,
    Error,
    Panic,
    Timeout,
}

impl Outcome {
    const ALL: [Self; 5] = [
        Self::Success,
        Self::Requeue,
        Self::Error,
        Self::Panic,
        Self::Timeout,
    ];

    /// The value of the attribute `outcome` of the span of a reconcile.
    pub(crate) fn in_traces(self) -> &'static str {
        match self {
            Self::Success => "done",
            Self::Requeue => "retry",
            failure => failure.label(),
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Requeue => "requeue",
            Self::Error => "error",
            Self::Panic => "panic",
            Self::Timeout => "timeout",
        }
    }
}

/// The metrics of all controllers of a process. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct ControllerMetrics {
    pub(super) durations: Family<Labels<2>, Histogram, Buckets>,
    pub(super) objects: Family<Labels<2>, Gauge>,
    pub(super) retries: Family<Labels<1>, Counter>,
}

/// The upper bounds of a histogram.
#[derive(Clone, Copy)]
pub(super) struct Buckets(&'static [f64]);

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

impl Default for ControllerMetrics {
    fn default() -> Self {
        Self::new(None)
    }
}

impl ControllerMetrics {
    /// `buckets` replaces the upper bounds of the durations of reconciles.
    pub(crate) fn new(buckets: Option<&'static [f64]>) -> Self {
        let buckets = Buckets(buckets.unwrap_or(&BUCKETS));
        Self {
            durations: Family::new_with_constructor(buckets),
            objects: Family::default(),
            retries: Family::default(),
        }
    }

    /// Creates the metrics of one controller.
    pub(crate) fn of(&self, controller: &str) -> WorkerMetrics {
        let controller = ("controller", controller.to_owned());
        let objects = STATES.map(|state| {
            let labels = [controller.clone(), ("state", state.to_owned())];
            self.objects.get_or_create_owned(&labels)
        });
        // They exist before the first reconcile: an alert does not see an increase from nothing to
        // one.
        let durations = Outcome::ALL.map(|outcome| {
            let labels = [controller.clone(), ("outcome", outcome.label().to_owned())];
            (outcome, self.durations.get_or_create_owned(&labels))
        });
        let retries = self.retries.get_or_create_owned(&[controller]);
        WorkerMetrics {
            durations,
            objects,
            retries,
        }
    }
}

/// The metrics of one controller.
#[derive(Clone)]
pub(crate) struct WorkerMetrics {
    durations: [(Outcome, Histogram); 5],
    objects: [Gauge; 4],
    retries: Counter,
}

impl WorkerMetrics {
    /// Records a reconcile.
    pub(crate) fn record(&self, outcome: Outcome, took: Duration) {
        let mut durations = self.durations.iter();
        if let Some((_, durations)) = durations.find(|(recorded, _)| *recorded == outcome) {
            durations.observe(took.as_secs_f64());
        }
    }

    /// Records that a failed reconcile is retried.
    pub(crate) fn record_retry(&self) {
        self.retries.inc();
    }

    /// Reports the number of objects in each of the [states](STATES).
    pub(crate) fn set_objects(&self, counts: [usize; 4]) {
        for (gauge, count) in self.objects.iter().zip(counts) {
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn metrics_of_a_controller_have_its_name() {
        let metrics = Metrics::default();
        let nodes = metrics.controllers.of("nodes");
        nodes.record(Outcome::Success, Duration::from_millis(7));
        nodes.record_retry();
        nodes.set_objects([3, 1, 2, 1]);
        let text = metrics.encode().unwrap();
        for line in [
            "controller_reconcile_seconds_bucket{le=\"0.01\",controller=\"nodes\",outcome=\"success\"} 1",
            "controller_queue_objects{controller=\"nodes\",state=\"due\"} 3",
            "controller_queue_objects{controller=\"nodes\",state=\"due_low_priority\"} 1",
            "controller_queue_objects{controller=\"nodes\",state=\"delayed\"} 2",
            "controller_queue_objects{controller=\"nodes\",state=\"running\"} 1",
            "controller_retries_total{controller=\"nodes\"} 1",
        ] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }
}
