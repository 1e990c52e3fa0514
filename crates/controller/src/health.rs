//! Probes: `/healthz` says whether the process lives, `/readyz` whether it can work, `/readyz/caches` whether what it
//! watches has been listed.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::listener::bind;

/// Why probes cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum HealthError {
    /// The address is in use, or not one of this machine.
    #[error("cannot serve probes at {address} (--health-probe-bind-address)")]
    Bind {
        /// The address as asked for.
        address: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
}

/// For how long the API server has to refuse a kind until the process counts as unable to work. While the API server
/// starts, and while a definition is replaced, it refuses kinds for a moment.
const REFUSAL_GRACE: Duration = Duration::from_secs(10);

/// When a refusal is over that was not repeated. A watch that is refused is tried again every 20 s at the latest.
const REFUSAL_EXPIRY: Duration = Duration::from_secs(30);

/// Whether the process can do its work, part by part. Clones speak of the same process.
///
/// A *gate* ([`Health::require`]) is what the process needs to answer requests, such as a certificate. A *cache*
/// ([`Health::announce`]) is what it has to list before it acts. A process whose caches are not listed is ready all the
/// same: it may need the answers of its own webhooks to list them.
#[derive(Clone, Debug, Default)]
pub struct Health {
    parts: Arc<Mutex<BTreeMap<String, Part>>>,
    outlook: Arc<Outlook>,
}

#[derive(Debug)]
struct Part {
    done: watch::Sender<bool>,
    trouble: Option<String>,
    is_gate: bool,
}

/// What stands in the way of all work.
#[derive(Debug, Default)]
struct Outlook {
    refusals: Mutex<BTreeMap<String, Refusal>>,
    /// Why the process has to end.
    failure: watch::Sender<Option<String>>,
}

#[derive(Debug)]
struct Refusal {
    why: String,
    first: Instant,
    last: Instant,
}

impl Refusal {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.last) >= REFUSAL_EXPIRY
    }

    fn lasted(&self) -> Duration {
        self.last.saturating_duration_since(self.first)
    }
}

/// Tells [`Health`] how one part is doing. Clones speak of the same part.
#[derive(Clone, Debug)]
pub struct ReadinessGate {
    name: String,
    health: Health,
    seen: watch::Receiver<bool>,
}

impl Health {
    /// Adds a cache: something that has to be listed.
    pub fn announce(&self, name: impl Into<String>) -> ReadinessGate {
        self.add(name.into(), false)
    }

    /// Adds a gate: something without which the process is not ready.
    pub fn require(&self, name: impl Into<String>) -> ReadinessGate {
        self.add(name.into(), true)
    }

    /// The health of the same process without its gates and caches, for caches that nothing waits for. What makes the
    /// process unable to work is told to both.
    #[must_use]
    pub fn aside(&self) -> Self {
        Self { parts: Arc::default(), outlook: Arc::clone(&self.outlook) }
    }

    fn add(&self, name: String, is_gate: bool) -> ReadinessGate {
        let (done, seen) = watch::channel(false);
        lock(&self.parts).insert(name.clone(), Part { done, trouble: None, is_gate });
        ReadinessGate { name, health: self.clone(), seen }
    }

    /// Gates and caches that are not done yet, a line each.
    pub fn missing(&self) -> Vec<String> {
        self.not_done(|_| true)
    }

    /// Why the process is not ready, a line each: gates that are not done yet, and kinds that the API server has refused
    /// for a while (403, 404). Empty when it is ready.
    pub fn obstacles(&self) -> Vec<String> {
        let mut all = self.not_done(|part| part.is_gate);
        let now = Instant::now();
        let refusals = lock(&self.outlook.refusals);
        let lasting = refusals.iter().filter(|(_, refusal)| !refusal.is_over(now) && refusal.lasted() >= REFUSAL_GRACE);
        all.extend(lasting.map(|(name, refusal)| format!("{name}: {}", refusal.why)));
        all
    }

    fn not_done(&self, is_wanted: impl Fn(&Part) -> bool) -> Vec<String> {
        let parts = lock(&self.parts);
        let wanted = parts.iter().filter(|(_, part)| is_wanted(part) && !*part.done.borrow());
        wanted
            .map(|(name, part)| {
                let usual = if part.is_gate { "not there yet" } else { "being listed" };
                format!("{name}: {}", part.trouble.as_deref().unwrap_or(usual))
            })
            .collect()
    }

    /// Waits until the process has to end, and returns why.
    pub async fn failure(&self) -> String {
        let mut failure = self.outlook.failure.subscribe();
        match failure.wait_for(Option::is_some).await.map(|why| why.clone()) {
            Ok(Some(why)) => why,
            _ => std::future::pending().await,
        }
    }

