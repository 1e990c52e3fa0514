//! What runs for one registry: the watch of its records, the driver of its blocks, and the sign of
//! life of this management cluster.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_api::{ClusterRecord, IPRegistrySpec, MAX_EXCLUSIONS};
use capi_ipam_controller::clock;
use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_controller::watch::{Change, EventHandler};
use capi_ipam_registry::{Backend, Created, Entry, Key, Record, RecordChanges, RegistryError};
use futures::StreamExt;
use k8s_openapi::ByteString;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::disturbance::Disturbance;
use super::driver::Driver;
use super::open_registry::{OpenRegistry, PROBE_INTERVAL, Requester};
use crate::in_cluster::context::Context;

/// A manager of a part of the objects shows that the cluster is alive when no other one has done so
/// for this long, in seconds.
const SHARED_HEARTBEAT: i64 = 300;
/// How long a process that starts waits for the first list of a registry before it allocates addresses of its
/// blocks: another cluster can have the identity of this one.
pub(super) const START_DELAY: Duration = Duration::from_secs(5);
/// The time between two signs of life after the registry has lost writes.
const RECOVERY_INTERVAL: Duration = Duration::from_secs(5);
/// The time for which changes are gathered before the driver acts on them. Every allocation is one.
const DEBOUNCE: Duration = Duration::from_millis(10);

/// The settings with which a registry was opened.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Start {
    pub(super) spec: IPRegistrySpec,
    /// The content of the Secret.
    pub(super) secret: Option<BTreeMap<String, ByteString>>,
}

