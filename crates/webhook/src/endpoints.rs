//! The endpoints of webhooks: read requests, respond, and count.
//!
//! Any client in the cluster can send requests, so their total cost is limited. The first 16 KiB of each
//! body are always received, and all that follows shares 32 MiB. So most reviews always have room, and a
//! client that announces a large body and does not send it takes nothing from others. A request whose
//! body has no room is rejected with 429, and the API server retries. Two requests are parsed and
//! processed concurrently, each in 32 MiB, and the others wait in order. Validators and converters run
//! on blocking threads, so a slow one delays neither the bodies of other requests nor TLS handshakes.
//! Mutations, which send requests, are limited by the memory of their requests, and do not delay
//! validators.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use capi_ipam_controller::log_limit::RepetitionLimit;
use capi_ipam_controller::metrics::{Description, Metrics};
use capi_ipam_controller::trace_span;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinError;
use tokio::time::timeout;
use tracing::{Instrument, debug, error, field, warn};

use crate::conversion;
use crate::https::certificate::WEBHOOK_METRICS;
use crate::memory::{MAX_MEMORY, memory_of};
use crate::reply::{Reply, ReplyError, truncated};
use crate::review::{self, AdmissionRequest, Decision, MutationDecision, Review};

/// The outcomes of requests that are not answered as the API server expects.
const FAILURES: [&str; 4] = ["error", "failed", "overloaded", "panic"];

/// Limit for the body of a request. The API server accepts objects of up to 3 MiB, of which an
/// admission review may contain two, and converts the objects of a list together.
pub(crate) const MAX_BODY_SIZE: usize = 16 * 1024 * 1024;

/// The part of each body that needs no other memory than its own: almost all reviews are smaller.
pub(crate) const SMALL_BODY_SIZE: usize = 16 * 1024;

/// Memory for the rest of the bodies of all requests together.
pub(crate) const MAX_BODIES_SIZE: usize = 2 * MAX_BODY_SIZE;

/// Number of requests that are processed concurrently. Each may take the memory of a large review,
/// and processing is CPU-bound, so more would not be faster.
const WORKERS: usize = 2;

/// Memory for the parsed requests of all mutations together, which mostly wait for responses.
const MUTATIONS_MEMORY: usize = MAX_MEMORY;

/// The least part of it for one: it limits the number of mutations that are processed concurrently.
const MIN_MUTATION_MEMORY: usize = MUTATIONS_MEMORY / 64;

/// How often a mutation has the object of its request in memory, with those before and after it.
const MUTATION_COPIES: usize = 6;

/// How long a mutation waits for its memory, which is a part of the time that the API server waits.
const MAX_MUTATION_WAIT: Duration = Duration::from_millis(500);

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

/// Decides on an admission request, and may send requests for it.
type Mutate = dyn Fn(Arc<AdmissionRequest>) -> BoxFuture<'static, MutationDecision> + Send + Sync;

/// What computes the replies of an endpoint.
enum Responder {
    /// On a blocking thread.
    Blocking(Arc<Respond>),
    /// In a task.
    Mutation(Arc<Mutate>),
}

/// The paths of webhooks and their handlers.
#[derive(Debug)]
pub struct Endpoints {
    router: Router,
    shared: Arc<Shared>,
}

/// State that all endpoints share.
#[derive(Debug)]
struct Shared {
    /// The bytes that further bodies can take.
    memory: Arc<Semaphore>,
    workers: Arc<Semaphore>,
    mutations: Arc<Semaphore>,
    log_limit: RepetitionLimit,
    reviews: Family<Labels, Counter>,
    seconds: Family<Path, Histogram>,
    in_flight: Gauge,
}

