//! Allocates an address to a claim without an IPAddress: sends the requests of [`Allocate`],
//! step A2.

use std::collections::VecDeque;
use std::sync::Arc;

use capi_ipam_api::advice::DUPLICATE;
use capi_ipam_api::{
    AddressMetadata, AllocationOrder, Audience, DnsSettings, NameServers, PoolKey, Slot, names,
};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::{clock, trace_span, traces};
use capi_ipam_ip::{Block, UsableBlocks};
use capi_ipam_ledger::{ClaimAttributes, Held, KnownReservation, Misplaced, Outcome, PoolInfo};
use capi_ipam_protocol::allocate::{
    Allocate, EarlierAttempt, End, Event, HeldAddress, Origin, Proposed, Step,
};
use capi_ipam_provider::advanced::Ensured;
use capi_ipam_provider::api::{IPAddressClaim, MachineOwner};
use capi_ipam_provider::prelude::{Allocation, HandlerError};
use kube::ResourceExt;
use tracing::debug;

use super::errors::{cannot_allocate, request_error, unexpected_event};
use super::handler::{InClusterHandler, ReserveResult};
use super::reservation_store::WriteResult;
use super::scope_changes::{self, MoveResult};
use super::shared_ledger::SharedLedger;

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

/// The allocation of a new address to a claim. With the order RoundRobin, the time of the allocation
/// is an annotation of the IPAddress: the pool continues above the newest one after a restart, and
/// after `clusterctl move`.
fn allocation(
    block: Block,
    info: &PoolInfo,
    usable: &UsableBlocks,
    claim: &IPAddressClaim,
) -> Allocation {
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
    if let Some(dns) = &info.dns {
        let name_servers = dns.ranges.get(usable.range_index_of(block));
        annotations.extend(dns_annotations(dns, name_servers, claim));
    }
    let gateway = usable.gateway_of(block);
    Allocation {
        gateway,
        labels,
        annotations,
        ..Allocation::new(block.base(), usable.prefix_of(block))
    }
}

/// The annotations with the name servers and the DNS name of the address of a claim.
fn dns_annotations(
    dns: &DnsSettings,
    name_servers: Option<&NameServers>,
    claim: &IPAddressClaim,
) -> Vec<(String, String)> {
    let mut annotations = Vec::new();
    let mut add = |name: &str, value: String| {
        if !value.is_empty() {
            annotations.push((name.to_owned(), value));
        }
    };
    if let Some(name_servers) = name_servers {
        let domains = name_servers.search_domains.join(",");
        add(
            names::DNS_SERVERS_ANNOTATION,
            name_servers.servers.join(","),
        );
        add(names::SEARCH_DOMAINS_ANNOTATION, domains);
    }
    if let Some(names_of_pool) = &dns.names {
        let machine = MachineOwner::of(claim).map(|owner| owner.name);
        let name = names_of_pool.name(&claim.name_any(), machine);
        add(names::DNS_NAME_ANNOTATION, name.unwrap_or_default());
    }
    annotations
}

/// One attempt to allocate an address of a pool.
struct Allocating<'a> {
    handler: &'a InClusterHandler,
    pool: &'a PoolKey,
    /// The pool, and the blocks of it from which an address is allocated.
    info: Arc<PoolInfo>,
    usable: Arc<UsableBlocks>,
    requested: Option<Block>,
    /// The addresses that the ledger shows as held by the claim, or promised to it.
    held: VecDeque<Held>,
    /// The held address that is moved.
    moving: Option<Held>,
    /// What the wait queue knows of the claim since the last proposal.
    attributes: ClaimAttributes,
    /// The address that is checked or reserved.
    slot: Option<Slot>,
    /// The proposed address, which no other claim gets as long as it is held here.
    candidate: Option<Candidate<'a>>,
    /// The other claim that has an IPAddress with the held address.
    used_by: Option<NamespacedName>,
    /// The reservation of the address, if a claim has released it.
    released: Option<KnownReservation>,
}

