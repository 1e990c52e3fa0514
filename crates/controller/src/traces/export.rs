//! The HTTP client that sends spans to a collector.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use hyper_rustls::HttpsConnectorBuilder;
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
#[derive(Debug)]
pub(super) struct ExportClient {
    client: Box<dyn HttpClient>,
    runtime: Handle,
    url: String,
    log_limit: RepetitionLimit,
}

impl ExportClient {
    /// Creates a client for the collector with this URL, which only appears in warnings.
    pub(super) fn new(url: &str, runtime: Handle) -> io::Result<Self> {
        // An image may contain no certificates; plain HTTP needs none.
        let client: Box<dyn HttpClient> = if url.starts_with("http:") {
            let connector = HttpConnector::new();
            Box::new(HyperClient::new(connector, REQUEST_TIMEOUT, None))
        } else {
            let connector = HttpsConnectorBuilder::new()
                .with_provider_and_native_roots(ring::default_provider())?
                .https_or_http()
                .enable_http1()
                .build();
            Box::new(HyperClient::new(connector, REQUEST_TIMEOUT, None))
        };
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
