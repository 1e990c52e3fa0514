//! The in-cluster provider: allocates addresses from pools that are objects of the management
//! cluster.
//!
//! Uniqueness depends on the API server alone. An address is allocated by creating an
//! [`IPReservation`] whose name is derived from the scope and the address
//! ([`reservation_name`](capi_ipam_api::reservation_name)): if two clients create it, one of them
//! gets a conflict. The in-memory [ledger](capi_ipam_ledger) makes this fast. It proposes the
//! lowest address that seems free; a wrong proposal costs a retry, never a duplicate.
//!
//! - [`register`]: the watches, controllers and background tasks;
//! - [`handler`](InClusterHandler), `release`: the handler of one claim creates and deletes
//!   reservations (steps A2, R2);
//! - `access`: who may use a global pool; `adoption`: keeps the address of an existing IPAddress;
//! - `cooldown`: the end of cool-downs, during which a released address is not reused;
//! - `pools`: finalizer, counts and conditions of pools; `deletion_check`: what blocks the deletion
//!   of a pool;
//! - `machines`: the Machine of a claim; `use_check`: compares its addresses with those of claims;
//! - `metrics`: the counts of pools for Prometheus;
//! - `slices`: assigns slices of a pool to owners; `slice_return`: returns those that their owners
//!   no longer need;
//! - `networks`: finalizer, block lengths, counts and members of networks; `scope_changes`: moves
//!   the reservations of pools that join or leave a network;
//! - `shared_ledger`: the ledger with its lock, and who is notified of its changes;
//! - [`LedgerHandle`]: read access to the ledger for admission, in every replica;
//! - `repairs`: the sweeper, with one file for each repair: it releases abandoned reservations,
//!   creates missing ones, and reports duplicates;
//! - `terminating`: enqueues claims that are being deleted when their pool changes;
//! - `upgrade`: stores pools of an old version in the current one.

mod access;
mod adoption;
mod allocation;
mod context;
mod cooldown;
mod deletion_check;
mod errors;
mod handler;
mod kinds;
mod machines;
mod metrics;
mod networks;
mod options;
mod pools;
mod rechecks;
mod release;
mod repairs;
mod requests;
mod reservation;
mod reservation_store;
mod scope_changes;
mod shared_ledger;
mod slice_return;
mod slices;
mod standby;
mod takeover;
mod terminating;
mod upgrade;
mod use_check;

use std::sync::Arc;
use std::time::Duration;

use capi_ipam_api::{IPNetwork, IPReservation, IPSlice, InClusterKind, names};
use capi_ipam_controller::client::ResourceClient;
use capi_ipam_controller::controller::ControllerBuilder;
use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_controller::manager::{BoxError, Manager};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::watch::{WatchApi, WatchSpec};
use capi_ipam_provider::advanced::{
    ClaimOptions, ContractClient, PoolKind, ProviderSetup, Selection,
};
use capi_ipam_provider::prelude::ClaimReconciler;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;

use self::context::Context;
use self::cooldown::EndCooldowns;
use self::deletion_check::DeletionChecker;
pub use self::handler::{InClusterAdapter, InClusterHandler};
pub use self::metrics::{METRICS, PoolMetricsMode};
use self::metrics::{PoolMetrics, TakeSnapshots};
pub use self::options::InClusterOptions;
use self::rechecks::EnqueueRechecks;
use self::repairs::Sweeper;
use self::reservation_store::ReservationStore;
use self::scope_changes::MoveReservations;
use self::shared_ledger::SharedLedger;
use self::slice_return::SliceReturn;
pub use self::standby::{LedgerHandle, run_standby};
use self::terminating::TerminatingClaims;
use self::use_check::UseCheck;

/// How often a waiting claim is reconciled without a trigger: a safety net, since the ledger
/// enqueues waiting claims.
const RESYNC_INTERVAL: Duration = Duration::from_mins(10);

/// Adds the in-cluster provider to a manager. Waits until the API server serves all kinds, and
/// publishes the ledger of the provider with `ledger_handle`.
pub async fn register(
    manager: &mut Manager,
    options: InClusterOptions,
    ledger_handle: LedgerHandle,
) -> Result<(), BoxError> {
    // All missing kinds are reported at once. `build` discovers the versions of the contract again.
    let contract = ContractClient::discover(&manager.client, &manager.health);
    futures::join!(
        kinds::wait_for_kinds(&manager.client, &manager.health),
        contract
    );
    upgrade::run(manager).await;
    let claim_options = ClaimOptions {
        resync_interval: RESYNC_INTERVAL,
        restored_claim_timeout: options.restored_claim_timeout,
        // If the claim is deleted before it has the finalizer, the sweeper releases its
        // reservation.
        allocate_before_finalizer: true,
        ..ClaimOptions::default()
    };
    let mut builder = ClaimReconciler::builder(manager)
        .options(claim_options)
        .sweep(options.sweep());
    for kind in InClusterKind::ALL {
        builder = builder.pools(PoolKind::new(names::GROUP, kind.name()));
    }
    builder
        .build(async |setup| Ok(set_up(setup, &options, &ledger_handle)))
        .await
}

