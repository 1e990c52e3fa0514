//! The reconciler of claims: collects the observed state, calls [`decide`] and carries out the
//! decision.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_controller::client::{CallError, error_chain};
use capi_ipam_controller::controller::{Action, Attempt, Cause, Failure, Reconciler};
use capi_ipam_controller::events::EventPublisher;
use capi_ipam_controller::expectations::{EXPECTATION_TTL, Expectations};
use capi_ipam_controller::log_limit::RepetitionLimit;
use capi_ipam_controller::priority::Priority;
use capi_ipam_controller::retry::Retry;
use capi_ipam_controller::watch::Keyed;
use capi_ipam_controller::{finalizer, patch, trace_span, traces};
use capi_ipam_protocol::decision::{
    AddressState, ClaimView, ClusterState, Decision, PoolState, WaitReason, decide, may_be_moved,
};
use kube::ResourceExt;
use kube::core::ObjectMeta;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, field};

use crate::adapter::{ClaimHandler, HandlerError, PoolView, ProviderAdapter};
use crate::api::conditions::{self, Condition};
use crate::api::{IPAddressClaim, PoolReference, Uid, is_paused, names};
use crate::attempt_state::{
    AttemptState, MAX_UNREPORTED_ATTEMPT, MAX_UNREPORTED_CONFLICTS, MAX_UNREPORTED_FAILURES,
};
use crate::backoff::ClaimBackoff;
use crate::claim_cache::ClaimFilter;
use crate::claim_conditions::{ClaimConditions, condition, waits_for_free_address};
use crate::clusters::{Clusters, without_requested};
use crate::contract::ContractClient;
use crate::error::ReconcileError;
use crate::guarded::Guarded;
use crate::index::AddressIndex;
use crate::metrics::ClaimMetrics;
use crate::options::ClaimOptions;
use crate::pending_creates::PendingCreates;
use crate::verification::Verification;

/// Delay after a conflict. The watch event of the change usually triggers the reconcile earlier.
pub(super) const CONFLICT_RETRY_DELAY: Duration = Duration::from_millis(500);

/// The controller of claims: binds and releases them with the addresses of a [`ProviderAdapter`].
pub struct ClaimReconciler<A: ProviderAdapter> {
    pub(super) adapter: A,
    pub(super) contract: ContractClient,
    pub(super) addresses: Arc<AddressIndex>,
    pub(super) events: EventPublisher,
    pub(super) clusters: Arc<Clusters>,
    pub(super) options: ClaimOptions,
    pub(super) backoff: Arc<ClaimBackoff>,
    pub(super) filter: Arc<ClaimFilter>,
    pub(super) expectations: Expectations,
    pub(super) pending_creates: Arc<PendingCreates>,
    /// `None` if bound claims are not verified.
    pub(super) verification: Option<Arc<Verification>>,
    pub(super) metrics: ClaimMetrics,
    /// Limits the log of claims that are not ready, for each pool and reason.
    pub(super) waiting_log: RepetitionLimit,
}

impl<A: ProviderAdapter> ClaimReconciler<A> {
    /// Releases the addresses of claims that were deleted while our finalizer was being added.
    pub(super) async fn clean_up_deleted(
        self: Arc<Self>,
        mut deleted: mpsc::UnboundedReceiver<IPAddressClaim>,
        stop: CancellationToken,
    ) {
        while let Some(Some(claim)) = stop.run_until_cancelled(deleted.recv()).await {
            if self.clusters.state_for(&claim) == ClusterState::Paused {
                continue;
            }
            let claim = Arc::new(claim);
            let mut handler = self.handler_of(&claim);
            if let Err(error) = self.clean_up_if_gone(&claim, &mut handler).await {
                // A provider that allocates before the finalizer is set finds the leftover itself.
                debug!(
                    claim = claim.name_any(),
                    error = error_chain(&error),
                    "cannot release address of deleted claim"
                );
            }
        }
    }

    pub(super) fn handler_of(&self, claim: &Arc<IPAddressClaim>) -> Guarded<A::Handler> {
        Guarded {
            handler: self.adapter.claim_handler(Arc::clone(claim)),
            timeout: self.options.handler_timeout,
        }
    }

    /// Records a write, so that the claim is not reconciled in the state before it.
    pub(super) fn expect_write(&self, claim: &IPAddressClaim) {
        self.expectations.expect(claim, Instant::now());
    }

