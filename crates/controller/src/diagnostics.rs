//! The flags for metrics, and a server of metrics over plain HTTP.
//!
//! A manager serves `/metrics` itself only with `--insecure-diagnostics`. Otherwise a service with
//! a certificate serves them over TLS, to callers that the API server authorizes.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use clap::Args;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use crate::flag_values::parse_bool;
use crate::listener::bind;
use crate::metrics::{CONTENT_TYPE as METRICS, Metrics};

/// Flags for diagnostics. Their names are those of Cluster API's managers.
#[derive(Args, Clone, Debug)]
#[group(skip)]
pub struct DiagnosticsOptions {
    /// Address for /metrics, which is served over TLS to authorized callers; 0 disables.
    #[arg(long, value_name = "ADDRESS", default_value = ":8443")]
    pub diagnostics_address: String,

    /// Serve /metrics over plain HTTP and without authorization.
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true",
          action = clap::ArgAction::Set, value_name = "BOOL", value_parser = parse_bool)]
    pub insecure_diagnostics: bool,
}

impl DiagnosticsOptions {
    /// The address for metrics; `None` if the flags disable them.
    pub fn address(&self) -> Option<&str> {
        Some(self.diagnostics_address.as_str())
            .filter(|address| !address.is_empty() && *address != "0")
    }

    /// Logs a warning if metrics should be served over TLS. Call it in a process without a
    /// certificate.
    pub fn warn_without_certificate(&self) {
        if self.address().is_some() && !self.insecure_diagnostics {
            warn!(
                "metrics are not served: TLS needs the certificate of the webhooks, which are disabled; \
                 set --insecure-diagnostics to serve metrics over plain HTTP"
            );
        }
    }
}

/// The address cannot be bound: it is in use, or not an address of this machine.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve diagnostics at {address} (--diagnostics-address)")]
pub struct DiagnosticsError {
    /// The value of the flag.
    pub address: String,
    /// The error of the operating system.
    #[source]
    pub source: std::io::Error,
}

/// A server of metrics over plain HTTP that listens but answers no requests before
/// [`DiagnosticsServer::serve`].
#[derive(Debug)]
pub struct DiagnosticsServer {
    listener: TcpListener,
    router: Router,
}

/// The routes of diagnostics: `/metrics`.
pub fn routes(metrics: Metrics) -> Router {
    Router::new()
        .route("/metrics", get(encode))
        .with_state(metrics)
}

/// Listens on the address of the flags. `None` unless `--insecure-diagnostics` is set.
///
/// # Errors
/// If the address cannot be bound.
pub(crate) async fn listen_insecure(
    options: &DiagnosticsOptions,
    metrics: Metrics,
) -> Result<Option<DiagnosticsServer>, DiagnosticsError> {
    let Some(address) = options.address().filter(|_| options.insecure_diagnostics) else {
        return Ok(None);
    };
    let failed = |source| DiagnosticsError {
        address: address.to_owned(),
        source,
    };
    let listener = bind(address).await.map_err(failed)?;
    Ok(Some(DiagnosticsServer {
        listener,
        router: routes(metrics),
    }))
}

impl DiagnosticsServer {
    /// The address on which the server listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.listener.local_addr().ok()
    }

    /// Answers requests until the token is cancelled.
    pub async fn serve(self, stop: CancellationToken) {
        let served = axum::serve(self.listener, self.router)
            .with_graceful_shutdown(stop.cancelled_owned())
            .await;
        if let Err(error) = served {
            error!(%error, "the server of metrics failed");
        }
    }
}

async fn encode(State(metrics): State<Metrics>) -> Response {
    match metrics.encode() {
        Ok(text) => ([(CONTENT_TYPE, METRICS)], text).into_response(),
        Err(_) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "the metrics cannot be encoded",
        )
            .into_response(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        diagnostics: DiagnosticsOptions,
    }

    fn options(args: &[&str]) -> DiagnosticsOptions {
        Flags::try_parse_from(["test"].iter().chain(args))
            .unwrap()
            .diagnostics
    }

    #[test]
    fn flags_of_cluster_api_managers_are_accepted() {
        let found = options(&[]);
        assert_eq!(
            (
                found.diagnostics_address.as_str(),
                found.insecure_diagnostics
            ),
            (":8443", false)
        );
        assert!(options(&["--insecure-diagnostics"]).insecure_diagnostics);
        assert!(!options(&["--insecure-diagnostics=false"]).insecure_diagnostics);
        assert!(options(&["--insecure-diagnostics=1"]).insecure_diagnostics);
        assert_eq!(
            options(&["--diagnostics-address=127.0.0.1:1"]).diagnostics_address,
            "127.0.0.1:1"
        );
    }

    #[tokio::test]
    async fn metrics_over_plain_http_need_a_flag() {
        for args in [
            ["--diagnostics-address=0"],
            ["--diagnostics-address=127.0.0.1:0"],
        ] {
            assert!(
                listen_insecure(&options(&args), Metrics::default())
                    .await
                    .unwrap()
                    .is_none()
            );
        }
    }

    #[tokio::test]
    async fn metrics_are_served_over_plain_http() {
        let options = options(&[
            "--diagnostics-address=127.0.0.1:0",
            "--insecure-diagnostics",
        ]);
        let server = listen_insecure(&options, Metrics::default())
            .await
            .unwrap()
            .unwrap();
        let (address, stop) = (server.address().unwrap(), CancellationToken::new());
        let running = tokio::spawn(server.serve(stop.clone()));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\n# EOF\n"),
            "{answer}"
        );
        assert!(
            answer.contains("content-type: application/openmetrics-text; version=1.0.0"),
            "{answer}"
        );
        stop.cancel();
        running.await.unwrap();
    }
}
