//! The pool controllers: finalizer, counts and conditions of pools.

mod status;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_api::conditions::{self, Condition};
use capi_ipam_api::{InClusterKind, Pool, PoolKey, PoolStatus, advice, names};
use capi_ipam_controller::client::{CallError, ResourceClient};
use capi_ipam_controller::controller::{Action, ControllerBuilder, Protection};
use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_controller::managed_fields::last_writer;
use capi_ipam_controller::manager::Manager;
use capi_ipam_controller::watch::{EventHandler, FanOut, WatchSpec};
use capi_ipam_controller::{clock, finalizer, trace_span};
use capi_ipam_ledger::{DrainingUse, PoolInfo, PoolUse};
use capi_ipam_provider::advanced::{PoolControl, PoolPlan, STATUS_INTERVAL, run_pools};
use kube::core::ObjectMeta;
use kube::{Client, Resource, ResourceExt};
use tracing::{Span, field};

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
    let control = InClusterControl {
        client: manager.client.clone(),
        context: Arc::clone(context),
        pools_synced: gates.pools.to_vec(),
        started: Instant::now(),
    };
    let controller = controller
        .transform(Pool::clear_spec)
        .undecodable(move |metadata| undecodable(kind, metadata))
        .span(|pool, _| span(pool));
    run_pools(manager, controller, main, kind, control);
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

/// The pools of one kind.
struct InClusterControl {
    client: Client,
    context: Arc<Context>,
    /// The gates of all kinds of pools.
    pools_synced: Vec<ReadinessGate>,
    started: Instant,
}

impl PoolControl for InClusterControl {
    type Pool = Pool;

    fn finalizer(&self) -> Option<&'static str> {
        Some(names::PROTECT_POOL)
    }

    fn client(&self, pool: &Pool) -> ResourceClient<Pool> {
        let required = pool.optional_fields().names();
        pool_client(&self.client, &PoolKey::of(pool)).requiring(required)
    }

    fn protection(&self, pool: &Pool) -> Protection {
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
            Some(info) if info.paused => Protection::Unmanaged,
            Some(_) => Protection::Managed,
        }
    }

    fn seen(&self, pool: &Pool) {
        self.context.ledger.insert_pool(pool);
    }

    fn conditions(pool: &Pool) -> Vec<Condition> {
        match &pool.status {
            Some(status) => status.conditions.clone(),
            None => Vec::new(),
        }
    }

    fn is_warning(condition: &Condition) -> bool {
        status::is_warning(condition)
    }

    async fn plan(
        &self,
        pool: &Pool,
        finalizer_error: Option<&str>,
    ) -> Result<PoolPlan<Pool>, CallError> {
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
            return Ok(PoolPlan::Later(STATUS_INTERVAL));
        };
        let mut blocker = None;
        let is_protected = finalizer::is_set(pool, names::PROTECT_POOL);
        if info.deleting && !info.paused && is_protected {
            let Some(found) = self.find_blocker(&key, &info.uid) else {
                // The end of the list notifies this controller.
                return Ok(PoolPlan::Later(DELETION_RETRY_DELAY));
            };
            blocker = found.map_err(|source| CallError::Shared {
                operation: "list the reservations and IPAddresses of the pool".to_owned(),
                source,
            })?;
            if blocker.is_none() {
                // No address of the deleted pool is in use.
                return Ok(PoolPlan::Released);
            }
        }
        // The counts of the status stay until it is known which blocks are those of this cluster.
        let is_starting = self.started.elapsed() < IDENTITY_TIMEOUT && pool.status.is_some();
        if is_starting && awaits_identity {
            self.delayed(pool);
            return Ok(PoolPlan::Later(STATUS_INTERVAL));
        }
        let writer = self.read_writer(pool, &info).await?;
        let blocker = blocker.as_ref();
        let Some(status) = self.status(pool, blocker, finalizer_error, writer.as_deref()) else {
            return Ok(PoolPlan::Later(STATUS_INTERVAL));
        };
        let mut wanted = None;
        if pool.status.as_ref() != Some(&status) {
            let mut changed = pool.clone();
            changed.status = Some(status);
            wanted = Some(Box::new(changed));
        }
        Ok(PoolPlan::Report(wanted, next_check(blocker)))
    }

    fn delayed(&self, pool: &Pool) {
        let key = PoolKey::of(pool);
        let ledger = &self.context.ledger;
        ledger.note(|ledger| ledger.pools_mut().set_notified(&key, true));
    }

    /// Reports what the last change of the specification removed, once the status describes it.
    fn reported(&self, before: &Pool, after: &Pool) {
        let key = PoolKey::of(before);
        let ledger = &self.context.ledger;
        let Some(info) = ledger.read(|ledger| ledger.pools().pool_info(&key)) else {
            return;
        };
        if has_unreported_removal(before, &info) {
            let names: Vec<&str> = info.removed_fields.names().collect();
            let text = advice::fields_removed(&names.join(", "), last_writer(after.meta()));
            let reason = conditions::FIELDS_REMOVED;
            let events = &self.context.events;
            events.warning(before, &before.kind, reason, "Observe", &text);
        }
    }
}

/// What follows a reconcile that does not release the pool.
fn next_check(blocker: Option<&DeletionBlocker>) -> Action {
    match blocker {
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

impl InClusterControl {
    /// Reads who last wrote a pool whose status names that writer.
    async fn read_writer(&self, pool: &Pool, info: &PoolInfo) -> Result<Option<String>, CallError> {
        if kept_condition(pool).is_some() || !info.is_kept_in_network {
            return Ok(None);
        }
        let client = self.client(pool);
        let found = client.get_maybe_invalid(&pool.name_any()).await?;
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
}
