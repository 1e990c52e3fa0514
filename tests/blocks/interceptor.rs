//! Proxies between the managers, their API servers and the registry, which inject one fault at a
//! write for a block.

mod api_server;
mod frames;
mod nats;

use parking_lot::Mutex;
use support::prelude::*;
use tokio::sync::Notify;
use tokio::time::sleep;

pub(crate) use self::nats::NatsProxy;

/// How late a write is applied that got no response in time.
const LATE: Duration = Duration::from_secs(1);

/// How often a proxy checks whether something has ended.
const POLL: Duration = Duration::from_millis(50);

/// A fault at the first write of a kind by a management cluster.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) cluster: &'static str,
    pub(crate) write: String,
    pub(crate) how: How,
}

/// A fault at a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// The manager is killed, and the write never reaches the server.
    CrashBefore,
    /// The manager is killed after the write is applied, before it receives the response.
    CrashAfter,
    /// The manager is paused for a second when the write is on its way.
    Pause,
    /// The write is applied, and the connection breaks before the response.
    ReplyLost,
    /// The manager gets no response in time, and the write is applied a second later.
    Late,
    /// The server rejects the write.
    Refused,
    /// The settings of the registry change: the manager aborts what has sent the write, which is
    /// applied a second later.
    Reopened,
    /// The settings of the registry change: the manager aborts what has sent the write, which never
    /// reaches the server.
    Aborted,
    /// The server of NATS is killed before the write reaches it, and started again.
    ServerKilledBefore,
    /// The server of NATS is killed after the write, before the response reaches the manager.
    ServerKilledAfter,
    /// The server of NATS is paused, with the write on its way, until the manager has stopped
    /// waiting for the response.
    ServerPaused,
}

impl How {
    /// The faults of a write to an API server.
    pub(crate) const OF_API_SERVERS: [Self; 8] = [
        Self::CrashBefore,
        Self::CrashAfter,
        Self::Pause,
        Self::ReplyLost,
        Self::Late,
        Self::Refused,
        Self::Reopened,
        Self::Aborted,
    ];

    /// The faults of a write to a server of NATS.
    pub(crate) const OF_NATS: [Self; 11] = [
        Self::CrashBefore,
        Self::ServerKilledAfter,
        Self::Late,
        Self::ServerPaused,
        Self::CrashAfter,
        Self::ServerKilledBefore,
        Self::ReplyLost,
        Self::Refused,
        Self::Reopened,
        Self::Pause,
        Self::Aborted,
    ];
}

/// What a test has to do to a manager.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Harm {
    Kill,
    Pause,
    /// Change the settings of its registry.
    Reopen,
}

/// Requests that can be delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Held {
    /// Lists of reservations.
    Lists,
    /// Lists and watches of records at another API server.
    RecordLists,
    /// Writes of IPSlices.
    Slices,
    /// Writes of IPAddressClaims.
    Claims,
    /// Writes of records of management clusters.
    ClusterRecords,
    /// Writes of records of networks.
    NetworkRecords,
}

/// What all proxies of a site share.
#[derive(Default)]
pub(crate) struct Interceptor {
    book: Mutex<Book>,
    /// Notified when something has to be done to a manager.
    harmed: Notify,
}

