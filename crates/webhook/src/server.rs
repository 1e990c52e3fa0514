//! The server of webhooks: it listens at the port that the flags say, and keeps its certificate fresh when that comes
//! from files.

use std::net::SocketAddr;

use axum::Router;
use capi_ipam_controller::health::{Health, ReadinessGate};
use capi_ipam_controller::listener::bind;
use capi_ipam_controller::metrics::Metrics;
use tokio_util::sync::CancellationToken;

use crate::https::certificate::{CertificateFiles, Certificates, POLL};
use crate::https::tls::TlsError;
use crate::https::{HttpsServer, Limits};
use crate::options::{WebhookCerts, WebhookOptions};
use crate::self_managed::options::SelfManagedOptionsError;

/// Why webhooks cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The flags for TLS are wrong.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The flags for self-managed certificates are wrong.
    #[error(transparent)]
    SelfManaged(#[from] SelfManagedOptionsError),
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
    /// Where the certificate lies, if this server is to look for it.
    files: Option<CertificateFiles>,
    synced: ReadinessGate,
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
    let files = match options.webhook_certs {
        WebhookCerts::Files => Some(options.files()),
        WebhookCerts::SelfManaged => {
            options.self_managed.check()?;
            None
        }
    };
    let certificates = Certificates::default();
    let tls = options.tls.server_config(std::sync::Arc::new(certificates.clone()))?;
    let failed = |source| WebhookError::Bind { port: options.webhook_port, source };
    let listener = bind(address).await.map_err(failed)?;
    certificates.register(metrics, "webhook");
    let synced = health.require("certificate for webhooks");
    Ok(WebhookServer { server: HttpsServer::new(listener, tls, limits), certificates, files, synced })
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

    /// Whether there is a certificate. Who gives the server one that is not from files says so here.
    pub fn certificate_health(&self) -> ReadinessGate {
        self.synced.clone()
    }

    /// Answers requests until the token is cancelled; then those under way are answered, within 5 s.
    pub async fn serve(self, router: Router, stop: CancellationToken) {
        let ended = CancellationToken::new();
        let watch = async {
            if let Some(files) = self.files {
                self.certificates.watch(files, POLL, self.synced, ended.clone()).await;
            }
        };
        let serve = async {
            self.server.serve(router, stop).await;
            ended.cancel();
        };
        tokio::join!(watch, serve);
    }
}
