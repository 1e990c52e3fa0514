//! The return of blocks, and the use of addresses that prevents it.

use super::*;
use crate::addresses::UsageMap;

/// A block that the ledger shows as: used, and usable.
fn view(ledger: &Ledger, first: u8) -> Option<(bool, bool)> {
    let blocks = ledger.network_blocks("lab").unwrap().blocks;
    let found = blocks.into_iter().find(|view| view.block == four(first))?;
    let is_usable = found.slice.is_some_and(|slice| slice.is_usable);
    Some((found.is_used, is_usable))
}

#[test]
fn nothing_is_allocated_from_a_block_that_is_returned() {
    let mut ledger = restricted();
    ledger.apply(&slice(4, json!({})));
    assert_eq!(propose(&mut ledger, "a"), Some(4));
    assert!(
        !begin_return(&mut ledger, 4, "s-4"),
        "the reservation of an address is being created"
    );
    ledger.drop_candidate(&in_lab(4));
    assert!(!begin_return(&mut ledger, 4, "another"));
    assert!(!begin_return(&mut ledger, 8, "s-8"));
    assert!(begin_return(&mut ledger, 4, "s-4"));
    assert!(!is_usable(&ledger, 4));
    ledger.apply(&slice(4, json!({"metadata": {"resourceVersion": "6"}})));
    assert_eq!(propose(&mut ledger, "a"), None);
    ledger.cancel_slice_return(&scope(), four(4), "another");
    assert!(!is_usable(&ledger, 4));
    ledger.cancel_slice_return(&scope(), four(4), "s-4");
    assert!(is_usable(&ledger, 4));
    assert!(begin_return(&mut ledger, 4, "s-4"));
    ledger.remove_slice_of(&scope(), four(4), "another");
    assert_eq!(ledger.network_blocks("lab").unwrap().blocks.len(), 1);
    ledger.remove_slice_of(&scope(), four(4), "s-4");
    assert_eq!(ledger.network_blocks("lab").unwrap().blocks, []);
    ledger.apply(&slice(
        4,
        json!({"metadata": {"uid": "new", "resourceVersion": "9"}}),
    ));
    assert!(is_usable(&ledger, 4), "another slice is not being returned");
    ledger.forget_slice(&scope(), four(4));
    assert!(!is_usable(&ledger, 4));
}

/// The network is deleted, or shares no blocks any more. Its last slice is returned, and then the
/// record of the block is, unless an address is reserved meanwhile.
#[test]
fn block_of_a_network_that_shares_none_can_be_unused() {
    for end in [
        |ledger: &mut Ledger| ledger.apply_network(&lab(json!({}))),
        |ledger: &mut Ledger| remove_network(ledger, "lab"),
    ] {
        let mut ledger = restricted();
        ledger.apply(&slice(4, json!({})));
        end(&mut ledger);
        assert!(!ledger.is_block_used("lab", four(4)));
        assert!(begin_return(&mut ledger, 4, "s-4"));
        ledger.remove_slice_of(&scope(), four(4), "s-4");
        assert_eq!(ledger.network_blocks("lab"), None);
        assert!(!ledger.is_block_used("lab", four(4)));
        let mut reserved = reservation(5, held_by("a"), None);
        reserved.metadata.name = Some("n.lab.10.0.0.5".to_owned());
        "n.lab".clone_into(&mut reserved.spec.scope);
        ledger.insert_reservation(&reserved);
        assert!(ledger.is_block_used("lab", four(4)));
        assert!(!ledger.is_block_used("lab", four(8)));
        ledger.delete(&reserved);
        assert!(!ledger.is_block_used("lab", four(4)));
        Observe::<IPNetwork>::init(&mut ledger);
        Observe::<IPNetwork>::init_done(&mut ledger);
        assert!(!ledger.is_block_used("lab", four(4)));
    }
}

