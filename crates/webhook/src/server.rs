//! The server of webhooks. Listens on the port of the flags, and reloads its certificate if that is
//! in files.

use std::net::SocketAddr;

use axum::Router;
use capi_ipam_controller::health::{Health, NameTaken, ReadinessGate};
use capi_ipam_controller::metrics::Metrics;
use capi_ipam_controller::server::ListenError;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::https::certificate::{CertificateFiles, Certificates, POLL_INTERVAL, WEBHOOK_METRICS};
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
    /// The process has a server of webhooks already.
    #[error(transparent)]
    NameTaken(#[from] NameTaken),
    /// The port cannot be bound.
    #[error(transparent)]
    Listen(#[from] ListenError),
}

/// A server of webhooks that listens but answers no requests before [`WebhookServer::serve`].
#[derive(Debug)]
pub struct WebhookServer {
    server: HttpsServer,
    certificates: Certificates,
    /// The files of the certificate; `None` if it is self-managed.
    files: Option<CertificateFiles>,
    certificate_health: ReadinessGate,
}

/// Listens on the port of the flags. `None` if webhooks are disabled. `health` is not ready before
/// there is a certificate.
pub async fn listen(
    options: &WebhookOptions,
    health: &Health,
    metrics: &Metrics,
) -> Result<Option<WebhookServer>, WebhookError> {
    let address = match options.webhook_port {
        0 => String::new(),
        port => format!(":{port}"),
    };
    let Some(listener) = capi_ipam_controller::server::listen(&address, "--webhook-port").await?
    else {
        return Ok(None);
    };
    listen_on(listener, options, health, metrics, Limits::default()).map(Some)
}

/// Like [`listen`], with another listener and other limits.
pub(crate) fn listen_on(
    listener: TcpListener,
    options: &WebhookOptions,
    health: &Health,
    metrics: &Metrics,
    limits: Limits,
) -> Result<WebhookServer, WebhookError> {
    let files = match options.webhook_certs {
        WebhookCerts::Files => Some(options.files()),
        WebhookCerts::SelfManaged => {
            options.self_managed.validate()?;
            None
        }
    };
    let certificates = Certificates::default();
    let tls = options
        .tls
        .server_config(std::sync::Arc::new(certificates.clone()))?;
    certificates.register(metrics, &WEBHOOK_METRICS);
    let certificate_health = health.require("certificate for webhooks")?;
    Ok(WebhookServer {
        server: HttpsServer::new(listener, tls, limits),
        certificates,
        files,
        certificate_health,
    })
}

impl WebhookServer {
    /// The address on which the server listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.server.address()
    }

    /// The certificate of the server, which other servers can share.
    pub fn certificates(&self) -> Certificates {
        self.certificates.clone()
    }

    /// The readiness of the certificate. A component that provides the certificate other than in
    /// files reports it here.
    pub fn certificate_health(&self) -> ReadinessGate {
        self.certificate_health.clone()
    }

    /// Answers requests until the token is cancelled. Requests in flight then have 5 s to complete.
    pub async fn serve(self, router: Router, stop: CancellationToken) {
        let ended = CancellationToken::new();
        let watch = async {
            if let Some(files) = self.files {
                self.certificates
                    .watch(files, POLL_INTERVAL, self.certificate_health, ended.clone())
                    .await;
            }
        };
        let serve = async {
            self.server.serve(router, stop).await;
            ended.cancel();
        };
        tokio::join!(watch, serve);
    }
}
