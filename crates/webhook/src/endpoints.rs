//! The endpoints of webhooks: read requests, respond, and count.
//!
//! Any client in the cluster can send requests, so their total cost is limited. Small requests,
//! which are nearly all, share 16 MiB, and eight of them are processed concurrently. Of large
//! requests, and of small ones that become large when they are parsed, two are read and processed
//! concurrently. Further requests wait in order, with their body unread; beyond the length of the
//! queue they are rejected with 429, and the API server retries. Validators and converters run on
//! blocking threads, so a slow one delays neither other requests nor TLS handshakes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use capi_ipam_controller::log_limit::LogLimit;
use capi_ipam_controller::metrics::{Description, Metrics};
use capi_ipam_controller::trace_span;
use futures::StreamExt;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::{Instrument, debug, error, field, warn};

use crate::capacity::{Capacity, Full};
use crate::conversion;
use crate::https::certificate::WEBHOOK_METRICS;
use crate::memory::exceeds;
use crate::reply::{Reply, ReplyError, truncated};
use crate::review::{self, AdmissionRequest, Decision};

/// The outcomes of requests that are not answered as the API server expects.
const FAILURES: [&str; 4] = ["error", "failed", "overloaded", "panic"];

/// Limit for the body of an admission review. The API server accepts objects of up to 3 MiB, and a
/// review may contain two.
pub(crate) const MAX_REVIEW_SIZE: usize = 8 * 1024 * 1024;

/// Limit for the body of a conversion review. The API server converts stored objects one by one;
/// lists are larger.
const MAX_CONVERSION_SIZE: usize = 16 * 1024 * 1024;

/// Limit for the body of a small request. The review of a pool with a few addresses has 3 KiB.
pub(crate) const MAX_SMALL_BODY: usize = 64 * 1024;

/// Memory for the bodies of all small requests together.
const SMALL_REQUEST_MEMORY: usize = 16 * 1024 * 1024;

/// Number of large requests that are read and processed concurrently.
pub(crate) const LARGE_CONCURRENCY: usize = 2;

/// Number of small requests that may wait for memory.
const MAX_SMALL_WAITING: usize = 256;

/// Number of large requests that may wait.
pub(crate) const MAX_LARGE_WAITING: usize = 16;

/// Limit for the parsed size of a small request. A larger one is processed like a large request.
const MAX_SMALL_MEMORY: usize = 1024 * 1024;

/// Limit for the body of a large request to arrive. The API server is near.
const LARGE_BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// Number of small requests that are processed concurrently. Processing is CPU-bound, so more would
/// not be faster.
const WORKERS: usize = 8;

/// Unit of the memory of small requests, in bytes. Every request takes at least one.
const MEMORY_UNIT: usize = 4096;

/// The metrics of webhooks and of their certificate.
pub const METRICS: &[Description] = &[
    REVIEWS,
    REVIEW_SECONDS,
    REVIEWS_IN_FLIGHT,
    WEBHOOK_METRICS[0],
    WEBHOOK_METRICS[1],
    WEBHOOK_METRICS[2],
];

const REVIEWS: Description = Description {
    name: "webhook_reviews_total",
    kind: "counter",
    labels: &["path", "outcome"],
    help: "Requests to webhooks by path and outcome",
};

const REVIEW_SECONDS: Description = Description {
    name: "webhook_review_duration_seconds",
    kind: "histogram",
    labels: &["path"],
    help: "Duration of requests to webhooks, including waiting and reading",
};

const REVIEWS_IN_FLIGHT: Description = Description {
    name: "webhook_reviews_in_flight",
    kind: "gauge",
    labels: &[],
    help: "Requests to webhooks in flight",
};

/// Computes the reply to a body.
type Respond = dyn Fn(&[u8]) -> Result<Reply, ReplyError> + Send + Sync;

/// The paths of webhooks and their handlers.
#[derive(Debug)]
pub struct Endpoints {
    router: Router,
    shared: Arc<Shared>,
}

/// State that all endpoints share.
#[derive(Debug)]
struct Shared {
    small: Capacity,
    large: Capacity,
    workers: Arc<Semaphore>,
    malformed_log: LogLimit,
    failed_log: LogLimit,
    overload_log: LogLimit,
    reviews: Family<Labels, Counter>,
    seconds: Family<Path, Histogram>,
    in_flight: Gauge,
}