    /// Of each cache, whether it has been listed.
    fn caches(&self) -> Vec<(String, bool)> {
        let parts = lock(&self.parts);
        let caches = parts.iter().filter(|(_, part)| !part.is_gate);
        caches.map(|(name, part)| (name.clone(), *part.done.borrow())).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ReadinessGate {
    /// The first listing is complete, or the part works again.
    pub fn done(&self) {
        self.works();
        if let Some(part) = lock(&self.health.parts).get_mut(&self.name) {
            part.trouble = None;
            part.done.send_replace(true);
        }
    }

    /// The part does not work.
    pub fn broken(&self, why: &str) {
        if let Some(part) = lock(&self.health.parts).get_mut(&self.name) {
            part.trouble = Some(why.to_owned());
        }
    }

    /// The API server refuses the kind. Returns for how long it has done so without a break.
    pub fn refused(&self, why: &str) -> Duration {
        self.broken(why);
        let now = Instant::now();
        let mut refusals = lock(&self.health.outlook.refusals);
        let first = refusals.get(&self.name).filter(|refusal| !refusal.is_over(now)).map_or(now, |known| known.first);
        let refusal = Refusal { why: why.to_owned(), first, last: now };
        let lasted = refusal.lasted();
        refusals.insert(self.name.clone(), refusal);
        lasted
    }

    /// The API server does not refuse the kind.
    pub fn works(&self) {
        lock(&self.health.outlook.refusals).remove(&self.name);
    }

    /// The part can never work again in this process, which therefore has to end.
    pub fn failed(&self, why: &str) {
        self.health.outlook.failure.send_replace(Some(format!("{}: {why}", self.name)));
    }

    /// Whether there has been a complete listing.
    pub fn is_done(&self) -> bool {
        *self.seen.borrow()
    }

    /// Waits for the first complete listing; for ever if it never comes.
    pub async fn wait(&self) {
        let mut seen = self.seen.clone();
        if seen.wait_for(|synced| *synced).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CacheLabels {
    cache: String,
}

impl Collector for Health {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let help = "Whether what is watched has been listed (1) or not (0)";
        let mut encoder = encoder.encode_descriptor("cache_synced", help, None, MetricType::Gauge)?;
        for (cache, is_done) in self.caches() {
            let gauge = ConstGauge::new(i64::from(is_done));
            gauge.encode(encoder.encode_family(&CacheLabels { cache })?)?;
        }
        Ok(())
    }
}

/// A server of probes that listens already and has to be driven.
#[derive(Debug)]
pub struct ProbeServer {
    listener: TcpListener,
    router: Router,
}

/// Starts to listen for probes at `address` (`:8081` means any address of this machine). `0` and the empty text mean
/// no probes.
pub async fn listen(address: &str, health: Health) -> Result<Option<ProbeServer>, HealthError> {
    if address.is_empty() || address == "0" {
        return Ok(None);
    }
    let failed = |source| HealthError::Bind { address: address.to_owned(), source };
    let listener = bind(address).await.map_err(failed)?;
    let router = Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(|State(health): State<Health>| async move { answer(&health.obstacles()) }))
        .route("/readyz/caches", get(|State(health): State<Health>| async move { answer(&health.missing()) }));
    Ok(Some(ProbeServer { listener, router: router.with_state(health) }))
}

impl ProbeServer {
    /// Where the server listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// Answers probes until the token is cancelled.
    pub async fn serve(self, stop: CancellationToken) -> std::io::Result<()> {
        axum::serve(self.listener, self.router).with_graceful_shutdown(stop.cancelled_owned()).await
    }
}

fn answer(missing: &[String]) -> (StatusCode, String) {
    if missing.is_empty() {
        return (StatusCode::OK, "ok".to_owned());
    }
    let mut text = String::from("not ready:\n");
    for line in missing {
        let _ = writeln!(text, "- {line}");
    }
    (StatusCode::SERVICE_UNAVAILABLE, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn ready_once_all_is_listed() {
        let health = Health::default();
        assert!(health.missing().is_empty());
        let claims = health.announce("claims");
        claims.broken("forbidden");
        assert_eq!(health.missing(), ["claims: forbidden"]);
        claims.done();
        claims.wait().await;
        assert!(health.missing().is_empty());
    }

    #[test]
    fn unlisted_caches_do_not_make_it_unready() {
        let health = Health::default();
        let (_claims, certificate) = (health.announce("claims"), health.require("certificate"));
        assert_eq!(health.obstacles(), ["certificate: not there yet"]);
        assert_eq!(health.missing().len(), 2);
        certificate.done();
        assert!(health.obstacles().is_empty());
        assert_eq!(health.missing(), ["claims: being listed"]);
    }

    #[test]
    fn lasting_refusal_makes_it_unready_until_it_works() {
        let health = Health::default();
        let aside = health.aside().announce("claims");
        let ago = |seconds| Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap();
        assert_eq!(aside.refused("forbidden"), Duration::ZERO);
        assert!(health.obstacles().is_empty(), "it may be over in a moment");
        lock(&health.outlook.refusals).get_mut("claims").unwrap().first = ago(12);
        assert!(aside.refused("forbidden") >= Duration::from_secs(12));
        assert_eq!(health.obstacles(), ["claims: forbidden"]);
        aside.works();
        assert!(health.obstacles().is_empty());

        aside.refused("forbidden");
        let set = |first, last| {
            let mut refusals = lock(&health.outlook.refusals);
            let refusal = refusals.get_mut("claims").unwrap();
            (refusal.first, refusal.last) = (ago(first), ago(last));
        };
        set(60, 31);
        assert!(health.obstacles().is_empty(), "it was not refused again");
        assert_eq!(aside.refused("forbidden"), Duration::ZERO);
        assert!(health.missing().is_empty(), "nothing waits for it");
    }

    #[tokio::test]
    async fn failure_of_a_part_ends_the_process() {
        let health = Health::default();
        health.aside().announce("claims").failed("no longer served");
        assert_eq!(health.failure().await, "claims: no longer served");
    }

    #[test]
    fn metrics_say_what_is_listed() {
        let (health, metrics) = (Health::default(), crate::metrics::Metrics::default());
        metrics.register_collector(health.clone());
        let (claims, _pools, _gate) = (health.announce("claims"), health.announce("pools"), health.require("gate"));
        claims.done();
        let text = metrics.encode().unwrap();
        assert!(text.contains("cache_synced{cache=\"claims\"} 1\ncache_synced{cache=\"pools\"} 0\n# EOF"), "{text}");
    }
}
