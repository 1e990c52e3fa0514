//! The blocks from which pools allocate.

use super::*;

#[test]
fn pools_allocate_only_addresses_of_usable_blocks() {
    let mut ledger = restricted();
    assert_eq!(propose(&mut ledger, "a"), None);
    assert_eq!(free(&ledger, "p"), 0);
    ledger.insert_slice(&slice(4, json!({})));
    assert_eq!(take(&mut ledger), [claim("a")], "it was waiting");
    let got: Vec<_> = ["a", "b", "c", "d", "e"]
        .map(|name| propose(&mut ledger, name))
        .into();
    assert_eq!(got, [Some(4), Some(5), Some(6), Some(7), None]);
    ledger.insert_slice(&slice(0, json!({})));
    assert_eq!(take(&mut ledger), [claim("e")]);
    assert_eq!(free(&ledger, "p"), 3, "the block has .0, the pool not");
    assert_eq!(propose(&mut ledger, "e"), Some(1));
}

#[test]
fn each_condition_of_a_usable_block_counts() {
    let unusable = [
        json!({"spec": {"confirmedAt": null}}),
        json!({"spec": {"conflict": {"cluster": "east", "since": "2026-01-01T00:00:00Z"}}}),
        json!({"spec": {"emptySince": "2026-01-01T00:00:00Z"}}),
        json!({"spec": {"owner": {"name": "east"}}}),
        json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        json!({"spec": {"block": "10.0.0.5/30"}}),
    ];
    for change in unusable {
        let mut ledger = restricted();
        ledger.apply(&slice(4, json!({})));
        assert!(is_usable(&ledger, 4));
        let mut later = change.clone();
        json_patch::merge(&mut later, &json!({"metadata": {"resourceVersion": "6"}}));
        ledger.apply(&slice(4, later));
        assert!(!is_usable(&ledger, 4), "{change}");
        ledger.apply(&slice(4, json!({"metadata": {"resourceVersion": "7"}})));
        assert!(is_usable(&ledger, 4), "{change}");
    }
}

#[test]
fn nothing_is_usable_before_the_identity_is_known() {
    let mut ledger = ledger();
    ledger.apply_network(&sharing(json!({})));
    ledger.apply_pool(&member("p", "10.0.0.1-10.0.0.14"));
    ledger.apply(&slice(4, json!({})));
    ledger.set_management_cluster("another", "west");
    assert!(!is_usable(&ledger, 4));
    ledger.set_management_cluster("site", "east");
    assert!(!is_usable(&ledger, 4));
    ledger.set_management_cluster("site", "west");
    assert!(is_usable(&ledger, 4));
}

#[test]
fn addresses_in_use_outside_of_usable_blocks_stay_in_use() {
    let mut ledger = ledger();
    ledger.set_management_cluster("site", "west");
    ledger.apply_network(&lab(json!({})));
    ledger.apply_pool(&member("p", "10.0.0.1-10.0.0.14"));
    ledger.apply(&address("a", 5));
    ledger.apply_network(&sharing(json!({})));
    let counts = address_counts(&ledger);
    assert_eq!((counts.total, counts.used, counts.out_of_range), (0, 0, 1));
    assert!(ledger.pools().is_in_use(&key()));
    assert_eq!(ledger.in_unusable_blocks(&key()), 1);
    ledger.apply(&address("outside", 200));
    let counts = address_counts(&ledger);
    assert_eq!(counts.out_of_range, 2);
    assert_eq!(
        ledger.in_unusable_blocks(&key()),
        1,
        "the pool has the other one no longer"
    );
    ledger.delete(&address("outside", 200));
    ledger.apply(&slice(4, json!({})));
    let counts = address_counts(&ledger);
    assert_eq!((counts.total, counts.used, counts.free), (4, 1, 3));
    assert_eq!(ledger.in_unusable_blocks(&key()), 0);
    ledger.apply_network(&lab(json!({})));
    assert_eq!(address_counts(&ledger).total, 4, "a slice is left");
    ledger.delete(&slice(4, json!({})));
    let counts = address_counts(&ledger);
    assert_eq!((counts.total, counts.used, counts.free), (14, 1, 13));
}

