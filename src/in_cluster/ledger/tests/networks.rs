//! Pools of one network.

use super::*;

#[test]
fn pools_of_one_network_never_propose_the_same_address() {
    let ledger = ledger();
    ledger.insert_reservation(&block_length(Family::V4, 32));
    ledger.apply_pool(&member("p", "10.0.0.1-10.0.0.3"));
    ledger.apply_pool(&member("q", "10.0.0.2-10.0.0.4"));
    assert!(ledger.overlapping(&named("p")).is_empty(), "they are in one network");
    assert_eq!(ledger.propose(&named("q"), &claim("a"), 1), Proposal::Slot(in_lab(2)));
    assert_eq!(ledger.propose(&named("p"), &claim("b"), 1), Proposal::Slot(in_lab(1)));
    assert_eq!(ledger.propose(&named("p"), &claim("c"), 1), Proposal::Slot(in_lab(3)));
    assert_eq!((free(&ledger, "p"), free(&ledger, "q")), (0, 1));
    ledger.drop_candidate(&in_lab(2));
    assert_eq!((free(&ledger, "p"), free(&ledger, "q")), (1, 2));
}

#[test]
fn address_observed_before_its_pool_joins_the_network() {
    let ledger = ledger();
    ledger.insert_reservation(&block_length(Family::V4, 32));
    ledger.apply(&address("a", 2));
    ledger.apply_pool(&member("q", "10.0.0.2-10.0.0.4"));
    assert_eq!(free(&ledger, "q"), 3, "the network of p is not known yet");
    ledger.apply_pool(&member("p", "10.0.0.1-10.0.0.3"));
    assert_eq!((free(&ledger, "p"), free(&ledger, "q")), (2, 2));
    assert_eq!((ledger.counts(&named("p")).used, ledger.counts(&named("q")).used), (1, 0));
    ledger.remove_pool(&PoolKey::of(&member("p", "")));
    assert_eq!(free(&ledger, "q"), 2, "the pool is deleted, its address is still in use");
    ledger.delete(&address("a", 2));
    assert_eq!(free(&ledger, "q"), 3);
    assert!(ledger.pool_info(&named("p")).is_none() && !known_pools(&ledger).contains(&named("p")));
}

#[test]
fn pool_needs_the_block_length_of_its_network() {
    let ledger = ledger();
    ledger.apply_pool(&member("p", "10.0.0.1-10.0.0.3"));
    assert_eq!(ledger.propose(&key(), &claim("a"), 1), Proposal::Wait);
    assert_eq!(ledger.missing_block_length(&key()), Some(("lab".into(), Family::V4, 32)));
    ledger.insert_reservation(&block_length(Family::V4, 24));
    let problem = ledger.pool_info(&key()).unwrap().usable.unwrap_err();
    assert!(problem.contains("spec.network") && problem.contains("length 24"), "{problem}");
    ledger.remove_reservation(&block_length(Family::V4, 24));
    ledger.insert_reservation(&block_length(Family::V4, 32));
    assert_eq!(ledger.propose(&key(), &claim("a"), 1), Proposal::Slot(in_lab(1)));
}

#[test]
fn overlapping_pools_are_found_unless_in_one_network() {
    let ledger = ledger();
    let other =
        |name: &str, addresses: &str| pool(json!({"metadata": {"name": name}, "spec": {"addresses": [addresses]}}));
    ledger.apply_pool(&pool(json!({})));
    ledger.apply_pool(&other("q", "10.0.0.8-10.0.0.20"));
    ledger.apply_pool(&other("r", "10.0.0.9-10.0.0.20"));
    ledger.apply_pool(&member("s", "10.0.0.1-10.0.0.8"));
    assert_eq!(ledger.overlapping(&key()), [named("q"), named("s")]);
    assert_eq!(ledger.overlapping(&named("r")), [named("q")]);
    ledger.apply_pool(&other("q", "10.0.0.9-10.0.0.20"));
    assert_eq!(ledger.overlapping(&key()), [named("s")]);
}
