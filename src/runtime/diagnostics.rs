//! Diagnostics: `/metrics`, for those who may see it.
//!
//! As with Cluster API's managers they are served over TLS, to callers whose bearer token the API server knows
//! (TokenReview), and who may `get` the path (SubjectAccessReview): a Prometheus whose service account is bound to a
//! ClusterRole with `nonResourceURLs: [/metrics]`. The certificate is that of the webhooks. With
//! `--insecure-diagnostics` they are served over plain HTTP, to everybody.
//!
//! Needs `create` on `tokenreviews` in `authentication.k8s.io` and on `subjectaccessreviews` in `authorization.k8s.io`.

pub mod access;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use clap::Args;
use kube::Client;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::https::certificate::Certificates;
use super::https::tls::{TlsError, TlsOptions};
use super::https::{HttpsServer, Limits, bind};
use super::metrics::{CONTENT_TYPE as METRICS, Metrics};
use access::Gate;

/// Flags for diagnostics. Their names are those of Cluster API's managers.
#[derive(Args, Clone, Debug)]
pub struct DiagnosticsOptions {
    /// Where to serve /metrics, over TLS and to callers that the API server allows it; 0 for nowhere.
    #[arg(long, value_name = "ADDRESS", default_value = ":8443")]
    pub diagnostics_address: String,

    /// Serve /metrics over plain HTTP and to everybody.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true",
          action = clap::ArgAction::Set, value_name = "BOOL")]
    pub insecure_diagnostics: bool,
}

/// Why diagnostics cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum DiagnosticsError {
    /// The flags for TLS are wrong.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The address is in use, or not one of this machine.
    #[error("cannot serve diagnostics at {address} (--diagnostics-address)")]
    Bind {
        /// The address as asked for.
        address: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
}

/// What it takes to serve diagnostics to some and not to others.
#[derive(Clone, Debug)]
pub struct Security {
    /// The certificate to serve with.
    pub certificates: Certificates,
    /// How TLS is spoken.
    pub tls: TlsOptions,
    /// Who is let in.
    pub gate: Gate,
}

impl Security {
    /// With the certificate of the webhooks; the API server says who is let in.
    pub fn new(certificates: Certificates, tls: TlsOptions, client: Client) -> Self {
        Self { certificates, tls, gate: Gate::by_api_server(client) }
    }
}

/// A server of diagnostics that listens already and has to be driven.
#[derive(Debug)]
pub struct DiagnosticsServer {
    transport: Transport,
    router: Router,
}

#[derive(Debug)]
enum Transport {
    Plain(TcpListener),
    Tls(HttpsServer),
}

/// Starts to listen for requests for diagnostics. `None` when the flags say that there are none, and when they should be
/// served securely and that is not possible, for want of a certificate.
pub async fn listen(
    options: &DiagnosticsOptions,
    metrics: Metrics,
    security: Option<Security>,
) -> Result<Option<DiagnosticsServer>, DiagnosticsError> {
    let address = options.diagnostics_address.as_str();
    if address.is_empty() || address == "0" {
        return Ok(None);
    }
    let failed = |source| DiagnosticsError::Bind { address: address.to_owned(), source };
    let router = Router::new().route("/metrics", get(encode)).with_state(metrics);
    if options.insecure_diagnostics {
        let transport = Transport::Plain(bind(address).await.map_err(failed)?);
        return Ok(Some(DiagnosticsServer { transport, router }));
    }
    let Some(Security { certificates, tls, gate }) = security else {
        warn!("diagnostics are not served: they would need the certificate of the webhooks, which are switched off");
        return Ok(None);
    };
    let tls = tls.server_config(Arc::new(certificates))?;
    let transport = Transport::Tls(HttpsServer::new(bind(address).await.map_err(failed)?, tls, Limits::default()));
    let router = router.layer(from_fn_with_state(gate, access::pass));
    Ok(Some(DiagnosticsServer { transport, router }))
}

