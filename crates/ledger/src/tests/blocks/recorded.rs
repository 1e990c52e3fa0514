//! What the registry shows of blocks, and whose slices are used.

use super::*;

fn of_site(first: u8) -> IPSlice {
    slice(first, json!({"spec": {"registry": "site"}}))
}

#[test]
fn only_recorded_blocks_are_usable_once_the_registry_is_listed() {
    let mut ledger = restricted();
    let usable = |ledger: &Ledger| [4, 8].map(|first| ledger.is_block_usable("lab", four(first)));
    ledger.apply(&of_site(4));
    ledger.apply(&of_site(8));
    assert_eq!(usable(&ledger), [true, true]);
    // What another registry shows is not about these blocks.
    ledger.set_recorded_blocks("other", Some(Vec::new()));
    ledger.set_block_recorded("site", "lab", four(4), false);
    assert_eq!(usable(&ledger), [true, true]);
    let of_lab = vec![("lab".into(), four(4)), ("test".into(), four(8))];
    ledger.set_recorded_blocks("site", Some(of_lab));
    assert_eq!(usable(&ledger), [true, false]);
    ledger.set_recorded_blocks("site", None);
    assert_eq!(usable(&ledger), [true, true]);
}

#[test]
fn claim_waits_as_long_as_the_registry_shows_another_user() {
    let mut ledger = restricted();
    ledger.apply(&of_site(4));
    ledger.set_recorded_blocks("site", Some(vec![("lab".into(), four(4))]));
    assert!(is_usable(&ledger, 4));
    ledger.set_block_recorded("site", "lab", four(4), false);
    assert!(!is_usable(&ledger, 4));
    assert_eq!(propose(&mut ledger, "a"), None);
    ledger.take_effects();
    ledger.set_block_recorded("site", "lab", four(4), true);
    assert!(is_usable(&ledger, 4));
    let woken = ledger.take_effects().claims;
    assert_eq!(woken, [claim("a")], "the claim waits for an address");
}

#[test]
fn conflict_is_unmarked_until_the_slice_says_so() {
    let mut ledger = restricted();
    let is_unmarked = |ledger: &Ledger| ledger.is_in_unmarked_conflict("lab", block(5));
    ledger.apply(&of_site(4));
    assert!(!is_unmarked(&ledger), "the registry is not listed");
    ledger.set_recorded_blocks("site", Some(Vec::new()));
    assert!(is_unmarked(&ledger));
    let conflict = json!({"cluster": "east", "since": "2026-01-01T00:00:00Z"});
    let spec = json!({"registry": "site", "conflict": conflict});
    let change = json!({"metadata": {"resourceVersion": "6"}, "spec": spec});
    ledger.apply(&slice(4, change));
    assert!(!is_unmarked(&ledger));
}

/// The blocks that this management cluster had at the time of the backup are still its own.
#[test]
fn restored_slices_are_usable() {
    let mut ledger = restricted();
    ledger.apply(&of_site(4));
    Observe::<IPSlice>::restored(&mut ledger);
    assert!(is_usable(&ledger, 4));
}

#[test]
fn no_block_is_usable_while_another_cluster_has_the_identity() {
    let mut ledger = restricted();
    ledger.apply(&of_site(4));
    assert!(is_usable(&ledger, 4));
    ledger.suspend_blocks_of("site", true);
    assert!(!is_usable(&ledger, 4));
    assert_eq!(ledger.management_cluster("site").as_deref(), Some("west"));
    // Also when the network shares no blocks any more.
    ledger.apply_network(&lab(json!({})));
    assert!(!is_usable(&ledger, 4));
    ledger.suspend_blocks_of("site", false);
    assert!(is_usable(&ledger, 4));
}

#[test]
fn block_of_another_registry_is_not_usable() {
    let mut ledger = restricted();
    ledger.set_management_cluster("other", "west");
    ledger.apply(&slice(4, json!({"spec": {"registry": "site"}})));
    assert!(is_usable(&ledger, 4));
    let other = json!({"spec": {"blocks": {"registry": "other"}}});
    ledger.apply_network(&sharing(other));
    assert!(!is_usable(&ledger, 4));
    // When the network shares none any more, the block is used until it is returned.
    ledger.apply_network(&lab(json!({})));
    assert!(is_usable(&ledger, 4));
    ledger.apply_network(&sharing(json!({})));
    assert!(is_usable(&ledger, 4));
}

#[test]
fn only_own_blocks_have_to_be_returned_to_another_registry() {
    let mut ledger = restricted();
    let of_site = |first: u8, owner: &str| {
        let owner = json!({"kind": "ManagementCluster", "name": owner});
        slice(first, json!({"spec": {"registry": "site", "owner": owner}}))
    };
    ledger.apply(&of_site(4, "east"));
    assert_eq!(ledger.blocks_of_other_registry("lab", "other"), None);
    ledger.apply(&of_site(8, "west"));
    let found = ledger.blocks_of_other_registry("lab", "other");
    assert_eq!(found, Some(("site".to_owned(), 1)));
    assert_eq!(ledger.blocks_of_other_registry("lab", "site"), None);
}
