//! An HTTPS server in which slow, greedy and faulty clients cannot block the others.
//!
//! It supports HTTP/1.1 and HTTP/2 over TLS 1.2 and 1.3. Everything has a timeout: the handshake, a
//! request with its body and response, an idle connection. At the maximum number of connections,
//! new ones wait in the backlog of the operating system, and idle ones are closed earlier.
//! axum-server limits neither the number of connections nor the time that an HTTP/2 connection is
//! idle.
//!
//! - [`tls`]: the flags for TLS, and their meaning for rustls;
//! - [`certificate`]: the certificate, which can change at any time: reloaded from files, or set by
//!   another component.

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

/// Delay after an error of `accept`, for example because of too many open files.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(200);

/// Limits for clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Number of open connections. Further ones wait.
    pub(crate) connections: usize,
    /// Number of concurrent requests on all connections. Further ones get 503.
    pub(crate) requests: usize,
    /// Limit for the TLS handshake.
    pub(crate) handshake: Duration,
    /// Limit for a request, from its last header to its response. Then it gets 504.
    pub(crate) request: Duration,
    /// Time after which an idle connection is closed. Longer than the 90 s of Go's clients, so that
    /// they close it and no request arrives at a closing connection.
    pub(crate) idle: Duration,
    /// The same at the maximum number of connections.
    pub(crate) idle_when_full: Duration,
    /// Time for requests in flight when a connection is closed.
    pub(crate) linger: Duration,
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

/// A server that listens but answers no requests before [`HttpsServer::serve`].
#[derive(Debug)]
pub(crate) struct HttpsServer {
    listener: TcpListener,
    tls: Arc<ServerConfig>,
    limits: Limits,
}

impl HttpsServer {
    /// Creates a server for a listener.
    pub(crate) fn new(listener: TcpListener, tls: Arc<ServerConfig>, limits: Limits) -> Self {
        Self {
            listener,
            tls,
            limits,
        }
    }

    /// The address on which the server listens.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// Answers requests until the token is cancelled. Requests in flight then have
    /// [`Limits::linger`] to complete.
    pub(crate) async fn serve(self, router: Router, stop: CancellationToken) {
        let shared = Arc::new(Shared::new(self.tls, router, self.limits, stop.clone()));
        let slots = Arc::new(Semaphore::new(self.limits.connections));
        let tasks = TaskTracker::new();
        while let Some((slot, stream)) = stop
            .run_until_cancelled(accept(&self.listener, &slots))
            .await
        {
            let (shared, slots) = (shared.clone(), slots.clone());
            tasks.spawn(async move {
                shared
                    .serve(stream, || slots.available_permits() == 0)
                    .await;
                drop(slot);
            });
        }
        drop(self.listener);
        tasks.close();
        tasks.wait().await;
    }
}

/// Accepts the next connection, once there is a free slot for it.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> (tokio::sync::OwnedSemaphorePermit, TcpStream) {
    loop {
        let Ok(slot) = slots.clone().acquire_owned().await else {
            // The semaphore is never closed.
            return std::future::pending().await;
        };
        match listener.accept().await {
            Ok((stream, peer)) => {
                debug!(%peer, "accepted a connection");
                return (slot, stream);
            }
            Err(error) => {
                warn!(%error, "cannot accept a connection, retrying");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}
