//! Step A2: allocates an address to a claim by creating its reservation.

use std::fmt::Write as _;
use std::sync::Arc;

use capi_ipam_controller::client::{CallError, ResourceClient};
use capi_ipam_ip::{Block, Usable, parse_address};
use capi_ipam_provider::api::{IPAddress, IPAddressClaim, Uid};
use capi_ipam_provider::{Allocation, HandlerError};
use kube::ResourceExt;
use tracing::{debug, warn};

use super::duplicates::duplicate_message;
use super::ledger::{ClaimKey, Ledger, PoolInfo, Proposal, allocated_block, priority};
use super::reservation::{Ownership, build, claim_reference, ownership};
use crate::api::{AddressCounts, Audience, IPReservation, PoolKey, Slot};

/// The maximum number of proposals that can fail in one attempt. If all fail, the ledger lags far behind.
const MAX_PROPOSALS: usize = 16;

/// Allocates an address to one claim.
pub(super) struct Allocator<'a> {
    pub(super) ledger: &'a Arc<Ledger>,
    pub(super) reservations: &'a ResourceClient<IPReservation>,
    pub(super) claims: &'a ResourceClient<IPAddressClaim>,
    pub(super) claim: &'a IPAddressClaim,
    pub(super) pool: &'a PoolKey,
}

/// The result of creating a reservation.
enum ReserveResult {
    /// The address is reserved for the claim.
    Ours,
    /// The address is reserved by another reservation.
    Conflict,
}

