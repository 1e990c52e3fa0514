//! Moves the reservations of pools that join or leave a network to the scope of the pool.
//!
//! The reservation in the new scope is created before the one in the old scope is deleted, so the
//! address is reserved at any time. After an interruption both exist, and the next run deletes the
//! old one. Until then the ledger counts the address as not free in both scopes.
//!
//! Two managers that observe a change at different times can move both in opposite directions. So a
//! move writes the reservation in the new scope in any case before it deletes the old one in the
//! version that was read before. If the other manager has read the former to delete it, its
//! deletion fails with a conflict.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_api::{AllocationCause, AllocationEvent, IPReservation, PoolKey, Slot};
use capi_ipam_controller::client::{CallError, error_chain};
use capi_ipam_controller::manager::{BackgroundTask, NextRun};
use capi_ipam_controller::watch::MaybeInvalid;
use capi_ipam_ledger::{KnownReservation, Misplaced};
use futures::StreamExt;
use kube::ResourceExt;
use tracing::{debug, info, warn};

use super::context::Context;
use super::reservation::{copied_annotations, copy_to, marked};
use super::reservation_store::{CreateResult, FormerUse, WriteResult};

/// The number of reservations that are moved concurrently.
const CONCURRENCY: usize = 8;
/// The maximum number of reservations that one run moves.
const MAX_MOVED: usize = 1_000;
/// The delay before a reservation that cannot be moved is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// Moves the reservations of pools whose scope has changed.
pub(super) struct MoveReservations {
    context: Arc<Context>,
    /// Reservations that could not be moved, by uid, and when to try again.
    postponed: HashMap<String, Instant>,
}

impl MoveReservations {
    pub(super) fn new(context: Arc<Context>) -> Self {
        Self {
            context,
            postponed: HashMap::new(),
        }
    }
}

impl BackgroundTask for MoveReservations {
    async fn run_once(&mut self) -> NextRun {
        let now = Instant::now();
        self.postponed.retain(|_, until| *until > now);
        let limit = MAX_MOVED.saturating_add(self.postponed.len());
        let selection = &self.context.selection;
        let is_served = |pool: &PoolKey| selection.includes_namespace(pool.namespace.as_deref());
        let mut found = self
            .context
            .ledger
            .read(|ledger| ledger.misplaced(limit, is_served));
        found.retain(|misplaced| !self.postponed.contains_key(&misplaced.uid));
        if found.is_empty() {
            let has_postponed = !self.postponed.is_empty();
            return if has_postponed {
                NextRun::After(RETRY_DELAY)
            } else {
                NextRun::OnNotification
            };
        }
        let failed = move_all(&self.context, found).await;
        let until = Instant::now().checked_add(RETRY_DELAY).unwrap_or(now);
        self.postponed
            .extend(failed.into_iter().map(|uid| (uid, until)));
        NextRun::Now
    }

    async fn notified(&self) {
        self.context.ledger.scopes_changed().await;
    }
}

/// Moves reservations, and returns the uids of those that could not be moved.
async fn move_all(context: &Context, found: Vec<Misplaced>) -> Vec<String> {
    let count = found.len();
    let failed: Vec<String> = futures::stream::iter(found)
        .map(|misplaced| async move {
            match move_one(context, &misplaced).await {
                Ok(MoveResult::Moved) => None,
                Ok(MoveResult::Changed) => Some(misplaced.uid),
                Ok(MoveResult::Taken) => {
                    warn!(pool = %misplaced.pool, slot = %misplaced.slot, scope = %misplaced.scope,
                        "cannot move a reservation: the address is reserved for another claim in the new scope");
                    Some(misplaced.uid)
                }
                Err(error) => {
                    let error = error_chain(&error);
                    debug!(slot = %misplaced.slot, error, "cannot move a reservation, will retry");
                    Some(misplaced.uid)
                }
            }
        })
        .buffer_unordered(CONCURRENCY)
        .filter_map(std::future::ready)
        .collect()
        .await;
    let moved = count.saturating_sub(failed.len());
    if moved > 0 {
        info!(
            count = moved,
            "moved reservations of pools that join or leave a network"
        );
    }
    failed
}

/// What the move of a reservation has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MoveResult {
    /// The reservation is in the scope of its pool, or no longer exists.
    Moved,
    /// The address is reserved for another claim there: the old reservation stays.
    Taken,
    /// The old reservation has changed meanwhile, or the one in the new scope is being deleted:
    /// move it again.
    Changed,
}

