//! The pool controllers: finalizer, counts and conditions of pools.

mod status;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_api::conditions::{self, Condition};
use capi_ipam_api::{InClusterKind, Pool, PoolKey, PoolStatus, advice, names};
use capi_ipam_controller::client::PrunedFields;
use capi_ipam_controller::client::{CallError, ResourceClient, error_chain};
use capi_ipam_controller::controller::{
    Action, Attempt, Conflicts, ControllerBuilder, Finalized, Protect, Protection, Reconciler,
    low_with_finalizer,
};
use capi_ipam_controller::expectations::EXPECTATION_TTL;
use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_controller::managed_fields::last_writer;
use capi_ipam_controller::manager::Manager;
use capi_ipam_controller::retry::{Retry, RetryPolicy};
use capi_ipam_controller::watch::{EventHandler, FanOut, WatchSpec};
use capi_ipam_controller::{clock, finalizer, trace_span};
use capi_ipam_ledger::{DrainingUse, PoolInfo, PoolUse};
use capi_ipam_provider::advanced::{STATUS_INTERVAL, StatusWrite, StatusWriter};
use kube::core::ObjectMeta;
use kube::{Client, Resource, ResourceExt};
use tracing::{Span, debug, field};

use self::status::PoolSnapshot;
pub(super) use self::status::describe_counts;
use super::context::Context;
use super::definitions;
use super::deletion_check::{CheckResult, DeletionBlocker};
use super::gates::{Gates, IDENTITY_TIMEOUT};
use super::kinds::{pool_client, watched_pools};
use super::shared_ledger::PoolEventHandler;

/// The delay before a pool that is being deleted and still has reservations is reconciled again.
const DELETION_RETRY_DELAY: Duration = Duration::from_secs(5);
/// The delay before a pool is checked again that is being deleted and waits for addresses in use.
/// The ledger reports their release.
const DELETION_CHECK_INTERVAL: Duration = Duration::from_mins(1);
/// The delay before a pool is reconciled again after its first failure.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(50);
/// The maximum delay between two attempts at a pool that keeps failing.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(10);
/// The number of pools of a kind that are reconciled concurrently.
const CONCURRENCY: u16 = 4;

/// Starts the controller of the pools of one kind, whose watch has the gate `gate`. It reconciles
/// nothing before everything is listed that the counts of a pool depend on.
pub(super) fn start(
    manager: &mut Manager,
    kind: InClusterKind,
    mut controller: ControllerBuilder<Pool, Infallible>,
    context: &Arc<Context>,
    gate: &ReadinessGate,
    gates: &Gates,
) {
    for other in gates.of_pool() {
        controller.wait_for(other);
    }
    let ledger: Arc<dyn EventHandler<Pool>> = Arc::new(PoolEventHandler {
        ledger: Arc::clone(&context.ledger),
        kind,
    });
    // After the ledger: the claims that it enqueues look up their pool there.
    let handler = Arc::new(FanOut(vec![ledger, Arc::clone(&context.terminating) as _]));
    let main = WatchSpec::new(
        watched_pools(&manager.client, kind),
        kind,
        handler,
        gate.clone(),
    );
    let reconciler = PoolReconciler {
        client: manager.client.clone(),
        context: Arc::clone(context),
        status_writer: StatusWriter::new(
            manager.events.clone(),
            kind,
            STATUS_INTERVAL,
            |pool: &Pool| {
                pool.status
                    .as_ref()
                    .map(|status| status.conditions.clone())
                    .unwrap_or_default()
            },
            status::is_warning,
        ),
        pruned_fields: PrunedFields::default(),
        pools_synced: gates.pools.to_vec(),
        started: Instant::now(),
    };
    let controller = controller
        .concurrency(CONCURRENCY)
        .transform(Pool::clear_spec)
        // Counts, conditions and the deletion are background work.
        .priority(low_with_finalizer(names::PROTECT_POOL))
        // The ledger reports what has changed since a write of this process.
        .wants(reconciler.status_writer.is_change_by_others())
        .undecodable(move |metadata| undecodable(kind, metadata))
        .span(|pool, _| span(pool));
    let reconciler = Finalized::new(reconciler, names::PROTECT_POOL);
    manager.run_controller(controller, main, reconciler);
}