impl Allocator<'_> {
    /// Allocates an address: the one of the existing IPAddress, else one that is already reserved for the claim, else
    /// the lowest free one.
    pub(super) async fn allocate(&self, existing: Option<&IPAddress>) -> Result<Allocation, HandlerError> {
        let unavailable = || HandlerError::PoolNotReady(format!("{} cannot allocate addresses now", self.pool));
        let info = self.ledger.pool_info(self.pool).filter(PoolInfo::can_bind).ok_or_else(unavailable)?;
        let usable = info.usable.clone().map_err(|_| unavailable())?;
        if let Some(existing) = existing {
            return self.adopt(existing, &info, &usable).await;
        }
        if let Some(block) = self.find_reserved(&info).await? {
            return Ok(allocation(block, &usable));
        }
        if let Some(slot) = self.ledger.attempt(self.uid(), self.pool) {
            // An error leaves the outcome of the first attempt unknown: the attempt stays remembered.
            let is_ours = info.can_allocate()
                && usable.contains(slot.block)
                && self.ledger.owners(&slot).is_empty()
                && matches!(self.reserve(&slot).await?, ReserveResult::Ours);
            self.ledger.forget_attempt(self.uid());
            if is_ours {
                return Ok(allocation(slot.block, &usable));
            }
        }
        for _ in 0..MAX_PROPOSALS {
            let info = self.ledger.pool_info(self.pool).filter(PoolInfo::can_allocate).ok_or_else(unavailable)?;
            let usable = info.usable.map_err(|_| unavailable())?;
            let Proposal::Slot(slot) = self.ledger.propose(self.pool, &self.key(), priority(self.claim)) else {
                return Err(HandlerError::PoolExhausted(self.exhausted()));
            };
            let candidate = Candidate { ledger: self.ledger, slot };
            // Prefix and gateway have to be those of the spec from which the address was allocated.
            if !self.ledger.is_current(self.pool, &usable) {
                continue;
            }
            match self.reserve(&candidate.slot).await? {
                ReserveResult::Ours => return Ok(allocation(candidate.slot.block, &usable)),
                ReserveResult::Conflict => {
                    debug!(pool = %self.pool, slot = %candidate.slot, "the proposed address is already reserved");
                }
            }
        }
        let catch_up = self.ledger.begin_catch_up();
        if catch_up.is_some() {
            let page = |page: Vec<IPReservation>| page.iter().for_each(|found| self.ledger.insert_reservation(found));
            self.reservations.for_each_page(page).await.map_err(|error| request_error("list reservations", error))?;
        }
        Err(HandlerError::transient(
            format!("{MAX_PROPOSALS} proposed addresses of {} were already reserved", self.pool),
            "will retry",
        ))
    }

    fn key(&self) -> ClaimKey {
        (self.claim.namespace().unwrap_or_default(), self.claim.name_any())
    }

    fn uid(&self) -> Uid {
        Uid::of(self.claim.metadata.uid.as_deref().unwrap_or_default())
    }

    fn exhausted(&self) -> String {
        let counts = describe_counts(self.ledger.counts(self.pool), self.ledger.cooldown_end(self.pool));
        format!("{} has no free address ({counts}); add addresses to it or release claims", self.pool)
    }

    /// Finds an address that an earlier attempt reserved, or that is promised to the claim. Verified by a live read,
    /// since the reservation may have been released meanwhile.
    async fn find_reserved(&self, info: &PoolInfo) -> Result<Option<Block>, HandlerError> {
        for (slot, pool) in self.ledger.reservations_of(&self.key(), self.uid()) {
            if pool != *self.pool || slot.scope != info.scope {
                continue;
            }
            // A promise of an address outside of the pool has no effect. An address in use by another claim is not
            // allocated again: a provider without reservations may have allocated it.
            let is_in_pool = info.usable.as_ref().is_ok_and(|usable| usable.contains(slot.block));
            let in_use = self.ledger.owners(&slot).into_iter().find(|owner| *owner != self.key());
            if let Some((namespace, name)) = in_use.as_ref().filter(|_| self.claim.bound_address().is_some()) {
                let own = self.claim.namespace().unwrap_or_default();
                let other = Audience::of(Some(&own)).object("IPAddress", namespace, name);
                return Err(HandlerError::DuplicateAddress(format!(
                    "the IPAddress of the claim was deleted, and its address {} is in use by {other}; delete that one \
                     or recreate the claim",
                    slot.block
                )));
            }
            // An address that was removed from the pool would be combined with the gateway of another subnet. The
            // sweeper releases it once the claim is bound.
            let is_lost = !is_in_pool && (self.claim.bound_address().is_none() || self.ledger.is_promise(&slot));
            if in_use.is_some() || is_lost {
                continue;
            }
            if self.holds_reservation(&slot).await? {
                return Ok(Some(slot.block));
            }
        }
        Ok(None)
    }

    /// Whether the reservation of an address belongs to the claim, according to a live read.
    async fn holds_reservation(&self, slot: &Slot) -> Result<bool, HandlerError> {
        let name = slot.reservation_name();
        let read =
            self.reservations.get(&name).await.map_err(|error| request_error("read the IPReservation", error))?;
        Ok(match read {
            Some(reservation) if ownership(&reservation, &claim_reference(self.claim)) == Ownership::Ours => true,
            Some(reservation) => {
                self.ledger.insert_reservation(&reservation);
                false
            }
            None => false,
        })
    }

    /// Creates the reservation of an address. If it exists already or the outcome is unknown, a live read determines to
    /// whom it belongs.
    async fn reserve(&self, slot: &Slot) -> Result<ReserveResult, HandlerError> {
        let wanted = build(slot, self.pool, claim_reference(self.claim));
        let error = match self.reservations.create(&wanted).await {
            Ok(created) => {
                self.ledger.insert_reservation(&created);
                return Ok(ReserveResult::Ours);
            }
            Err(error) => error,
        };
        if !error.is_already_exists() && !error.outcome_is_unknown() {
            return Err(request_error("reserve an address", error));
        }
        let read = self.reservations.get(&wanted.name_any()).await;
        if !matches!(read, Ok(Some(_))) {
            // The reservation may exist, or be created later: the next attempt uses the same address.
            self.ledger.remember_attempt(self.uid(), self.pool, slot);
        }
        match read.map_err(|error| request_error("read the IPReservation", error))? {
            Some(found) => {
                self.ledger.insert_reservation(&found);
                Ok(if ownership(&found, &claim_reference(self.claim)) == Ownership::Ours {
                    ReserveResult::Ours
                } else {
                    ReserveResult::Conflict
                })
            }
            None => Err(request_error("reserve an address", error)),
        }
    }

    /// Adopts the address of an existing IPAddress with the name of the claim.
    async fn adopt(&self, existing: &IPAddress, info: &PoolInfo, usable: &Usable) -> Result<Allocation, HandlerError> {
        let is_valid = parse_address(&existing.spec.address).is_ok();
        let Some((_, block, _)) = allocated_block(existing).filter(|_| is_valid) else {
            return Err(HandlerError::Permanent(format!(
                "the IPAddress {} exists already and its address {} with prefix {} is not valid; delete it",
                existing.name_any(),
                existing.spec.address,
                existing.spec.prefix
            )));
        };
        let slot = Slot { scope: info.scope.clone(), block };
        if block.length() != usable.length && self.ledger.overlaps_other_claim(&slot, &self.key()) {
            return Err(self.conflict_error(existing, block, None));
        }
        let known = self.ledger.reservations_of(&self.key(), self.uid());
        if known.iter().any(|(reserved, _)| *reserved == slot) && self.holds_reservation(&slot).await? {
            return Ok(existing_allocation(existing, block, usable));
        }
        // Keeps the sweeper from reserving the address at the same time.
        let _candidate =
            self.ledger.hold_candidate(self.pool, &slot).then(|| Candidate { ledger: self.ledger, slot: slot.clone() });
        for _ in 0..2 {
            match self.reserve(&slot).await? {
                ReserveResult::Ours => return Ok(existing_allocation(existing, block, usable)),
                ReserveResult::Conflict => {}
            }
            let name = slot.reservation_name();
            let found =
                self.reservations.get(&name).await.map_err(|error| request_error("read the IPReservation", error))?;
            let Some(found) = found else { continue };
            if ownership(&found, &claim_reference(self.claim)) != Ownership::PreviousClaim {
                return Err(self.conflict_error(existing, block, Some(&found)));
            }
            // Read after the reservation: if this claim still exists, the other one of its name is an earlier claim.
            if !self.claim_exists().await? {
                return Err(HandlerError::transient("the claim was deleted and created again", "will retry"));
            }
            // With the version that was read: it may have been released since, which starts a cool-down.
            let (uid, version) = (found.uid().unwrap_or_default(), found.resource_version().unwrap_or_default());
            let deleted = self.reservations.delete_unchanged(&name, &uid, &version).await;
            deleted.map_err(|error| request_error("delete the IPReservation of an earlier claim", error))?;
            self.ledger.remove_reservation(&found);
        }
        Err(HandlerError::transient(format!("the reservation of {block} keeps changing"), "will retry"))
    }

    async fn claim_exists(&self) -> Result<bool, HandlerError> {
        let read =
            self.claims.get(&self.claim.name_any()).await.map_err(|error| request_error("read the claim", error))?;
        Ok(read.is_some_and(|read| read.metadata.uid == self.claim.metadata.uid))
    }

    fn conflict_error(&self, existing: &IPAddress, block: Block, found: Option<&IPReservation>) -> HandlerError {
        let other_owner = existing
            .owner_references()
            .iter()
            .any(|owner| owner.kind == "IPAddressClaim" && Some(&owner.uid) != self.claim.metadata.uid.as_ref());
        // The address of a bound claim is in use, whatever the owner reference.
        if other_owner && self.claim.bound_address().is_none() {
            return HandlerError::Discard(format!(
                "{block} is reserved for another claim, and the owner of the IPAddress does not exist"
            ));
        }
        let by = found.and_then(|found| found.spec.claim_ref.as_ref());
        let claim = self.claim.name_any();
        warn!(pool = %self.pool, %block, claim, reserved_for = ?by, "the address of an IPAddress is reserved for another claim");
        if let Some((found, by)) = found.zip(by).filter(|_| self.claim.bound_address().is_some()) {
            let (own, other) = (self.claim.namespace().unwrap_or_default(), (by.namespace.clone(), by.name.clone()));
            let message = duplicate_message(block, &own, &other, &found.name_any());
            return HandlerError::DuplicateAddress(message);
        }
        let reservation = found.map(|found| format!(" (IPReservation {})", found.name_any())).unwrap_or_default();
        HandlerError::DuplicateAddress(format!(
            "the IPAddress {} exists already with {block}, which is reserved for another claim{reservation}; delete \
             the IPAddress to allocate another address",
            existing.name_any(),
        ))
    }
}

