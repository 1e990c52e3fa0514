//! The paths of webhooks: what is asked there is read, answered and counted.
//!
//! Anybody who reaches the port can ask, so what requests cost together is bounded. Short ones, which nearly all are,
//! share [`SMALL_BODIES`] of memory, and eight of them are answered at a time. Of long ones, and of short ones that
//! become large when they are read, [`LARGE_AT_ONCE`] are read and answered at a time. Others wait without their body
//! being read, in order, and when too many wait, requests are turned down with 429 at once; the API server tries again.
//! Answers are made on threads of their own, so that one that takes long holds up neither the others nor the TLS
//! handshakes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use capi_ipam_controller::metrics::Metrics;
use futures::StreamExt;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::{debug, error, warn};

use crate::answer::{Reply, ReplyError, shortened};
use crate::capacity::{Capacity, Full};
use crate::conversion::{self, Converter};
use crate::log_limit::LogLimit;
use crate::memory::exceeds;
use crate::review::{self, Validator};

/// The longest review of an object. The API server takes objects of up to 3 MiB, and a review may hold two.
pub const MAX_REVIEW_SIZE: usize = 8 * 1024 * 1024;

/// The longest review of a conversion. The API server has stored objects converted one by one; this is room for lists.
pub const MOST_CONVERSION: usize = 16 * 1024 * 1024;

/// The longest body of a short request. The review of a pool with a few addresses has 3 KiB.
pub const MAX_SMALL_BODY: usize = 64 * 1024;

/// What the bodies of all short requests hold at most.
pub const SMALL_BODIES: usize = 16 * 1024 * 1024;

/// Long requests that are read and answered at the same time.
pub const LARGE_AT_ONCE: usize = 2;

/// Short requests that wait for memory.
pub const MAX_SMALL_WAITING: usize = 256;

/// Long requests that wait for their turn.
pub const MAX_LARGE_WAITING: usize = 16;

/// What a short request may become when it is read. One that becomes more is treated as a long one.
const MAX_SMALL_MEMORY: usize = 1024 * 1024;

/// How long the body of a long request may take to arrive. It comes from a machine nearby.
const LARGE_BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// Answers that are made at the same time. There is little to wait for, so more would not make it faster.
const WORKERS: usize = 8;

/// Memory is given out in units of so many bytes. No request takes less.
const UNIT: usize = 4096;

/// Makes an answer of a body.
type Respond = dyn Fn(&[u8]) -> Result<Reply, ReplyError> + Send + Sync;

/// Paths with what answers there.
#[derive(Debug)]
pub struct Endpoints {
    router: Router,
    shared: Arc<Shared>,
}

/// What all paths have in common.
#[derive(Debug)]
struct Shared {
    small: Capacity,
    large: Capacity,
    workers: Arc<Semaphore>,
    /// Of lines about requests that cannot be understood, converted or taken.
    logs: [LogLimit; 3],
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
            small: Capacity::new(SMALL_BODIES / UNIT, MAX_SMALL_WAITING),
            large: Capacity::new(LARGE_AT_ONCE, MAX_LARGE_WAITING),
            logs: Default::default(),
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
    pub fn review(self, path: &'static str, reviewer: impl Validator) -> Self {
        self.add(path, MAX_REVIEW_SIZE, Arc::new(move |body: &[u8]| review::answer(body, &reviewer)))
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
        let route = post(handle).with_state(endpoint);
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
        Err(Rejection { status, text }) => {
            debug!(path = endpoint.path, %status, text, "a request to a webhook is turned down");
            if status == StatusCode::TOO_MANY_REQUESTS {
                count.outcome = "overloaded";
                return (status, [(RETRY_AFTER, "1")], text).into_response();
            }
            (status, text).into_response()
        }
    }
}

/// Why a request is not answered.
struct Rejection {
    status: StatusCode,
    text: String,
}

impl Rejection {
    fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: shortened(text.into()) }
    }

    fn too_long(most: usize, length: impl std::fmt::Display) -> Self {
        let text = format!("the body is too long: {length}; the length limit is {most} bytes");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, text)
    }
}

