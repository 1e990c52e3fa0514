//! Builds the controller of claims of one provider: its watches, its options and its adapter.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Instant;

use capi_ipam_controller::controller::{ControllerBuilder, Trigger};
use capi_ipam_controller::expectations::Expectations;
use capi_ipam_controller::health::ReadinessGate;
use capi_ipam_controller::log_limit::RepetitionLimit;
use capi_ipam_controller::manager::{BoxError, Manager};
use capi_ipam_controller::watch::{EventHandler, FanOut, WatchSpec};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::mpsc;
use tracing::Span;

use crate::adapter::{PoolKind, ProviderAdapter};
use crate::address_in_use::AddressInUseEvents;
use crate::api::{Cluster, IPAddress, IPAddressClaim};
use crate::backoff::ClaimBackoff;
use crate::claim_cache::{
    ClaimCache, ClaimFilter, CompactClaim, FilteringHandler, on_deleted, trim_claim,
};
use crate::clusters::Clusters;
use crate::contract::ContractClient;
use crate::early_release::ReleaseRequestEvents;
use crate::index::AddressIndex;
use crate::metrics::ClaimMetrics;
use crate::options::{ClaimOptions, SweepOptions};
use crate::owner_versions::UpgradeOwners;
use crate::pending_creates::PendingCreates;
use crate::reconciler::ClaimReconciler;
use crate::repair::{AbandonedObjects, ReleaseAbandoned};
use crate::selection::Selection;
use crate::sweep::UnclaimedAddresses;
use crate::unserved_kinds::CountUnservedKinds;
use crate::verification::VerifyBound;

/// What is at hand when the adapter of a provider is created, before the controller of claims
/// starts.
pub struct ProviderSetup<'a> {
    /// The manager of the program: client, options, events, metrics and services.
    pub manager: &'a mut Manager,
    /// The controller of claims, to add watches.
    pub controller: &'a mut ControllerBuilder<IPAddressClaim, CompactClaim>,
    /// Clients for the contract kinds, in the versions that the API server serves.
    pub contract: ContractClient,
    /// Becomes ready when the claims have been listed once.
    pub claims_synced: ReadinessGate,
    /// Becomes ready when the addresses have been listed once.
    pub addresses_synced: ReadinessGate,
    pub(super) clusters: Arc<Clusters>,
    pub(super) pending_creates: Arc<PendingCreates>,
    pools: Vec<PoolKind>,
    address_event_handlers: Vec<Arc<dyn EventHandler<IPAddress>>>,
    claim_event_handlers: Vec<Arc<dyn EventHandler<IPAddressClaim>>>,
}

impl ProviderSetup<'_> {
    /// Reconciles the claims for pools of this kind, too.
    pub fn add_pools(&mut self, kind: PoolKind) {
        self.pools.push(kind);
    }

    /// Passes the watch events of all IPAddresses to `handler`, including those of pools of other
    /// providers.
    pub fn add_address_event_handler(&mut self, handler: Arc<dyn EventHandler<IPAddress>>) {
        self.address_event_handlers.push(handler);
    }

    /// Passes the watch events of the claims that this process reconciles to `handler`. A claim
    /// that it stops reconciling, because a label changed, is passed as deleted, and so is one that
    /// a new list does not contain: then possibly with its name, uid and pool only.
    pub fn add_claim_event_handler(&mut self, handler: Arc<dyn EventHandler<IPAddressClaim>>) {
        self.claim_event_handlers.push(handler);
    }

    /// Returns a handle that enqueues claims for reconciliation, for example when their pool
    /// changes.
    pub fn trigger(&self) -> Trigger<IPAddressClaim> {
        self.controller.trigger()
    }

    /// The number of objects of a resource that were deleted because no claim is entitled to them:
    /// a part of the metric `capi_ipam_orphans_freed_total`.
    pub fn orphans_freed(&self, resource: &'static str) -> Counter {
        ClaimMetrics::of(&self.manager.metrics).orphans_freed(resource)
    }

    /// Returns a cache of all claims, as last seen by their watch.
    pub fn claim_cache(&self) -> ClaimCache {
        ClaimCache {
            store: self.controller.store(),
            selection: Selection::of(&self.manager.options),
        }
    }
}

