//! The pool controllers: finalizer, counts and conditions of pools.

mod status;
mod status_rate;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_api::conditions::{self, Condition};
use capi_ipam_api::{InClusterKind, Pool, PoolKey, PoolStatus, names};
use capi_ipam_controller::client::PrunedFields;
use capi_ipam_controller::client::{CallError, ResourceClient, error_chain};
use capi_ipam_controller::controller::{Action, Attempt, Cause, ControllerBuilder, Reconciler};
use capi_ipam_controller::events::EventPublisher;
use capi_ipam_controller::expectations::{EXPECTATION_TTL, Expectations};
use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_controller::manager::Manager;
use capi_ipam_controller::priority::Priority;
use capi_ipam_controller::retry::{Retry, RetryPolicy};
use capi_ipam_controller::watch::{EventHandler, FanOut, WatchSpec};
use capi_ipam_controller::{clock, finalizer, patch, trace_span, traces};
use capi_ipam_ledger::{DrainingUse, PoolInfo};
use kube::{Client, ResourceExt};
use tracing::{debug, field, info};

use self::status::PoolSnapshot;
pub(super) use self::status::describe_counts;
use self::status_rate::{STATUS_INTERVAL, StatusLimiter};
use super::context::Context;
use super::deletion_check::DeletionBlocker;
use super::gates::Gates;
use super::kinds::{pool_client, watched_pools};
use super::shared_ledger::PoolEventHandler;
use super::transitions::log_transitions;

/// The delay before a pool that is being deleted and still has reservations is reconciled again.
const DELETION_RETRY_DELAY: Duration = Duration::from_secs(5);
/// The delay before a pool is reconciled again after its first failure.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(50);
/// The maximum delay between two attempts at a pool that keeps failing.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(10);
/// The number of failures after which a rejected finalizer is reported on the pool.
const FAILURES_BEFORE_REPORT: u32 = 2;
/// The number of conflicts after which a rejected finalizer is reported on the pool: a webhook can
/// reject it with the code of a conflict, each time.
const CONFLICTS_BEFORE_REPORT: u32 = 10;
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
        events: manager.events.clone(),
        context: Arc::clone(context),
        expectations: Expectations::default(),
        status_limiter: StatusLimiter::default(),
        pruned_fields: PrunedFields::default(),
        pools_synced: gates.pools.to_vec(),
    };
    let stop = manager.stop.clone();
    let task = controller.run(main, CONCURRENCY, stop, Arc::new(reconciler));
    manager.add(format!("{kind} controller"), task);
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
    events: EventPublisher,
    context: Arc<Context>,
    expectations: Expectations,
    status_limiter: StatusLimiter,
    /// The status fields that the served definition does not have.
    pruned_fields: PrunedFields,
    /// The gates of all kinds of pools.
    pools_synced: Vec<ReadinessGate>,
}

impl Reconciler for PoolReconciler {
    type Object = Pool;
    /// Number of consecutive attempts that ended with a conflict.
    type State = u32;
    type Error = PoolError;

    fn transform(pool: &mut Pool) {
        pool.clear_spec();
    }

    fn priority(&self, pool: &Pool, _: Cause) -> Priority {
        priority_of(pool)
    }

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
        attempt: &mut Attempt<u32>,
    ) -> Result<Action, PoolError> {
        if !self.context.selection.includes(pool.as_ref()) {
            return Ok(Action::AwaitChange);
        }
        if self.expectations.is_stale(pool.as_ref(), Instant::now()) {
            return Ok(Action::Requeue(EXPECTATION_TTL));
        }
        // Which pools overlap is known when all are listed. Otherwise the conditions would change
        // at every start.
        if !self.pools_synced.iter().all(ReadinessGate::is_ready) {
            return Ok(Action::Requeue(STATUS_INTERVAL));
        }
        let span = trace_span!(
            "pool.reconcile",
            kind = %PoolKey::of(pool.as_ref()).kind,
            namespace = pool.namespace(),
            pool = pool.name_any(),
            outcome = field::Empty,
        );
        let result = traces::in_span(span.clone(), self.reconcile_pool(&pool, attempt)).await;
        span.record("outcome", traces::outcome(&result));
        match result {
            Err(PoolError::Call(error)) if error.is_not_found() => Ok(Action::AwaitChange),
            Err(PoolError::Call(error)) if error.is_conflict() => {
                attempt.state = attempt.state.saturating_add(1);
                debug!(pool = %PoolKey::of(pool.as_ref()), "conflict, will retry");
                Ok(Action::Requeue(STATUS_INTERVAL))
            }
            outcome => {
                attempt.state = 0;
                outcome
            }
        }
    }
}

