//! The adapter of the in-cluster provider: sets up its watches and controllers, and handles claims.

use std::sync::Arc;
use std::time::Duration;

use capi_ipam_controller::client::ResourceClient;
use capi_ipam_controller::manager::{BoxError, Manager};
use capi_ipam_controller::watch::{WatchApi, trim};
use capi_ipam_provider::api::{IPAddress, IPAddressClaim, Uid};
use capi_ipam_provider::{
    Allocation, ClaimHandler, ClaimReconciler, HandlerError, PoolKind, PoolView, ProviderAdapter, ProviderSetup,
    Released, Selection,
};
use kube::{Api, ResourceExt};

use super::allocate::Allocator;
use super::context::Context;
use super::deletion_check::DeletionChecker;
use super::kinds::wait_for_kinds;
use super::ledger::{ClaimKey, Ledger, PoolLookup, priority};
use super::move_label::MoveLabeler;
use super::options::InClusterOptions;
use super::standby::LedgerHandle;
use super::{cooldown, pools, release, sweeper};
use crate::api::{IPReservation, InClusterKind, PoolKey, names};

/// Serves claims of the four pool kinds: pools of addresses and of prefixes, namespaced and global.
pub struct InClusterAdapter {
    options: InClusterOptions,
    ledger_handle: LedgerHandle,
    context: std::sync::OnceLock<Arc<Context>>,
}

/// Adds the in-cluster provider to a manager. Waits until the API server serves all kinds, and publishes the ledger of
/// the provider with `ledger_handle`.
pub async fn register(
    manager: &mut Manager,
    options: InClusterOptions,
    ledger_handle: LedgerHandle,
) -> Result<(), BoxError> {
    wait_for_kinds(&manager.client).await;
    let adapter = InClusterAdapter { options, ledger_handle, context: std::sync::OnceLock::new() };
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
        let ledger = Arc::new(Ledger::new(setup.trigger(), controllers.trigger()));
        setup.add_address_event_handler(Arc::clone(&ledger) as _);
        setup.add_claim_event_handler(Arc::clone(&ledger) as _);
        let move_labeler = Arc::new(MoveLabeler::new(Arc::clone(&ledger)));
        let reservations_gate = setup.manager.health.register("IPReservation");
        setup.controller.watch::<IPReservation>(
            reservations_gate.clone(),
            WatchApi::all(client.clone()),
            kube::runtime::watcher::Config::default(),
            &(),
            |reservation| trim(&mut reservation.metadata),
            Arc::clone(&move_labeler) as _,
        );
        let reservations: ResourceClient<IPReservation> = ResourceClient::new(Api::all(client), &());
        let context = Arc::new(Context {
            ledger: Arc::clone(&ledger),
            deletion_checker: Arc::new(DeletionChecker::new(reservations.clone(), setup.contract.clone())),
            reservations,
            contract: setup.contract.clone(),
            selection: Selection::of(&setup.manager.options),
        });
        let gates = vec![setup.addresses_synced.clone(), reservations_gate];
        let mut provider_gates = gates.clone();
        for gate in controllers.start(setup.manager, &context, &gates) {
            setup.controller.wait_for(gate.clone());
            provider_gates.push(gate);
        }
        self.ledger_handle.publish(ledger, provider_gates.clone());
        let stop = setup.manager.stop.clone();
        let cooldowns = cooldown::run(Arc::clone(&context), provider_gates.clone(), stop.clone());
        setup.manager.add("cool-downs", cooldowns);
        let gates = provider_gates.into_iter().chain([setup.claims_synced.clone()]).collect();
        let sweeper = sweeper::Sweeper::new(setup, &self.options, Arc::clone(&context), move_labeler, gates);
        setup.manager.add("sweeper", sweeper.run(stop));
        let _ = self.context.set(context);
        Ok(())
    }

    fn claim_handler(&self, claim: Arc<IPAddressClaim>) -> InClusterHandler {
        let handler = InClusterHandler { pool: PoolKey::of_claim(&claim), context: self.context.get().cloned(), claim };
        if let Some((context, pool)) = handler.context_and_pool() {
            context.ledger.mark_started(pool, &handler.key());
        }
        handler
    }

    /// Waiting claims are reconciled when what they wait for changes. The resync is a safety net.
    fn resync_interval(&self) -> Duration {
        Duration::from_mins(10)
    }

    fn restored_claim_timeout(&self) -> Duration {
        self.options.restored_claim_timeout
    }

    fn allocates_before_finalizer(&self) -> bool {
        // If the claim is deleted before it has the finalizer, the sweeper releases its reservation.
        true
    }

    fn reconciled(&self, claim: &IPAddressClaim) {
        if let Some((context, pool)) = self.context.get().zip(PoolKey::of_claim(claim)) {
            context.ledger.mark_finished(&pool, &(claim.namespace().unwrap_or_default(), claim.name_any()));
        }
    }
}

