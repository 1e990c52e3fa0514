//! When a write that the API server rejects is reported on its object.

use std::time::Duration;

use tracing::debug;

use super::{Action, Attempt};
use crate::client::CallError;
use crate::retry::{Retry, RetryPolicy};

/// The number of failures after which a rejected write is reported.
const FAILURES_BEFORE_REPORT: u32 = 2;
/// The number of conflicts after which a rejected write is reported: a webhook can reject it with
/// the code of a conflict, each time.
const CONFLICTS_BEFORE_REPORT: u32 = 10;

/// The delays after failures of a reconciler that writes the status of an object: it recovers
/// within seconds once the cause is gone.
const WRITE_RETRY: RetryPolicy = RetryPolicy {
    initial: Duration::from_millis(50),
    max: Duration::from_secs(10),
};

/// Decides what follows a failed attempt to write an object or its status. One that cannot be
/// serialized fails until it changes.
pub fn retry_write(error: &CallError, failures: u32) -> Retry {
    if error.is_unserializable() {
        Retry::GiveUp
    } else {
        Retry::After(WRITE_RETRY.delay(failures))
    }
}

impl<S> Attempt<S> {
    /// What follows from the result of a reconcile that writes the object: a conflict is no
    /// failure, and neither is that the object is gone. After a conflict, and if the object is
    /// being deleted, it is reconciled again after `delay`: only a reconcile that says so releases
    /// an object.
    ///
    /// # Errors
    /// The error of the reconcile, if it is neither.
    pub fn conclude(
        &mut self,
        is_deleting: bool,
        result: Result<Action, CallError>,
        delay: Duration,
    ) -> Result<Action, CallError> {
        match result {
            Err(error) if error.is_not_found() => Ok(if is_deleting {
                Action::Requeue(delay)
            } else {
                Action::AwaitChange
            }),
            Err(error) if error.is_conflict() => {
                self.has_conflict = true;
                debug!("conflict, will retry");
                Ok(Action::Requeue(delay))
            }
            result => result,
        }
    }

    /// Whether the API server rejects a write of the object lastingly, so that a further rejection
    /// is reported on the object.
    pub fn is_rejected_lastingly(&self) -> bool {
        self.failures >= FAILURES_BEFORE_REPORT || self.conflicts >= CONFLICTS_BEFORE_REPORT
    }

    /// Whether this is the first attempt with [`Self::is_rejected_lastingly`]: for what is reported
    /// once.
    pub fn begins_to_be_rejected_lastingly(&self) -> bool {
        self.failures == FAILURES_BEFORE_REPORT || self.conflicts == CONFLICTS_BEFORE_REPORT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_and_conflicts_are_reported_once_they_last() {
        let mut attempt = Attempt::<()>::default();
        assert!(!attempt.is_rejected_lastingly());
        attempt.failures = FAILURES_BEFORE_REPORT;
        assert!(attempt.is_rejected_lastingly() && attempt.begins_to_be_rejected_lastingly());
        attempt.failures += 1;
        assert!(attempt.is_rejected_lastingly() && !attempt.begins_to_be_rejected_lastingly());

        attempt.failures = 0;
        for _ in 0..CONFLICTS_BEFORE_REPORT {
            assert!(!attempt.is_rejected_lastingly());
            attempt.has_conflict = true;
            attempt = attempt.next();
        }
        assert!(attempt.is_rejected_lastingly() && attempt.begins_to_be_rejected_lastingly());
        attempt.keeps_cause = true;
        attempt = attempt.next();
        assert!(attempt.is_rejected_lastingly());
        assert!(!attempt.next().is_rejected_lastingly());
    }
}
