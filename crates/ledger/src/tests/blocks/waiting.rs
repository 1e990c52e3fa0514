//! Claims that wait for a block, and what prevents that there is one.

use capi_ipam_api::IPRegistry;

use super::*;

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
    assert!(blocks.members[0].waits);
    assert_eq!(allowed(&ledger), [true; 4]);
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

/// A claim that is moved before its pool waits for the pool, and then for its IPAddress.
#[test]
fn claim_needs_no_block_before_it_requests_an_address() {
    let mut ledger = restricted();
    let waits = |ledger: &Ledger| ledger.network_blocks("lab").unwrap().members[0].waits;
    let served = ledger.serving_or_wait(&key(), &claim("a"), 1, |_| false);
    assert!(served.is_none());
    assert!(!waits(&ledger));
    assert_eq!(propose(&mut ledger, "a"), None);
    assert!(waits(&ledger));
    // The pool does not serve it for a while.
    ledger.serving_or_wait(&key(), &claim("a"), 1, |_| false);
    assert!(!waits(&ledger));
    assert_eq!(propose(&mut ledger, "a"), None);
    assert!(waits(&ledger));
    ledger.apply(&slice(0, json!({})));
    assert!(propose(&mut ledger, "a").is_some());
    assert!(!waits(&ledger));
}

#[test]
fn block_is_used_or_awaited_until_the_claim_has_its_address() {
    let mut ledger = restricted();
    let state = |ledger: &Ledger| {
        let found = ledger.network_blocks("lab").unwrap();
        let is_used = found.blocks.iter().any(|view| view.is_used);
        (found.members[0].waits, found.members[0].turns, is_used)
    };
    assert_eq!(propose(&mut ledger, "a"), None);
    assert_eq!(state(&ledger), (true, 0, false));
    ledger.apply(&slice(0, json!({})));
    assert_eq!(state(&ledger), (false, 1, false));
    assert!(propose(&mut ledger, "a").is_some());
    assert_eq!(state(&ledger), (false, 0, true));
}

#[test]
fn claim_waits_for_the_block_of_the_address_that_it_requests() {
    let mut ledger = restricted();
    ledger.apply(&slice(0, json!({})));
    let requests = |last: u8| ClaimAttributes {
        requested: Some(block(last)),
        ..ClaimAttributes::from(1)
    };
    let needs_block = unavailable(Unavailable::NeedsBlock(MissingBlock {
        network: "lab".into(),
        registry: Some("site".to_owned()),
        obstacle: None,
    }));
    assert_eq!(
        ledger.propose(&key(), &claim("a"), requests(9)),
        needs_block
    );
    let outside = unavailable(Unavailable::NotInPool);
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
        let mut counts = networks[0].claims.clone();
        counts.retain(|(_, count)| *count > 0);
        counts
    };
    assert_eq!(waiting(&ledger), []);
    let requests = ClaimAttributes {
        requested: Some(block(9)),
        ..ClaimAttributes::from(1)
    };
    ledger.propose(&key(), &claim("r"), requests);
    assert_eq!(waiting(&ledger), [(None, 1)], "others would get an address");
    for name in ["a", "b", "c", "d", "e"] {
        propose(&mut ledger, name);
    }
    ledger.set_block_supply("lab", &of_pool(&key(), BlockObstacle::AllTaken));
    let obstacle = Some(BlockObstacle::AllTaken);
    assert_eq!(waiting(&ledger), [(obstacle, 2), (None, 1)], "d and e, r");
    ledger.apply(&slice(8, json!({})));
    assert_eq!(waiting(&ledger), []);
}

fn of_pool(pool: &PoolKey, obstacle: BlockObstacle) -> BlockSupply {
    BlockSupply {
        pools: [(pool.clone(), obstacle)].into(),
        ..BlockSupply::default()
    }
}

#[test]
fn obstacle_of_one_pool_is_not_that_of_another() {
    let mut ledger = restricted();
    ledger.apply_pool(&member("q", "10.0.0.16-10.0.0.19"));
    take(&mut ledger);
    let obstacle = |ledger: &mut Ledger, pool: &PoolKey, attributes: ClaimAttributes| match ledger
        .propose(pool, &claim(&pool.name), attributes)
    {
        Outcome::NotNow(
            Reason::NeedsBlock(missing) | Reason::Unavailable(Unavailable::NeedsBlock(missing)),
        ) => missing.obstacle,
        other => panic!("{other:?}"),
    };
    let other = PoolKey::new(InClusterKind::IPPool, Some("n"), "q");
    let any = || ClaimAttributes::from(1);
    assert_eq!(obstacle(&mut ledger, &key(), any()), None);
    assert_eq!(obstacle(&mut ledger, &other, any()), None);
    ledger.take_rechecks(9);
    let mut supply = of_pool(&key(), BlockObstacle::AllTaken);
    ledger.set_block_supply("lab", &supply);
    assert_eq!(ledger.take_rechecks(9).0, [claim("p")]);
    let taken = Some(BlockObstacle::AllTaken);
    assert_eq!(obstacle(&mut ledger, &key(), any()), taken);
    assert_eq!(obstacle(&mut ledger, &other, any()), None);

    // A request has its own one.
    supply.requested = [(block(9), BlockObstacle::Limit(1))].into();
    ledger.set_block_supply("lab", &supply);
    let requests = ClaimAttributes {
        requested: Some(block(9)),
        ..any()
    };
    let limit = Some(BlockObstacle::Limit(1));
    assert_eq!(obstacle(&mut ledger, &key(), requests), limit);
}

