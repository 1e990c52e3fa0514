//! Reserves the address of an IPAddress that exists already, of an earlier attempt, an upgrade or a
//! restore, or created by a user: sends the requests of [`Adopt`], step A2.

use capi_ipam_api::advice::DUPLICATE;
use capi_ipam_api::{IPReservation, PoolKey, Slot};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::{Block, UsableBlocks, parse_address};
use capi_ipam_ledger::{KnownReservation, PoolInfo, block_of};
use capi_ipam_protocol::ClaimRead;
use capi_ipam_protocol::adopt::{Adopt, End, Event, Holder, Step};
use capi_ipam_provider::advanced::Ensured;
use capi_ipam_provider::api::IPAddress;
use capi_ipam_provider::prelude::{Allocation, HandlerError};
use kube::ResourceExt;
use tracing::warn;

use super::allocation::Candidate;
use super::errors::{request_error, unexpected_event};
use super::handler::{InClusterHandler, ReserveResult};
use super::repairs::duplicate_message;
use super::reservation::{Ownership, claim_reference, ownership};
use super::reservation_store::WriteResult;

/// One attempt to reserve the address of an IPAddress.
struct Adopting<'a> {
    handler: &'a InClusterHandler,
    pool: &'a PoolKey,
    info: &'a PoolInfo,
    slot: &'a Slot,
    /// The reservation of the address that was read.
    found: Option<IPReservation>,
    /// Keeps the sweeper from reserving the address at the same time.
    candidate: Option<Candidate<'a>>,
}

impl Adopting<'_> {
    /// Sends the request of a step.
    async fn perform(&mut self, step: Step) -> Result<Event, HandlerError> {
        match step {
            Step::CheckHeld => {
                let is_ours = self.handler.holds_reservation(self.slot).await?;
                Ok(Event::HeldRead { is_ours })
            }
            Step::Reserve => self.reserve().await,
            Step::ReadHolder => self.read_holder().await,
            Step::CheckClaim(_) => {
                let exists = self.handler.claim_exists().await?;
                Ok(Event::Claim(if exists {
                    ClaimRead::Exists
                } else {
                    ClaimRead::Gone
                }))
            }
            Step::TakeOver(holder) => self.take_over(holder).await,
            Step::Done(_) => Err(unexpected_event()),
        }
    }

    async fn reserve(&mut self) -> Result<Event, HandlerError> {
        let ledger = self.handler.ledger();
        if self.candidate.is_none()
            && ledger.change(|ledger| ledger.hold_candidate(self.pool, self.slot))
        {
            let slot = self.slot.clone();
            self.candidate = Some(Candidate { ledger, slot });
        }
        match self.handler.reserve(self.pool, self.slot).await? {
            ReserveResult::Ours => Ok(Event::Reserved),
            ReserveResult::Conflict => Ok(Event::Taken),
        }
    }

    async fn read_holder(&mut self) -> Result<Event, HandlerError> {
        let read = self.handler.context.reservations.get(self.slot).await;
        self.found = read.map_err(|error| request_error("read the IPReservation", error))?;
        let Some(found) = &self.found else {
            return Ok(Event::Holder(None));
        };
        let claim = claim_reference(&self.handler.claim);
        let holder = if KnownReservation::of(found).is_none() {
            Holder::Other
        } else if ownership(found, &claim) == Ownership::PreviousClaim {
            Holder::EarlierClaim
        } else if self.handler.may_take_over(self.info, self.slot, found) {
            Holder::Released
        } else {
            Holder::Other
        };
        Ok(Event::Holder(Some(holder)))
    }

    async fn take_over(&mut self, holder: Holder) -> Result<Event, HandlerError> {
        let known = self.found.as_ref().and_then(KnownReservation::of);
        let known = known.ok_or_else(unexpected_event)?;
        let taken = match holder {
            Holder::EarlierClaim => {
                self.handler
                    .take_over_from_previous(self.pool, &known)
                    .await?
            }
            Holder::Released | Holder::Other => self.handler.take_over(self.pool, &known).await?,
        };
        match taken {
            WriteResult::Done(_) => Ok(Event::Reserved),
            WriteResult::Changed(_) | WriteResult::Gone => Ok(Event::Taken),
        }
    }
}

