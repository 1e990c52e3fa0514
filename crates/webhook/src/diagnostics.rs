//! `/metrics` over TLS, for authorized callers.
//!
//! As in Cluster API's managers, a client needs a bearer token that the API server authenticates
//! (TokenReview), and the permission to `get` the path (SubjectAccessReview). So bind the service
//! account of Prometheus to a ClusterRole with `nonResourceURLs: [/metrics]`. The certificate is
//! that of the webhooks.
//!
//! Needs `create` on `tokenreviews` in `authentication.k8s.io` and on `subjectaccessreviews` in
//! `authorization.k8s.io`.

mod authorizer;

use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use capi_ipam_controller::diagnostics::routes;
use capi_ipam_controller::manager::{BoxError, Manager};
use capi_ipam_controller::metrics::Metrics;
use clap::Args;
use tracing::{info, warn};

use crate::https::certificate::{
    CertificateFiles, Certificates, DIAGNOSTICS_METRICS, POLL_INTERVAL,
};
use crate::https::tls::TlsOptions;
use crate::https::{HttpsServer, Limits};
use authorizer::Authorizer;

/// The flags of a program that serves metrics over TLS and has no webhooks. With webhooks,
/// [`register`] shares their certificate.
///
/// ```no_run
/// use std::process::ExitCode;
///
/// use capi_ipam_controller::manager::{Identity, run_with_services};
/// use capi_ipam_webhook::diagnostics::MetricsOptions;
///
/// #[derive(clap::Args)]
/// struct Flags {
///     #[command(flatten)]
///     metrics: MetricsOptions,
/// }
///
/// fn main() -> ExitCode {
///     run_with_services::<Flags>(
///         Identity::new("my-provider", env!("CARGO_PKG_VERSION")),
///         async |manager, flags| flags.metrics.register(manager).await,
///         async |manager, _| {
///             manager.add("a background task", std::future::pending());
///             Ok(())
///         },
///     )
/// }
/// ```
#[derive(Args, Clone, Debug)]
#[group(skip)]
pub struct MetricsOptions {
    /// Directory with the certificate for /metrics (tls.crt) and its private key (tls.key). Changes
    /// are reloaded.
    #[arg(long, value_name = "DIRECTORY")]
    pub diagnostics_cert_dir: Option<PathBuf>,

    /// The flags for TLS.
    #[command(flatten)]
    pub tls: TlsOptions,
}

impl MetricsOptions {
    /// Adds a server of metrics over TLS to a manager, with the certificate of the flags. Without
    /// one it logs a warning instead.
    ///
    /// # Errors
    /// If the address cannot be bound, or the flags for TLS are invalid.
    pub async fn register(&self, manager: &mut Manager) -> Result<(), BoxError> {
        if !manager.options.diagnostics.are_over_tls() {
            return Ok(());
        }
        let Some(directory) = &self.diagnostics_cert_dir else {
            warn!(
                "metrics are not served: set --diagnostics-cert-dir, or --insecure-diagnostics for plain HTTP"
            );
            return Ok(());
        };
        let files = CertificateFiles {
            certificate: directory.join("tls.crt"),
            key: directory.join("tls.key"),
        };
        let (certificates, stop) = (Certificates::default(), manager.stop.clone());
        certificates.register(&manager.metrics, &DIAGNOSTICS_METRICS);
        register(manager, certificates.clone(), self.tls.clone()).await?;
        // The process works without metrics, so their certificate is no requirement of its
        // readiness.
        let health = manager
            .health
            .detached()
            .require("certificate for metrics")?;
        manager.add(
            "the certificate for metrics",
            certificates.watch(files, POLL_INTERVAL, health, stop),
        );
        Ok(())
    }
}

/// Adds a server of metrics over TLS to a manager, unless its flags disable it or select plain
/// HTTP. It shares `certificates` with another server.
///
/// # Errors
/// If the address cannot be bound, or the flags for TLS are invalid.
pub async fn register(
    manager: &mut Manager,
    certificates: Certificates,
    tls: TlsOptions,
) -> Result<(), BoxError> {
    let tls = tls.server_config(Arc::new(certificates))?;
    let Some(listener) = manager.options.diagnostics.listen(true).await? else {
        return Ok(());
    };
    let server = HttpsServer::new(listener, tls, Limits::default());
    info!(address = ?server.address(), "serving metrics over TLS");
    let authorizer = Authorizer::new(manager.client.clone());
    let router = authorized_routes(manager.metrics.clone(), authorizer);
    manager.add("diagnostics", server.serve(router, manager.stop.clone()));
    Ok(())
}

fn authorized_routes(metrics: Metrics, authorizer: Authorizer) -> Router {
    routes(metrics).layer(from_fn_with_state(authorizer, authorizer::authorize))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::tests::support::{Server, reviewing_client, things, tls};

    #[tokio::test]
    async fn metrics_over_tls_need_authorization() {
        let webhooks = Server::start(things).await;
        let authorizer = Authorizer::new(reviewing_client(Arc::default()));
        let certificates = Arc::new(webhooks.certificates.clone());
        let server = HttpsServer::new(
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
            tls().server_config(certificates).unwrap(),
            Limits::default(),
        );
        let (address, stop) = (server.address().unwrap(), CancellationToken::new());
        let router = authorized_routes(webhooks.metrics.clone(), authorizer);
        let running = tokio::spawn(server.serve(router, stop.clone()));
        let diagnostics = Server {
            address,
            ..webhooks
        };
        for (token, status) in [("good", 200), ("bad", 401)] {
            let mut stream = diagnostics.connect(false).await.unwrap();
            let request = format!(
                "GET /metrics HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
            );
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")),
                "{answer}"
            );
            assert_eq!(
                answer.contains("webhook_certificate_loads_total 1"),
                status == 200,
                "{answer}"
            );
        }
        stop.cancel();
        running.await.unwrap();
        diagnostics.stop().await;
    }
}
