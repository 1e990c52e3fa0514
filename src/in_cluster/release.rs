//! Step R2: releases the address of a claim whose IPAddress is deleted.

use capi_ipam_controller::client::CallError;
use capi_ipam_controller::{clock, patch};
use capi_ipam_provider::HandlerError;
use capi_ipam_provider::api::{IPAddressClaim, Uid};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::context::Context;
use super::ledger::{ClaimKey, Held};
use super::reservation::{Ownership, claim_reference, ownership};
use crate::api::PoolKey;

/// How often the deletion of a reservation is attempted if it keeps changing.
const MAX_ATTEMPTS: usize = 3;

/// Releases all addresses that are reserved for a claim. If the pool has a grace period, the reservation is kept until
/// the cool-down ends, and in a sticky pool for longer; the claim does not wait for this. A promise is kept: the next claim of this name gets the
/// address again.
pub(super) async fn release(
    context: &Context,
    claim: &IPAddressClaim,
    key: &ClaimKey,
    uid: Uid,
) -> Result<(), HandlerError> {
    let held = context.ledger.held_by(key, uid);
    // The claim has used one of the addresses that several managers have reserved for it.
    let uses_another_of = |pool: &PoolKey| held.iter().any(|held| held.was_used && held.pool == *pool);
    for held in held.iter().filter(|held| !held.is_promise) {
        let is_spare = !held.was_used && uses_another_of(&held.pool);
        let released = if keeps_reservation(context, &held.pool, is_spare) {
            start_cooldown(context, claim, held).await
        } else {
            delete_reservation(context, claim, held).await
        };
        released.map_err(|error| HandlerError::transient(format!("cannot release {}", held.slot.block), error))?;
    }
    Ok(())
}

/// Whether the pool keeps the reservation of a released address. A sticky pool without a cool-down keeps only the one
/// that the claim has used.
fn keeps_reservation(context: &Context, pool: &PoolKey, is_spare: bool) -> bool {
    let info = context.ledger.pool_info(pool).filter(|info| !info.deleting);
    info.is_some_and(|info| info.cooldown_seconds > 0 || (info.is_sticky && !is_spare))
}

async fn delete_reservation(context: &Context, claim: &IPAddressClaim, held: &Held) -> Result<(), CallError> {
    if held.uid.is_empty() {
        return Ok(());
    }
    let name = held.slot.reservation_name();
    // Only as it is known: a deletion that is applied later must not affect a claim that takes the reservation over.
    let mut version = held.version.clone();
    let mut conflict = None;
    for _ in 0..MAX_ATTEMPTS {
        match context.reservations.delete_unchanged(&name, &held.uid, &version).await {
            Ok(_) => {
                context.ledger.remove_reservation_of(&held.slot, &held.uid);
                return Ok(());
            }
            // It was changed, or another one has its name.
            Err(error) if error.is_conflict() => conflict = Some(error),
            Err(error) => return Err(error),
        }
        let Some(found) = context.reservations.get(&name).await? else { return Ok(()) };
        context.ledger.insert_reservation(&found);
        if ownership(&found, &claim_reference(claim)) != Ownership::Ours {
            return Ok(());
        }
        version = found.metadata.resource_version.unwrap_or_default();
    }
    conflict.map_or(Ok(()), Err)
}

async fn start_cooldown(context: &Context, claim: &IPAddressClaim, held: &Held) -> Result<(), CallError> {
    let name = held.slot.reservation_name();
    let Some(found) = context.reservations.get(&name).await? else { return Ok(()) };
    let held_by_uid = found.spec.claim_ref.as_ref().is_some_and(|claim| claim.uid.is_some());
    if !held_by_uid || ownership(&found, &claim_reference(claim)) != Ownership::Ours {
        return Ok(());
    }
    let change = patch::set(&["spec", "releasedAt"], json!(Time(clock::now().0)));
    match context.reservations.patch(&name, patch::with_preconditions(&found, vec![change])).await {
        Ok(written) => context.ledger.insert_reservation(&written),
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error),
    }
    Ok(())
}
