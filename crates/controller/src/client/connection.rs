//! The connections to the API server, and how a dead one is noticed.
//!
//! A connection can die without a word: a machine loses power, a router forgets it. Then it stays open, and nothing arrives.
//! One mechanism serves every user of a client, those in other crates included:
//!
//! - A call has to be answered within [`Patience::deadline`], head and body; a watch has to begin within it. The API server
//!   ends each watch at the time that the request names (`timeoutSeconds`), so one that is silent for 5 s longer is dead.
//! - Whatever took one connection took others too, and each of them would cost a call its deadline. So a call that was given
//!   up without an answer has all idle connections dropped: the next calls make new ones.
//! - The kernel probes idle connections (TCP keep-alive) and gives up those whose data are not acknowledged
//!   (`TCP_USER_TIMEOUT`), within 30 s.
//!
//! Go's client sends HTTP/2 pings, after 30 s of silence, and waits 15 s. A ping only proves that the other end of the
//! connection lives, which may be a load balancer, and that is not yet an answer: deadlines and limits of silence would be
//! needed all the same, and they notice sooner. So calls go over HTTP/1.1, each over a connection of its own while it
//! lasts. Over HTTP/2 all of them, watches included, would share one connection and one task that encrypts, and stand or
//! fall with it. How fast a controller writes did not differ measurably, with 32 calls at a time on two cores.

use std::fmt::{Debug, Formatter};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::{BoxFuture, select_ok};
use http::{Method, Request, Response};
use hyper::body::{Body as HttpBody, Bytes, Frame, Incoming, SizeHint};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::{Connect, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::{Client, Config};
use tokio::time::{sleep, Sleep, timeout};
use tower::util::MapRequestLayer;
use tower::{BoxError, Service, ServiceBuilder};
use tracing::{trace, warn};

use super::{add_timeout_param, REQUEST_TIMEOUT};

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// After how much silence the kernel probes a connection, and how often it does so before it gives it up.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
const KEEPALIVE_RETRIES: u32 = 3;

/// How long sent data may stay unacknowledged.
#[cfg(target_os = "linux")]
const USER_TIMEOUT: Duration = Duration::from_secs(30);

/// How much longer than the API server was asked to watch a watch may be silent.
const WATCH_MARGIN: Duration = Duration::from_secs(5);

/// After how much silence a watch that is dropped counts as dead. It may have been asked to last longer.
const SUSPICIOUS_SILENCE: Duration = Duration::from_secs(30);

/// How long a watch lasts when the request does not say: as long as the API server likes, which is an hour at most.
const MAX_WATCH_DURATION: Duration = Duration::from_hours(1);

/// How long answers of the API server are waited for.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How long a call may take.
    pub deadline: Duration,
    /// Whether a read that has no answer after half of its deadline is sent once more, over a new connection. Whichever
    /// answer is first counts.
    pub repeats_reads: bool,
}

impl Default for Patience {
    fn default() -> Self {
        Self { deadline: REQUEST_TIMEOUT, repeats_reads: false }
    }
}

/// The connection seems to be dead, or the API server is too slow.
#[derive(Debug, thiserror::Error)]
#[error("no answer from the API server within {0:?}")]
struct NoAnswer(Duration);

/// A client for the API server that `config` names.
pub(super) fn client(config: &Config, patience: Patience) -> kube::Result<Client> {
    if let Some(proxy) = &config.proxy_url {
        let socks = proxy.scheme_str() == Some("socks5");
        let protocol_feature = if socks { "kube/socks5" } else { "kube/http-proxy" };
        return Err(kube::Error::ProxyProtocolDisabled { proxy_url: Box::new(proxy.clone()), protocol_feature });
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
        .layer(MapRequestLayer::new(move |request| add_timeout_param(request, patience.deadline)))
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .service(Transport { pool: Arc::new(Pool::new(connector)), patience });
    Ok(ClientBuilder::new(service, config.default_namespace.clone()).build())
}

/// The idle connections, and how more of them are made.
struct Pool<C> {
    connector: C,
    current: Mutex<Current<C>>,
}

struct Current<C> {
    http: HttpClient<C, Body>,
    since: Instant,
}

impl<C: Connect + Clone + Send + Sync + 'static> Pool<C> {
    fn new(connector: C) -> Self {
        let current = Mutex::new(Current { http: http_client(connector.clone()), since: Instant::now() });
        Self { connector, current }
    }

    fn http(&self) -> HttpClient<C, Body> {
        self.lock().http.clone()
    }

    /// Drops all idle connections, unless that has been done since `asked`.
    fn give_up(&self, asked: Instant) {
        let mut current = self.lock();
        if current.since > asked {
            return;
        }
        *current = Current { http: http_client(self.connector.clone()), since: Instant::now() };
        drop(current);
        warn!(waited = ?asked.elapsed(), "no answer from the API server; connecting to it again");
    }

    fn lock(&self) -> MutexGuard<'_, Current<C>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn http_client<C: Connect + Clone>(connector: C) -> HttpClient<C, Body> {
    HttpClient::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector)
}

/// Sends requests and bounds the time until they are answered.
struct Transport<C> {
    pool: Arc<Pool<C>>,
    patience: Patience,
}

