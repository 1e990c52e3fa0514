//! Step A2: an address for a claim, by creating its reservation.

use std::fmt::Write as _;
use std::sync::Arc;

use capi_ipam_controller::client::{CallError, ResourceClient};
use capi_ipam_ip::{Block, parse_address, Usable};
use capi_ipam_provider::api::{IPAddress, IPAddressClaim, Uid};
use capi_ipam_provider::{Allocation, HandlerError};
use kube::ResourceExt;
use tracing::{debug, warn};

use crate::api::{AddressCounts, Audience, IPReservation, PoolKey, Slot};
use super::duplicates::duplicate;
use super::ledger::{ClaimKey, holding, Ledger, PoolInfo, Proposal, priority};
use super::reservation::{build, Holder, holder, reference};

/// How many proposals may turn out to be taken in one attempt. So many mean that the ledger is far behind.
const MAX_PROPOSALS: usize = 16;

/// Allocates for one claim.
pub(super) struct Allocator<'a> {
    pub(super) ledger: &'a Arc<Ledger>,
    pub(super) reservations: &'a ResourceClient<IPReservation>,
    pub(super) claims: &'a ResourceClient<IPAddressClaim>,
    pub(super) claim: &'a IPAddressClaim,
    pub(super) pool: &'a PoolKey,
}

/// What came of an attempt to reserve an address.
enum Reserved {
    Ours,
    Taken,
}