#[test]
fn block_counts_as_used_until_the_initial_lists_are_complete() {
    let mut ledger = ledger();
    Observe::<IPNetwork>::init(&mut ledger);
    assert!(ledger.is_block_used("lab", four(4)));
    Observe::<IPNetwork>::init_done(&mut ledger);
    take(&mut ledger);
    assert!(!ledger.is_block_used("lab", four(4)));
}

/// All pools of the network are deleted, so the length of its blocks is not known any more. Its
/// last block is returned all the same.
#[test]
fn last_block_of_a_network_without_pools_can_be_unused() {
    let mut ledger = ledger();
    let without_lengths = lab(json!({
        "spec": {"blocks": {"registry": "site", "size": 4}},
        "status": {"blockLengths": {"ipv4": null}},
    }));
    ledger.apply_network(&without_lengths);
    assert!(!ledger.is_block_used("lab", four(4)));
    let mut reserved = reservation(5, held_by("a"), None);
    reserved.metadata.name = Some("n.lab.10.0.0.5".to_owned());
    "n.lab".clone_into(&mut reserved.spec.scope);
    ledger.insert_reservation(&reserved);
    assert!(ledger.is_block_used("lab", four(4)));
    assert!(!ledger.is_block_used("lab", four(8)));
}

/// A claim reserves an address, and reads then that its block is being returned. It waits, and no
/// address becomes free when the block is kept.
#[test]
fn reserved_claim_is_reconciled_when_its_block_is_kept() {
    let mut ledger = restricted();
    ledger.apply(&slice(4, json!({})));
    assert_eq!(propose(&mut ledger, "a"), Some(4));
    let marked = json!({"metadata": {"resourceVersion": "6"}, "spec": {"emptySince": "2026-01-01T00:00:00Z"}});
    ledger.apply(&slice(4, marked));
    let mut reserved = reservation(4, held_by("a"), None);
    reserved.metadata.name = Some("n.lab.10.0.0.4".to_owned());
    "n.lab".clone_into(&mut reserved.spec.scope);
    ledger.insert_reservation(&reserved);
    take(&mut ledger);
    ledger.apply(&slice(4, json!({"metadata": {"resourceVersion": "7"}})));
    assert_eq!(take(&mut ledger), [claim("a")]);
    ledger.apply(&address("a", 4));
    take(&mut ledger);
    let marked = json!({"metadata": {"resourceVersion": "8"}, "spec": {"emptySince": "2026-01-01T00:00:00Z"}});
    ledger.apply(&slice(4, marked));
    ledger.apply(&slice(4, json!({"metadata": {"resourceVersion": "9"}})));
    assert_eq!(take(&mut ledger), [], "it has its address");
}

