//! A registry whose requests are measured.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use capi_ipam_controller::metrics::{Description, Metrics};
use capi_ipam_registry::{Created, Entry, Key, Record, Registry, RegistryError};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

pub(super) const REQUESTS: Description = Description {
    name: "capi_ipam_registry_requests_total",
    kind: "counter",
    labels: &[
        "registry",
        "request: read, create, update",
        "result: success, exists, conflict, unreachable, unknown, full, invalid, forbidden",
    ],
    help: "Requests to a registry; unknown: a write without an answer may be applied; without those of the watch",
};

pub(super) const REQUEST_SECONDS: Description = Description {
    name: "capi_ipam_registry_request_seconds",
    kind: "histogram",
    labels: &["registry", "request: read, create, update"],
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
const REQUEST_LABELS: [&str; 3] = ["read", CREATE, "update"];

/// Upper bounds of the durations of requests, in seconds. A write takes a few milliseconds, and
/// ends within the deadlines of a request and a few reads.
const BUCKETS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.0, 10.0, 30.0];

/// A request that takes longer is reported.
const SLOW: Duration = Duration::from_secs(2);

/// The labels of a metric, with their values.
type Labels = Vec<(&'static str, String)>;

/// The metrics of the requests to all registries. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct RequestMetrics {
    requests: Family<Labels, Counter>,
    durations: Family<Labels, Histogram>,
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
}

/// The result of a failed request, as a label.
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
pub(super) struct MeasuredRegistry {
    /// The registry itself.
    pub(super) registry: Registry,
    /// The name of the IPRegistry.
    name: String,
    metrics: RequestMetrics,
    is_slow: AtomicBool,
}

impl MeasuredRegistry {
    /// Creates all counters: a rate does not see an increase from nothing to one.
    pub(super) fn new(registry: Registry, name: &str, metrics: RequestMetrics) -> Self {
        let measured = Self {
            registry,
            name: name.to_owned(),
            metrics,
            is_slow: AtomicBool::new(false),
        };
        for request in REQUEST_LABELS {
            for result in RESULTS {
                // Only a creation finds that the record exists.
                if request == CREATE || result != EXISTS {
                    drop(measured.counter(request, result));
                }
            }
        }
        measured
    }

    fn labels(&self, request: &str) -> Labels {
        vec![
            ("registry", self.name.clone()),
            ("request", request.to_owned()),
        ]
    }

    fn counter(&self, request: &str, result: &str) -> Counter {
        let mut labels = self.labels(request);
        labels.push(("result", result.to_owned()));
        self.metrics.requests.get_or_create_owned(&labels)
    }

    /// Waits for the answer to a request, and records it.
    async fn measure<T>(
        &self,
        request: &str,
        exists: fn(&T) -> bool,
        answer: impl Future<Output = Result<T, RegistryError>>,
    ) -> Result<T, RegistryError> {
        let start = Instant::now();
        let result = answer.await;
        let label = match &result {
            Ok(done) if exists(done) => EXISTS,
            Ok(_) => SUCCESS,
            Err(error) => label_of(error),
        };
        self.counter(request, label).inc();
        let labels = self.labels(request);
        let durations = self.metrics.durations.get_or_create(&labels);
        let elapsed = start.elapsed();
        durations.observe(elapsed.as_secs_f64());
        self.is_slow.store(elapsed >= SLOW, Ordering::Relaxed);
        result
    }

    /// Whether the last request took long.
    pub(super) fn is_slow(&self) -> bool {
        self.is_slow.load(Ordering::Relaxed)
    }

    pub(super) async fn read(&self, key: &Key) -> Result<Option<Entry>, RegistryError> {
        let key = key.to_string();
        let answer = self.registry.read(&key);
        self.measure("read", |_| false, answer).await
    }

