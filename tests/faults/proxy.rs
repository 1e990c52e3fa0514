//! A proxy between a manager and the API server that injects one fault, or two in a row at one object.
//!
//! The manager uses plain HTTP. The proxy forwards requests with the service account of the provider, so that the
//! permissions are those of the provider.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hyper::Response;
use hyper::body::Incoming;
use hyper::header::CONTENT_TYPE;
use kube::Client;
use tokio::sync::Notify;

use crate::fault::{Fault, WatchFault, WriteFault};
use crate::frames::{self, Disturbance};
use crate::request::Write;
use crate::support::control_plane::ControlPlane;
use crate::support::proxy::{ApiRequest, Broken, Forward, ProxyResponse, ProxyServer, Verb, error_response};

/// How long a write is delayed when it waits for no other write.
const LATE: Duration = Duration::from_secs(1);
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
        self.shared.book().watches.get(resource).copied().unwrap_or_default()
    }

    /// Turns all open connections into black holes: they stay open and deliver nothing. New ones work.
    pub fn swallow_connections(&self) {
        let now = self.shared.count.load(Ordering::Relaxed);
        self.shared.book().holes.connections = now;
    }

    /// Turns all open watches of a kind into black holes. New ones work.
    pub fn swallow_watches(&self, resource: &str) {
        let now = self.shared.count.load(Ordering::Relaxed);
        self.shared.book().holes.watches.insert(resource.to_owned(), now);
    }

    /// Whether the fault was injected.
    pub fn has_happened(&self) -> bool {
        self.shared.book().happened.is_some()
    }

    /// Whether the fault is still active.
    pub fn is_active(&self) -> bool {
        let book = self.shared.book();
        let lasts = match &self.shared.fault {
            Some(Fault::Write { how: WriteFault::RefusedForLong, .. }) => LONG,
            Some(Fault::Watch { how: WatchFault::HeldBack, .. } | Fault::Read { .. }) => frames::HELD_BACK,
            Some(Fault::Watch { how: WatchFault::BlackHole, .. }) => UNNOTICED,
            _ => Duration::ZERO,
        };
        let is_silent = book.silence.as_ref().is_some_and(Silence::lasts);
        book.dead || book.late > 0 || is_silent || book.happened.is_some_and(|at| at.elapsed() < lasts)
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
            tokio::spawn(shared.write(asked, forward)).await.map_err(|_| Broken)?
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
        *self.book().watches.entry(asked.resource.clone()).or_default() += 1;
        let (head, body) = forward.open().await?.into_parts();
        let (shared, resource, number) = (Arc::clone(self), asked.resource.clone(), self.next_number());
        let disturb = move |is_change: bool| {
            let watch = Watch { resource: &resource, number, connection };
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
        let is_of = |silence: &Silence| silence.resource == asked.resource && silence.name == asked.name;
        self.book().silence.as_ref().is_some_and(|silence| is_of(silence) && silence.lasts())
    }

    /// Counts a read of one object. Returns whether its response must be late.
    fn is_late_read(&self, resource: &str) -> bool {
        let mut book = self.book();
        let count = book.reads.entry(resource.to_owned()).or_default();
        *count += 1;
        let is_hit = self.fault == Some(Fault::Read { resource: resource.to_owned(), nth: *count });
        if is_hit {
            book.happened = Some(Instant::now());
        }
        is_hit
    }

    /// The disturbance of the next item of a watch.
    fn disturb(&self, watch: &Watch<'_>, is_change: bool) -> Disturbance {
        let Watch { resource, number, connection } = *watch;
        let mut book = self.book();
        let swallowed = book.holes.watches.get(resource).is_some_and(|last| number <= *last);
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
        if let Some(silence) = book.silence.as_mut().filter(|silence| silence.resource == resource && silence.lasts()) {
            // Later events wait for this one.
            let is_first = !std::mem::replace(&mut silence.is_delayed, true);
            return if is_first { Disturbance::HoldBack } else { Disturbance::None };
        }
        match &self.fault {
            Some(Fault::Watch { resource: hit, nth, how }) if hit == resource && *nth == count => {
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

    /// Records a write, and returns its index in the journal and its fault.
    fn record(&self, write: Write, resource: &str, name: String) -> Result<(usize, Option<WriteFault>), Broken> {
        let mut book = self.book();
        // Checked with the same lock: no write of a dead manager is forwarded.
        if book.dead {
            return Err(Broken);
        }
        let nth = 1 + book.journal.iter().filter(|entry| entry.write == write).count();
        let hit = match &self.fault {
            Some(Fault::Write { write: kind, nth: wanted, how }) if *kind == write => {
                let is_active =
                    *how == WriteFault::RefusedForLong && book.happened.is_some_and(|since| since.elapsed() < LONG);
                let retry = how.refused_retry().filter(|_| is_retry(&book.journal, &name)).map(WriteFault::Refused);
                retry.or((nth == *wanted || is_active).then_some(*how))
            }
            _ => None,
        };
        if let Some(how) = hit {
            let starts = matches!(how, WriteFault::LostThenRefused(_));
            let (since, resource, name) = (Instant::now(), resource.to_owned(), name.clone());
            book.silence = starts.then_some(Silence { since, resource, name, is_delayed: false });
            book.happened.get_or_insert_with(Instant::now);
            book.dead = matches!(how, WriteFault::CrashBefore);
            book.late += usize::from(how.is_late());
        }
        book.journal.push(Entry { at: Instant::now(), write, name, code: None, fault: hit });
        Ok((book.journal.len() - 1, hit))
    }

    async fn write(self: Arc<Self>, asked: ApiRequest, forward: Forward) -> Result<ProxyResponse, Broken> {
        let body = String::from_utf8_lossy(&forward.body);
        let write = Write::of(&asked, &body).unwrap_or(Write::Other);
        let name = if asked.name.is_empty() { name_in(&body) } else { asked.name.clone() };
        let (index, hit) = self.record(write, &asked.resource, name)?;
        match hit {
            None => {
                let response = self.apply(index, &forward).await;
                self.wait_for_late_write(write).await;
                response
            }
            Some(WriteFault::CrashBefore) => {
                self.crashed.notify_one();
                Err(Broken)
            }
            Some(WriteFault::CrashAfter) => {
                let _ = self.apply(index, &forward).await;
                self.book().dead = true;
                self.crashed.notify_one();
                Err(Broken)
            }
            Some(WriteFault::ReplyLost | WriteFault::LostThenRefused(_)) => {
                let _ = self.apply(index, &forward).await;
                Err(Broken)
            }
            Some(WriteFault::AppliedAndTimedOut) => {
                let _ = self.apply(index, &forward).await;
                Ok(error_response(504))
            }
            Some(WriteFault::Conflict) => Ok(error_response(409)),
            Some(WriteFault::Refused(code)) => Ok(error_response(code)),
            Some(WriteFault::RefusedForLong) => Ok(error_response(503)),
            Some(WriteFault::Late | WriteFault::LateThenRefused(_)) => {
                tokio::spawn(self.apply_late(index, forward, None));
                Ok(error_response(504))
            }
            Some(WriteFault::LateAfter(other)) => {
                tokio::spawn(self.apply_late(index, forward, Some(other)));
                Ok(error_response(504))
            }
        }
    }

    /// Forwards a write and records the status code.
    async fn apply(&self, index: usize, forward: &Forward) -> Result<ProxyResponse, Broken> {
        let response = forward.send().await;
        if let (Ok(response), Some(entry)) = (&response, self.book().journal.get_mut(index)) {
            entry.code = Some(response.status().as_u16());
        }
        self.answered.notify_waiters();
        response
    }

    /// Forwards a write after its delay.
    async fn apply_late(self: Arc<Self>, index: usize, forward: Forward, after: Option<Write>) {
        match after {
            None => tokio::time::sleep(LATE).await,
            Some(write) => {
                let _ = tokio::time::timeout(LATEST, self.wait_for_success_after(index, write)).await;
            }
        }
        let _ = self.apply(index, &forward).await;
        self.book().late -= 1;
    }

    /// Waits until a late write that follows a write of this kind is applied.
    async fn wait_for_late_write(&self, write: Write) {
        let is_awaited = |fault: &Option<Fault>| matches!(fault, Some(Fault::Write { how: WriteFault::LateAfter(awaited), .. }) if *awaited == write);
        let late = || {
            let book = self.book();
            let index = book.journal.iter().position(|entry| entry.fault.is_some());
            book.late > 0 && index.is_some_and(|index| has_followed(&book.journal, index, write))
        };
        while is_awaited(&self.fault) && late() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until a write of this kind to an object of the same name has succeeded after another write.
    async fn wait_for_success_after(&self, index: usize, write: Write) {
        loop {
            let answered = self.answered.notified();
            if has_followed(&self.book().journal, index, write) {
                return;
            }
            // A response may arrive between the check and the wait.
            let _ = tokio::time::timeout(Duration::from_millis(20), answered).await;
        }
    }
}

/// Whether the journal contains one fault, at an object of this name.
fn is_retry(journal: &[Entry], name: &str) -> bool {
    let mut faults = journal.iter().filter(|entry| entry.fault.is_some());
    faults.next().is_some_and(|first| first.name == name) && faults.next().is_none()
}

/// Whether a write of this kind to an object of the same name has succeeded since.
fn has_followed(journal: &[Entry], index: usize, write: Write) -> bool {
    let mut since = journal.iter().skip(index);
    let name = since.next().map(|entry| &entry.name);
    since.any(|entry| {
        entry.write == write && Some(&entry.name) == name && entry.code.is_some_and(|code| (200..300).contains(&code))
    })
}

/// The name in the body of a create request.
fn name_in(body: &str) -> String {
    let object: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_retry_of_the_object_is_rejected() {
        let entry = |name: &str, fault| Entry {
            at: Instant::now(),
            write: Write::ReservationCreated,
            name: name.to_owned(),
            code: None,
            fault,
        };
        let mut journal = vec![entry("b", None)];
        assert!(!is_retry(&journal, "b"));
        journal.push(entry("a", Some(WriteFault::LostThenRefused(403))));
        assert!(is_retry(&journal, "a") && !is_retry(&journal, "b"));
        journal.push(entry("a", Some(WriteFault::Refused(403))));
        assert!(!is_retry(&journal, "a"));
    }

    #[test]
    fn write_is_followed_by_a_successful_one_of_its_object() {
        let entry = |write, name: &str, code| Entry {
            at: Instant::now(),
            write,
            name: name.to_owned(),
            code: Some(code),
            fault: None,
        };
        let mut journal = vec![
            entry(Write::AddressDeleted, "a", 200),
            entry(Write::AddressCreated, "a", 201),
            entry(Write::AddressDeleted, "b", 200),
            entry(Write::AddressDeleted, "a", 404),
        ];
        assert!(!has_followed(&journal, 1, Write::AddressDeleted));
        journal.push(entry(Write::AddressDeleted, "a", 200));
        assert!(has_followed(&journal, 1, Write::AddressDeleted));
    }
}