/// A pool in deletion of which only this is known. The ledger knows what is in use of it.
fn undecodable(kind: InClusterKind, metadata: &ObjectMeta) -> Option<Pool> {
    let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref()?);
    let mut pool = Pool::reference(&PoolKey::new(kind, namespace, name), None);
    pool.metadata.clone_from(metadata);
    Some(pool)
}

fn span(pool: &Pool) -> Span {
    trace_span!(
        "pool.reconcile",
        kind = %PoolKey::of(pool).kind,
        namespace = pool.namespace(),
        pool = pool.name_any(),
        outcome = field::Empty,
    )
}

/// Why a pool could not be reconciled.
#[derive(Debug, thiserror::Error)]
enum PoolError {
    /// A request for the pool failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The objects that use a deleted pool could not be listed.
    #[error("cannot list the reservations and IPAddresses of the pool")]
    DeletionCheck(#[from] Arc<CallError>),
}

/// Reconciles the pools of one kind.
struct PoolReconciler {
    client: Client,
    context: Arc<Context>,
    status_writer: StatusWriter<Pool>,
    /// The status fields that the served definition does not have.
    pruned_fields: PrunedFields,
    /// The gates of all kinds of pools.
    pools_synced: Vec<ReadinessGate>,
    started: Instant,
}

impl Reconciler for PoolReconciler {
    type Object = Pool;
    type State = Conflicts;
    type Error = PoolError;

    /// A pool recovers within seconds once the cause of its failure is gone.
    fn retry(&self, error: &PoolError, failures: u32) -> Retry {
        match error {
            PoolError::Call(error) if error.is_unserializable() => Retry::GiveUp,
            _ => {
                let policy = RetryPolicy {
                    initial: FIRST_RETRY_DELAY,
                    max: MAX_RETRY_DELAY,
                };
                Retry::After(policy.delay(failures))
            }
        }
    }

    async fn reconcile(
        &self,
        pool: Arc<Pool>,
        attempt: &mut Attempt<Conflicts>,
    ) -> Result<Action, PoolError> {
        let result = self.reconcile_pool(&pool).await;
        if let Err(PoolError::Call(error)) = &result {
            self.status_writer.failed(&pool, error, attempt);
        }
        outcome(&pool, result, attempt)
    }
}

impl Protect for PoolReconciler {
    fn objects(&self, pool: &Pool) -> ResourceClient<Pool> {
        pool_client(&self.client, &PoolKey::of(pool))
            .with_pruned_fields(self.pruned_fields.clone())
            .requiring(pool.optional_fields().names())
    }

    fn protection(&self, pool: &Pool) -> Protection {
        if !self.context.selection.includes(pool) {
            return Protection::Postponed(Action::AwaitChange);
        }
        if self
            .status_writer
            .expectations()
            .is_stale(pool, Instant::now())
        {
            return Protection::Postponed(Action::Requeue(EXPECTATION_TTL));
        }
        // Which pools overlap is known when all are listed. Otherwise the conditions would change
        // at every start.
        if !self.pools_synced.iter().all(ReadinessGate::is_ready) {
            return Protection::Postponed(Action::Requeue(STATUS_INTERVAL));
        }
        let key = PoolKey::of(pool);
        // A pool is added to the ledger before its controller is notified.
        let (has_problem, info) = self.context.ledger.read(|ledger| {
            (
                ledger.networks().have_definitions_problem(),
                ledger.pools().pool_info(&key),
            )
        });
        match info {
            _ if has_problem => Protection::Postponed(Action::Requeue(definitions::RETRY_DELAY)),
            None => Protection::Postponed(Action::AwaitChange),
            Some(info) if info.paused || is_released(pool, &info) => Protection::Unmanaged,
            Some(_) => Protection::Managed,
        }
    }

