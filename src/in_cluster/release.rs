//! The release of reservations: the only place that ends the reservation of a claim.
//!
//! Each release of an address, by step R2, the sweeper or a move to another scope, calls [`release_reservation`]. It
//! decides by the rules of the pool whether the reservation is deleted, or kept with the time of the release until the
//! cool-down ends.

use capi_ipam_api::{IPReservation, PoolKey, Scope, Slot};
use capi_ipam_controller::client::CallError;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_controller::resource_version::ResourceVersion;
use capi_ipam_controller::{clock, patch};
use capi_ipam_ip::Block;
use capi_ipam_ledger::{Held, PoolInfo};
use capi_ipam_provider::HandlerError;
use capi_ipam_provider::api::{IPAddressClaim, Uid};
use kube::ResourceExt;
use serde_json::json;
use tracing::warn;

use super::context::Context;
use super::reservation::{Ownership, claim_reference, ownership};

/// How often the release of a reservation is attempted if it keeps changing.
const MAX_ATTEMPTS: usize = 3;

/// A reservation in a known version. It is released in this version only: a write that is applied later must not
/// affect a claim that takes the reservation over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownReservation {
    pub(super) slot: Slot,
    pub(super) pool: PoolKey,
    pub(super) uid: String,
    pub(super) version: String,
}

impl KnownReservation {
    /// The version of a reservation that was read. `None` if it is not valid.
    pub(super) fn of(found: &IPReservation) -> Option<Self> {
        let (slot, pool) = found.slot().ok()?;
        let uid = found.uid().unwrap_or_default();
        Some(Self { slot, pool, uid, version: found.resource_version().unwrap_or_default() })
    }

    fn of_held(held: &Held) -> Self {
        Self { slot: held.slot.clone(), pool: held.pool.clone(), uid: held.uid.clone(), version: held.version.clone() }
    }
}

/// How the address of a released reservation was used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FormerUse {
    /// By the claim of the reservation, as far as it is known.
    OfClaim,
    /// Not at all: the claim has used another address of the pool, several managers have reserved one each.
    Spare,
    /// By another claim, which still uses it, and gets the reservation next.
    OfOther,
}

/// The result of [`release_reservation`].
#[derive(Debug)]
pub(super) enum ReleaseResult {
    /// The address is free: the reservation does not exist.
    Deleted,
    /// The reservation has the time of the release.
    CoolingDown(Box<IPReservation>),
    /// The reservation has changed since it was read, or another one has its name. Nothing was written.
    Changed(Box<IPReservation>),
}

/// Whether the pool keeps the reservation of a released address, until its cool-down ends or for the next claim of the
/// same name. A sticky pool without a cool-down keeps only the one that the claim has used. A pool that is deleted, or
/// is being deleted, keeps none. An address in use is never without a reservation.
fn keeps_reservation(pool: Option<&PoolInfo>, former_use: FormerUse) -> bool {
    if former_use == FormerUse::OfOther {
        return true;
    }
    let Some(pool) = pool.filter(|pool| !pool.deleting) else { return false };
    pool.cooldown_seconds > 0 || (pool.is_sticky && former_use == FormerUse::OfClaim)
}

/// Releases a reservation of a claim, by the rules of its pool. The caller has established that the claim does not use
/// the address.
pub(super) async fn release_reservation(
    context: &Context,
    known: &KnownReservation,
    former_use: FormerUse,
) -> Result<ReleaseResult, CallError> {
    let epoch = context.restores.epoch();
    let info = context.ledger.pool_info(&known.pool);
    let is_kept = keeps_reservation(info.as_ref(), former_use);
    let written = if is_kept { start_cooldown(context, known).await } else { delete(context, known).await };
    let error = match written {
        Ok(result) => return Ok(result),
        Err(error) => error,
    };
    if !error.is_conflict() && !error.outcome_is_unknown() {
        return Err(error);
    }
    // It was changed, another one has its name, or the write may have been applied.
    let Ok(read) = context.reservations.get(&known.slot.reservation_name()).await else { return Err(error) };
    let Some(found) = read else {
        context.ledger.remove_reservation_of(&known.slot, &known.uid);
        return Ok(ReleaseResult::Deleted);
    };
    context.ledger.insert_reservation(&found);
    let is_same = found.metadata.uid.as_deref() == Some(&known.uid);
    if is_same && is_earlier(&found, known) {
        warn!(
            reservation = known.slot.reservation_name(),
            "the resourceVersion has decreased, etcd was probably restored from a snapshot; listing again"
        );
        context.restores.report(epoch);
    }
    if is_kept && is_same && found.spec.released_at.is_some() {
        return Ok(ReleaseResult::CoolingDown(Box::new(found)));
    }
    if is_same && found.metadata.resource_version.as_deref() == Some(&known.version) {
        return Err(error);
    }
    Ok(ReleaseResult::Changed(Box::new(found)))
}

/// Whether a read shows an earlier version of a reservation than the one that was known before.
fn is_earlier(found: &IPReservation, known: &KnownReservation) -> bool {
    let (found, known) = (ResourceVersion::of(&found.metadata), ResourceVersion::parse(&known.version));
    found.zip(known).is_some_and(|(found, known)| found < known)
}

async fn delete(context: &Context, known: &KnownReservation) -> Result<ReleaseResult, CallError> {
    let name = known.slot.reservation_name();
    let deleted = context.reservations.delete_unchanged(&name, &known.uid, &known.version).await?;
    context.ledger.record_deletion(&known.slot, &known.uid, &deleted);
    Ok(ReleaseResult::Deleted)
}

