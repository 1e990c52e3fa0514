//! Handles one claim: looks up its pool, allocates an address by creating its reservation (step
//! A2), and releases it.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_api::advice::{DUPLICATE, MISSING_POOL};
use capi_ipam_api::{
    AddressMetadata, AllocationOrder, Audience, IPReservation, PoolKey, Slot, names,
};
use capi_ipam_controller::client::{CallError, error_chain};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::{clock, trace_span, traces};
use capi_ipam_ip::{Block, UsableBlocks};
use capi_ipam_ledger::{
    ClaimAttributes, Held, Misplaced, PoolInfo, PoolLookup, Proposal, Unavailable, allocated_block,
    priority,
};
use capi_ipam_provider::api::{IPAddress, IPAddressClaim, Uid};
use capi_ipam_provider::{
    Allocation, ClaimHandler, Ensured, HandlerError, PoolView, ProviderAdapter, Released,
};
use tracing::debug;

use super::access::limit_error;
use super::context::Context;
use super::reservation::{Ownership, build, claim_reference, ownership};
use super::reservation_store::CreateResult;
use super::scope_changes::MoveResult;
use super::shared_ledger::SharedLedger;
use super::slices::slice_unavailable;
use super::{release, scope_changes};

/// The maximum number of proposals that can fail in one attempt. If all fail, the ledger lags far
/// behind.
const MAX_PROPOSALS: usize = 16;

/// The maximum number of steps of one attempt: proposals, also of a pool that has changed
/// meanwhile, and changes of slices.
const MAX_STEPS: usize = 48;

/// Serves claims of the four pool kinds: pools of addresses and of prefixes, namespaced and global.
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
            pool: PoolKey::of_claim(&claim),
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
    pool: Option<PoolKey>,
    /// The pool and the block of the IPAddress of the claim that was deleted during this reconcile.
    deleted: Option<(PoolKey, Block)>,
}

impl Drop for InClusterHandler {
    /// At the end of the reconcile, also after a panic or a timeout: an address that was held for
    /// the claim when the reconcile started, and that the claim did not use, is for the next claim.
    fn drop(&mut self) {
        if let Some(pool) = &self.pool {
            self.context
                .ledger
                .note(|ledger| ledger.end_unused_turn(pool, &self.key, self.uid, self.started));
        }
    }
}

