//! Adopts the address of an IPAddress that exists already: of an earlier attempt, an upgrade or a
//! restore, or created by a user.

use capi_ipam_api::advice::DUPLICATE;
use capi_ipam_api::{IPReservation, PoolKey, Slot};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::{Block, UsableBlocks, parse_address};
use capi_ipam_ledger::{KnownReservation, PoolInfo, allocated_block};
use capi_ipam_provider::api::IPAddress;
use capi_ipam_provider::{Allocation, Ensured, HandlerError};
use kube::ResourceExt;
use tracing::warn;

use super::duplicates::duplicate_message;
use super::handler::{Candidate, InClusterHandler, ReserveResult, request_error};
use super::reservation::{Ownership, claim_reference, ownership};
use super::reservation_store::WriteResult;

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
        let Some((_, block, _)) = allocated_block(existing).filter(|_| is_valid) else {
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
                .read(|ledger| ledger.overlaps_other_claim(&slot, &self.key))
        {
            return self.conflict(pool, existing, block, None);
        }
        let held = self
            .ledger()
            .read(|ledger| ledger.held_by(&self.key, self.uid));
        if held.iter().any(|held| held.slot == slot) && self.holds_reservation(&slot).await? {
            return Ok(existing_allocation(existing, block, usable).into());
        }
        // Keeps the sweeper from reserving the address at the same time.
        let _candidate = self
            .ledger()
            .change(|ledger| ledger.hold_candidate(pool, &slot))
            .then(|| Candidate {
                ledger: self.ledger(),
                slot: slot.clone(),
            });
        for _ in 0..2 {
            match self.reserve(pool, &slot).await? {
                ReserveResult::Ours => {
                    return Ok(existing_allocation(existing, block, usable).into());
                }
                ReserveResult::Conflict => {}
            }
            let read = self.context.reservations.get(&slot).await;
            let read = read.map_err(|error| request_error("read the IPReservation", error))?;
            let Some(found) = read else { continue };
            let is_previous =
                ownership(&found, &claim_reference(&self.claim)) == Ownership::PreviousClaim;
            if !is_previous && !self.may_take_over(info, &slot, &found) {
                return self.conflict(pool, existing, block, Some(&found));
            }
            // Read after the reservation: if this claim still exists, the other one of its name is
            // an earlier claim.
            if !self.claim_exists().await? {
                return Err(HandlerError::Conflict(
                    "the claim was deleted and created again".to_owned(),
                ));
            }
            // With the version that was read: it may have been released since, which starts a
            // cool-down.
            let Some(known) = KnownReservation::of(&found) else {
                return self.conflict(pool, existing, block, Some(&found));
            };
            let taken = if is_previous {
                self.take_over_from_previous(pool, &known).await?
            } else {
                self.take_over(pool, &known).await?
            };
            if matches!(taken, WriteResult::Done(_)) {
                return Ok(existing_allocation(existing, block, usable).into());
            }
        }
        Err(HandlerError::Conflict(format!(
            "the reservation of {block} keeps changing"
        )))
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