#[test]
fn block_is_used_as_long_as_an_address_is_not_free() {
    let mut ledger = restricted();
    ledger.apply(&slice(4, json!({})));
    ledger.apply_pool(&pool(
        json!({"metadata": {"name": "q", "uid": "q"}, "spec": {"addresses": ["10.0.0.8-10.0.0.12"]}}),
    ));
    assert_eq!(view(&ledger, 4), Some((false, true)));
    assert_eq!(
        ledger.network_blocks("lab").unwrap().counts,
        capi_ipam_api::BlockStatus {
            held: 1,
            spare: 1,
            others: 0,
            conflicts: 0,
        }
    );
    // A proposal, an IPAddress, a reservation that excludes an address, one of another length.
    assert_eq!(propose(&mut ledger, "a"), Some(4));
    assert_eq!(view(&ledger, 4), Some((true, true)));
    assert_eq!(ledger.network_blocks("lab").unwrap().counts.spare, 0);
    ledger.drop_candidate(&in_lab(4));
    assert_eq!(view(&ledger, 4), Some((false, true)));
    ledger.apply(&address("x", 13));
    assert_eq!(view(&ledger, 12), Some((true, false)));
    ledger.delete(&address("x", 13));
    assert_eq!(view(&ledger, 12), None, "it has neither slice nor address");
    let reserved = |text: &str, name: &str, released: Value| -> IPReservation {
        serde_json::from_value(json!({
            "metadata": {"name": format!("n.lab.{}", text.replace('/', "-")), "uid": name},
            "spec": {"scope": "n.lab", "address": text.split('/').next(), "releasedAt": released,
                     "claimRef": if released.is_null() { Value::Null } else { held_by("r") },
                     "poolRef": {"kind": "InClusterIPPool", "namespace": "n", "name": "p"}},
        }))
        .unwrap()
    };
    for (uid, released) in [("r1", Value::Null), ("r2", json!("2026-01-01T00:00:00Z"))] {
        let found = reserved("10.0.0.5", uid, released);
        ledger.insert_reservation(&found);
        assert_eq!(view(&ledger, 4), Some((true, true)));
        assert!(!begin_return(&mut ledger, 4, "s-4"));
        ledger.delete(&found);
        assert_eq!(view(&ledger, 4), Some((false, true)));
    }
    // An object that is not valid takes the name of a reservation.
    let invalid = Invalid {
        spec: serde_json::Value::Null,
        error: "no date".to_owned(),
        metadata: Box::new(reserved("10.0.0.9", "i", Value::Null).metadata),
    };
    Observe::<IPReservation>::apply_invalid(&mut ledger, &invalid);
    assert_eq!(view(&ledger, 8), Some((true, false)));
    Observe::<IPReservation>::delete_invalid(&mut ledger, &invalid);
    // The pool joins the network while its address is reserved in its own scope.
    let in_pool: IPReservation = serde_json::from_value(json!({
        "metadata": {"name": "p.n.q.10.0.0.9", "uid": "q9"},
        "spec": {"scope": "p.n.q", "address": "10.0.0.9", "claimRef": held_by("q9"),
                 "poolRef": {"kind": "InClusterIPPool", "namespace": "n", "name": "q"}},
    }))
    .unwrap();
    ledger.insert_reservation(&in_pool);
    assert_eq!(view(&ledger, 8), None);
    ledger.apply_pool(&member("q", "10.0.0.8-10.0.0.12"));
    assert_eq!(view(&ledger, 8), Some((true, false)));
    ledger.delete(&in_pool);
    assert_eq!(view(&ledger, 8), None);
}

#[test]
fn reservation_of_several_blocks_uses_those_with_a_slice() {
    let mut ledger = restricted();
    ledger.apply(&slice(4, json!({})));
    let slot = Slot {
        scope: Scope::Network("lab".into()),
        block: Block::new([10, 0, 0, 0].into(), 29),
    };
    ledger.update(&slot, |usage| usage.is_name_taken = true);
    assert_eq!(view(&ledger, 4).map(|(is_used, _)| is_used), Some(true));
    assert_eq!(view(&ledger, 0), None);
    assert!(!begin_return(&mut ledger, 4, "s-4"));
    ledger.update(&slot, |usage| usage.is_name_taken = false);
    assert_eq!(view(&ledger, 4), Some((false, true)));
}

fn small_block() -> impl Strategy<Value = Block> {
    (0..64_u8, 26..=32_u8).prop_map(|(last, length)| Block::new([10, 0, 0, last].into(), length))
}

proptest! {
    #[test]
    fn use_of_blocks_agrees_with_a_search(
        used in proptest::collection::btree_set(small_block(), 0..8),
        block in small_block(),
    ) {
        let mut usage = UsageMap::default();
        for used in &used {
            usage.get_or_insert(*used);
        }
        prop_assert_eq!(usage.has_address_in(block), used.iter().any(|used| used.overlaps(block)));
        let parts = used.iter().filter(|used| used.length() >= block.length());
        let blocks = parts.map(|used| Block::new(used.base(), block.length()));
        let blocks: BTreeSet<Block> = blocks.collect();
        let found = usage.blocks_in_use(Family::V4, block.length());
        prop_assert_eq!(found, Vec::from_iter(blocks));
        prop_assert_eq!(usage.blocks_in_use(Family::V6, block.length()), []);
    }
}
