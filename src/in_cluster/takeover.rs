//! Takes over a released address whose reservation is kept: for the claim of the same name that follows the one that
//! released it, or for another claim once its cool-down has ended.
//!
//! The reservation is changed in one write, in a known version. So the address is never without a reservation: no other
//! process can allocate it while it cools down, whatever fails or lags.

use capi_ipam_controller::patch;
use capi_ipam_provider::HandlerError;
use serde_json::json;

use super::handler::{InClusterHandler, ReserveResult, request_error};
use super::ledger::PoolInfo;
use super::reservation::{Ownership, build, claim_reference, ownership};
use crate::api::{IPReservation, PoolKey, Slot};

const ACTION: &str = "take over the IPReservation of a released address";

impl InClusterHandler {
    /// Reserves a proposed address, or takes over its reservation if a claim has released the address.
    pub(super) async fn reserve_or_take_over(
        &self,
        pool: &PoolKey,
        slot: &Slot,
    ) -> Result<ReserveResult, HandlerError> {
        if let Some(released) = self.ledger().released_reservation(slot, &self.key)
            && self.take_over(pool, slot, &released.uid, &released.version).await?
        {
            return Ok(ReserveResult::Ours);
        }
        self.reserve(pool, slot).await
    }

    /// Makes the reservation with this uid and version, which a claim has released, that of this claim. Returns false if
    /// it was changed or deleted since.
    pub(super) async fn take_over(
        &self,
        pool: &PoolKey,
        slot: &Slot,
        uid: &str,
        version: &str,
    ) -> Result<bool, HandlerError> {
        let name = slot.reservation_name();
        // Without the time of the release.
        let change = patch::set(&["spec"], json!(build(slot, pool, claim_reference(&self.claim)).spec));
        let patch = patch::with_uid_and_version(Some(uid.to_owned()), Some(version.to_owned()), vec![change]);
        let error = match self.context.reservations.patch(&name, patch).await {
            Ok(written) => {
                self.ledger().insert_reservation(&written);
                return Ok(true);
            }
            Err(error) if error.is_conflict() || error.is_not_found() => return Ok(false),
            Err(error) => error,
        };
        if error.outcome_is_unknown() {
            // It may be applied later: the next attempt uses the same address.
            self.ledger().remember_attempt(self.uid, pool, slot);
            let read = self.context.reservations.get(&name).await;
            if let Some(found) = read.map_err(|error| request_error("read the IPReservation", error))? {
                self.ledger().insert_reservation(&found);
                if ownership(&found, &claim_reference(&self.claim)) == Ownership::Ours {
                    self.ledger().forget_attempt(self.uid);
                    return Ok(true);
                }
            }
        }
        Err(request_error(ACTION, error))
    }

    /// Whether the claim may take over a released address that its IPAddress has, in a sticky pool: the last claim of
    /// its name had it, or its cool-down has ended.
    pub(super) fn may_take_over(&self, info: &PoolInfo, slot: &Slot, found: &IPReservation) -> bool {
        if !info.is_sticky || found.spec.released_at.is_none() {
            return false;
        }
        let reference = found.spec.claim_ref.as_ref();
        let is_former = reference.is_some_and(|it| (&it.namespace, &it.name) == (&self.key.0, &self.key.1));
        is_former || self.ledger().is_remembered(slot, found.metadata.uid.as_deref().unwrap_or_default())
    }
}
