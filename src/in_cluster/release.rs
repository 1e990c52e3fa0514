//! Releases the addresses of a claim: sends the requests of [`Free`], step R2.
//!
//! A claim whose IPAddress another process has deleted can have been moved to another management
//! cluster. In a network that shares blocks, its reservations are left to the repair of abandoned
//! ones, which waits until the registry has shown what others use.

use std::collections::VecDeque;

use capi_ipam_api::{AllocationCause, IPReservation, PoolKey, Slot};
use capi_ipam_controller::client::CallError;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::Block;
use capi_ipam_ledger::{Held, KnownReservation};
use capi_ipam_protocol::free::{End, Event, Free, Step};
use capi_ipam_provider::api::{AddressConflict, IPAddressClaim, Uid};
use capi_ipam_provider::prelude::HandlerError;

use super::context::Context;
use super::errors::unexpected_event;
use super::reservation::{Ownership, claim_reference, ownership};
use super::reservation_store::{FormerUse, WriteResult};

/// The release of the addresses of one claim.
struct Releasing<'a> {
    context: &'a Context,
    claim: &'a IPAddressClaim,
    /// What the claim reports of its address, which is quarantined then.
    conflict: Option<AddressConflict>,
    /// The addresses that the ledger shows as reserved for the claim, and how it has used each.
    held: VecDeque<(KnownReservation, FormerUse)>,
    /// The pool and the block of the deleted IPAddress, if the ledger shows no reservation of it.
    deleted: Option<(PoolKey, Block)>,
    /// Whether the claim is being deleted, and this process has deleted its IPAddress.
    is_deleted_here: bool,
    /// Where the block may be reserved, once that is looked up.
    slots: Option<VecDeque<Slot>>,
    /// The scope that is read.
    slot: Option<Slot>,
    /// The reservation that is released.
    current: Option<(KnownReservation, FormerUse)>,
}

/// Step R2: releases the addresses that are reserved for a claim whose IPAddress is deleted, but for
/// those that may be in use elsewhere. `deleted` is the pool and the block of that IPAddress, if this
/// process has deleted it. The claim does not wait for the cool-down. A promise is kept: the next
/// claim of this name gets the address again.
pub(super) async fn release_claim(
    context: &Context,
    claim: &IPAddressClaim,
    key: &NamespacedName,
    uid: Uid,
    deleted: Option<&(PoolKey, Block)>,
) -> Result<(), HandlerError> {
    let mut releasing = Releasing::new(
        context,
        claim,
        &context
            .ledger
            .read(|ledger| ledger.addresses().held_by(key, uid)),
        deleted,
    );
    let mut free = Free::start();
    loop {
        if let Step::Done(end) = free.step() {
            return releasing.end(end);
        }
        let event = releasing.perform(free.step()).await?;
        free.next(event);
    }
}

impl<'a> Releasing<'a> {
    fn new(
        context: &'a Context,
        claim: &'a IPAddressClaim,
        held: &[Held],
        deleted: Option<&(PoolKey, Block)>,
    ) -> Self {
        let is_deleted_here = claim.metadata.deletion_timestamp.is_some() && deleted.is_some();
        let conflict = claim.conflict();
        // A promise is kept unless it is for the address with the conflict.
        let named_pool = PoolKey::of_claim(claim);
        let ends = |one: &Held, former_use| {
            let is_of_claim = one.was_used || named_pool.as_ref() == Some(&one.pool);
            !one.is_promise
                || (conflict.is_some() && is_of_claim && former_use == FormerUse::OfClaim)
        };
        // A reservation without uid is being created.
        let reserved = held.iter().filter(|held| {
            !held.uid.is_empty() && (is_deleted_here || !shares_blocks(context, &held.slot))
        });
        let held_by_claim = reserved
            .map(|one| (one, former_use(held, one)))
            .filter(|(one, former_use)| ends(one, *former_use))
            .map(|(one, former_use)| (one.known(), former_use))
            .collect();
        // The ledger can lag behind, or know a future that a restore of etcd has undone.
        let unknown = deleted.filter(|(pool, block)| {
            !held
                .iter()
                .any(|held| held.pool == *pool && held.slot.block == *block)
        });
        Self {
            context,
            claim,
            conflict,
            held: held_by_claim,
            deleted: unknown.cloned(),
            is_deleted_here,
            slots: None,
            slot: None,
            current: None,
        }
    }

    /// Sends the request of a step, or looks up what it asks for.
    async fn perform(&mut self, step: Step) -> Result<Event, HandlerError> {
        match step {
            Step::FindHeld => {
                self.current = self.held.pop_front();
                Ok(Event::Found {
                    exists: self.current.is_some(),
                })
            }
            Step::FindScope => Ok(self.find_scope()),
            Step::ReadReservation => self.read_reservation().await,
            Step::Release(_) => self.release().await,
            Step::Done(_) => Err(unexpected_event()),
        }
    }

