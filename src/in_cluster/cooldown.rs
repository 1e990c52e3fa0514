//! The end of cool-downs: a released address can be reused once the grace period of its pool is over.
//!
//! Until then its reservation stays, with the time of the release. It is deleted when the period has ended, when the pool
//! is being deleted, and when the pool is gone.

use std::sync::Arc;
use std::time::Duration;

use capi_ipam_controller::client::{CallError, chain};
use capi_ipam_controller::clock;
use capi_ipam_controller::health::ReadinessGate;
use futures::StreamExt;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::api::PoolKey;
use super::context::Shared;
use super::ledger::CooledDown;

/// How much later a cool-down is ended for a pool that another process serves: only if that process does not.
const FOREIGN_DELAY_SECONDS: i64 = 60;
/// How many reservations are deleted at the same time.
const CONCURRENCY: usize = 8;
/// When a deletion that failed is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// Ends cool-downs on time until `stop` is cancelled. Begins once everything in `awaited` is listed: a pool that is not
/// known counts as gone.
pub(super) async fn run(shared: Arc<Shared>, awaited: Vec<ReadinessGate>, stop: CancellationToken) {
    let work = async {
        for synced in &awaited {
            synced.wait().await;
        }
        loop {
            let failed = end_all(&shared).await;
            let next = wait_time(&shared).map(|wait| if failed { wait.max(RETRY_DELAY) } else { wait });
            tokio::select! {
                () = sleep_for(next) => {}
                () = shared.ledger.cooldowns_changed() => {}
            }
        }
    };
    let _ = stop.run_until_cancelled(work).await;
}

fn is_served(shared: &Shared, pool: &PoolKey) -> bool {
    shared.selection.includes_namespace(pool.namespace.as_deref())
}

/// How long until the next cool-down ends; `None` when none is going on.
fn wait_time(shared: &Shared) -> Option<Duration> {
    let end = shared.ledger.next_cooldown_end(|pool| is_served(shared, pool), FOREIGN_DELAY_SECONDS)?;
    let now = jiff::Timestamp::now();
    let left = jiff::Timestamp::from_second(end).ok().map(|end| end.duration_since(now));
    Some(left.and_then(|left| Duration::try_from(left).ok()).unwrap_or_default())
}

async fn sleep_for(wait: Option<Duration>) {
    match wait {
        Some(wait) => tokio::time::sleep(wait).await,
        None => std::future::pending().await,
    }
}

/// Deletes the reservations whose cool-down has ended. Returns whether one of them is still there.
async fn end_all(shared: &Shared) -> bool {
    let now = clock::now().0.as_second();
    let ended = shared.ledger.cooled_down(now, |pool| is_served(shared, pool), FOREIGN_DELAY_SECONDS);
    let failures = futures::stream::iter(ended)
        .map(|ended| async move {
            end(shared, &ended).await.unwrap_or_else(|error| {
                debug!(slot = %ended.slot, error = chain(&error), "cannot end a cool-down, will retry");
                false
            })
        })
        .buffer_unordered(CONCURRENCY)
        .filter(|is_gone| std::future::ready(!is_gone));
    failures.count().await > 0
}

/// Returns whether the reservation is gone.
async fn end(shared: &Shared, ended: &CooledDown) -> Result<bool, CallError> {
    let name = ended.slot.reservation_name();
    match shared.reservations.delete_unchanged(&name, &ended.uid, &ended.version).await {
        Ok(_) => {
            shared.ledger.remove_reservation_of(&ended.slot, &ended.uid);
            debug!(reservation = name, "a cool-down has ended");
            Ok(true)
        }
        // Somebody changed it, or another one has the name.
        Err(error) if error.is_conflict() => {
            let found = shared.reservations.get(&name).await?;
            match &found {
                Some(found) => shared.ledger.insert_reservation(found),
                None => shared.ledger.remove_reservation_of(&ended.slot, &ended.uid),
            }
            Ok(found.is_none())
        }
        Err(error) => Err(error),
    }
}
