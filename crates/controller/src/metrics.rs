//! The metrics of a process, in the format of Prometheus.
//!
//! There is no global registry: each component creates its metrics and registers them with the [`Metrics`] of the
//! process.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::{Metric, Registry};

/// The content type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The metrics registry of a process. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
}

impl Metrics {
    /// Registers a metric. `help` has no full stop at its end; the name of a counter has no `_total`.
    pub fn register(&self, name: &str, help: &str, metric: impl Metric) {
        self.registry.lock().register(name, help, metric);
    }

    /// Registers a collector, which computes its metrics on every scrape.
    pub(crate) fn register_collector(&self, collector: impl Collector) {
        self.registry.lock().register_collector(Box::new(collector));
    }

    /// Encodes all metrics in the text format of OpenMetrics.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry.lock())?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;

    use super::*;

    #[test]
    fn registered_metric_is_encoded() {
        let metrics = Metrics::default();
        let things: Counter = Counter::default();
        metrics.register("things", "How many things there were", things.clone());
        things.inc();
        let text = metrics.clone().encode().unwrap();
        let expected = "# HELP things How many things there were.\n# TYPE things counter\nthings_total 1\n# EOF\n";
        assert_eq!(text, expected);
    }
}
