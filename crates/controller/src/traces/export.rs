//! The HTTP client that sends spans to a collector.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use rustls::crypto::ring;
use tokio::runtime::Handle;
use tokio_util::context::TokioContext;
use tracing::warn;

use crate::log_limit::RepetitionLimit;

/// Limit for one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// A client that a thread outside of the runtime can use, and that reports failures.
pub(super) struct ExportClient {
    client: HyperClient<HttpsConnector<HttpConnector>>,
    runtime: Handle,
    url: String,
    log_limit: RepetitionLimit,
}

impl ExportClient {
    /// Creates a client for the collector with this URL, which only appears in warnings.
    pub(super) fn new(url: &str, runtime: Handle) -> io::Result<Self> {
        let connector =
            HttpsConnectorBuilder::new().with_provider_and_native_roots(ring::default_provider());
        let connector = match connector {
            Ok(connector) => connector.https_or_http().enable_http1().build(),
            // An image may contain no certificates; plain HTTP needs none.
            Err(_) if url.starts_with("http:") => {
                let roots = rustls::RootCertStore::empty();
                let provider = Arc::new(ring::default_provider());
                let config = rustls::ClientConfig::builder_with_provider(provider)
                    .with_safe_default_protocol_versions()
                    .map_err(io::Error::other)?;
                let config = config.with_root_certificates(roots).with_no_client_auth();
                HttpsConnectorBuilder::new()
                    .with_tls_config(config)
                    .https_or_http()
                    .enable_http1()
                    .build()
            }
            Err(error) => return Err(error),
        };
        let client = HyperClient::new(connector, REQUEST_TIMEOUT, None);
        Ok(Self {
            client,
            runtime,
            url: url.to_owned(),
            log_limit: RepetitionLimit::default(),
        })
    }

    fn warn(&self, reason: &dyn fmt::Display) {
        if let Some(suppressed) = self.log_limit.allow("", Instant::now()) {
            warn!(url = self.url, %reason, suppressed, "cannot export spans to the collector; they are dropped");
        }
    }
}

impl fmt::Debug for ExportClient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ExportClient")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl HttpClient for ExportClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sent = TokioContext::new(self.client.send_bytes(request), self.runtime.clone()).await;
        match &sent {
            Ok(response) if response.status().is_success() => {}
            Ok(response) => self.warn(&response.status()),
            Err(error) => self.warn(error),
        }
        sent
    }
}