/// Moves a reservation to the scope of its pool.
pub(super) async fn move_one(
    context: &Context,
    misplaced: &Misplaced,
) -> Result<MoveResult, CallError> {
    let reservations = &context.reservations;
    // Step M1.
    let Some(old) = reservations.get(&misplaced.slot).await? else {
        return Ok(MoveResult::Moved);
    };
    let known = KnownReservation::of(&old).filter(|known| known.uid == misplaced.uid);
    let Some(known) = known else {
        return Ok(MoveResult::Moved);
    };
    // Step M2. An address that cools down and is in use again gets the reservation of its claim.
    let is_obsolete = old.spec.released_at.is_some() && misplaced.is_in_use;
    let mut copy = None;
    if !is_obsolete {
        let target = Slot {
            scope: misplaced.scope.clone(),
            block: misplaced.slot.block,
        };
        let wanted = copy_to(&old, &target, &misplaced.pool);
        let is_copy = |found: &IPReservation| is_same_holder(&old, found);
        match reservations.create(&target, &wanted, None, is_copy).await? {
            CreateResult::Created(created) => copy = KnownReservation::of(&created),
            // It protects the address only until its finalizers are removed.
            CreateResult::Exists(found) if found.metadata.deletion_timestamp.is_some() => {
                return Ok(MoveResult::Changed);
            }
            CreateResult::Exists(found) => {
                reservations
                    .update_metadata(&found, &marked(&found, &old))
                    .await?;
            }
            CreateResult::Taken(found) => {
                // A cool-down protects an address that no claim holds.
                let (MaybeInvalid(Ok(found)), true) = (*found, old.spec.released_at.is_some())
                else {
                    return Ok(MoveResult::Taken);
                };
                if found.metadata.deletion_timestamp.is_some() {
                    return Ok(MoveResult::Changed);
                }
                reservations
                    .update_metadata(&found, &marked(&found, &old))
                    .await?;
            }
        }
    }
    // Step M3, in the version of M1: another manager that moves the reservation in the opposite
    // direction marks it before, and then this deletion fails.
    match reservations.delete(&known).await? {
        WriteResult::Done(_) | WriteResult::Gone => {
            record(context, misplaced, &old);
            Ok(MoveResult::Moved)
        }
        WriteResult::Changed(current) => {
            if let Some(copy) = copy {
                undo_copy(context, &old, current.0.ok().as_ref(), &copy).await?;
            }
            Ok(MoveResult::Changed)
        }
    }
}

/// Records that an address in use has changed its scope.
fn record(context: &Context, misplaced: &Misplaced, old: &IPReservation) {
    context.allocations.record(|log| {
        let claim = old
            .spec
            .claim_ref
            .clone()
            .filter(|claim| claim.uid.is_some());
        let claim = claim.filter(|_| old.spec.released_at.is_none())?;
        let target = Slot {
            scope: misplaced.scope.clone(),
            block: misplaced.slot.block,
        };
        let event = log.event(
            AllocationCause::PoolMoved,
            (&misplaced.pool, &target),
            claim,
        );
        let previous_network = misplaced.slot.scope.network().map(str::to_owned);
        Some(AllocationEvent {
            previous_network,
            ..event
        })
    });
}

/// Removes the copy of a reservation that was created while the original changed to `current`. If
/// the claim has released the address meanwhile, the copy is released in the same way, so that the
/// address cools down in the new scope as well.
async fn undo_copy(
    context: &Context,
    old: &IPReservation,
    current: Option<&IPReservation>,
    copy: &KnownReservation,
) -> Result<(), CallError> {
    if is_released(old, current) {
        return context
            .reservations
            .release(copy, FormerUse::OfClaim)
            .await
            .map(drop);
    }
    if current.is_some_and(|current| is_copied(old, current)) {
        // The next run deletes it.
        return Ok(());
    }
    // It was changed in another way, such as by a later claim of the name: the next run copies it
    // again.
    context.reservations.delete(copy).await.map(drop)
}

/// Whether a copy of a reservation, as it was read before, is a copy of it as it is now.
fn is_copied(before: &IPReservation, current: &IPReservation) -> bool {
    let labels = |reservation: &IPReservation| {
        (
            reservation.labels().clone(),
            copied_annotations(reservation),
        )
    };
    before.metadata.uid == current.metadata.uid
        && is_same_holder(before, current)
        && labels(before) == labels(current)
}

