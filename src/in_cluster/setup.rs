//! What the provider consists of: its triggers, its ledger, its watches, its controllers and its
//! background tasks.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_api::{
    IPNetwork, IPRegistry, IPReservation, IPSlice, InClusterKind, Pool, PoolKey, PoolSet,
    PoolSetKey, PoolSetKind,
};
use capi_ipam_controller::client::ResourceClient;
use capi_ipam_controller::controller::{ControllerBuilder, Trigger};
use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_controller::manager::{BackgroundTask, BoxError, Manager, NextRun};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::watch::{EventHandler, FanOut, WatchApi, WatchSpec};
use capi_ipam_provider::advanced::{ProviderSetup, Selection};
use capi_ipam_provider::api::IPAddressClaim;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use tokio::sync::watch;

use super::allocation_log::AllocationLog;
use super::blocks::check::ListSlices;
use super::blocks::registries;
use super::cluster_addressing;
use super::conflict_events::ConflictEvents;
use super::context::Context;
use super::cooldown::EndCooldowns;
use super::definitions::{CheckDefinitions, DefinitionError, Definitions};
use super::deletion_check::DeletionChecker;
use super::gates::Gates;
use super::handler::InClusterAdapter;
use super::metrics::{CountSharedAddresses, PoolMetrics, PoolMetricsMode, TakeSnapshots};
use super::options::InClusterOptions;
use super::readiness::Readiness;
use super::repairs::{ObservedSlices, ReplaceDeletedReservations, Sweeper};
use super::reservation_store::ReservationStore;
use super::rollouts::PlanRollouts;
use super::scope_changes::MoveReservations;
use super::shared_ledger::SharedLedger;
use super::signs_of_life::SignsOfLife;
use super::slice_return::SliceReturn;
use super::slices_listed::SlicesListed;
use super::standby::LedgerHandle;
use super::terminating::TerminatingClaims;
use super::use_check::UseCheck;
use super::{dns_endpoints, networks, pool_sets, pools};

/// Adds everything to the manager, and creates the adapter. The ledger is published with
/// `ledger_handle`.
pub(super) fn set_up(
    setup: &mut ProviderSetup<'_>,
    options: &InClusterOptions,
    ledger_handle: &LedgerHandle,
    (definitions, problem): (Definitions, Result<Option<String>, DefinitionError>),
) -> Result<InClusterAdapter, BoxError> {
    let controllers = Controllers::new(setup.manager);
    let triggers = triggers(setup, &controllers);
    let gates = Gates::register(setup);
    let (blocks_changed, changed) = watch::channel(());
    let context = create_ledger(setup, options, triggers, blocks_changed)?;
    // Before anything is watched.
    let gate = setup.manager.health.require("definitions")?;
    let ledger = Arc::clone(&context.ledger);
    let check = CheckDefinitions::new(definitions, problem, ledger, gate);
    setup
        .manager
        .add_task("check of the definitions", Vec::new(), check);
    let slices = Arc::new(ObservedSlices::default());
    add_watches(setup, &context, &gates, &slices);
    let readiness = Readiness::register(&setup.manager.metrics);
    controllers.export_readiness(&readiness);
    let registries = start_controllers(setup.manager, controllers, &context, &gates);
    registries::start(
        setup.manager,
        registries,
        &context,
        &gates,
        options,
        changed,
    );
    add_tasks(setup, options, &context, &gates, slices);
    if options.cluster_addressing {
        cluster_addressing::start(setup, options, &readiness);
    }
    if options.dns_endpoints {
        dns_endpoints::start(setup, &context, &gates);
    }
    ledger_handle.publish(Arc::clone(&context.ledger), gates.of_ledger());
    Ok(InClusterAdapter { context })
}

/// The controllers that are not started yet: the ledger enqueues their objects, and they need the
/// ledger.
struct Controllers {
    pools: [(InClusterKind, ControllerBuilder<Pool, Infallible>); InClusterKind::ALL.len()],
    sets: [(PoolSetKind, ControllerBuilder<PoolSet, Infallible>); PoolSetKind::ALL.len()],
    networks: ControllerBuilder<IPNetwork, Infallible>,
    registries: ControllerBuilder<IPRegistry, Infallible>,
}

impl Controllers {
    fn new(manager: &Manager) -> Self {
        Self {
            pools: InClusterKind::ALL.map(|kind| (kind, manager.controller(kind.name()))),
            sets: PoolSetKind::ALL.map(|kind| (kind, manager.controller(kind.name()))),
            networks: manager.controller("IPNetwork"),
            registries: manager.controller("IPRegistry"),
        }
    }