#[test]
fn headroom_above_the_free_addresses_needs_a_block() {
    let mut ledger = ledger();
    ledger.set_management_cluster("site", "west");
    ledger.apply_network(&sharing(json!({})));
    let selector = json!({"matchLabels": {"role": "control-plane"}});
    ledger.apply_pool(&pool(json!({
        "kind": "GlobalInClusterIPPool", "metadata": {"namespace": null},
        "spec": {"addresses": ["10.0.0.1-10.0.0.14"], "network": "lab",
                 "headroom": {"addresses": 4, "for": selector}},
    })));
    take(&mut ledger);
    let shared = PoolKey::new(InClusterKind::GlobalIPPool, None, "p");
    let waiting = |ledger: &Ledger| {
        let member = ledger.network_blocks("lab").unwrap().members.remove(0);
        (member.waits, member.needs_further_block)
    };
    let needs_block = |outcome| matches!(outcome, Outcome::NotNow(Reason::NeedsBlock(_)));
    assert!(needs_block(ledger.propose(&shared, &claim("a"), 1)));
    assert_eq!(waiting(&ledger), (true, false), "no address is free");
    ledger.apply(&slice(4, json!({})));
    assert_eq!(waiting(&ledger), (true, true), "all are headroom");
    assert!(needs_block(ledger.propose(&shared, &claim("a"), 1)));
    ledger.apply(&slice(8, json!({})));
    let outcome = ledger.propose(&shared, &claim("a"), 1);
    assert!(matches!(outcome, Outcome::Offer(_)), "{outcome:?}");
    assert_eq!(waiting(&ledger), (false, false));
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
fn pool_without_a_free_address_says_which_block_it_needs() {
    let mut ledger = ledger();
    ledger.apply_network(&sharing(json!({})));
    ledger.apply_pool(&member("p", "10.0.0.1-10.0.0.5"));
    ledger.set_management_cluster("site", "west");
    // It lacks two blocks of four addresses.
    let missing = ledger.missing_block(&key()).expect("it has no block");
    assert_eq!((&*missing.network, missing.obstacle), ("lab", None));
    ledger.apply(&slice(0, json!({})));
    assert!(ledger.missing_block(&key()).is_none(), "addresses are free");
    let mut offered = Vec::new();
    while let Outcome::Offer(slot) =
        ledger.propose(&key(), &claim(&format!("c{}", offered.len())), 1)
    {
        offered.push(slot);
    }
    assert!(ledger.missing_block(&key()).is_some(), "{offered:?}");

    // The status of the pool says why it gets none.
    ledger.take_effects();
    ledger.set_block_supply("lab", &supply(Some(BlockObstacle::AllTaken)));
    let effects = ledger.take_effects();
    assert_eq!(effects.pools, [key()]);
    let missing = ledger
        .missing_block(&key())
        .expect("it has no free address");
    assert_eq!(missing.obstacle, Some(BlockObstacle::AllTaken));
}

fn registry(name: &str) -> IPRegistry {
    let nats = json!({"servers": ["nats://a:4222"], "bucket": "b"});
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"nats": nats}}))
        .expect("it is a registry")
}

#[test]
fn network_is_reconciled_when_its_registry_changes() {
    let mut ledger = ledger();
    ledger.apply_network(&sharing(json!({})));
    ledger.take_effects();
    let networks = |ledger: &mut Ledger| ledger.take_effects().networks;
    Observe::<IPRegistry>::init(&mut ledger);
    Observe::<IPRegistry>::init_done(&mut ledger);
    assert!(ledger.lacks_registry("site"));
    assert_eq!(networks(&mut ledger), ["lab".into()]);
    ledger.apply(&registry("other"));
    assert_eq!(networks(&mut ledger), []);
    ledger.apply(&registry("site"));
    assert_eq!(networks(&mut ledger), ["lab".into()]);
    // Its status changes.
    ledger.apply(&registry("site"));
    assert_eq!(networks(&mut ledger), []);
    Observe::<IPRegistry>::delete(&mut ledger, &registry("site"));
    assert_eq!(networks(&mut ledger), ["lab".into()]);
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
    // Which registries exist is not known yet.
    assert_eq!(obstacle(&mut ledger), None);
    Observe::<IPRegistry>::init(&mut ledger);
    Observe::<IPRegistry>::init_done(&mut ledger);
    assert_eq!(obstacle(&mut ledger), Some(BlockObstacle::NoRegistry));
    Observe::<IPRegistry>::apply(&mut ledger, &registry("site"));
    assert_eq!(obstacle(&mut ledger), None);
    ledger.set_registry_obstacle("other", &BlockObstacle::Unreachable);
    assert_eq!(obstacle(&mut ledger), None);
    ledger.set_registry_obstacle("site", &BlockObstacle::Unreachable);
    assert_eq!(obstacle(&mut ledger), Some(BlockObstacle::Unreachable));
}