/// Adds the watch of reservations, the controllers of pools and the background tasks, and creates
/// the adapter.
fn set_up(
    setup: &mut ProviderSetup<'_>,
    options: &InClusterOptions,
    ledger_handle: &LedgerHandle,
) -> InClusterAdapter {
    let client = setup.manager.client.clone();
    let reservations: ResourceClient<IPReservation> =
        ResourceClient::new(Api::all(client.clone()), &());
    let reservations_synced = setup.manager.health.register_watch("IPReservation");
    let slices_synced = setup.manager.health.register_watch("IPSlice");
    let networks_synced = setup.manager.health.register_watch("IPNetwork");
    let namespaces_synced = setup.manager.health.register_watch("Namespace");
    // Which pools belong to a network is known when networks and namespaces are listed.
    let objects_synced = [
        setup.addresses_synced.clone(),
        reservations_synced.clone(),
        slices_synced.clone(),
        networks_synced.clone(),
        namespaces_synced.clone(),
    ];
    let (claims, contract, selection) = (
        setup.trigger(),
        setup.contract.clone(),
        Selection::of(&setup.manager.options),
    );
    let slices = ResourceClient::new(Api::all(client.clone()), &());
    let events = setup.manager.events.clone();
    let terminating = Arc::new(TerminatingClaims::new(setup.trigger()));
    setup.add_claim_event_handler(Arc::clone(&terminating) as _);
    let mut network_controller = None;
    let (context, pools_synced) =
        pools::register(setup.manager, &objects_synced, |manager, pools| {
            let controller: ControllerBuilder<IPNetwork> = manager.controller("IPNetwork");
            let trigger = controller.trigger();
            network_controller = Some(controller);
            let enqueue_network =
                move |network: &str| trigger.enqueue(NamespacedName::new("", network));
            let ledger = Arc::new(SharedLedger::new(claims, pools, enqueue_network));
            let deletion_checker =
                Arc::new(DeletionChecker::new(reservations.clone(), contract.clone()));
            let restores = manager.health.restores().clone();
            let reservations = ReservationStore::new(reservations, Arc::clone(&ledger), restores);
            Arc::new(Context {
                ledger,
                reservations,
                slices,
                events,
                contract,
                deletion_checker,
                terminating,
                selection,
            })
        });
    pools_synced
        .iter()
        .chain([&networks_synced, &namespaces_synced])
        .for_each(|gate| {
            setup.controller.wait_for(gate.clone());
        });
    if let Some(controller) = network_controller {
        let gates: Vec<_> = objects_synced
            .iter()
            .chain(&pools_synced)
            .cloned()
            .collect();
        networks::register(setup.manager, controller, &context, &networks_synced, gates);
    }
    let handler = Arc::clone(&context.ledger) as _;
    let namespaces = WatchApi::all(client.clone());
    setup
        .controller
        .watch::<Namespace>(WatchSpec::new(namespaces, (), handler, namespaces_synced));
    setup.add_address_event_handler(Arc::clone(&context.ledger) as _);
    setup.add_claim_event_handler(Arc::clone(&context.ledger) as _);
    let handler = Arc::clone(&context.ledger) as _;
    let all_reservations = WatchApi::all(client.clone());
    setup.controller.watch::<IPReservation>(WatchSpec::new(
        all_reservations,
        (),
        handler,
        reservations_synced,
    ));
    let handler = Arc::clone(&context.ledger) as _;
    setup.controller.watch::<IPSlice>(WatchSpec::new(
        WatchApi::all(client.clone()),
        (),
        handler,
        slices_synced,
    ));
    let ledger_synced: Vec<_> = objects_synced.into_iter().chain(pools_synced).collect();
    ledger_handle.publish(Arc::clone(&context.ledger), ledger_synced.clone());
    let metrics = PoolMetrics::default();
    add_tasks(setup, options, &context, &metrics, ledger_synced);
    InClusterAdapter { context }
}

/// Adds the tasks that run in the background. `ledger_synced` are the watches of what the ledger
/// contains.
fn add_tasks(
    setup: &mut ProviderSetup<'_>,
    options: &InClusterOptions,
    context: &Arc<Context>,
    metrics: &PoolMetrics,
    ledger_synced: Vec<ReadinessGate>,
) {
    let client = setup.manager.client.clone();
    let gates = || ledger_synced.clone();
    let end_cooldowns = EndCooldowns(Arc::clone(context));
    setup.manager.add_task("cool-downs", gates(), end_cooldowns);
    let rechecks = EnqueueRechecks(Arc::clone(&context.ledger));
    setup
        .manager
        .add_task("rechecks of waiting claims", Vec::new(), rechecks);
    let moves = MoveReservations::new(Arc::clone(context));
    setup
        .manager
        .add_background_task("scope changes", gates(), moves);
    let slice_return = SliceReturn::new(Arc::clone(context), client, options);
    setup
        .manager
        .add_background_task("return of slices", gates(), slice_return);
    if options.pool_metrics == PoolMetricsMode::All {
        metrics.register(&setup.manager.metrics);
        let snapshots = TakeSnapshots {
            metrics: metrics.clone(),
            ledger: Arc::clone(&context.ledger),
        };
        setup
            .manager
            .add_background_task("metrics of pools", gates(), snapshots);
    }
    // What uses an address is known when the claims are listed, too.
    let mut all_synced = ledger_synced;
    all_synced.push(setup.claims_synced.clone());
    let use_check = UseCheck::new(
        setup,
        Arc::clone(context),
        metrics.clone(),
        options.verify_interval,
    );
    setup.manager.add_background_task(
        "check of the addresses in use",
        all_synced.clone(),
        use_check,
    );
    let sweeper = Sweeper::new(setup, options, context);
    setup
        .manager
        .add_background_task("sweeper", all_synced, sweeper);
}
