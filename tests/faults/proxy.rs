//! A proxy between a manager and the API server that injects one fault, or two in a row at one
//! object.
//!
//! The manager uses plain HTTP. The proxy forwards requests with the service account of the
//! provider, so that the permissions are those of the provider.

mod writes;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use hyper::{Response, body::Incoming, header::CONTENT_TYPE};
use kube::Client;
use support::{
    prelude::*,
    proxy::{ApiRequest, Broken, Forward, ProxyResponse, ProxyServer, Verb, error_response},
};
use tokio::sync::Notify;

use crate::{
    fault::{Fault, WatchFault, WriteFault},
    frames::{self, Disturbance},
    request::Write,
};

/// How long a late write waits for another write.
const LATEST: Duration = Duration::from_secs(5);

/// How long writes are rejected with [`WriteFault::RefusedForLong`].
const LONG: Duration = Duration::from_secs(2);
/// How long a watch that is a black hole may stay undetected.
const UNNOTICED: Duration = Duration::from_secs(40);

/// A requested write.
#[derive(Clone, Debug)]
pub struct Entry {
    pub at: Instant,
    pub write: Write,
    pub name: String,
    /// The status code of the API server, if the write was forwarded.
    pub code: Option<u16>,
    /// The injected fault.
    pub fault: Option<WriteFault>,
}

/// A running proxy for one manager at a time.
pub struct Proxy {
    shared: Arc<Shared>,
    server: ProxyServer,
}

struct Shared {
    upstream: Client,
    fault: Option<Fault>,
    book: Mutex<Book>,
    /// Notified when the manager must be killed.
    crashed: Notify,
    /// Notified when a write has a response.
    answered: Notify,
    /// The last number of a connection or watch.
    count: AtomicUsize,
}

#[derive(Default)]
struct Book {
    journal: Vec<Entry>,
    changes: HashMap<String, usize>,
    /// The number of reads of single objects, by plural.
    reads: HashMap<String, usize>,
    /// The manager must be killed: none of its requests is forwarded.
    dead: bool,
    /// When the fault was injected.
    happened: Option<Instant>,
    /// The number of late writes in progress, which the manager has given up.
    late: usize,
    /// The number of watches, by plural.
    watches: HashMap<String, usize>,
    holes: Holes,
    silence: Option<Silence>,
}

/// An object about which the manager learns nothing, until its retry is rejected.
struct Silence {
    since: Instant,
    resource: String,
    name: String,
    /// The watch is delayed already, with all later events.
    is_delayed: bool,
}

impl Silence {
    fn lasts(&self) -> bool {
        self.since.elapsed() < LATEST
    }
}

/// Connections and watches that stay open and deliver nothing.
#[derive(Default)]
struct Holes {
    /// Connections up to this number, with all their requests.
    connections: usize,
    /// Watches of a kind up to this number, by plural.
    watches: HashMap<String, usize>,
}

impl Proxy {
    /// Starts a proxy with a fault.
    pub async fn start(plane: &ControlPlane, number: usize, fault: Option<Fault>) -> Self {
        let shared = Arc::new(Shared {
            upstream: ProxyServer::upstream(plane).await,
            fault,
            book: Mutex::default(),
            crashed: Notify::new(),
            answered: Notify::new(),
            count: AtomicUsize::new(0),
        });
        let handled = Arc::clone(&shared);
        let accept = move || {
            let (shared, number) = (Arc::clone(&handled), handled.next_number());
            move |request| handle(Arc::clone(&shared), number, request)
        };
        let server = ProxyServer::start(plane, &format!("proxy-{number}"), accept).await;
        Self { shared, server }
    }

    /// The kubeconfig for the manager.
    pub fn kubeconfig(&self) -> &std::path::Path {
        self.server.kubeconfig()
    }

    /// Waits until the manager must be killed.
    pub async fn crashed(&self) {
        self.shared.crashed.notified().await;
    }

    /// Forwards requests again, after the manager was killed.
    pub fn revive(&self) {
        self.shared.book().dead = false;
    }

    /// All writes so far.
    pub fn journal(&self) -> Vec<Entry> {
        self.shared.book().journal.clone()
    }

    /// The number of watch events, by the plural of the kind.
    pub fn changes(&self) -> HashMap<String, usize> {
        self.shared.book().changes.clone()
    }

    /// The number of reads of single objects, by the plural of the kind.
    pub fn reads(&self) -> HashMap<String, usize> {
        self.shared.book().reads.clone()
    }

    /// The number of watches of a kind, by its plural.
    pub fn watches(&self, resource: &str) -> usize {
        self.shared
            .book()
            .watches
            .get(resource)
            .copied()
            .unwrap_or_default()
    }

    /// Turns all open connections into black holes: they stay open and deliver nothing. New ones
    /// work.
    pub fn swallow_connections(&self) {
        let now = self.shared.count.load(Ordering::Relaxed);
        self.shared.book().holes.connections = now;
    }

    /// Turns all open watches of a kind into black holes. New ones work.
    pub fn swallow_watches(&self, resource: &str) {
        let now = self.shared.count.load(Ordering::Relaxed);
        self.shared
            .book()
            .holes
            .watches
            .insert(resource.to_owned(), now);
    }

    /// Whether the fault was injected.
    pub fn has_happened(&self) -> bool {
        self.shared.book().happened.is_some()
    }

