//! Cool-downs and quarantines: a released address can be reused when the grace period of its pool has
//! ended, a quarantined one at the time that its reservation has.
//!
//! Until then its reservation is kept, with the time of the release. It is deleted when the period
//! has ended, or when the pool is being deleted or does not exist. A sticky pool keeps it for
//! longer, for the next claim of the same name: other claims get the address after the period, if
//! no other address is free.
//!
//! The time of a release and the end of the period are times of the API server, so that managers
//! whose clocks differ agree. A release in the future, as a user or an earlier version with a wrong
//! clock may have written it, would hold the address for longer: its time is corrected in the
//! object, so that the address is held for one period from then on. In the same way the end of a
//! quarantine is limited.

use std::sync::Arc;
use std::time::Duration;

use capi_ipam_api::{AllocationCause, PoolKey};
use capi_ipam_controller::client::{CallError, error_chain};
use capi_ipam_controller::clock;
use capi_ipam_controller::manager::{BackgroundTask, NextRun};
use capi_ipam_ledger::KnownReservation;
use capi_ipam_provider::api::MAX_QUARANTINE;
use futures::StreamExt;
use tracing::{debug, info};

use super::allocation_log::Queue;
use super::context::Context;
use super::reservation_store::WriteResult;

/// The delay after which a cool-down is ended for a pool that another process manages, in case that
/// process does not.
const FOREIGN_DELAY_SECONDS: i64 = 60;
/// How far a release may be in the future before it is corrected. The clocks of several API servers
/// may differ.
const MAX_FUTURE_SECONDS: i64 = 60;
/// The number of reservations that are deleted concurrently.
const CONCURRENCY: usize = 8;
/// The delay before a failed write is retried.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Ends cool-downs on time. A pool that is not in the ledger counts as deleted.
pub(super) struct EndCooldowns(pub(super) Arc<Context>);

impl BackgroundTask for EndCooldowns {
    async fn run_once(&mut self) -> NextRun {
        let has_failed = end_expired(&self.0).await;
        match wait_time(&self.0) {
            None => NextRun::OnNotification,
            // The next end can be the one that could not be corrected.
            Some(_) if has_failed => NextRun::After(RETRY_DELAY),
            Some(wait) => NextRun::After(wait),
        }
    }

    async fn notified(&self) {
        self.0.ledger.cooldowns_changed().await;
    }
}

fn is_served(context: &Context, pool: &PoolKey) -> bool {
    context
        .selection
        .includes_namespace(pool.namespace.as_deref())
}

/// The time until the next cool-down ends; `None` without a cool-down.
fn wait_time(context: &Context) -> Option<Duration> {
    let end = context.ledger.read(|ledger| {
        ledger
            .pools()
            .next_cooldown_end(|pool| is_served(context, pool), FOREIGN_DELAY_SECONDS)
    })?;
    let now = clock::timestamp();
    let left = jiff::Timestamp::from_second(end)
        .ok()
        .map(|end| end.duration_since(now));
    Some(
        left.and_then(|left| Duration::try_from(left).ok())
            .unwrap_or_default(),
    )
}

/// Deletes the reservations whose cool-down has ended. Returns whether something has to be retried.
async fn end_expired(context: &Context) -> bool {
    let now = clock::now().0.as_second();
    let has_failed = correct_future_releases(context, now).await;
    let next = context.ledger.read(|ledger| {
        ledger
            .pools()
            .next_cooldown_end(|pool| is_served(context, pool), FOREIGN_DELAY_SECONDS)
    });
    let Some(next) = next.filter(|next| *next <= now) else {
        return has_failed;
    };
    // The time that follows from earlier responses is wrong if the clock of the API server was set
    // back since.
    let now = match context.contract.server_now().await {
        Ok(server_now) => now.min(server_now.as_second()),
        Err(error) => {
            debug!(
                error = error_chain(&error),
                "cannot read the time of the API server, will retry"
            );
            return true;
        }
    };
    if next > now {
        return true;
    }
    context.ledger.change(|ledger| ledger.end_cooldowns(now));
    let ended = context.ledger.read(|ledger| {
        ledger.cooled_down(now, |pool| is_served(context, pool), FOREIGN_DELAY_SECONDS)
    });
    let failures = futures::stream::iter(ended)
        .map(|ended| async move {
            end_cooldown(context, &ended).await.unwrap_or_else(|error| {
                debug!(slot = %ended.slot, error = error_chain(&error), "cannot end a cool-down, will retry");
                false
            })
        })
        .buffer_unordered(CONCURRENCY)
        .filter(|is_gone| std::future::ready(!is_gone));
    failures.count().await > 0 || has_failed
}

/// Sets the time of releases that are in the future to the second `now`, and limits the end of
/// quarantines. Returns whether something has to be retried.
async fn correct_future_releases(context: &Context, now: i64) -> bool {
    let latest_release = now.saturating_add(MAX_FUTURE_SECONDS);
    let latest_end = latest_release.saturating_add(MAX_QUARANTINE.as_secs());
    let (releases, quarantines) = context.ledger.read(|ledger| {
        (
            ledger.released_after(latest_release),
            ledger.quarantined_after(latest_end),
        )
    });
    let mut has_failed = false;
    for released in releases {
        let written = context.reservations.correct_release(&released).await;
        has_failed |= !is_corrected(&released, "spec.releasedAt", written);
    }
    for quarantined in quarantines {
        let written = context.reservations.limit_quarantine(&quarantined).await;
        has_failed |= !is_corrected(&quarantined, "spec.quarantine.until", written);
    }
    has_failed
}

/// Whether a time need not be corrected again. The next run finds one that has changed meanwhile.
fn is_corrected(
    known: &KnownReservation,
    field: &str,
    written: Result<WriteResult, CallError>,
) -> bool {
    let reservation = known.slot.reservation_name();
    match written {
        Ok(WriteResult::Done(_)) => {
            info!(
                reservation,
                "corrected {field}: it was too far in the future"
            );
        }
        Ok(WriteResult::Changed(_) | WriteResult::Gone) => {}
        Err(error) => {
            let error = error_chain(&error);
            debug!(reservation, error, "cannot correct {field}, will retry");
            return false;
        }
    }
    true
}

/// Deletes the reservation of an ended cool-down or quarantine. Returns whether it is deleted.
async fn end_cooldown(context: &Context, ended: &KnownReservation) -> Result<bool, CallError> {
    let is_quarantined = context
        .ledger
        .read(|ledger| ledger.addresses().is_quarantined(&ended.slot));
    match context.reservations.delete(ended).await? {
        WriteResult::Done(_) | WriteResult::Gone => {
            if is_quarantined {
                let (cause, place) = (AllocationCause::QuarantineEnded, (&ended.pool, &ended.slot));
                let event = |log: &Queue| Some(log.event(cause, place, None));
                context.allocations.record(event);
            }
            debug!(
                reservation = ended.slot.reservation_name(),
                "cool-down ended"
            );
            Ok(true)
        }
        WriteResult::Changed(_) => Ok(false),
    }
}
