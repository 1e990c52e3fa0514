//! One connection: TLS handshake, requests, graceful shutdown.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
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
use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower::{ServiceExt, service_fn};
use tracing::{debug, error};

use super::Limits;

/// Number of concurrent requests on one HTTP/2 connection, as in Go's servers.
const MAX_STREAMS: u32 = 250;

/// Bytes that a client may send on an HTTP/2 connection before they are read, on one stream and on
/// all.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 512 * 1024;

/// Limit for the headers of one request, in bytes.
const MAX_HEADER_SIZE: u32 = 16 * 1024;

/// Interval of the check whether a connection is idle.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// State that all connections of a server share.
pub(super) struct Shared {
    acceptor: TlsAcceptor,
    http: Builder<TokioExecutor>,
    router: Router,
    limits: Limits,
    requests: Semaphore,
    stop: CancellationToken,
}

impl Shared {
    pub(super) fn new(
        tls: Arc<ServerConfig>,
        router: Router,
        limits: Limits,
        stop: CancellationToken,
    ) -> Self {
        let mut http = Builder::new(TokioExecutor::new());
        // `Activity` limits the time for headers: hyper's own timer would count idle time too.
        http.http1()
            .timer(TokioTimer::new())
            .header_read_timeout(None)
            .max_buf_size(64 * 1024);
        http.http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(MAX_HEADER_SIZE);
        let requests = Semaphore::new(limits.requests);
        Self {
            acceptor: tls.into(),
            http,
            router,
            limits,
            requests,
            stop,
        }
    }

    /// Serves one connection until it ends. `is_full` returns whether the maximum number of
    /// connections is reached.
    pub(super) async fn serve(self: Arc<Self>, stream: TcpStream, is_full: impl Fn() -> bool) {
        // Responses are small and should be sent immediately.
        let _ = stream.set_nodelay(true);
        let handshake = timeout(self.limits.handshake, self.acceptor.accept(stream));
        let stream = match self.stop.run_until_cancelled(handshake).await {
            Some(Ok(Ok(stream))) => stream,
            Some(Ok(Err(error))) => return debug!(%error, "the TLS handshake failed"),
            Some(Err(_)) => return debug!("the TLS handshake timed out"),
            None => return,
        };
        let activity = Arc::new(Activity::default());
        let service = {
            let (shared, activity) = (self.clone(), activity.clone());
            service_fn(move |request: Request<Incoming>| {
                let (shared, in_flight) = (shared.clone(), InFlight::start(activity.clone()));
                async move {
                    let response = shared.respond(request.map(Body::new)).await;
                    drop(in_flight);
                    Ok::<_, Infallible>(response)
                }
            })
        };
        let mut connection = pin!(
            self.http
                .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service))
        );
        tokio::select! {
            ended = connection.as_mut() => return log_end(ended),
            () = self.stop.cancelled() => {}
            () = activity.idle(|| if is_full() { self.limits.idle_when_full } else { self.limits.idle }) => {}
        }
        connection.as_mut().graceful_shutdown();
        match timeout(self.limits.linger, connection).await {
            Ok(ended) => log_end(ended),
            Err(_) => debug!("a connection did not end in time, closing it"),
        }
    }

    async fn respond(&self, request: Request<Body>) -> Response {
        let Ok(_slot) = self.requests.try_acquire() else {
            return (
                StatusCode::SERVICE_UNAVAILABLE,
                "too many concurrent requests",
            )
                .into_response();
        };
        let path = request.uri().path().to_owned();
        let response = AssertUnwindSafe(self.router.clone().oneshot(request)).catch_unwind();
        match timeout(self.limits.request, response).await {
            Ok(Ok(Ok(response))) => response,
            Ok(Err(_)) => {
                error!(path, "the handler of a request panicked; this is a bug");
                (StatusCode::INTERNAL_SERVER_ERROR, "internal error").into_response()
            }
            Err(_) => {
                let message = format!("no response within {:?}", self.limits.request);
                (StatusCode::GATEWAY_TIMEOUT, message).into_response()
            }
        }
    }
}

fn log_end<E: std::fmt::Debug>(ended: Result<(), E>) {
    if let Err(error) = ended {
        debug!(?error, "a connection failed");
    }
}

/// The number of requests in flight on a connection, and the time of its last change.
#[derive(Debug)]
struct Activity(Mutex<(usize, Instant)>);

impl Default for Activity {
    fn default() -> Self {
        Self(Mutex::new((0, Instant::now())))
    }
}

impl Activity {
    fn change(&self, change: impl FnOnce(usize) -> usize) {
        let mut state = self.0.lock();
        *state = (change(state.0), Instant::now());
    }

    /// Waits until there has been no request for `limit`, which is evaluated repeatedly.
    async fn idle(&self, limit: impl Fn() -> Duration) {
        loop {
            let (in_flight, since) = *self.0.lock();
            let left = limit().saturating_sub(since.elapsed());
            if in_flight == 0 && left.is_zero() {
                return;
            }
            sleep(if in_flight == 0 {
                left.min(IDLE_CHECK_INTERVAL)
            } else {
                IDLE_CHECK_INTERVAL
            })
            .await;
        }
    }
}

/// A request in flight. Counts it until it is dropped.
struct InFlight(Arc<Activity>);

impl InFlight {
    fn start(activity: Arc<Activity>) -> Self {
        activity.change(|in_flight| in_flight + 1);
        Self(activity)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.change(|in_flight| in_flight.saturating_sub(1));
    }
}