/// A registry that is open. Its tasks end when this is dropped.
#[derive(Debug)]
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
            loop {
                let handler = Arc::clone(&self.registry) as Arc<dyn EventHandler<Entry>>;
                let changes = match self.registry.backend.watch(handler) {
                    Ok(changes) => changes,
                    Err(error) => {
                        self.registry.failed(Requester::Watch, &error);
                        return;
                    }
                };
                tokio::select! {
                    () = self.follow(changes) => return,
                    // A new watch begins with a list. It counts whatever was known before.
                    () = self.registry.list_requested() => self.registry.restored(),
                }
            }
        })
    }

    /// Reports whether the watch works, until it ends.
    async fn follow(&self, mut changes: RecordChanges) {
        while let Some(change) = changes.next().await {
            match change {
                Change::Failed(problem) => {
                    self.registry.set_problem(Requester::Watch, problem);
                }
                // The begin of a list is no success: it can fail as the last one did.
                Change::Init | Change::InitApply(_) => {}
                _ => self.registry.succeeded(Requester::Watch),
            }
        }
    }

    /// Sends what is due for the blocks.
    fn drive(mut self) -> Task {
        Box::pin(async move {
            for gate in &self.gates {
                gate.wait().await;
            }
            let (context, registry) = (Arc::clone(&self.context), Arc::clone(&self.registry));
            let mut driver = Driver::new(context, registry, self.drain);
            let restores = self.context.reservations.restores().clone();
            let mut epoch = restores.epoch();
            self.begin().await;
            loop {
                if restores.epoch() != epoch {
                    epoch = restores.epoch();
                    driver.forget();
                }
                let next = driver.pass().await;
                tokio::select! {
                    () = sleep(next) => {}
                    () = self.registry.records.changed() => {}
                    () = self.registry.recovered() => {}
                    // The ledger lives as long as the process.
                    _ = self.changed.changed() => {}
                    () = restores.ended(epoch) => {}
                    () = driver.reservations_listed() => {}
                }
                sleep(DEBOUNCE).await;
            }
        })
    }

    /// Tells the ledger who this management cluster is: from then on, addresses of its blocks are
    /// allocated. The records are listed first if the registry can be reached in time.
    async fn begin(&self) {
        let registry = &self.registry;
        let deadline = Instant::now() + START_DELAY;
        while !registry.is_confirmed() && Instant::now() < deadline {
            tokio::select! {
                () = registry.records.changed() => {}
                () = registry.recovered() => {}
                () = sleep(PROBE_INTERVAL) => {}
            }
        }
        registry
            .ledger
            .change(|ledger| ledger.set_management_cluster(&registry.name, &registry.cluster));
    }

    /// Shows that this management cluster is alive, and finds out whether another process does so
    /// with the same identity.
    fn live(self) -> Task {
        Box::pin(async move {
            let mut heartbeat = Heartbeat {
                is_alone: self.context.selection.is_everything(),
                key: Key::Cluster {
                    id: (*self.registry.cluster).into(),
                },
                registry: self.registry,
                process: format!("{:016x}", rand::random::<u64>()),
                held: None,
                disturbance: Disturbance::default(),
            };
            let mut last: Option<Instant> = None;
            loop {
                let interval = heartbeat.interval();
                let is_due = last.is_none_or(|at| at.elapsed() >= interval);
                if is_due || heartbeat.is_wanted() {
                    match heartbeat.beat().await {
                        Ok(is_done) => {
                            // What may not be written yet is due as soon as it may be.
                            if is_done {
                                last = Some(Instant::now());
                            }
                            heartbeat.registry.compare_exclusions();
                            heartbeat.registry.succeeded(Requester::Heartbeat);
                        }
                        // Without a sign of life, others may find that this cluster is gone: no
                        // block is taken or returned, whatever the reason.
                        Err(error) => heartbeat.registry.failed(Requester::Heartbeat, &error),
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
    /// The name of the record.
    key: Key,
    /// A random number of this process.
    process: String,
    /// The record as this process has written or read it.
    held: Option<Entry>,
    disturbance: Disturbance,
}

impl Heartbeat {
    /// Whether a sign of life has to be written before its time: to find out whether the registry can be
    /// reached, or what others have written until now.
    fn is_wanted(&self) -> bool {
        let registry = &self.registry;
        registry.needs_probe() || registry.signs_of_life.is_wanted(&registry.name)
    }

    /// The time between two signs of life.
    fn interval(&self) -> Duration {
        let interval = self.disturbance.interval();
        if self.registry.is_awaited() {
            return interval.min(RECOVERY_INTERVAL);
        }
        interval
    }

    /// Writes a sign of life if it is needed. Returns false if it may not be written yet.
    async fn beat(&mut self) -> Result<bool, RegistryError> {
        if !self.registry.may_show_life() {
            // Finds out whether a registry can be reached to which nothing is written.
            if self.registry.needs_probe() {
                let key = Key::Registry.to_string();
                self.registry.backend.read(&key).await?;
            }
            return Ok(false);
        }
        self.registry.backend.check().await?;
        // After a failed write, the record may be that of another process.
        if self.held.is_none() || !self.is_alone {
            self.read().await?;
        }
        if !self.may_write() {
            return Ok(false);
        }
        if self.is_alone {
            return self.beat_alone().await;
        }
        self.beat_beside_others().await
    }

    /// Writes a sign of life, and finds out whether another process does so. Returns false if it may not be
    /// written yet.
    async fn beat_alone(&mut self) -> Result<bool, RegistryError> {
        // The record of an earlier process of this cluster is taken over. After a write of this one, that of
        // another process is no longer that of an earlier one.
        let has_written = self.registry.has_shown_life();
        let is_undisturbed = !has_written || self.record_of_another().is_none();
        if self.write().await? && is_undisturbed {
            self.disturbance.unnoticed(Instant::now());
            self.suspend();
            return Ok(true);
        }
        // Another process has written since. It finds this write the next time, and so both know.
        if self.held.is_none() {
            self.read().await?;
            if !self.may_write() || self.registry.is_recovering() {
                return Ok(false);
            }
            self.write().await?;
        }
        self.disturbance.noticed(Instant::now());
        self.suspend();
        Ok(true)
    }

    /// Writes a sign of life unless another manager of this management cluster has done so.
    async fn beat_beside_others(&mut self) -> Result<bool, RegistryError> {
        // A watch that works again shows this write. It may have nothing else to show.
        let registry = &self.registry;
        let is_awaited = registry.is_awaited() || self.is_wanted();
        if registry.is_watch_failing() || is_awaited || !self.was_seen_by_another() {
            self.write().await?;
        } else {
            registry.found_heartbeat();
        }
        Ok(true)
    }

    /// Reads the record.
    async fn read(&mut self) -> Result<(), RegistryError> {
        let registry = &self.registry;
        self.held = registry.backend.read(&self.key.to_string()).await?;
        registry.record_read(&self.key, self.held.as_ref());
        let record = match self.held.as_ref().and_then(Entry::record) {
            Some(Record::Cluster(record)) => Some(record),
            _ => None,
        };
        // The answer to its write was lost.
        if let (Some(held), Some(record)) = (&self.held, record)
            && record.process == self.process
            && !registry.records.has_watched(&held.version)
        {
            registry.wrote_heartbeat(held.version.clone(), record.writes, Instant::now());
        }
        if registry.is_confirmed() {
            registry.compare_read(record);
        }
        registry.check_cluster();
        Ok(())
    }

    /// The record as it is written now.
    fn record(&self) -> ClusterRecord {
        let registry = &self.registry;
        let name = &registry.name;
        let exclusions = registry.ledger.read(|ledger| ledger.exclusion_hashes(name));
        ClusterRecord {
            cluster: registry.cluster.to_string(),
            uid: registry.uid.clone(),
            process: self.process.clone(),
            seen: Some(clock::now()),
            blocks: u32::try_from(registry.held()).unwrap_or(u32::MAX),
            writes: Some(registry.next_writes()),
            exclusions: exclusions.into_iter().take(MAX_EXCLUSIONS).collect(),
        }
    }

    /// Whether the record may be written. It is left to another cluster with the identity of this one.
    fn may_write(&mut self) -> bool {
        let is_other = self.registry.is_of_other_cluster();
        if is_other {
            self.held = None;
        }
        !is_other && self.registry.may_show_life()
    }

    /// Writes the record in the version that is held. Returns false if another process has changed
    /// it since.
    async fn write(&mut self) -> Result<bool, RegistryError> {
        let registry = &self.registry;
        let began = Instant::now();
        let record = self.record();
        let writes = record.writes;
        let record = Record::Cluster(record);
        let written = match self.held.take() {
            Some(held) => registry.backend.update(&held, &record).await,
            None => match registry
                .backend
                .create(&self.key.to_string(), &record)
                .await?
            {
                Created::Ours(entry) => Ok(entry),
                Created::Theirs(_) => return Ok(false),
            },
        };
        match written {
            Ok(entry) => {
                registry.record_response(&entry);
                registry.wrote_heartbeat(entry.version.clone(), writes, began);
                self.held = Some(entry);
                // The watch may have shown it before the answer.
                registry.note_sign_of_life();
                Ok(true)
            }
            Err(RegistryError::Conflict { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The record of the cluster, if another process has written it.
    fn record_of_another(&self) -> Option<&ClusterRecord> {
        match self.held.as_ref().and_then(Entry::record) {
            Some(Record::Cluster(record)) if record.process != self.process => Some(record),
            _ => None,
        }
    }

    /// Whether another manager has shown that the cluster is alive.
    fn was_seen_by_another(&self) -> bool {
        let record = self.record_of_another();
        let now = clock::now().0.as_second();
        match record.and_then(|record| record.seen.as_ref()) {
            Some(seen) => now.saturating_sub(seen.0.as_second()) < SHARED_HEARTBEAT,
            None => false,
        }
    }

    /// Stops taking, returning and using blocks while another process writes with the same identity.
    fn suspend(&self) {
        let registry = &self.registry;
        let is_lasting = self.disturbance.is_lasting();
        if is_lasting && !registry.is_suspended() {
            warn!(
                registry = registry.name,
                cluster = &*registry.cluster,
                "another process writes with the identity of this management cluster; no block is taken, returned or used"
            );
        }
        registry.set_disturbed(is_lasting);
    }
}
