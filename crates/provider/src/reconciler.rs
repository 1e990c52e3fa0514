//! The reconciler of claims: collects what [`decide`] wants to know, and has the acts done.

use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_controller::client::{CallError, chain};
use capi_ipam_controller::controller::{Attempt, ControllerBuilder, MainWatch, Outcome, Reconciler};
use capi_ipam_controller::events::EventPublisher;
use capi_ipam_controller::expectations::{EXPECTATION_TTL, Expectations};
use capi_ipam_controller::finalizer;
use capi_ipam_controller::manager::{BoxError, Manager};
use capi_ipam_controller::retry::RetryPolicy;
use capi_ipam_controller::watch::{Observer, trim};
use kube::ResourceExt;
use kube::runtime::watcher;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::adapter::{ClaimHandler, HandlerError, PoolKind, PoolView, ProviderAdapter, ProviderSetup};
use crate::api::{Cluster, conditions, IPAddress, IPAddressClaim, names};
use crate::claim_cache::{Claims, CompactClaim};
use crate::clusters::Clusters;
use crate::contract::ContractClient;
use crate::decision::{AddressState, ClaimView, ClusterState, decide, Decision, PoolState, Waiting};
use crate::failing::FailingClaims;
use crate::held::{HeldAddresses, Seen};
use crate::index::AddressIndex;
use crate::pending_creates::PendingCreates;
use crate::report::Report;
use crate::reporting::is_without_answer;
use crate::rewrite::MessageDelay;
use crate::selection::Selection;

/// When to look again after a write found the claim changed. The change itself usually comes first.
pub(super) const CONFLICT_RETRY_DELAY: Duration = Duration::from_millis(500);

/// Takes claims through their life with the help of a [`ProviderAdapter`].
pub struct ClaimReconciler<A: ProviderAdapter> {
    pub(super) adapter: A,
    pub(super) contract: ContractClient,
    pub(super) addresses: Arc<AddressIndex>,
    pub(super) events: EventPublisher,
    pub(super) clusters: Arc<Clusters>,
    failing: Arc<FailingClaims>,
    served: Arc<Served>,
    written: Expectations,
    pub(super) late: PendingCreates,
}

/// Why a reconcile failed. The retry policy says when it is tried again.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// The API server did not do what it was asked.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The provider could not allocate or give back.
    #[error(transparent)]
    Handler(#[from] HandlerError),
}

impl<A: ProviderAdapter> ClaimReconciler<A> {
    /// Adds the controller of claims to a manager. Waits until the API server serves the contract kinds.
    pub async fn register(adapter: A, manager: &mut Manager) -> Result<(), BoxError> {
        let contract = ContractClient::discover(&manager.client).await;
        let mut controller = ControllerBuilder::new("claims", contract.ipam);
        let addresses = Arc::new(AddressIndex::new(controller.waker()));
        let claims_synced = manager.health.announce("IPAddressClaim");
        let addresses_synced = manager.health.announce("IPAddress");
        let mut setup = ProviderSetup {
            manager,
            claims_synced: claims_synced.clone(),
            addresses_synced: addresses_synced.clone(),
            controller: &mut controller,
            contract: contract.clone(),
            addresses: Arc::clone(&addresses),
            pools: Vec::new(),
            address_observers: vec![Arc::clone(&addresses) as _],
            claim_observers: Vec::new(),
        };
        adapter.setup(&mut setup)?;
        let ProviderSetup { pools, mut address_observers, mut claim_observers, .. } = setup;
        let selection = Selection::of(&manager.options);
        address_observers.push(Arc::new(HeldAddresses {
            version: contract.ipam,
            pools: pools.clone(),
            claims: Claims { store: controller.store(), selection: selection.clone() },
            events: manager.events.clone(),
            seen: Seen::default(),
        }));
        let served = Arc::new(Served { selection, pools });
        let (deleted, to_clean_up) = mpsc::unbounded_channel();

        let namespace = manager.options.namespace.clone();
        let clusters = Arc::new(Clusters::new(controller.waker()));
        claim_observers.push(Arc::clone(&clusters) as _);
        let failing = Arc::new(FailingClaims::default());
        claim_observers.push(Arc::clone(&failing) as _);
        let observer = ServedClaims { served: Arc::clone(&served), deleted, observers: All(claim_observers) };
        let everything = watcher::Config::default();
        controller.watch::<Cluster>(
            manager.health.announce("Cluster"),
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
            Arc::new(All(address_observers)),
        );
        // Claims that others serve are watched as well: what they hold is in use as long as they exist.
        let main = MainWatch {
            api: contract.watched_claims(),
            config: everything,
            observer: Arc::new(observer),
            trim: trim_claim,
            compact: |_| {},
            synced: claims_synced,
        };
        let reconciler = Arc::new(Self {
            adapter,
            contract,
            addresses,
            events: manager.events.clone(),
            clusters,
            failing,
            served,
            written: Expectations::default(),
            late: PendingCreates::new(Instant::now()),
        });
        let (concurrency, stop) = (manager.options.concurrency, manager.stop.clone());
        let clean_up = Arc::clone(&reconciler).clean_up_deleted(to_clean_up, stop.clone());
        manager.add("the clean-up after deleted claims", clean_up);
        manager.add("the controller of claims", controller.run(main, concurrency, stop, reconciler));
        Ok(())
    }