impl<C> Clone for Transport<C> {
    fn clone(&self) -> Self {
        Self { pool: Arc::clone(&self.pool), patience: self.patience }
    }
}

impl<C: Connect + Clone + Send + Sync + 'static> Service<Request<Body>> for Transport<C> {
    type Response = Response<Answer<C>>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let pool = Arc::clone(&self.pool);
        let Patience { deadline, repeats_reads } = self.patience;
        let again = if repeats_reads { clone_read(&request) } else { None };
        let Some(again) = again else { return send(pool, deadline, request).boxed() };
        async move {
            let (asked, half) = (Instant::now(), deadline / 2);
            let mut first = send(Arc::clone(&pool), deadline, request).boxed();
            if let Ok(answer) = timeout(half, &mut first).await {
                return answer;
            }
            pool.give_up(asked);
            let second = send(pool, half, again).boxed();
            select_ok([first, second]).await.map(|(answer, _)| answer)
        }
        .boxed()
    }
}

/// A second request, where the first is a read and no watch.
fn clone_read(request: &Request<Body>) -> Option<Request<Body>> {
    if request.method() != Method::GET || watch_timeout(request).is_some() {
        return None;
    }
    let mut copy = Request::new(request.body().try_clone()?);
    copy.uri_mut().clone_from(request.uri());
    copy.headers_mut().clone_from(request.headers());
    Some(copy)
}

/// For how long the API server is asked to watch; `None` when the request is no watch.
fn watch_timeout(request: &Request<Body>) -> Option<Duration> {
    let mut pairs = request.uri().query().unwrap_or_default().split('&');
    if !pairs.clone().any(|pair| pair == "watch=true" || pair == "watch=1") {
        return None;
    }
    let seconds = pairs.find_map(|pair| pair.strip_prefix("timeoutSeconds=")?.parse().ok());
    Some(seconds.map_or(MAX_WATCH_DURATION, Duration::from_secs))
}

async fn send<C: Connect + Clone + Send + Sync + 'static>(
    pool: Arc<Pool<C>>,
    deadline: Duration,
    request: Request<Body>,
) -> Result<Response<Answer<C>>, BoxError> {
    let http = pool.http();
    let asked = tracing::enabled!(tracing::Level::TRACE).then(|| format!("{} {}", request.method(), request.uri()));
    let silence = watch_timeout(&request).map(|watch| watch.saturating_add(WATCH_MARGIN));
    let mut pending = Pending { pool, since: Instant::now(), limit: deadline, is_over: false };
    let answer = timeout(deadline, http.request(request)).await;
    trace!(asked, took = ?pending.since.elapsed(), answered = answer.is_ok(), "request");
    let Ok(answer) = answer else { return Err(NoAnswer(deadline).into()) };
    if answer.is_err() {
        // It broke, which is an answer too.
        pending.is_over = true;
    }
    if let Some(silence) = silence {
        (pending.since, pending.limit) = (Instant::now(), silence);
    }
    Ok(answer?.map(|body| Answer { body, pending, timer: None, is_watch: silence.is_some() }))
}

/// An answer that is not complete. When it is dropped before it is, after most of its time is over, the connections are
/// given up: the caller may have a shorter deadline.
struct Pending<C: Connect + Clone + Send + Sync + 'static> {
    pool: Arc<Pool<C>>,
    /// When it was asked for; of a watch, when something was last heard.
    since: Instant,
    limit: Duration,
    is_over: bool,
}

impl<C: Connect + Clone + Send + Sync + 'static> Drop for Pending<C> {
    fn drop(&mut self) {
        // Nine tenths: a caller whose deadline is the same is faster by a hair.
        let suspicious = SUSPICIOUS_SILENCE.min(self.limit / 10 * 9);
        if !self.is_over && self.since.elapsed() >= suspicious {
            self.pool.give_up(self.since);
        }
    }
}

/// The body of an answer, which fails when it does not arrive in time.
struct Answer<C: Connect + Clone + Send + Sync + 'static> {
    body: Incoming,
    pending: Pending<C>,
    /// Only made when the body has to be waited for; most bodies arrive with the head.
    timer: Option<Pin<Box<Sleep>>>,
    is_watch: bool,
}

impl<C: Connect + Clone + Send + Sync + 'static> HttpBody for Answer<C> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            if !matches!(frame, Some(Ok(_))) {
                this.pending.is_over = true;
            } else if this.is_watch {
                this.pending.since = Instant::now();
                if let Some(timer) = &mut this.timer {
                    timer.as_mut().reset(tokio::time::Instant::now() + this.pending.limit);
                }
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        if this.pending.is_over {
            return Poll::Ready(None);
        }
        let Pending { since, limit, .. } = this.pending;
        let timer = || Box::pin(sleep(limit.saturating_sub(since.elapsed())));
        ready!(this.timer.get_or_insert_with(timer).as_mut().poll(context));
        this.pending.is_over = true;
        this.pending.pool.give_up(this.pending.since);
        Poll::Ready(Some(Err(NoAnswer(this.pending.limit).into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<C: Connect + Clone + Send + Sync + 'static> Debug for Answer<C> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Answer")
    }
}

#[cfg(test)]
mod tests;
