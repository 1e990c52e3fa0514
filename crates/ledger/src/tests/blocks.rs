//! Networks that share blocks with other management clusters.

mod model;

use capi_ipam_api::IPSlice;
use capi_ipam_objects::maybe_invalid::MaybeInvalid;
use serde_json::Value;

use super::*;

/// The network `lab` with blocks of four addresses from the registry `site`.
fn sharing(change: Value) -> IPNetwork {
    let mut network = json!({"spec": {"blocks": {"registry": "site", "size": 4}}});
    json_patch::merge(&mut network, &change);
    lab(network)
}

/// A usable slice of the block of four addresses that begins with this one.
fn slice(first: u8, change: Value) -> IPSlice {
    let mut object = json!({
        "metadata": {"name": format!("n.lab.10.0.0.{first}-30"), "uid": format!("s-{first}"), "resourceVersion": "5"},
        "spec": {"scope": "n.lab", "block": format!("10.0.0.{first}/30"),
                 "owner": {"kind": "ManagementCluster", "name": "west"},
                 "assignedAt": "2026-01-01T00:00:00Z", "confirmedAt": "2026-01-01T00:00:00Z"},
    });
    json_patch::merge(&mut object, &change);
    serde_json::from_value(object).unwrap()
}

fn four(first: u8) -> Block {
    Block::new([10, 0, 0, first].into(), 30)
}

/// A ledger with the network, and the pool `p` with .1 to .14.
fn restricted() -> Ledger {
    let mut ledger = ledger();
    ledger.set_management_cluster("site", "west");
    ledger.apply_network(&sharing(json!({})));
    ledger.apply_pool(&member("p", "10.0.0.1-10.0.0.14"));
    take(&mut ledger);
    ledger
}

fn propose(ledger: &mut Ledger, name: &str) -> Option<u8> {
    match ledger.propose(&key(), &claim(name), 1) {
        Outcome::Offer(slot) => (0..=255).find(|last| block(*last) == slot.block),
        _ => None,
    }
}

fn is_usable(ledger: &Ledger, first: u8) -> bool {
    let is_usable = ledger.is_block_usable("lab", four(first));
    let total = ledger.counts(&key()).total;
    assert_eq!(is_usable, total > 0, "the pool has the usable addresses");
    is_usable
}

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

/// A claim reserves an address, and reads then that its block is being returned. It waits, and no
/// address becomes free when the block is kept.
#[test]
fn claim_with_a_reservation_is_reconciled_when_its_block_is_kept() {
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
    let counts = ledger.counts(&key());
    assert_eq!((counts.total, counts.used, counts.out_of_range), (0, 0, 1));
    assert!(ledger.is_in_use(&key()));
    ledger.apply(&slice(4, json!({})));
    let counts = ledger.counts(&key());
    assert_eq!((counts.total, counts.used, counts.free), (4, 1, 3));
    ledger.apply_network(&lab(json!({})));
    assert_eq!(ledger.counts(&key()).total, 4, "a slice is left");
    ledger.delete(&slice(4, json!({})));
    let counts = ledger.counts(&key());
    assert_eq!((counts.total, counts.used, counts.free), (14, 1, 13));
}