    /// Takes back what claims held that were deleted while they got our finalizer.
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
                // What is left is for a provider's own clean-up.
                debug!(claim = claim.name_any(), error = chain(&error), "cannot clean up after a deleted claim");
            }
        }
    }

    /// Remembers a write, so that the claim is not looked at again in the state before it.
    pub(super) fn expect_write(&self, claim: &IPAddressClaim) {
        self.written.note(claim, Instant::now());
    }

    /// Remembers that the claim has lost our finalizer, and with it perhaps its life.
    pub(super) fn expect_deleted(&self, claim: &IPAddressClaim) {
        self.written.expect_deleted(claim, Instant::now());
    }

    fn says_trouble(&self, claim: &IPAddressClaim) -> bool {
        let status = claim.status.as_ref();
        let conditions = status.map(|status| status.conditions(self.contract.ipam)).unwrap_or_default();
        conditions::find(conditions, conditions::READY).is_some_and(|ready| ready.status == "False")
    }

    /// Whether this process has written the claim since the state that is shown.
    pub(super) fn is_outdated(&self, claim: &IPAddressClaim) -> bool {
        self.written.is_newer_than(claim, Instant::now())
    }

    async fn act(
        &self,
        claim: &Arc<IPAddressClaim>,
        attempt: &mut Attempt<MessageDelay>,
    ) -> Result<Outcome, ReconcileError> {
        let mut handler = self.adapter.claim_handler(Arc::clone(claim));
        let mut view = ClaimView {
            deleting: claim.metadata.deletion_timestamp.is_some(),
            finalizer: finalizer::is_set(claim.as_ref(), names::RELEASE_ADDRESS),
            foreign_finalizers: finalizer::all(claim.as_ref()).any(is_foreign),
            paused: claim.annotations().contains_key(names::PAUSED_ANNOTATION),
            bound: claim.bound_address() == claim.metadata.name.as_deref(),
            troubled: self.says_trouble(claim),
            cluster: self.clusters.state_for(claim),
            address: self.addresses.state_for(claim),
            holds: false,
            pool: None,
        };
        view.holds = view.address != AddressState::Absent;
        let mut decision = decide(&view);
        let mut pool = Err(HandlerError::PoolNotFound(String::new()));
        if decision == Decision::FetchPool {
            pool = handler.fetch_pool().await;
            view.pool = Some(pool_state(&pool));
            view.holds |= pool.as_ref().is_ok_and(|pool| pool.holds);
            decision = decide(&view);
        }
        match decision {
            Decision::Nothing | Decision::FetchPool => Ok(Outcome::Done),
            Decision::Wait(Waiting::Finalizers) => {
                let report = Report::waits(claim, Waiting::Finalizers, None);
                self.report_deletion(claim, &report, &mut attempt.state).await
            }
            Decision::Wait(waiting) => {
                let why = pool.err();
                if let Some(transient @ HandlerError::Transient { .. }) = why {
                    return Err(transient.into());
                }
                let mut wait = why.as_ref().map_or_else(|| self.adapter.resync(), |why| self.pause(why));
                // A bound claim stays Ready: its address is in use, whatever is wrong around it.
                let passing = matches!(why, Some(HandlerError::NotReady { .. }));
                if !passing && (!view.bound || view.deleting) {
                    let report = Report::waits(claim, waiting, why.as_ref());
                    let again = self.report(claim, &report, &mut attempt.state).await?;
                    wait = again.map_or(wait, |again| again.min(wait));
                }
                Ok(Outcome::Yield(wait))
            }
            Decision::Bind => {
                let pool = pool.unwrap_or_default();
                match self.bind(claim, &pool, &mut handler, &mut attempt.state).await {
                    Err(ReconcileError::Handler(error)) => self.refuse(claim, attempt, error).await,
                    ended => ended,
                }
            }
            Decision::Release => self.release(claim, &mut handler, &mut attempt.state).await,
        }
    }
}

impl<A: ProviderAdapter> Reconciler for ClaimReconciler<A> {
    type Object = IPAddressClaim;
    type Settled = CompactClaim;
    type State = MessageDelay;
    type Error = ReconcileError;

    fn settle(&self, claim: &IPAddressClaim) -> Option<CompactClaim> {
        let served = self.served.includes(claim);
        if served && (self.written.is_newer_than(claim, Instant::now()) || self.says_trouble(claim)) {
            return None;
        }
        CompactClaim::of(claim, self.addresses.shared(&claim.spec.pool_ref), served)
    }

    /// As [`decide`] has it: nothing is done for a bound claim whose IPAddress is right.
    fn is_settled(&self, namespace: Option<&str>, name: &str, claim: &CompactClaim) -> bool {
        let address = || self.addresses.state_of(namespace.unwrap_or_default(), name, Some(claim.uid), &claim.pool);
        !claim.served || matches!(address(), AddressState::Right | AddressState::Deleting)
    }