impl PoolReconciler {
    async fn reconcile_pool(
        &self,
        pool: &Arc<Pool>,
        attempt: &Attempt<u32>,
    ) -> Result<Action, PoolError> {
        let key = PoolKey::of(pool.as_ref());
        self.context
            .ledger
            .note(|ledger| ledger.clear_notified(&key));
        // A pool is added to the ledger before its controller is notified.
        let Some(info) = self.context.ledger.read(|ledger| ledger.pool_info(&key)) else {
            return Ok(Action::AwaitChange);
        };
        let has_finalizer = finalizer::is_set(pool.as_ref(), names::PROTECT_POOL);
        let client = pool_client(&self.client, &key).with_pruned_fields(self.pruned_fields.clone());
        let mut pool = Arc::clone(pool);
        if !info.deleting && !has_finalizer && !info.paused {
            match finalizer::add(&client, pool.as_ref(), names::PROTECT_POOL).await {
                Ok(written) => pool = Arc::new(self.record_write(written)),
                Err(error) => {
                    return Ok(self
                        .handle_finalizer_error(&client, &key, error, attempt)
                        .await?);
                }
            }
        }
        let mut blocker = None;
        if info.deleting && has_finalizer && !info.paused {
            blocker = self.find_blocker(&key).await?;
            if blocker.is_none() {
                // Removing the last finalizer needs the whole object; the cached one has no spec.
                let Some(whole) = client.get(&key.name).await? else {
                    return Ok(Action::AwaitChange);
                };
                finalizer::remove(&client, &whole, names::PROTECT_POOL).await?;
                info!(pool = %key, "removed the finalizer: no address of the deleted pool is in use");
                return Ok(Action::AwaitChange);
            }
        }
        let status = self.status(&key, pool.as_ref(), blocker.as_ref(), None);
        if let Some(wait) = self.write_status(&client, pool.as_ref(), status).await? {
            self.context
                .ledger
                .note(|ledger| ledger.mark_notified(&key));
            return Ok(Action::Requeue(wait));
        }
        match blocker {
            // The ledger enqueues the pool when its addresses change. It may never observe a change
            // of the others.
            None | Some(DeletionBlocker::Addresses { .. }) => Ok(Action::AwaitChange),
            Some(
                DeletionBlocker::Reservation(_)
                | DeletionBlocker::UnknownAddress
                | DeletionBlocker::Undecodable(_),
            ) => Ok(Action::Requeue(DELETION_RETRY_DELAY)),
        }
    }

    /// Handles a failure to add the finalizer. That the API server rejects it on a pool that is
    /// being deleted is expected; other repeated failures are reported in the conditions of the
    /// pool.
    async fn handle_finalizer_error(
        &self,
        client: &ResourceClient<Pool>,
        key: &PoolKey,
        error: CallError,
        attempt: &Attempt<u32>,
    ) -> Result<Action, CallError> {
        let is_conflict = error.is_conflict();
        let is_reported =
            attempt.failures >= FAILURES_BEFORE_REPORT || attempt.state >= CONFLICTS_BEFORE_REPORT;
        if error.is_not_found() || (is_conflict && !is_reported) {
            return Err(error);
        }
        let current = client.get(&key.name).await?;
        let Some(current) = current.filter(|found| found.metadata.deletion_timestamp.is_none())
        else {
            return Ok(Action::AwaitChange);
        };
        if is_reported {
            let status = self.status(key, &current, None, Some(&error_chain(&error)));
            self.write_status(client, &current, status).await?;
        }
        Err(error)
    }

    /// Finds what blocks the deletion of a pool: in the ledger, and if it knows of nothing, on the
    /// API server.
    async fn find_blocker(&self, key: &PoolKey) -> Result<Option<DeletionBlocker>, Arc<CallError>> {
        let ledger = &self.context.ledger;
        if ledger.read(|ledger| ledger.is_in_use(key)) {
            let counts = ledger.read(|ledger| ledger.counts(key));
            let used = counts.used.saturating_add(counts.out_of_range);
            return Ok(Some(DeletionBlocker::Addresses {
                count: usize::try_from(used).unwrap_or_default(),
                claims: ledger.read(|ledger| ledger.first_claims(key)),
            }));
        }
        if let Some(held) = ledger.read(|ledger| ledger.held_in(key)) {
            return Ok(Some(DeletionBlocker::Reservation(held.reservation_name())));
        }
        self.context
            .deletion_checker
            .find_blocker(key, ledger.read(|ledger| ledger.possible_scopes(key)))
            .await
    }

