//! Probes: `/healthz` says whether the process lives, `/readyz` whether what it watches has been listed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::https::bind;

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

/// What has to be listed before the process counts as ready, and what has been.
#[derive(Clone, Debug, Default)]
pub struct Health {
    watched: Arc<Mutex<BTreeMap<String, Progress>>>,
}

#[derive(Debug)]
struct Progress {
    synced: watch::Sender<bool>,
    trouble: Option<String>,
}

/// Tells [`Health`] how one watch goes. Clones speak of the same watch.
#[derive(Clone, Debug)]
pub struct Synced {
    name: String,
    health: Health,
    seen: watch::Receiver<bool>,
}

impl Health {
    /// Announces a watch that has to be complete before the process is ready.
    pub fn announce(&self, name: impl Into<String>) -> Synced {
        let (sender, seen) = watch::channel(false);
        let name = name.into();
        self.lock().insert(name.clone(), Progress { synced: sender, trouble: None });
        Synced { name, health: self.clone(), seen }
    }

    /// What is not listed yet, a line each; empty when ready.
    pub fn missing(&self) -> Vec<String> {
        let describe = |(name, progress): (&String, &Progress)| {
            let trouble = progress.trouble.as_deref().unwrap_or("being listed");
            (!*progress.synced.borrow()).then(|| format!("{name}: {trouble}"))
        };
        self.lock().iter().filter_map(describe).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Progress>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Synced {
    /// The first listing is complete, or the watch works again.
    pub fn done(&self) {
        if let Some(progress) = self.health.lock().get_mut(&self.name) {
            progress.trouble = None;
            progress.synced.send_replace(true);
        }
    }

    /// The watch does not work.
    pub fn broken(&self, why: &str) {
        if let Some(progress) = self.health.lock().get_mut(&self.name) {
            progress.trouble = Some(why.to_owned());
        }
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
    let router = Router::new().route("/healthz", get(|| async { "ok" })).route("/readyz", get(ready));
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

async fn ready(State(health): State<Health>) -> (StatusCode, String) {
    let missing = health.missing();
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
}
