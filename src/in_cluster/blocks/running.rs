//! What runs for one registry: the watch of its records, the driver of its blocks, and the sign of
//! life of this management cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_api::{ClusterRecord, IPRegistrySpec};
use capi_ipam_controller::clock;
use capi_ipam_controller::health::{Health, ReadinessGate};
use capi_ipam_controller::watch::{Change, EventHandler, Source};
use capi_ipam_registry::{Backend, Created, Entry, Key, Record, RegistryError};
use futures::StreamExt;
use k8s_openapi::ByteString;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::driver::Driver;
use super::open_registry::OpenRegistry;
use super::steps::Writer;
use crate::in_cluster::context::Context;

/// How often this management cluster shows that it is alive.
const HEARTBEAT: Duration = Duration::from_mins(1);
/// The same after another process has disturbed it: two of them find each other soon.
const DISTURBED_HEARTBEAT: Duration = Duration::from_secs(5);
/// A manager of a part of the objects shows that the cluster is alive when no other one has done so
/// for this long, in seconds.
const SHARED_HEARTBEAT: i64 = 300;
/// How often a registry is asked that cannot be reached.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);
/// The time for which changes are gathered before the driver acts on them. Every allocation is one.
const DEBOUNCE: Duration = Duration::from_millis(10);
/// How many signs of life in a row another process has to disturb: a single one is that of a
/// process that has lost its lease and does not know it yet.
const MAX_DISTURBED: u32 = 2;

/// The settings with which a registry was opened.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Start {
    pub(super) spec: IPRegistrySpec,
    /// The content of the Secret.
    pub(super) secret: Option<BTreeMap<String, ByteString>>,
}

/// A registry that is open. Its tasks end when this is dropped.
pub(super) struct Running {
    pub(super) start: Start,
    pub(super) registry: Arc<OpenRegistry>,
    _tasks: JoinSet<()>,
}

/// What the tasks of a registry need.
#[derive(Clone)]
pub(super) struct Tasks {
    pub(super) context: Arc<Context>,
    pub(super) registry: Arc<OpenRegistry>,
    pub(super) gates: Vec<ReadinessGate>,
    pub(super) drain: Duration,
    /// Changes when a network may need a block, or need one no longer.
    pub(super) changed: watch::Receiver<()>,
    pub(super) stop: CancellationToken,
}

impl Running {
    /// Starts the tasks of a registry.
    pub(super) fn start(tasks: Tasks, start: Start) -> Self {
        let mut running = JoinSet::new();
        let registry = Arc::clone(&tasks.registry);
        let stop = tasks.stop.clone();
        for task in [tasks.clone().watch(), tasks.clone().drive(), tasks.live()] {
            let stop = stop.clone();
            running.spawn(async move {
                stop.run_until_cancelled(task).await;
            });
        }
        Self {
            start,
            registry,
            _tasks: running,
        }
    }
}

/// A task that runs until it is dropped.
type Task = futures::future::BoxFuture<'static, ()>;

impl Tasks {
    /// Fills the cache of records.
    fn watch(self) -> Task {
        Box::pin(async move {
            // The failure of a registry has no effect on the readiness of the process.
            let synced = Health::default().register_watch("registry");
            let handler = Arc::clone(&self.registry.records) as Arc<dyn EventHandler<Entry>>;
            let source = match self.registry.backend.source(handler, synced) {
                Ok(source) => source,
                Err(error) => {
                    self.registry.failed(&error);
                    return;
                }
            };
            let mut changes = source.open().changes;
            while let Some(change) = changes.next().await {
                match change {
                    Change::Failed(problem) => self.registry.set_unreachable(Some(problem)),
                    // The begin of a list is no success: it can fail as the last one did.
                    Change::Init | Change::InitApply(_) => {}
                    _ => self.registry.set_unreachable(None),
                }
            }
        })
    }

    /// Sends what is due for the blocks.
    fn drive(mut self) -> Task {
        Box::pin(async move {
            for gate in &self.gates {
                gate.wait().await;
            }
            let writer = Writer {
                context: Arc::clone(&self.context),
                registry: Arc::clone(&self.registry),
            };
            let mut driver = Driver::new(writer, self.drain);
            loop {
                let next = driver.pass().await;
                tokio::select! {
                    () = sleep(next) => {}
                    () = self.registry.records.changed() => {}
                    // The ledger lives as long as the process.
                    _ = self.changed.changed() => {}
                }
                sleep(DEBOUNCE).await;
            }
        })
    }

