//! Slices that are compared with the records of the registry before their blocks are usable.

use super::*;

/// A ledger like [`restricted`] that compares slices.
fn comparing() -> Ledger {
    let mut ledger = restricted();
    ledger.require_comparisons();
    ledger
}

fn unconfirmed(first: u8) -> IPSlice {
    slice(first, json!({"spec": {"confirmedAt": null}}))
}

/// The slice with another version, and this change of its specification.
fn changed(first: u8, version: u64, spec: Value) -> IPSlice {
    let metadata = json!({"resourceVersion": version.to_string()});
    slice(first, json!({"metadata": metadata, "spec": spec}))
}

fn awaits_comparison(ledger: &Ledger, first: u8) -> bool {
    let slice = ledger.slice_of_block("lab", four(first));
    slice.expect("the slice exists").awaits_comparison
}

#[test]
fn block_is_usable_when_its_confirmation_was_seen() {
    let mut ledger = comparing();
    ledger.apply(&unconfirmed(4));
    assert!(!is_usable(&ledger, 4));
    ledger.apply(&changed(4, 6, json!({})));
    assert!(is_usable(&ledger, 4));
    // Neither a mark nor a response changes that.
    let marked = json!({"emptySince": "2026-01-01T00:00:00Z"});
    ledger.apply(&changed(4, 7, marked));
    assert!(!is_usable(&ledger, 4));
    ledger.insert_slice(&changed(4, 8, json!({})));
    assert!(is_usable(&ledger, 4));
}

#[test]
fn slice_that_is_seen_first_with_its_confirmation_is_compared() {
    let mut ledger = comparing();
    ledger.apply(&slice(4, json!({})));
    assert!(!is_usable(&ledger, 4));
    assert_eq!(propose(&mut ledger, "a"), None);
    ledger.set_block_compared("lab", four(4), "another");
    assert!(!is_usable(&ledger, 4));
    ledger.take_effects();
    ledger.set_block_compared("lab", four(4), "s-4");
    assert!(is_usable(&ledger, 4));
    let woken = ledger.take_effects().claims;
    assert_eq!(woken, [claim("a")], "the claim waits for an address");

    // Another slice of the block, as a backup can bring back one.
    let restored = json!({"metadata": {"uid": "restored", "resourceVersion": "9"}});
    ledger.apply(&slice(4, restored));
    assert!(!is_usable(&ledger, 4));
}

#[test]
fn slices_of_a_registry_that_cannot_be_reached_are_trusted() {
    let mut ledger = comparing();
    ledger.apply(&slice(4, json!({"spec": {"registry": "site"}})));
    ledger.trust_slices_of("other");
    assert!(!is_usable(&ledger, 4));
    ledger.trust_slices_of("site");
    assert!(is_usable(&ledger, 4));
    // Another registry has its name.
    ledger.forget_comparisons_of("site");
    assert!(!is_usable(&ledger, 4));
}

#[test]
fn block_that_another_record_overlaps_is_compared_again() {
    let usable = |ledger: &Ledger, first| ledger.is_block_usable("lab", four(first));
    let mut ledger = comparing();
    ledger.apply(&slice(4, json!({"spec": {"registry": "site"}})));
    ledger.apply(&slice(8, json!({"spec": {"registry": "site"}})));
    ledger.trust_slices_of("site");
    assert_eq!(ledger.compared_blocks("site").len(), 2);
    ledger.forget_comparisons_in("other", "lab", four(4));
    assert!(usable(&ledger, 4), "another registry");
    // One of another size contains the block.
    let larger = Block::new([10, 0, 0, 0].into(), 29);
    assert!(ledger.has_slice_in("lab", larger));
    ledger.forget_comparisons_in("site", "lab", larger);
    assert!(!usable(&ledger, 4));
    assert!(usable(&ledger, 8));
    assert_eq!(ledger.compared_blocks("site"), [("lab".into(), four(8))]);
    assert!(!ledger.has_slice_in("lab", four(12)));
}

#[test]
fn no_block_is_usable_while_another_cluster_has_the_identity() {
    let mut ledger = comparing();
    ledger.apply(&slice(4, json!({"spec": {"registry": "site"}})));
    ledger.trust_slices_of("site");
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
fn object_that_becomes_valid_is_compared() {
    let mut ledger = comparing();
    ledger.apply(&slice(4, json!({"spec": {"block": "no block"}})));
    ledger.apply(&changed(4, 6, json!({})));
    assert!(!is_usable(&ledger, 4));
}

#[test]
fn conflict_that_vanishes_is_compared_again() {
    let mut ledger = comparing();
    ledger.apply(&unconfirmed(4));
    let conflict = json!({"cluster": "east", "since": "2026-01-01T00:00:00Z"});
    ledger.apply(&changed(4, 6, json!({"conflict": conflict})));
    assert!(!is_usable(&ledger, 4));
    ledger.apply(&changed(4, 7, json!({})));
    assert!(!is_usable(&ledger, 4), "not every writer asks the registry");
    ledger.set_block_compared("lab", four(4), "s-4");
    assert!(is_usable(&ledger, 4));
}

#[test]
fn nothing_is_compared_after_a_restore() {
    let mut ledger = comparing();
    ledger.apply(&unconfirmed(4));
    ledger.apply(&changed(4, 6, json!({})));
    assert!(!awaits_comparison(&ledger, 4));
    Observe::<IPSlice>::restored(&mut ledger);
    ledger.set_management_cluster("site", "west");
    assert!(awaits_comparison(&ledger, 4));
    assert!(!is_usable(&ledger, 4));
    ledger.set_block_compared("lab", four(4), "s-4");
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
