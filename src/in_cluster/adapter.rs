//! The adapter: what the in-cluster provider watches, and how it handles one claim.

use std::sync::Arc;
use std::time::Duration;

use capi_ipam_controller::client::ResourceClient;
use capi_ipam_controller::manager::{BoxError, Manager};
use capi_ipam_controller::watch::{WatchApi, trim};
use capi_ipam_provider::api::{IPAddress, IPAddressClaim, Uid};
use capi_ipam_provider::{Allocation, ClaimHandler, ClaimReconciler, HandlerError, PoolKind, PoolView, ProviderAdapter, ProviderSetup, Released, Selection};
use kube::{Api, ResourceExt};

use crate::api::{InClusterKind, IPReservation, names, PoolKey};
use super::allocate::Allocator;
use super::context::Shared;
use super::kinds::wait_for_kinds;
use super::ledger::{ClaimKey, Ledger, PoolLookup, priority};
use super::move_label::MoveLabeler;
use super::options::InClusterOptions;
use super::pool_use::PoolUse;
use super::standby::LedgerHandle;
use super::{cooldown, pools, release, sweeper};

/// Serves claims from pools of addresses and of prefixes, of a namespace and of all.
pub struct InClusterAdapter {
    options: InClusterOptions,
    published: LedgerHandle,
    shared: std::sync::OnceLock<Arc<Shared>>,
}

/// Adds the in-cluster provider to a manager. Waits until the API server serves all kinds.
/// Its ledger is published once it is complete.
pub async fn register(
    manager: &mut Manager,
    options: InClusterOptions,
    published: LedgerHandle,
) -> Result<(), BoxError> {
    wait_for_kinds(&manager.client).await;
    let adapter = InClusterAdapter { options, published, shared: std::sync::OnceLock::new() };
    ClaimReconciler::register(adapter, manager).await
}

impl ProviderAdapter for InClusterAdapter {
    type Handler = InClusterHandler;

    fn setup(&self, setup: &mut ProviderSetup<'_>) -> Result<(), BoxError> {
        for kind in InClusterKind::ALL {
            setup.serve(PoolKind::new(names::GROUP, kind.name()));
        }
        let client = setup.manager.client.clone();
        let controllers = pools::Controllers::new();
        let wakers = controllers.wakers();
        let ledger = Arc::new(Ledger::new(setup.waker(), move |pool| wakers.wake(pool)));
        setup.observe_addresses(Arc::clone(&ledger) as _);
        setup.observe_claims(Arc::clone(&ledger) as _);
        let unlabelled = Arc::new(MoveLabeler::new(Arc::clone(&ledger)));
        let reservations_synced = setup.manager.health.announce("IPReservation");
        setup.controller.watch::<IPReservation>(
            reservations_synced.clone(),
            WatchApi::all(client.clone()),
            kube::runtime::watcher::Config::default(),
            &(),
            |reservation| trim(&mut reservation.metadata),
            Arc::clone(&unlabelled) as _,
        );
        let reservations: ResourceClient<IPReservation> = ResourceClient::new(Api::all(client), &());
        let shared = Arc::new(Shared {
            ledger: Arc::clone(&ledger),
            pool_use: Arc::new(PoolUse::new(reservations.clone(), setup.contract.clone())),
            reservations,
            contract: setup.contract.clone(),
            selection: Selection::of(&setup.manager.options),
        });
        let awaited = vec![setup.addresses_synced.clone(), reservations_synced];
        let mut listed = awaited.clone();
        for synced in controllers.start(setup.manager, &shared, &awaited) {
            setup.controller.wait_for(synced.clone());
            listed.push(synced);
        }
        self.published.publish(ledger, listed.clone());
        let stop = setup.manager.stop.clone();
        let cooldowns = cooldown::run(Arc::clone(&shared), listed.clone(), stop.clone());
        setup.manager.add("the end of cool-downs", cooldowns);
        let awaited = listed.into_iter().chain([setup.claims_synced.clone()]).collect();
        let sweeper = sweeper::Sweeper::new(setup, &self.options, Arc::clone(&shared), unlabelled, awaited);
        setup.manager.add("the sweeper", sweeper.run(stop));
        let _ = self.shared.set(shared);
        Ok(())
    }