    /// Writes a changed claim, and records the write. `None` if nothing differs.
    pub(super) async fn write_claim(
        &self,
        claim: &IPAddressClaim,
        desired: &IPAddressClaim,
    ) -> Result<Option<IPAddressClaim>, CallError> {
        let claims = self.contract.claims_beside(claim);
        let written = patch::write(&claims, claim, desired).await?;
        written.iter().for_each(|claim| self.expect_write(claim));
        Ok(written)
    }

    /// Records that our finalizer was removed, so that the claim is not reconciled in the state
    /// before it.
    pub(super) fn expect_deleted(&self, claim: &IPAddressClaim) {
        self.expectations.expect_deleted(claim, Instant::now());
    }

    /// The condition `Ready` of a claim.
    pub(super) fn ready_condition<'a>(&self, claim: &'a IPAddressClaim) -> Option<&'a Condition> {
        condition(self.contract.ipam, claim, conditions::READY)
    }

    pub(super) fn reports_not_ready(&self, claim: &IPAddressClaim) -> bool {
        let ready = self.ready_condition(claim);
        ready.is_some_and(|ready| ready.status == "False")
    }

    /// Returns whether this process wrote the claim after the state that the cache shows.
    pub(super) fn is_stale(&self, claim: &IPAddressClaim) -> bool {
        self.expectations.is_stale(claim, Instant::now())
    }

    /// The state of the Cluster of a claim by a read. The claim waits for one that is paused.
    async fn read_cluster(&self, claim: &IPAddressClaim) -> Result<ClusterState, CallError> {
        let Some(name) = claim.cluster_name() else {
            return Ok(ClusterState::None);
        };
        let namespace = claim.namespace().unwrap_or_default();
        let state = match self.contract.clusters(&namespace).get(name).await? {
            Some(cluster) if cluster.is_paused() => ClusterState::Paused,
            Some(_) => ClusterState::Running,
            None => ClusterState::Missing,
        };
        if state != ClusterState::Running {
            self.clusters.wait(claim);
        }
        Ok(without_requested(claim, Some(state)))
    }

    async fn sync(
        &self,
        claim: &Arc<IPAddressClaim>,
        attempt: &mut Attempt<AttemptState>,
    ) -> Result<Action, ReconcileError> {
        let mut handler = self.handler_of(claim);
        let mut view = ClaimView {
            deleting: claim.is_deleting(),
            has_finalizer: finalizer::is_set(claim.as_ref(), names::RELEASE_ADDRESS),
            has_foreign_finalizers: finalizer::all(claim.as_ref()).any(names::is_foreign_finalizer),
            paused: is_paused(&claim.metadata),
            bound: claim.bound_address() == claim.metadata.name.as_deref(),
            not_ready: self.reports_not_ready(claim),
            cluster: self.clusters.state_or_wait(claim),
            address: self.addresses.state_for(claim),
            holds_address: false,
            early_release: Self::requested_release(claim),
            released_early: self.reports_early_release(claim),
            pool: None,
        };
        view.holds_address = view.address != AddressState::Absent;
        if may_be_moved(&view) {
            view.cluster = self.read_cluster(claim).await?;
        }
        let mut release_time = None;
        let mut decision = decide(&view);
        let mut pool = Err(HandlerError::PoolNotFound(String::new()));
        if decision == Decision::FetchPool {
            pool = handler.fetch_pool().await;
            view.pool = Some(pool_state(&pool));
            view.holds_address |= pool.as_ref().is_ok_and(|pool| pool.holds_address);
            if let Ok(pool) = &pool {
                release_time = self.observe_time_limit(claim, pool, &mut view).await?;
            }
            decision = decide(&view);
            // The provider can be not ready to allocate either.
            if decision != Decision::Bind && !matches!(pool, Err(HandlerError::RetryAfter { .. })) {
                attempt.state.record_ready();
            }
        }
        match decision {
            Decision::Nothing | Decision::FetchPool => {
                self.verify_if_due(claim, &view, &mut handler, attempt)
                    .await
            }
            Decision::Wait(WaitReason::ForeignFinalizers) => {
                self.wait_for_finalizers(claim, pool.err(), release_time, attempt)
                    .await
            }
            Decision::Wait(reason) => {
                let error = pool.err();
                // A bound claim stays ready: its address is in use, whatever the state of pool and
                // Cluster.
                let status = (!view.bound || view.deleting).then(|| {
                    let pool = self.filter.pool_name(claim);
                    ClaimConditions::waiting(claim, &pool, reason, error.as_ref())
                });
                self.wait(claim, status, attempt, error).await
            }
            Decision::Bind => {
                let pool = pool.unwrap_or_default();
                let span = trace_span!(
                    "claim.bind",
                    namespace = claim.namespace(),
                    claim = claim.name_any(),
                    pool = claim.spec.pool_ref.name,
                    attempt = attempt.failures.saturating_add(1),
                    address = field::Empty,
                    outcome = field::Empty,
                );
                traces::set_parent(&span, claim.metadata.annotations.as_ref());
                let bind = self.bind(claim, &pool, &mut handler, attempt);
                let bound = traces::in_span(span.clone(), bind).await;
                span.record("outcome", Action::outcome(&bound));
                self.handle_bound(claim, attempt, bound).await
            }
            Decision::Release | Decision::ReleaseEarly => {
                let span = trace_span!(
                    "claim.release",
                    namespace = claim.namespace(),
                    claim = claim.name_any(),
                    pool = claim.spec.pool_ref.name,
                    attempt = attempt.failures.saturating_add(1),
                    outcome = field::Empty,
                );
                traces::set_parent(&span, claim.metadata.annotations.as_ref());
                let release = async {
                    if decision == Decision::ReleaseEarly {
                        return self
                            .release_early(claim, view.early_release, &mut handler, attempt)
                            .await;
                    }
                    self.release(claim, &mut handler, attempt, None).await
                };
                let released = traces::in_span(span.clone(), release).await;
                span.record("outcome", Action::outcome(&released));
                released
            }
        }
    }
}

