//! A proxy between a manager and the API server. It can delay the watches of some kinds, and the
//! responses to reads of reservations, which then show an old state.

use std::{
    convert::Infallible,
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::StreamExt;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Method, Request, Response,
    body::{Bytes, Frame, Incoming},
    header::{ACCEPT, CONTENT_TYPE},
};
use kube::{Client, client::Body};
use support::{
    prelude::*,
    proxy::{ProxyResponse, ProxyServer},
};
use tokio::sync::watch;

/// The kinds that show which addresses are in use.
pub(crate) const ADDRESSES_IN_USE: &[&str] = &["ipaddresses", "ipreservations"];

/// The reads whose responses are delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// None.
    None,
    /// Reads of one reservation.
    One,
    /// Lists of all reservations.
    All,
}

/// A running proxy for one manager.
pub(crate) struct Lagging {
    shared: Arc<Shared>,
    server: ProxyServer,
}

struct Shared {
    upstream: Client,
    /// The kinds whose watches are delayed.
    watches_held: watch::Sender<&'static [&'static str]>,
    reads_held: watch::Sender<Reads>,
    /// The number of responses that are delayed now.
    waiting: AtomicUsize,
}

impl Lagging {
    pub(crate) async fn start(plane: &ControlPlane) -> Self {
        let shared = Arc::new(Shared {
            upstream: ProxyServer::upstream(plane).await,
            watches_held: watch::Sender::new(&[]),
            reads_held: watch::Sender::new(Reads::None),
            waiting: AtomicUsize::new(0),
        });
        let handled = Arc::clone(&shared);
        let accept = move || {
            let shared = Arc::clone(&handled);
            move |request| handle(Arc::clone(&shared), request)
        };
        let server = ProxyServer::start(plane, "lagging", accept).await;
        Self { shared, server }
    }

    /// The kubeconfig for the manager.
    pub(crate) fn kubeconfig(&self) -> &Path {
        self.server.kubeconfig()
    }

    /// Delays all events of these kinds, until it is called without them.
    pub(crate) fn hold_watches(&self, kinds: &'static [&'static str]) {
        self.shared.watches_held.send_replace(kinds);
    }

    /// Delays the responses to these reads until it is called with another value.
    pub(crate) fn hold_reads(&self, held: Reads) {
        self.shared.reads_held.send_replace(held);
    }

    /// Waits until a response is delayed.
    pub(crate) async fn wait_until_read_is_held(&self) {
        until("the manager waits for a response", async || {
            Some(self.shared.waiting.load(Ordering::Relaxed) > 0)
        })
        .await;
    }
}

async fn handle(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<ProxyResponse, io::Error> {
    let broken = || io::Error::from(io::ErrorKind::ConnectionReset);
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| broken())?.to_bytes();
    let query = head.uri.query().unwrap_or_default();
    let has = |wanted: &str| query.split('&').any(|part| part == wanted);
    let path = head.uri.path();
    let kind = path.rsplit('/').next().unwrap_or_default().to_owned();
    let is_read = head.method == Method::GET && !has("watch=true") && !has("limit=1");
    let read = match path {
        _ if !is_read => Reads::None,
        one if one.contains("/ipreservations/") => Reads::One,
        all if all.ends_with("/ipreservations") => Reads::All,
        _ => Reads::None,
    };

    let mut forward = Request::builder().method(&head.method).uri(&head.uri);
    for name in [ACCEPT, CONTENT_TYPE] {
        if let Some(value) = head.headers.get(&name) {
            forward = forward.header(name, value);
        }
    }
    let forward = forward
        .body(Body::from(body.to_vec()))
        .map_err(|_| broken())?;
    let (answer, body) = shared
        .upstream
        .send(forward)
        .await
        .map_err(|_| broken())?
        .into_parts();
    let content = answer.headers.get(CONTENT_TYPE).cloned();
    let body = if has("watch=true") {
        forward_chunks(body, kind, shared.watches_held.subscribe())
    } else {
        let body = body.collect_bytes().await.map_err(|_| broken())?;
        if read != Reads::None && *shared.reads_held.borrow() == read {
            shared.waiting.fetch_add(1, Ordering::Relaxed);
            let mut reads = shared.reads_held.subscribe();
            let released = reads.wait_for(|held| *held != read).await;
            shared.waiting.fetch_sub(1, Ordering::Relaxed);
            released.map_err(|_| broken())?;
        }
        Full::new(body)
            .map_err(|never: Infallible| match never {})
            .boxed_unsync()
    };
    let mut passed = Response::new(body);
    *passed.status_mut() = answer.status;
    passed
        .headers_mut()
        .extend(content.map(|content| (CONTENT_TYPE, content)));
    Ok(passed)
}

/// The chunks of a watch, each when the kind is not delayed.
fn forward_chunks(
    body: Body,
    kind: String,
    held: watch::Receiver<&'static [&'static str]>,
) -> UnsyncBoxBody<Bytes, io::Error> {
    let frames = body.into_data_stream().then(move |chunk| {
        let (kind, mut held) = (kind.clone(), held.clone());
        async move {
            // An error means that the test has ended.
            let _ = held.wait_for(|held| !held.contains(&kind.as_str())).await;
            chunk.map(Frame::data).map_err(io::Error::other)
        }
    });
    StreamBody::new(frames).boxed_unsync()
}
