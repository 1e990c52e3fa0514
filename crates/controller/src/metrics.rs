//! The metrics of a process, in the format of Prometheus.
//!
//! There is no global registry: each component creates its metrics and registers them with the
//! [`Metrics`] of the process. A [`Description`] is used for the registration and for the
//! documentation.

mod controllers;
mod requests;

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry};

pub(crate) use self::controllers::{ControllerMetrics, Outcome, WorkerMetrics};
pub(crate) use self::requests::{RequestMetrics, is_watch, parse};
use crate::identity::Identity;

/// Name, type, labels and meaning of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// The name, as in queries: that of a counter ends with `_total`.
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// The labels. A label with a few fixed values lists them: `state: due, delayed, running`.
    pub labels: &'static [&'static str],
    /// What it counts or measures, without a full stop at its end.
    pub help: &'static str,
}

/// The content type of [`Metrics::encode`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Whether the initial list of a watched kind is complete.
pub(crate) const CACHE_SYNCED: Description = Description {
    name: "cache_synced",
    kind: "gauge",
    labels: &["cache"],
    help: "Whether a needed kind is served, listed and not refused (1) or not (0); also for the start of the manager",
};

/// The failures of watches.
pub(crate) const WATCH_RESTARTS: Description = Description {
    name: "watch_restarts_total",
    kind: "counter",
    labels: &[
        "kind",
        "reason: expired, forbidden, not_found, throttled, server_error, connection, configuration",
    ],
    help: "Failures of a watch, after each of which it is opened again",
};

const LEADER: Description = Description {
    name: "leader",
    kind: "gauge",
    labels: &["lease"],
    help: "Whether this process is the leader (1) or a standby (0); without leader election there is no value",
};

const BUILD_INFO: Description = Description {
    name: "capi_ipam_build_info",
    kind: "gauge",
    labels: &["name", "version", "revision"],
    help: "Name, version and commit of the program; the commit is empty if it is unknown; always 1",
};

/// The metrics of every program of this crate.
pub const DESCRIPTIONS: &[Description] = &[
    controllers::RECONCILE_SECONDS,
    controllers::QUEUE_OBJECTS,
    controllers::RETRIES,
    requests::REQUEST_SECONDS,
    WATCH_RESTARTS,
    CACHE_SYNCED,
    LEADER,
    BUILD_INFO,
];

/// The labels of a metric, and their values.
pub type Labels<const N: usize> = [(&'static str, String); N];

/// The metrics registry of a process. Clones share it.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Mutex<Registry>>,
    /// The begin of names that the prefix of the program replaces.
    replaced: &'static str,
    pub(crate) controllers: ControllerMetrics,
    pub(crate) requests: RequestMetrics,
    leader: Family<Labels<1>, Gauge>,
    shared: Arc<Mutex<HashMap<TypeId, Box<dyn Any + Send>>>>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::with("", None)
    }
}

impl Metrics {
    /// Metrics whose names begin with `prefix` and an underscore, in place of `capi_ipam_`; with an
    /// empty prefix they have the names in [`DESCRIPTIONS`]. `buckets` are the upper bounds of the
    /// durations of reconciles, in seconds and ascending; `None` for bounds from a millisecond to 30
    /// seconds. A program chooses both by
    /// [`Identity::with_metrics`](crate::manager::Identity::with_metrics).
    pub fn with(prefix: &str, buckets: Option<&'static [f64]>) -> Self {
        let (registry, replaced) = if prefix.is_empty() {
            (Registry::default(), "")
        } else {
            (Registry::with_prefix(prefix), "capi_ipam_")
        };
        let metrics = Self {
            registry: Arc::new(Mutex::new(registry)),
            replaced,
            controllers: ControllerMetrics::new(buckets),
            requests: RequestMetrics::default(),
            leader: Family::default(),
            shared: Arc::default(),
        };
        metrics.add(
            &controllers::RECONCILE_SECONDS,
            metrics.controllers.durations.clone(),
        );
        metrics.add(
            &controllers::QUEUE_OBJECTS,
            metrics.controllers.objects.clone(),
        );
        metrics.add(&controllers::RETRIES, metrics.controllers.retries.clone());
        metrics.add(
            &requests::REQUEST_SECONDS,
            metrics.requests.durations.clone(),
        );
        metrics.add(&LEADER, metrics.leader.clone());
        metrics
    }