impl DiagnosticsServer {
    /// Where the server listens.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.transport {
            Transport::Plain(listener) => listener.local_addr().ok(),
            Transport::Tls(server) => server.address(),
        }
    }

    /// Answers requests until the token is cancelled.
    pub async fn serve(self, stop: CancellationToken) {
        match self.transport {
            Transport::Tls(server) => server.serve(self.router, stop).await,
            Transport::Plain(listener) => {
                let ended = axum::serve(listener, self.router).with_graceful_shutdown(stop.cancelled_owned()).await;
                if let Err(error) = ended {
                    error!(%error, "diagnostics are no longer served");
                }
            }
        }
    }
}

async fn encode(State(metrics): State<Metrics>) -> Response {
    match metrics.encode() {
        Ok(text) => ([(CONTENT_TYPE, METRICS)], text).into_response(),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, "the metrics cannot be written").into_response(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use futures::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::access::Access;
    use super::*;
    use crate::runtime::webhooks::tests::support::{Server, things, tls};

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        diagnostics: DiagnosticsOptions,
    }

    fn options(args: &[&str]) -> DiagnosticsOptions {
        Flags::try_parse_from(["test"].iter().chain(args)).unwrap().diagnostics
    }

    #[test]
    fn flags_of_cluster_api_managers_are_understood() {
        let found = options(&[]);
        assert_eq!((found.diagnostics_address.as_str(), found.insecure_diagnostics), (":8443", false));
        assert!(options(&["--insecure-diagnostics"]).insecure_diagnostics);
        assert!(!options(&["--insecure-diagnostics=false"]).insecure_diagnostics);
        assert_eq!(options(&["--diagnostics-address=127.0.0.1:1"]).diagnostics_address, "127.0.0.1:1");
    }

    #[tokio::test]
    async fn nothing_is_served_when_it_is_not_wanted_or_not_safe() {
        assert!(listen(&options(&["--diagnostics-address=0"]), Metrics::default(), None).await.unwrap().is_none());
        let secure = options(&["--diagnostics-address=127.0.0.1:0"]);
        assert!(listen(&secure, Metrics::default(), None).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn metrics_are_served_in_plain_http_when_that_is_asked_for() {
        let options = options(&["--diagnostics-address=127.0.0.1:0", "--insecure-diagnostics"]);
        let server = listen(&options, Metrics::default(), None).await.unwrap().unwrap();
        let (address, stop) = (server.address().unwrap(), CancellationToken::new());
        let running = tokio::spawn(server.serve(stop.clone()));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\n# EOF\n"), "{answer}");
        assert!(answer.contains("content-type: application/openmetrics-text; version=1.0.0"), "{answer}");
        stop.cancel();
        running.await.unwrap();
    }

    #[tokio::test]
    async fn metrics_are_served_over_tls_to_those_who_may_see_them() {
        let webhooks = Server::start(things).await;
        let gate = Gate::new(|token, path| {
            let granted = token == "good" && path == "/metrics";
            std::future::ready(Ok(if granted { Access::Granted } else { Access::Unknown })).boxed()
        });
        let security = Security { certificates: webhooks.certificates.clone(), tls: tls(), gate };
        let options = options(&["--diagnostics-address=127.0.0.1:0"]);
        let server = listen(&options, webhooks.metrics.clone(), Some(security)).await.unwrap().unwrap();
        let (address, stop) = (server.address().unwrap(), CancellationToken::new());
        let running = tokio::spawn(server.serve(stop.clone()));
        let diagnostics = Server { address, ..webhooks };
        for (token, status) in [("good", 200), ("bad", 401)] {
            let mut stream = diagnostics.connect(false).await.unwrap();
            let request = format!(
                "GET /metrics HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
            );
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
            assert_eq!(answer.contains("webhook_certificate_loads_total 1"), status == 200, "{answer}");
        }
        stop.cancel();
        running.await.unwrap();
        diagnostics.stop().await;
    }
}
