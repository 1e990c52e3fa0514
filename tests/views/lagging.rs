//! A proxy between a manager and the API server. On demand it delays the watches of addresses and reservations, and the
//! answers to reads of reservations, which then show an old state.

use std::convert::Infallible;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use capi_ipam::support::consumer::eventually;
use capi_ipam::support::control_plane::{ControlPlane, NAMESPACE};
use capi_ipam_controller::client::connect;
use futures::StreamExt;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{ACCEPT, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

type Answer = Response<UnsyncBoxBody<Bytes, io::Error>>;

/// Which answers arrive late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    /// All arrive in time.
    None,
    /// Reads of one reservation.
    One,
    /// Lists of all reservations.
    All,
}

/// A running proxy for one manager.
pub(crate) struct Lagging {
    shared: Arc<Shared>,
    server: JoinHandle<()>,
    kubeconfig: PathBuf,
}

struct Shared {
    upstream: Client,
    watches_held: watch::Sender<bool>,
    reads_held: watch::Sender<Reads>,
    /// The number of answers that are delayed now.
    waiting: AtomicUsize,
}

impl Lagging {
    pub(crate) async fn start(plane: &ControlPlane) -> Self {
        let upstream = connect(Some(plane.provider_kubeconfig()), "manager").await.expect("the kubeconfig is good");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("the machine has a free port");
        let port = listener.local_addr().expect("a listener has an address").port();
        let kubeconfig = plane.folder().join("kubeconfig-lagging.json");
        let content = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": { "server": format!("http://127.0.0.1:{port}") } }],
            "users": [{ "name": "test", "user": {} }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test", "namespace": NAMESPACE } }],
        });
        std::fs::write(&kubeconfig, content.to_string()).expect("a file can be written");
        let shared = Arc::new(Shared {
            upstream,
            watches_held: watch::Sender::new(false),
            reads_held: watch::Sender::new(Reads::None),
            waiting: AtomicUsize::new(0),
        });
        let server = tokio::spawn(serve(listener, Arc::clone(&shared)));
        Self { shared, server, kubeconfig }
    }

    /// For the manager.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Delays all events of addresses and reservations while `held` is true.
    pub(crate) fn hold_watches(&self, held: bool) {
        self.shared.watches_held.send_replace(held);
    }

    /// Delays these answers until it is called with another value.
    pub(crate) fn hold_reads(&self, held: Reads) {
        self.shared.reads_held.send_replace(held);
    }

    /// Waits until an answer is delayed.
    pub(crate) async fn answer_is_held(&self) {
        eventually("the manager waits for an answer", || async {
            (self.shared.waiting.load(Ordering::Relaxed) > 0).then_some(())
        })
        .await;
    }
}

impl Drop for Lagging {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let shared = Arc::clone(&shared);
        let service = service_fn(move |request| handle(Arc::clone(&shared), request));
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn handle(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Answer, io::Error> {
    let broken = || io::Error::from(io::ErrorKind::ConnectionReset);
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| broken())?.to_bytes();
    let query = head.uri.query().unwrap_or_default();
    let has = |wanted: &str| query.split('&').any(|part| part == wanted);
    let path = head.uri.path();
    let is_watch = has("watch=true") && (path.ends_with("/ipreservations") || path.ends_with("/ipaddresses"));
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
    let forward = forward.body(Body::from(body.to_vec())).map_err(|_| broken())?;
    let (answer, body) = shared.upstream.send(forward).await.map_err(|_| broken())?.into_parts();
    let content = answer.headers.get(CONTENT_TYPE).cloned();
    let body = if has("watch=true") {
        passed_on(body, is_watch.then(|| shared.watches_held.subscribe()))
    } else {
        let body = body.collect_bytes().await.map_err(|_| broken())?;
        if read != Reads::None && *shared.reads_held.borrow() == read {
            shared.waiting.fetch_add(1, Ordering::Relaxed);
            let mut reads = shared.reads_held.subscribe();
            let released = reads.wait_for(|held| *held != read).await;
            shared.waiting.fetch_sub(1, Ordering::Relaxed);
            released.map_err(|_| broken())?;
        }
        Full::new(body).map_err(|never: Infallible| match never {}).boxed_unsync()
    };
    let mut passed = Response::new(body);
    *passed.status_mut() = answer.status;
    passed.headers_mut().extend(content.map(|content| (CONTENT_TYPE, content)));
    Ok(passed)
}

/// The chunks of a watch, each once `held` is over.
fn passed_on(body: Body, held: Option<watch::Receiver<bool>>) -> UnsyncBoxBody<Bytes, io::Error> {
    let frames = body.into_data_stream().then(move |chunk| {
        let held = held.clone();
        async move {
            if let Some(mut held) = held {
                // An error means that the test has ended.
                let _ = held.wait_for(|held| !held).await;
            }
            chunk.map(Frame::data).map_err(io::Error::other)
        }
    });
    StreamBody::new(frames).boxed_unsync()
}