    fn protected(&self, pool: &Pool) {
        self.status_writer
            .expectations()
            .expect(pool, Instant::now());
        self.context.ledger.insert_pool(pool);
    }

    async fn rejected(
        &self,
        pool: &Pool,
        error: CallError,
        attempt: &mut Attempt<Conflicts>,
    ) -> Result<Action, PoolError> {
        let result = self.handle_finalizer_error(pool, error, attempt).await;
        outcome(pool, result.map_err(PoolError::from), attempt)
    }
}

/// What follows from the result of a reconcile. A pool in deletion is only released by a
/// reconcile that says so.
fn outcome(
    pool: &Pool,
    result: Result<Action, PoolError>,
    attempt: &mut Attempt<Conflicts>,
) -> Result<Action, PoolError> {
    match result {
        Err(PoolError::Call(error)) if error.is_not_found() => {
            Ok(if pool.metadata.deletion_timestamp.is_some() {
                Action::Requeue(DELETION_RETRY_DELAY)
            } else {
                Action::AwaitChange
            })
        }
        // Nothing can be reported in the status of a pool that cannot be decoded.
        Err(PoolError::Call(error)) if error.invalid_response().is_some() => {
            Ok(Action::Requeue(DELETION_CHECK_INTERVAL))
        }
        Err(PoolError::Call(error)) if error.is_conflict() => {
            attempt.state.record();
            debug!(pool = %PoolKey::of(pool), "conflict, will retry");
            Ok(Action::Requeue(STATUS_INTERVAL))
        }
        outcome => {
            attempt.state.reset();
            outcome
        }
    }
}

/// What follows a reconcile that does not release the pool.
fn next_check(pool: &Pool, blocker: Option<&DeletionBlocker>) -> Action {
    match blocker {
        // The pool is paused, or the ledger does not know its deletion: nothing was searched, so
        // the finalizer stays.
        None if pool.metadata.deletion_timestamp.is_some()
            && finalizer::is_set(pool, names::PROTECT_POOL) =>
        {
            Action::Requeue(DELETION_CHECK_INTERVAL)
        }
        None => Action::AwaitChange,
        // The ledger enqueues the pool when its addresses change. It may never observe a change of
        // the others.
        Some(DeletionBlocker::Addresses { .. }) => Action::Requeue(DELETION_CHECK_INTERVAL),
        Some(
            DeletionBlocker::Reservation(_)
            | DeletionBlocker::UnknownAddress
            | DeletionBlocker::Undecodable(_),
        ) => Action::Requeue(DELETION_RETRY_DELAY),
    }
}

/// Whether the pool is being deleted and no longer has the finalizer.
fn is_released(pool: &Pool, info: &PoolInfo) -> bool {
    info.deleting && !finalizer::is_set(pool, names::PROTECT_POOL)
}

/// The condition of a pool that stays in its network, of this specification.
fn kept_condition(pool: &Pool) -> Option<&Condition> {
    let status = pool.status.as_ref()?;
    let found = conditions::find(&status.conditions, conditions::KEPT_IN_NETWORK)?;
    let is_current = found.observed_generation == pool.metadata.generation;
    (is_current && found.status == "True").then_some(found)
}

/// Why a pool stays in its network, which it would have left. The message stays the same as long as
/// the specification does: the writer is read once.
fn kept_in_network(pool: &Pool, info: &PoolInfo, writer: Option<&str>) -> Option<String> {
    let network = info.scope.network()?;
    if !info.is_kept_in_network {
        return None;
    }
    if let Some(known) = kept_condition(pool) {
        return known.message.clone();
    }
    let has_lost_name = info
        .removed_fields
        .names()
        .any(|name| name == "spec.network");
    let key = PoolKey::of(pool);
    Some(advice::kept_in_network(
        &key,
        network,
        has_lost_name,
        writer,
    ))
}

/// Whether the last change of the specification removed fields, and the status does not describe it
/// yet.
fn has_unreported_removal(pool: &Pool, info: &PoolInfo) -> bool {
    let observed = pool
        .status
        .as_ref()
        .and_then(|status| status.observed_generation);
    !info.removed_fields.is_empty() && observed != pool.metadata.generation
}

/// What the last change of the specification removed, for the first status that describes it.
fn removed_fields(pool: &Pool, info: &PoolInfo, writer: Option<&str>) -> Option<String> {
    if !has_unreported_removal(pool, info) {
        return None;
    }
    let names: Vec<&str> = info.removed_fields.names().collect();
    Some(advice::fields_removed(&names.join(", "), writer))
}

impl PoolReconciler {
    async fn reconcile_pool(&self, pool: &Pool) -> Result<Action, PoolError> {
        let key = PoolKey::of(pool);
        let known = self.context.ledger.note(|ledger| {
            ledger.pools_mut().set_notified(&key, false);
            let info = ledger.pools().pool_info(&key)?;
            let network = info.scope.network();
            let awaits_identity = network.is_some_and(|network| ledger.awaits_identity(network));
            Some((info, awaits_identity))
        });
        let Some((info, awaits_identity)) = known else {
            // It was removed from the ledger a moment ago.
            return Ok(Action::Requeue(STATUS_INTERVAL));
        };
        let mut blocker = None;
        if info.deleting && !info.paused && !is_released(pool, &info) {
            let Some(found) = self.find_blocker(&key, &info.uid) else {
                // The end of the list notifies this controller.
                return Ok(Action::Requeue(DELETION_RETRY_DELAY));
            };
            blocker = found?;
            if blocker.is_none() {
                // No address of the deleted pool is in use.
                return Ok(Action::AwaitChange);
            }
        }
        // The counts of the status stay until it is known which blocks are those of this cluster.
        let is_starting = self.started.elapsed() < IDENTITY_TIMEOUT && pool.status.is_some();
        let ledger = &self.context.ledger;
        if is_starting && awaits_identity {
            ledger.note(|ledger| ledger.pools_mut().set_notified(&key, true));
            return Ok(Action::Requeue(STATUS_INTERVAL));
        }
        let writer = self.read_writer(pool, &info).await?;
        let Some(status) = self.status(pool, blocker.as_ref(), None, writer.as_deref()) else {
            return Ok(Action::Requeue(STATUS_INTERVAL));
        };
        let removed = removed_fields(pool, &info, writer.as_deref());
        if let Some(wait) = self.write_status(pool, status).await? {
            ledger.note(|ledger| ledger.pools_mut().set_notified(&key, true));
            return Ok(Action::Requeue(wait));
        }
        if let Some(removed) = removed {
            let reason = conditions::FIELDS_REMOVED;
            let events = &self.context.events;
            events.warning(pool, &pool.kind, reason, "Observe", &removed);
        }
        Ok(next_check(pool, blocker.as_ref()))
    }

