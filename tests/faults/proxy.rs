//! Stands between a manager and the API server, and lets one thing go wrong.
//!
//! The manager talks plain HTTP to it. What it forwards goes to the API server as the provider's account, so that the
//! permissions are those of the provider and no more.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use capi_ipam::fault::{Fault, WatchFault, WriteFault};
use capi_ipam::forward::{Answer, Broken, Forward, refusal};
use capi_ipam::frames::{self, Disturbance};
use capi_ipam::request::{Request, Verb, Write};
use capi_ipam::support::control_plane::{ControlPlane, NAMESPACE};
use capi_ipam_controller::client::connect;
use http_body_util::BodyExt;
use hyper::Response;
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// How long a write is late when it waits for nothing else.
const LATE: Duration = Duration::from_secs(1);
/// How long a late write waits for another one.
const LATEST: Duration = Duration::from_secs(5);
/// How long writes are refused with [`WriteFault::RefusedForLong`].
const LONG: Duration = Duration::from_secs(2);

/// How long a black hole in the place of a watch may go unnoticed.
const UNNOTICED: Duration = Duration::from_secs(40);

/// A write that was asked for.
#[derive(Clone, Debug)]
pub struct Entry {
    pub at: Instant,
    pub write: Write,
    pub name: String,
    /// What the API server answered, if it was asked.
    pub code: Option<u16>,
    /// The fault that hit it.
    pub fault: Option<WriteFault>,
}

/// A running proxy for one manager at a time.
pub struct Proxy {
    shared: Arc<Shared>,
    server: JoinHandle<()>,
    kubeconfig: PathBuf,
}

struct Shared {
    upstream: Client,
    fault: Option<Fault>,
    book: Mutex<Book>,
    /// Told when the manager is to be killed.
    crashed: Notify,
    /// Told when a write has been answered.
    answered: Notify,
    /// Numbers connections and watches.
    count: AtomicUsize,
}

#[derive(Default)]
struct Book {
    journal: Vec<Entry>,
    changes: HashMap<String, usize>,
    /// How often single objects were read, by plural.
    reads: HashMap<String, usize>,
    /// The manager is to be killed: nothing of it gets through any more.
    dead: bool,
    /// When the fault came to pass.
    happened: Option<Instant>,
    /// How many writes are still on their way, given up by their author.
    late: usize,
    /// How often each kind was asked to be watched, by plural.
    watches: HashMap<String, usize>,
    holes: Holes,
}

/// What stays open and delivers nothing.
#[derive(Default)]
struct Holes {
    /// Connections up to this number, with all that is asked on them.
    connections: usize,
    /// Watches of a kind up to this number, by plural.
    watches: HashMap<String, usize>,
}