impl<A: ProviderAdapter> Reconciler for ClaimReconciler<A> {
    type Object = IPAddressClaim;
    type State = AttemptState;
    type Error = ReconcileError;

    async fn reconcile(
        &self,
        claim: Arc<IPAddressClaim>,
        attempt: &mut Attempt<AttemptState>,
    ) -> Result<Action, ReconcileError> {
        if !self.filter.matches(&claim) {
            return Ok(Action::AwaitChange);
        }
        if self.is_stale(&claim) {
            attempt.keeps_cause = true;
            return Ok(Action::Requeue(EXPECTATION_TTL));
        }
        self.reconcile_current(&claim, attempt).await
    }

    fn on_error(&self, claim: &IPAddressClaim, _: &Attempt<()>, _: &Failure<'_, ReconcileError>) {
        self.backoff.record_failure(claim);
    }

    fn retry(&self, error: &ReconcileError, failures: u32) -> Retry {
        let call = error.failed_call();
        if call.is_some_and(CallError::is_unserializable) {
            return Retry::GiveUp;
        }
        let delay = self.backoff.delay(failures, error);
        let is_contention = error.is_conflict() && failures <= MAX_UNREPORTED_CONFLICTS;
        Retry::After(if is_contention {
            delay.min(CONFLICT_RETRY_DELAY)
        } else {
            delay
        })
    }
}

impl<A: ProviderAdapter> ClaimReconciler<A> {
    /// What the adapter does before the reconcile of a claim that needs an address begins.
    pub(super) fn starting(&self, claim: &IPAddressClaim) -> Option<Box<dyn Any + Send>> {
        let needs_address = claim.bound_address().is_none() && !claim.is_deleting();
        if !needs_address || !self.filter.matches(claim) {
            return None;
        }
        // A claim keeps the address of an existing IPAddress of its name.
        match self.addresses.state_for(claim) {
            AddressState::Absent => self.adapter.starting(claim),
            AddressState::Valid | AddressState::Deleting | AddressState::Invalid => None,
        }
    }

    /// A claim in deletion of which only its metadata is known. Its pool is that of its IPAddress.
    pub(super) fn undecodable(&self, metadata: &ObjectMeta) -> Option<IPAddressClaim> {
        let (namespace, name) = (metadata.namespace.as_deref()?, metadata.name.as_deref()?);
        let address = self.addresses.get(namespace, name)?;
        if address.claim != metadata.uid.as_deref().map(Uid::of) {
            return None;
        }
        let mut claim = IPAddressClaim {
            metadata: metadata.clone(),
            is_trimmed: true,
            ..IPAddressClaim::default()
        };
        claim.spec.pool_ref = PoolReference::clone(&address.pool);
        Some(claim)
    }

