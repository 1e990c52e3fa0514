//! Repairs of what interruptions, users and other programs leave behind, and the sweeper, which
//! runs them one after the other.
//!
//! | repair | what it corrects |
//! |---|---|
//! | `PruneWaitQueues` | claims that do not exist leave the wait queues |
//! | [`stale_cooldowns`] | cool-downs of addresses that are in use end |
//! | [`missing_reservations`] | addresses in use get the reservation that they lack; at once if somebody deletes it |
//! | [`duplicates`] | addresses of two bound claims are reported |
//! | [`invalid_reservations`] | whether manually created reservations have an effect is reported |
//! | [`invalid_slices`] | slices without effect are reported |
//! | [`move_labels`] | reservations get the label of `clusterctl move` |
//! | [`abandoned_reservations`] | reservations that no claim needs are released |
//!
//! IPAddresses without a claim are deleted by the sweep of the SDK.
//!
//! Every process releases abandoned reservations, also in namespaces that it does not manage: it
//! watches the claims of all namespaces, and live reads decide. What a read shows is recorded in
//! the ledger. Reservations are created only for claims that this process manages.

mod abandoned_reservations;
mod bound_claims;
mod duplicates;
mod invalid_reservations;
mod invalid_slices;
mod missing_reservations;
mod move_labels;
mod stale_cooldowns;

use std::sync::Arc;
use std::time::Duration;

use capi_ipam_api::{IPReservation, PoolKey, PoolSetKey, Slot};
use capi_ipam_controller::client::{CallError, error_chain};
use capi_ipam_controller::manager::{BackgroundTask, NextRun};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ledger::block_of;
use capi_ipam_provider::advanced::{
    AbandonedObjects, ClaimCache, ProviderSetup, ReleaseAbandoned, Repair, Repaired, run_repair,
};
use capi_ipam_provider::api::{IPAddress, Uid};
use tracing::debug;

use self::abandoned_reservations::AbandonedReservations;
use self::bound_claims::BoundClaims;
use self::duplicates::ReportDuplicates;
pub(super) use self::duplicates::duplicate_message;
use self::invalid_reservations::ReportInvalidReservations;
pub(super) use self::invalid_slices::ObservedSlices;
use self::invalid_slices::ReportInvalidSlices;
use self::missing_reservations::CreateMissingReservations;
pub(super) use self::missing_reservations::ReplaceDeletedReservations;
use self::move_labels::AddMoveLabels;
use self::stale_cooldowns::EndStaleCooldowns;
use super::context::Context;
use super::options::InClusterOptions;

/// The task that runs all repairs.
pub(super) struct Sweeper {
    interval: Duration,
    wait_queues: PruneWaitQueues,
    stale_cooldowns: EndStaleCooldowns,
    missing_reservations: CreateMissingReservations,
    duplicates: ReportDuplicates,
    invalid_reservations: ReportInvalidReservations,
    invalid_slices: ReportInvalidSlices,
    move_labels: AddMoveLabels,
    abandoned_reservations: ReleaseAbandoned<AbandonedReservations>,
}

impl BackgroundTask for Sweeper {
    async fn run_once(&mut self) -> NextRun {
        run_repair(&mut self.wait_queues).await;
        run_repair(&mut self.stale_cooldowns).await;
        run_repair(&mut self.missing_reservations).await;
        run_repair(&mut self.duplicates).await;
        run_repair(&mut self.invalid_reservations).await;
        run_repair(&mut self.invalid_slices).await;
        run_repair(&mut self.move_labels).await;
        let released = run_repair(&mut self.abandoned_reservations).await;
        if released.count > 0 {
            // A released reservation may have been that of an earlier claim for an address in use.
            run_repair(&mut self.stale_cooldowns).await;
            run_repair(&mut self.missing_reservations).await;
        }
        NextRun::After(self.interval)
    }
}

impl Sweeper {
    pub(super) fn new(
        setup: &ProviderSetup<'_>,
        options: &InClusterOptions,
        context: &Arc<Context>,
        slices: Arc<ObservedSlices>,
    ) -> Self {
        let claims = setup.claim_cache();
        let bound_claims = BoundClaims::new(claims.clone(), options.sweep_grace);
        let released = setup.orphans_freed(AbandonedReservations::NAME);
        let abandoned = AbandonedReservations::new(Arc::clone(context), claims.clone());
        Self {
            interval: options.sweep_interval,
            wait_queues: PruneWaitQueues::new(Arc::clone(context), claims),
            stale_cooldowns: EndStaleCooldowns::new(Arc::clone(context), bound_claims.clone()),
            missing_reservations: CreateMissingReservations::new(Arc::clone(context), bound_claims),
            duplicates: ReportDuplicates::new(setup, Arc::clone(context)),
            invalid_reservations: ReportInvalidReservations::new(Arc::clone(context)),
            invalid_slices: ReportInvalidSlices::new(Arc::clone(context), slices),
            move_labels: AddMoveLabels::new(Arc::clone(context)),
            abandoned_reservations: ReleaseAbandoned::new(abandoned, options.sweep(), released),
        }
    }
}

/// Logs that the status of an object could not be written. The next pass tries it again.
fn report_failed(object: &str, error: &CallError) {
    debug!(
        object,
        error = error_chain(error),
        "cannot report in the status whether an object has an effect, will retry"
    );
}

/// Whether an IPAddress has this address, from this pool. One that refers to a set may be of any
/// pool: a user can change the annotation that names the member, and the reservation stays.
fn has_address(address: &IPAddress, slot: &Slot, pool: &PoolKey) -> bool {
    let is_of_set = PoolSetKey::of_address(address).is_some();
    let may_be_of_pool = is_of_set || PoolKey::of_address(address).as_ref() == Some(pool);
    may_be_of_pool && block_of(address, pool.kind) == Some(slot.block)
}

/// Whether a reservation is that of the claim with this uid, which has not released it.
fn is_held_by(reservation: &IPReservation, claim: Uid) -> bool {
    let holder = reservation.spec.claim_ref.as_ref();
    let uid = holder.and_then(|holder| holder.uid.as_deref());
    uid.map(Uid::of) == Some(claim) && reservation.spec.released_at.is_none()
}

/// Removes claims that do not exist, or that this process does not manage, from the wait queues,
/// and passes on turns that are not used. No event reports a claim that was removed while the watch
/// was interrupted.
struct PruneWaitQueues {
    context: Arc<Context>,
    claims: ClaimCache,
}

impl Repair for PruneWaitQueues {
    const NAME: &'static str = "wait-queues";

    async fn pass(&mut self) -> Repaired {
        let may_wait = |claim: &NamespacedName| self.is_managed(claim);
        self.context
            .ledger
            .note(|ledger| ledger.prune_wait_queues(may_wait));
        Repaired::default()
    }
}

impl PruneWaitQueues {
    fn new(context: Arc<Context>, claims: ClaimCache) -> Self {
        Self { context, claims }
    }

    fn is_managed(&self, claim: &NamespacedName) -> bool {
        let found = self.claims.get(claim.namespace(), claim.name());
        found.is_some_and(|found| found.is_managed)
    }
}