    fn export_readiness(&self, readiness: &Readiness) {
        for (kind, controller) in &self.pools {
            readiness.add(kind.name(), controller.store(), |pool: &Pool| {
                pool.status
                    .as_ref()
                    .map_or(&[], |status| &status.conditions)
            });
        }
        for (kind, controller) in &self.sets {
            readiness.add(kind.name(), controller.store(), |set: &PoolSet| {
                let status = set.status.as_ref();
                status.map_or(&[], |status| &status.conditions)
            });
        }
        readiness.add("IPNetwork", self.networks.store(), |network| {
            network
                .status
                .as_ref()
                .map_or(&[], |status| &status.conditions)
        });
        readiness.add("IPRegistry", self.registries.store(), |registry| {
            registry
                .status
                .as_ref()
                .map_or(&[], |status| &status.conditions)
        });
    }
}

/// Enqueues what a change of the ledger affects.
struct Triggers {
    claims: Trigger<IPAddressClaim>,
    pools: HashMap<InClusterKind, Trigger<Pool>>,
    sets: HashMap<PoolSetKind, Trigger<PoolSet>>,
    networks: Trigger<IPNetwork>,
}

fn triggers(setup: &ProviderSetup<'_>, controllers: &Controllers) -> Triggers {
    let (pools, sets) = (controllers.pools.iter(), controllers.sets.iter());
    Triggers {
        claims: setup.trigger(),
        pools: pools
            .map(|(kind, controller)| (*kind, controller.trigger()))
            .collect(),
        sets: sets
            .map(|(kind, controller)| (*kind, controller.trigger()))
            .collect(),
        networks: controllers.networks.trigger(),
    }
}

/// Creates the ledger, and what reads and writes the objects that it contains.
fn create_ledger(
    setup: &mut ProviderSetup<'_>,
    options: &InClusterOptions,
    triggers: Triggers,
    blocks_changed: watch::Sender<()>,
) -> Result<Arc<Context>, BoxError> {
    let Triggers {
        claims,
        pools,
        sets,
        networks,
    } = triggers;
    let enqueue_pool = move |pool: &PoolKey| {
        if let Some(trigger) = pools.get(&pool.kind) {
            let namespace = pool.namespace.as_deref().unwrap_or_default();
            trigger.enqueue(NamespacedName::new(namespace, &pool.name));
        }
    };
    let enqueue_set = move |set: &PoolSetKey| {
        if let Some(trigger) = sets.get(&set.kind) {
            let namespace = set.namespace.as_deref().unwrap_or_default();
            trigger.enqueue(NamespacedName::new(namespace, &set.name));
        }
    };
    // A network whose counts change may need another block.
    let enqueue_network = move |network: &str| {
        networks.enqueue(NamespacedName::new("", network));
        blocks_changed.send_replace(());
    };
    let ledger = Arc::new(SharedLedger::new(
        claims,
        enqueue_pool,
        enqueue_set,
        enqueue_network,
    ));
    let allocations = match &options.allocation_log {
        Some(file) => AllocationLog::start(setup.manager, file, Arc::clone(&ledger))?,
        None => AllocationLog::default(),
    };
    let manager = &*setup.manager;
    let reservations: ResourceClient<IPReservation> =
        ResourceClient::new(Api::all(manager.client.clone()), &());
    let deletion_checker = DeletionChecker::new(
        reservations.clone(),
        setup.contract.clone(),
        Arc::clone(&ledger),
    );
    let restores = manager.health.restores().clone();
    Ok(Arc::new(Context {
        allocations,
        reservations: ReservationStore::new(reservations, Arc::clone(&ledger), restores),
        ledger,
        slices: ResourceClient::new(Api::all(manager.client.clone()), &()),
        slices_listed: SlicesListed::new(options.sweep_grace),
        signs_of_life: Arc::new(SignsOfLife::default()),
        events: manager.events.clone(),
        contract: setup.contract.clone(),
        deletion_checker: Arc::new(deletion_checker),
        restore_timeout: options.restored_claim_timeout,
        terminating: Arc::new(TerminatingClaims::new(setup.trigger())),
        selection: Selection::of(&manager.options),
    }))
}

/// Adds the watches that fill the ledger, apart from those of the kinds that have a controller. No
/// claim is reconciled before all kinds are listed.
fn add_watches(
    setup: &mut ProviderSetup<'_>,
    context: &Arc<Context>,
    gates: &Gates,
    slices: &Arc<ObservedSlices>,
) {
    setup.add_claim_event_handler(Arc::clone(&context.terminating) as _);
    setup.add_claim_event_handler(Arc::clone(&context.ledger) as _);
    let conflicts = ConflictEvents::new(
        Arc::clone(&context.ledger),
        context.contract.ipam,
        context.events.clone(),
    );
    setup.add_claim_event_handler(Arc::new(conflicts));
    setup.add_address_event_handler(Arc::clone(&context.ledger) as _);
    let own = gates.pools.iter().chain(&gates.sets);
    for gate in own.chain([&gates.networks]) {
        setup.controller.wait_for(gate.clone());
    }
    let ledger = &context.ledger;
    watch_all::<Namespace>(setup, Arc::clone(ledger) as _, &gates.namespaces);
    watch_all::<IPReservation>(setup, Arc::clone(ledger) as _, &gates.reservations);
    let observers: Vec<Arc<dyn EventHandler<IPSlice>>> =
        vec![Arc::clone(ledger) as _, Arc::clone(slices) as _];
    watch_all::<IPSlice>(setup, Arc::new(FanOut(observers)), &gates.slices);
}

