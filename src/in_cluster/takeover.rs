//! Takes over a released address whose reservation is kept: for the claim of the same name that follows the one that
//! released it, or for another claim once its cool-down has ended. An existing IPAddress also keeps the address that is
//! reserved for an earlier claim of its name.
//!
//! The reservation is changed in one write, in a known version. So the address is never without a reservation: no other
//! process can allocate it while it cools down, whatever fails or lags.

use capi_ipam_api::{IPReservation, PoolKey, ReservationClaim, Slot};
use capi_ipam_controller::client::{CallError, error_chain};
use capi_ipam_controller::patch;
use capi_ipam_ledger::PoolInfo;
use capi_ipam_provider::HandlerError;
use kube::ResourceExt;
use serde_json::json;
use tracing::warn;

use super::handler::{InClusterHandler, ReserveResult, request_error};
use super::release::{FormerUse, KnownReservation, ReleaseResult, release_reservation};
use super::reservation::{Ownership, build, claim_reference, ownership};

const ACTION: &str = "take over the IPReservation of a released address";

/// The result of a write that takes a reservation over.
enum TakeOver {
    /// The reservation is that of the claim.
    Done,
    /// The reservation was changed or deleted since it was read.
    Changed,
    /// The API server does not accept this change.
    Invalid(CallError),
}

/// The change that makes the reservation with this uid and version, which a claim has released, that of `claim`.
pub(super) fn take_over_patch(
    pool: &PoolKey,
    slot: &Slot,
    claim: ReservationClaim,
    uid: &str,
    version: &str,
) -> json_patch::Patch {
    // Without the time of the release.
    let change = patch::set(&["spec"], json!(build(slot, pool, claim).spec));
    patch::with_uid_and_version(Some(uid.to_owned()), Some(version.to_owned()), vec![change])
}

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
        let patch = take_over_patch(pool, slot, claim_reference(&self.claim), uid, version);
        match self.write_take_over(pool, slot, patch).await? {
            TakeOver::Done => Ok(true),
            TakeOver::Changed => Ok(false),
            TakeOver::Invalid(error) => Err(request_error(ACTION, error)),
        }
    }

    /// Makes the reservation of an earlier claim of the same name, as it was read, that of this claim. The address is
    /// reserved at any time. Returns false if the reservation was changed or deleted since.
    pub(super) async fn take_over_from_previous(
        &self,
        pool: &PoolKey,
        slot: &Slot,
        found: &IPReservation,
    ) -> Result<bool, HandlerError> {
        if PoolKey::of_reservation(&found.spec.pool_ref).as_ref() == Some(pool) {
            let change = patch::set(&["spec", "claimRef", "uid"], json!(self.claim.metadata.uid));
            match self.write_take_over(pool, slot, patch::with_preconditions(found, vec![change])).await? {
                TakeOver::Done => return Ok(true),
                TakeOver::Changed => return Ok(false),
                TakeOver::Invalid(error) => warn!(
                    reservation = found.name_any(),
                    error = error_chain(&error),
                    "cannot change the uid of a reservation, it is released and taken over instead; apply the \
                     CustomResourceDefinition ipreservations of this version"
                ),
            }
        }
        // Only a released reservation can get another pool, or with the definition of an earlier version another uid.
        let Some(known) = KnownReservation::of(found) else { return Ok(false) };
        let released = release_reservation(&self.context, &known, FormerUse::OfOther).await;
        match released.map_err(|error| request_error("release the IPReservation of an earlier claim", error))? {
            ReleaseResult::CoolingDown(written) => {
                self.take_over(pool, slot, &known.uid, &written.resource_version().unwrap_or_default()).await
            }
            ReleaseResult::Deleted | ReleaseResult::Changed(_) => Ok(false),
        }
    }

    /// Sends a patch that makes a reservation that of this claim. If the outcome is unknown, the reservation is read.
    async fn write_take_over(
        &self,
        pool: &PoolKey,
        slot: &Slot,
        patch: json_patch::Patch,
    ) -> Result<TakeOver, HandlerError> {
        let name = slot.reservation_name();
        let error = match self.context.reservations.patch(&name, patch).await {
            Ok(written) => {
                self.ledger().insert_reservation(&written);
                return Ok(TakeOver::Done);
            }
            Err(error) if error.is_conflict() || error.is_not_found() => return Ok(TakeOver::Changed),
            Err(error) if error.is_invalid() => return Ok(TakeOver::Invalid(error)),
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
                    return Ok(TakeOver::Done);
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
        let is_former = reference.is_some_and(|it| (&*it.namespace, &*it.name) == self.key.parts());
        is_former || self.ledger().is_remembered(slot, found.metadata.uid.as_deref().unwrap_or_default())
    }
}