    /// Registers a metric. `help` has no full stop at its end; the name of a counter has no
    /// `_total`.
    pub fn register(&self, name: &str, help: &str, metric: impl Metric) {
        let name = name.strip_prefix(self.replaced).unwrap_or(name);
        self.registry.lock().register(name, help, metric);
    }

    /// Registers a metric by its description.
    pub fn add(&self, description: &Description, metric: impl Metric) {
        let name = description.name;
        self.register(
            name.strip_suffix("_total").unwrap_or(name),
            description.help,
            metric,
        );
    }

    /// Returns the metrics of this type, which all components of the process share. The first call
    /// registers them with `register`.
    pub fn get_or_register<T: Clone + Default + Send + 'static>(
        &self,
        register: impl FnOnce(&Self, &T),
    ) -> T {
        let mut shared = self.shared.lock();
        if let Some(known) = shared
            .get(&TypeId::of::<T>())
            .and_then(|known| known.downcast_ref::<T>())
        {
            return known.clone();
        }
        let created = T::default();
        register(self, &created);
        shared.insert(TypeId::of::<T>(), Box::new(created.clone()));
        created
    }

    /// Registers a collector, which computes its metrics on every scrape.
    pub fn register_collector(&self, collector: impl Collector) {
        self.registry.lock().register_collector(Box::new(collector));
    }

    /// Reports whether this process has the lease.
    pub(crate) fn set_leader(&self, lease: &str, is_leader: bool) {
        let leader = self.leader.get_or_create(&[("lease", lease.to_owned())]);
        leader.set(i64::from(is_leader));
    }

    /// Reports the names of the program.
    pub(crate) fn add_build_info(&self, identity: &Identity) {
        let info = Family::<[_; 3], Gauge>::default();
        let labels = [
            ("name", identity.name),
            ("version", identity.version),
            ("revision", identity.revision.unwrap_or_default()),
        ];
        info.get_or_create(&labels).set(1);
        self.add(&BUILD_INFO, info);
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
        let expected =
            "# HELP things How many things there were.\n# TYPE things counter\nthings_total 1\n";
        assert!(
            text.contains(expected) && text.ends_with("# EOF\n"),
            "{text}"
        );
    }

    #[test]
    fn program_chooses_prefix_and_buckets() {
        let metrics = Metrics::with("my_provider", Some(&[0.5, 60.0]));
        metrics.controllers.of("nodes");
        metrics.add_build_info(&Identity::new("my-provider", "1.2.3"));
        let text = metrics.encode().unwrap();
        let series = "my_provider_controller_reconcile_seconds_bucket";
        let outcome = "controller=\"nodes\",outcome=\"success\"";
        for bound in ["0.5", "60.0", "+Inf"] {
            let line = format!("{series}{{le=\"{bound}\",{outcome}}} 0");
            assert!(text.contains(&line), "{line} in\n{text}");
        }
        assert!(!text.contains("\ncontroller_"), "{text}");
        assert!(text.contains("\nmy_provider_build_info{"), "{text}");
        assert!(!text.contains("le=\"0.001\",controller"), "{text}");
    }

    #[test]
    fn components_share_metrics_of_a_type() {
        #[derive(Clone, Default)]
        struct Things(Counter);
        let metrics = Metrics::default();
        let things = || {
            metrics.get_or_register(|metrics, things: &Things| {
                metrics.register("things", "Things", things.0.clone())
            })
        };
        things().0.inc();
        things().0.inc();
        assert_eq!(
            metrics.encode().unwrap().matches("things_total 2").count(),
            1
        );
    }

    #[test]
    fn leader_and_version_are_encoded() {
        let metrics = Metrics::default();
        metrics.add_build_info(&Identity::new("my-provider", "1.2.3"));
        metrics.set_leader("my-lease", false);
        metrics.set_leader("my-lease", true);
        let text = metrics.encode().unwrap();
        for line in [
            "capi_ipam_build_info{name=\"my-provider\",version=\"1.2.3\",revision=\"\"} 1",
            "leader{lease=\"my-lease\"} 1",
        ] {
            assert!(text.contains(&format!("\n{line}\n")), "{text}");
        }
    }
}