    fn end(&self, end: End) -> Result<(), HandlerError> {
        match end {
            End::Released => Ok(()),
            End::KeepsChanging => {
                let block = self
                    .current
                    .as_ref()
                    .map(|(known, _)| known.slot.block.to_string());
                let block = block.unwrap_or_default();
                let message = format!("cannot release {block}: its reservation keeps changing");
                Err(HandlerError::Conflict(message))
            }
            End::UnexpectedEvent => Err(unexpected_event()),
        }
    }

    fn find_scope(&mut self) -> Event {
        self.slot = None;
        if let Some((pool, block)) = &self.deleted {
            let of_scope = |scope| Slot {
                scope,
                block: *block,
            };
            let look_up = || {
                let ledger = &self.context.ledger;
                let scopes = ledger.read(|ledger| ledger.pools().possible_scopes(pool));
                let slots = scopes.into_iter().map(of_scope);
                let released =
                    slots.filter(|slot| self.is_deleted_here || !shares_blocks(self.context, slot));
                released.collect()
            };
            self.slot = self.slots.get_or_insert_with(look_up).pop_front();
        }
        Event::Found {
            exists: self.slot.is_some(),
        }
    }

    async fn read_reservation(&mut self) -> Result<Event, HandlerError> {
        let slot = self.slot.as_ref().ok_or_else(unexpected_event)?;
        let read = self.context.reservations.get(slot).await;
        let found = read.map_err(|error| cannot_release(slot.block, error))?;
        let known = found.and_then(|found| self.of_claim(&found));
        self.current = known.map(|known| (known, FormerUse::OfClaim));
        Ok(Event::Read {
            is_ours: self.current.is_some(),
        })
    }

    async fn release(&mut self) -> Result<Event, HandlerError> {
        let (known, former_use) = self.current.as_ref().ok_or_else(unexpected_event)?;
        let reservations = &self.context.reservations;
        let conflict = self.conflict_of(*former_use);
        let released = match conflict {
            Some(conflict) => reservations.quarantine(known, conflict).await,
            None => reservations.release(known, *former_use).await,
        };
        let result = released.map_err(|error| cannot_release(known.slot.block, error))?;
        // One that is gone cannot be quarantined any more.
        let is_quarantined = conflict.is_some() && matches!(result, WriteResult::Done(_));
        let WriteResult::Changed(found) = result else {
            if *former_use != FormerUse::Spare {
                self.record(known, is_quarantined);
            }
            return Ok(Event::Released);
        };
        // What is not a valid reservation is not that of the claim.
        let changed = found.0.ok().and_then(|found| self.of_claim(&found));
        let Some(changed) = changed else {
            return Ok(Event::Changed { is_ours: false });
        };
        if let Some((known, _)) = &mut self.current {
            *known = changed;
        }
        Ok(Event::Changed { is_ours: true })
    }

    /// The conflict of an address; `None` if the claim reports none, or has used another address.
    fn conflict_of(&self, former_use: FormerUse) -> Option<&AddressConflict> {
        self.conflict
            .as_ref()
            .filter(|_| former_use == FormerUse::OfClaim)
    }

    fn record(&self, known: &KnownReservation, is_quarantined: bool) {
        let is_deleted = self.claim.metadata.deletion_timestamp.is_some();
        self.context.allocations.record(|log| {
            let cause = if is_quarantined {
                AllocationCause::ConflictReported
            } else if is_deleted {
                AllocationCause::ClaimDeleted
            } else {
                AllocationCause::ClaimGone
            };
            let place = (&known.pool, &known.slot);
            Some(log.event_of_claim(cause, place, self.claim))
        });
    }

    /// The reservation in the version that was read, if it ends with the claim: it is held by the uid
    /// of the claim, or promised to its name and quarantined now.
    fn of_claim(&self, found: &IPReservation) -> Option<KnownReservation> {
        let names_uid = found
            .spec
            .claim_ref
            .as_ref()
            .is_some_and(|claim| claim.uid.is_some());
        let is_ours = ownership(found, &claim_reference(self.claim)) == Ownership::Ours;
        if is_ours && (names_uid || self.conflict.is_some()) {
            KnownReservation::of(found)
        } else {
            None
        }
    }
}

/// Whether another management cluster may use an address that nothing shows to be released in this
/// one. `clusterctl move` removes the finalizers of an IPAddress and of its claim, and then deletes
/// each: a manager that has not seen yet that they are paused finds a claim that is gone, or adds its
/// finalizer again in between and finds a claim in deletion.
fn shares_blocks(context: &Context, slot: &Slot) -> bool {
    let registry = context
        .ledger
        .read(|ledger| ledger.registry_of_address(slot));
    registry.is_some()
}

fn cannot_release(block: Block, error: CallError) -> HandlerError {
    HandlerError::transient(format!("cannot release {block}"), error)
}

/// How a claim has used one of the addresses that are reserved for it.
pub(super) fn former_use(held: &[Held], one: &Held) -> FormerUse {
    let uses_another = held
        .iter()
        .any(|other| other.was_used && other.pool == one.pool);
    if uses_another && !one.was_used {
        FormerUse::Spare
    } else {
        FormerUse::OfClaim
    }
}