    pub(super) fn priority(&self, claim: &IPAddressClaim, cause: Cause) -> Priority {
        let has_address = || self.addresses.state_for(claim) != AddressState::Absent;
        priority_of(claim, cause, has_address)
    }

    /// Reconciles a claim of this provider in its latest state, as far as this process knows.
    pub(super) async fn reconcile_current(
        &self,
        claim: &Arc<IPAddressClaim>,
        attempt: &mut Attempt<AttemptState>,
    ) -> Result<Action, ReconcileError> {
        let started = Instant::now();
        let error = match self.sync(claim, attempt).await {
            Err(error) => error,
            ended => {
                self.backoff.forget(claim);
                return ended;
            }
        };
        let is_reported = if error.is_conflict() {
            attempt.has_conflict = true;
            let lasts = attempt.conflicts >= MAX_UNREPORTED_CONFLICTS;
            if !lasts && matches!(error, ReconcileError::Call(_)) {
                debug!(
                    claim = claim.name_any(),
                    "conflict: the claim or its IPAddress changed, retrying"
                );
                return Ok(Action::Requeue(CONFLICT_RETRY_DELAY));
            }
            lasts
        } else {
            // After three attempts of a minute each, the claim would have had no condition for so
            // long.
            attempt.failures >= MAX_UNREPORTED_FAILURES
                || started.elapsed() >= MAX_UNREPORTED_ATTEMPT
        };
        if is_reported {
            self.report_failure(claim, attempt, &error).await;
        }
        Err(error)
    }
}

fn pool_state(pool: &Result<PoolView, HandlerError>) -> PoolState {
    match pool {
        Err(_) => PoolState::Unavailable,
        Ok(pool) if pool.paused => PoolState::Paused,
        Ok(pool) if pool.deleting => PoolState::Deleting,
        Ok(_) => PoolState::Ready,
    }
}

/// The repair of a bound claim is background work, and so is that of a claim which had its
/// IPAddress before this process started. The regular check of a claim that waits for a free
/// address is as well: a free address triggers it.
fn priority_of(
    claim: &IPAddressClaim,
    cause: Cause,
    has_address: impl FnOnce() -> bool,
) -> Priority {
    let is_background = match cause {
        _ if claim.is_deleting() => false,
        _ if claim.bound_address().is_some() => true,
        Cause::Resumed => has_address(),
        Cause::Requeued => waits_for_free_address(claim),
        Cause::Triggered | Cause::Changed | Cause::Created | Cause::Deleting | Cause::Deleted => {
            false
        }
    };
    if is_background {
        Priority::Low
    } else {
        Priority::Normal
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(status: &serde_json::Value) -> IPAddressClaim {
        serde_json::from_value(json!({
            "metadata": {"name": "c"}, "spec": {"poolRef": {"kind": "P", "name": "p"}}, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn only_work_that_nobody_waits_for_has_low_priority() {
        let waiting = |reason: &str| {
            claim(&json!({"conditions": [{"type": "Ready", "status": "False", "reason": reason}]}))
        };
        let (new, bound) = (
            claim(&json!({})),
            claim(&json!({"addressRef": {"name": "c"}})),
        );
        let mut deleted = bound.clone();
        deleted.metadata.deletion_timestamp = Some(capi_ipam_controller::clock::now());
        let is_low = |claim: &IPAddressClaim, cause, has_address| {
            priority_of(claim, cause, || has_address) == Priority::Low
        };
        for cause in [
            Cause::Created,
            Cause::Changed,
            Cause::Resumed,
            Cause::Triggered,
            Cause::Requeued,
        ] {
            assert!(!is_low(&new, cause, false), "{cause:?}");
            assert!(
                is_low(&bound, cause, true) && is_low(&bound, cause, false),
                "{cause:?}"
            );
            assert!(!is_low(&deleted, cause, true), "{cause:?}");
            assert_eq!(
                is_low(&waiting("PoolExhausted"), cause, false),
                cause == Cause::Requeued,
                "{cause:?}"
            );
            // Its requests failed: it is tried again.
            assert!(
                !is_low(&waiting("AllocationFailed"), cause, false),
                "{cause:?}"
            );
            assert_eq!(
                is_low(&new, cause, true),
                cause == Cause::Resumed,
                "{cause:?}"
            );
        }
    }
}
