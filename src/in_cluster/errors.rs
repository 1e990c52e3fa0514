//! Errors of the handler of a claim that several of its steps report.

use std::fmt::Display;
use std::time::Duration;

use capi_ipam_api::advice::{ANOTHER_POOL, LIMIT, NO_FREE_SLICE};
use capi_ipam_api::{PoolKey, advice, conditions, counted};
use capi_ipam_controller::client::{CallError, error_chain};
use capi_ipam_ledger::{BlockObstacle, LimitReached, MissingBlock, SliceRefusal};
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

/// The pool, or the set, does not exist, or was created a moment ago.
pub(super) fn not_seen_yet(pool: impl Display) -> HandlerError {
    HandlerError::RetryAfter {
        message: format!("{pool} is not in the cache yet"),
        after: Duration::from_secs(1),
    }
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

/// The error of a claim of a pool that has no free address in the blocks of this management
/// cluster. The claim is in the wait queue.
pub(super) fn needs_block(pool: &PoolKey, missing: &MissingBlock) -> HandlerError {
    let wait = describe_missing_block(missing);
    HandlerError::Waiting {
        reason: block_reason(missing),
        message: format!(
            "{pool} has no free address for the claim in blocks of this management cluster; {wait}"
        ),
    }
}

/// The reason of a claim that needs a block.
pub(super) fn block_reason(missing: &MissingBlock) -> &'static str {
    match &missing.obstacle {
        Some(BlockObstacle::Unreachable) => conditions::REGISTRY_UNREACHABLE,
        _ => conditions::WAITING_FOR_BLOCK,
    }
}

/// What a claim waits for that needs a block.
pub(super) fn describe_missing_block(missing: &MissingBlock) -> String {
    let network = &missing.network;
    let Some(registry) = &missing.registry else {
        return format!(
            "network {network} does not share blocks any more (spec.blocks); waiting until the IPSlices of its blocks are \
             deleted"
        );
    };
    let wait = format!("waiting for another block of network {network} from registry {registry}");
    match &missing.obstacle {
        None => wait,
        Some(BlockObstacle::NoRegistry) => {
            let advice = advice::missing_registry(registry);
            format!("{wait}, which does not exist; {advice}")
        }
        Some(BlockObstacle::Unreachable) => {
            format!("{wait}, which cannot be reached; see kubectl describe ipregistries {registry}")
        }
        Some(BlockObstacle::Refused) => {
            format!("{wait}, which refuses a record; the log of the manager contains the error")
        }
        Some(BlockObstacle::Suspended) => format!(
            "{wait}, from which none is taken: another cluster writes with the identity of this management cluster; see \
             kubectl describe ipregistries {registry}"
        ),
        Some(BlockObstacle::Replaced) => format!(
            "{wait}, from which none is taken: it is not the registry that had the blocks of this management cluster; see \
             kubectl describe ipregistries {registry}"
        ),
        Some(BlockObstacle::Restored) => format!(
            "{wait}, from which none is taken until all management clusters have written their records again, since it \
             has lost some, or replaces another one; see kubectl describe ipregistries {registry}"
        ),
        Some(BlockObstacle::AllTaken) => format!(
            "{wait}: other management clusters have all blocks of its range, or have returned them less than \
             spec.blocks.quarantineSeconds ago; add addresses to the pool, or release addresses in another management \
             cluster"
        ),
        Some(BlockObstacle::Limit(most)) => format!(
            "{wait}: this management cluster has {}, as many as it may have; increase spec.blocks.most of the \
             network, or release addresses",
            counted(*most, "block", "blocks")
        ),
        Some(BlockObstacle::SizeDiffers { size, cluster }) => format!(
            "{wait}, from which none is taken: blocks have {size} addresses in management cluster {cluster}; set \
             spec.blocks.size of the network to {size} in all of them"
        ),
        Some(BlockObstacle::RecordUndecodable) => format!(
            "{wait}, from which none is taken: {}",
            advice::undecodable_network_record(network)
        ),
        Some(BlockObstacle::SliceUnavailable(slice)) => format!(
            "{wait}: no other block of its range is free, and IPSlice {slice} is not valid, is being deleted or belongs to \
             another management cluster; see kubectl get ipslices {slice} --output=yaml"
        ),
    }
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