impl<A: ProviderAdapter> ClaimReconciler<A> {
    /// Starts to build the controller of claims.
    pub fn builder(manager: &mut Manager) -> ClaimReconcilerBuilder<'_, A> {
        ClaimReconcilerBuilder {
            controller: manager.controller("claims"),
            manager,
            pools: Vec::new(),
            options: ClaimOptions::default(),
            sweep: None,
            adapter: PhantomData,
        }
    }
}

/// Builds a [`ClaimReconciler`]; created by [`ClaimReconciler::builder`].
#[must_use = "nothing is reconciled before `build` is called"]
pub struct ClaimReconcilerBuilder<'a, A> {
    manager: &'a mut Manager,
    controller: ControllerBuilder<IPAddressClaim, CompactClaim>,
    pools: Vec<PoolKind>,
    options: ClaimOptions,
    sweep: Option<SweepOptions>,
    adapter: PhantomData<fn() -> A>,
}

impl<A: ProviderAdapter> ClaimReconcilerBuilder<'_, A> {
    /// Reconciles the claims for pools of this kind. Call it once for each kind, apart from that of
    /// [`WatchedPools`](crate::prelude::WatchedPools).
    pub fn pools(mut self, kind: PoolKind) -> Self {
        self.pools.push(kind);
        self
    }

    /// Replaces the default options.
    pub fn options(mut self, options: ClaimOptions) -> Self {
        self.options = options;
        self
    }

    /// Deletes IPAddresses of the pools whose claim no longer exists, and releases their addresses
    /// with [`ClaimHandler::release_address`]: they remain when somebody removes the finalizer of a
    /// claim, or after a restore. IPAddresses that users created without a claim are kept, and
    /// reported by an event. Nothing is swept by default.
    ///
    /// A failed release is repeated until it succeeds. If the program ends before, the address
    /// stays allocated: a provider that must not lose it compares its allocations with the claims
    /// by itself.
    ///
    /// [`ClaimHandler::release_address`]: crate::advanced::ClaimHandler::release_address
    pub fn sweep(mut self, options: SweepOptions) -> Self {
        self.sweep = Some(options);
        self
    }

    /// Extends the controller of claims before it starts: with watches of other kinds, whose
    /// handlers enqueue claims, and with gates that claims wait for. Can be called several times.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    ///
    /// use capi_ipam_provider::api::IPAddressClaim;
    /// use capi_ipam_provider::controller::controller::Trigger;
    /// use capi_ipam_provider::controller::manager::{BoxError, Manager};
    /// use capi_ipam_provider::controller::namespaced_name::NamespacedName;
    /// use capi_ipam_provider::controller::watch::{EventHandler, Invalid, WatchSpec};
    /// use capi_ipam_provider::prelude::*;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    ///
    /// /// A claim is reconciled again when the ConfigMap of its name changes.
    /// struct Records(Trigger<IPAddressClaim>);
    ///
    /// impl EventHandler<ConfigMap> for Records {
    ///     fn apply(&self, record: &ConfigMap) {
    ///         self.0.enqueue(NamespacedName::of(&record.metadata));
    ///     }
    ///
    ///     fn delete(&self, record: &ConfigMap) {
    ///         self.apply(record);
    ///     }
    ///
    ///     fn apply_invalid(&self, record: &Invalid) {
    ///         self.0.enqueue(NamespacedName::of(&record.metadata));
    ///     }
    ///
    ///     fn delete_invalid(&self, record: &Invalid) {
    ///         self.apply_invalid(record);
    ///     }
    /// }
    ///
    /// async fn start<P: PoolProvider>(manager: &mut Manager, provider: P) -> Result<(), BoxError> {
    ///     let api = manager.watch_api::<ConfigMap>(&());
    ///     let synced = manager.health.register_watch("ConfigMap");
    ///     ClaimReconciler::builder(manager)
    ///         .controller(|claims| {
    ///             let records = Arc::new(Records(claims.trigger()));
    ///             claims.watch(WatchSpec::new(api, (), records, synced));
    ///         })
    ///         .build(async |setup| Ok(WatchedPools::new(setup, provider).await))
    ///         .await
    /// }
    /// ```
    pub fn controller(
        mut self,
        extend: impl FnOnce(&mut ControllerBuilder<IPAddressClaim, CompactClaim>),
    ) -> Self {
        extend(&mut self.controller);
        self
    }

    /// Adds the controller of claims to the manager. Waits until the API server serves the contract
    /// kinds, then calls `factory`, which creates the adapter and can add watches and services to
    /// the setup.
    ///
    /// # Errors
    /// If `factory` fails, if no kind of pools is declared, or if another controller serves one of
    /// the kinds.
    pub async fn build(
        self,
        factory: impl AsyncFnOnce(&mut ProviderSetup<'_>) -> Result<A, BoxError>,
    ) -> Result<(), BoxError> {
        // Its size depends on the factory, and it is a part of the caller's future.
        Box::pin(self.build_unboxed(factory)).await
    }

    async fn build_unboxed(
        self,
        factory: impl AsyncFnOnce(&mut ProviderSetup<'_>) -> Result<A, BoxError>,
    ) -> Result<(), BoxError> {
        let Self {
            manager,
            mut controller,
            pools,
            options,
            sweep,
            ..
        } = self;
        let contract = ContractClient::discover(&manager.client, &manager.health).await;
        let addresses = Arc::new(AddressIndex::new(controller.trigger()));
        let claims_synced = manager.health.register_watch("IPAddressClaim");
        let addresses_synced = manager.health.register_watch("IPAddress");
        let clusters = Arc::new(Clusters::new(controller.trigger()));
        let pending_creates = Arc::new(PendingCreates::new(Instant::now()));
        let mut setup = ProviderSetup {
            manager,
            clusters: Arc::clone(&clusters),
            pending_creates: Arc::clone(&pending_creates),
            claims_synced: claims_synced.clone(),
            addresses_synced: addresses_synced.clone(),
            controller: &mut controller,
            contract: contract.clone(),
            pools,
            address_event_handlers: vec![Arc::clone(&addresses) as _],
            claim_event_handlers: Vec::new(),
        };
        let adapter = factory(&mut setup).await?;
        let claims = setup.claim_cache();
        let ProviderSetup {
            pools,
            mut address_event_handlers,
            mut claim_event_handlers,
            ..
        } = setup;
        if pools.is_empty() {
            return Err(
                "a controller of claims needs a kind of pools: call `pools` of its builder".into(),
            );
        }
        for PoolKind { group, kind, .. } in &pools {
            manager.declare(format!(
                "controller of claims for pools of kind {kind}.{group}"
            ))?;
        }
        address_event_handlers.push(Arc::new(AddressInUseEvents {
            version: contract.ipam,
            pools: pools.clone(),
            claims: claims.clone(),
            events: manager.events.clone(),
            deleting: Mutex::default(),
        }));
        let of_clusters = Arc::clone(&clusters);
        claim_event_handlers.push(on_deleted(move |claim| of_clusters.forget(claim)));
        claim_event_handlers.push(Arc::new(ReleaseRequestEvents {
            version: contract.ipam,
            events: manager.events.clone(),
            reported: Mutex::default(),
        }));
        let backoff = Arc::new(ClaimBackoff::new(options.retry));
        let of_backoff = Arc::clone(&backoff);
        claim_event_handlers.push(on_deleted(move |claim| of_backoff.forget(claim)));
        let clusters_synced = manager.health.register_watch("Cluster");
        controller.watch(WatchSpec::<Cluster>::new(
            manager.watch_api(&contract.cluster),
            contract.cluster,
            Arc::clone(&clusters) as _,
            clusters_synced.clone(),
        ));
        controller.watch(WatchSpec::<IPAddress>::new(
            contract.watched_addresses(),
            contract.ipam,
            Arc::new(FanOut(address_event_handlers)),
            addresses_synced.clone(),
        ));
        let filter = Arc::new(ClaimFilter {
            selection: claims.selection.clone(),
            pools,
        });
        let (deleted, deleted_claims) = mpsc::unbounded_channel();
        let handlers = FanOut(claim_event_handlers);
        let handler = Arc::new(FilteringHandler {
            filter: Arc::clone(&filter),
            deleted,
            handlers,
        });
        // The watch includes claims that this process does not reconcile: their addresses are in
        // use.
        let main = WatchSpec::new(
            contract.watched_claims(),
            contract.ipam,
            handler,
            claims_synced.clone(),
        );
        let main = WatchSpec {
            trim: trim_claim,
            ..main
        };
        let verification = options.verify_interval.map(|interval| {
            let bound = VerifyBound {
                interval,
                claims: claims.clone(),
                trigger: controller.trigger(),
                due: Arc::default(),
            };
            let (due, gates) = (Arc::clone(&bound.due), vec![claims_synced.clone()]);
            manager.add_background_task("the verification of bound claims", gates, bound);
            due
        });
        let reconciler = Arc::new(ClaimReconciler {
            adapter,
            options,
            contract,
            addresses,
            events: manager.events.clone(),
            clusters,
            backoff,
            filter,
            expectations: Expectations::default(),
            pending_creates,
            verification,
            metrics: ClaimMetrics::of(&manager.metrics),
            waiting_log: RepetitionLimit::default(),
        });
        let flag = manager.options.concurrency;
        let [starting, undecodable, priority] = std::array::from_fn(|_| Arc::clone(&reconciler));
        let controller = controller
            .starting(move |claim| starting.starting(claim))
            .undecodable(move |metadata| undecodable.undecodable(metadata))
            .priority(move |claim, cause| priority.priority(claim, cause))
            // Only what changes something has a span.
            .span(|_, _| Span::none())
            .concurrency(options.concurrency.map_or(flag, |limit| limit.min(flag)));
        let stop = manager.stop.clone();
        if let Some(options) = sweep {
            let deleted = reconciler
                .metrics
                .orphans_freed(UnclaimedAddresses::<A>::NAME);
            let addresses = UnclaimedAddresses::new(Arc::clone(&reconciler), claims.clone());
            let sweep = ReleaseAbandoned::new(addresses, options, deleted);
            let gates = vec![claims_synced.clone(), addresses_synced.clone()];
            manager.add_background_task("the sweep of IPAddresses without a claim", gates, sweep);
        }
        let unserved = CountUnservedKinds {
            claims: claims.clone(),
            pools: reconciler.filter.pools.clone(),
            client: manager.client.clone(),
            count: reconciler.metrics.unserved_kinds.clone(),
        };
        let gates = vec![claims_synced.clone()];
        manager.add_background_task("the count of claims of unserved kinds", gates, unserved);
        let gates = vec![claims_synced.clone(), addresses_synced, clusters_synced];
        let upgrade = UpgradeOwners(Arc::clone(&reconciler));
        manager.add_background_task("the upgrade of owner references", gates, upgrade);
        let clean_up = Arc::clone(&reconciler).clean_up_deleted(deleted_claims, stop.clone());
        manager.add("the clean-up after deleted claims", clean_up);
        manager.add(
            "the controller of claims",
            controller.run_with_compaction(main, stop, Arc::clone(&reconciler), reconciler),
        );
        Ok(())
    }
}
