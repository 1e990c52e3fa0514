//! Probes: `/healthz` (the process is alive), `/readyz` (it can answer requests), `/readyz/caches` (it has listed the
//! kinds that it watches). They also show how much work of low priority is left.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::listener::bind;
use crate::metrics::{CACHE_SYNCED, Description, Metrics, WATCH_RESTARTS};
use crate::watch::RestoreDetector;

/// Why probes cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum HealthError {
    /// The address cannot be bound: it is in use, or not an address of this machine.
    #[error("cannot serve probes at {address} (--health-probe-bind-address)")]
    Bind {
        /// The value of the flag.
        address: String,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
}

/// Two components of one process have the same name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is registered twice in this process; give each component its own name")]
pub struct NameTaken(pub String);

/// How long the API server refuses a kind (403, 404) before the process is not ready. It also does so for a moment
/// while it starts, and while a CustomResourceDefinition is replaced.
const REFUSAL_GRACE: Duration = Duration::from_secs(10);

/// Time after which a refusal that is not repeated is over. A refused watch is retried every 20 s at the latest.
const REFUSAL_EXPIRY: Duration = Duration::from_secs(30);

/// The readiness of the process, by component. Clones share it.
///
/// A *requirement* ([`Health::require`]) is needed to answer requests, for example a certificate: the process is not
/// ready without it. A *cache* ([`Health::register`], [`Health::register_watch`]) is a kind that has to be listed
/// before the process acts on it. A process without its caches is ready: listing them may need its own webhooks.
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
    components: Arc<Mutex<BTreeMap<String, Component>>>,
    process: Arc<ProcessState>,
}

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
    refusals: Mutex<BTreeMap<String, Refusal>>,
    /// Why the process has to end.
    fatal: watch::Sender<Option<String>>,
    restores: RestoreDetector,
    watch_restarts: Family<RestartLabels, Counter>,
}

/// A kind that the API server refuses.
#[derive(Debug)]
struct Refusal {
    reason: String,
    first: Instant,
    last: Instant,
}

impl Refusal {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) >= REFUSAL_EXPIRY
    }

    fn duration(&self) -> Duration {
        self.last.saturating_duration_since(self.first)
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

    /// Adds a cache for a watch of a kind. If another controller watches the kind too, the name gets a number:
    /// `Node (2)`.
    pub fn register_watch(&self, kind: impl AsRef<str>) -> ReadinessGate {
        let kind = kind.as_ref();
        let mut components = self.components.lock();
        let numbered = (2_u64..).map(|number| format!("{kind} ({number})"));
        let mut names = std::iter::once(kind.to_owned()).chain(numbered);
        let name = names.find(|name| !components.contains_key(name)).unwrap_or_default();
        self.insert(&mut components, name, false)
    }

    /// Adds a requirement with a unique name: the process is not ready without it.
    ///
    /// # Errors
    /// If a component has this name already. That component stays registered.
    pub fn require(&self, name: impl Into<String>) -> Result<ReadinessGate, NameTaken> {
        self.add(name.into(), true)
    }

    /// The health of the same process with an empty set of components, for caches that no probe waits for. Refusals and
    /// fatal errors are shared.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self { components: Arc::default(), process: Arc::clone(&self.process) }
    }

    fn add(&self, name: String, is_required: bool) -> Result<ReadinessGate, NameTaken> {
        let mut components = self.components.lock();
        if components.contains_key(&name) {
            return Err(NameTaken(name));
        }
        Ok(self.insert(&mut components, name, is_required))
    }

    fn insert(&self, components: &mut BTreeMap<String, Component>, name: String, is_required: bool) -> ReadinessGate {
        let (ready, is_ready) = watch::channel(false);
        components.insert(name.clone(), Component { ready, problem: None, is_required, low_priority: None });
        ReadinessGate { name, health: self.clone(), is_ready }
    }

    /// The requirements and caches that are not ready, one per line, with the problem of each.
    pub fn pending(&self) -> Vec<String> {
        self.pending_where(|_| true)
    }

    /// Why the process is not ready, one reason per line: requirements that are not ready, and kinds that the API
    /// server keeps refusing (403, 404). Empty if the process is ready.
    pub fn problems(&self) -> Vec<String> {
        let mut all = self.pending_where(|component| component.is_required);
        let now = Instant::now();
        let refusals = self.process.refusals.lock();
        let lasting =
            refusals.iter().filter(|(_, refusal)| !refusal.is_over(now) && refusal.duration() >= REFUSAL_GRACE);
        all.extend(lasting.map(|(name, refusal)| format!("{name}: {}", refusal.reason)));
        all
    }

    fn pending_where(&self, is_relevant: impl Fn(&Component) -> bool) -> Vec<String> {
        let components = self.components.lock();
        let pending = components.iter().filter(|(_, component)| is_relevant(component) && !*component.ready.borrow());
        pending
            .map(|(name, component)| {
                let default = if component.is_required { "not ready yet" } else { "being listed" };
                format!("{name}: {}", component.problem.as_deref().unwrap_or(default))
            })
            .collect()
    }

    /// The work of low priority that is not done, one line per kind. The process is ready all the same.
    pub fn in_progress(&self) -> Vec<String> {
        let components = self.components.lock();
        let left = components.iter().filter_map(|(name, component)| Some((name, component.low_priority?)));
        left.map(|(name, count)| format!("{name}: {count} objects of low priority are left")).collect()
    }

    /// Detects restores of etcd, for all watches of the process.
    pub fn restores(&self) -> &RestoreDetector {
        &self.process.restores
    }

    /// Waits for a fatal error, and returns it. The process has to end then.
    pub(crate) async fn fatal_error(&self) -> String {
        let mut fatal = self.process.fatal.subscribe();
        match fatal.wait_for(Option::is_some).await.map(|error| error.clone()) {
            Ok(Some(error)) => error,
            _ => std::future::pending().await,
        }
    }

    /// The caches, and whether each is listed.
    fn caches(&self) -> Vec<(String, bool)> {
        let components = self.components.lock();
        let caches = components.iter().filter(|(_, component)| !component.is_required);
        caches.map(|(name, component)| (name.clone(), *component.ready.borrow())).collect()
    }
}