struct Endpoint {
    path: &'static str,
    max_size: usize,
    respond: Arc<Respond>,
    shared: Arc<Shared>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    path: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Path {
    path: &'static str,
}

impl Endpoints {
    /// Creates an empty set of endpoints, and registers its metrics.
    pub fn new(metrics: &Metrics) -> Self {
        let buckets = || {
            Histogram::new([
                0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0,
            ])
        };
        let shared = Shared {
            small: Capacity::new(SMALL_REQUEST_MEMORY / MEMORY_UNIT, MAX_SMALL_WAITING),
            large: Capacity::new(LARGE_CONCURRENCY, MAX_LARGE_WAITING),
            malformed_log: LogLimit::default(),
            failed_log: LogLimit::default(),
            overload_log: LogLimit::default(),
            workers: Arc::new(Semaphore::new(WORKERS)),
            reviews: Family::default(),
            seconds: Family::new_with_constructor(buckets),
            in_flight: Gauge::default(),
        };
        metrics.add(&REVIEWS, shared.reviews.clone());
        metrics.add(&REVIEW_SECONDS, shared.seconds.clone());
        metrics.add(&REVIEWS_IN_FLIGHT, shared.in_flight.clone());
        Self {
            router: Router::new(),
            shared: Arc::new(shared),
        }
    }

    /// Adds an endpoint for admission reviews. `validate` decides on one request. It must not
    /// block.
    #[must_use]
    pub fn review(
        self,
        path: &'static str,
        validate: impl Fn(&AdmissionRequest) -> Decision + Send + Sync + 'static,
    ) -> Self {
        self.add(
            path,
            MAX_REVIEW_SIZE,
            Arc::new(move |body: &[u8]| review::respond(body, &validate)),
        )
    }

    /// Adds an endpoint for conversion reviews. `convert` converts one object to a version, for
    /// example `example.com/v2`, or returns an error message. It must not block, and its result
    /// depends on its arguments only.
    #[must_use]
    pub fn convert(
        self,
        path: &'static str,
        convert: impl Fn(Value, &str) -> Result<Value, String> + Send + Sync + 'static,
    ) -> Self {
        self.add(
            path,
            MAX_CONVERSION_SIZE,
            Arc::new(move |body: &[u8]| conversion::respond(body, &convert)),
        )
    }

    /// The router of all endpoints.
    pub fn router(self) -> Router {
        self.router
            .fallback(not_found)
            .method_not_allowed_fallback(method_not_allowed)
    }

    fn add(self, path: &'static str, max_size: usize, respond: Arc<Respond>) -> Self {
        // They exist before the first failure: an alert does not see an increase from nothing to
        // one.
        for outcome in FAILURES {
            drop(self.shared.reviews.get_or_create(&Labels { path, outcome }));
        }
        let endpoint = Arc::new(Endpoint {
            path,
            max_size,
            respond,
            shared: self.shared.clone(),
        });
        let route = post(handle).with_state(endpoint);
        Self {
            router: self.router.route(path, route),
            shared: self.shared,
        }
    }
}

async fn not_found(uri: Uri) -> (StatusCode, String) {
    (
        StatusCode::NOT_FOUND,
        format!("there is no webhook at {}", uri.path()),
    )
}

async fn method_not_allowed(method: Method) -> (StatusCode, String) {
    (
        StatusCode::METHOD_NOT_ALLOWED,
        format!("webhooks accept POST, not {method}"),
    )
}

async fn handle(State(endpoint): State<Arc<Endpoint>>, request: Request) -> Response {
    let mut measurement = Measurement::start(&endpoint);
    let span = trace_span!(
        "webhook.review",
        path = endpoint.path,
        outcome = field::Empty
    );
    let answered = endpoint.respond(request).instrument(span.clone()).await;
    span.record(
        "outcome",
        answered
            .as_ref()
            .map_or("error", |reply| reply.outcome.as_str()),
    );
    match answered {
        Ok(reply) => {
            measurement.outcome = reply.outcome.as_str();
            ([(CONTENT_TYPE, "application/json")], reply.body).into_response()
        }
        Err(Rejection { status, message }) => {
            debug!(path = endpoint.path, %status, message, "a request to a webhook was rejected");
            if status == StatusCode::TOO_MANY_REQUESTS {
                measurement.outcome = "overloaded";
                return (status, [(RETRY_AFTER, "1")], message).into_response();
            }
            (status, message).into_response()
        }
    }
}

/// An HTTP error response.
struct Rejection {
    status: StatusCode,
    message: String,
}

impl Rejection {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: truncated(message.into()),
        }
    }

    fn too_long(limit: usize, length: impl std::fmt::Display) -> Self {
        let message = format!("the body is too long: {length}; the length limit is {limit} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, message)
    }
}

