//! Restores of etcd: what a process knew before has no authority afterwards.
//!
//! A restore undoes writes: resourceVersions decrease, deleted objects exist again, and others have
//! never existed. Caches that compare versions would refuse the true state as old. So one watch or
//! read that sees an earlier state ends the epoch for all kinds at once: every handler forgets
//! which versions it knew, and every watch lists again.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

/// Tells all caches of a process that etcd was restored. Clones share it.
#[derive(Clone, Default)]
pub struct RestoreDetector(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// The number of restores.
    epoch: watch::Sender<u64>,
    /// What to call at a restore. It returns false if it is no longer needed.
    handlers: Mutex<Vec<Box<dyn Fn() -> bool + Send>>>,
}

/// The time between two restores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch(u64);

impl RestoreDetector {
    /// The current epoch.
    pub fn epoch(&self) -> Epoch {
        Epoch(*self.0.epoch.borrow())
    }

    /// Reports that a state was seen that is earlier than one that was known in `epoch`. Has no
    /// effect if that epoch has ended: several watches see the same restore.
    pub fn report(&self, epoch: Epoch) {
        // Under the lock, so that the caches are reset once.
        let mut handlers = self.0.handlers.lock();
        if self.epoch() != epoch {
            return;
        }
        handlers.retain(|handler| handler());
        self.0
            .epoch
            .send_modify(|number| *number = number.wrapping_add(1));
    }

    /// Waits until the epoch has ended.
    pub async fn ended(&self, epoch: Epoch) {
        let mut current = self.0.epoch.subscribe();
        if current.wait_for(|number| *number != epoch.0).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Calls `handler` at each restore, before the watches list again, until it returns false.
    pub fn subscribe(&self, handler: impl Fn() -> bool + Send + 'static) {
        self.0.handlers.lock().push(Box::new(handler));
    }
}

impl fmt::Debug for RestoreDetector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_tuple("RestoreDetector")
            .field(&self.epoch())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt;

    use super::*;

    #[test]
    fn restore_ends_the_epoch_once_for_all() {
        let detector = RestoreDetector::default();
        let calls = Arc::new(AtomicUsize::new(0));
        for is_needed in [true, false] {
            let calls = Arc::clone(&calls);
            detector.subscribe(move || {
                calls.fetch_add(1, Ordering::Relaxed);
                is_needed
            });
        }
        let first = detector.epoch();
        assert!(detector.ended(first).now_or_never().is_none());
        detector.report(first);
        detector.report(first);
        assert!(detector.ended(first).now_or_never().is_some() && detector.epoch() != first);
        assert_eq!(
            calls.load(Ordering::Relaxed),
            2,
            "the second report is of the same restore"
        );
        detector.report(detector.epoch());
        assert_eq!(
            calls.load(Ordering::Relaxed),
            3,
            "one of the handlers is gone"
        );
    }
}
