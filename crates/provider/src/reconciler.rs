//! The reconciler of claims: collects the observed state, calls [`decide`] and carries out the decision.

use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_controller::client::error_chain;
use capi_ipam_controller::controller::{Action, Attempt, ControllerBuilder, MainWatch, Reconciler};
use capi_ipam_controller::events::EventPublisher;
use capi_ipam_controller::expectations::{EXPECTATION_TTL, Expectations};
use capi_ipam_controller::finalizer;
use capi_ipam_controller::manager::{BoxError, Manager};
use capi_ipam_controller::retry::RetryPolicy;
use capi_ipam_controller::watch::{EventHandler, trim};
use kube::ResourceExt;
use kube::runtime::watcher;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::adapter::{ClaimHandler, HandlerError, PoolKind, PoolView, ProviderAdapter, ProviderSetup};
use crate::address_in_use::{AddressInUseEvents, DeletingAddresses};
use crate::api::{Cluster, IPAddress, IPAddressClaim, conditions, is_paused, names};
use crate::backoff::ClaimBackoff;
use crate::claim_cache::{ClaimCache, CompactClaim};
use crate::claim_status::ClaimStatus;
use crate::clusters::Clusters;
use crate::contract::ContractClient;
use crate::decision::{AddressState, ClaimView, ClusterState, Decision, PoolState, WaitReason, decide};
use crate::error::ReconcileError;
use crate::index::AddressIndex;
use crate::message_debounce::MessageDebounce;
use crate::pending_creates::PendingCreates;
use crate::selection::Selection;

/// Delay after a conflict. The watch event of the change usually triggers the reconcile earlier.
pub(super) const CONFLICT_RETRY_DELAY: Duration = Duration::from_millis(500);

/// The controller of claims: binds and releases them with the addresses of a [`ProviderAdapter`].
pub struct ClaimReconciler<A: ProviderAdapter> {
    pub(super) adapter: A,
    pub(super) contract: ContractClient,
    pub(super) addresses: Arc<AddressIndex>,
    pub(super) events: EventPublisher,
    pub(super) clusters: Arc<Clusters>,
    backoff: Arc<ClaimBackoff>,
    filter: Arc<ClaimFilter>,
    expectations: Expectations,
    pub(super) pending_creates: PendingCreates,
}

impl<A: ProviderAdapter> ClaimReconciler<A> {
    /// Adds the controller of claims to a manager. Waits until the API server serves the contract kinds. Fails if the
    /// setup of the adapter fails.
    pub async fn register(adapter: A, manager: &mut Manager) -> Result<(), BoxError> {
        let contract = ContractClient::discover(&manager.client).await;
        let mut controller = ControllerBuilder::new("claims", contract.ipam);
        let addresses = Arc::new(AddressIndex::new(controller.trigger()));
        let claims_synced = manager.health.register("IPAddressClaim");
        let addresses_synced = manager.health.register("IPAddress");
        let mut setup = ProviderSetup {
            manager,
            claims_synced: claims_synced.clone(),
            addresses_synced: addresses_synced.clone(),
            controller: &mut controller,
            contract: contract.clone(),
            addresses: Arc::clone(&addresses),
            pools: Vec::new(),
            address_event_handlers: vec![Arc::clone(&addresses) as _],
            claim_event_handlers: Vec::new(),
        };
        adapter.setup(&mut setup)?;
        let ProviderSetup { pools, mut address_event_handlers, mut claim_event_handlers, .. } = setup;
        let selection = Selection::of(&manager.options);
        address_event_handlers.push(Arc::new(AddressInUseEvents {
            version: contract.ipam,
            pools: pools.clone(),
            claims: ClaimCache { store: controller.store(), selection: selection.clone() },
            events: manager.events.clone(),
            deleting: DeletingAddresses::default(),
        }));
        let filter = Arc::new(ClaimFilter { selection, pools });
        let (deleted, deleted_claims) = mpsc::unbounded_channel();

        let namespace = manager.options.namespace.clone();
        let clusters = Arc::new(Clusters::new(controller.trigger()));
        claim_event_handlers.push(Arc::clone(&clusters) as _);
        let backoff = Arc::new(ClaimBackoff::default());
        claim_event_handlers.push(Arc::clone(&backoff) as _);
        let handler = FilteringHandler { filter: Arc::clone(&filter), deleted, handlers: FanOut(claim_event_handlers) };
        let everything = watcher::Config::default();
        controller.watch::<Cluster>(
            manager.health.register("Cluster"),
            contract.watched_clusters(&namespace),
            everything.clone(),
            &contract.cluster,
            |cluster| trim(&mut cluster.metadata),
            Arc::clone(&clusters) as _,
        );
        controller.watch::<IPAddress>(
            addresses_synced,
            contract.watched_addresses(),
            everything.clone(),
            &contract.ipam,
            |address| trim(&mut address.metadata),
            Arc::new(FanOut(address_event_handlers)),
        );
        // The watch includes claims that this process does not reconcile: their addresses are in use.
        let main = MainWatch {
            api: contract.watched_claims(),
            config: everything,
            handler: Arc::new(handler),
            trim: trim_claim,
            trim_stored: |_| {},
            synced: claims_synced,
        };
        let reconciler = Arc::new(Self {
            adapter,
            contract,
            addresses,
            events: manager.events.clone(),
            clusters,
            backoff,
            filter,
            expectations: Expectations::default(),
            pending_creates: PendingCreates::new(Instant::now()),
        });
        let (concurrency, stop) = (manager.options.concurrency, manager.stop.clone());
        let clean_up = Arc::clone(&reconciler).clean_up_deleted(deleted_claims, stop.clone());
        manager.add("the clean-up after deleted claims", clean_up);
        manager.add("the controller of claims", controller.run(main, concurrency, stop, reconciler));
        Ok(())
    }

