//! What the status of a network says about its shared blocks.

use std::fmt::Write as _;

use capi_ipam_api::conditions::{self, Condition};
use capi_ipam_api::{BlockStatus, IPNetwork, IPNetworkStatus, advice, counted};
use capi_ipam_controller::clock;
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

/// The counts of the blocks of a network. `before` are those of its status: the number of blocks of
/// other management clusters stays until the registry shows it.
pub(super) fn counts(found: &NetworkBlocks, before: Option<&BlockStatus>) -> BlockStatus {
    let mut counts = found.counts.clone();
    if let Some(before) = before
        && found.supply.others.is_none()
    {
        counts.others = before.others;
    }
    counts
}

/// Sets the conditions of the blocks of a network, and removes those that a network without shared
/// blocks does not have.
pub(super) fn set_conditions(status: &mut IPNetworkStatus, found: Option<&NetworkBlocks>) {
    let differing = found.and_then(|found| found.supply.differing_clusters.as_deref());
    let exclusions = differing.map(exclusions);
    for condition in found.map(conflict).into_iter().chain(exclusions) {
        let condition = condition.with_observed_generation(status.observed_generation);
        conditions::set(&mut status.conditions, condition, clock::now());
    }
    if found.is_none() {
        conditions::remove(&mut status.conditions, conditions::BLOCK_CONFLICT);
    }
    if found.is_none_or(|found| found.rules.is_none()) {
        conditions::remove(&mut status.conditions, conditions::EXCLUSIONS_DIFFER);
    }
}

/// The condition ExclusionsDiffer. `differing` are the management clusters that exclude other
/// addresses.
fn exclusions(differing: &[Box<str>]) -> Condition {
    let type_ = conditions::EXCLUSIONS_DIFFER;
    if differing.is_empty() {
        return Condition::new(type_, false, conditions::EXCLUSIONS_EQUAL, "");
    }
    let message = advice::exclusions_differ(differing);
    Condition::new(type_, true, type_, message)
}

fn conflict(found: &NetworkBlocks) -> Condition {
    let mut listed = Vec::new();
    let mut count = 0_usize;
    for view in &found.blocks {
        let Some(slice) = &view.slice else {
            continue;
        };
        let Some(other) = &slice.conflict else {
            continue;
        };
        count += 1;
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
        return Condition::new(type_, false, conditions::NO_CONFLICT, "");
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
    Condition::new(type_, true, conditions::BLOCKS_SHARED, message)
}

/// Publishes an event when the last conflict of a network has ended, and when the exclusions are
/// equal again. `before` are its conditions before the change, `changed` those that have changed.
pub(super) fn publish_ends(
    events: &EventPublisher,
    network: &IPNetwork,
    before: &[Condition],
    changed: &[Condition],
) {
    for (type_, reason, note) in [
        (
            conditions::BLOCK_CONFLICT,
            conditions::NO_CONFLICT,
            "no other management cluster uses a block of this one any more",
        ),
        (
            conditions::EXCLUSIONS_DIFFER,
            conditions::EXCLUSIONS_EQUAL,
            "all management clusters exclude the same addresses from the network",
        ),
    ] {
        let is_true = |list: &[Condition]| {
            let condition = conditions::find(list, type_)?;
            Some(condition.status == "True")
        };
        if is_true(before) == Some(true) && is_true(changed) == Some(false) {
            events.normal(network, &(), reason, "Inspect", note);
        }
    }
}

#[cfg(test)]
mod tests {
    use capi_ipam_api::SharedBlocks;

    use super::*;

    #[test]
    fn exclusions_differ_until_the_registry_shows_equal_ones() {
        let shared = SharedBlocks {
            registry: "site".to_owned(),
            size: 64,
            ..SharedBlocks::default()
        };
        let mut found = NetworkBlocks {
            rules: shared.rules().ok(),
            ..NetworkBlocks::default()
        };
        let mut status = IPNetworkStatus::default();
        let mut after = |found: Option<&NetworkBlocks>, differing: Option<&[&str]>| {
            let ids = differing.map(|ids| ids.iter().map(|id| Box::from(*id)).collect());
            let mut found = found.cloned();
            if let Some(found) = &mut found {
                found.supply.differing_clusters = ids;
            }
            set_conditions(&mut status, found.as_ref());
            let condition = conditions::find(&status.conditions, conditions::EXCLUSIONS_DIFFER)?;
            Some((
                condition.status.to_string(),
                condition.message.clone().unwrap_or_default(),
            ))
        };
        assert_eq!(after(Some(&found), None), None);
        let (is_different, message) = after(Some(&found), Some(&["east", "north"])).unwrap();
        assert_eq!(is_different, "True");
        assert!(message.contains("network: east, north;"), "{message}");
        let many = ["a", "b", "c", "d", "e", "f", "g"];
        let (_, message) = after(Some(&found), Some(&many)).unwrap();
        assert!(message.contains("a, b, c, d, e and 2 more;"), "{message}");
        assert_eq!(after(Some(&found), None).unwrap().1, message);
        let equal = Some(("False".to_owned(), String::new()));
        assert_eq!(after(Some(&found), Some(&[])), equal);
        found.rules = None;
        assert_eq!(after(Some(&found), Some(&[])), None);
        assert_eq!(after(None, None), None);
    }

    #[test]
    fn number_of_other_blocks_stays_until_the_registry_shows_it() {
        let before = BlockStatus {
            others: 7,
            ..BlockStatus::default()
        };
        let mut found = NetworkBlocks::default();
        assert_eq!(counts(&found, None).others, 0);
        assert_eq!(counts(&found, Some(&before)).others, 7);
        found.supply.others = Some(0);
        assert_eq!(counts(&found, Some(&before)).others, 0);
    }

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
