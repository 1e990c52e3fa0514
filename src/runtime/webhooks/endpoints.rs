//! The paths of webhooks: what is asked there is read, answered and counted.
//!
//! All requests together hold [`MOST_MEMORY`] of bodies at most; who comes later waits, in order. Answers are made on
//! threads of their own, so that one that takes long holds up neither the others nor the TLS handshakes.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::{Bytes, HttpBody};
use axum::extract::{DefaultBodyLimit, FromRequest, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use tokio::sync::Semaphore;
use tracing::{debug, error, warn};

use super::answer::{Answer, AnswerError};
use super::conversion::{self, Converter};
use super::review::{self, Reviewer};
use crate::runtime::metrics::Metrics;

/// The longest review of an object. The API server takes objects of up to 3 MiB, and a review may hold two.
pub const MOST_REVIEW: usize = 8 * 1024 * 1024;

/// The longest review of a conversion. A list is converted in one, with up to 10,000 objects.
pub const MOST_CONVERSION: usize = 64 * 1024 * 1024;

/// How much the bodies of all requests under way hold at most.
pub const MOST_MEMORY: usize = MOST_CONVERSION;

/// Answers that are made at the same time. There is little to wait for, so more would not make it faster.
const WORKERS: usize = 16;

/// Memory is given out in units of so many bytes. No request takes less.
const UNIT: u64 = 4096;

/// Makes an answer of a body.
type Respond = dyn Fn(&[u8]) -> Result<Answer, AnswerError> + Send + Sync;

/// Paths with what answers there.
#[derive(Debug)]
pub struct Endpoints {
    router: Router,
    shared: Arc<Shared>,
}

/// What all paths have in common.
#[derive(Debug)]
struct Shared {
    memory: Arc<Semaphore>,
    workers: Arc<Semaphore>,
    reviews: Family<Labels, Counter>,
    seconds: Family<Path, Histogram>,
    in_flight: Gauge,
}

struct Endpoint {
    path: &'static str,
    most: usize,
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
    /// No paths yet. What is asked will be counted in `metrics`.
    pub fn new(metrics: &Metrics) -> Self {
        let buckets =
            || Histogram::new([0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0]);
        let shared = Shared {
            memory: Arc::new(Semaphore::new(WHOLE as usize)),
            workers: Arc::new(Semaphore::new(WORKERS)),
            reviews: Family::default(),
            seconds: Family::new_with_constructor(buckets),
            in_flight: Gauge::default(),
        };
        let reviews = "Requests to webhooks, by what became of them";
        metrics.register("webhook_reviews", reviews, shared.reviews.clone());
        let seconds = "How long requests to webhooks took, with waiting and reading";
        metrics.register("webhook_review_duration_seconds", seconds, shared.seconds.clone());
        let in_flight = "Requests to webhooks that are not answered yet";
        metrics.register("webhook_reviews_in_flight", in_flight, shared.in_flight.clone());
        Self { router: Router::new(), shared: Arc::new(shared) }
    }

    /// Has `reviewer` decide at that path whether objects may be written.
    #[must_use]
    pub fn review(self, path: &'static str, reviewer: impl Reviewer) -> Self {
        self.add(path, MOST_REVIEW, Arc::new(move |body: &[u8]| review::answer(body, &reviewer)))
    }

    /// Has `converter` convert objects at that path.
    #[must_use]
    pub fn convert(self, path: &'static str, converter: impl Converter) -> Self {
        self.add(path, MOST_CONVERSION, Arc::new(move |body: &[u8]| conversion::answer(body, &converter)))
    }

    /// All paths, to be served.
    pub fn router(self) -> Router {
        self.router.fallback(nothing_here).method_not_allowed_fallback(only_post)
    }

    fn add(self, path: &'static str, most: usize, respond: Arc<Respond>) -> Self {
        let endpoint = Arc::new(Endpoint { path, most, respond, shared: self.shared.clone() });
        let route = post(handle).with_state(endpoint).layer(DefaultBodyLimit::max(most));
        Self { router: self.router.route(path, route), shared: self.shared }
    }
}

async fn nothing_here(uri: Uri) -> (StatusCode, String) {
    (StatusCode::NOT_FOUND, format!("there is no webhook at {}", uri.path()))
}

async fn only_post(method: Method) -> (StatusCode, String) {
    (StatusCode::METHOD_NOT_ALLOWED, format!("webhooks are asked with POST, not with {method}"))
}

async fn handle(State(endpoint): State<Arc<Endpoint>>, request: Request) -> Response {
    let mut count = Count::begin(&endpoint);
    match endpoint.answer(request).await {
        Ok(answer) => {
            count.outcome = answer.outcome.as_str();
            ([(CONTENT_TYPE, "application/json")], answer.body).into_response()
        }
        Err((status, text)) => {
            debug!(path = endpoint.path, %status, text, "a request to a webhook is turned down");
            (status, text).into_response()
        }
    }
}

impl Endpoint {
    async fn answer(&self, request: Request) -> Result<Answer, (StatusCode, String)> {
        let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json") {
            let text = format!("the content type must be application/json, not {kind:?}");
            return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
        }
        // A body without a length is given room for the longest.
        let most = self.most as u64;
        let length = request.body().size_hint().upper().unwrap_or(most);
        if length > most {
            let text = format!("the body is too long: {length} bytes; it may have {most}");
            return Err((StatusCode::PAYLOAD_TOO_LARGE, text));
        }
        let units = u32::try_from(length / UNIT + 1).unwrap_or(u32::MAX).min(WHOLE);
        let memory = self.shared.memory.clone().acquire_many_owned(units).await.map_err(closed)?;
        let body = Bytes::from_request(request, &());
        let body = body.await.map_err(|rejection| (rejection.status(), rejection.body_text()))?;
        let worker = self.shared.workers.clone().acquire_owned().await.map_err(closed)?;
        let (path, respond) = (self.path, self.respond.clone());
        // Should the request be given up meanwhile, the work goes on, and what it takes stays taken.
        let work = tokio::task::spawn_blocking(move || {
            let _held = (memory, worker);
            respond(&body)
        });
        match work.await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error @ AnswerError::Unwritable { .. })) => {
                error!(path, %error, "a request to a webhook cannot be answered");
                Err((StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
            }
            Ok(Err(error)) => {
                warn!(path, %error, "a request to a webhook cannot be understood");
                Err((StatusCode::BAD_REQUEST, error.to_string()))
            }
            Err(error) => {
                error!(path, %error, "a request to a webhook was not answered");
                Err((StatusCode::INTERNAL_SERVER_ERROR, "a bug in this program".to_owned()))
            }
        }
    }
}

/// All memory there is.
#[expect(clippy::cast_possible_truncation, reason = "it is a small number")]
const WHOLE: u32 = (MOST_MEMORY as u64 / UNIT) as u32;

/// Semaphores are closed when the program ends.
fn closed(_: tokio::sync::AcquireError) -> (StatusCode, String) {
    (StatusCode::SERVICE_UNAVAILABLE, "the program ends".to_owned())
}

/// Counts a request at its end, also when it is broken off.
struct Count<'a> {
    endpoint: &'a Endpoint,
    started: Instant,
    outcome: &'static str,
}

impl<'a> Count<'a> {
    fn begin(endpoint: &'a Endpoint) -> Self {
        endpoint.shared.in_flight.inc();
        Self { endpoint, started: Instant::now(), outcome: "error" }
    }
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        let (path, shared) = (self.endpoint.path, &self.endpoint.shared);
        shared.in_flight.dec();
        shared.reviews.get_or_create(&Labels { path, outcome: self.outcome }).inc();
        shared.seconds.get_or_create(&Path { path }).observe(self.started.elapsed().as_secs_f64());
    }
}