impl ReadinessGate {
    /// Reports that the component is ready: a cache is listed, or a requirement is met. It stays ready from then on.
    pub fn ready(&self) {
        self.accepted();
        if let Some(component) = self.health.components.lock().get_mut(&self.name) {
            component.problem = None;
            component.ready.send_replace(true);
        }
    }

    /// Detects restores of etcd, for all watches of the process.
    pub(crate) fn restores(&self) -> &RestoreDetector {
        self.health.restores()
    }

    /// Counts a failure of the watch, after which it is opened again.
    pub(crate) fn count_restart(&self, reason: &'static str) {
        let labels = RestartLabels { kind: self.name.clone(), reason };
        self.health.process.watch_restarts.get_or_create(&labels).inc();
    }

    /// Reports a problem. Probes show it as long as the component is not ready.
    pub fn failing(&self, problem: &str) {
        if let Some(component) = self.health.components.lock().get_mut(&self.name) {
            component.problem = Some(problem.to_owned());
        }
    }

    /// Reports how many objects of low priority are left to be reconciled; `None` if there are none.
    pub(crate) fn set_progress(&self, left: Option<usize>) {
        if let Some(component) = self.health.components.lock().get_mut(&self.name) {
            component.low_priority = left;
        }
    }

    /// Reports that the API server refuses the kind (403, 404). Returns how long it has done so without interruption.
    pub fn refused(&self, reason: &str) -> Duration {
        self.failing(reason);
        let now = Instant::now();
        let mut refusals = self.health.process.refusals.lock();
        let first = refusals.get(&self.name).filter(|refusal| !refusal.is_over(now)).map_or(now, |known| known.first);
        let refusal = Refusal { reason: reason.to_owned(), first, last: now };
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
        self.health.process.fatal.send_replace(Some(format!("{}: {error}", self.name)));
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

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CacheLabels {
    cache: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RestartLabels {
    kind: String,
    reason: &'static str,
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
            gauge.encode(encoder.encode_family(&CacheLabels { cache })?)?;
        }
        Ok(())
    }
}

/// A server of probes that listens but answers no requests before [`ProbeServer::serve`].
#[derive(Debug)]
pub struct ProbeServer {
    listener: TcpListener,
    router: Router,
}

/// Listens for probes at `address`; `:8081` means all addresses. `None` if the address is `0` or empty.
pub async fn listen(address: &str, health: Health) -> Result<Option<ProbeServer>, HealthError> {
    if address.is_empty() || address == "0" {
        return Ok(None);
    }
    let failed = |source| HealthError::Bind { address: address.to_owned(), source };
    let listener = bind(address).await.map_err(failed)?;
    let router = Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(|State(health): State<Health>| async move { response(&health, &health.problems()) }))
        .route(
            "/readyz/caches",
            get(|State(health): State<Health>| async move { response(&health, &health.pending()) }),
        );
    Ok(Some(ProbeServer { listener, router: router.with_state(health) }))
}

impl ProbeServer {
    /// The address on which the server listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// Answers probes until the token is cancelled.
    pub async fn serve(self, stop: CancellationToken) -> std::io::Result<()> {
        axum::serve(self.listener, self.router).with_graceful_shutdown(stop.cancelled_owned()).await
    }
}