    /// Shows that this management cluster is alive, and finds out whether another process does so
    /// with the same identity.
    fn live(self) -> Task {
        Box::pin(async move {
            let mut heartbeat = Heartbeat {
                is_alone: self.context.selection.is_everything(),
                registry: self.registry,
                process: format!("{:016x}", rand::random::<u64>()),
                held: None,
                disturbed: 0,
            };
            let mut last: Option<Instant> = None;
            loop {
                let interval = heartbeat.interval();
                let is_due = last.is_none_or(|at| at.elapsed() >= interval);
                if is_due || heartbeat.registry.unreachable().is_some() {
                    match heartbeat.beat().await {
                        Ok(()) => {
                            last = Some(Instant::now());
                            heartbeat.registry.succeeded();
                        }
                        Err(error) => heartbeat.registry.failed(&error),
                    }
                }
                sleep(PROBE_INTERVAL).await;
            }
        })
    }
}

/// The sign of life of this management cluster.
struct Heartbeat {
    registry: Arc<OpenRegistry>,
    /// Whether no other manager of this management cluster is needed. The managers of parts of the
    /// objects have one identity: they do not disturb each other.
    is_alone: bool,
    /// A random number of this process.
    process: String,
    /// The record as this process has written or read it.
    held: Option<Entry>,
    /// How many writes in a row found that another process has written.
    disturbed: u32,
}

impl Heartbeat {
    /// The time until the next sign of life.
    fn interval(&self) -> Duration {
        if self.disturbed == 0 {
            HEARTBEAT
        } else {
            DISTURBED_HEARTBEAT
        }
    }

    async fn beat(&mut self) -> Result<(), RegistryError> {
        let cluster = &self.registry.cluster;
        let key = Key::Cluster {
            id: (**cluster).into(),
        }
        .to_string();
        let record = Record::Cluster(ClusterRecord {
            cluster: cluster.clone(),
            process: self.process.clone(),
            seen: Some(clock::now()),
            blocks: self.blocks(),
        });
        // The record of an earlier process of this cluster is taken over.
        if self.held.is_none() || !self.is_alone {
            self.held = self.registry.backend.read(&key).await?;
        }
        if !self.is_alone {
            if !self.was_seen_by_another() {
                self.write(&key, &record).await?;
            }
            return Ok(());
        }
        if self.write(&key, &record).await? {
            self.undisturbed();
            return Ok(());
        }
        // Another process has written since. It finds this write the next time, and so both know.
        self.held = self.registry.backend.read(&key).await?;
        self.write(&key, &record).await?;
        self.disturbed();
        Ok(())
    }

    /// Writes the record in the version that is held. Returns false if another process has changed
    /// it since.
    async fn write(&mut self, key: &str, record: &Record) -> Result<bool, RegistryError> {
        let backend = &self.registry.backend;
        let written = match self.held.take() {
            Some(held) => backend.update(&held, record).await,
            None => match backend.create(key, record).await? {
                Created::Ours(entry) => Ok(entry),
                Created::Theirs(_) => return Ok(false),
            },
        };
        match written {
            Ok(entry) => {
                self.held = Some(entry);
                Ok(true)
            }
            Err(RegistryError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Whether another manager has shown that the cluster is alive.
    fn was_seen_by_another(&self) -> bool {
        let Some(Record::Cluster(record)) = self.held.as_ref().and_then(Entry::record) else {
            return false;
        };
        let Some(seen) = &record.seen else {
            return false;
        };
        let age = clock::now()
            .0
            .as_second()
            .saturating_sub(seen.0.as_second());
        record.process != self.process && age < SHARED_HEARTBEAT
    }

    /// The number of blocks of this cluster.
    fn blocks(&self) -> u32 {
        u32::try_from(self.registry.held()).unwrap_or(u32::MAX)
    }

    /// Another process has written since the last write of this one.
    fn disturbed(&mut self) {
        self.disturbed = self.disturbed.saturating_add(1);
        if self.disturbed < MAX_DISTURBED || self.registry.is_suspended() {
            return;
        }
        warn!(
            registry = self.registry.name,
            cluster = self.registry.cluster,
            "another process writes with the identity of this management cluster; no block is taken or returned"
        );
        self.registry.suspend(true);
    }

    fn undisturbed(&mut self) {
        self.disturbed = self.disturbed.saturating_sub(1);
        if self.disturbed == 0 {
            self.registry.suspend(false);
        }
    }
}
