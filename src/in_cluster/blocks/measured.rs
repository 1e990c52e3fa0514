//! A registry whose requests are measured.

use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_controller::metrics::{Description, Metrics};
use capi_ipam_controller::watch::EventHandler;
use capi_ipam_registry::{Backend, Created, Entry, Record, RecordSource, Registry, RegistryError};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

pub(super) const REQUESTS: Description = Description {
    name: "capi_ipam_registry_requests_total",
    kind: "counter",
    labels: &[
        "registry",
        "request: read, create, update, delete",
        "result: success, exists, conflict, unreachable, unknown, full, invalid, forbidden",
    ],
    help: "Requests to a registry; unknown: a write without an answer may be applied; without those of the watch",
};

pub(super) const REQUEST_SECONDS: Description = Description {
    name: "capi_ipam_registry_request_seconds",
    kind: "histogram",
    labels: &["registry", "request: read, create, update, delete"],
    help: "Duration of requests to a registry, with the reads that settle the outcome of a write without an answer",
};

/// The results of a request. `exists` is that of a creation.
const RESULTS: [&str; 8] = [
    SUCCESS,
    EXISTS,
    "conflict",
    "unreachable",
    "unknown",
    "full",
    "invalid",
    "forbidden",
];
const SUCCESS: &str = "success";
const EXISTS: &str = "exists";
const CREATE: &str = "create";
const OTHER_REQUESTS: [&str; 3] = ["read", "update", "delete"];

/// Upper bounds of the durations of requests, in seconds. A write takes a few milliseconds, and
/// ends within the deadlines of a request and a few reads.
const BUCKETS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.0, 10.0, 30.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    registry: String,
    request: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    registry: String,
    request: &'static str,
}

/// The metrics of the requests to all registries. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct RequestMetrics {
    requests: Family<ResultLabels, Counter>,
    durations: Family<RequestLabels, Histogram>,
}

impl RequestMetrics {
    /// Registers the metrics.
    pub(super) fn register(metrics: &Metrics) -> Self {
        let new_histogram: fn() -> Histogram = || Histogram::new(BUCKETS);
        let registered = Self {
            requests: Family::default(),
            durations: Family::new_with_constructor(new_histogram),
        };
        metrics.add(&REQUESTS, registered.requests.clone());
        metrics.add(&REQUEST_SECONDS, registered.durations.clone());
        registered
    }

    /// Creates the counters of a registry: a rate does not see an increase from nothing to one.
    fn create(&self, registry: &str) {
        let counter = |request, result| {
            drop(self.requests.get_or_create(&ResultLabels {
                registry: registry.to_owned(),
                request,
                result,
            }));
        };
        for result in RESULTS {
            counter(CREATE, result);
            // Only a creation finds that the record exists.
            for request in OTHER_REQUESTS {
                if result != EXISTS {
                    counter(request, result);
                }
            }
        }
    }

    fn record(&self, registry: &str, request: &'static str, result: &'static str, took: Duration) {
        let labels = ResultLabels {
            registry: registry.to_owned(),
            request,
            result,
        };
        self.requests.get_or_create(&labels).inc();
        let labels = RequestLabels {
            registry: registry.to_owned(),
            request,
        };
        let durations = self.durations.get_or_create(&labels);
        durations.observe(took.as_secs_f64());
    }
}

/// The result of a request that failed, as a label.
fn label_of(error: &RegistryError) -> &'static str {
    match error {
        RegistryError::Conflict { .. } => "conflict",
        RegistryError::Unreachable { .. } => "unreachable",
        RegistryError::Unknown { .. } => "unknown",
        RegistryError::Full { .. } => "full",
        RegistryError::Invalid { .. } => "invalid",
        RegistryError::Forbidden { .. } => "forbidden",
    }
}

/// A registry whose requests are measured. The watch of its records is not: it never ends.
#[derive(Debug)]
pub(super) struct MeasuredRegistry<B = Registry> {
    backend: B,
    /// The name of the IPRegistry.
    name: String,
    metrics: RequestMetrics,
}

impl<B: Backend> MeasuredRegistry<B> {
    pub(super) fn new(backend: B, name: &str, metrics: RequestMetrics) -> Self {
        metrics.create(name);
        Self {
            backend,
            name: name.to_owned(),
            metrics,
        }
    }

    /// Records a request that was sent at `start`, and returns its result.
    fn answered<T>(
        &self,
        request: &'static str,
        start: Instant,
        result: Result<T, RegistryError>,
    ) -> Result<T, RegistryError> {
        let label = match &result {
            Ok(_) => SUCCESS,
            Err(error) => label_of(error),
        };
        self.metrics
            .record(&self.name, request, label, start.elapsed());
        result
    }
}