impl Endpoint {
    async fn answer(&self, request: Request) -> Result<Reply, Rejection> {
        let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json") {
            let text = format!("the content type must be application/json, not {kind:?}");
            return Err(Rejection::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
        }
        // A body without a length is given room for the longest.
        let declared = request.body().size_hint().upper().unwrap_or(self.most as u64);
        let length = usize::try_from(declared).unwrap_or(usize::MAX);
        if length > self.most {
            return Err(Rejection::too_long(self.most, format_args!("{declared} bytes")));
        }
        let is_large = length > MAX_SMALL_BODY;
        let shared = &self.shared;
        let (room, body) = if is_large {
            let room = shared.large.take(1).await.map_err(|full| self.overloaded(full))?;
            let body = timeout(LARGE_BODY_TIMEOUT, read(request.into_body(), length)).await;
            let late = format!("the body did not arrive within {LARGE_BODY_TIMEOUT:?}");
            (room, body.map_err(|_| Rejection::new(StatusCode::REQUEST_TIMEOUT, late))??)
        } else {
            let units = u32::try_from(length / UNIT + 1).unwrap_or(u32::MAX);
            let room = shared.small.take(units).await.map_err(|full| self.overloaded(full))?;
            (room, read(request.into_body(), length).await?)
        };
        let turn = if is_large {
            None
        } else if exceeds(&body, MAX_SMALL_MEMORY) {
            Some(shared.large.take(1).await.map_err(|full| self.overloaded(full))?)
        } else {
            let closed = |_| Rejection::new(StatusCode::SERVICE_UNAVAILABLE, "the program ends");
            Some(shared.workers.clone().acquire_owned().await.map_err(closed)?)
        };
        let respond = self.respond.clone();
        // Should the request be given up meanwhile, the work goes on, and what it takes stays taken.
        let work = tokio::task::spawn_blocking(move || {
            let _held = (room, turn);
            respond(&body)
        });
        match work.await {
            Ok(answered) => self.judge(answered),
            Err(error) => {
                error!(path = self.path, %error, "a request to a webhook was not answered");
                Err(Rejection::new(StatusCode::INTERNAL_SERVER_ERROR, "a bug in this program"))
            }
        }
    }

    /// Writes to the log what is wrong with a request, but not for each of them: anybody can send such requests.
    fn judge(&self, answered: Result<Reply, ReplyError>) -> Result<Reply, Rejection> {
        let [unreadable, unconverted, _] = &self.shared.logs;
        let path = self.path;
        let error = match answered {
            Ok(answer) => {
                if let Some(failure) = &answer.failure
                    && let Some(left_out) = unconverted.pass(Instant::now())
                {
                    warn!(path, failure, left_out, "objects cannot be converted");
                }
                return Ok(answer);
            }
            Err(error) => error,
        };
        let status = match error {
            ReplyError::Unwritable { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            ReplyError::TooManyValues { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            _ => StatusCode::BAD_REQUEST,
        };
        let rejection = Rejection::new(status, error.to_string());
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            error!(path, error = rejection.text, "a request to a webhook cannot be answered");
        } else if let Some(left_out) = unreadable.pass(Instant::now()) {
            warn!(path, error = rejection.text, left_out, "a request to a webhook cannot be understood");
        }
        Err(rejection)
    }

    fn overloaded(&self, _: Full) -> Rejection {
        let [.., overloaded] = &self.shared.logs;
        if let Some(left_out) = overloaded.pass(Instant::now()) {
            warn!(path = self.path, left_out, "requests to webhooks are turned down: too many wait already");
        }
        Rejection::new(StatusCode::TOO_MANY_REQUESTS, "too many requests wait already; try again in a moment")
    }
}

/// The whole body, of that length at most.
async fn read(body: Body, most: usize) -> Result<Vec<u8>, Rejection> {
    let (mut bytes, mut parts) = (Vec::with_capacity(most), body.into_data_stream());
    while let Some(part) = parts.next().await {
        let broken = |error| Rejection::new(StatusCode::BAD_REQUEST, format!("the body cannot be read: {error}"));
        let part = part.map_err(broken)?;
        if part.len() > most - bytes.len() {
            return Err(Rejection::too_long(most, "length limit exceeded"));
        }
        bytes.extend_from_slice(&part);
    }
    Ok(bytes)
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