fn response(health: &Health, problems: &[String]) -> (StatusCode, String) {
    let list = |title: &str, lines: &[String]| {
        let mut text = title.to_owned();
        for line in lines {
            let _ = write!(text, "\n- {line}");
        }
        text
    };
    if !problems.is_empty() {
        return (StatusCode::SERVICE_UNAVAILABLE, list("not ready:", problems) + "\n");
    }
    let in_progress = health.in_progress();
    let title = if in_progress.is_empty() { "ok" } else { "ok; in progress:" };
    (StatusCode::OK, list(title, &in_progress))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn cache_is_pending_until_it_is_listed() {
        let health = Health::default();
        assert!(health.pending().is_empty());
        let claims = health.register("claims").unwrap();
        claims.failing("forbidden");
        assert_eq!(health.pending(), ["claims: forbidden"]);
        claims.ready();
        claims.wait().await;
        assert!(health.pending().is_empty());
    }

    #[test]
    fn second_component_with_a_name_does_not_displace_the_first() {
        let health = Health::default();
        let first = health.register("claims").unwrap();
        assert_eq!(health.register("claims").unwrap_err(), NameTaken("claims".to_owned()));
        assert!(health.require("claims").is_err());
        let second = health.register_watch("claims");
        second.ready();
        assert_eq!(health.pending(), ["claims: being listed"]);
        first.ready();
        assert!(first.is_ready() && second.is_ready() && health.pending().is_empty());
        assert!(health.register("claims (2)").is_err());
        assert!(!health.detached().register("claims").unwrap().is_ready(), "other processes have other components");
    }

    #[test]
    fn process_is_ready_without_its_caches() {
        let health = Health::default();
        let (_claims, certificate) = (health.register("claims").unwrap(), health.require("certificate").unwrap());
        assert_eq!(health.problems(), ["certificate: not ready yet"]);
        assert_eq!(health.pending().len(), 2);
        certificate.ready();
        assert!(health.problems().is_empty());
        assert_eq!(health.pending(), ["claims: being listed"]);
    }

    #[test]
    fn ready_process_shows_what_is_in_progress() {
        let health = Health::default();
        let claims = health.register("claims").unwrap();
        assert_eq!(response(&health, &health.pending()).1, "not ready:\n- claims: being listed\n");
        claims.ready();
        assert_eq!(response(&health, &health.pending()), (StatusCode::OK, "ok".to_owned()));
        claims.set_progress(Some(7));
        let text = "ok; in progress:\n- claims: 7 objects of low priority are left";
        assert_eq!(response(&health, &health.pending()), (StatusCode::OK, text.to_owned()));
    }

    #[test]
    fn lasting_refusal_makes_the_process_not_ready() {
        let health = Health::default();
        let detached = health.detached().register("claims").unwrap();
        let ago = |seconds| Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap();
        assert_eq!(detached.refused("forbidden"), Duration::ZERO);
        assert!(health.problems().is_empty(), "it has not lasted long enough");
        health.process.refusals.lock().get_mut("claims").unwrap().first = ago(12);
        assert!(detached.refused("forbidden") >= Duration::from_secs(12));
        assert_eq!(health.problems(), ["claims: forbidden"]);
        detached.accepted();
        assert!(health.problems().is_empty());

        detached.refused("forbidden");
        let set = |first, last| {
            let mut refusals = health.process.refusals.lock();
            let refusal = refusals.get_mut("claims").unwrap();
            (refusal.first, refusal.last) = (ago(first), ago(last));
        };
        set(60, 31);
        assert!(health.problems().is_empty(), "the refusal was not repeated");
        assert_eq!(detached.refused("forbidden"), Duration::ZERO);
        assert!(health.pending().is_empty(), "it is not registered here");
    }

    #[tokio::test]
    async fn fatal_error_is_returned() {
        let health = Health::default();
        health.detached().register("claims").unwrap().fatal("no longer served");
        assert_eq!(health.fatal_error().await, "claims: no longer served");
    }

    #[test]
    fn metric_shows_listed_caches() {
        let (health, metrics) = (Health::default(), crate::metrics::Metrics::default());
        health.register_metrics(&metrics);
        let (claims, _pools, _gate) =
            (health.register("claims").unwrap(), health.register("pools").unwrap(), health.require("gate").unwrap());
        claims.ready();
        let text = metrics.encode().unwrap();
        assert!(text.contains("cache_synced{cache=\"claims\"} 1\ncache_synced{cache=\"pools\"} 0\n"), "{text}");
        claims.count_restart("expired");
        let text = metrics.encode().unwrap();
        assert!(text.contains("watch_restarts_total{kind=\"claims\",reason=\"expired\"} 1\n"), "{text}");
    }
}