    /// Releases the addresses of claims that were deleted while our finalizer was being added.
    async fn clean_up_deleted(
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
            cluster: self.clusters.state_for(claim),
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
                if let Some(transient @ HandlerError::Transient { .. }) = error {
                    return Err(transient.into());
                }
                let mut wait =
                    error.as_ref().map_or_else(|| self.adapter.resync_interval(), |error| self.retry_delay(error));
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
        let result = self.sync(&claim, attempt).await;
        self.adapter.reconciled(&claim);
        match result {
            Err(ReconcileError::Call(error)) if error.is_conflict() => {
                debug!(claim = claim.name_any(), "conflict: the claim or its IPAddress changed, retrying");
                Ok(Action::Requeue(CONFLICT_RETRY_DELAY))
            }
            Err(error) => {
                self.backoff.record_failure(&claim, error.is_unanswered());
                self.report_failure(&claim, attempt, &error).await;
                Err(error)
            }
            ended => {
                self.backoff.forget(&claim);
                ended
            }
        }
    }

    fn retry_policy(&self) -> RetryPolicy {
        self.backoff.retry_policy()
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

/// Drops the fields of a claim that this crate does not read. Annotations can be a hundred times as large as the rest.
fn trim_claim(claim: &mut IPAddressClaim) {
    trim(&mut claim.metadata);
    (claim.api_version, claim.kind) = (None, None);
    if let Some(annotations) = &mut claim.metadata.annotations {
        let count = annotations.len();
        annotations.retain(|name, _| name == names::PAUSED_ANNOTATION);
        claim.is_trimmed = annotations.len() < count;
    }
}

/// Selects the claims that this process reconciles: those that the flags select and whose pool is of a kind of the
/// provider.
struct ClaimFilter {
    selection: Selection,
    pools: Vec<PoolKind>,
}

impl ClaimFilter {
    fn matches(&self, claim: &IPAddressClaim) -> bool {
        self.selection.includes(claim) && self.pools.iter().any(|kind| kind.matches(&claim.spec.pool_ref))
    }
}

/// Passes on the watch events of the claims that this process reconciles. A claim that no longer matches the filter,
/// because a label changed, is passed as deleted: it must not wait in a queue of this process.
///
/// Claims that were removed with our finalizer and without a deletion timestamp are sent to `deleted`. The API server
/// can remove a claim this way if it is deleted at the moment at which its first finalizer is added.
struct FilteringHandler {
    filter: Arc<ClaimFilter>,
    deleted: mpsc::UnboundedSender<IPAddressClaim>,
    handlers: FanOut<IPAddressClaim>,
}

impl EventHandler<IPAddressClaim> for FilteringHandler {
    fn init(&self) {
        self.handlers.init();
    }

    fn init_done(&self) {
        self.handlers.init_done();
    }

    fn apply(&self, claim: &IPAddressClaim) {
        if self.filter.matches(claim) {
            self.handlers.apply(claim);
        } else {
            self.handlers.delete(claim);
        }
    }

    fn delete(&self, claim: &IPAddressClaim) {
        self.handlers.delete(claim);
        let is_marked = claim.metadata.deletion_timestamp.is_some();
        if self.filter.matches(claim) && !is_marked && finalizer::is_set(claim, names::RELEASE_ADDRESS) {
            // The receiver is dropped when the program ends.
            let _ = self.deleted.send(claim.clone());
        }
    }
}

/// Passes watch events to several handlers.
struct FanOut<K>(Vec<Arc<dyn EventHandler<K>>>);

impl<K: 'static> EventHandler<K> for FanOut<K> {
    fn init(&self) {
        self.0.iter().for_each(|handler| handler.init());
    }
    fn init_done(&self) {
        self.0.iter().for_each(|handler| handler.init_done());
    }
    fn apply(&self, object: &K) {
        self.0.iter().for_each(|handler| handler.apply(object));
    }
    fn delete(&self, object: &K) {
        self.0.iter().for_each(|handler| handler.delete(object));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_annotations_are_dropped() {
        let mut claim = IPAddressClaim::default();
        trim_claim(&mut claim);
        assert_eq!(claim, IPAddressClaim::default());
        claim.annotations_mut().insert(names::PAUSED_ANNOTATION.to_owned(), String::new());
        let paused = claim.clone();
        trim_claim(&mut claim);
        assert_eq!(claim, paused);
        claim.annotations_mut().insert("example.com/large".to_owned(), "x".repeat(1000));
        trim_claim(&mut claim);
        assert_eq!(claim, IPAddressClaim { is_trimmed: true, ..paused });
    }
}
