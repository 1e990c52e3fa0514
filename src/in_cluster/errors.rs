//! Errors of the handler of a claim that several of its steps report.

use std::time::Duration;

use capi_ipam_api::advice::{ANOTHER_POOL, LIMIT, NO_FREE_SLICE};
use capi_ipam_api::{PoolKey, conditions};
use capi_ipam_controller::client::{CallError, error_chain};
use capi_ipam_ledger::{LimitReached, SliceRefusal};
use capi_ipam_provider::prelude::HandlerError;

/// The delay before a claim that waits for a slice is reconciled again. The end of the assignment
/// wakes it earlier.
const PENDING_RETRY_DELAY: Duration = Duration::from_secs(5);

/// A request has failed. A conflict is expected, and is not reported at first.
pub(super) fn request_error(action: &str, error: CallError) -> HandlerError {
    if error.is_conflict() {
        return HandlerError::Conflict(error_chain(&error));
    }
    HandlerError::transient(format!("cannot {action}"), error)
}

/// The pool has changed since it was looked up: its next change enqueues the claim.
pub(super) fn cannot_allocate(pool: &PoolKey) -> HandlerError {
    HandlerError::PoolNotReady(format!("{pool} cannot allocate addresses now"))
}

/// The steps and the requests of the protocol do not fit together.
pub(super) fn unexpected_event() -> HandlerError {
    HandlerError::Permanent("unexpected step of the protocol; this is a bug".to_owned())
}

/// The error of a claim whose namespace or Cluster may have no further address.
pub(super) fn limit_error(pool: &PoolKey, limit: &LimitReached) -> HandlerError {
    HandlerError::QuotaExceeded(format!("{pool}: {limit}; {LIMIT}, or {ANOTHER_POOL}"))
}

/// The error of a claim whose owner may have no further address now. The claim is in the wait
/// queue.
pub(super) fn slice_unavailable(pool: &PoolKey, refusal: &SliceRefusal) -> HandlerError {
    let (reason, advice) = match refusal {
        SliceRefusal::Pending { .. } => {
            let message = format!("{pool}: {refusal}; the claim gets an address afterwards");
            return HandlerError::RetryAfter {
                message,
                after: PENDING_RETRY_DELAY,
            };
        }
        SliceRefusal::Limit { .. } => (conditions::SLICE_LIMIT, LIMIT),
        SliceRefusal::NoFreeSlice { .. } => (conditions::NO_FREE_SLICE, NO_FREE_SLICE),
    };
    let message = format!("{pool}: {refusal}; {advice}, or {ANOTHER_POOL}");
    HandlerError::Waiting { reason, message }
}
