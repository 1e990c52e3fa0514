//! The connections to the API server, and the detection of dead ones.
//!
//! A connection can die without notice, for example when a machine loses power or a router drops
//! its state. The socket then stays open, and nothing arrives. This transport handles it for every
//! user of the client:
//!
//! - A request must be answered within [`RequestPolicy::timeout`], including its body; a watch must
//!   begin within it. The API server ends a watch after the requested time (`timeoutSeconds`), so a
//!   watch that is silent for 5 s longer is dead.
//! - If one connection is dead, others probably are too, and each would cost a request its timeout.
//!   So after a request without an answer all idle connections are dropped, and the next requests
//!   open new ones.
//! - The kernel probes idle connections (TCP keep-alive) and closes those whose data are not
//!   acknowledged (`TCP_USER_TIMEOUT`), within 30 s.
//!
//! Go's client sends HTTP/2 pings after 30 s of silence and waits 15 s. A ping only proves that the
//! peer is alive, which may be a load balancer; timeouts would still be needed, and they detect a
//! dead connection earlier. So this client uses HTTP/1.1 with one connection for each request in
//! flight. With HTTP/2 all requests and watches would share one connection, with one TLS task, and
//! fail together. The write throughput of a controller did not differ measurably, with 32
//! concurrent requests on two cores.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::{BoxFuture, select_ok};
use http::{Method, Request, Response};
use hyper::body::{Body as HttpBody, Bytes, Frame, Incoming, SizeHint};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::{Client, Config};
use parking_lot::Mutex;
use tokio::time::{Sleep, sleep, timeout};
use tower::util::MapRequestLayer;
use tower::{BoxError, Service, ServiceBuilder};
use tracing::{trace, warn};

use super::{REQUEST_TIMEOUT, add_timeout_param};
use crate::clock;
use crate::metrics::{RequestMetrics, is_watch, parse};

/// Limit for opening a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Idle time after which the kernel probes a connection, and the interval and number of probes.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;

/// Limit for sent data to be acknowledged.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// Silence that a watch may add to its requested duration.
const WATCH_MARGIN: Duration = Duration::from_secs(5);

/// Duration of a watch if the request has none. The API server chooses it, at most an hour.
const MAX_WATCH_DURATION: Duration = Duration::from_hours(1);

/// Timeout and retries of the requests of a client.
#[derive(Clone, Copy, Debug)]
pub struct RequestPolicy {
    /// How long a request may take.
    pub timeout: Duration,
    /// Sends a read again over a new connection when half of its timeout is over. The first answer
    /// counts.
    pub retry_reads: bool,
}

impl Default for RequestPolicy {
    fn default() -> Self {
        Self {
            timeout: REQUEST_TIMEOUT,
            retry_reads: false,
        }
    }
}

/// The connection is probably dead, or the API server is overloaded.
#[derive(Debug, thiserror::Error)]
#[error("no answer from the API server within {0:?}")]
struct NoAnswer(Duration);

/// Creates a client for the API server of `config`.
pub(super) fn client(
    config: &Config,
    policy: RequestPolicy,
    metrics: RequestMetrics,
) -> kube::Result<Client> {
    if let Some(proxy) = &config.proxy_url {
        let socks = proxy.scheme_str() == Some("socks5");
        let protocol_feature = if socks {
            "kube/socks5"
        } else {
            "kube/http-proxy"
        };
        // The URL can contain a password, and the error shows it.
        let address = super::address_of(proxy).parse().unwrap_or_default();
        return Err(kube::Error::ProxyProtocolDisabled {
            proxy_url: Box::new(address),
            protocol_feature,
        });
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE_INTERVAL));
    tcp.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(USER_TIMEOUT));
    let connector = config.rustls_https_connector_with_connector(tcp)?;
    let service = ServiceBuilder::new()
        .layer(MapRequestLayer::new(move |request| {
            add_timeout_param(request, policy.timeout)
        }))
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .service(Transport {
            pool: Arc::new(Pool {
                current: Mutex::new(Current::new(&connector)),
                connector,
            }),
            policy,
            metrics,
        });
    Ok(ClientBuilder::new(service, config.default_namespace.clone()).build())
}

type Connector = HttpsConnector<HttpConnector>;

/// The idle connections, and the connector that opens new ones.
struct Pool {
    connector: Connector,
    current: Mutex<Current>,
}

struct Current {
    http: HttpClient<Connector, Body>,
    since: Instant,
}

impl Current {
    fn new(connector: &Connector) -> Self {
        let mut http = HttpClient::builder(TokioExecutor::new());
        http.pool_timer(TokioTimer::new());
        Self {
            http: http.build(connector.clone()),
            since: Instant::now(),
        }
    }
}

impl Pool {
    /// Drops all idle connections, unless that was done after `sent`.
    fn reset(&self, sent: Instant) {
        let mut current = self.current.lock();
        if current.since > sent {
            return;
        }
        *current = Current::new(&self.connector);
        drop(current);
        let seconds = sent.elapsed().as_secs();
        warn!(
            seconds,
            "the API server was silent; opening new connections"
        );
    }
}

/// Sends requests and limits the time until they are answered.
#[derive(Clone)]
struct Transport {
    pool: Arc<Pool>,
    policy: RequestPolicy,
    metrics: RequestMetrics,
}