impl Endpoint {
    async fn respond(&self, request: Request) -> Result<Reply, Rejection> {
        let kind = request
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|kind| kind.to_str().ok())
            .unwrap_or_default();
        if !kind
            .split(';')
            .next()
            .unwrap_or_default()
            .trim()
            .eq_ignore_ascii_case("application/json")
        {
            let text = format!("the content type must be application/json, not {kind:?}");
            return Err(Rejection::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
        }
        // A body without a length counts as the longest.
        let declared = request
            .body()
            .size_hint()
            .upper()
            .unwrap_or(self.max_size as u64);
        let length = usize::try_from(declared).unwrap_or(usize::MAX);
        if length > self.max_size {
            return Err(Rejection::too_long(
                self.max_size,
                format_args!("{declared} bytes"),
            ));
        }
        let is_large = length > MAX_SMALL_BODY;
        let shared = &self.shared;
        let (memory, body) = if is_large {
            let memory = shared
                .large
                .acquire(1)
                .await
                .map_err(|full| self.overloaded(full))?;
            let body = timeout(LARGE_BODY_TIMEOUT, read(request.into_body(), length)).await;
            let late = format!("the body did not arrive within {LARGE_BODY_TIMEOUT:?}");
            (
                memory,
                body.map_err(|_| Rejection::new(StatusCode::REQUEST_TIMEOUT, late))??,
            )
        } else {
            let units = u32::try_from(length / MEMORY_UNIT + 1).unwrap_or(u32::MAX);
            let memory = shared
                .small
                .acquire(units)
                .await
                .map_err(|full| self.overloaded(full))?;
            (memory, read(request.into_body(), length).await?)
        };
        let worker = if is_large {
            None
        } else if exceeds(&body, MAX_SMALL_MEMORY) {
            Some(
                shared
                    .large
                    .acquire(1)
                    .await
                    .map_err(|full| self.overloaded(full))?,
            )
        } else {
            let closed = |_| {
                Rejection::new(
                    StatusCode::SERVICE_UNAVAILABLE,
                    "the process is shutting down",
                )
            };
            Some(
                shared
                    .workers
                    .clone()
                    .acquire_owned()
                    .await
                    .map_err(closed)?,
            )
        };
        let respond = self.respond.clone();
        // The task continues if the client cancels the request, so it owns the permits.
        let task = tokio::task::spawn_blocking(move || {
            let _permits = (memory, worker);
            respond(&body)
        });
        match task.await {
            Ok(result) => self.log_errors(result),
            Err(error) => {
                error!(path = self.path, %error, "a request to a webhook was not answered; this is a bug");
                Err(Rejection::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "internal error",
                ))
            }
        }
    }

    /// Logs errors of requests, at a limited rate since any client can cause them, and turns them
    /// into HTTP errors.
    fn log_errors(&self, result: Result<Reply, ReplyError>) -> Result<Reply, Rejection> {
        let (path, shared) = (self.path, &self.shared);
        let error = match result {
            Ok(reply) => {
                if let Some(failure) = &reply.failure
                    && let Some(suppressed) = shared.failed_log.allow(Instant::now())
                {
                    warn!(path, failure, suppressed, "cannot convert objects");
                }
                return Ok(reply);
            }
            Err(error) => error,
        };
        let status = match error {
            ReplyError::Serialize { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            ReplyError::TooManyValues { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            _ => StatusCode::BAD_REQUEST,
        };
        let rejection = Rejection::new(status, error.to_string());
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            error!(
                path,
                error = rejection.message,
                "cannot respond to a request to a webhook"
            );
        } else if let Some(suppressed) = shared.malformed_log.allow(Instant::now()) {
            warn!(
                path,
                error = rejection.message,
                suppressed,
                "a request to a webhook is malformed"
            );
        }
        Err(rejection)
    }

    fn overloaded(&self, _: Full) -> Rejection {
        if let Some(suppressed) = self.shared.overload_log.allow(Instant::now()) {
            warn!(
                path = self.path,
                suppressed, "rejecting requests to webhooks: too many are waiting"
            );
        }
        Rejection::new(
            StatusCode::TOO_MANY_REQUESTS,
            "too many requests are waiting; retry later",
        )
    }
}

/// Reads a whole body of at most `limit` bytes.
async fn read(body: Body, limit: usize) -> Result<Vec<u8>, Rejection> {
    let (mut bytes, mut parts) = (Vec::with_capacity(limit), body.into_data_stream());
    while let Some(part) = parts.next().await {
        let failed = |error| {
            Rejection::new(
                StatusCode::BAD_REQUEST,
                format!("the body cannot be read: {error}"),
            )
        };
        let part = part.map_err(failed)?;
        if part.len() > limit - bytes.len() {
            return Err(Rejection::too_long(limit, "length limit exceeded"));
        }
        bytes.extend_from_slice(&part);
    }
    Ok(bytes)
}

/// Records the metrics of a request when it is dropped, also if the request is cancelled.
struct Measurement<'a> {
    endpoint: &'a Endpoint,
    started: Instant,
    outcome: &'static str,
}

impl<'a> Measurement<'a> {
    fn start(endpoint: &'a Endpoint) -> Self {
        endpoint.shared.in_flight.inc();
        Self {
            endpoint,
            started: Instant::now(),
            outcome: "error",
        }
    }
}

impl Drop for Measurement<'_> {
    fn drop(&mut self) {
        let (path, shared) = (self.endpoint.path, &self.endpoint.shared);
        shared.in_flight.dec();
        shared
            .reviews
            .get_or_create(&Labels {
                path,
                outcome: self.outcome,
            })
            .inc();
        shared
            .seconds
            .get_or_create(&Path { path })
            .observe(self.started.elapsed().as_secs_f64());
    }
}