    /// Handles a failure to add the finalizer. That the API server rejects it on a pool that is
    /// being deleted is expected; other repeated failures are reported in the conditions of the
    /// pool.
    async fn handle_finalizer_error(
        &self,
        pool: &Pool,
        error: CallError,
        attempt: &Attempt<Conflicts>,
    ) -> Result<Action, CallError> {
        let (key, client) = (PoolKey::of(pool), self.objects(pool));
        let is_conflict = error.is_conflict();
        let is_reported = attempt.is_rejected_lastingly();
        if error.is_not_found() || (is_conflict && !is_reported) {
            return Err(error);
        }
        let current = client.get(&key.name).await?;
        let Some(current) = current.filter(|found| found.metadata.deletion_timestamp.is_none())
        else {
            return Ok(Action::AwaitChange);
        };
        if is_reported {
            let problem = error_chain(&error);
            if let Some(status) = self.status(&current, None, Some(&problem), None) {
                self.write_status(&current, status).await?;
            }
        }
        Err(error)
    }

    /// Reads who last wrote a pool whose status names that writer.
    async fn read_writer(&self, pool: &Pool, info: &PoolInfo) -> Result<Option<String>, CallError> {
        let names_writer = kept_condition(pool).is_none() && info.is_kept_in_network;
        if !names_writer && !has_unreported_removal(pool, info) {
            return Ok(None);
        }
        let found = self
            .objects(pool)
            .get_maybe_invalid(&pool.name_any())
            .await?;
        let writer = found.as_ref().and_then(|found| last_writer(found.meta()));
        Ok(writer.map(str::to_owned))
    }