struct Endpoint {
    path: &'static str,
    responder: Responder,
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
            memory: Arc::new(Semaphore::new(MAX_BODIES_SIZE)),
            log_limit: RepetitionLimit::default(),
            workers: Arc::new(Semaphore::new(WORKERS)),
            mutations: Arc::new(Semaphore::new(MUTATIONS_MEMORY)),
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
        let respond = move |body: &[u8]| review::respond(body, &validate);
        self.add(path, Responder::Blocking(Arc::new(respond)))
    }

    /// Adds an endpoint for admission reviews that can change the object. `mutate` may send
    /// requests, and has to end before the API server stops waiting; it is completed if the client
    /// disconnects.
    #[must_use]
    pub fn mutate<F>(
        self,
        path: &'static str,
        mutate: impl Fn(Arc<AdmissionRequest>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = MutationDecision> + Send + 'static,
    {
        let mutate = move |request| mutate(request).boxed();
        self.add(path, Responder::Mutation(Arc::new(mutate)))
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
        let respond = move |body: &[u8]| conversion::respond(body, &convert);
        self.add(path, Responder::Blocking(Arc::new(respond)))
    }

    /// The router of all endpoints.
    pub fn router(self) -> Router {
        self.router
            .fallback(not_found)
            .method_not_allowed_fallback(method_not_allowed)
    }

    fn add(self, path: &'static str, responder: Responder) -> Self {
        // They exist before the first failure: an alert does not see an increase from nothing to
        // one.
        for outcome in FAILURES {
            drop(self.shared.reviews.get_or_create(&Labels { path, outcome }));
        }
        let endpoint = Arc::new(Endpoint {
            path,
            responder,
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
    measurement.outcome = match &answered {
        Ok(reply) => reply.outcome.as_str(),
        Err(rejection) => rejection.outcome,
    };
    span.record("outcome", measurement.outcome);
    match answered {
        Ok(reply) => ([(CONTENT_TYPE, "application/json")], reply.body).into_response(),
        Err(Rejection {
            status, message, ..
        }) => {
            debug!(path = endpoint.path, %status, message, "a request to a webhook was rejected");
            if status == StatusCode::TOO_MANY_REQUESTS {
                return (status, [(RETRY_AFTER, "1")], message).into_response();
            }
            (status, message).into_response()
        }
    }
}

/// An HTTP error response.
struct Rejection {
    status: StatusCode,
    outcome: &'static str,
    message: String,
}

impl Rejection {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let outcome = match status {
            StatusCode::TOO_MANY_REQUESTS => "overloaded",
            _ => "error",
        };
        Self {
            status,
            outcome,
            message: truncated(message.into()),
        }
    }

    fn too_long() -> Self {
        let message = format!("the body is too long; the length limit is {MAX_BODY_SIZE} bytes");
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
        let (body, memory) = self.read(request.into_body()).await?;
        match &self.responder {
            Responder::Blocking(respond) => {
                let respond = Arc::clone(respond);
                let result = self.run_blocking(memory, move || respond(&body)).await?;
                let reply = self.log_errors(result)?;
                self.log_failure(&reply);
                Ok(reply)
            }
            Responder::Mutation(mutate) => {
                let permits = self.mutation_permits(&body).await?;
                let parsed = self
                    .run_blocking(memory, move || Review::parse(&body))
                    .await?;
                let review = self.log_errors(parsed)?;
                let decision = mutate(Arc::clone(&review.request));
                // The task continues if the client cancels the request, so it owns the permits.
                let task = tokio::spawn(async move {
                    let _permits = permits;
                    decision.await
                });
                let decision = task.await.map_err(|error| self.bug(&error))?;
                self.log_errors(review.reply(Ok(decision)))
            }
        }
    }

    /// Runs a function on a blocking thread when its turn comes. `memory` is that of its input.
    async fn run_blocking<R: Send + 'static>(
        &self,
        memory: OwnedSemaphorePermit,
        run: impl FnOnce() -> R + Send + 'static,
    ) -> Result<R, Rejection> {
        // The semaphore is never closed.
        let worker = self.shared.workers.clone().acquire_owned().await;
        // The task continues if the client cancels the request, so it owns the permits.
        let task = tokio::task::spawn_blocking(move || {
            let _permits = (memory, worker);
            run()
        });
        task.await.map_err(|error| self.bug(&error))
    }

    fn bug(&self, error: &JoinError) -> Rejection {
        error!(path = self.path, %error, "a request to a webhook was not answered; this is a bug");
        let mut rejection = Rejection::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error");
        if error.is_panic() {
            rejection.outcome = "panic";
        }
        rejection
    }

    /// Waits for the memory of a mutation.
    async fn mutation_permits(&self, body: &[u8]) -> Result<OwnedSemaphorePermit, Rejection> {
        let bytes = memory_of(body).saturating_mul(MUTATION_COPIES);
        if bytes > MUTATIONS_MEMORY {
            let message = format!(
                "the request needs {bytes} bytes of memory when it is processed; the limit is {MUTATIONS_MEMORY} bytes"
            );
            return Err(Rejection::new(StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        let bytes = u32::try_from(bytes.max(MIN_MUTATION_MEMORY)).unwrap_or(u32::MAX);
        let permits = Arc::clone(&self.shared.mutations).acquire_many_owned(bytes);
        // The semaphore is never closed.
        match timeout(MAX_MUTATION_WAIT, permits).await {
            Ok(Ok(permits)) => Ok(permits),
            _ => {
                let message = "too many requests at the same time; retry later";
                Err(Rejection::new(StatusCode::TOO_MANY_REQUESTS, message))
            }
        }
    }

    /// Logs that objects cannot be converted, at a limited rate.
    fn log_failure(&self, reply: &Reply) {
        let Some(failure) = &reply.failure else {
            return;
        };
        let log_limit = &self.shared.log_limit;
        if let Some(suppressed) = log_limit.allow("failed", Instant::now()) {
            warn!(
                path = self.path,
                failure, suppressed, "cannot convert objects"
            );
        }
    }

    /// Logs errors of requests, at a limited rate since any client can cause them, and turns them
    /// into HTTP errors.
    fn log_errors<T>(&self, result: Result<T, ReplyError>) -> Result<T, Rejection> {
        let (path, shared) = (self.path, &self.shared);
        let error = match result {
            Ok(result) => return Ok(result),
            Err(error) => error,
        };
        let status = match error {
            ReplyError::Serialize { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            ReplyError::TooManyValues => StatusCode::PAYLOAD_TOO_LARGE,
            _ => StatusCode::BAD_REQUEST,
        };
        let rejection = Rejection::new(status, error.to_string());
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            error!(
                path,
                error = rejection.message,
                "cannot respond to a request to a webhook"
            );
        } else if let Some(suppressed) = shared.log_limit.allow("malformed", Instant::now()) {
            warn!(
                path,
                error = rejection.message,
                suppressed,
                "a request to a webhook is malformed"
            );
        }
        Err(rejection)
    }

    /// Reads a whole body. Returns it with the shared memory that it takes: that of what is beyond
    /// [`SMALL_BODY_SIZE`].
    async fn read(&self, body: Body) -> Result<(Vec<u8>, OwnedSemaphorePermit), Rejection> {
        if body.size_hint().lower() > MAX_BODY_SIZE as u64 {
            return Err(Rejection::too_long());
        }
        let mut memory = self.reserve(0)?;
        let (mut bytes, mut parts) = (Vec::new(), body.into_data_stream());
        while let Some(part) = parts.next().await {
            let part = part.map_err(|error| {
                let message = format!("the body cannot be read: {error}");
                Rejection::new(StatusCode::BAD_REQUEST, message)
            })?;
            if part.len() > MAX_BODY_SIZE - bytes.len() {
                return Err(Rejection::too_long());
            }
            bytes.extend_from_slice(&part);
            let shared = bytes.len().saturating_sub(SMALL_BODY_SIZE);
            memory.merge(self.reserve(shared - memory.num_permits())?);
        }
        Ok((bytes, memory))
    }

    /// Reserves memory for a part of a body, until the permit is dropped.
    fn reserve(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Rejection> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let memory = self.shared.memory.clone();
        memory.try_acquire_many_owned(bytes).map_err(|_| {
            if let Some(suppressed) = self.shared.log_limit.allow("overloaded", Instant::now()) {
                let path = self.path;
                warn!(
                    path,
                    suppressed, "rejecting requests to webhooks: their bodies take too much memory"
                );
            }
            let message = "the bodies of other requests take the memory; retry later";
            Rejection::new(StatusCode::TOO_MANY_REQUESTS, message)
        })
    }
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
