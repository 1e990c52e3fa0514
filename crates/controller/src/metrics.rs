//! What the program counts and measures, to be asked for by Prometheus.
//!
//! There is no global state: who counts something makes its counters, and registers them with the one [`Metrics`] of
//! the program.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::{Metric, Registry};

/// The content type of what [`Metrics::encode`] writes.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics of a program. Clones speak of the same ones.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
}

impl Metrics {
    /// Adds a metric. `help` says what it is, without a full stop; the name of a counter without `_total`.
    pub fn register(&self, name: &str, help: &str, metric: impl Metric) {
        self.lock().register(name, help, metric);
    }

    /// Adds something that is asked for its numbers each time when they are wanted.
    pub fn register_collector(&self, collector: impl Collector) {
        self.lock().register_collector(Box::new(collector));
    }

    /// All metrics in the text format of OpenMetrics.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.lock())?;
        Ok(text)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;

    use super::*;

    #[test]
    fn what_is_registered_is_written() {
        let metrics = Metrics::default();
        let things: Counter = Counter::default();
        metrics.register("things", "How many things there were", things.clone());
        things.inc();
        let text = metrics.clone().encode().unwrap();
        let expected = "# HELP things How many things there were.\n# TYPE things counter\nthings_total 1\n# EOF\n";
        assert_eq!(text, expected);
    }
}