    /// Whether the fault is still active.
    pub fn is_active(&self) -> bool {
        let book = self.shared.book();
        let lasts = match &self.shared.fault {
            Some(Fault::Write {
                how: WriteFault::RefusedForLong,
                ..
            }) => LONG,
            Some(
                Fault::Watch {
                    how: WatchFault::HeldBack,
                    ..
                }
                | Fault::Read { .. },
            ) => frames::HELD_BACK,
            Some(Fault::Watch {
                how: WatchFault::BlackHole,
                ..
            }) => UNNOTICED,
            _ => Duration::ZERO,
        };
        let is_silent = book.silence.as_ref().is_some_and(Silence::lasts);
        book.dead
            || book.late > 0
            || is_silent
            || book.happened.is_some_and(|at| at.elapsed() < lasts)
    }
}

async fn handle(
    shared: Arc<Shared>,
    connection: usize,
    request: hyper::Request<Incoming>,
) -> Result<ProxyResponse, Broken> {
    let response = respond(Arc::clone(&shared), connection, request).await;
    if shared.is_swallowed(connection) {
        std::future::pending::<()>().await;
    }
    response
}

async fn respond(
    shared: Arc<Shared>,
    connection: usize,
    request: hyper::Request<Incoming>,
) -> Result<ProxyResponse, Broken> {
    let forward = Forward::receive(shared.upstream.clone(), request).await?;
    let asked = ApiRequest::of(&forward.method, &forward.path);
    if shared.is_swallowed(connection) {
        std::future::pending::<()>().await;
    }
    if shared.book().dead {
        return Err(Broken);
    }
    match asked.verb {
        Verb::Watch => shared.watch(connection, &asked, &forward).await,
        Verb::Read => shared.read(&asked, &forward).await,
        Verb::Create | Verb::Change | Verb::Replace | Verb::Delete => {
            // In a separate task, which continues when the manager is killed.
            tokio::spawn(shared.write(asked, forward))
                .await
                .map_err(|_| Broken)?
        }
    }
}

/// An open watch.
#[derive(Clone, Copy)]
struct Watch<'a> {
    resource: &'a str,
    number: usize,
    connection: usize,
}

impl Shared {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_number(&self) -> usize {
        self.count.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether a connection is a black hole.
    fn is_swallowed(&self, connection: usize) -> bool {
        connection <= self.book().holes.connections
    }

    async fn watch(
        self: &Arc<Self>,
        connection: usize,
        asked: &ApiRequest,
        forward: &Forward,
    ) -> Result<ProxyResponse, Broken> {
        *self
            .book()
            .watches
            .entry(asked.resource.clone())
            .or_default() += 1;
        let (head, body) = forward.open().await?.into_parts();
        let (shared, resource, number) =
            (Arc::clone(self), asked.resource.clone(), self.next_number());
        let disturb = move |is_change: bool| {
            let watch = Watch {
                resource: &resource,
                number,
                connection,
            };
            shared.disturb(&watch, is_change)
        };
        Response::builder()
            .status(head.status)
            .header(CONTENT_TYPE, "application/json")
            .body(frames::forward_events(body, disturb))
            .map_err(|_| Broken)
    }

    /// Forwards a read, and delays its response if that is the fault.
    async fn read(&self, asked: &ApiRequest, forward: &Forward) -> Result<ProxyResponse, Broken> {
        if self.is_silent(asked) {
            return Ok(error_response(503));
        }
        let is_late = !asked.name.is_empty() && self.is_late_read(&asked.resource);
        let response = forward.send().await;
        if is_late {
            tokio::time::sleep(frames::HELD_BACK).await;
        }
        response
    }

    /// Whether a read of an object must fail.
    fn is_silent(&self, asked: &ApiRequest) -> bool {
        let is_of =
            |silence: &Silence| silence.resource == asked.resource && silence.name == asked.name;
        self.book()
            .silence
            .as_ref()
            .is_some_and(|silence| is_of(silence) && silence.lasts())
    }

    /// Counts a read of one object. Returns whether its response must be late.
    fn is_late_read(&self, resource: &str) -> bool {
        let mut book = self.book();
        let count = book.reads.entry(resource.to_owned()).or_default();
        *count += 1;
        let is_hit = self.fault
            == Some(Fault::Read {
                resource: resource.to_owned(),
                nth: *count,
            });
        if is_hit {
            book.happened = Some(Instant::now());
        }
        is_hit
    }

    /// The disturbance of the next item of a watch.
    fn disturb(&self, watch: &Watch<'_>, is_change: bool) -> Disturbance {
        let Watch {
            resource,
            number,
            connection,
        } = *watch;
        let mut book = self.book();
        let swallowed = book
            .holes
            .watches
            .get(resource)
            .is_some_and(|last| number <= *last);
        if swallowed || connection <= book.holes.connections {
            return Disturbance::Swallow;
        }
        if !is_change {
            return Disturbance::None;
        }
        if book.dead {
            return Disturbance::Break;
        }
        let count = book.changes.entry(resource.to_owned()).or_default();
        *count += 1;
        let count = *count;
        if let Some(silence) = book
            .silence
            .as_mut()
            .filter(|silence| silence.resource == resource && silence.lasts())
        {
            // Later events wait for this one.
            let is_first = !std::mem::replace(&mut silence.is_delayed, true);
            return if is_first {
                Disturbance::HoldBack
            } else {
                Disturbance::None
            };
        }
        match &self.fault {
            Some(Fault::Watch {
                resource: hit,
                nth,
                how,
            }) if hit == resource && *nth == count => {
                book.happened = Some(Instant::now());
                match how {
                    WatchFault::HeldBack => Disturbance::HoldBack,
                    WatchFault::Broken => Disturbance::Break,
                    WatchFault::Expired => Disturbance::Expire,
                    WatchFault::BlackHole => {
                        book.holes.watches.insert(resource.to_owned(), number);
                        Disturbance::Swallow
                    }
                }
            }
            _ => Disturbance::None,
        }
    }
}