    async fn read(&self, namespace: Option<&str>, name: &str) -> Result<Option<IPAddressClaim>, ReconcileError> {
        Ok(self.contract.claims(namespace.unwrap_or_default()).get(name).await?)
    }

    async fn reconcile(
        &self,
        claim: Arc<IPAddressClaim>,
        attempt: &mut Attempt<MessageDelay>,
    ) -> Result<Outcome, ReconcileError> {
        if !self.served.includes(&claim) {
            return Ok(Outcome::Done);
        }
        if self.is_outdated(&claim) {
            return Ok(Outcome::Yield(EXPECTATION_TTL));
        }
        let outcome = self.act(&claim, attempt).await;
        self.adapter.finished(&claim);
        match outcome {
            Err(ReconcileError::Call(error)) if error.is_conflict() => {
                debug!(claim = claim.name_any(), "the claim or its address changed meanwhile; starting over");
                Ok(Outcome::Yield(CONFLICT_RETRY_DELAY))
            }
            Err(error) => {
                self.failing.insert(&claim, is_without_answer(&error));
                self.report_failure(&claim, attempt, &error).await;
                Err(error)
            }
            ended => {
                self.failing.remove(&claim);
                ended
            }
        }
    }

    fn retry_policy(&self) -> RetryPolicy {
        self.failing.retry_policy()
    }
}

/// Whether a finalizer is somebody's who uses the claim; not ours, nor one of the API server's own deletion modes.
pub(super) fn is_foreign(finalizer: &str) -> bool {
    ![names::RELEASE_ADDRESS, names::FOREGROUND_DELETION, names::ORPHAN_DEPENDENTS].contains(&finalizer)
}

fn pool_state(pool: &Result<PoolView, HandlerError>) -> PoolState {
    match pool {
        Err(_) => PoolState::Unavailable,
        Ok(pool) if pool.paused => PoolState::Paused,
        Ok(pool) if pool.deleting => PoolState::Deleting,
        Ok(_) => PoolState::Ready,
    }
}

/// Keeps of a claim what is read here: annotations of others can be a hundred times the rest.
fn trim_claim(claim: &mut IPAddressClaim) {
    trim(&mut claim.metadata);
    (claim.api_version, claim.kind) = (None, None);
    if let Some(annotations) = &mut claim.metadata.annotations {
        let count = annotations.len();
        annotations.retain(|name, _| name == names::PAUSED_ANNOTATION);
        claim.is_trimmed = annotations.len() < count;
    }
}

/// The claims that this process serves: selected by the flags, and for a kind of pool that the provider knows.
struct Served {
    selection: Selection,
    pools: Vec<PoolKind>,
}

impl Served {
    fn includes(&self, claim: &IPAddressClaim) -> bool {
        self.selection.includes(claim) && self.pools.iter().any(|kind| kind.is_meant_by(&claim.spec.pool_ref))
    }
}

/// Passes on what is seen of the claims that this process serves. A claim that it no longer serves, since a label was
/// changed, counts as deleted for the observers: it does not wait here any more.
///
/// Claims that were deleted with our finalizer and without having been marked go to `deleted`. The API server lets that
/// happen when a claim is deleted in the moment in which it gets its first finalizer.
struct ServedClaims {
    served: Arc<Served>,
    deleted: mpsc::UnboundedSender<IPAddressClaim>,
    observers: All<IPAddressClaim>,
}

impl Observer<IPAddressClaim> for ServedClaims {
    fn listing(&self) {
        self.observers.listing();
    }

    fn listed(&self) {
        self.observers.listed();
    }

    fn applied(&self, claim: &IPAddressClaim) {
        if self.served.includes(claim) {
            self.observers.applied(claim);
        } else {
            self.observers.deleted(claim);
        }
    }

    fn deleted(&self, claim: &IPAddressClaim) {
        self.observers.deleted(claim);
        let marked = claim.metadata.deletion_timestamp.is_some();
        if self.served.includes(claim) && !marked && finalizer::is_set(claim, names::RELEASE_ADDRESS) {
            // Nobody listens any more once the program ends.
            let _ = self.deleted.send(claim.clone());
        }
    }
}

/// Tells several observers.
struct All<K>(Vec<Arc<dyn Observer<K>>>);

impl<K: 'static> Observer<K> for All<K> {
    fn listing(&self) {
        self.0.iter().for_each(|observer| observer.listing());
    }
    fn listed(&self) {
        self.0.iter().for_each(|observer| observer.listed());
    }
    fn applied(&self, object: &K) {
        self.0.iter().for_each(|observer| observer.applied(object));
    }
    fn deleted(&self, object: &K) {
        self.0.iter().for_each(|observer| observer.deleted(object));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_that_are_not_read_are_not_kept() {
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

    #[test]
    fn deletion_modes_of_the_api_server_are_not_foreign() {
        assert!(!is_foreign("foregroundDeletion") && !is_foreign("orphan") && !is_foreign(names::RELEASE_ADDRESS));
        assert!(is_foreign("example.com/in-use"));
    }
}
