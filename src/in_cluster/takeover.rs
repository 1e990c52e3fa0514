//! Takes over a released address whose reservation is kept: for the claim of the same name that follows the one that
//! released it, or for another claim once its cool-down has ended.

use capi_ipam_provider::HandlerError;
use kube::ResourceExt;

use super::handler::{InClusterHandler, ReserveResult, request_error};
use super::ledger::PoolInfo;
use crate::api::{IPReservation, PoolKey, Slot};

const ACTION: &str = "delete the IPReservation of a released address";

impl InClusterHandler {
    /// Reserves a proposed address. A reservation that is kept although its claim has released the address is deleted
    /// first, in the version that the ledger knows: it may have been taken over since, also for this claim.
    pub(super) async fn reserve_or_take_over(
        &self,
        pool: &PoolKey,
        slot: &Slot,
    ) -> Result<ReserveResult, HandlerError> {
        if let Some(released) = self.ledger().released_reservation(slot) {
            let name = slot.reservation_name();
            match self.context.reservations.delete_unchanged(&name, &released.uid, &released.version).await {
                Ok(_) => self.ledger().remove_reservation_of(slot, &released.uid),
                // Whether the creation succeeds shows to whom the address belongs now.
                Err(error) if error.is_conflict() || error.is_not_found() => {}
                // A deletion that is applied later does not affect another reservation.
                Err(error) if error.outcome_is_unknown() => {
                    let read = self.context.reservations.get(&name).await;
                    let found = read.map_err(|error| request_error("read the IPReservation", error))?;
                    if found.is_some_and(|found| found.uid().as_ref() == Some(&released.uid)) {
                        return Err(request_error(ACTION, error));
                    }
                }
                Err(error) => return Err(request_error(ACTION, error)),
            }
        }
        self.reserve(pool, slot).await
    }

    /// Whether the claim may take over a released address that its IPAddress has, in a sticky pool: the last claim of
    /// its name had it, or its cool-down has ended.
    pub(super) fn may_take_over(&self, info: &PoolInfo, slot: &Slot, found: &IPReservation) -> bool {
        if !info.is_sticky || found.spec.released_at.is_none() {
            return false;
        }
        let reference = found.spec.claim_ref.as_ref();
        let is_former = reference.is_some_and(|it| (&it.namespace, &it.name) == (&self.key.0, &self.key.1));
        is_former || self.ledger().is_remembered(slot, &found.uid().unwrap_or_default())
    }
}