async fn start_cooldown(context: &Context, known: &KnownReservation) -> Result<ReleaseResult, CallError> {
    let change = patch::set(&["spec", "releasedAt"], json!(clock::now()));
    let patch = patch::with_uid_and_version(Some(known.uid.clone()), Some(known.version.clone()), vec![change]);
    match context.reservations.patch(&known.slot.reservation_name(), patch).await {
        Ok(written) => {
            context.ledger.insert_reservation(&written);
            Ok(ReleaseResult::CoolingDown(Box::new(written)))
        }
        Err(error) if error.is_not_found() => {
            context.ledger.remove_reservation_of(&known.slot, &known.uid);
            Ok(ReleaseResult::Deleted)
        }
        Err(error) => Err(error),
    }
}

/// Step R2: releases all addresses that are reserved for a claim whose IPAddress is deleted. `deleted` is the pool and
/// the block of that IPAddress, if this process has deleted it. The claim does not wait for the cool-down. A promise is
/// kept: the next claim of this name gets the address again.
pub(super) async fn release_claim(
    context: &Context,
    claim: &IPAddressClaim,
    key: &NamespacedName,
    uid: Uid,
    deleted: Option<&(PoolKey, Block)>,
) -> Result<(), HandlerError> {
    let held = context.ledger.held_by(key, uid);
    for known in held.iter().filter(|held| !held.is_promise && !held.uid.is_empty()) {
        release_of_claim(context, claim, KnownReservation::of_held(known), former_use(&held, known)).await?;
    }
    let Some((pool, block)) = deleted else { return Ok(()) };
    if held.iter().any(|held| held.pool == *pool && held.slot.block == *block) {
        return Ok(());
    }
    // The ledger can lag behind, or know a future that a restore of etcd has undone.
    for scope in scopes_of(&context.ledger.scope(pool), pool) {
        let slot = Slot { scope, block: *block };
        let read = context.reservations.get(&slot.reservation_name()).await;
        let found = read.map_err(|error| HandlerError::transient(format!("cannot release {block}"), error))?;
        let Some(found) = found.filter(|found| is_released_by(found, claim)) else { continue };
        let Some(known) = KnownReservation::of(&found) else { continue };
        release_of_claim(context, claim, known, FormerUse::OfClaim).await?;
    }
    Ok(())
}

/// How a claim has used one of the addresses that are reserved for it.
pub(super) fn former_use(held: &[Held], one: &Held) -> FormerUse {
    let uses_another = held.iter().any(|other| other.was_used && other.pool == one.pool);
    if uses_another && !one.was_used { FormerUse::Spare } else { FormerUse::OfClaim }
}

/// The scopes in which an address of a pool can be reserved: that of the pool, and its own one, from which or to which
/// it may be moving.
fn scopes_of(current: &Scope, pool: &PoolKey) -> Vec<Scope> {
    let own = Scope::Pool(pool.clone());
    if *current == own { vec![own] } else { vec![current.clone(), own] }
}

/// Whether a reservation is held by the uid of a claim, so that it ends with the claim.
fn is_released_by(found: &IPReservation, claim: &IPAddressClaim) -> bool {
    let names_uid = found.spec.claim_ref.as_ref().is_some_and(|claim| claim.uid.is_some());
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
        let released = release_reservation(context, &known, former_use).await;
        let result = released.map_err(|error| HandlerError::transient(format!("cannot release {block}"), error))?;
        let ReleaseResult::Changed(found) = result else { return Ok(()) };
        if !is_released_by(&found, claim) {
            return Ok(());
        }
        let Some(changed) = KnownReservation::of(&found) else { return Ok(()) };
        known = changed;
    }
    Err(HandlerError::Conflict(format!("cannot release {block}: its reservation keeps changing")))
}

#[cfg(test)]
mod tests {
    use capi_ipam_api::{InClusterKind, Pool};
    use serde_json::{Value, json};

    use super::*;

    fn keeps(change: &Value, former_use: FormerUse) -> bool {
        let mut pool = json!({
            "kind": "InClusterIPPool", "metadata": {"namespace": "n", "name": "p"},
            "spec": {"addresses": ["10.0.0.0/24"], "prefix": 24},
        });
        json_patch::merge(&mut pool, change);
        let pool = serde_json::from_value::<Pool>(pool).unwrap();
        keeps_reservation(Some(&PoolInfo::of(&pool)), former_use)
    }

    #[test]
    fn pool_decides_whether_a_reservation_is_kept() {
        let cooldown = json!({"addressReuseGracePeriodSeconds": 60});
        let sticky = json!({"allocation": {"sticky": true}});
        let deleting = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": cooldown});
        for former_use in [FormerUse::OfClaim, FormerUse::Spare] {
            assert!(!keeps(&json!({}), former_use));
            assert!(keeps(&json!({"spec": cooldown}), former_use), "a spare address may have been used as well");
            assert_eq!(keeps(&json!({"spec": sticky}), former_use), former_use == FormerUse::OfClaim);
            assert!(!keeps(&deleting, former_use));
            assert!(!keeps_reservation(None, former_use), "the pool is deleted");
        }
        assert!(keeps(&json!({}), FormerUse::OfOther) && keeps(&deleting, FormerUse::OfOther));
    }

    #[test]
    fn reservation_can_be_in_two_scopes_while_a_pool_joins() {
        let pool = PoolKey::new(InClusterKind::IPPool, Some("n"), "p");
        let (own, network) = (Scope::Pool(pool.clone()), Scope::Network("lab".into()));
        assert_eq!(scopes_of(&own, &pool).len(), 1);
        assert_eq!(scopes_of(&network, &pool), [network.clone(), own]);
    }
}
