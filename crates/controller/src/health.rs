//! Probes: `/healthz` (the process is alive), `/readyz` (it can answer requests), `/readyz/caches`
//! (it has listed the kinds that it watches). They also show how much work of low priority is left.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::sync::watch;

use crate::metrics::{CACHE_SYNCED, Description, Labels, Metrics, WATCH_RESTARTS};
use crate::restores::RestoreDetector;

/// Two components of one process have the same name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is registered twice in this process; give each component its own name")]
pub struct NameTaken(pub String);

/// How long the API server refuses a kind (403, 404) that was listed before the process is not
/// ready. It also does so for a moment while it starts, and while a CustomResourceDefinition is
/// replaced.
const REFUSAL_GRACE: Duration = Duration::from_secs(10);

/// Time after which a refusal that is not repeated is over. A refused watch is retried every 20 s
/// at the latest.
const REFUSAL_EXPIRY: Duration = Duration::from_secs(30);

/// The readiness of the process, by component. Clones share it.
///
/// A *requirement* ([`Health::require`]) is needed to answer requests, for example a certificate:
/// the process is not ready without it. A *cache* ([`Health::register`],
/// [`Health::register_watch`]) is a kind that has to be listed before the process acts on it. A
/// process without its caches is ready: listing them may need its own webhooks. It is not ready if
/// it cannot list them: if the API server does not serve a kind ([`Health::await_kind`]), or
/// refuses it.
///
/// ```
/// use capi_ipam_controller::health::{Health, NameTaken};
///
/// let health = Health::default();
/// let inventory = health.register("inventory")?;
/// assert_eq!(health.register("inventory").unwrap_err(), NameTaken("inventory".to_owned()));
/// // Several controllers can watch the same kind.
/// let (nodes, nodes_again) = (health.register_watch("Node"), health.register_watch("Node"));
/// inventory.ready();
/// nodes.ready();
/// assert_eq!(health.pending(), ["Node (2): being listed"]);
/// # drop(nodes_again);
/// # Ok::<(), NameTaken>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Health {
    components: Components,
    process: Arc<ProcessState>,
    is_optional: bool,
}

type Components = Arc<Mutex<BTreeMap<String, Component>>>;

#[derive(Debug)]
struct Component {
    ready: watch::Sender<bool>,
    problem: Option<String>,
    is_required: bool,
    /// Number of objects of low priority that are left to be reconciled.
    low_priority: Option<usize>,
}

/// Problems of the whole process.
#[derive(Debug, Default)]
struct ProcessState {
    /// Kinds that the process waits for.
    awaited: Components,
    refusals: Mutex<BTreeMap<String, Refusal>>,
    /// Why the process has to end.
    fatal: watch::Sender<Option<String>>,
    restores: RestoreDetector,
    watch_restarts: Family<Labels<2>, Counter>,
}

/// A kind that the API server refuses.
#[derive(Debug)]
struct Refusal {
    reason: String,
    first: Instant,
    last: Instant,
    /// How long the refusal has to last before the process is not ready.
    grace: Duration,
}

impl Refusal {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) >= REFUSAL_EXPIRY
    }

    fn duration(&self) -> Duration {
        self.last.saturating_duration_since(self.first)
    }

    /// Whether the refusal has lasted long enough to count, and is not over.
    fn is_lasting(&self, now: Instant) -> bool {
        !self.is_over(now) && self.duration() >= self.grace
    }
}

/// Reports to [`Health`] that the process waits for a kind, until it is dropped. Created by
/// [`Health::await_kind`].
#[derive(Debug)]
pub struct AwaitedKind(ReadinessGate);

impl AwaitedKind {
    /// Reports why the process waits. `is_refused` is whether the process cannot work: the API
    /// server does not serve the kind, or a permission is missing. Otherwise that is not known.
    pub fn waits(&self, reason: &str, is_refused: bool) {
        if is_refused {
            self.0.refused(reason);
        } else {
            self.0.accepted();
            self.0.failing(reason);
        }
    }
}

impl Drop for AwaitedKind {
    fn drop(&mut self) {
        self.0.accepted();
        self.0.health.components.lock().remove(&self.0.name);
    }
}

/// Reports the state of one component to [`Health`]. Clones share it.
#[derive(Clone, Debug)]
pub struct ReadinessGate {
    name: String,
    health: Health,
    is_ready: watch::Receiver<bool>,
}

impl Health {
    /// Adds a cache with a unique name.
    ///
    /// # Errors
    /// If a component has this name already. That component stays registered.
    pub fn register(&self, name: impl Into<String>) -> Result<ReadinessGate, NameTaken> {
        self.add(name.into(), false)
    }

    /// Adds a cache for a watch of a kind. If another controller watches the kind too, the name
    /// gets a number: `Node (2)`.
    pub fn register_watch(&self, kind: impl AsRef<str>) -> ReadinessGate {
        let kind = kind.as_ref();
        let mut components = self.components.lock();
        let numbered = (2_u64..).map(|number| format!("{kind} ({number})"));
        let mut names = std::iter::once(kind.to_owned()).chain(numbered);
        let name = names
            .find(|name| !components.contains_key(name))
            .unwrap_or_default();
        self.insert(&mut components, name, false)
    }