#[test]
fn slices_restrict_a_network_without_shared_blocks() {
    for remove in [
        |ledger: &mut Ledger| ledger.apply_network(&lab(json!({}))),
        |ledger: &mut Ledger| {
            ledger.remove_network("lab");
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
        assert_eq!(ledger.counts(&key()).total, 4);
        assert_eq!(ledger.network_blocks("lab").unwrap().rules, None);
        let gone = slice(4, json!({}));
        Observe::<IPSlice>::init(&mut ledger);
        Observe::<IPSlice>::init_done(&mut ledger);
        assert_eq!(ledger.counts(&key()).total, 14);
        assert_eq!(ledger.network_blocks("lab"), None);
        assert!(ledger.is_block_usable("lab", four(8)));
        ledger.insert_slice(&gone);
        assert_eq!(ledger.counts(&key()).total, 14, "the list was later");
    }
}

#[test]
fn invalid_network_keeps_its_shared_blocks() {
    let undecodable = Invalid {
        error: "no date".to_owned(),
        metadata: Box::new(sharing(json!({})).metadata),
    };
    let mut ledger = restricted();
    Observe::<IPNetwork>::apply_invalid(&mut ledger, &undecodable);
    assert_eq!(propose(&mut ledger, "a"), None);
    assert!(!ledger.is_block_usable("lab", four(4)));
    ledger.apply_network(&sharing(json!({"spec": {"blocks": {"size": 5}}})));
    assert!(!ledger.is_block_usable("lab", four(4)));
    let rules = ledger.network_blocks("lab").unwrap().rules.unwrap();
    assert_eq!(rules.shift, 2, "of the last valid specification");
    ledger.apply_network(&sharing(json!({"spec": {"excluded": ["nonsense"]}})));
    assert!(!ledger.is_block_usable("lab", four(4)));
    ledger.apply_network(&lab(json!({})));
    assert!(ledger.is_block_usable("lab", four(4)));
}

#[test]
fn undecodable_slice_takes_its_block() {
    let mut ledger = restricted();
    let invalid = Invalid {
        error: "no date".to_owned(),
        metadata: Box::new(slice(4, json!({})).metadata),
    };
    Observe::<IPSlice>::apply_invalid(&mut ledger, &invalid);
    let blocks = ledger.network_blocks("lab").unwrap().blocks;
    let [view] = blocks.as_slice() else {
        panic!("{blocks:?}");
    };
    let found = view.slice.clone().unwrap();
    assert!(!found.is_valid && !found.is_usable && found.uid == "s-4");
    assert!(!is_usable(&ledger, 4));
    ledger.apply(&slice(4, json!({"metadata": {"resourceVersion": "6"}})));
    assert!(is_usable(&ledger, 4));
    Observe::<IPSlice>::delete_invalid(&mut ledger, &invalid);
    assert!(!is_usable(&ledger, 4));
    let mismatch = slice(8, json!({"spec": {"block": "10.0.0.4/30"}}));
    ledger.insert_found_block("lab", four(8), &MaybeInvalid(Ok(mismatch)));
    assert!(!is_usable(&ledger, 8));
}

#[test]
fn slice_of_a_network_with_a_hashed_name_is_found() {
    let name = "n".repeat(250);
    let mut ledger = ledger();
    ledger.apply_network(&sharing(json!({"metadata": {"name": name}})));
    let scope = Scope::Network(name.as_str().into());
    let text = reservation_name(&scope, four(4));
    assert!(text.starts_with("h."), "{text}");
    let invalid = Invalid {
        error: "no date".to_owned(),
        metadata: Box::new(slice(4, json!({"metadata": {"name": text}})).metadata),
    };
    Observe::<IPSlice>::apply_invalid(&mut ledger, &invalid);
    assert_eq!(ledger.network_blocks(&name).unwrap().blocks.len(), 1);
}

#[test]
fn nothing_is_allocated_from_a_block_that_is_returned() {
    let mut ledger = restricted();
    ledger.apply(&slice(4, json!({})));
    assert_eq!(propose(&mut ledger, "a"), Some(4));
    assert!(
        !ledger.begin_block_return("lab", four(4), "s-4"),
        "the reservation of an address is being created"
    );
    ledger.drop_candidate(&in_lab(4));
    assert!(!ledger.begin_block_return("lab", four(4), "another"));
    assert!(!ledger.begin_block_return("lab", four(8), "s-8"));
    assert!(ledger.begin_block_return("lab", four(4), "s-4"));
    assert!(!is_usable(&ledger, 4));
    ledger.apply(&slice(4, json!({"metadata": {"resourceVersion": "6"}})));
    assert_eq!(propose(&mut ledger, "a"), None);
    ledger.cancel_block_return("lab", four(4), "another");
    assert!(!is_usable(&ledger, 4));
    ledger.cancel_block_return("lab", four(4), "s-4");
    assert!(is_usable(&ledger, 4));
    assert!(ledger.begin_block_return("lab", four(4), "s-4"));
    ledger.remove_block_of("lab", four(4), "another");
    assert_eq!(ledger.network_blocks("lab").unwrap().blocks.len(), 1);
    ledger.remove_block_of("lab", four(4), "s-4");
    assert_eq!(ledger.network_blocks("lab").unwrap().blocks, []);
    ledger.apply(&slice(
        4,
        json!({"metadata": {"uid": "new", "resourceVersion": "9"}}),
    ));
    assert!(is_usable(&ledger, 4), "another slice is not being returned");
    ledger.forget_block("lab", four(4));
    assert!(!is_usable(&ledger, 4));
}

#[test]
fn claim_waits_for_a_block_of_the_network() {
    let mut ledger = restricted();
    let missing = |registry: Option<&str>| {
        Outcome::NotNow(Reason::NeedsBlock(MissingBlock {
            network: "lab".into(),
            registry: registry.map(str::to_owned),
            obstacle: None,
        }))
    };
    assert_eq!(
        ledger.propose(&key(), &claim("a"), 1),
        missing(Some("site"))
    );
    let networks = ledger.take_effects().networks;
    assert_eq!(networks, ["lab".into()], "a block may be needed");
    let blocks = ledger.network_blocks("lab").unwrap();
    assert!(blocks.members[0].waits && blocks.members[0].can_allocate);
    let wanted: Vec<_> = blocks.members[0].blocks().collect();
    assert_eq!(wanted, [four(0), four(4), four(8), four(12)]);
    ledger.apply(&slice(0, json!({})));
    assert_eq!(propose(&mut ledger, "a"), Some(1));
    assert!(!ledger.network_blocks("lab").unwrap().members[0].waits);
    ledger.apply_network(&lab(json!({})));
    for name in ["b", "c"] {
        assert!(propose(&mut ledger, name).is_some());
    }
    assert_eq!(ledger.propose(&key(), &claim("d"), 1), missing(None));
    for first in [4, 8, 12] {
        ledger.apply(&slice(first, json!({})));
    }
    for name in ["d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "o"] {
        assert!(propose(&mut ledger, name).is_some());
    }
    assert_eq!(
        ledger.propose(&key(), &claim("q"), 1),
        Outcome::NO_ADDRESS,
        "all blocks of the pool are usable"
    );
}

#[test]
fn claim_waits_for_the_block_of_the_address_that_it_requests() {
    let mut ledger = restricted();
    ledger.apply(&slice(0, json!({})));
    let requests = |last: u8| ClaimAttributes {
        requested: Some(block(last)),
        ..ClaimAttributes::from(1)
    };
    let needs_block = Outcome::NotNow(Reason::Unavailable(Unavailable::NeedsBlock(MissingBlock {
        network: "lab".into(),
        registry: Some("site".to_owned()),
        obstacle: None,
    })));
    assert_eq!(
        ledger.propose(&key(), &claim("a"), requests(9)),
        needs_block
    );
    let outside = Outcome::NotNow(Reason::Unavailable(Unavailable::NotInPool));
    assert_eq!(ledger.propose(&key(), &claim("b"), requests(15)), outside);
    let blocks = ledger.network_blocks("lab").unwrap();
    assert_eq!(blocks.members[0].requested, [block(9)]);
    assert!(
        !blocks.members[0].waits,
        "no claim waits for any other address"
    );
    take(&mut ledger);
    ledger.apply(&slice(4, json!({})));
    assert!(
        !take(&mut ledger).contains(&claim("a"))
            || ledger.propose(&key(), &claim("a"), requests(9)) == needs_block,
        "it is another block"
    );
    ledger.apply(&slice(8, json!({})));
    assert!(take(&mut ledger).contains(&claim("a")));
    assert_eq!(
        ledger.propose(&key(), &claim("a"), requests(9)),
        Outcome::Offer(in_lab(9))
    );
    assert_eq!(
        ledger.network_blocks("lab").unwrap().members[0].requested,
        []
    );
}

#[test]
fn claims_that_wait_for_a_block_are_counted() {
    let mut ledger = restricted();
    ledger.apply(&slice(0, json!({})));
    let waiting = |ledger: &Ledger| {
        let networks = ledger.waiting_for_blocks();
        assert_eq!((networks.len(), &*networks[0].network), (1, "lab"));
        (networks[0].claims, networks[0].obstacle.clone())
    };
    assert_eq!(waiting(&ledger), (0, None));
    let requests = ClaimAttributes {
        requested: Some(block(9)),
        ..ClaimAttributes::from(1)
    };
    ledger.propose(&key(), &claim("r"), requests);
    assert_eq!(waiting(&ledger), (1, None), "others would get an address");
    for name in ["a", "b", "c", "d", "e"] {
        propose(&mut ledger, name);
    }
    ledger.set_block_supply(
        "lab",
        &crate::BlockSupply {
            obstacle: Some(crate::BlockObstacle::AllTaken),
            ..crate::BlockSupply::default()
        },
    );
    let obstacle = Some(crate::BlockObstacle::AllTaken);
    assert_eq!(waiting(&ledger), (3, obstacle), "r, d and e");
    ledger.apply(&slice(8, json!({})));
    assert_eq!(waiting(&ledger).0, 0);
}

#[test]
fn excluded_addresses_need_no_block() {
    let mut ledger = restricted();
    ledger.apply_network(&sharing(
        json!({"spec": {"excluded": ["10.0.0.0/29", "10.0.0.12/30"]}}),
    ));
    let blocks = ledger.network_blocks("lab").unwrap();
    let wanted: Vec<_> = blocks.members[0].blocks().collect();
    assert_eq!(wanted, [four(8)]);
    assert!(blocks.members[0].uses(four(8)) && !blocks.members[0].uses(four(4)));
    ledger.apply_network(&sharing(json!({"spec": {"excluded": ["10.0.0.0/28"]}})));
    assert_eq!(ledger.propose(&key(), &claim("a"), 1), Outcome::NO_ADDRESS);
    ledger.apply_network(&sharing(json!({})));
    ledger.apply_pool(&pool(json!({
        "spec": {"addresses": ["10.0.0.1-10.0.0.14"], "draining": ["10.0.0.0/29"], "network": "lab"},
    })));
    let blocks = ledger.network_blocks("lab").unwrap();
    let wanted: Vec<_> = blocks.members[0].blocks().collect();
    assert_eq!(
        wanted,
        [four(8), four(12)],
        "nothing is allocated in draining parts"
    );
}

/// A block that the ledger shows as: used, usable, and with this number of free addresses.
fn view(ledger: &Ledger, first: u8) -> Option<(bool, bool, u128)> {
    let blocks = ledger.network_blocks("lab").unwrap().blocks;
    let found = blocks.into_iter().find(|view| view.block == four(first))?;
    let is_usable = found.slice.is_some_and(|slice| slice.is_usable);
    Some((found.is_used, is_usable, found.free))
}

#[test]
fn block_is_used_as_long_as_an_address_is_not_free() {
    let mut ledger = restricted();
    ledger.apply(&slice(4, json!({})));
    ledger.apply_pool(&pool(
        json!({"metadata": {"name": "q", "uid": "q"}, "spec": {"addresses": ["10.0.0.8-10.0.0.12"]}}),
    ));
    assert_eq!(view(&ledger, 4), Some((false, true, 4)));
    assert_eq!(
        ledger.network("lab").blocks.unwrap(),
        capi_ipam_api::BlockStatus {
            held: 1,
            spare: 1,
            others: 0,
            conflicts: 0,
            excluded: Vec::new(),
        }
    );
    // A proposal, an IPAddress, a reservation that excludes an address, one of another length.
    assert_eq!(propose(&mut ledger, "a"), Some(4));
    assert_eq!(view(&ledger, 4), Some((true, true, 3)));
    assert_eq!(ledger.network("lab").blocks.unwrap().spare, 0);
    ledger.drop_candidate(&in_lab(4));
    assert_eq!(view(&ledger, 4), Some((false, true, 4)));
    ledger.apply(&address("x", 13));
    assert_eq!(view(&ledger, 12), Some((true, false, 0)));
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
        assert_eq!(view(&ledger, 4), Some((true, true, 3)));
        assert!(!ledger.begin_block_return("lab", four(4), "s-4"));
        ledger.remove_reservation(&found);
        assert_eq!(view(&ledger, 4), Some((false, true, 4)));
    }
    // An object that is not valid takes the name of a reservation.
    let invalid = Invalid {
        error: "no date".to_owned(),
        metadata: Box::new(reserved("10.0.0.9", "i", Value::Null).metadata),
    };
    Observe::<IPReservation>::apply_invalid(&mut ledger, &invalid);
    assert_eq!(view(&ledger, 8), Some((true, false, 0)));
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
    assert_eq!(view(&ledger, 8), Some((true, false, 0)));
    ledger.remove_reservation(&in_pool);
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
    assert_eq!(view(&ledger, 4).map(|(is_used, ..)| is_used), Some(true));
    assert_eq!(view(&ledger, 0), None);
    assert!(!ledger.begin_block_return("lab", four(4), "s-4"));
    ledger.update(&slot, |usage| usage.is_name_taken = false);
    assert_eq!(view(&ledger, 4), Some((false, true, 4)));
}

