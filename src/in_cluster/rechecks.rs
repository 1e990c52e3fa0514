//! Claims that wait for an address of a pool which can no longer allocate: they report this.
//!
//! A hundred thousand claims can wait for one pool. So they are enqueued in batches, and reconciled at low priority.

use std::sync::Arc;
use std::time::Duration;

use capi_ipam_ledger::Ledger;
use tokio_util::sync::CancellationToken;

/// The number of claims that are enqueued at once.
const BATCH_SIZE: usize = 200;
/// The time between two batches: one of a busy manager takes longer, and is not waited for.
const BATCH_INTERVAL: Duration = Duration::from_millis(200);

/// Enqueues the claims until `stop` is cancelled.
pub(super) async fn run(ledger: Arc<Ledger>, stop: CancellationToken) {
    let work = async {
        loop {
            ledger.rechecks_added().await;
            while ledger.recheck(BATCH_SIZE) {
                tokio::time::sleep(BATCH_INTERVAL).await;
            }
        }
    };
    let _ = stop.run_until_cancelled(work).await;
}