/// Handles one claim.
pub struct InClusterHandler {
    claim: Arc<IPAddressClaim>,
    pool: Option<PoolKey>,
    context: Option<Arc<Context>>,
}

impl InClusterHandler {
    fn context_and_pool(&self) -> Option<(&Arc<Context>, &PoolKey)> {
        self.context.as_ref().zip(self.pool.as_ref())
    }

    fn key(&self) -> ClaimKey {
        (self.claim.namespace().unwrap_or_default(), self.claim.name_any())
    }

    fn uid(&self) -> Uid {
        Uid::of(self.claim.metadata.uid.as_deref().unwrap_or_default())
    }

    fn unsupported_pool_kind(&self) -> HandlerError {
        let kind = &self.claim.spec.pool_ref.kind;
        HandlerError::Permanent(format!("claims for pools of kind {kind} are not served by this provider"))
    }
}

impl ClaimHandler for InClusterHandler {
    async fn fetch_pool(&mut self) -> Result<PoolView, HandlerError> {
        let (context, pool) = self.context_and_pool().ok_or_else(|| self.unsupported_pool_kind())?;
        let info = match context.ledger.pool_for(pool, &self.key(), priority(&self.claim)) {
            PoolLookup::Found(info) => info,
            PoolLookup::NotSeenYet => {
                let message = format!("{pool} is not in the cache yet");
                return Err(HandlerError::RetryAfter { message, after: Duration::from_secs(1) });
            }
            PoolLookup::Missing => {
                let text = format!("{pool} does not exist; create it or correct the poolRef of the claim");
                return Err(HandlerError::PoolNotFound(text));
            }
        };
        let view = PoolView {
            api_version: format!("{}/{}", names::GROUP, names::POOL_VERSION),
            uid: info.uid.clone(),
            paused: info.paused,
            deleting: info.deleting,
            holds_address: info.deleting && context.ledger.claim_holds(self.uid(), pool),
        };
        if view.paused || view.deleting {
            return Ok(view);
        }
        if let Err(problems) = &info.usable {
            return Err(HandlerError::PoolNotReady(format!("{pool} is not valid: {problems}; correct the pool")));
        }
        if !info.initialized {
            let message = format!("{pool} is not initialized yet (finalizer missing)");
            return Err(HandlerError::RetryAfter { message, after: Duration::from_secs(5) });
        }
        Ok(view)
    }

    async fn ensure_address(&mut self, existing: Option<&IPAddress>) -> Result<Allocation, HandlerError> {
        let (context, pool) = self.context_and_pool().ok_or_else(|| self.unsupported_pool_kind())?;
        let claims = context.contract.claims(&self.claim.namespace().unwrap_or_default());
        let allocator = Allocator {
            ledger: &context.ledger,
            reservations: &context.reservations,
            claims: &claims,
            claim: &self.claim,
            pool,
        };
        allocator.allocate(existing).await
    }

    async fn release_address(&mut self) -> Result<Released, HandlerError> {
        // Before the setup is complete nothing is allocated, and the deletion of the claim must not be blocked.
        let Some((context, _)) = self.context_and_pool() else { return Ok(Released::Now) };
        release::release(&context.ledger, &context.reservations, &self.claim, &self.key()).await
    }
}
