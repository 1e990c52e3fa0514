//! A server for HTTPS that slow, greedy and broken clients cannot take away from the others.
//!
//! It speaks HTTP/1.1 and HTTP/2 over TLS 1.2 and 1.3. Whatever a client does, it ends after a time: the handshake, a
//! request with its body and its answer, a connection without requests. When there are as many connections as there
//! may be, further ones wait in the queue of the operating system, and idle ones are closed sooner.
//!
//! - [`tls`]: the flags for TLS, and what they mean for rustls;
//! - [`certificate`]: the certificate, which may change at any time: read anew when its files change, or given.

pub mod certificate;
pub mod tls;

mod connection;
mod validity;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use connection::Shared;
pub use validity::Validity;

/// How long to wait when the operating system gives no connection, for example because there are too many open files.
const PAUSE: Duration = Duration::from_millis(200);

/// What clients may cost.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections that are open at the same time; further ones have to wait.
    pub connections: usize,
    /// Requests under way at the same time, on all connections; further ones are answered with 503.
    pub requests: usize,
    /// How long the TLS handshake may take.
    pub handshake: Duration,
    /// How long a request may take, from its last header to its answer; then it is answered with 504.
    pub request: Duration,
    /// How long a connection stays open without a request. Longer than the 90 s of Go's clients, so that they are the
    /// ones who close, and no request meets a connection that is being closed.
    pub idle: Duration,
    /// The same while there are as many connections as there may be.
    pub idle_when_full: Duration,
    /// How long requests under way may still take once a connection is to be closed.
    pub linger: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            requests: 4096,
            handshake: Duration::from_secs(10),
            request: Duration::from_secs(10),
            idle: Duration::from_mins(2),
            idle_when_full: Duration::from_secs(10),
            linger: Duration::from_secs(5),
        }
    }
}

/// A server that listens already and has to be driven.
#[derive(Debug)]
pub struct HttpsServer {
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    limits: Limits,
}

impl HttpsServer {
    /// A server on `listener`.
    pub fn new(listener: TcpListener, tls: Arc<ServerConfig>, limits: Limits) -> Self {
        Self { listener, tls, limits }
    }

    /// Where the server listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// Answers requests until the token is cancelled; then those under way are answered, within [`Limits::linger`].
    pub async fn serve(self, router: Router, stop: CancellationToken) {
        let shared = Arc::new(Shared::new(self.tls, router, self.limits, stop.clone()));
        let slots = Arc::new(Semaphore::new(self.limits.connections));
        let tasks = TaskTracker::new();
        while let Some((slot, stream)) = stop.run_until_cancelled(next(&self.listener, &slots)).await {
            let (shared, slots) = (shared.clone(), slots.clone());
            tasks.spawn(async move {
                shared.serve(stream, || slots.available_permits() == 0).await;
                drop(slot);
            });
        }
        drop(self.listener);
        tasks.close();
        tasks.wait().await;
    }
}

/// The next connection, once there is room for it.
async fn next(listener: &TcpListener, slots: &Arc<Semaphore>) -> (tokio::sync::OwnedSemaphorePermit, TcpStream) {
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else {
            // The semaphore is never closed.
            return std::future::pending().await;
        };
        match listener.accept().await {
            Ok((stream, peer)) => {
                debug!(%peer, "connection");
                return (slot, stream);
            }
            Err(error) => {
                warn!(%error, "no connection can be accepted; it is tried again");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