impl InClusterHandler {
    /// Allocates an address of a pool: one that is reserved for the claim already, or a free one.
    pub(super) async fn allocate_from(
        &self,
        pool: &PoolKey,
        info: Arc<PoolInfo>,
        usable: Arc<UsableBlocks>,
    ) -> Result<Ensured, HandlerError> {
        let requested = self.requested(pool, &info)?;
        let mut allocating = Allocating {
            handler: self,
            pool,
            requested,
            held: self.held().into(),
            moving: None,
            attributes: ClaimAttributes::default(),
            info,
            usable,
            slot: None,
            candidate: None,
            used_by: None,
            released: None,
        };
        let mut allocate = Allocate::start(self.claim.bound_address().is_some());
        loop {
            if let Step::Done(end) = allocate.step() {
                return allocating.end(end, allocate.conflicts());
            }
            let event = allocating.perform(&allocate).await?;
            allocate.next(event);
        }
    }
}

impl Allocating<'_> {
    /// Sends the request of the current step, or looks up what it asks for.
    async fn perform(&mut self, allocate: &Allocate) -> Result<Event, HandlerError> {
        match allocate.step() {
            Step::FindHeld => Ok(Event::Held(self.find_held())),
            Step::MoveHeld => self.move_held().await,
            Step::CheckHeld => {
                let is_ours = self.handler.holds_reservation(self.slot()?).await?;
                Ok(Event::HeldRead { is_ours })
            }
            Step::FindAttempt => Ok(Event::Attempt(self.find_attempt())),
            Step::CheckPermission => self.check_permission(),
            Step::Propose => self.propose().await,
            Step::TakeOver(origin) | Step::Reserve(origin) => {
                let slot = self.slot()?.clone();
                let number = allocate.conflicts().saturating_add(1);
                let span = trace_span!("reserve", %slot, candidate = number);
                let event = traces::in_span(span, self.reserve(&slot)).await?;
                self.reserved(origin, &slot, event);
                Ok(event)
            }
            Step::CheckLimits => self.check_limits(),
            Step::CheckBlock => {
                self.handler.check_block(self.slot()?).await?;
                Ok(Event::Permitted)
            }
            Step::CheckPool => self.check_pool(),
            Step::CatchUp => {
                self.handler.catch_up().await?;
                Ok(Event::CaughtUp)
            }
            Step::Done(_) => Err(unexpected_event()),
        }
    }

    /// The result of the attempt.
    fn end(&self, end: End, conflicts: u8) -> Result<Ensured, HandlerError> {
        let pool = self.pool;
        match end {
            End::Allocated => {
                let block = self.slot()?.block;
                self.handler.report_ignored_request(pool, &self.info, block);
                let claim = &self.handler.claim;
                Ok(allocation(block, &self.info, &self.usable, claim).into())
            }
            End::Duplicate => Err(self.duplicate()?),
            End::HeldChanges => {
                let block = self.slot()?.block;
                let message = format!("the reservation of {block} has changed while it was moved");
                Err(HandlerError::Conflict(message))
            }
            End::AllTaken => {
                let message =
                    format!("{conflicts} proposed addresses of {pool} were already reserved");
                Err(HandlerError::Conflict(message))
            }
            End::PoolChanges => {
                let message = format!("{pool} has changed while an address of it was allocated");
                Err(HandlerError::Conflict(message))
            }
            End::UnexpectedEvent => Err(unexpected_event()),
        }
    }

    fn slot(&self) -> Result<&Slot, HandlerError> {
        self.slot.as_ref().ok_or_else(unexpected_event)
    }

    /// The next held address: only the requested one, if the claim requests one.
    fn find_held(&mut self) -> Option<HeldAddress> {
        while let Some(held) = self.held.pop_front() {
            let is_requested = self
                .requested
                .is_none_or(|requested| requested == held.slot.block);
            if held.pool != *self.pool || !is_requested {
                continue;
            }
            // Nothing of a pool that its network refuses is moved.
            let is_elsewhere = held.slot.scope != self.info.scope;
            let is_misplaced = is_elsewhere && self.info.network_problem.is_none();
            let slot = held.slot.clone();
            let found = self.held_address(&slot, held.is_promise, is_misplaced);
            self.slot = Some(slot);
            self.moving = Some(held);
            return Some(found);
        }
        None
    }

    fn held_address(&mut self, slot: &Slot, is_promise: bool, is_misplaced: bool) -> HeldAddress {
        self.used_by = self.other_owner(slot);
        HeldAddress {
            is_misplaced,
            is_promise,
            is_in_pool: self.usable.contains(slot.block),
            is_draining: self.usable.is_draining(slot.block),
            is_used_by_other: self.used_by.is_some(),
        }
    }

    fn other_owner(&self, slot: &Slot) -> Option<NamespacedName> {
        let owners = self
            .handler
            .ledger()
            .read(|ledger| ledger.addresses().owners(slot));
        owners.into_iter().find(|owner| *owner != self.handler.key)
    }

    /// Moves the reservation of the held address: the pool has joined or left a network since.
    async fn move_held(&mut self) -> Result<Event, HandlerError> {
        let held = self.moving.take().ok_or_else(unexpected_event)?;
        let target = Slot {
            scope: self.info.scope.clone(),
            block: held.slot.block,
        };
        let misplaced = Misplaced {
            pool: held.pool,
            slot: held.slot,
            scope: self.info.scope.clone(),
            uid: held.uid,
            is_in_use: !self
                .handler
                .ledger()
                .read(|ledger| ledger.addresses().owners(&target))
                .is_empty(),
        };
        let moved = scope_changes::move_one(&self.handler.context, &misplaced).await;
        match moved.map_err(|error| request_error("move the IPReservation", error))? {
            MoveResult::Moved => {
                let found = self.held_address(&target, held.is_promise, false);
                self.slot = Some(target);
                Ok(Event::Held(Some(found)))
            }
            MoveResult::Taken => Ok(Event::Taken),
            MoveResult::Changed => Ok(Event::Changed),
        }
    }

    /// The address of an earlier attempt whose outcome is unknown, if the claim may still have it.
    fn find_attempt(&mut self) -> EarlierAttempt {
        let (key, uid) = (&self.handler.key, self.handler.uid);
        let found = self.handler.ledger().note(|ledger| {
            let slot = ledger.attempt(uid, self.pool)?;
            let is_requested = self
                .requested
                .is_none_or(|requested| requested == slot.block);
            let may_have_it = self.info.can_allocate()
                && is_requested
                && self.usable.contains(slot.block)
                && !self.usable.is_draining(slot.block)
                && ledger.addresses().owners(&slot).is_empty();
            if !may_have_it {
                ledger.addresses_mut().forget_attempt(uid);
                return None;
            }
            let released = ledger.released_reservation(&slot, key);
            Some((slot, released))
        });
        let Some((slot, released)) = found else {
            return EarlierAttempt::None;
        };
        self.released = released;
        self.slot = Some(slot);
        if self.released.is_some() {
            EarlierAttempt::Released
        } else {
            EarlierAttempt::Unreserved
        }
    }

    fn check_permission(&self) -> Result<Event, HandlerError> {
        self.handler.check_permission(self.pool, &self.info)?;
        Ok(Event::Permitted)
    }

    /// Asks the ledger for an address of the pool as it is now.
    async fn propose(&mut self) -> Result<Event, HandlerError> {
        self.candidate = None;
        let (handler, pool) = (self.handler, self.pool);
        let info = handler.serving(pool, PoolInfo::can_allocate)?;
        let usable = info.usable.clone().map_err(|_| cannot_allocate(pool))?;
        let uses_headroom = self.attributes.uses_headroom;
        self.attributes = handler.attributes(pool, &info, self.requested)?;
        self.attributes.uses_headroom |= uses_headroom;
        let attributes = self.attributes.clone();
        let outcome = handler
            .ledger()
            .change(|ledger| ledger.propose(pool, &handler.key, attributes));
        let slot = match outcome {
            Outcome::Offer(slot) => slot,
            Outcome::First(preparation) => {
                handler.prepare(pool, preparation, &self.attributes).await?;
                return Ok(Event::AskAgain);
            }
            Outcome::NotNow(reason) => {
                let attributes = &mut self.attributes;
                handler
                    .use_headroom_or_wait(pool, &info, &reason, attributes)
                    .await?;
                return Ok(Event::AskAgain);
            }
        };
        self.candidate = Some(Candidate {
            ledger: handler.ledger(),
            slot: slot.clone(),
        });
        // Prefix and gateway have to be those of the spec from which the address was allocated.
        let released = handler.ledger().read(|ledger| {
            let is_current = ledger.pools().is_current(pool, &usable);
            is_current.then(|| ledger.released_reservation(&slot, &handler.key))
        });
        let Some(released) = released else {
            return Ok(Event::AskAgain);
        };
        self.info = info;
        self.usable = usable;
        self.released = released;
        self.slot = Some(slot);
        Ok(Event::Proposed(if self.released.is_some() {
            Proposed::Released
        } else {
            Proposed::Unreserved
        }))
    }

    fn check_limits(&self) -> Result<Event, HandlerError> {
        let slot = self.slot()?;
        self.handler.check_limits(self.pool, &self.info, slot)?;
        Ok(Event::Permitted)
    }

    /// Compares the reserved address with the pool as it is now: the name of the reservation
    /// protects the address only within its scope, and only a block of its length.
    fn check_pool(&self) -> Result<Event, HandlerError> {
        let slot = self.slot()?;
        let is_current = self
            .handler
            .ledger()
            .read(|ledger| ledger.pools().has_place(self.pool, slot));
        Ok(if is_current {
            Event::Permitted
        } else {
            Event::AskAgain
        })
    }

    /// Reserves an address, or takes over its reservation if a claim has released it.
    async fn reserve(&mut self, slot: &Slot) -> Result<Event, HandlerError> {
        let Some(released) = self.released.take() else {
            return match self.handler.reserve(self.pool, slot).await? {
                ReserveResult::Ours => Ok(Event::Reserved),
                ReserveResult::Conflict => Ok(Event::Taken),
            };
        };
        match self.handler.take_over(self.pool, &released).await? {
            WriteResult::Done(_) => Ok(Event::Reserved),
            WriteResult::Changed(_) => Ok(Event::Taken),
            WriteResult::Gone => Ok(Event::Gone),
        }
    }

    /// An error leaves the outcome of an earlier attempt unknown: only a result ends it.
    fn reserved(&self, origin: Origin, slot: &Slot, event: Event) {
        let pool = self.pool;
        if origin == Origin::Attempt && event != Event::Gone {
            let uid = self.handler.uid;
            self.handler
                .ledger()
                .note(|ledger| ledger.addresses_mut().forget_attempt(uid));
        }
        if origin == Origin::Proposal && event == Event::Taken {
            debug!(%pool, %slot, "the proposed address is already reserved");
        }
    }

    /// The IPAddress of the bound claim was deleted, and another claim uses its address.
    fn duplicate(&self) -> Result<HandlerError, HandlerError> {
        let slot = self.slot()?;
        let owner = self.used_by.as_ref().ok_or_else(unexpected_event)?;
        let audience = Audience::of(Some(self.handler.key.namespace()));
        let other = audience.object("IPAddress", owner.namespace(), owner.name());
        Ok(HandlerError::DuplicateAddress(format!(
            "the IPAddress of the claim was deleted, and its address {} is in use by {other}; {DUPLICATE}",
            slot.block
        )))
    }
}