/// A held address. Dropping it, also by cancelling the attempt, frees the address unless it was reserved.
struct Candidate<'a> {
    ledger: &'a Ledger,
    slot: Slot,
}

impl Drop for Candidate<'_> {
    fn drop(&mut self) {
        self.ledger.drop_candidate(&self.slot);
    }
}

fn allocation(block: Block, usable: &Usable) -> Allocation {
    Allocation { address: block.base(), prefix: usable.prefix, gateway: usable.gateway }
}

/// The allocation of an existing IPAddress, which does not change with the pool.
fn existing_allocation(existing: &IPAddress, block: Block, usable: &Usable) -> Allocation {
    Allocation {
        address: block.base(),
        prefix: u8::try_from(existing.spec.prefix).unwrap_or(usable.prefix),
        gateway: existing.spec.gateway.as_deref().and_then(|text| parse_address(text).ok()),
    }
}

/// Describes the counts of a pool without free addresses. `cooldown_end` is in seconds since the Unix epoch.
pub(super) fn describe_counts(counts: AddressCounts, cooldown_end: Option<i64>) -> String {
    let mut text = format!("{} in total, {} in use", counts.total, counts.used);
    if counts.reserved > 0 {
        let _ = write!(text, ", {} reserved", counts.reserved);
    }
    if counts.cooling_down > 0 {
        let _ = write!(text, ", {} cooling down", counts.cooling_down);
        if let Some(end) = cooldown_end.and_then(|end| jiff::Timestamp::from_second(end).ok()) {
            let _ = write!(text, " until {end}");
        }
    }
    text
}

fn request_error(action: &str, error: CallError) -> HandlerError {
    HandlerError::transient(format!("cannot {action}"), error)
}
