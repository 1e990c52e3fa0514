//! Providers whose pools are objects of one namespaced kind.
//!
//! [`WatchedPools`] watches the pools, so that a claim is reconciled as soon as its pool is
//! created, changed or unpaused, and as soon as an address of the pool is released. A
//! [`PoolProvider`] is called with the pool of the claim and does nothing but allocate and release.

mod addresses;
mod cache;
mod controller;
mod handler;
mod status;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_controller::client::{ApiObject, ResourceClient};
use capi_ipam_controller::controller::{ControllerBuilder, Trigger};
use capi_ipam_controller::discovery::wait_for_kind;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::watch::WatchSpec;
use kube::core::{ApiResource, NamespaceResourceScope, ObjectMeta};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;

use self::addresses::PoolAddresses;
use self::cache::PoolCache;
use self::controller::WatchedControl;
use self::handler::PoolHandler;
pub use self::status::{PoolCounts, PoolStatus};
use crate::adapter::{Allocation, HandlerError, PoolKind, ProviderAdapter, Released};
use crate::api::IPAddressClaim;
use crate::claim::Claim;
use crate::claim_cache::on_deleted;
use crate::contract::ContractClient;
#[cfg(doc)]
use crate::options::ClaimOptions;
use crate::options::PoolOptions;
use crate::pool_controller::run_pools;
use crate::setup::ProviderSetup;

/// Enqueues a pool.
type EnqueuePool = Box<dyn Fn(NamespacedName) + Send + Sync>;

/// Allocates and releases addresses of pools, which are objects of one kind. Served by
/// [`WatchedPools`].
///
/// The methods may wait for a backend, for [`ClaimOptions::handler_timeout`] at most. They must be
/// idempotent: each may be called again after any failure, also by another process. The uid of
/// the claim identifies the caller.
///
/// A request to the backend that timed out, or whose program was killed, can still be applied
/// later, even after [`Self::release`]. The backend has to reject an allocation that arrives after
/// the release of its claim: otherwise the address stays allocated to a claim that no longer
/// exists. Two ways: `release` changes what every allocation has as a precondition, or it records
/// that the claim is released.
///
/// The page of this crate has an example.
pub trait PoolProvider: Send + Sync + 'static {
    /// The kind of the pools: a namespaced custom resource.
    type Pool: ApiObject + Resource<DynamicType = (), Scope = NamespaceResourceScope>;

    /// Allocates an address of the pool for the claim. Returns the same address for the same claim.
    ///
    /// `existing` is the address of an existing IPAddress of the claim, which must be kept: from an
    /// earlier attempt, an upgrade or a restore, or a user created it.
    ///
    /// # Errors
    /// - [`HandlerError::PoolExhausted`]: no address is free;
    /// - [`HandlerError::DuplicateAddress`]: `existing` is allocated to another claim;
    /// - [`HandlerError::Conflict`], [`HandlerError::Transient`]: try again.
    fn allocate(
        &self,
        claim: &Claim,
        pool: &Self::Pool,
        existing: Option<IpAddr>,
    ) -> impl Future<Output = Result<Allocation, HandlerError>> + Send;

    /// Releases the address of the claim. Called once its IPAddress no longer exists, also if none
    /// ever existed, and possibly again after success. The pool may not exist any more.
    fn release(&self, claim: &Claim)
    -> impl Future<Output = Result<Released, HandlerError>> + Send;

    /// Returns whether the address is still allocated to the claim, see [`ClaimHandler::verify`].
    ///
    /// [`ClaimHandler::verify`]: crate::advanced::ClaimHandler::verify
    fn verify(
        &self,
        _claim: &Claim,
        _pool: &Self::Pool,
        _address: IpAddr,
    ) -> impl Future<Output = Result<bool, HandlerError>> + Send {
        std::future::ready(Ok(true))
    }

    /// After which time the address of a claim of the pool that is being deleted is released
    /// although other controllers have not removed their finalizers from the claim, see
    /// [`PoolView::release_terminating_after`]. Default: never.
    ///
    /// [`PoolView::release_terminating_after`]: crate::advanced::PoolView::release_terminating_after
    fn release_terminating_after(&self, _pool: &Self::Pool) -> Option<Duration> {
        None
    }

    /// Checks a pool, and returns what is wrong with it. Claims for an invalid pool report it as
    /// `PoolNotReady`.
    fn validate(&self, _pool: &Self::Pool) -> Result<(), String> {
        Ok(())
    }

    /// The number of addresses of a pool, in use or not. With [`PoolOptions::status`] the status of
    /// the pool has it, and the number of free addresses. Default: unknown.
    fn capacity(&self, _pool: &Self::Pool) -> Option<u128> {
        None
    }
}

/// The adapter of a [`PoolProvider`].
///
/// The page of this crate has an example.
pub struct WatchedPools<P: PoolProvider> {
    shared: Arc<Shared<P>>,
}

/// What the handlers of all claims, and the controller of the pools, share.
struct Shared<P: PoolProvider> {
    provider: P,
    options: PoolOptions,
    client: Client,
    contract: ContractClient,
    pools: Arc<PoolCache<P::Pool>>,
    addresses: Arc<PoolAddresses>,
}

