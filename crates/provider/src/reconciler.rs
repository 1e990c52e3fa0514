//! The reconciler of claims: collects the observed state, calls [`decide`] and carries out the decision.

use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_controller::client::error_chain;
use capi_ipam_controller::controller::{Action, Attempt, Reconciler};
use capi_ipam_controller::events::EventPublisher;
use capi_ipam_controller::expectations::{EXPECTATION_TTL, Expectations};
use capi_ipam_controller::finalizer;
use capi_ipam_controller::object_map::ObjectKey;
use capi_ipam_controller::retry::Retry;
use kube::ResourceExt;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::adapter::{ClaimHandler, HandlerError, PoolView, ProviderAdapter};
use crate::api::{IPAddressClaim, conditions, is_paused, names};
use crate::backoff::ClaimBackoff;
use crate::claim_cache::{ClaimFilter, CompactClaim};
use crate::claim_status::ClaimStatus;
use crate::clusters::Clusters;
use crate::contract::ContractClient;
use crate::decision::{AddressState, ClaimView, ClusterState, Decision, PoolState, WaitReason, decide};
use crate::error::ReconcileError;
use crate::index::AddressIndex;
use crate::message_debounce::MessageDebounce;
use crate::options::ClaimOptions;
use crate::pending_creates::PendingCreates;

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
    pub(super) pending_creates: PendingCreates,
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
            let mut handler = self.adapter.claim_handler(Arc::clone(&claim));
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

    /// Records a write, so that the claim is not reconciled in the state before it.
    pub(super) fn expect_write(&self, claim: &IPAddressClaim) {
        self.expectations.expect(claim, Instant::now());
    }

    /// Records that our finalizer was removed, so that the claim is not reconciled in the state before it.
    pub(super) fn expect_deleted(&self, claim: &IPAddressClaim) {
        self.expectations.expect_deleted(claim, Instant::now());
    }

    fn reports_not_ready(&self, claim: &IPAddressClaim) -> bool {
        let status = claim.status.as_ref();
        let conditions = status.map(|status| status.conditions(self.contract.ipam)).unwrap_or_default();
        conditions::find(conditions, conditions::READY).is_some_and(|ready| ready.status == "False")
    }

    /// Returns whether this process wrote the claim after the state that the cache shows.
    pub(super) fn is_stale(&self, claim: &IPAddressClaim) -> bool {
        self.expectations.is_stale(claim, Instant::now())
    }

    async fn sync(
        &self,
        claim: &Arc<IPAddressClaim>,
        attempt: &mut Attempt<MessageDebounce>,
    ) -> Result<Action, ReconcileError> {
        let mut handler = self.adapter.claim_handler(Arc::clone(claim));
        let mut view = ClaimView {
            deleting: claim.metadata.deletion_timestamp.is_some(),
            has_finalizer: finalizer::is_set(claim.as_ref(), names::RELEASE_ADDRESS),
            has_foreign_finalizers: finalizer::all(claim.as_ref()).any(names::is_foreign_finalizer),
            paused: is_paused(&claim.metadata),
            bound: claim.bound_address() == claim.metadata.name.as_deref(),
            not_ready: self.reports_not_ready(claim),
            cluster: self.clusters.state_or_wait(claim),
            address: self.addresses.state_for(claim),
            holds_address: false,
            pool: None,
        };
        view.holds_address = view.address != AddressState::Absent;
        let mut decision = decide(&view);
        let mut pool = Err(HandlerError::PoolNotFound(String::new()));
        if decision == Decision::FetchPool {
            pool = handler.fetch_pool().await;
            view.pool = Some(pool_state(&pool));
            view.holds_address |= pool.as_ref().is_ok_and(|pool| pool.holds_address);
            decision = decide(&view);
        }
        match decision {
            Decision::Nothing | Decision::FetchPool => Ok(Action::AwaitChange),
            Decision::Wait(WaitReason::ForeignFinalizers) => {
                let status = ClaimStatus::waiting(claim, WaitReason::ForeignFinalizers, None);
                self.report_blocked_deletion(claim, &status, &mut attempt.state).await
            }
            Decision::Wait(reason) => {
                let error = pool.err();
                if let Some(failed @ (HandlerError::Transient { .. } | HandlerError::Conflict(_))) = error {
                    return Err(failed.into());
                }
                let mut wait = error.as_ref().map_or(self.options.resync_interval, |error| self.retry_delay(error));
                // A bound claim stays ready: its address is in use, whatever the state of pool and Cluster.
                let is_transient = matches!(error, Some(HandlerError::RetryAfter { .. }));
                if !is_transient && (!view.bound || view.deleting) {
                    let status = ClaimStatus::waiting(claim, reason, error.as_ref());
                    let retry = self.update_status(claim, &status, &mut attempt.state).await?;
                    wait = retry.map_or(wait, |retry| retry.min(wait));
                }
                Ok(Action::Requeue(wait))
            }
            Decision::Bind => {
                let pool = pool.unwrap_or_default();
                match self.bind(claim, &pool, &mut handler, &mut attempt.state).await {
                    Err(ReconcileError::Handler(error)) => self.handle_error(claim, attempt, error).await,
                    ended => ended,
                }
            }
            Decision::Release => self.release(claim, &mut handler, &mut attempt.state).await,
        }
    }
}