#[test]
fn slices_restrict_a_network_without_shared_blocks() {
    for remove in [
        |ledger: &mut Ledger| ledger.apply_network(&lab(json!({}))),
        |ledger: &mut Ledger| {
            remove_network(ledger, "lab");
            ledger.apply_network(&lab(json!({"metadata": {"uid": "another"}})));
        },
        |ledger: &mut Ledger| {
            Observe::<IPNetwork>::init(ledger);
            Observe::<IPNetwork>::init_done(ledger);
            ledger.apply_network(&lab(json!({"metadata": {"uid": "another"}})));
        },
    ] {
        let mut ledger = restricted();
        ledger.apply(&slice(4, json!({})));
        remove(&mut ledger);
        assert_eq!(address_counts(&ledger).total, 4);
        assert_eq!(ledger.network_blocks("lab").unwrap().rules, None);
        let gone = slice(4, json!({}));
        Observe::<IPSlice>::init(&mut ledger);
        Observe::<IPSlice>::init_done(&mut ledger);
        assert_eq!(address_counts(&ledger).total, 14);
        assert_eq!(ledger.network_blocks("lab"), None);
        assert!(ledger.is_block_usable("lab", four(8)));
        ledger.insert_slice(&gone);
        assert_eq!(address_counts(&ledger).total, 14, "the list was later");
    }
}

#[test]
fn size_of_blocks_is_in_addresses_or_prefixes_of_the_network() {
    let mut ledger = ledger();
    let lengths = |ledger: &Ledger| {
        let lengths = ledger.network_blocks("lab").unwrap().lengths;
        (lengths.ipv4, lengths.ipv6)
    };
    let both = json!({"status": {"blockLengths": {"ipv4": 32, "ipv6": 64}}});
    ledger.apply_network(&sharing(both));
    assert_eq!(lengths(&ledger), (Some(30), Some(62)));
    let large = json!({
        "spec": {"blocks": {"size": 1024}},
        "status": {"blockLengths": {"ipv4": 8, "ipv6": null}},
    });
    ledger.apply_network(&sharing(large));
    let expected = (None, None);
    assert_eq!(
        lengths(&ledger),
        expected,
        "too large, and no length is set"
    );
}

#[test]
fn address_in_nested_slices_is_in_all_of_them() {
    let mut ledger = ledger();
    let eight = json!({
        "metadata": {"name": "n.lab.10.0.0.0-29", "uid": "large"}, "spec": {"block": "10.0.0.0/29"},
    });
    // The network does not exist, so no size is known.
    ledger.apply(&slice(0, eight));
    ledger.apply(&slice(0, json!({})));
    let large = Block::new([10, 0, 0, 0].into(), 29);
    let slices = |last| ledger.slices_containing("lab", block(last));
    assert_eq!(slices(1), [four(0), large]);
    assert_eq!(slices(5), [large]);
    assert_eq!(slices(9), []);
    assert_eq!(ledger.slices_containing("other", block(1)), []);
}

#[test]
fn overlapping_slices_are_usable_where_all_are() {
    let mut ledger = restricted();
    let two = json!({
        "metadata": {"name": "n.lab.10.0.0.4-31", "uid": "two"},
        "spec": {"block": "10.0.0.4/31", "confirmedAt": null},
    });
    ledger.apply(&slice(4, json!({})));
    ledger.apply(&slice(4, two.clone()));
    assert_eq!(free(&ledger, "p"), 2, ".6 and .7");
    assert!(!ledger.is_block_usable("lab", four(4)) && ledger.is_block_usable("lab", block(6)));
    ledger.apply(&address("x", 7));
    let used = |ledger: &Ledger, length: u8| {
        let views = ledger.network_blocks("lab").unwrap().blocks;
        let found = views.iter().find(|view| view.block.length() == length);
        found.unwrap().is_used
    };
    assert!(used(&ledger, 30) && !used(&ledger, 31));
    ledger.delete(&slice(4, two));
    assert_eq!(free(&ledger, "p"), 3);
}

#[test]
fn start_waits_for_the_slices() {
    let mut ledger = ledger();
    Observe::<IPNetwork>::init(&mut ledger);
    Observe::<IPSlice>::init(&mut ledger);
    ledger.begin_pool_list(InClusterKind::IPPool);
    ledger.apply_network(&lab(json!({})));
    ledger.apply_pool(&member("p", "10.0.0.1-10.0.0.14"));
    Observe::<IPNetwork>::init_done(&mut ledger);
    ledger.end_pool_list(InClusterKind::IPPool);
    assert_eq!(
        propose(&mut ledger, "a"),
        None,
        "a slice can restrict the network"
    );
    ledger.apply(&slice(4, json!({})));
    Observe::<IPSlice>::init_done(&mut ledger);
    assert_eq!(propose(&mut ledger, "a"), None, "no identity is known");
    ledger.set_management_cluster("site", "west");
    assert_eq!(propose(&mut ledger, "a"), Some(4));
}
