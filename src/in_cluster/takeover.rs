//! Takes over a released address whose reservation is kept: for the claim of the same name that
//! follows the one that released it, or for another claim once its cool-down has ended. An existing
//! IPAddress also keeps the address that is reserved for an earlier claim of its name.
//!
//! The reservation is changed in one write, in a known version. So the address is never without a
//! reservation: no other process can allocate it while it cools down, whatever fails or lags.

use capi_ipam_api::{IPReservation, PoolKey, Slot};
use capi_ipam_controller::client::error_chain;
use capi_ipam_controller::watch::MaybeInvalid;
use capi_ipam_ledger::{KnownReservation, PoolInfo};
use capi_ipam_provider::prelude::HandlerError;
use tracing::warn;

use super::errors::request_error;
use super::handler::InClusterHandler;
use super::reservation::claim_reference;
use super::reservation_store::{Attempt, FormerUse, WriteResult};

const ACTION: &str = "take over the IPReservation of a released address";

impl InClusterHandler {
    /// Makes a reservation that a claim has released that of this claim.
    pub(super) async fn take_over(
        &self,
        pool: &PoolKey,
        released: &KnownReservation,
    ) -> Result<WriteResult, HandlerError> {
        let claim = claim_reference(&self.claim);
        let taken = self
            .context
            .reservations
            .take_over(released, pool, &claim, Some(self.attempt(pool)))
            .await;
        taken.map_err(|error| request_error(ACTION, error))
    }

    /// Makes the reservation of an earlier claim of the same name, as it was read, that of this
    /// claim. The address is reserved at any time.
    pub(super) async fn take_over_from_previous(
        &self,
        pool: &PoolKey,
        previous: &KnownReservation,
    ) -> Result<WriteResult, HandlerError> {
        let reservations = &self.context.reservations;
        if previous.pool == *pool {
            let claim = claim_reference(&self.claim);
            match reservations
                .change_uid(previous, &claim, Some(self.attempt(pool)))
                .await
            {
                Err(error) if error.is_invalid() => warn!(
                    reservation = previous.slot.reservation_name(),
                    error = error_chain(&error),
                    "cannot change the uid of a reservation, it is released and taken over instead; apply the \
                     CustomResourceDefinition ipreservations of this version"
                ),
                changed => return changed.map_err(|error| request_error(ACTION, error)),
            }
        }
        // Only a released reservation can get another pool, or with the definition of an earlier
        // version another uid.
        let released = reservations.release(previous, FormerUse::OfOther).await;
        match released.map_err(|error| {
            request_error("release the IPReservation of an earlier claim", error)
        })? {
            WriteResult::Done(written) => match KnownReservation::of(&written) {
                Some(released) => self.take_over(pool, &released).await,
                None => Ok(WriteResult::Changed(Box::new(MaybeInvalid(Ok(*written))))),
            },
            other => Ok(other),
        }
    }

    /// The attempt of this claim to get an address of a pool.
    pub(super) fn attempt<'a>(&self, pool: &'a PoolKey) -> Attempt<'a> {
        Attempt {
            claim: self.uid,
            pool,
        }
    }

    /// Whether the claim may take over a released address that its IPAddress has, in a sticky pool:
    /// the last claim of its name had it, or its cool-down has ended.
    pub(super) fn may_take_over(
        &self,
        info: &PoolInfo,
        slot: &Slot,
        found: &IPReservation,
    ) -> bool {
        if !info.is_sticky || found.spec.released_at.is_none() {
            return false;
        }
        let reference = found.spec.claim_ref.as_ref();
        let is_former = reference.is_some_and(|it| (&*it.namespace, &*it.name) == self.key.parts());
        is_former
            || self.ledger().read(|ledger| {
                ledger.is_remembered(slot, found.metadata.uid.as_deref().unwrap_or_default())
            })
    }
}