    /// Finds what blocks the deletion of a pool: in the ledger, and if it knows of nothing, on the
    /// API server. `None` until this is known.
    fn find_blocker(&self, key: &PoolKey, uid: &str) -> Option<CheckResult> {
        let scopes = match self.context.ledger.read(|ledger| ledger.pool_use(key)) {
            PoolUse::Addresses { count, claims } => {
                return Some(Ok(Some(DeletionBlocker::Addresses { count, claims })));
            }
            PoolUse::Reservation(held) => {
                let name = held.reservation_name();
                return Some(Ok(Some(DeletionBlocker::Reservation(name))));
            }
            PoolUse::Unused { scopes } => scopes,
        };
        let checker = &self.context.deletion_checker;
        checker.find_blocker(key, uid, scopes)
    }

    /// The status of a pool, from one report of the ledger; `None` if the pool was removed from it
    /// a moment ago.
    fn status(
        &self,
        pool: &Pool,
        blocker: Option<&DeletionBlocker>,
        finalizer_error: Option<&str>,
        writer: Option<&str>,
    ) -> Option<PoolStatus> {
        let (key, ledger) = (PoolKey::of(pool), &self.context.ledger);
        let overlapping = ledger.overlapping(&key);
        let report = ledger.read(|ledger| ledger.pool_report(&key, overlapping))?;
        let snapshot = PoolSnapshot {
            report: &report,
            finalizer_error,
            blocker,
            kept_in_network: kept_in_network(pool, &report.info, writer),
        };
        let mut list = match &pool.status {
            Some(status) => status.conditions.clone(),
            None => Vec::new(),
        };
        snapshot.update(&mut list, pool.metadata.generation, &clock::now());
        Some(PoolStatus {
            observed_generation: pool.metadata.generation,
            ip_addresses: Some(report.counts),
            slices: report.slices,
            draining: report.draining.as_ref().map(DrainingUse::status),
            network: report.network,
            conditions: list,
        })
    }

    /// Writes the status if it has changed. Returns the remaining delay if the rate limit does not
    /// permit a write now.
    async fn write_status(
        &self,
        pool: &Pool,
        status: PoolStatus,
    ) -> Result<Option<Duration>, CallError> {
        if pool.status.as_ref() == Some(&status) {
            return Ok(None);
        }
        let mut wanted = pool.clone();
        wanted.status = Some(status);
        let client = self.objects(pool);
        let write = self.status_writer.write_limited(&client, pool, &wanted);
        match write.await? {
            StatusWrite::Unchanged => Ok(None),
            StatusWrite::Delayed(wait) => Ok(Some(wait)),
            StatusWrite::Written(written) => {
                self.context.ledger.insert_pool(&written);
                Ok(None)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use capi_ipam_api::InClusterKind;

    use super::*;

    /// What is not searched is not released: a paused pool, and one whose deletion the ledger does
    /// not know.
    #[test]
    fn deleted_pool_without_a_search_is_not_released() {
        let key = PoolKey::new(InClusterKind::IPPool, Some("default"), "a");
        let mut pool = Pool::reference(&key, Some("1".to_owned()));
        assert_eq!(next_check(&pool, None), Action::AwaitChange);
        pool.metadata.deletion_timestamp = Some(clock::now());
        assert_eq!(next_check(&pool, None), Action::AwaitChange);
        pool.metadata.finalizers = Some(vec![names::PROTECT_POOL.to_owned()]);
        let waits = Action::Requeue(DELETION_CHECK_INTERVAL);
        assert_eq!(next_check(&pool, None), waits);
    }
}