    /// Adds a requirement with a unique name: the process is not ready without it.
    ///
    /// # Errors
    /// If a component has this name already. That component stays registered.
    pub fn require(&self, name: impl Into<String>) -> Result<ReadinessGate, NameTaken> {
        self.add(name.into(), true)
    }

    /// The health of the same process with an empty set of components, for caches that no probe
    /// waits for. Refusals and fatal errors are shared.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self {
            components: Arc::default(),
            process: Arc::clone(&self.process),
            is_optional: self.is_optional,
        }
    }

    /// The health of the same process with an empty set of components, for a feature that the
    /// process works without: its caches are in no probe, and the process is ready and goes on also
    /// if the API server refuses their kinds.
    #[must_use]
    pub fn optional(&self) -> Self {
        Self {
            is_optional: true,
            ..self.detached()
        }
    }

    fn add(&self, name: String, is_required: bool) -> Result<ReadinessGate, NameTaken> {
        let mut components = self.components.lock();
        if components.contains_key(&name) {
            return Err(NameTaken(name));
        }
        Ok(self.insert(&mut components, name, is_required))
    }

    fn insert(
        &self,
        components: &mut BTreeMap<String, Component>,
        name: String,
        is_required: bool,
    ) -> ReadinessGate {
        let (ready, is_ready) = watch::channel(false);
        let component = Component {
            ready,
            problem: None,
            is_required,
            low_priority: None,
        };
        components.insert(name.clone(), component);
        ReadinessGate {
            name,
            health: self.clone(),
            is_ready,
        }
    }

    /// Reports that the process waits for a kind before it can watch it. Its cache is not synced
    /// until the value is dropped, and the process is not ready while the API server refuses the
    /// kind.
    pub fn await_kind(&self, kind: impl AsRef<str>) -> AwaitedKind {
        let waiting = Self {
            components: Arc::clone(&self.process.awaited),
            process: Arc::clone(&self.process),
            is_optional: self.is_optional,
        };
        let awaited = AwaitedKind(waiting.register_watch(kind));
        awaited.waits("the API server is asked whether it serves this kind", false);
        awaited
    }

    /// The requirements and caches that are not ready, one per line, with the problem of each.
    pub fn pending(&self) -> Vec<String> {
        self.not_ready(|_| true)
    }

    /// Why the process is not ready, one reason per line: requirements that are not ready, and
    /// kinds that the API server does not serve or refuses (403, 404). Empty if the process is
    /// ready.
    pub fn problems(&self) -> Vec<String> {
        self.not_ready(|component| component.is_required)
    }

    /// The kinds that the API server keeps refusing, with the reason.
    fn refused(&self, now: Instant) -> Vec<(String, String)> {
        let refusals = self.process.refusals.lock();
        let lasting = refusals
            .iter()
            .filter(|(_, refusal)| refusal.is_lasting(now));
        lasting
            .map(|(name, refusal)| (name.clone(), refusal.reason.clone()))
            .collect()
    }

    /// The components that are not ready, and the kinds that the API server refuses, one per line,
    /// with the problem of each.
    fn not_ready(&self, is_relevant: impl Fn(&Component) -> bool) -> Vec<String> {
        let mut pending = self.collect(|component| {
            let default = if component.is_required {
                "not ready yet"
            } else {
                "being listed"
            };
            let problem = component.problem.as_deref().unwrap_or(default);
            let is_ready = *component.ready.borrow();
            (!is_ready && is_relevant(component)).then(|| problem.to_owned())
        });
        pending.extend(self.refused(Instant::now()));
        let lines = pending.into_iter();
        lines
            .map(|(name, problem)| format!("{name}: {problem}"))
            .collect()
    }

    /// The work of low priority that is not done, one line per kind. The process is ready all the
    /// same.
    pub fn in_progress(&self) -> Vec<String> {
        let components = self.components.lock();
        let left = components
            .iter()
            .filter_map(|(name, component)| Some((name, component.low_priority?)));
        left.map(|(name, count)| format!("{name}: {count} objects of low priority are left"))
            .collect()
    }

    /// Detects restores of etcd, for all watches of the process.
    pub fn restores(&self) -> &RestoreDetector {
        &self.process.restores
    }

    /// Waits for a fatal error, and returns it. The process has to end then.
    pub(crate) async fn fatal_error(&self) -> String {
        let mut fatal = self.process.fatal.subscribe();
        let error = fatal.wait_for(Option::is_some).await;
        match error.ok().and_then(|error| error.clone()) {
            Some(error) => error,
            None => std::future::pending().await,
        }
    }

    /// The caches, and whether each is synced: listed, and not refused since. A kind that the
    /// process waits for is not.
    fn caches(&self) -> BTreeMap<String, bool> {
        let mut caches =
            self.collect(|component| (!component.is_required).then(|| *component.ready.borrow()));
        let refused = self.refused(Instant::now()).into_iter();
        caches.extend(refused.map(|(name, _)| (name, false)));
        caches
    }

    /// What a function returns for the components, and for the kinds that the process waits for.
    fn collect<T>(&self, value: impl Fn(&Component) -> Option<T>) -> BTreeMap<String, T> {
        let mut values = BTreeMap::new();
        for components in [&self.components, &self.process.awaited] {
            for (name, component) in components.lock().iter() {
                values.extend(value(component).map(|value| (name.clone(), value)));
            }
        }
        values
    }
}