impl<B: Backend> Backend for MeasuredRegistry<B> {
    fn source(
        &self,
        handler: Arc<dyn EventHandler<Entry>>,
        synced: ReadinessGate,
    ) -> Result<RecordSource, RegistryError> {
        self.backend.source(handler, synced)
    }

    async fn read(&self, key: &str) -> Result<Option<Entry>, RegistryError> {
        let start = Instant::now();
        let result = self.backend.read(key).await;
        self.answered("read", start, result)
    }

    async fn create(&self, key: &str, record: &Record) -> Result<Created, RegistryError> {
        let start = Instant::now();
        let result = self.backend.create(key, record).await;
        if let Ok(Created::Theirs(_)) = &result {
            self.metrics
                .record(&self.name, CREATE, EXISTS, start.elapsed());
            return result;
        }
        self.answered(CREATE, start, result)
    }

    async fn update(&self, held: &Entry, record: &Record) -> Result<Entry, RegistryError> {
        let start = Instant::now();
        let result = self.backend.update(held, record).await;
        self.answered("update", start, result)
    }

    async fn delete(&self, held: &Entry) -> Result<(), RegistryError> {
        let start = Instant::now();
        let result = self.backend.delete(held).await;
        self.answered("delete", start, result)
    }

    async fn check(&self) -> Result<(), RegistryError> {
        let start = Instant::now();
        let result = self.backend.check().await;
        self.answered("read", start, result)
    }

    fn settle_time(&self) -> Duration {
        self.backend.settle_time()
    }
}

#[cfg(test)]
mod tests {
    use capi_ipam_registry::{ClusterRecord, Problem, Version};

    use super::*;

    /// A registry in which nothing can be written, and every name exists.
    struct ReadOnly;

    fn entry() -> Entry {
        Entry {
            key: "cluster.west".to_owned(),
            version: Version::Bucket {
                incarnation: None,
                revision: 1,
            },
            value: Err(Problem::Deleted),
        }
    }

    impl Backend for ReadOnly {
        fn source(
            &self,
            _: Arc<dyn EventHandler<Entry>>,
            _: ReadinessGate,
        ) -> Result<RecordSource, RegistryError> {
            Err(RegistryError::Conflict {
                registry: String::new(),
                key: String::new(),
            })
        }

        async fn read(&self, _: &str) -> Result<Option<Entry>, RegistryError> {
            Ok(None)
        }

        async fn create(&self, _: &str, _: &Record) -> Result<Created, RegistryError> {
            Ok(Created::Theirs(entry()))
        }

        async fn update(&self, held: &Entry, _: &Record) -> Result<Entry, RegistryError> {
            Err(RegistryError::Conflict {
                registry: "test".to_owned(),
                key: held.key.clone(),
            })
        }

        async fn delete(&self, _: &Entry) -> Result<(), RegistryError> {
            Err(RegistryError::Unreachable {
                registry: "test".to_owned(),
                source: "no answer".into(),
            })
        }

        fn settle_time(&self) -> Duration {
            Duration::ZERO
        }
    }

    #[tokio::test]
    async fn requests_are_counted_by_their_result() {
        let metrics = Metrics::default();
        let requests = RequestMetrics::register(&metrics);
        let registry = MeasuredRegistry::new(ReadOnly, "site", requests);
        let record = Record::Cluster(ClusterRecord::default());
        drop(registry.read("cluster.west").await);
        drop(registry.create("cluster.west", &record).await);
        drop(registry.update(&entry(), &record).await);
        drop(registry.delete(&entry()).await);
        let text = metrics.encode().unwrap();
        for (request, result) in [
            ("read", "success"),
            ("create", "exists"),
            ("update", "conflict"),
            ("delete", "unreachable"),
        ] {
            let labels = format!("registry=\"site\",request=\"{request}\"");
            let counted =
                format!("capi_ipam_registry_requests_total{{{labels},result=\"{result}\"}} 1\n");
            assert!(text.contains(&counted), "{counted} in\n{text}");
            let measured = format!("capi_ipam_registry_request_seconds_count{{{labels}}} 1\n");
            assert!(text.contains(&measured), "{measured} in\n{text}");
        }
        let never = "request=\"create\",result=\"conflict\"} 0\n";
        assert!(text.contains(never), "counters exist before: {text}");
    }
}