impl<P: PoolProvider> WatchedPools<P> {
    /// Reconciles the claims for pools of the provider's kind, and watches the pools. Waits until
    /// the API server serves the kind.
    pub async fn new(setup: &mut ProviderSetup<'_>, provider: P) -> Self {
        Self::with_options(setup, provider, PoolOptions::default()).await
    }

    /// Like [`Self::new`], with a finalizer or a status of the pools.
    ///
    /// The finalizer of a pool is removed after a list of the IPAddresses of its namespace has
    /// shown none of the pool, and while this manager binds no claim of it. A claim without an
    /// IPAddress gets no address of a pool that is being deleted, or that lacks the finalizer. An
    /// IPAddress can outlive its pool if another manager, which selects other claims or pools,
    /// creates it after the list, or if the API server applies a request after its deadline.
    ///
    /// Pools that this manager does not select (`--namespace`, `--watch-filter`) are not changed. A
    /// paused pool keeps its finalizer, or the lack of it; its status says that it is paused.
    pub async fn with_options(
        setup: &mut ProviderSetup<'_>,
        provider: P,
        options: PoolOptions,
    ) -> Self {
        let client = setup.manager.client.clone();
        let kind = ApiResource::erase::<P::Pool>(&());
        wait_for_kind(&client, &setup.manager.health, &kind, &[&kind.version]).await;
        setup.add_pools(PoolKind::of::<P::Pool>());
        let is_reconciled = options != PoolOptions::default();
        let controller: Option<ControllerBuilder<P::Pool>> =
            is_reconciled.then(|| setup.manager.controller(&P::Pool::kind(&())));
        let trigger = controller.as_ref().map(ControllerBuilder::trigger);
        let pools = Arc::new(PoolCache::new(setup.trigger(), enqueue(trigger.clone())));
        let kind = PoolKind::of::<P::Pool>();
        let addresses = Arc::new(PoolAddresses::new(kind, enqueue(trigger)));
        setup.add_address_event_handler(Arc::clone(&addresses) as _);
        let of_pools = Arc::clone(&pools);
        setup.add_claim_event_handler(on_deleted(move |claim| of_pools.stop_waiting(claim)));
        let synced = setup.manager.health.register_watch(P::Pool::kind(&()));
        let api = setup.manager.watch_api::<P::Pool>(&());
        let main = WatchSpec::new(api, (), Arc::clone(&pools) as _, synced.clone());
        let shared = Arc::new(Shared {
            provider,
            options,
            client,
            contract: setup.contract.clone(),
            pools,
            addresses,
        });
        match controller {
            None => setup.controller.watch(main),
            Some(mut controller) => {
                setup.controller.wait_for(synced);
                // It reconciles nothing before the IPAddresses are listed.
                controller.wait_for(setup.addresses_synced.clone());
                if options.finalizer.is_some() {
                    controller = controller.undecodable(undecodable);
                }
                let control = WatchedControl {
                    shared: Arc::clone(&shared),
                    pending_creates: Arc::clone(&setup.pending_creates),
                };
                run_pools(setup.manager, controller, main, (), control);
            }
        }
        Self { shared }
    }

    /// The adapter for a test of the provider, without watches: each pool is read. See
    /// [`ClaimReconciler::for_test`](crate::prelude::ClaimReconciler::for_test).
    pub fn for_test(provider: P, client: &Client) -> Self {
        let trigger = ControllerBuilder::<_, ()>::new("claims").trigger();
        let kind = PoolKind::of::<P::Pool>();
        let shared = Shared {
            provider,
            options: PoolOptions::default(),
            contract: ContractClient::with_newest_versions(client),
            client: client.clone(),
            pools: Arc::new(PoolCache::new(trigger, Box::new(|_| {}))),
            addresses: Arc::new(PoolAddresses::new(kind, Box::new(|_| {}))),
        };
        Self {
            shared: Arc::new(shared),
        }
    }
}

/// Enqueues pools, if they have a controller.
fn enqueue<K: 'static>(trigger: Option<Trigger<K>>) -> EnqueuePool {
    match trigger {
        Some(trigger) => Box::new(move |pool| trigger.enqueue(pool)),
        None => Box::new(|_| {}),
    }
}

/// A pool in deletion of which only its metadata is known. Nothing else is used until it is
/// released.
fn undecodable<K: DeserializeOwned>(metadata: &ObjectMeta) -> Option<K> {
    serde_json::from_value(serde_json::json!({ "metadata": metadata })).ok()
}

impl<P: PoolProvider> Shared<P> {
    fn pool_client(&self, namespace: &str) -> ResourceClient<P::Pool> {
        ResourceClient::new(kube::Api::namespaced(self.client.clone(), namespace), &())
    }
}

impl<P: PoolProvider> ProviderAdapter for WatchedPools<P> {
    type Handler = PoolHandler<P>;

    fn claim_handler(&self, claim: Arc<IPAddressClaim>) -> PoolHandler<P> {
        PoolHandler::new(Arc::clone(&self.shared), claim)
    }
}
