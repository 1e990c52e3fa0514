//! Claims that wait for an address of a pool which can no longer allocate: they report this.
//!
//! A hundred thousand claims can wait for one pool. So they are enqueued in batches, and reconciled
//! at low priority.

use std::sync::Arc;
use std::time::Duration;

use super::shared_ledger::SharedLedger;
use capi_ipam_controller::manager::{BackgroundTask, NextRun};

/// The number of claims that are enqueued at once.
const BATCH_SIZE: usize = 200;
/// The time between two batches: one of a busy manager takes longer, and is not waited for.
const BATCH_INTERVAL: Duration = Duration::from_millis(200);

/// Enqueues the claims.
pub(super) struct EnqueueRechecks(pub(super) Arc<SharedLedger>);

impl BackgroundTask for EnqueueRechecks {
    async fn run_once(&mut self) -> NextRun {
        while self.0.recheck(BATCH_SIZE) {
            // Another notification does not end the time between two batches.
            tokio::time::sleep(BATCH_INTERVAL).await;
        }
        NextRun::OnNotification
    }

    async fn notified(&self) {
        self.0.rechecks_added().await;
    }
}