impl<A: ProviderAdapter> Reconciler for ClaimReconciler<A> {
    type Object = IPAddressClaim;
    type Compact = CompactClaim;
    type State = MessageDebounce;
    type Error = ReconcileError;

    fn compact(&self, claim: &IPAddressClaim) -> Option<CompactClaim> {
        let is_managed = self.filter.matches(claim);
        if is_managed && (self.expectations.is_stale(claim, Instant::now()) || self.reports_not_ready(claim)) {
            return None;
        }
        CompactClaim::of(claim, self.addresses.intern(&claim.spec.pool_ref), is_managed)
    }

    fn expand(&self, key: &ObjectKey, claim: &CompactClaim) -> Option<IPAddressClaim> {
        claim.is_managed.then(|| claim.expand(key))
    }

    /// Consistent with [`decide`]: a bound claim with a valid IPAddress needs no action.
    fn needs_reconcile(&self, namespace: Option<&str>, name: &str, claim: &CompactClaim) -> bool {
        let address = || self.addresses.state_of(namespace.unwrap_or_default(), name, Some(claim.uid), &claim.pool);
        claim.is_managed && !matches!(address(), AddressState::Valid | AddressState::Deleting)
    }

    async fn fetch(&self, namespace: Option<&str>, name: &str) -> Result<Option<IPAddressClaim>, ReconcileError> {
        Ok(self.contract.claims(namespace.unwrap_or_default()).get(name).await?)
    }

    async fn reconcile(
        &self,
        claim: Arc<IPAddressClaim>,
        attempt: &mut Attempt<MessageDebounce>,
    ) -> Result<Action, ReconcileError> {
        if !self.filter.matches(&claim) {
            return Ok(Action::AwaitChange);
        }
        if self.is_stale(&claim) {
            return Ok(Action::Requeue(EXPECTATION_TTL));
        }
        match self.sync(&claim, attempt).await {
            Err(ReconcileError::Call(error)) if error.is_conflict() => {
                debug!(claim = claim.name_any(), "conflict: the claim or its IPAddress changed, retrying");
                Ok(Action::Requeue(CONFLICT_RETRY_DELAY))
            }
            Err(error) => {
                self.backoff.record_failure(&claim);
                self.report_failure(&claim, attempt, &error).await;
                Err(error)
            }
            ended => {
                self.backoff.forget(&claim);
                ended
            }
        }
    }

    fn retry(&self, error: &ReconcileError, failures: u32) -> Retry {
        if error.is_unserializable() {
            return Retry::GiveUp;
        }
        Retry::After(self.backoff.delay(failures, error.is_unanswered()))
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
