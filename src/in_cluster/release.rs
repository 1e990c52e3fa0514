//! Step R2: releases the address of a claim whose IPAddress is deleted.

use std::sync::Arc;

use capi_ipam_controller::client::{CallError, ResourceClient};
use capi_ipam_controller::{clock, patch};
use capi_ipam_provider::api::{IPAddressClaim, Uid};
use capi_ipam_provider::{HandlerError, Released};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::ledger::{ClaimKey, Ledger};
use super::reservation::{Ownership, claim_reference, ownership};
use crate::api::{IPReservation, PoolKey, Slot};

/// Releases all addresses that are reserved for a claim. If the pool has a grace period, the reservation is kept until
/// the cool-down ends; the claim does not wait for this.
pub(super) async fn release(
    ledger: &Arc<Ledger>,
    reservations: &ResourceClient<IPReservation>,
    claim: &IPAddressClaim,
    key: &ClaimKey,
) -> Result<Released, HandlerError> {
    let uid = Uid::of(claim.metadata.uid.as_deref().unwrap_or_default());
    for (slot, pool) in ledger.reservations_of(key, uid) {
        let name = slot.reservation_name();
        let released = if has_cooldown(ledger, &pool) {
            start_cooldown(ledger, reservations, claim, &name).await
        } else {
            delete_reservation(ledger, reservations, claim, &name, &slot).await
        };
        released.map_err(|error| HandlerError::transient(format!("cannot release {}", slot.block), error))?;
    }
    Ok(Released::Now)
}

fn has_cooldown(ledger: &Ledger, pool: &PoolKey) -> bool {
    ledger.pool_info(pool).is_some_and(|info| info.cooldown_seconds > 0 && !info.deleting)
}

async fn delete_reservation(
    ledger: &Ledger,
    reservations: &ResourceClient<IPReservation>,
    claim: &IPAddressClaim,
    name: &str,
    slot: &Slot,
) -> Result<(), CallError> {
    if ledger.is_promise(slot) {
        // A promise is kept: the next claim of this name gets the address again.
        return Ok(());
    }
    // Another claim may have reserved this address while the previous one was released.
    let claim_uid = Uid::of(claim.metadata.uid.as_deref().unwrap_or_default());
    let held = ledger.reservation_uid(slot, claim_uid).filter(|uid| !uid.is_empty());
    let Some(reservation_uid) = held else { return Ok(()) };
    match reservations.delete(name, &reservation_uid).await {
        Ok(_) => {
            ledger.remove_reservation_of(slot, &reservation_uid);
            Ok(())
        }
        // The uid differs: our reservation is deleted and another one has the name.
        Err(error) if error.is_conflict() => match reservations.get(name).await? {
            Some(found) if ownership(&found, &claim_reference(claim)) == Ownership::Ours => Err(error),
            Some(found) => {
                ledger.insert_reservation(&found);
                Ok(())
            }
            None => Ok(()),
        },
        Err(error) => Err(error),
    }
}

async fn start_cooldown(
    ledger: &Ledger,
    reservations: &ResourceClient<IPReservation>,
    claim: &IPAddressClaim,
    name: &str,
) -> Result<(), CallError> {
    let Some(found) = reservations.get(name).await? else { return Ok(()) };
    let held_by_uid = found.spec.claim_ref.as_ref().is_some_and(|claim| claim.uid.is_some());
    if !held_by_uid || ownership(&found, &claim_reference(claim)) != Ownership::Ours {
        return Ok(());
    }
    let change = patch::set(&["spec", "releasedAt"], json!(Time(clock::now().0)));
    match reservations.patch(name, patch::with_preconditions(&found, vec![change])).await {
        Ok(written) => ledger.insert_reservation(&written),
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error),
    }
    Ok(())
}
