//! Handles one claim: looks up its pool, allocates an address by creating its reservation (step
//! A2), and releases it.

use std::any::Any;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_api::{AllocationCause, IPReservation, NamedPool, PoolKey, Slot, advice, names};
use capi_ipam_controller::finalizer;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::Block;
use capi_ipam_ledger::{
    ClaimAttributes, Held, PoolInfo, PoolLookup, Preparation, Reason, SetInfo, allocated_block,
    priority,
};
use capi_ipam_provider::advanced::{
    AddressOrigin, ClaimHandler, Ensured, PoolView, ProviderAdapter,
};
use capi_ipam_provider::api::{IPAddress, IPAddressClaim, Uid};
use capi_ipam_provider::prelude::{Allocation, HandlerError, Released};

use super::context::Context;
use super::errors::{
    cannot_allocate, limit_error, needs_block, not_seen_yet, request_error, slice_unavailable,
    unexpected_event,
};
use super::release;
use super::reservation::{Ownership, build, claim_reference, ownership};
use super::reservation_store::CreateResult;
use super::shared_ledger::SharedLedger;

/// Serves claims of the four pool kinds: pools of addresses and of prefixes, namespaced and global,
/// and of sets of them.
pub struct InClusterAdapter {
    pub(super) context: Arc<Context>,
}

impl ProviderAdapter for InClusterAdapter {
    type Handler = InClusterHandler;

    fn starting(&self, claim: &IPAddressClaim) -> Option<Box<dyn Any + Send>> {
        let pool = PoolKey::of_claim(claim)?;
        let key = NamespacedName::of(&claim.metadata);
        let uid = Uid::of(claim.metadata.uid.as_deref().unwrap_or_default());
        self.context
            .ledger
            .note(|ledger| ledger.start(&pool, &key, uid, priority(claim)));
        Some(Box::new(StartedReconcile {
            ledger: Arc::clone(&self.context.ledger),
            pool,
            key,
        }))
    }

    fn claim_handler(&self, claim: Arc<IPAddressClaim>) -> InClusterHandler {
        InClusterHandler {
            context: Arc::clone(&self.context),
            started: Instant::now(),
            key: NamespacedName::of(&claim.metadata),
            uid: Uid::of(claim.metadata.uid.as_deref().unwrap_or_default()),
            named: NamedPool::of_claim(&claim),
            set: None,
            deleted: None,
            claim,
        }
    }
}

/// A reconcile of a claim without an address, until it is dropped.
struct StartedReconcile {
    ledger: Arc<SharedLedger>,
    pool: PoolKey,
    key: NamespacedName,
}

impl Drop for StartedReconcile {
    fn drop(&mut self) {
        self.ledger.note(|ledger| ledger.end(&self.pool, &self.key));
    }
}

/// Handles one claim during one reconcile.
pub struct InClusterHandler {
    pub(super) context: Arc<Context>,
    /// When the reconcile started.
    started: Instant,
    pub(super) claim: Arc<IPAddressClaim>,
    pub(super) key: NamespacedName,
    pub(super) uid: Uid,
    named: Option<NamedPool>,
    /// The set that the claim names, once it is looked up.
    set: Option<Arc<SetInfo>>,
    /// The pool and the block of the IPAddress of the claim that was deleted during this reconcile.
    deleted: Option<(PoolKey, Block)>,
}

impl Drop for InClusterHandler {
    /// At the end of the reconcile, also after a panic or a timeout: an address that was held for
    /// the claim when the reconcile started, and that the claim did not use, is for the next claim.
    fn drop(&mut self) {
        let (claim, uid, started) = (&self.key, self.uid, self.started);
        self.context.ledger.note(|ledger| match &self.named {
            Some(NamedPool::Pool(pool)) => ledger.end_unused_turn(pool, claim, uid, started),
            Some(NamedPool::Set(set)) => ledger.end_unused_turns(set, claim, uid, started),
            None => {}
        });
    }
}

impl ClaimHandler for InClusterHandler {
    async fn fetch_pool(&mut self) -> Result<PoolView, HandlerError> {
        let set = match self.named()? {
            NamedPool::Pool(pool) => return self.fetch_named_pool(pool),
            NamedPool::Set(set) => set,
        };
        let (view, info) = self.fetch_set(set)?;
        self.set = Some(info);
        Ok(view)
    }

    async fn ensure_address(
        &mut self,
        existing: Option<&IPAddress>,
    ) -> Result<Ensured, HandlerError> {
        match (self.named()?, &self.set) {
            (NamedPool::Pool(pool), _) => self.allocate(pool, existing).await,
            (NamedPool::Set(set), Some(info)) => self.allocate_from_set(set, info, existing).await,
            (NamedPool::Set(_), None) => Err(unexpected_event()),
        }
    }