impl Service<Request<Body>> for Transport {
    type Response = Response<ResponseBody>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let pool = Arc::clone(&self.pool);
        let RequestPolicy {
            timeout: limit,
            retry_reads,
        } = self.policy;
        let retry = if retry_reads {
            clone_read(&request)
        } else {
            None
        };
        let (metrics, labels, sent) = (
            self.metrics.clone(),
            parse(request.method(), request.uri()),
            Instant::now(),
        );
        let measured = move |response: Result<Self::Response, BoxError>| {
            if let Ok(response) = &response {
                clock::observe(response.headers());
            }
            let code = response
                .as_ref()
                .ok()
                .map(|response| response.status().as_u16());
            metrics.record(labels, code, sent.elapsed());
            response
        };
        let Some(retry) = retry else {
            return send(pool, limit, request).map(measured).boxed();
        };
        async move {
            let half = limit / 2;
            let mut first = send(Arc::clone(&pool), limit, request).boxed();
            if let Ok(response) = timeout(half, &mut first).await {
                return response;
            }
            pool.reset(sent);
            let second = send(pool, half, retry).boxed();
            select_ok([first, second])
                .await
                .map(|(response, _)| response)
        }
        .map(measured)
        .boxed()
    }
}

/// Copies a request that is a read and no watch.
fn clone_read(request: &Request<Body>) -> Option<Request<Body>> {
    if request.method() != Method::GET || watch_timeout(request).is_some() {
        return None;
    }
    let mut copy = Request::new(request.body().try_clone()?);
    copy.uri_mut().clone_from(request.uri());
    copy.headers_mut().clone_from(request.headers());
    Some(copy)
}

/// The requested duration of a watch; `None` if the request is no watch.
fn watch_timeout(request: &Request<Body>) -> Option<Duration> {
    if !is_watch(request.uri()) {
        return None;
    }
    let mut pairs = request.uri().query().unwrap_or_default().split('&');
    let seconds = pairs.find_map(|pair| pair.strip_prefix("timeoutSeconds=")?.parse().ok());
    Some(seconds.map_or(MAX_WATCH_DURATION, Duration::from_secs))
}

async fn send(
    pool: Arc<Pool>,
    limit: Duration,
    request: Request<Body>,
) -> Result<Response<ResponseBody>, BoxError> {
    let http = pool.current.lock().http.clone();
    let line = tracing::enabled!(tracing::Level::TRACE)
        .then(|| format!("{} {}", request.method(), request.uri()));
    let silence = watch_timeout(&request).map(Silence::of_watch);
    let mut pending = Pending {
        pool,
        since: Instant::now(),
        // The caller may have a slightly shorter timeout.
        silence: Silence {
            limit,
            suspicious: limit / 10 * 9,
        },
        is_over: false,
    };
    let response = timeout(limit, http.request(request)).await;
    trace!(request = line, took = ?pending.since.elapsed(), answered = response.is_ok(), "request");
    let Ok(response) = response else {
        return Err(NoAnswer(limit).into());
    };
    if response.is_err() {
        // The connection failed: it is not a silent one.
        pending.is_over = true;
    }
    if let Some(silence) = silence {
        (pending.since, pending.silence) = (Instant::now(), silence);
    }
    Ok(response?.map(|body| ResponseBody {
        body,
        pending,
        timer: None,
        is_watch: silence.is_some(),
    }))
}

/// How long nothing may arrive.
#[derive(Clone, Copy)]
struct Silence {
    /// After this time, the connection is dead.
    limit: Duration,
    /// After this time, it is probably dead if the caller drops the response.
    suspicious: Duration,
}

impl Silence {
    /// Of a watch that the API server ends after `duration`. Without changes it is silent until
    /// then, so a reader that ends it before says nothing about its connection.
    fn of_watch(duration: Duration) -> Self {
        Self {
            limit: duration.saturating_add(WATCH_MARGIN),
            suspicious: duration.saturating_add(WATCH_MARGIN / 2),
        }
    }
}

/// A response that is not complete. Resets the connections if it is dropped after a suspicious
/// silence.
struct Pending {
    pool: Arc<Pool>,
    /// When the request was sent; for a watch, when data last arrived.
    since: Instant,
    silence: Silence,
    is_over: bool,
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.is_over && self.since.elapsed() >= self.silence.suspicious {
            self.pool.reset(self.since);
        }
    }
}

/// The body of a response. Fails if it does not arrive in time.
struct ResponseBody {
    body: Incoming,
    pending: Pending,
    /// Created on the first wait for the body; most bodies arrive with the head.
    timer: Option<Pin<Box<Sleep>>>,
    is_watch: bool,
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            if !matches!(frame, Some(Ok(_))) {
                this.pending.is_over = true;
            } else if this.is_watch {
                this.pending.since = Instant::now();
                if let Some(timer) = &mut this.timer {
                    timer
                        .as_mut()
                        .reset(tokio::time::Instant::now() + this.pending.silence.limit);
                }
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        if this.pending.is_over {
            return Poll::Ready(None);
        }
        let Pending { since, silence, .. } = this.pending;
        let timer = || Box::pin(sleep(silence.limit.saturating_sub(since.elapsed())));
        ready!(this.timer.get_or_insert_with(timer).as_mut().poll(context));
        this.pending.is_over = true;
        this.pending.pool.reset(this.pending.since);
        Poll::Ready(Some(Err(NoAnswer(silence.limit).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