    pub(super) async fn create(
        &self,
        key: &Key,
        record: &Record,
    ) -> Result<Created, RegistryError> {
        let exists = |created: &Created| matches!(created, Created::Theirs(_));
        let key = key.to_string();
        let answer = self.registry.create(&key, record);
        self.measure(CREATE, exists, answer).await
    }

    pub(super) async fn update(
        &self,
        held: &Entry,
        record: &Record,
    ) -> Result<Entry, RegistryError> {
        let answer = self.registry.update(held, record);
        self.measure("update", |_| false, answer).await
    }

    pub(super) async fn check(&self) -> Result<(), RegistryError> {
        self.measure("read", |()| false, self.registry.check())
            .await
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::future::ready;
    use std::sync::Arc;

    use async_trait::async_trait;
    use capi_ipam_controller::watch::EventHandler;
    use capi_ipam_registry::{Backend, ClusterRecord, Problem, RecordChanges, Version};

    use super::*;

    /// A registry in which nothing can be written, and every name exists.
    #[derive(Debug, Default)]
    pub(in super::super) struct ReadOnly {
        /// What reads find.
        pub(in super::super) entries: Vec<Entry>,
        /// The name that cannot be read.
        pub(in super::super) unread: &'static str,
    }

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

    fn unreachable() -> RegistryError {
        RegistryError::Unreachable {
            registry: "test".to_owned(),
            source: "no answer".into(),
        }
    }

    #[async_trait]
    impl Backend for ReadOnly {
        fn watch(&self, _: Arc<dyn EventHandler<Entry>>) -> Result<RecordChanges, RegistryError> {
            Err(RegistryError::Conflict {
                registry: String::new(),
                key: String::new(),
            })
        }

        async fn read(&self, key: &str) -> Result<Option<Entry>, RegistryError> {
            if key == self.unread {
                return Err(unreachable());
            }
            Ok(self.entries.iter().find(|entry| entry.key == key).cloned())
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
            Ok(())
        }

        async fn check(&self) -> Result<(), RegistryError> {
            Err(unreachable())
        }

        fn settle_time(&self) -> Duration {
            Duration::ZERO
        }
    }

    #[tokio::test]
    async fn slow_requests_are_noticed_until_one_is_fast() {
        let requests = RequestMetrics::register(&Metrics::default());
        let registry = MeasuredRegistry::new(Arc::new(ReadOnly::default()), "site", requests);
        let slow = async {
            std::thread::sleep(SLOW);
            Ok(())
        };
        registry.measure("read", |()| false, slow).await.unwrap();
        assert!(registry.is_slow());
        let fast = ready(Ok(()));
        registry.measure("read", |()| false, fast).await.unwrap();
        assert!(!registry.is_slow());
    }

    #[tokio::test]
    async fn requests_are_counted_by_their_result() {
        let metrics = Metrics::default();
        let requests = RequestMetrics::register(&metrics);
        let registry = MeasuredRegistry::new(Arc::new(ReadOnly::default()), "site", requests);
        let record = Record::Cluster(ClusterRecord::default());
        let key = Key::Registry;
        drop(registry.read(&key).await);
        drop(registry.create(&key, &record).await);
        drop(registry.update(&entry(), &record).await);
        drop(registry.check().await);
        let text = metrics.encode().unwrap();
        for (request, result) in [
            ("read", "unreachable"),
            ("create", "exists"),
            ("update", "conflict"),
        ] {
            let labels = format!("registry=\"site\",request=\"{request}\"");
            let counted =
                format!("capi_ipam_registry_requests_total{{{labels},result=\"{result}\"}} 1\n");
            assert!(text.contains(&counted), "{counted} in\n{text}");
            let measured = format!("capi_ipam_registry_request_seconds_count{{{labels}}} ");
            assert!(text.contains(&measured), "{measured} in\n{text}");
        }
        let never = "request=\"create\",result=\"conflict\"} 0\n";
        assert!(text.contains(never), "counters exist before: {text}");
    }
}