impl ReadinessGate {
    /// Reports that the component is ready: a cache is listed, or a requirement is met.
    pub fn ready(&self) {
        self.accepted();
        self.update(|component| {
            component.problem = None;
            component.ready.send_replace(true);
        });
    }

    fn update(&self, change: impl FnOnce(&mut Component)) {
        if let Some(component) = self.health.components.lock().get_mut(&self.name) {
            change(component);
        }
    }

    /// Detects restores of etcd, for all watches of the process.
    pub(crate) fn restores(&self) -> &RestoreDetector {
        self.health.restores()
    }

    /// Reports that the component is not ready any longer, and why.
    pub fn not_ready(&self, problem: &str) {
        self.update(|component| {
            component.problem = Some(problem.to_owned());
            component.ready.send_replace(false);
        });
    }

    /// Counts a failure of the watch, after which it is opened again.
    pub(crate) fn count_restart(&self, reason: &'static str) {
        let labels = [("kind", self.name.clone()), ("reason", reason.to_owned())];
        let restarts = &self.health.process.watch_restarts;
        restarts.get_or_create(&labels).inc();
    }

    /// Reports a problem. Probes show it as long as the component is not ready.
    pub fn failing(&self, problem: &str) {
        self.update(|component| component.problem = Some(problem.to_owned()));
    }

    /// Reports how many objects of low priority are left to be reconciled; `None` if there are
    /// none.
    pub(crate) fn set_progress(&self, left: Option<usize>) {
        self.update(|component| component.low_priority = left);
    }

    /// Reports that the API server refuses the kind (403, 404). Returns how long it has done so
    /// without interruption; zero for an [optional](Health::optional) kind.
    pub fn refused(&self, reason: &str) -> Duration {
        self.failing(reason);
        if self.health.is_optional {
            return Duration::ZERO;
        }
        let now = Instant::now();
        let mut refusals = self.health.process.refusals.lock();
        let first = refusals
            .get(&self.name)
            .filter(|refusal| !refusal.is_over(now))
            .map_or(now, |known| known.first);
        // What was never listed can be missing for good: the process says so at once.
        let grace = if self.is_ready() {
            REFUSAL_GRACE
        } else {
            Duration::ZERO
        };
        let refusal = Refusal {
            reason: reason.to_owned(),
            first,
            last: now,
            grace,
        };
        let duration = refusal.duration();
        refusals.insert(self.name.clone(), refusal);
        duration
    }

    /// Reports that the API server does not refuse the kind.
    pub fn accepted(&self) {
        self.health.process.refusals.lock().remove(&self.name);
    }

    /// Reports an error after which the component cannot recover, so that the process has to end.
    pub fn fatal(&self, error: &str) {
        self.health
            .process
            .fatal
            .send_replace(Some(format!("{}: {error}", self.name)));
    }

    /// Whether the component has become ready.
    pub fn is_ready(&self) -> bool {
        *self.is_ready.borrow()
    }

    /// Waits until the component is ready.
    pub async fn wait(&self) {
        let mut is_ready = self.is_ready.clone();
        if is_ready.wait_for(|ready| *ready).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Health {
    /// Registers the metrics of the watches of the process.
    pub(crate) fn register_metrics(&self, metrics: &Metrics) {
        metrics.register_collector(self.clone());
        metrics.add(&WATCH_RESTARTS, self.process.watch_restarts.clone());
    }
}

impl Collector for Health {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Description { name, help, .. } = CACHE_SYNCED;
        let mut encoder = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (cache, is_listed) in self.caches() {
            let gauge = ConstGauge::new(i64::from(is_listed));
            gauge.encode(encoder.encode_family(&[("cache", cache)])?)?;
        }
        Ok(())
    }
}

/// The routes of the probes.
pub(crate) fn routes(health: Health) -> Router {
    let ready = async |State(health): State<Health>| response(&health, &health.problems());
    let synced = async |State(health): State<Health>| response(&health, &health.pending());
    Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .route("/readyz/caches", get(synced))
        .with_state(health)
}

fn response(health: &Health, problems: &[String]) -> (StatusCode, String) {
    let list = |title: &str, lines: &[String]| [&[title.to_owned()], lines].concat().join("\n- ");
    if !problems.is_empty() {
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            list("not ready:", problems) + "\n",
        );
    }
    let in_progress = health.in_progress();
    let title = if in_progress.is_empty() {
        "ok"
    } else {
        "ok; in progress:"
    };
    (StatusCode::OK, list(title, &in_progress))
}

#[cfg(test)]
mod tests;