#[test]
fn size_of_blocks_is_in_addresses_or_prefixes_of_the_network() {
    let mut ledger = ledger();
    let lengths = json!({"status": {"blockLengths": {"ipv4": 32, "ipv6": 64}}});
    ledger.apply_network(&sharing(lengths));
    let containing = |ledger: &Ledger, text: &str, length: u8| {
        let address = Block::new(text.parse().unwrap(), length);
        let found = ledger.block_containing("lab", address)?;
        Some(format!("{}/{}", found.base(), found.length()))
    };
    assert_eq!(
        containing(&ledger, "10.0.0.7", 32),
        Some("10.0.0.4/30".to_owned())
    );
    assert_eq!(
        containing(&ledger, "fd00:0:0:7::", 64),
        Some("fd00:0:0:4::/62".to_owned())
    );
    assert_eq!(containing(&ledger, "fd00::", 60), None, "it is larger");
    let large = json!({
        "spec": {"blocks": {"size": 1024}},
        "status": {"blockLengths": {"ipv4": 8, "ipv6": null}},
    });
    ledger.apply_network(&sharing(large));
    assert_eq!(containing(&ledger, "10.0.0.0", 8), None);
    assert_eq!(containing(&ledger, "fd00::", 64), None, "no length is set");
    assert_eq!(ledger.block_containing("other", block(1)), None);
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
    assert!(ledger.network_blocks("lab").unwrap().is_complete);
    assert_eq!(propose(&mut ledger, "a"), None, "no identity is known");
    ledger.set_management_cluster("site", "west");
    assert_eq!(propose(&mut ledger, "a"), Some(4));
}

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
    assert!(ledger.begin_block_return("lab", four(4), "s-4"));
    assert_eq!(propose(&mut ledger, "a"), None);
    ledger.cancel_block_return("lab", four(4), "s-4");
    assert_eq!(propose(&mut ledger, "a"), Some(4));
}

