//! The server of webhooks: it listens at the port that the flags say, and keeps its certificate fresh.

use std::net::SocketAddr;

use axum::Router;
use tokio_util::sync::CancellationToken;

use super::options::WebhookOptions;
use crate::runtime::health::{Health, Synced};
use crate::runtime::https::certificate::{CertificateFiles, Certificates, POLL};
use crate::runtime::https::tls::TlsError;
use crate::runtime::https::{HttpsServer, Limits, bind};
use crate::runtime::metrics::Metrics;

/// Why webhooks cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The flags for TLS are wrong.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The port is in use, or must not be used.
    #[error("cannot serve webhooks at port {port} (--webhook-port)")]
    Bind {
        /// The port.
        port: u16,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
}

/// A server of webhooks that listens already and has to be driven.
#[derive(Debug)]
pub struct WebhookServer {
    server: HttpsServer,
    certificates: Certificates,
    files: CertificateFiles,
    synced: Synced,
}

/// Starts to listen for requests to webhooks; `None` when the flags say that there are none. `health` is not ready until
/// there is a certificate.
pub async fn listen(
    options: &WebhookOptions,
    health: &Health,
    metrics: &Metrics,
) -> Result<Option<WebhookServer>, WebhookError> {
    if options.webhook_port == 0 {
        return Ok(None);
    }
    let address = format!(":{}", options.webhook_port);
    listen_at(&address, options, health, metrics, Limits::default()).await.map(Some)
}

/// Starts to listen at an address that is not taken from the flags, and with other limits.
pub async fn listen_at(
    address: &str,
    options: &WebhookOptions,
    health: &Health,
    metrics: &Metrics,
    limits: Limits,
) -> Result<WebhookServer, WebhookError> {
    let certificates = Certificates::default();
    let tls = options.tls.server_config(std::sync::Arc::new(certificates.clone()))?;
    let failed = |source| WebhookError::Bind { port: options.webhook_port, source };
    let listener = bind(address).await.map_err(failed)?;
    certificates.register(metrics, "webhook");
    let synced = health.announce("certificate for webhooks");
    Ok(WebhookServer { server: HttpsServer::new(listener, tls, limits), certificates, files: options.files(), synced })
}

impl WebhookServer {
    /// Where the server listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.server.address()
    }

    /// The certificate, which others may serve with too.
    pub fn certificates(&self) -> Certificates {
        self.certificates.clone()
    }

    /// Answers requests until the token is cancelled; then those under way are answered, within 5 s.
    pub async fn serve(self, router: Router, stop: CancellationToken) {
        let ended = CancellationToken::new();
        let watch = self.certificates.watch(self.files, POLL, self.synced, ended.clone());
        let serve = async {
            self.server.serve(router, stop).await;
            ended.cancel();
        };
        tokio::join!(watch, serve);
    }
}