/// Adds the watch of all objects of a kind, which the ledger contains.
fn watch_all<K>(
    setup: &mut ProviderSetup<'_>,
    handler: Arc<dyn EventHandler<K>>,
    gate: &ReadinessGate,
) where
    K: kube::Resource<DynamicType = ()>
        + Clone
        + serde::de::DeserializeOwned
        + std::fmt::Debug
        + Send
        + Sync
        + 'static,
{
    let api = WatchApi::all(setup.manager.client.clone());
    let spec = WatchSpec::<K>::new(api, (), handler, gate.clone());
    setup.controller.watch(spec);
}

/// Starts the controllers of pools, of sets of them, and of networks. Each watches the kind that it reconciles. Returns
/// the one of registries, which needs the options.
fn start_controllers(
    manager: &mut Manager,
    controllers: Controllers,
    context: &Arc<Context>,
    gates: &Gates,
) -> ControllerBuilder<IPRegistry, Infallible> {
    for ((kind, controller), gate) in controllers.pools.into_iter().zip(&gates.pools) {
        pools::start(manager, kind, controller, context, gate, gates);
    }
    for ((kind, controller), gate) in controllers.sets.into_iter().zip(&gates.sets) {
        pool_sets::start(manager, kind, controller, context, gate, gates);
    }
    networks::start(manager, controllers.networks, context, gates);
    controllers.registries
}

/// Adds the tasks that run in the background.
fn add_tasks(
    setup: &mut ProviderSetup<'_>,
    options: &InClusterOptions,
    context: &Arc<Context>,
    gates: &Gates,
    slices: Arc<ObservedSlices>,
) {
    let end_cooldowns = EndCooldowns(Arc::clone(context));
    let rechecks = EnqueueRechecks(Arc::clone(&context.ledger));
    let moves = MoveReservations::new(Arc::clone(context));
    let client = setup.manager.client.clone();
    let slice_return = SliceReturn::new(Arc::clone(context), client, options);
    let metrics = PoolMetrics::default();
    let interval = options.verify_interval;
    let use_check = UseCheck::new(setup, Arc::clone(context), metrics.clone(), interval);
    let replace_deleted = ReplaceDeletedReservations::new(setup, options, context);
    let sweeper = Sweeper::new(setup, options, context, slices);
    let ledger = Arc::clone(&context.ledger);
    let shared_addresses = CountSharedAddresses::new(&setup.manager.metrics, ledger);

    let manager = &mut *setup.manager;
    manager.add_task("cool-downs", gates.of_ledger(), end_cooldowns);
    manager.add_task("rechecks of waiting claims", Vec::new(), rechecks);
    manager.add_background_task("scope changes", gates.of_ledger(), moves);
    manager.add_background_task("return of slices", gates.of_ledger(), slice_return);
    let list_slices = ListSlices(Arc::clone(context));
    manager.add_task("list of slices", gates.of_ledger(), list_slices);
    if options.pool_metrics == PoolMetricsMode::All {
        metrics.register(&manager.metrics);
        let ledger = Arc::clone(&context.ledger);
        let snapshots = TakeSnapshots { metrics, ledger };
        manager.add_background_task("metrics of pools", gates.of_ledger(), snapshots);
    }
    manager.add_background_task(
        "count of shared addresses",
        gates.of_ledger(),
        shared_addresses,
    );
    manager.add_task(
        "replacement of deleted reservations",
        gates.of_use(),
        replace_deleted,
    );
    manager.add_background_task("check of the addresses in use", gates.of_use(), use_check);
    manager.add_background_task("sweeper", gates.of_use(), sweeper);
    if options.rollout_metrics {
        let plan = PlanRollouts::new(manager, context);
        manager.add_background_task("plan of the rollouts", gates.of_use(), plan);
    }
}

/// The number of claims that are enqueued at once.
const RECHECK_BATCH_SIZE: usize = 200;
/// The time between two batches: one of a busy manager takes longer, and is not waited for.
const RECHECK_BATCH_INTERVAL: Duration = Duration::from_millis(200);

/// Enqueues claims that wait for an address of a pool which can no longer allocate: they report
/// this. A hundred thousand claims can wait for one pool. So they are enqueued in batches, and
/// reconciled at low priority.
struct EnqueueRechecks(Arc<SharedLedger>);

impl BackgroundTask for EnqueueRechecks {
    async fn run_once(&mut self) -> NextRun {
        while self.0.recheck(RECHECK_BATCH_SIZE) {
            // Another notification does not end the time between two batches.
            tokio::time::sleep(RECHECK_BATCH_INTERVAL).await;
        }
        NextRun::OnNotification
    }

    async fn notified(&self) {
        self.0.rechecks_added().await;
    }
}
