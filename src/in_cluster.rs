//! The in-cluster provider: allocates addresses from pools that are objects of the management
//! cluster.
//!
//! Uniqueness depends on the API server alone. An address is allocated by creating an
//! [`IPReservation`](capi_ipam_api::IPReservation) whose name is derived from the scope and the
//! address ([`reservation_name`](capi_ipam_api::reservation_name)): if two clients create it, one
//! of them gets a conflict. The in-memory [ledger](capi_ipam_ledger) makes this fast. It proposes
//! the lowest address that seems free; a wrong proposal costs a retry, never a duplicate.
//!
//! - [`register`], `setup`: the watches, controllers and background tasks; `gates`: when each kind
//!   is listed;
//! - [`handler`](InClusterHandler), `release`: the handler of one claim creates and deletes
//!   reservations (steps A2, R2);
//! - `access`: who may use a global pool; `adoption`: keeps the address of an existing IPAddress;
//! - `allocation_log`: a line for each change of the holder of an address;
//! - `cluster_addressing`: gives addresses to Clusters;
//! - `cooldown`: the end of cool-downs, during which a released address is not reused;
//! - `definitions`: whether the served definitions have all fields;
//! - `pools`: finalizer, counts and conditions of pools; `deletion_check`: what blocks the deletion
//!   of a pool;
//! - `pool_sets`: finalizer, counts and conditions of sets of pools; `set_allocation`: chooses the
//!   pool of a claim that names a set;
//! - `machines`: the Machine of a claim; `use_check`: compares its addresses with those of claims;
//! - `metrics`: the counts of pools for Prometheus;
//! - `slices`: assigns slices of a pool to owners; `slice_return`: returns those that their owners
//!   no longer need;
//! - `blocks`: takes and returns blocks of networks that several management clusters share;
//!   `slices_listed`: when their IPSlices were last listed;
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
mod allocation_log;
mod blocks;
mod cluster_addressing;
mod conflict_events;
mod context;
mod cooldown;
mod definitions;
mod deletion_check;
mod dns_endpoints;
mod errors;
mod gates;
mod gauges;
mod handler;
mod kinds;
mod machines;
mod metrics;
mod networks;
mod options;
mod pool_sets;
mod pools;
mod problem_report;
mod readiness;
mod release;
mod repairs;
mod requests;
mod reservation;
mod reservation_store;
mod rollouts;
mod scope_changes;
mod set_allocation;
mod setup;
mod shared_ledger;
mod signs_of_life;
mod slice_return;
mod slices;
mod slices_listed;
mod standby;
mod takeover;
mod terminating;
mod use_check;

use std::time::Duration;

use capi_ipam_api::installed::CONVERTED_DEFINITIONS;
use capi_ipam_api::{InClusterKind, PoolSetKind, names};
use capi_ipam_controller::client::error_chain;
use capi_ipam_controller::manager::{BoxError, Manager};
use capi_ipam_controller::upgrade::StoredVersions;
use capi_ipam_provider::advanced::{ClaimOptions, ContractClient, PoolKind};
use capi_ipam_provider::prelude::ClaimReconciler;
use tracing::warn;

pub use self::blocks::METRICS as REGISTRY_METRICS;
pub use self::cluster_addressing::{Requested, RequestedClusters};
use self::definitions::Definitions;
pub use self::handler::{InClusterAdapter, InClusterHandler};
pub use self::metrics::{METRICS, PoolMetricsMode};
pub use self::options::InClusterOptions;
use self::setup::set_up;
pub use self::standby::{LedgerHandle, run_standby};

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
    let mut definitions = Definitions::new(&manager.client);
    let problem = definitions.problem().await;
    // A pool that is stored again loses the fields that its definition lacks.
    if matches!(problem, Ok(None)) {
        upgrade(manager).await;
    }
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
    let pools = InClusterKind::ALL.map(|kind| (kind.name(), kind.is_global()));
    let sets = PoolSetKind::ALL.map(|kind| (kind.name(), kind.is_global()));
    for (name, is_global) in pools.into_iter().chain(sets) {
        let pools = PoolKind::new(names::GROUP, name);
        builder = builder.pools(if is_global {
            pools.cluster_scoped()
        } else {
            pools
        });
    }
    builder
        .build(async |setup| {
            let checked = (definitions, problem);
            set_up(setup, &options, &ledger_handle, checked)
        })
        .await
}

/// Stores pools that are stored as v1alpha1 in the current version, and removes v1alpha1 from the
/// stored versions of the CustomResourceDefinitions. A release without v1alpha1 can be installed
/// only after that.
///
/// A failure does not prevent the start: all versions are still served. The next start runs the
/// step again.
async fn upgrade(manager: &Manager) {
    for &definition in CONVERTED_DEFINITIONS {
        let step = StoredVersions::new(manager.client.clone(), definition);
        if let Err(error) = manager.upgrade(&step).await {
            warn!(
                definition,
                error = error_chain(&error),
                "cannot upgrade stored pools; the next start tries again"
            );
        }
    }
}