impl Proxy {
    /// Starts a proxy with a fault.
    pub async fn start(plane: &ControlPlane, number: usize, fault: Option<Fault>) -> Self {
        let upstream = connect(Some(plane.provider_kubeconfig()), "manager").await.expect("the kubeconfig is good");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("the machine has a free port");
        let port = listener.local_addr().expect("a listener has an address").port();
        let kubeconfig = plane.folder().join(format!("kubeconfig-proxy-{number}.json"));
        let content = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{ "name": "test", "cluster": { "server": format!("http://127.0.0.1:{port}") } }],
            "users": [{ "name": "test", "user": {} }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test", "namespace": NAMESPACE } }],
        });
        std::fs::write(&kubeconfig, content.to_string()).expect("a file can be written");
        let shared = Arc::new(Shared {
            upstream,
            fault,
            book: Mutex::default(),
            crashed: Notify::new(),
            answered: Notify::new(),
            count: AtomicUsize::new(0),
        });
        let server = tokio::spawn(serve(listener, Arc::clone(&shared)));
        Self { shared, server, kubeconfig }
    }

    /// For the manager.
    pub fn kubeconfig(&self) -> &std::path::Path {
        &self.kubeconfig
    }

    /// Waits until the manager is to be killed.
    pub async fn crashed(&self) {
        self.shared.crashed.notified().await;
    }

    /// The manager that was to be killed is gone; another one may come.
    pub fn revive(&self) {
        self.shared.book().dead = false;
    }

    /// All writes so far.
    pub fn journal(&self) -> Vec<Entry> {
        self.shared.book().journal.clone()
    }

    /// How many changes the watches told of, by the plural of the kind.
    pub fn changes(&self) -> HashMap<String, usize> {
        self.shared.book().changes.clone()
    }

    /// How often single objects were read, by the plural of the kind.
    pub fn reads(&self) -> HashMap<String, usize> {
        self.shared.book().reads.clone()
    }

    /// How often each kind was asked to be watched, by the plural of the kind.
    pub fn watches(&self, resource: &str) -> usize {
        self.shared.book().watches.get(resource).copied().unwrap_or_default()
    }

    /// Makes black holes of all connections there are: they stay open, and nothing arrives. New ones work.
    pub fn swallow_connections(&self) {
        let now = self.shared.count.load(Ordering::Relaxed);
        self.shared.book().holes.connections = now;
    }

    /// Makes black holes of the watches of a kind that are under way. New ones work.
    pub fn swallow_watches(&self, resource: &str) {
        let now = self.shared.count.load(Ordering::Relaxed);
        self.shared.book().holes.watches.insert(resource.to_owned(), now);
    }

    /// Whether the fault has come to pass.
    pub fn has_happened(&self) -> bool {
        self.shared.book().happened.is_some()
    }

    /// Whether the fault goes on.
    pub fn is_at_it(&self) -> bool {
        let book = self.shared.book();
        let lasts = match &self.shared.fault {
            Some(Fault::Write { how: WriteFault::RefusedForLong, .. }) => LONG,
            Some(Fault::Watch { how: WatchFault::HeldBack, .. } | Fault::Read { .. }) => frames::HELD_BACK,
            Some(Fault::Watch { how: WatchFault::BlackHole, .. }) => UNNOTICED,
            _ => Duration::ZERO,
        };
        book.dead || book.late > 0 || book.happened.is_some_and(|at| at.elapsed() < lasts)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (shared, number) = (Arc::clone(&shared), shared.next_number());
        let service = service_fn(move |request| handle(Arc::clone(&shared), number, request));
        // An error here is a connection that broke, as a rule on purpose.
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn handle(shared: Arc<Shared>, connection: usize, request: hyper::Request<Incoming>) -> Result<Answer, Broken> {
    let answer = answer(Arc::clone(&shared), connection, request).await;
    if shared.is_swallowed(connection) {
        std::future::pending::<()>().await;
    }
    answer
}

async fn answer(shared: Arc<Shared>, connection: usize, request: hyper::Request<Incoming>) -> Result<Answer, Broken> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Broken)?.to_bytes();
    let path = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let asked = Request::of(&head.method, &path);
    let header = |name| head.headers.get(name).cloned();
    let (accept, content) = (header(ACCEPT), header(CONTENT_TYPE));
    let forward = Forward { upstream: shared.upstream.clone(), method: head.method, path, accept, content, body };
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
            // In a task of its own: it goes on when the manager dies.
            tokio::spawn(shared.write(asked, forward)).await.map_err(|_| Broken)?
        }
    }
}

