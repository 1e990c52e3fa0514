//! The flags for metrics, and a server of metrics over plain HTTP.
//!
//! A manager serves `/metrics` itself only with `--insecure-diagnostics`. Otherwise a service with
//! a certificate serves them over TLS, to callers that the API server authorizes.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use clap::Args;
use tokio::net::TcpListener;
use tracing::warn;

use crate::flag_values::parse_bool;
use crate::metrics::{CONTENT_TYPE as METRICS, Metrics};
use crate::server::{ListenError, listen};

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
    /// Whether metrics are served over TLS.
    pub fn are_over_tls(&self) -> bool {
        !["", "0"].contains(&&*self.diagnostics_address) && !self.insecure_diagnostics
    }

    /// Listens on the address of the flags. `None` if they disable metrics, or select plain HTTP
    /// and not TLS or the reverse.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub async fn listen(&self, over_tls: bool) -> Result<Option<TcpListener>, ListenError> {
        if over_tls == self.insecure_diagnostics {
            return Ok(None);
        }
        listen(&self.diagnostics_address, "--diagnostics-address").await
    }

    /// Logs a warning if metrics should be served over TLS. Call it in a process without a
    /// certificate.
    pub fn warn_without_certificate(&self) {
        if self.are_over_tls() {
            warn!(
                "metrics are not served: TLS needs the certificate of the webhooks, which are disabled; \
                 set --insecure-diagnostics to serve metrics over plain HTTP"
            );
        }
    }
}

/// The routes of diagnostics: `/metrics`.
pub fn routes(metrics: Metrics) -> Router {
    Router::new()
        .route("/metrics", get(encode))
        .with_state(metrics)
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
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::server::serve;

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
            assert!(options(&args).listen(false).await.unwrap().is_none());
        }
    }

    #[tokio::test]
    async fn metrics_are_served_over_plain_http() {
        let options = options(&[
            "--diagnostics-address=127.0.0.1:0",
            "--insecure-diagnostics",
        ]);
        assert!(options.listen(true).await.unwrap().is_none());
        let listener = options.listen(false).await.unwrap().unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let running = tokio::spawn(serve(listener, routes(Metrics::default()), stop.clone()));
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
