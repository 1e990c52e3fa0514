//! Step R2: releases the addresses of a claim.

use capi_ipam_api::{IPReservation, PoolKey, Slot};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::Block;
use capi_ipam_ledger::{Held, KnownReservation};
use capi_ipam_provider::HandlerError;
use capi_ipam_provider::api::{IPAddressClaim, Uid};

use super::context::Context;
use super::reservation::{Ownership, claim_reference, ownership};
use super::reservation_store::{FormerUse, WriteResult};

/// How often the release of a reservation is attempted if it keeps changing.
const MAX_ATTEMPTS: usize = 3;

/// Step R2: releases all addresses that are reserved for a claim whose IPAddress is deleted.
/// `deleted` is the pool and the block of that IPAddress, if this process has deleted it. The claim
/// does not wait for the cool-down. A promise is kept: the next claim of this name gets the address
/// again.
pub(super) async fn release_claim(
    context: &Context,
    claim: &IPAddressClaim,
    key: &NamespacedName,
    uid: Uid,
    deleted: Option<&(PoolKey, Block)>,
) -> Result<(), HandlerError> {
    let held = context.ledger.read(|ledger| ledger.held_by(key, uid));
    for known in held
        .iter()
        .filter(|held| !held.is_promise && !held.uid.is_empty())
    {
        release_of_claim(context, claim, known.known(), former_use(&held, known)).await?;
    }
    let Some((pool, block)) = deleted else {
        return Ok(());
    };
    if held
        .iter()
        .any(|held| held.pool == *pool && held.slot.block == *block)
    {
        return Ok(());
    }
    // The ledger can lag behind, or know a future that a restore of etcd has undone.
    for scope in context.ledger.read(|ledger| ledger.possible_scopes(pool)) {
        let slot = Slot {
            scope,
            block: *block,
        };
        let read = context.reservations.get(&slot).await;
        let found = read
            .map_err(|error| HandlerError::transient(format!("cannot release {block}"), error))?;
        let Some(found) = found.filter(|found| is_released_by(found, claim)) else {
            continue;
        };
        let Some(known) = KnownReservation::of(&found) else {
            continue;
        };
        release_of_claim(context, claim, known, FormerUse::OfClaim).await?;
    }
    Ok(())
}

/// How a claim has used one of the addresses that are reserved for it.
pub(super) fn former_use(held: &[Held], one: &Held) -> FormerUse {
    let uses_another = held
        .iter()
        .any(|other| other.was_used && other.pool == one.pool);
    if uses_another && !one.was_used {
        FormerUse::Spare
    } else {
        FormerUse::OfClaim
    }
}

/// Whether a reservation is held by the uid of a claim, so that it ends with the claim.
fn is_released_by(found: &IPReservation, claim: &IPAddressClaim) -> bool {
    let names_uid = found
        .spec
        .claim_ref
        .as_ref()
        .is_some_and(|claim| claim.uid.is_some());
    names_uid && ownership(found, &claim_reference(claim)) == Ownership::Ours
}

/// Releases one reservation of a claim, also if it changes meanwhile.
async fn release_of_claim(
    context: &Context,
    claim: &IPAddressClaim,
    mut known: KnownReservation,
    former_use: FormerUse,
) -> Result<(), HandlerError> {
    let block = known.slot.block;
    for _ in 0..MAX_ATTEMPTS {
        let released = context.reservations.release(&known, former_use).await;
        let result = released
            .map_err(|error| HandlerError::transient(format!("cannot release {block}"), error))?;
        let WriteResult::Changed(found) = result else {
            return Ok(());
        };
        // What is not a valid reservation is not that of the claim.
        let Ok(found) = found.0 else { return Ok(()) };
        let changed = KnownReservation::of(&found).filter(|_| is_released_by(&found, claim));
        let Some(changed) = changed else {
            return Ok(());
        };
        known = changed;
    }
    Err(HandlerError::Conflict(format!(
        "cannot release {block}: its reservation keeps changing"
    )))
}