#[test]
fn pool_with_slices_needs_a_block_when_no_slice_is_free() {
    let mut ledger = restricted();
    ledger.apply_pool(&pool(json!({
        "spec": {"addresses": ["10.0.0.1-10.0.0.14"], "network": "lab",
                 "slices": {"size": 2, "per": "Label", "label": "rack"}},
    })));
    let of_rack = ClaimAttributes {
        slice_owner: Some(Arc::new(capi_ipam_api::SliceOwner {
            kind: capi_ipam_api::SliceOwnerKind::Label,
            namespace: None,
            name: "a".to_owned(),
        })),
        ..ClaimAttributes::from(1)
    };
    let outcome = ledger.propose(&key(), &claim("a"), of_rack.clone());
    assert!(
        matches!(outcome, Outcome::NotNow(Reason::SliceUnavailable(_))),
        "{outcome:?}"
    );
    assert!(ledger.network_blocks("lab").unwrap().members[0].waits);
    take(&mut ledger);
    ledger.apply(&slice(4, json!({})));
    assert!(take(&mut ledger).contains(&claim("a")));
    let outcome = ledger.propose(&key(), &claim("a"), of_rack);
    let first = Block::new([10, 0, 0, 4].into(), 31);
    assert_eq!(outcome, Outcome::First(Preparation::AssignSlice(first)));
}

