//! What runs for one registry: the watch of its records, the driver of its blocks, and the sign of
//! life of this management cluster.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_api::IPRegistrySpec;
use capi_ipam_controller::client::error_chain;
use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_controller::watch::{Change, EventHandler};
use capi_ipam_registry::{Entry, Key, RecordChanges};
use futures::{FutureExt, StreamExt};
use k8s_openapi::ByteString;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::driver::Driver;
use super::heartbeat::Heartbeat;
use super::open_registry::{OpenRegistry, PROBE_INTERVAL, Requester};
use crate::in_cluster::context::Context;

/// How long a process that starts waits for the records of a registry before it allocates addresses of its
/// blocks: another cluster can have the identity of this one.
pub(super) const START_DELAY: Duration = Duration::from_secs(5);
/// How long the list of all records waits for the records of the own blocks: both at once take longer.
const LIST_DELAY: Duration = Duration::from_millis(500);
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
    /// The identity of the registry in the status of the IPRegistry.
    pub(super) known_id: Option<String>,
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
    /// Fills the cache of records: first those of the own blocks, which takes less time than the list of all.
    fn watch(self) -> Task {
        Box::pin(async move {
            let mut own = pin!(self.read_own_blocks().fuse());
            let _ = timeout(LIST_DELAY, &mut own).await;
            tokio::join!(own, self.watch_all());
        })
    }

    async fn watch_all(&self) {
        loop {
            let handler = Arc::clone(&self.registry) as Arc<dyn EventHandler<Entry>>;
            let changes = match self.registry.backend.registry.watch(handler) {
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

    /// Lets the ledger use the own blocks as their records show. If these cannot be read, the list of all records
    /// decides.
    async fn read_own_blocks(&self) {
        let Some(id) = &self.known_id else {
            return;
        };
        self.wait_for_initial_lists().await;
        if self.registry.is_confirmed() {
            return;
        }
        match self.registry.read_own_blocks(id, self.own_blocks()).await {
            Ok(true) => self.use_own_blocks(),
            Ok(false) => {}
            Err(error) => {
                let (registry, error) = (&self.registry.name, error_chain(&error));
                debug!(registry, error, "cannot read the records of the own blocks");
            }
        }
    }

    /// The records of the blocks of this management cluster.
    fn own_blocks(&self) -> Vec<Key> {
        let registry = &self.registry;
        let mut keys = Vec::new();
        registry.ledger.read(|ledger| {
            for name in ledger.networks_of_registry(&registry.name) {
                let network = ledger.network_blocks(&name).unwrap_or_default();
                for view in network.blocks {
                    if view
                        .slice
                        .is_some_and(|slice| slice.cluster == registry.cluster)
                    {
                        let (network, block) = (name.as_str().into(), view.block);
                        keys.push(Key::Block { network, block });
                    }
                }
            }
        });
        keys
    }

    /// Waits until the ledger knows the objects that it needs.
    async fn wait_for_initial_lists(&self) {
        for gate in &self.gates {
            gate.wait().await;
        }
    }

    /// Tells the ledger who this management cluster is: from then on, addresses of its blocks are
    /// allocated.
    fn use_own_blocks(&self) {
        let OpenRegistry {
            name,
            cluster,
            ledger,
            ..
        } = &*self.registry;
        ledger.change(|ledger| ledger.set_management_cluster(name, cluster));
    }

    /// Sends what is due for the blocks.
    fn drive(mut self) -> Task {
        Box::pin(async move {
            self.wait_for_initial_lists().await;
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

    /// Lets the ledger use the own blocks. The records are listed first if the registry can be reached in
    /// time.
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
        self.use_own_blocks();
    }

    /// Shows that this management cluster is alive.
    fn live(self) -> Task {
        let is_alone = self.context.selection.is_everything();
        Box::pin(Heartbeat::new(self.registry, is_alone).run())
    }
}