impl InClusterHandler {
    /// Adopts the address of an existing IPAddress with the name of the claim.
    pub(super) async fn adopt(
        &self,
        pool: &PoolKey,
        existing: &IPAddress,
        info: &PoolInfo,
        usable: &UsableBlocks,
    ) -> Result<Ensured, HandlerError> {
        let is_valid = parse_address(&existing.spec.address).is_ok();
        let Some(block) = block_of(existing, pool.kind).filter(|_| is_valid) else {
            return Err(HandlerError::Permanent(format!(
                "the IPAddress {} exists already and its address {} with prefix {} is not valid; delete it",
                existing.name_any(),
                existing.spec.address,
                existing.spec.prefix
            )));
        };
        let slot = Slot {
            scope: info.scope.clone(),
            block,
        };
        if block.length() != usable.length
            && self
                .ledger()
                .read(|ledger| ledger.addresses().overlaps_other_claim(&slot, &self.key))
        {
            return self.conflict(pool, existing, block, None);
        }
        let mut adopt = Adopt::start(self.held().iter().any(|held| held.slot == slot));
        let mut adopting = Adopting {
            handler: self,
            pool,
            info,
            slot: &slot,
            found: None,
            candidate: None,
        };
        loop {
            if let Step::Done(end) = adopt.step() {
                return match end {
                    End::Allocated => Ok(existing_allocation(existing, block, usable).into()),
                    End::Conflict => self.conflict(pool, existing, block, adopting.found.as_ref()),
                    End::ClaimReplaced => Err(HandlerError::Conflict(
                        "the claim was deleted and created again".to_owned(),
                    )),
                    End::KeepsChanging => Err(HandlerError::Conflict(format!(
                        "the reservation of {block} keeps changing"
                    ))),
                    End::UnexpectedEvent => Err(unexpected_event()),
                };
            }
            let event = adopting.perform(adopt.step()).await?;
            adopt.next(event);
        }
    }

    async fn claim_exists(&self) -> Result<bool, HandlerError> {
        let claims = self.context.contract.claims(self.key.namespace());
        let read = claims
            .get(self.key.name())
            .await
            .map_err(|error| request_error("read the claim", error))?;
        Ok(read.is_some_and(|read| read.metadata.uid == self.claim.metadata.uid))
    }

    /// Handles an IPAddress whose address is reserved for another claim: a leftover is deleted, any
    /// other is reported.
    fn conflict(
        &self,
        pool: &PoolKey,
        existing: &IPAddress,
        block: Block,
        found: Option<&IPReservation>,
    ) -> Result<Ensured, HandlerError> {
        let other_owner = existing.owner_references().iter().any(|owner| {
            owner.kind == "IPAddressClaim" && Some(&owner.uid) != self.claim.metadata.uid.as_ref()
        });
        // The address of a bound claim is in use, whatever the owner reference.
        if other_owner && self.claim.bound_address().is_none() {
            let why =
                "is reserved for another claim, and the owner of the IPAddress does not exist";
            return Ok(Ensured::DeleteExisting(format!("{block} {why}")));
        }
        let by = found.and_then(|found| found.spec.claim_ref.as_ref());
        let claim = self.key.name();
        warn!(%pool, %block, claim, reserved_for = ?by, "the address of an IPAddress is reserved for another claim");
        if let Some((found, by)) = found
            .zip(by)
            .filter(|_| self.claim.bound_address().is_some())
        {
            let other = NamespacedName::new(&by.namespace, &by.name);
            let message = duplicate_message(block, self.key.namespace(), &other, &found.name_any());
            return Err(HandlerError::DuplicateAddress(message));
        }
        let reservation = found
            .map(|found| format!(" (IPReservation {})", found.name_any()))
            .unwrap_or_default();
        Err(HandlerError::DuplicateAddress(format!(
            "the IPAddress {} exists already with {block}, which is reserved for another claim{reservation}; \
             {DUPLICATE}",
            existing.name_any(),
        )))
    }
}

/// The allocation of an existing IPAddress, which does not change with the pool.
fn existing_allocation(existing: &IPAddress, block: Block, usable: &UsableBlocks) -> Allocation {
    let gateway = existing
        .spec
        .gateway
        .as_deref()
        .and_then(|text| parse_address(text).ok());
    let prefix = u8::try_from(existing.spec.prefix).unwrap_or_else(|_| usable.prefix_of(block));
    Allocation {
        gateway,
        ..Allocation::new(block.base(), prefix)
    }
}
