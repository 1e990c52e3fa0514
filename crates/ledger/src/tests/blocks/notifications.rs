//! Which networks and pools a change of a block affects.

use super::*;

/// A change, and its description.
type ChangeOfLedger = (&'static str, fn(&mut Ledger));

#[test]
fn effects_name_the_network_whose_blocks_change() {
    let mut ledger = restricted();
    ledger.take_effects();
    let steps: [ChangeOfLedger; 8] = [
        ("a slice exists", |ledger| {
            ledger.apply(&slice(0, json!({"spec": {"confirmedAt": null}})));
        }),
        ("it is confirmed", |ledger| {
            ledger.insert_slice(&slice(0, json!({"metadata": {"resourceVersion": "6"}})));
        }),
        ("a block becomes used", |ledger| {
            ledger.apply(&address("x", 1));
        }),
        ("it becomes unused", |ledger| {
            ledger.delete(&address("x", 1));
        }),
        ("the identity changes", |ledger| {
            ledger.set_management_cluster("site", "east");
        }),
        ("a claim begins to wait", |ledger| {
            ledger.propose(&key(), &claim("a"), 1);
        }),
        ("a pool joins", |ledger| {
            ledger.apply_pool(&member("q", "10.0.0.1"));
        }),
        ("the slice is deleted", |ledger| {
            ledger.delete(&slice(0, json!({})));
        }),
    ];
    for (text, step) in steps {
        step(&mut ledger);
        let networks = ledger.take_effects().networks;
        assert_eq!(networks, ["lab".into()], "{text}");
    }
}

#[test]
fn only_pools_with_addresses_of_the_block_are_computed_again() {
    let mut ledger = Ledger::shared();
    ledger.set_management_cluster("site", "west");
    ledger.apply_network(&sharing(json!({})));
    for (name, addresses) in [("p", "10.0.0.1-10.0.0.7"), ("q", "10.0.0.8-10.0.0.12")] {
        ledger.apply_pool(&member(name, addresses));
    }
    ledger.apply_pool(&pool(
        json!({"metadata": {"name": "other", "uid": "other"}}),
    ));
    while ledger.take_effects().has_queued_refreshes {
        ledger.refresh();
    }
    ledger.apply(&slice(4, json!({})));
    assert_eq!(ledger.pools_to_refresh, [named("p")]);
    assert!(ledger.stale_networks.is_empty());
    // A proposal does not wait for the computation.
    assert!(begin_return(&mut ledger, 4, "s-4"));
    assert_eq!(propose(&mut ledger, "a"), None);
    ledger.cancel_slice_return(&scope(), four(4), "s-4");
    assert_eq!(propose(&mut ledger, "a"), Some(4));
}