#[derive(Default)]
struct Book {
    plan: Option<Plan>,
    has_happened: bool,
    /// The management cluster whose manager must be killed: none of its requests is forwarded.
    dead: Option<&'static str>,
    /// What else has to be done to the manager of a management cluster.
    harm: Option<(&'static str, Harm)>,
    /// The requests that are not forwarded yet.
    held: BTreeSet<Held>,
    /// Those of which one has arrived.
    waiting: BTreeSet<Held>,
    /// The kinds of writes of each management cluster.
    seen: BTreeSet<(&'static str, String)>,
}

impl Interceptor {
    /// Injects a fault from now on.
    pub(crate) fn inject(&self, plan: Option<Plan>) {
        let mut book = self.book.lock();
        book.plan = plan;
        book.has_happened = false;
    }

    /// Whether the fault was injected.
    pub(crate) fn has_happened(&self) -> bool {
        self.book.lock().has_happened
    }

    /// The kinds of writes so far, by management cluster.
    pub(crate) fn seen(&self) -> BTreeSet<(&'static str, String)> {
        self.book.lock().seen.clone()
    }

    /// Waits until something has to be done to the manager of a management cluster. One that must be
    /// killed is cut off until [`Self::revive`].
    pub(crate) async fn harmed(&self) -> (&'static str, Harm) {
        loop {
            {
                let mut book = self.book.lock();
                if let Some(cluster) = book.dead {
                    return (cluster, Harm::Kill);
                }
                if let Some(harm) = book.harm.take() {
                    return harm;
                }
            }
            self.harmed.notified().await;
        }
    }

    /// Forwards the requests of all managers again.
    pub(crate) fn revive(&self) {
        self.book.lock().dead = None;
    }

    /// Ends the connections of the manager of a management cluster through the proxies, and accepts no
    /// others, until [`Self::revive`].
    pub(crate) fn cut_off(&self, cluster: &'static str) {
        self.book.lock().dead = Some(cluster);
    }

    /// Delays some requests of all managers from now on, or no longer.
    pub(crate) fn hold(&self, what: Held, is_held: bool) {
        let mut book = self.book.lock();
        if is_held {
            book.held.insert(what);
        } else {
            book.held.remove(&what);
            book.waiting.remove(&what);
        }
    }

    /// Waits until a request has arrived that is delayed.
    pub(crate) async fn wait_until_held(&self, what: Held) {
        let is_waiting = || async { self.book.lock().waiting.contains(&what).then_some(()) };
        eventually("a request has arrived that is delayed", is_waiting).await;
    }

    /// Waits as long as these requests are not forwarded.
    async fn released(&self, what: Held) {
        while self.waits(what) {
            sleep(POLL).await;
        }
    }

    /// Whether a request that has arrived is still delayed.
    fn waits(&self, what: Held) -> bool {
        let mut book = self.book.lock();
        let is_held = book.held.contains(&what);
        if is_held {
            book.waiting.insert(what);
        }
        is_held
    }

    /// Waits until no request of a management cluster is forwarded any more.
    async fn died(&self, cluster: &str) {
        while !self.is_dead(cluster) {
            sleep(POLL).await;
        }
    }

    /// Whether the manager of a management cluster is about to be killed.
    fn is_dead(&self, cluster: &str) -> bool {
        self.book.lock().dead == Some(cluster)
    }

    /// Has the manager of a management cluster killed.
    fn kill(&self, cluster: &'static str) {
        self.book.lock().dead = Some(cluster);
        self.harmed.notify_one();
    }

    /// Has something done to the manager of a management cluster.
    fn harm(&self, cluster: &'static str, harm: Harm) {
        self.book.lock().harm = Some((cluster, harm));
        self.harmed.notify_one();
    }

    /// Records a write. Returns the fault to inject.
    fn record(&self, cluster: &'static str, write: String) -> Option<How> {
        let mut book = self.book.lock();
        let hit = match &book.plan {
            Some(plan) if plan.cluster == cluster && plan.write == write => Some(plan.how),
            _ => None,
        };
        book.seen.insert((cluster, write));
        let fault = hit.filter(|_| !book.has_happened);
        if fault.is_some() {
            book.has_happened = true;
        }
        fault
    }
}

/// What a record of the registry is, by its name and its block; `None` for no record.
fn kind_of_record(name: &str, block: &Value) -> Option<&'static str> {
    let kind = match name.split('.').next()? {
        "block" if !block["contenders"].is_null() => "record with contenders",
        "block" if !block["returnedAt"].is_null() => "returned record",
        "block" => "record",
        "network" => "network record",
        "cluster" => "cluster record",
        _ => return None,
    };
    Some(kind)
}