    fn address_bound(&mut self, allocation: &Allocation, origin: AddressOrigin) {
        self.context.allocations.record(|log| {
            let cause = match origin {
                AddressOrigin::Created => AllocationCause::ClaimCreated,
                AddressOrigin::Recreated => AllocationCause::AddressDeleted,
                AddressOrigin::Existing => AllocationCause::AddressExisted,
            };
            let pool = match self.named.as_ref()? {
                NamedPool::Pool(pool) => pool.clone(),
                NamedPool::Set(_) => self.recorded_pool()?,
            };
            let mut held = self.held().into_iter();
            let bound =
                held.find(|held| held.pool == pool && held.slot.block.base() == allocation.address);
            let place = (&pool, &bound?.slot);
            Some(log.event_of_claim(cause, place, &self.claim))
        });
    }

    fn address_deleted(&mut self, address: &IPAddress) {
        self.deleted = allocated_block(address).map(|(pool, block, _)| (pool, block));
    }

    async fn release_address(&mut self) -> Result<Released, HandlerError> {
        release::release_claim(
            &self.context,
            &self.claim,
            &self.key,
            self.uid,
            self.deleted.as_ref(),
        )
        .await?;
        Ok(Released::Now)
    }
}

/// The result of creating a reservation.
pub(super) enum ReserveResult {
    /// The address is reserved for the claim.
    Ours,
    /// The address is reserved by another reservation.
    Conflict,
}

impl InClusterHandler {
    pub(super) fn ledger(&self) -> &SharedLedger {
        &self.context.ledger
    }

    /// The addresses that the ledger shows as held by the claim, or promised to it.
    pub(super) fn held(&self) -> Vec<Held> {
        self.ledger()
            .read(|ledger| ledger.addresses().held_by(&self.key, self.uid))
    }

    fn named(&self) -> Result<&NamedPool, HandlerError> {
        let kind = &self.claim.spec.pool_ref.kind;
        let unsupported = || {
            HandlerError::Permanent(format!(
                "claims for pools of kind {kind} are not served by this provider"
            ))
        };
        self.named.as_ref().ok_or_else(unsupported)
    }

    fn fetch_named_pool(&self, pool: &PoolKey) -> Result<PoolView, HandlerError> {
        let is_deleting = self.claim.metadata.deletion_timestamp.is_some();
        if is_deleting {
            // First, so that a change of the pool that the lookup does not see enqueues the claim.
            self.context.terminating.add(pool, &self.key);
        }
        let info = match self
            .ledger()
            .note(|ledger| ledger.pool_or_wait(pool, &self.key, self.basic_attributes()))
        {
            PoolLookup::Found(info) => info,
            PoolLookup::NotSeenYet => return Err(not_seen_yet(pool)),
            PoolLookup::Missing => {
                let advice = self
                    .ledger()
                    .read(|ledger| advice::missing_pool(pool, ledger.pools().existing_pools()));
                let text = format!("{pool} does not exist; {advice}");
                return Err(HandlerError::PoolNotFound(text));
            }
        };
        let holds_address = || {
            let mut held = self.held().into_iter();
            held.any(|held| held.pool == *pool && !held.is_promise)
        };
        let view = PoolView {
            api_version: format!("{}/{}", names::GROUP, names::POOL_VERSION),
            uid: info.uid.clone(),
            paused: info.paused,
            deleting: info.deleting,
            holds_address: info.deleting && holds_address(),
            release_terminating_after: self.terminating_limit(Some(&info)),
        };
        // A claim that is being deleted does not need a valid pool.
        if view.paused || view.deleting || is_deleting {
            return Ok(view);
        }
        if let Err(problems) = &info.usable {
            return Err(HandlerError::PoolNotReady(format!(
                "{pool} is not valid: {problems}; correct the pool"
            )));
        }
        if let Some(refusal) = &info.network_problem {
            return Err(HandlerError::PoolNotReady(format!(
                "{pool} cannot allocate: {refusal}"
            )));
        }
        if !info.initialized {
            let message = format!(
                "{pool} is not initialized yet (finalizer or block length of its network missing)"
            );
            return Err(HandlerError::RetryAfter {
                message,
                after: Duration::from_secs(5),
            });
        }
        Ok(view)
    }

    /// After which time the address of a claim that is being deleted is released early.
    pub(super) fn terminating_limit(&self, pool: Option<&PoolInfo>) -> Option<Duration> {
        // The address of a Cluster is in use as long as the Cluster exists, however long that is.
        let is_of_cluster = finalizer::is_set(&*self.claim, names::PROTECT_CLUSTER_ADDRESS);
        let limit = pool?.reclaim.terminating_limit();
        limit.filter(|_| !is_of_cluster)
    }

    /// What the wait queue has to know about a claim whose pool may not be known.
    pub(super) fn basic_attributes(&self) -> ClaimAttributes {
        let cluster = self.claim.cluster_name().map(Into::into);
        ClaimAttributes {
            cluster,
            ..priority(&self.claim).into()
        }
    }