    fn claim_handler(&self, claim: Arc<IPAddressClaim>) -> InClusterHandler {
        let handler = InClusterHandler { pool: PoolKey::of_claim(&claim), shared: self.shared.get().cloned(), claim };
        if let Some((shared, pool)) = handler.parts() {
            shared.ledger.attend(pool, &handler.key());
        }
        handler
    }

    /// Claims that wait are woken whenever something changes for them; this is only for what nobody thought of.
    fn resync(&self) -> Duration {
        Duration::from_mins(10)
    }

    fn restored_claim_timeout(&self) -> Duration {
        self.options.restored_claim_timeout
    }

    fn allocates_before_finalizer(&self) -> bool {
        // The sweeper frees the reservation of a claim that is gone.
        true
    }

    fn finished(&self, claim: &IPAddressClaim) {
        if let Some((shared, pool)) = self.shared.get().zip(PoolKey::of_claim(claim)) {
            shared.ledger.finished(&pool, &(claim.namespace().unwrap_or_default(), claim.name_any()));
        }
    }
}

/// Handles one claim.
pub struct InClusterHandler {
    claim: Arc<IPAddressClaim>,
    pool: Option<PoolKey>,
    shared: Option<Arc<Shared>>,
}

impl InClusterHandler {
    fn parts(&self) -> Option<(&Arc<Shared>, &PoolKey)> {
        self.shared.as_ref().zip(self.pool.as_ref())
    }

    fn key(&self) -> ClaimKey {
        (self.claim.namespace().unwrap_or_default(), self.claim.name_any())
    }

    fn uid(&self) -> Uid {
        Uid::of(self.claim.metadata.uid.as_deref().unwrap_or_default())
    }

    fn not_ours(&self) -> HandlerError {
        let kind = &self.claim.spec.pool_ref.kind;
        HandlerError::Permanent(format!("claims for a pool of kind {kind} are not served"))
    }
}

impl ClaimHandler for InClusterHandler {
    async fn fetch_pool(&mut self) -> Result<PoolView, HandlerError> {
        let (shared, pool) = self.parts().ok_or_else(|| self.not_ours())?;
        let facts = match shared.ledger.pool_for(pool, &self.key(), priority(&self.claim)) {
            PoolLookup::Found(facts) => facts,
            PoolLookup::NotSeenYet => {
                let message = format!("{pool} has not been seen yet");
                return Err(HandlerError::NotReady { message, after: Duration::from_secs(1) });
            }
            PoolLookup::Missing => {
                let text = format!("{pool} does not exist; create it, or correct the claim's poolRef");
                return Err(HandlerError::PoolNotFound(text));
            }
        };
        let view = PoolView {
            api_version: format!("{}/{}", names::GROUP, names::POOL_VERSION),
            uid: facts.uid.clone(),
            paused: facts.paused,
            deleting: facts.deleting,
            holds: facts.deleting && shared.ledger.holds(self.uid(), pool),
        };
        if view.paused || view.deleting {
            return Ok(view);
        }
        if let Err(problems) = &facts.usable {
            return Err(HandlerError::PoolNotReady(format!("{pool} cannot be used: {problems}; correct the pool")));
        }
        if !facts.protected {
            let message = format!("{pool} is not initialized yet (finalizer missing)");
            return Err(HandlerError::NotReady { message, after: Duration::from_secs(5) });
        }
        Ok(view)
    }

    async fn ensure_address(&mut self, existing: Option<&IPAddress>) -> Result<Allocation, HandlerError> {
        let (shared, pool) = self.parts().ok_or_else(|| self.not_ours())?;
        let claims = shared.contract.claims(&self.claim.namespace().unwrap_or_default());
        let allocator = Allocator {
            ledger: &shared.ledger,
            reservations: &shared.reservations,
            claims: &claims,
            claim: &self.claim,
            pool,
        };
        allocator.allocate(existing).await
    }

    async fn release_address(&mut self) -> Result<Released, HandlerError> {
        // Before everything is set up nothing was given out, and the claim is not to be held up.
        let Some((shared, _)) = self.parts() else { return Ok(Released::Now) };
        release::release(&shared.ledger, &shared.reservations, &self.claim, &self.key()).await
    }
}