impl Allocator<'_> {
    /// An address for the claim: that of the existing IPAddress, else one that is reserved for it already, else the
    /// lowest free one.
    pub(super) async fn allocate(&self, existing: Option<&IPAddress>) -> Result<Allocation, HandlerError> {
        let unavailable = || HandlerError::PoolNotReady(format!("{} cannot serve claims", self.pool));
        let facts = self.ledger.facts(self.pool).filter(PoolInfo::completes).ok_or_else(unavailable)?;
        let usable = facts.usable.clone().map_err(|_| unavailable())?;
        if let Some(existing) = existing {
            return self.adopt(existing, &facts, &usable).await;
        }
        if let Some(block) = self.reserved_already(&facts).await? {
            return Ok(allocation(block, &usable));
        }
        if let Some(slot) = self.ledger.take_attempt(self.uid(), self.pool)
            && facts.serves()
            && usable.contains(slot.block)
            && self.ledger.holders(&slot).is_empty()
            && let Reserved::Ours = self.reserve(&slot).await?
        {
            return Ok(allocation(slot.block, &usable));
        }
        for _ in 0..MAX_PROPOSALS {
            let facts = self.ledger.facts(self.pool).filter(PoolInfo::serves).ok_or_else(unavailable)?;
            let usable = facts.usable.map_err(|_| unavailable())?;
            let Proposal::Slot(slot) = self.ledger.propose(self.pool, &self.key(), priority(self.claim)) else {
                return Err(HandlerError::PoolExhausted(self.exhausted()));
            };
            let proposal = Proposed { ledger: self.ledger, slot };
            // Prefix and gateway are those of the specification that the address was taken from.
            if !self.ledger.gives(self.pool, &usable) {
                continue;
            }
            match self.reserve(&proposal.slot).await? {
                Reserved::Ours => return Ok(allocation(proposal.slot.block, &usable)),
                Reserved::Taken => debug!(pool = %self.pool, slot = %proposal.slot, "a proposed address is taken"),
            }
        }
        let listing = self.ledger.begin_catch_up();
        if listing.is_some() {
            let page = |page: Vec<IPReservation>| page.iter().for_each(|found| self.ledger.insert_reservation(found));
            self.reservations.for_each_page(page).await.map_err(|error| failed("list the reservations", error))?;
        }
        Err(HandlerError::transient(
            format!("{MAX_PROPOSALS} proposed addresses of {} were taken by others", self.pool),
            "will be tried again",
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

    /// The address that an earlier attempt reserved, or that was promised. What the ledger knows is checked by a live
    /// read, since the reservation may have been released meanwhile.
    async fn reserved_already(&self, facts: &PoolInfo) -> Result<Option<Block>, HandlerError> {
        for (slot, pool) in self.ledger.reservations_of(&self.key(), self.uid()) {
            if pool != *self.pool || slot.scope != facts.scope {
                continue;
            }
            // A promise of what the pool does not have is none. What somebody else has already is not given out twice:
            // a provider that knows nothing of reservations may have been at work.
            let given_out = facts.usable.as_ref().is_ok_and(|usable| usable.contains(slot.block));
            let in_use = self.ledger.holders(&slot).into_iter().find(|holder| *holder != self.key());
            if let Some((namespace, name)) = in_use.as_ref().filter(|_| self.claim.bound_address().is_some()) {
                let own = self.claim.namespace().unwrap_or_default();
                let other = Audience::of(Some(&own)).object("IPAddress", namespace, name);
                return Err(HandlerError::DuplicateAddress(format!(
                    "the claim's IPAddress is gone, and its address {} is in use by {other}; delete that one, or recreate \
                     the claim",
                    slot.block
                )));
            }
            // An address that the pool has lost since would come with the gateway of another subnet. The sweeper frees it
            // once the claim is bound.
            let is_lost = !given_out && (self.claim.bound_address().is_none() || self.ledger.is_promise(&slot));
            if in_use.is_some() || is_lost {
                continue;
            }
            if self.is_ours(&slot).await? {
                return Ok(Some(slot.block));
            }
        }
        Ok(None)
    }

    /// Whether the claim holds the reservation of an address, by a live read.
    async fn is_ours(&self, slot: &Slot) -> Result<bool, HandlerError> {
        let name = slot.reservation_name();
        let read = self.reservations.get(&name).await.map_err(|error| failed("read a reservation", error))?;
        Ok(match read {
            Some(reservation) if holder(&reservation, &reference(self.claim)) == Holder::Ours => true,
            Some(reservation) => {
                self.ledger.insert_reservation(&reservation);
                false
            }
            None => false,
        })
    }

    /// Creates the reservation of an address. Where the outcome is unknown or the name taken, a live read tells whose
    /// it is.
    async fn reserve(&self, slot: &Slot) -> Result<Reserved, HandlerError> {
        let wanted = build(slot, self.pool, reference(self.claim));
        let error = match self.reservations.create(&wanted).await {
            Ok(created) => {
                self.ledger.insert_reservation(&created);
                return Ok(Reserved::Ours);
            }
            Err(error) => error,
        };
        if !error.is_already_exists() && !error.outcome_is_unknown() {
            return Err(failed("reserve an address", error));
        }
        let read = self.reservations.get(&wanted.name_any()).await;
        if !matches!(read, Ok(Some(_))) {
            // It may exist, or exist later: the next attempt tries the same address again.
            self.ledger.remember_attempt(self.uid(), self.pool, slot);
        }
        match read.map_err(|error| failed("read a reservation", error))? {
            Some(found) => {
                self.ledger.insert_reservation(&found);
                Ok(if holder(&found, &reference(self.claim)) == Holder::Ours {
                    Reserved::Ours
                } else {
                    Reserved::Taken
                })
            }
            None => Err(failed("reserve an address", error)),
        }
    }

    /// Keeps the address of an IPAddress that has the claim's name.
    async fn adopt(
        &self,
        existing: &IPAddress,
        facts: &PoolInfo,
        usable: &Usable,
    ) -> Result<Allocation, HandlerError> {
        let readable = parse_address(&existing.spec.address).is_ok();
        let Some((_, block, _)) = holding(existing).filter(|_| readable) else {
            return Err(HandlerError::Permanent(format!(
                "the IPAddress {} exists already and its address {} with the prefix {} is not one; delete it",
                existing.name_any(),
                existing.spec.address,
                existing.spec.prefix
            )));
        };
        let slot = Slot { scope: facts.scope.clone(), block };
        if block.length() != usable.length && self.ledger.touches_another(&slot, &self.key()) {
            return Err(self.contested(existing, block, None));
        }
        let known = self.ledger.reservations_of(&self.key(), self.uid());
        if known.iter().any(|(reserved, _)| *reserved == slot) && self.is_ours(&slot).await? {
            return Ok(kept(existing, block, usable));
        }
        // The sweeper would reserve it too.
        let _announced =
            self.ledger.announce(self.pool, &slot).then(|| Proposed { ledger: self.ledger, slot: slot.clone() });
        for _ in 0..2 {
            match self.reserve(&slot).await? {
                Reserved::Ours => return Ok(kept(existing, block, usable)),
                Reserved::Taken => {}
            }
            let name = slot.reservation_name();
            let found = self.reservations.get(&name).await.map_err(|error| failed("read a reservation", error))?;
            let Some(found) = found else { continue };
            if holder(&found, &reference(self.claim)) != Holder::Predecessor {
                return Err(self.contested(existing, block, Some(&found)));
            }
            // Read after the reservation: if this claim is there still, the other of its name came before it.
            if !self.is_there().await? {
                return Err(HandlerError::transient("a later claim of this name is there", "to be looked at again"));
            }
            // As it was read: it may have been released since, and cools down then.
            let (uid, version) = (found.uid().unwrap_or_default(), found.resource_version().unwrap_or_default());
            let deleted = self.reservations.delete_unchanged(&name, &uid, &version).await;
            deleted.map_err(|error| failed("take over a reservation", error))?;
            self.ledger.remove_reservation(&found);
        }
        Err(HandlerError::transient(format!("the reservation of {block} keeps changing"), "to be tried again"))
    }

    async fn is_there(&self) -> Result<bool, HandlerError> {
        let read = self.claims.get(&self.claim.name_any()).await.map_err(|error| failed("read the claim", error))?;
        Ok(read.is_some_and(|read| read.metadata.uid == self.claim.metadata.uid))
    }

    fn contested(&self, existing: &IPAddress, block: Block, found: Option<&IPReservation>) -> HandlerError {
        let other_owner = existing
            .owner_references()
            .iter()
            .any(|owner| owner.kind == "IPAddressClaim" && Some(&owner.uid) != self.claim.metadata.uid.as_ref());
        // The address of a bound claim is in use, whoever owns it.
        if other_owner && self.claim.bound_address().is_none() {
            return HandlerError::Discard(format!("{block} is held by another claim, and the owner is gone"));
        }
        let by = found.and_then(|found| found.spec.claim_ref.as_ref());
        warn!(pool = %self.pool, %block, claim = self.claim.name_any(), held_by = ?by, "an address is claimed twice");
        if let Some((found, by)) = found.zip(by).filter(|_| self.claim.bound_address().is_some()) {
            let (own, other) = (self.claim.namespace().unwrap_or_default(), (by.namespace.clone(), by.name.clone()));
            let text = duplicate(block, &own, &other, &found.name_any());
            return HandlerError::DuplicateAddress(text);
        }
        let reservation = found.map(|found| format!(" (IPReservation {})", found.name_any())).unwrap_or_default();
        HandlerError::DuplicateAddress(format!(
            "the IPAddress {} exists already with {block}, which is reserved for someone else{reservation}; delete the \
             IPAddress to have another address allocated",
            existing.name_any(),
        ))
    }
}

/// A proposal, given back when it is dropped unless the reservation was made: also when the attempt is broken off.
struct Proposed<'a> {
    ledger: &'a Ledger,
    slot: Slot,
}

impl Drop for Proposed<'_> {
    fn drop(&mut self) {
        self.ledger.withdraw(&self.slot);
    }
}

fn allocation(block: Block, usable: &Usable) -> Allocation {
    Allocation { address: block.base(), prefix: usable.prefix, gateway: usable.gateway }
}

/// What an existing IPAddress says, which never changes whatever the pool says now.
fn kept(existing: &IPAddress, block: Block, usable: &Usable) -> Allocation {
    Allocation {
        address: block.base(),
        prefix: u8::try_from(existing.spec.prefix).unwrap_or(usable.prefix),
        gateway: existing.spec.gateway.as_deref().and_then(|text| parse_address(text).ok()),
    }
}

/// The counts of a pool without free addresses, for operators. `cooldown_end` is in seconds since 1970.
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

fn failed(what: &str, error: CallError) -> HandlerError {
    HandlerError::transient(format!("cannot {what}"), error)
}