    fn status(
        &self,
        key: &PoolKey,
        pool: &Pool,
        blocker: Option<&DeletionBlocker>,
        finalizer_error: Option<&str>,
    ) -> PoolStatus {
        let ledger = &self.context.ledger;
        let info = ledger
            .read(|ledger| ledger.pool_info(key))
            .unwrap_or_else(|| Arc::new(PoolInfo::of(pool)));
        let overlapping = ledger.overlapping(key);
        let has_one_length = info.usable.as_ref().is_ok_and(|usable| {
            ledger.read(|ledger| ledger.have_length(&overlapping, usable.length))
        });
        let shared = ledger.read(|ledger| {
            let usable = info.usable.as_ref().ok()?;
            let first = ledger.pool_info(overlapping.first()?)?;
            usable.first_shared(first.usable.as_ref().ok()?)
        });
        let snapshot = PoolSnapshot {
            key,
            info: &info,
            counts: ledger.read(|ledger| ledger.counts(key)),
            cooldown_end: ledger.read(|ledger| ledger.cooldown_end(key)),
            finalizer_error,
            overlapping,
            shared,
            has_one_length,
            blocker,
            over_limit: ledger.read(|ledger| ledger.over_limit(key)),
            slices: ledger.read(|ledger| ledger.slice_counts(key)),
            draining: ledger.read(|ledger| ledger.draining_use(key)),
        };
        let mut list = pool
            .status
            .as_ref()
            .map(|status| status.conditions.clone())
            .unwrap_or_default();
        for condition in snapshot.conditions() {
            conditions::set(
                &mut list,
                condition.with_observed_generation(pool.metadata.generation),
                clock::now(),
            );
        }
        for absent in snapshot.absent_conditions() {
            conditions::remove(&mut list, absent);
        }
        PoolStatus {
            observed_generation: pool.metadata.generation,
            ip_addresses: Some(snapshot.counts),
            slices: snapshot.slices,
            network: ledger.read(|ledger| ledger.pool_network(key)),
            draining: snapshot.draining.as_ref().map(DrainingUse::status),
            conditions: list,
        }
    }

    /// Writes the status if it has changed. Returns the remaining delay if the rate limit does not
    /// permit a write now.
    async fn write_status(
        &self,
        client: &ResourceClient<Pool>,
        pool: &Pool,
        status: PoolStatus,
    ) -> Result<Option<Duration>, CallError> {
        if pool.status.as_ref() == Some(&status) {
            return Ok(None);
        }
        let before = pool
            .status
            .as_ref()
            .map(|status| status.conditions.as_slice())
            .unwrap_or_default();
        let is_unchanged = |condition: &Condition| {
            let present = conditions::find(before, &condition.type_);
            present.is_some_and(|present| {
                (&present.status, &present.reason) == (&condition.status, &condition.reason)
            })
        };
        let transitions: Vec<Condition> = status
            .conditions
            .iter()
            .filter(|condition| !is_unchanged(condition))
            .cloned()
            .collect();
        let after = status.conditions.clone();
        let started = Instant::now();
        let (wait, written) = patch::with_patch(client, pool, async |wanted: &mut Pool| {
            let wait = self
                .status_limiter
                .delay(pool, !transitions.is_empty(), started);
            if wait.is_none() {
                wanted.status = Some(status);
            }
            Ok::<_, CallError>(wait)
        })
        .await;
        if !matches!(wait, Ok(Some(_))) {
            self.status_limiter.record_latency(started.elapsed());
        }
        if let Some(written) = written {
            let written = self.record_write(written);
            let key = PoolKey::of(&written);
            log_transitions(&key, before, &after, status::is_warning);
            for condition in transitions
                .iter()
                .filter(|condition| status::is_warning(condition))
            {
                let reason = condition.reason.as_deref().unwrap_or_default();
                let message = condition.message.as_deref().unwrap_or_default();
                self.events
                    .warning(&written, &written.kind, reason, "Inspect", message);
            }
        }
        wait
    }

    fn record_write(&self, written: Pool) -> Pool {
        self.expectations.expect(&written, Instant::now());
        self.context.ledger.insert_pool(&written);
        written
    }
}

/// Claims wait for the finalizer of a new pool. Counts, conditions and the deletion are background
/// work.
fn priority_of(pool: &Pool) -> Priority {
    let is_new =
        pool.metadata.deletion_timestamp.is_none() && !finalizer::is_set(pool, names::PROTECT_POOL);
    if is_new {
        Priority::Normal
    } else {
        Priority::Low
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_the_finalizer_of_a_new_pool_is_waited_for() {
        let priority = |finalizers: &[&str], deleted: Value| {
            let metadata =
                json!({"name": "p", "finalizers": finalizers, "deletionTimestamp": deleted});
            let pool = json!({"kind": "InClusterIPPool", "metadata": metadata, "spec": {"addresses": [], "prefix": 24}});
            priority_of(&serde_json::from_value(pool).unwrap())
        };
        assert_eq!(
            priority(&["example.com/other"], Value::Null),
            Priority::Normal
        );
        assert_eq!(priority(&[names::PROTECT_POOL], Value::Null), Priority::Low);
        assert_eq!(priority(&[], json!("2026-01-01T00:00:00Z")), Priority::Low);
    }
}