/// Whether the claim of a reservation has released it, according to a later read. Promises and
/// exclusions are not released, but deleted by users.
fn is_released(before: &IPReservation, current: Option<&IPReservation>) -> bool {
    let names_uid = before
        .spec
        .claim_ref
        .as_ref()
        .is_some_and(|claim| claim.uid.is_some());
    if !names_uid || before.spec.released_at.is_some() {
        return false;
    }
    let still_exists = current.filter(|current| current.metadata.uid == before.metadata.uid);
    still_exists.is_none_or(|current| current.spec.released_at.is_some())
}

/// Whether two reservations are for the same claim, in the same state.
fn is_same_holder(one: &IPReservation, other: &IPReservation) -> bool {
    let holder = |reservation: &IPReservation| {
        let claim = reservation.spec.claim_ref.clone()?;
        // The name of the Cluster is only for counting.
        Some((claim.namespace, claim.name, claim.uid))
    };
    holder(one) == holder(other)
        // Two managers can have corrected or set the times at different seconds.
        && one.spec.quarantine.is_some() == other.spec.quarantine.is_some()
        && one.spec.released_at.is_some() == other.spec.released_at.is_some()
}

#[cfg(test)]
mod tests {
    use capi_ipam_api::{InClusterKind, Quarantine, Scope};
    use capi_ipam_controller::clock;
    use capi_ipam_ip::Block;
    use serde_json::{Value, json};

    use super::*;

    fn reservation(claim: &Value, released: bool) -> IPReservation {
        let released_at = released.then_some("2026-01-01T00:00:00Z");
        serde_json::from_value(json!({
            "spec": {"scope": "p.n.p", "address": "10.0.0.1", "claimRef": claim, "releasedAt": released_at,
                     "poolRef": {"kind": "InClusterIPPool", "namespace": "n", "name": "p"}},
        }))
        .unwrap()
    }

    #[test]
    fn only_a_reservation_of_a_claim_is_released() {
        let (of_claim, promise) = (
            json!({"namespace": "n", "name": "c", "uid": "u"}),
            json!({"namespace": "n", "name": "c"}),
        );
        let (held, released) = (reservation(&of_claim, false), reservation(&of_claim, true));
        assert!(is_released(&held, Some(&released)) && is_released(&held, None));
        assert!(
            !is_released(&held, Some(&held)),
            "only its labels have changed"
        );
        assert!(!is_released(&released, None), "its cool-down has ended");
        for manual in [&promise, &Value::Null] {
            assert!(
                !is_released(&reservation(manual, false), None),
                "a user has deleted it"
            );
        }
    }

    #[test]
    fn copy_of_a_marked_reservation_is_complete() {
        let read = reservation(&json!({"namespace": "n", "name": "c", "uid": "u"}), false);
        assert!(
            is_copied(&read, &marked(&read, &read)),
            "another manager moves it in the opposite direction"
        );
        let mut annotated = read.clone();
        annotated
            .annotations_mut()
            .insert("example.com/note".to_owned(), "new".to_owned());
        assert!(!is_copied(&read, &annotated));
    }

    #[test]
    fn holder_is_the_claim_in_its_state() {
        let claim = |uid: &str| json!({"namespace": "n", "name": "c", "uid": uid});
        let one = reservation(&claim("u"), false);
        let mut with_cluster = claim("u");
        with_cluster["cluster"] = json!("prod");
        // Versions and managers differ in whether they record the Cluster.
        assert!(is_same_holder(&one, &reservation(&with_cluster, false)));
        assert!(!is_same_holder(&one, &reservation(&claim("v"), false)));
        assert!(!is_same_holder(&one, &reservation(&claim("u"), true)));
        assert!(is_same_holder(
            &reservation(&Value::Null, false),
            &reservation(&Value::Null, false)
        ));
        let mut quarantined = reservation(&Value::Null, false);
        quarantined.spec.quarantine = Some(Quarantine {
            until: clock::now(),
            reason: "ARP reply".to_owned(),
        });
        assert!(!is_same_holder(
            &reservation(&Value::Null, false),
            &quarantined
        ));
        let pool = PoolKey::new(InClusterKind::IPPool, Some("n"), "p");
        let slot = Slot {
            scope: Scope::Network("lab".into()),
            block: Block::address([10, 0, 0, 1].into()),
        };
        assert!(is_same_holder(
            &quarantined,
            &copy_to(&quarantined, &slot, &pool)
        ));
    }
}
