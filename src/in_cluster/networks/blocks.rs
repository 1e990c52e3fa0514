//! What the status of a network says about its shared blocks.

use std::fmt::Write as _;

use capi_ipam_api::conditions::{self, Condition};
use capi_ipam_api::{IPNetwork, advice, counted};
use capi_ipam_controller::events::EventPublisher;
use capi_ipam_ledger::{BlockObstacle, NetworkBlocks};
use capi_ipam_registry::cidr;

/// The maximum number of conflicts that a message lists.
const MAX_LISTED: usize = 5;

/// The condition Ready of a network with a valid specification. `missing_registry` is the name of
/// its registry if that does not exist.
pub(super) fn ready(
    network: &str,
    obstacle: Option<&BlockObstacle>,
    missing_registry: Option<&str>,
) -> Condition {
    if let Some(registry) = missing_registry {
        let message = format!(
            "spec.blocks.registry: IPRegistry {registry} does not exist; no block is taken or returned, and a manager that starts \
             allocates no address of the network; {}",
            advice::missing_registry(registry)
        );
        return Condition::new(
            conditions::READY,
            false,
            conditions::REGISTRY_NOT_FOUND,
            message,
        );
    }
    let (reason, message) = match obstacle {
        Some(BlockObstacle::SizeDiffers { size, cluster }) => (
            conditions::BLOCK_SIZE_DIFFERS,
            format!(
                "spec.blocks.size: blocks have {size} addresses in management cluster {cluster}, which was the first one; \
                 no block is taken; set it to {size}"
            ),
        ),
        Some(BlockObstacle::RecordUndecodable) => (
            conditions::NETWORK_RECORD_INVALID,
            format!(
                "no block is taken: {}",
                advice::undecodable_network_record(network)
            ),
        ),
        _ => return Condition::new(conditions::READY, true, conditions::NETWORK_READY, ""),
    };
    Condition::new(conditions::READY, false, reason, message)
}

/// The condition BlockConflict; `None` for a network without shared blocks.
pub(super) fn conflict(found: Option<&NetworkBlocks>) -> Option<Condition> {
    let found = found?;
    let mut listed = Vec::new();
    let mut count = 0_usize;
    for view in &found.blocks {
        let Some(slice) = &view.slice else {
            continue;
        };
        let Some(other) = &slice.conflict else {
            continue;
        };
        count = count.saturating_add(1);
        if listed.len() < MAX_LISTED {
            let used = if view.is_used { "in use" } else { "not in use" };
            let block = cidr(view.block);
            listed.push(format!(
                "{block} ({used} in {}; the other one is {other})",
                slice.cluster
            ));
        }
    }
    let type_ = conditions::BLOCK_CONFLICT;
    if count == 0 {
        return Some(Condition::new(type_, false, conditions::NO_CONFLICT, ""));
    }
    let mut message = format!(
        "{} used by this management cluster and by another one: {}",
        counted(count, "block is", "blocks are"),
        listed.join(", ")
    );
    let more = count.saturating_sub(listed.len());
    if more > 0 {
        // Writing to a String does not fail.
        let _ = write!(message, " and {more} more");
    }
    message.push_str(
        ". Nothing in use is taken away, and no further address of them is allocated; the conflict of a block ends when \
         one of the two has no address of it in use",
    );
    Some(Condition::new(
        type_,
        true,
        conditions::BLOCKS_SHARED,
        message,
    ))
}

/// Publishes an event when the last conflict of a network has ended. `before` are its conditions
/// before the change, `changed` those that have changed.
pub(super) fn publish_end_of_conflict(
    events: &EventPublisher,
    network: &IPNetwork,
    before: &[Condition],
    changed: &[Condition],
) {
    let is_conflict = |list: &[Condition]| {
        let condition = conditions::find(list, conditions::BLOCK_CONFLICT)?;
        Some(condition.status == "True")
    };
    if is_conflict(before) == Some(true) && is_conflict(changed) == Some(false) {
        let note = "no other management cluster uses a block of this one any more";
        events.normal(network, &(), conditions::NO_CONFLICT, "Inspect", note);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undecodable_record_makes_the_network_not_ready() {
        let ready = |obstacle| ready("lab", obstacle, None);
        assert_eq!(ready(None).status, "True");
        assert_eq!(ready(Some(&BlockObstacle::Unreachable)).status, "True");
        let invalid = ready(Some(&BlockObstacle::RecordUndecodable));
        let reason = invalid.reason.as_deref();
        assert_eq!(
            (&*invalid.status, reason),
            ("False", Some(conditions::NETWORK_RECORD_INVALID))
        );
        let message = invalid.message.unwrap_or_default();
        assert!(message.contains("network.lab"), "{message}");
    }
}
