//! Providers whose pools are objects of one namespaced kind.
//!
//! [`WatchedPools`] watches the pools, so that a claim is reconciled as soon as its pool is
//! created, changed or unpaused, and as soon as an address of the pool is released. A
//! [`PoolProvider`] is called with the pool of the claim and does nothing but allocate and release.

mod addresses;
mod cache;
mod handler;

use std::fmt::Debug;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_controller::client::ResourceClient;
use capi_ipam_controller::discovery::wait_for_kind;
use capi_ipam_controller::watch::WatchSpec;
use kube::core::{ApiResource, NamespaceResourceScope};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use self::addresses::PoolAddresses;
use self::cache::{DeletedClaims, PoolCache};
use self::handler::PoolHandler;
use crate::adapter::{Allocation, HandlerError, PoolKind, ProviderAdapter, Released};
use crate::api::IPAddressClaim;
use crate::claim::Claim;
use crate::contract::ContractClient;
#[cfg(doc)]
use crate::options::ClaimOptions;
use crate::setup::ProviderSetup;

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
    type Pool: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned
        + Send
        + Sync
        + 'static;

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
}

/// The adapter of a [`PoolProvider`].
///
/// The page of this crate has an example.
pub struct WatchedPools<P: PoolProvider> {
    shared: Arc<Shared<P>>,
}

/// What the handlers of all claims share.
struct Shared<P: PoolProvider> {
    provider: P,
    client: Client,
    contract: ContractClient,
    pools: Arc<PoolCache<P::Pool>>,
    addresses: Arc<PoolAddresses>,
}

impl<P: PoolProvider> WatchedPools<P> {
    /// Reconciles the claims for pools of the provider's kind, and watches the pools. Waits until
    /// the API server serves the kind.
    pub async fn new(setup: &mut ProviderSetup<'_>, provider: P) -> Self {
        let client = setup.manager.client.clone();
        let kind = ApiResource::erase::<P::Pool>(&());
        wait_for_kind(&client, &setup.manager.health, &kind, &[&kind.version]).await;
        setup.add_pools(PoolKind::of::<P::Pool>());
        let pools = Arc::new(PoolCache::new(setup.trigger()));
        let addresses = Arc::new(PoolAddresses::new(PoolKind::of::<P::Pool>()));
        setup.add_address_event_handler(Arc::clone(&addresses) as _);
        setup.add_claim_event_handler(Arc::new(DeletedClaims(Arc::clone(&pools))));
        let synced = setup.manager.health.register_watch(P::Pool::kind(&()));
        let api = setup.manager.watch_api::<P::Pool>(&());
        let handler = Arc::clone(&pools) as _;
        setup
            .controller
            .watch(WatchSpec::new(api, (), handler, synced));
        let contract = setup.contract.clone();
        Self {
            shared: Arc::new(Shared {
                provider,
                client,
                contract,
                pools,
                addresses,
            }),
        }
    }
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
