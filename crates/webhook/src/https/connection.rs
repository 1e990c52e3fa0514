//! One connection: handshake, requests, end.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use futures::FutureExt;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::{service_fn, ServiceExt};
use tracing::{debug, error};

use super::Limits;

/// Requests on one HTTP/2 connection at the same time, as Go's servers have it.
const STREAMS: u32 = 250;

/// What a client may send on an HTTP/2 connection before it is read, on one stream and on all.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 512 * 1024;

/// The headers of one request.
const HEADERS: u32 = 16 * 1024;

/// How often a connection is looked at, whether it is idle.
const TICK: Duration = Duration::from_secs(1);

/// What all connections of a server have in common.
pub(super) struct Shared {
    acceptor: TlsAcceptor,
    http: Builder<TokioExecutor>,
    router: Router,
    limits: Limits,
    requests: Semaphore,
    stop: CancellationToken,
}

impl Shared {
    pub(super) fn new(tls: Arc<ServerConfig>, router: Router, limits: Limits, stop: CancellationToken) -> Self {
        let mut http = Builder::new(TokioExecutor::new());
        // That headers come in time is the matter of `Activity`: hyper's own timer would count idle time too.
        http.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(64 * 1024);
        http.http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(HEADERS);
        let requests = Semaphore::new(limits.requests);
        Self { acceptor: tls.into(), http, router, limits, requests, stop }
    }

    /// Serves one connection to its end. `full` says whether there are as many connections as there may be.
    pub(super) async fn serve(self: Arc<Self>, stream: TcpStream, full: impl Fn() -> bool) {
        // Answers are small, and each is wanted at once.
        let _ = stream.set_nodelay(true);
        let handshake = timeout(self.limits.handshake, self.acceptor.accept(stream));
        let stream = match self.stop.run_until_cancelled(handshake).await {
            Some(Ok(Ok(stream))) => stream,
            Some(Ok(Err(error))) => return debug!(%error, "no TLS handshake"),
            Some(Err(_)) => return debug!("the TLS handshake took too long"),
            None => return,
        };
        let activity = Arc::new(Activity::default());
        let service = {
            let (shared, activity) = (self.clone(), activity.clone());
            service_fn(move |request: Request<Incoming>| {
                let (shared, running) = (shared.clone(), Running::begin(activity.clone()));
                async move {
                    let answer = shared.answer(request.map(Body::new)).await;
                    drop(running);
                    Ok::<_, Infallible>(answer)
                }
            })
        };
        let mut connection = pin!(self.http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(service)));
        tokio::select! {
            ended = connection.as_mut() => return told(ended),
            () = self.stop.cancelled() => {}
            () = activity.idle(|| if full() { self.limits.idle_when_full } else { self.limits.idle }) => {}
        }
        connection.as_mut().graceful_shutdown();
        match timeout(self.limits.linger, connection).await {
            Ok(ended) => told(ended),
            Err(_) => debug!("a connection is broken off: it did not end in time"),
        }
    }

    async fn answer(&self, request: Request<Body>) -> Response {
        let Ok(_slot) = self.requests.try_acquire() else {
            return (StatusCode::SERVICE_UNAVAILABLE, "too many requests at the same time").into_response();
        };
        let path = request.uri().path().to_owned();
        let answer = AssertUnwindSafe(self.router.clone().oneshot(request)).catch_unwind();
        match timeout(self.limits.request, answer).await {
            Ok(Ok(Ok(response))) => response,
            Ok(Err(_)) => {
                error!(path, "a request was not answered because of a bug in this program (a panic)");
                (StatusCode::INTERNAL_SERVER_ERROR, "a bug in this program").into_response()
            }
            Err(_) => {
                let text = format!("no answer within {:?}", self.limits.request);
                (StatusCode::GATEWAY_TIMEOUT, text).into_response()
            }
        }
    }
}

fn told<E: std::fmt::Debug>(ended: Result<(), E>) {
    if let Err(error) = ended {
        debug!(?error, "a connection broke");
    }
}

/// How many requests a connection has under way, and since when that is so.
#[derive(Debug)]
struct Activity(Mutex<(usize, Instant)>);

impl Default for Activity {
    fn default() -> Self {
        Self(Mutex::new((0, Instant::now())))
    }
}

impl Activity {
    fn change(&self, change: impl FnOnce(usize) -> usize) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *state = (change(state.0), Instant::now());
    }

    /// Waits until there has been no request for as long as `limit` says at that time.
    async fn idle(&self, limit: impl Fn() -> Duration) {
        loop {
            let (running, since) = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let left = limit().saturating_sub(since.elapsed());
            if running == 0 && left.is_zero() {
                return;
            }
            sleep(if running == 0 { left.min(TICK) } else { TICK }).await;
        }
    }
}

/// A request under way.
struct Running(Arc<Activity>);

impl Running {
    fn begin(activity: Arc<Activity>) -> Self {
        activity.change(|running| running + 1);
        Self(activity)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.change(|running| running.saturating_sub(1));
    }
}
