//! Step R2: taking an address back, once its IPAddress is gone.

use std::sync::Arc;

use capi_ipam_controller::client::{CallError, ResourceClient};
use capi_ipam_controller::{clock, patch};
use capi_ipam_provider::api::{IPAddressClaim, Uid};
use capi_ipam_provider::{HandlerError, Released};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use crate::api::{IPReservation, PoolKey, Slot};
use super::ledger::{ClaimKey, Ledger};
use super::reservation::{Holder, holder, reference};

/// Gives back what a claim holds. An address whose pool wants it to rest keeps its reservation until the rest is over;
/// the claim does not wait for that.
pub(super) async fn release(
    ledger: &Arc<Ledger>,
    reservations: &ResourceClient<IPReservation>,
    claim: &IPAddressClaim,
    key: &ClaimKey,
) -> Result<Released, HandlerError> {
    let uid = Uid::of(claim.metadata.uid.as_deref().unwrap_or_default());
    for (slot, pool) in ledger.reservations_of(key, uid) {
        let name = slot.reservation_name();
        let ended = if rests(ledger, &pool) {
            rest(ledger, reservations, claim, &name).await
        } else {
            delete(ledger, reservations, claim, &name, &slot).await
        };
        ended.map_err(|error| HandlerError::transient(format!("cannot give {} back", slot.block), error))?;
    }
    Ok(Released::Now)
}

fn rests(ledger: &Ledger, pool: &PoolKey) -> bool {
    ledger.facts(pool).is_some_and(|facts| facts.rest > 0 && !facts.deleting)
}

async fn delete(
    ledger: &Ledger,
    reservations: &ResourceClient<IPReservation>,
    claim: &IPAddressClaim,
    name: &str,
    slot: &Slot,
) -> Result<(), CallError> {
    if ledger.is_promise(slot) {
        // A promise outlives the claim: the next one of this name gets the address again.
        return Ok(());
    }
    // While another address was given back, this one may have become somebody else's.
    let claim_uid = Uid::of(claim.metadata.uid.as_deref().unwrap_or_default());
    let held = ledger.reservation_uid(slot, claim_uid).filter(|uid| !uid.is_empty());
    let Some(reservation_uid) = held else { return Ok(()) };
    match reservations.delete(name, &reservation_uid).await {
        Ok(_) => {
            ledger.remove_reservation_of(slot, &reservation_uid);
            Ok(())
        }
        // Another object has the name: ours is gone.
        Err(error) if error.is_conflict() => match reservations.get(name).await? {
            Some(found) if holder(&found, &reference(claim)) == Holder::Ours => Err(error),
            Some(found) => {
                ledger.insert_reservation(&found);
                Ok(())
            }
            None => Ok(()),
        },
        Err(error) => Err(error),
    }
}

async fn rest(
    ledger: &Ledger,
    reservations: &ResourceClient<IPReservation>,
    claim: &IPAddressClaim,
    name: &str,
) -> Result<(), CallError> {
    let Some(found) = reservations.get(name).await? else { return Ok(()) };
    let held_by_uid = found.spec.claim_ref.as_ref().is_some_and(|claim| claim.uid.is_some());
    if !held_by_uid || holder(&found, &reference(claim)) != Holder::Ours {
        return Ok(());
    }
    let change = patch::set(&["spec", "releasedAt"], json!(Time(clock::now().0)));
    match reservations.patch(name, patch::guarded(&found, vec![change])).await {
        Ok(written) => ledger.insert_reservation(&written),
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error),
    }
    Ok(())
}