    /// The pool, which can have changed since [`ClaimHandler::fetch_pool`]. If it no longer serves
    /// the claim, its next change enqueues the claim.
    pub(super) fn serving(
        &self,
        pool: &PoolKey,
        serves: fn(&PoolInfo) -> bool,
    ) -> Result<Arc<PoolInfo>, HandlerError> {
        let found = self.ledger().note(|ledger| {
            ledger.serving_or_wait(pool, &self.key, self.basic_attributes(), serves)
        });
        found.ok_or_else(|| cannot_allocate(pool))
    }

    /// Allocates an address: the one of the existing IPAddress, or one of the pool.
    pub(super) async fn allocate(
        &self,
        pool: &PoolKey,
        existing: Option<&IPAddress>,
    ) -> Result<Ensured, HandlerError> {
        let info = self.serving(pool, PoolInfo::can_bind)?;
        let usable = info.usable.clone().map_err(|_| cannot_allocate(pool))?;
        let ensured = match existing {
            Some(existing) => self.adopt(pool, existing, &info, &usable).await,
            None => self.allocate_from(pool, info, usable).await,
        };
        let mut ensured = ensured?;
        if let Ensured::Allocated(allocation) = &mut ensured {
            allocation.is_promised = self.is_promised(pool, allocation.address);
        }
        Ok(ensured)
    }

    /// Whether a user has reserved an address of the pool for the claim.
    fn is_promised(&self, pool: &PoolKey, address: IpAddr) -> bool {
        self.held()
            .iter()
            .any(|held| held.is_promise && held.pool == *pool && held.slot.block.base() == address)
    }

    /// Does what the ledger asks for before it proposes an address.
    pub(super) async fn prepare(
        &self,
        pool: &PoolKey,
        preparation: Preparation,
        attributes: &ClaimAttributes,
    ) -> Result<(), HandlerError> {
        match (preparation, &attributes.slice_owner) {
            (Preparation::AssignSlice(block), Some(owner)) => {
                self.assign_slice(pool, block, owner).await
            }
            (Preparation::AssignSlice(_), None) => Ok(()),
            (Preparation::ResumeSlice(block), _) => self.resume_slice(pool, block).await,
        }
    }

    /// Lets the claim use the headroom of the pool if this is for its Machine. Fails if the claim
    /// has to wait: it is in the wait queue then.
    pub(super) async fn use_headroom_or_wait(
        &self,
        pool: &PoolKey,
        info: &PoolInfo,
        reason: &Reason,
        attributes: &mut ClaimAttributes,
    ) -> Result<(), HandlerError> {
        if reason.may_end_with_headroom()
            && !attributes.uses_headroom
            && self.is_of_selected_machine(pool, info).await?
        {
            attributes.uses_headroom = true;
            return Ok(());
        }
        Err(match reason {
            Reason::NoAddress => HandlerError::PoolExhausted(self.exhausted(pool, info)),
            Reason::NeedsBlock(missing) => needs_block(pool, missing),
            Reason::LimitReached(limit) => limit_error(pool, limit),
            Reason::SliceUnavailable(refusal) => slice_unavailable(pool, refusal),
            Reason::Unavailable(why) => {
                let block = attributes.requested.ok_or_else(|| cannot_allocate(pool))?;
                self.unavailable(pool, info, block, why)
            }
        })
    }

    /// Lists all reservations, since the ledger lags far behind; not while another claim does.
    pub(super) async fn catch_up(&self) -> Result<(), HandlerError> {
        let Some(_permission) = self.ledger().begin_catch_up() else {
            return Ok(());
        };
        let listed = self.context.reservations.for_each(|_| {}).await;
        listed.map_err(|error| request_error("list reservations", error))
    }

    /// Whether the reservation of an address belongs to the claim, according to a live read.
    pub(super) async fn holds_reservation(&self, slot: &Slot) -> Result<bool, HandlerError> {
        let read = self.context.reservations.read(slot).await;
        let read = read.map_err(|error| request_error("read the IPReservation", error))?;
        let claim = claim_reference(&self.claim);
        let valid = read.as_ref().and_then(|found| found.0.as_ref().ok());
        Ok(valid.is_some_and(|found| ownership(found, &claim) == Ownership::Ours))
    }

    /// Creates the reservation of an address. If it exists already or the outcome is unknown, a
    /// live read determines to whom it belongs.
    pub(super) async fn reserve(
        &self,
        pool: &PoolKey,
        slot: &Slot,
    ) -> Result<ReserveResult, HandlerError> {
        let claim = claim_reference(&self.claim);
        let wanted = build(slot, pool, claim.clone());
        let is_ours = |found: &IPReservation| {
            found.slot().is_ok() && ownership(found, &claim) == Ownership::Ours
        };
        let created = self
            .context
            .reservations
            .create(slot, &wanted, Some(self.attempt(pool)), is_ours)
            .await;
        match created.map_err(|error| request_error("reserve an address", error))? {
            CreateResult::Created(_) | CreateResult::Exists(_) => Ok(ReserveResult::Ours),
            CreateResult::Taken(_) => Ok(ReserveResult::Conflict),
        }
    }
}