/// A watch under way.
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

    async fn watch(self: &Arc<Self>, connection: usize, asked: &Request, forward: &Forward) -> Result<Answer, Broken> {
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
            .body(frames::passed_on(body, disturb))
            .map_err(|_| Broken)
    }

    /// Passes a read on, and its answer late where that is the fault.
    async fn read(&self, asked: &Request, forward: &Forward) -> Result<Answer, Broken> {
        let is_late = !asked.name.is_empty() && self.is_late_read(&asked.resource);
        let answer = forward.send().await;
        if is_late {
            tokio::time::sleep(frames::HELD_BACK).await;
        }
        answer
    }

    /// Counts a read of one object. Returns whether its answer is to be late.
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

    /// What happens to the next thing that a watch tells of.
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
        match &self.fault {
            Some(Fault::Watch { resource: hit, nth, how }) if hit == resource && nth == count => {
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

    /// Notes a write, and tells where in the journal it stands and what is to go wrong with it.
    fn note(&self, write: Write, name: String) -> Result<(usize, Option<WriteFault>), Broken> {
        let mut book = self.book();
        // Said under the same lock: of a dead manager nothing gets through.
        if book.dead {
            return Err(Broken);
        }
        let nth = 1 + book.journal.iter().filter(|entry| entry.write == write).count();
        let hit = match &self.fault {
            Some(Fault::Write { write: kind, nth: wanted, how }) if *kind == write => {
                let goes_on =
                    *how == WriteFault::RefusedForLong && book.happened.is_some_and(|since| since.elapsed() < LONG);
                (nth == *wanted || goes_on).then_some(*how)
            }
            _ => None,
        };
        if let Some(how) = hit {
            book.happened.get_or_insert_with(Instant::now);
            book.dead = matches!(how, WriteFault::CrashBefore);
            book.late += usize::from(how.is_late());
        }
        book.journal.push(Entry { at: Instant::now(), write, name, code: None, fault: hit });
        Ok((book.journal.len() - 1, hit))
    }

    async fn write(self: Arc<Self>, asked: Request, forward: Forward) -> Result<Answer, Broken> {
        let body = String::from_utf8_lossy(&forward.body);
        let write = asked.write(&body).unwrap_or(Write::Other);
        let name = if asked.name.is_empty() { name_in(&body) } else { asked.name.clone() };
        let (index, hit) = self.note(write, name)?;
        match hit {
            None => {
                let answer = self.applied(index, &forward).await;
                self.let_pass(write).await;
                answer
            }
            Some(WriteFault::CrashBefore) => {
                self.crashed.notify_one();
                Err(Broken)
            }
            Some(WriteFault::CrashAfter) => {
                let _ = self.applied(index, &forward).await;
                self.book().dead = true;
                self.crashed.notify_one();
                Err(Broken)
            }
            Some(WriteFault::ReplyLost) => {
                let _ = self.applied(index, &forward).await;
                Err(Broken)
            }
            Some(WriteFault::AppliedAndTimedOut) => {
                let _ = self.applied(index, &forward).await;
                Ok(refusal(504))
            }
            Some(WriteFault::Conflict) => Ok(refusal(409)),
            Some(WriteFault::Refused(code)) => Ok(refusal(code)),
            Some(WriteFault::RefusedForLong) => Ok(refusal(503)),
            Some(WriteFault::Late) => {
                tokio::spawn(self.late(index, forward, None));
                Ok(refusal(504))
            }
            Some(WriteFault::LateAfter(other)) => {
                tokio::spawn(self.late(index, forward, Some(other)));
                Ok(refusal(504))
            }
        }
    }

    /// Has the API server do it.
    async fn applied(&self, index: usize, forward: &Forward) -> Result<Answer, Broken> {
        let answer = forward.send().await;
        if let (Ok(answer), Some(entry)) = (&answer, self.book().journal.get_mut(index)) {
            entry.code = Some(answer.status().as_u16());
        }
        self.answered.notify_waiters();
        answer
    }

    /// Has the API server do it when it is too late.
    async fn late(self: Arc<Self>, index: usize, forward: Forward, after: Option<Write>) {
        match after {
            None => tokio::time::sleep(LATE).await,
            Some(write) => {
                let _ = tokio::time::timeout(LATEST, self.succeeds_after(index, write)).await;
            }
        }
        let _ = self.applied(index, &forward).await;
        self.book().late -= 1;
    }

    /// Lets a late write pass that has waited for one of this kind.
    async fn let_pass(&self, write: Write) {
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

    /// Waits until a write of that kind has succeeded that came after another one, for an object of the same name.
    async fn succeeds_after(&self, index: usize, write: Write) {
        loop {
            let answered = self.answered.notified();
            if has_followed(&self.book().journal, index, write) {
                return;
            }
            // A write may be answered between the look and the wait.
            let _ = tokio::time::timeout(Duration::from_millis(20), answered).await;
        }
    }
}

/// Whether a write of that kind, for an object of the same name, has succeeded since.
fn has_followed(journal: &[Entry], index: usize, write: Write) -> bool {
    let mut since = journal.iter().skip(index);
    let name = since.next().map(|entry| &entry.name);
    since.any(|entry| {
        entry.write == write && Some(&entry.name) == name && entry.code.is_some_and(|code| (200..300).contains(&code))
    })
}

/// The name in an object that is to be created.
fn name_in(body: &str) -> String {
    let object: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_is_followed_by_one_of_the_same_object_that_succeeded() {
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