impl ClaimHandler for InClusterHandler {
    async fn fetch_pool(&mut self) -> Result<PoolView, HandlerError> {
        let pool = self.pool()?;
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
            PoolLookup::NotSeenYet => {
                let message = format!("{pool} is not in the cache yet");
                return Err(HandlerError::RetryAfter {
                    message,
                    after: Duration::from_secs(1),
                });
            }
            PoolLookup::Missing => {
                let text = format!("{pool} does not exist; {MISSING_POOL}");
                return Err(HandlerError::PoolNotFound(text));
            }
        };
        let holds_address = || {
            let held = self
                .ledger()
                .read(|ledger| ledger.held_by(&self.key, self.uid));
            held.iter()
                .any(|held| held.pool == *pool && !held.is_promise)
        };
        let view = PoolView {
            api_version: format!("{}/{}", names::GROUP, names::POOL_VERSION),
            uid: info.uid.clone(),
            paused: info.paused,
            deleting: info.deleting,
            holds_address: info.deleting && holds_address(),
            release_terminating_after: info.reclaim.terminating_limit(),
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

    async fn ensure_address(
        &mut self,
        existing: Option<&IPAddress>,
    ) -> Result<Ensured, HandlerError> {
        self.allocate(self.pool()?, existing).await
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

fn cannot_allocate(pool: &PoolKey) -> HandlerError {
    HandlerError::PoolNotReady(format!("{pool} cannot allocate addresses now"))
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

    fn pool(&self) -> Result<&PoolKey, HandlerError> {
        let kind = &self.claim.spec.pool_ref.kind;
        let unsupported = || {
            HandlerError::Permanent(format!(
                "claims for pools of kind {kind} are not served by this provider"
            ))
        };
        self.pool.as_ref().ok_or_else(unsupported)
    }

    /// What the wait queue has to know about a claim whose pool may not be known.
    fn basic_attributes(&self) -> ClaimAttributes {
        let cluster = self.claim.cluster_name().map(Into::into);
        ClaimAttributes {
            cluster,
            ..priority(&self.claim).into()
        }
    }

    /// The pool, which can have changed since [`ClaimHandler::fetch_pool`]. If it no longer serves
    /// the claim, its next change enqueues the claim.
    fn serving(
        &self,
        pool: &PoolKey,
        serves: fn(&PoolInfo) -> bool,
    ) -> Result<PoolInfo, HandlerError> {
        let found = self.ledger().note(|ledger| {
            ledger.serving_or_wait(pool, &self.key, self.basic_attributes(), serves)
        });
        found.ok_or_else(|| cannot_allocate(pool))
    }

    /// Allocates an address: the one of the existing IPAddress, else one that is already reserved
    /// for the claim, else that of an attempt with an unknown outcome, else the next free one.
    async fn allocate(
        &self,
        pool: &PoolKey,
        existing: Option<&IPAddress>,
    ) -> Result<Ensured, HandlerError> {
        let info = self.serving(pool, PoolInfo::can_bind)?;
        let usable = info.usable.clone().map_err(|_| cannot_allocate(pool))?;
        if let Some(existing) = existing {
            return self.adopt(pool, existing, &info, &usable).await;
        }
        let requested = self.requested(pool, &info)?;
        if let Some((slot, is_promise)) = self.find_reserved(pool, &info, requested).await? {
            // What is promised or in use does not depend on limits.
            if !is_promise && self.claim.bound_address().is_none() {
                self.check_limits(pool, &info, &slot).await?;
            }
            return Ok(allocation(slot.block, &info, &usable).into());
        }
        if let Some(slot) = self.repeat_attempt(pool, &info, &usable, requested).await? {
            self.check_limits(pool, &info, &slot).await?;
            return Ok(allocation(slot.block, &info, &usable).into());
        }
        self.check_permission(pool, &info)?;
        let mut attributes = self.attributes(&info, requested);
        attributes.slice_owner = self.slice_owner(pool, &info)?;
        let allocated = self.allocate_new(pool, attributes).await?;
        Ok(allocated.into())
    }

    /// Reserves the address of an earlier attempt whose outcome is unknown, if the claim may still
    /// have it.
    async fn repeat_attempt(
        &self,
        pool: &PoolKey,
        info: &PoolInfo,
        usable: &UsableBlocks,
        requested: Option<Block>,
    ) -> Result<Option<Slot>, HandlerError> {
        let Some(slot) = self.ledger().read(|ledger| ledger.attempt(self.uid, pool)) else {
            return Ok(None);
        };
        let may_have_it = info.can_allocate()
            && requested.is_none_or(|requested| requested == slot.block)
            && usable.contains(slot.block)
            && !usable.is_draining(slot.block)
            && self.ledger().read(|ledger| ledger.owners(&slot)).is_empty();
        // An error leaves the outcome of the first attempt unknown: the attempt stays remembered.
        let is_ours = may_have_it
            && matches!(
                self.reserve_or_take_over(pool, &slot).await?,
                ReserveResult::Ours
            );
        self.ledger().note(|ledger| ledger.forget_attempt(self.uid));
        Ok(is_ours.then_some(slot))
    }

    /// Allocates the address that the ledger proposes.
    async fn allocate_new(
        &self,
        pool: &PoolKey,
        mut attributes: ClaimAttributes,
    ) -> Result<Allocation, HandlerError> {
        let mut conflicts = 0;
        for _ in 0..MAX_STEPS {
            let info = self.serving(pool, PoolInfo::can_allocate)?;
            let usable = info.usable.clone().map_err(|_| cannot_allocate(pool))?;
            let slot = match self
                .ledger()
                .change(|ledger| ledger.propose(pool, &self.key, attributes.clone()))
            {
                Proposal::Slot(slot) => slot,
                other => {
                    self.prepare_next_proposal(pool, &info, other, &mut attributes)
                        .await?;
                    continue;
                }
            };
            let candidate = Candidate {
                ledger: self.ledger(),
                slot,
            };
            // Prefix and gateway have to be those of the spec from which the address was allocated.
            if !self
                .ledger()
                .read(|ledger| ledger.is_current(pool, &usable))
            {
                continue;
            }
            let reserve = self.reserve_or_take_over(pool, &candidate.slot);
            let number = conflicts + 1;
            match traces::in_span(
                trace_span!("reserve", slot = %candidate.slot, candidate = number),
                reserve,
            )
            .await?
            {
                ReserveResult::Ours => {
                    self.check_limits(pool, &info, &candidate.slot).await?;
                    return Ok(allocation(candidate.slot.block, &info, &usable));
                }
                ReserveResult::Conflict => {
                    debug!(%pool, slot = %candidate.slot, "the proposed address is already reserved");
                    conflicts = number;
                }
            }
            if conflicts == MAX_PROPOSALS {
                self.catch_up().await?;
                let message =
                    format!("{MAX_PROPOSALS} proposed addresses of {pool} were already reserved");
                return Err(HandlerError::Conflict(message));
            }
        }
        Err(HandlerError::Conflict(format!(
            "{pool} keeps changing while an address of it is allocated"
        )))
    }

    /// Does what the ledger asks for before it proposes an address. Fails if the claim has to wait:
    /// it is in the wait queue then.
    async fn prepare_next_proposal(
        &self,
        pool: &PoolKey,
        info: &PoolInfo,
        proposal: Proposal,
        attributes: &mut ClaimAttributes,
    ) -> Result<(), HandlerError> {
        let may_use_headroom = matches!(
            proposal,
            Proposal::Wait | Proposal::Unavailable(Unavailable::NotYet)
        );
        if may_use_headroom
            && !attributes.uses_headroom
            && self.is_of_selected_machine(pool, info).await?
        {
            attributes.uses_headroom = true;
            return Ok(());
        }
        match proposal {
            Proposal::Slot(_) => Ok(()),
            Proposal::LimitReached(limit) => Err(limit_error(pool, &limit)),
            Proposal::AssignSlice(block) => match &attributes.slice_owner {
                Some(owner) => self.assign_slice(pool, block, owner).await,
                None => Ok(()),
            },
            Proposal::ResumeSlice(block) => self.resume_slice(pool, block).await,
            Proposal::SliceUnavailable(refusal) => Err(slice_unavailable(pool, &refusal)),
            Proposal::Wait => Err(HandlerError::PoolExhausted(self.exhausted(pool, info))),
            Proposal::Unavailable(why) => {
                let block = attributes.requested.ok_or_else(|| cannot_allocate(pool))?;
                Err(self.unavailable(pool, info, block, &why))
            }
        }
    }

    /// Lists all reservations, since the ledger lags far behind; not while another claim does.
    async fn catch_up(&self) -> Result<(), HandlerError> {
        let Some(_permission) = self.ledger().begin_catch_up() else {
            return Ok(());
        };
        let listed = self.context.reservations.for_each(|_| {}).await;
        listed.map_err(|error| request_error("list reservations", error))
    }

    /// Finds an address that an earlier attempt reserved, or that is promised to the claim, and
    /// whether it is promised. Verified by a live read, since the reservation may have been
    /// released meanwhile. Only the requested block is considered, if there is one.
    async fn find_reserved(
        &self,
        pool: &PoolKey,
        info: &PoolInfo,
        requested: Option<Block>,
    ) -> Result<Option<(Slot, bool)>, HandlerError> {
        for Held {
            slot,
            is_promise,
            pool: from,
            uid,
            ..
        } in self
            .ledger()
            .read(|ledger| ledger.held_by(&self.key, self.uid))
        {
            if from != *pool || requested.is_some_and(|requested| requested != slot.block) {
                continue;
            }
            // Nothing of a pool that its network refuses is moved.
            let slot = if slot.scope == info.scope || info.network_problem.is_some() {
                slot
            } else {
                // The pool has joined or left a network since.
                let target = Slot {
                    scope: info.scope.clone(),
                    block: slot.block,
                };
                let is_in_use = !self
                    .ledger()
                    .read(|ledger| ledger.owners(&target))
                    .is_empty();
                let block = slot.block;
                let misplaced = Misplaced {
                    pool: from,
                    slot,
                    scope: info.scope.clone(),
                    uid,
                    is_in_use,
                };
                let moved = scope_changes::move_one(&self.context, &misplaced).await;
                match moved.map_err(|error| request_error("move the IPReservation", error))? {
                    MoveResult::Moved => target,
                    MoveResult::Taken => continue,
                    MoveResult::Changed => {
                        let message =
                            format!("the reservation of {block} has changed while it was moved");
                        return Err(HandlerError::Conflict(message));
                    }
                }
            };
            // A promise of an address outside of the pool has no effect. An address in use by
            // another claim is not allocated again: a provider without reservations may have
            // allocated it.
            let is_in_pool = info
                .usable
                .as_ref()
                .is_ok_and(|usable| usable.contains(slot.block));
            let in_use = self
                .ledger()
                .read(|ledger| ledger.owners(&slot))
                .into_iter()
                .find(|owner| *owner != self.key);
            if let Some(owner) = in_use
                .as_ref()
                .filter(|_| self.claim.bound_address().is_some())
            {
                let audience = Audience::of(Some(self.key.namespace()));
                let other = audience.object("IPAddress", owner.namespace(), owner.name());
                return Err(HandlerError::DuplicateAddress(format!(
                    "the IPAddress of the claim was deleted, and its address {} is in use by {other}; {DUPLICATE}",
                    slot.block
                )));
            }
            // An address that was removed from the pool would be combined with the gateway of
            // another subnet. The sweeper releases it once the claim is bound.
            let is_lost = !is_in_pool && (self.claim.bound_address().is_none() || is_promise);
            // A promise is no allocation yet: nothing is allocated where the pool drains.
            let is_draining = || {
                info.usable
                    .as_ref()
                    .is_ok_and(|usable| usable.is_draining(slot.block))
            };
            let is_lost =
                is_lost || is_promise && self.claim.bound_address().is_none() && is_draining();
            if in_use.is_some() || is_lost {
                continue;
            }
            if self.holds_reservation(&slot).await? {
                return Ok(Some((slot, is_promise)));
            }
        }
        Ok(None)
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

/// A held address. Dropping it, also by cancelling the attempt, frees the address unless it was
/// reserved.
pub(super) struct Candidate<'a> {
    pub(super) ledger: &'a SharedLedger,
    pub(super) slot: Slot,
}

impl Drop for Candidate<'_> {
    fn drop(&mut self) {
        self.ledger
            .change(|ledger| ledger.drop_candidate(&self.slot));
    }
}

/// The allocation of a new address. With the order RoundRobin, the time of the allocation is an
/// annotation of the IPAddress: the pool continues above the newest one after a restart, and after
/// `clusterctl move`.
fn allocation(block: Block, info: &PoolInfo, usable: &UsableBlocks) -> Allocation {
    let AddressMetadata {
        labels,
        mut annotations,
    } = info.metadata.as_deref().cloned().unwrap_or_default();
    if info.order == AllocationOrder::RoundRobin {
        annotations.insert(
            names::ALLOCATED_AT_ANNOTATION.to_owned(),
            format!("{:.6}", clock::now_micro().0),
        );
    }
    let gateway = usable.gateway_of(block);
    Allocation {
        gateway,
        labels,
        annotations,
        ..Allocation::new(block.base(), usable.prefix_of(block))
    }
}

pub(super) fn request_error(action: &str, error: CallError) -> HandlerError {
    if error.is_conflict() {
        return HandlerError::Conflict(error_chain(&error));
    }
    HandlerError::transient(format!("cannot {action}"), error)
}