fn supply(obstacle: Option<BlockObstacle>) -> BlockSupply {
    BlockSupply {
        obstacle,
        ..BlockSupply::default()
    }
}

#[test]
fn waiting_claims_learn_why_there_is_no_block() {
    let mut ledger = restricted();
    assert_eq!(propose(&mut ledger, "a"), None);
    assert_eq!(ledger.take_rechecks(9), (Vec::new(), false));
    // A block has a free address, which another claim gets.
    ledger.apply(&slice(4, json!({})));
    assert_eq!(propose(&mut ledger, "b"), Some(4));
    ledger.take_rechecks(9);
    ledger.set_block_supply("lab", &supply(Some(BlockObstacle::AllTaken)));
    let (rechecked, _) = ledger.take_rechecks(9);
    assert_eq!(rechecked, [claim("a")]);
}

#[test]
fn missing_and_unreachable_registries_are_obstacles() {
    let mut ledger = ledger();
    ledger.apply_network(&sharing(json!({})));
    ledger.apply_pool(&member("p", "10.0.0.1-10.0.0.14"));
    take(&mut ledger);
    let obstacle = |ledger: &mut Ledger| match ledger.propose(&key(), &claim("a"), 1) {
        Outcome::NotNow(Reason::NeedsBlock(missing)) => missing.obstacle,
        other => panic!("{other:?}"),
    };
    assert_eq!(obstacle(&mut ledger), Some(BlockObstacle::NoRegistry));
    ledger.set_management_cluster("site", "west");
    assert_eq!(obstacle(&mut ledger), None);
    ledger.set_registry_obstacle("other", &BlockObstacle::Unreachable);
    assert_eq!(obstacle(&mut ledger), None);
    ledger.set_registry_obstacle("site", &BlockObstacle::Unreachable);
    assert_eq!(obstacle(&mut ledger), Some(BlockObstacle::Unreachable));
}

#[test]
fn recorded_exclusions_stay_until_the_registry_shows_others() {
    let mut ledger = ledger();
    let status = json!({"status": {"blocks": {"held": 0, "spare": 0, "others": 0, "conflicts": 0, "excluded": ["10.0.0.5"]}}});
    ledger.apply_network(&sharing(status));
    let excluded = |ledger: &Ledger| ledger.network("lab").blocks.unwrap().excluded;
    assert_eq!(excluded(&ledger), ["10.0.0.5"]);
    ledger.set_block_supply("lab", &supply(Some(BlockObstacle::Unreachable)));
    assert_eq!(excluded(&ledger), ["10.0.0.5"]);
    let shown = BlockSupply {
        excluded: Some(vec!["10.0.0.6".to_owned()]),
        ..BlockSupply::default()
    };
    ledger.set_block_supply("lab", &shown);
    assert_eq!(excluded(&ledger), ["10.0.0.6"]);
}
