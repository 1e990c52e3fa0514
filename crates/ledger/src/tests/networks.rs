//! Pools of one network.

use super::*;

#[test]
fn pools_of_one_network_never_propose_the_same_address() {
    let mut ledger = with_lab();
    ledger.apply_pool(&member("p", "10.0.0.1-10.0.0.3"));
    ledger.apply_pool(&member("q", "10.0.0.2-10.0.0.4"));
    assert!(
        ledger.pools().overlapping(&named("p")).is_empty(),
        "they are in one network"
    );
    assert_eq!(
        ledger.propose(&named("q"), &claim("a"), 1),
        Outcome::Offer(in_lab(2))
    );
    assert_eq!(
        ledger.propose(&named("p"), &claim("b"), 1),
        Outcome::Offer(in_lab(1))
    );
    assert_eq!(
        ledger.propose(&named("p"), &claim("c"), 1),
        Outcome::Offer(in_lab(3))
    );
    assert_eq!((free(&ledger, "p"), free(&ledger, "q")), (0, 1));
    ledger.drop_candidate(&in_lab(2));
    assert_eq!((free(&ledger, "p"), free(&ledger, "q")), (1, 2));
}

#[test]
fn address_observed_before_its_pool_joins_the_network() {
    let mut ledger = with_lab();
    ledger.apply(&address("a", 2));
    ledger.apply_pool(&member("q", "10.0.0.2-10.0.0.4"));
    assert_eq!(free(&ledger, "q"), 3, "the network of p is not known yet");
    ledger.apply_pool(&member("p", "10.0.0.1-10.0.0.3"));
    assert_eq!((free(&ledger, "p"), free(&ledger, "q")), (2, 2));
    assert_eq!(
        (
            ledger.pools().counts(&named("p")).used,
            ledger.pools().counts(&named("q")).used
        ),
        (1, 0)
    );
    ledger.remove_pool(&PoolKey::of(&member("p", "")));
    assert_eq!(
        free(&ledger, "q"),
        2,
        "the pool is deleted, its address is still in use"
    );
    ledger.delete(&address("a", 2));
    assert_eq!(free(&ledger, "q"), 3);
    assert!(
        ledger.pools().pool_info(&named("p")).is_none()
            && !known_pools(&ledger).contains(&named("p"))
    );
}

#[test]
fn pool_needs_the_block_length_of_its_network() {
    let mut ledger = ledger();
    ledger.apply_network(&lab(json!({"status": null})));
    ledger.apply_pool(&member("p", "10.0.0.1-10.0.0.3"));
    assert_eq!(ledger.propose(&key(), &claim("a"), 1), Outcome::NO_ADDRESS);
    assert_eq!(
        ledger.network("lab").oldest_lengths.ipv4,
        Some(32),
        "the length of the only pool"
    );
    ledger.apply_network(&lab(json!({"status": {"blockLengths": {"ipv4": 24}}})));
    let problem = refusal(&ledger, &key()).unwrap();
    assert_eq!(
        problem,
        NetworkRefusal::LengthMismatch {
            network: "lab".into(),
            theirs: 24,
            ours: 32
        }
    );
    ledger.apply_network(&lab(json!({})));
    assert_eq!(
        ledger.propose(&key(), &claim("a"), 1),
        Outcome::Offer(in_lab(1))
    );
}

/// Why the network does not accept a pool.
fn refusal(ledger: &Ledger, pool: &PoolKey) -> Option<NetworkRefusal> {
    ledger
        .pools()
        .pool_info(pool)
        .unwrap()
        .network_problem
        .clone()
}

#[test]
fn network_must_exist_and_allow_the_namespace() {
    let mut ledger = ledger();
    ledger.apply_pool(&member("p", "10.0.0.1-10.0.0.3"));
    assert_eq!(
        refusal(&ledger, &key()),
        Some(NetworkRefusal::NotFound("lab".into()))
    );
    let not_allowed = Some(NetworkRefusal::NotAllowed("lab".into()));
    let by_label = json!({"from": "Selector", "selector": {"matchLabels": {"tenant": "a"}}});
    for (namespaces, expected) in [
        (json!({"from": "None"}), not_allowed.clone()),
        (json!(null), not_allowed.clone()),
        (json!({"from": "Names", "names": ["m", "n"]}), None),
        (
            json!({"from": "Names", "names": ["m"]}),
            not_allowed.clone(),
        ),
        (json!({"from": "All"}), None),
        (by_label.clone(), not_allowed.clone()),
    ] {
        ledger.apply_network(&lab(json!({"spec": {"namespaces": namespaces}})));
        assert_eq!(refusal(&ledger, &key()), expected, "{namespaces}");
        let can_allocate = info_of(&ledger).unwrap().can_allocate();
        assert_eq!(can_allocate, expected.is_none(), "{namespaces}");
    }
    let labelled = |value: &str| BTreeMap::from([("tenant".to_owned(), value.to_owned())]);
    set_namespace(&mut ledger, "n", &labelled("a"));
    assert_eq!(refusal(&ledger, &key()), None);
    set_namespace(&mut ledger, "n", &labelled("b"));
    assert_eq!(refusal(&ledger, &key()), not_allowed);
    set_namespace(&mut ledger, "n", &labelled("a"));
    remove_namespace(&mut ledger, "n");
    assert_eq!(refusal(&ledger, &key()), not_allowed);
    remove_network(&mut ledger, "lab");
    assert_eq!(
        refusal(&ledger, &key()),
        Some(NetworkRefusal::NotFound("lab".into()))
    );
}

#[test]
fn refused_pool_neither_allocates_nor_uses_addresses_of_the_network() {
    let mut ledger = ledger();
    ledger.apply_network(&lab(json!({"spec": {"namespaces": {"from": "None"}}})));
    let global = json!({"kind": "GlobalInClusterIPPool", "metadata": {"name": "g", "uid": "g", "namespace": null},
                        "spec": {"network": "lab"}});
    ledger.apply_pool(&pool(global));
    ledger.apply_pool(&member("p", "10.0.0.1-10.0.0.8"));
    ledger.apply(&address("a", 2));
    let global = PoolKey::new(InClusterKind::GlobalIPPool, None, "g");
    assert_eq!(
        ledger.pools().counts(&global).free,
        8,
        "an IPAddress of a pool that is not allowed"
    );
    assert_eq!(ledger.propose(&key(), &claim("b"), 1), Outcome::NO_ADDRESS);
    assert!(ledger.unreserved(10, |_| true).is_empty());
    let view = ledger.network("lab");
    assert_eq!((view.members.len(), view.used), (1, 0));
}

#[test]
fn network_selects_pools_that_name_no_other() {
    let mut ledger = ledger();
    let labelled = |name: &str, site: &str, network: Option<&str>| {
        let metadata = json!({"name": name, "uid": name, "labels": {"site": site}});
        pool(json!({"metadata": metadata, "spec": {"network": network}}))
    };
    ledger.apply_pool(&labelled("p", "a", None));
    ledger.apply_pool(&labelled("q", "b", None));
    ledger.apply_pool(&labelled("r", "a", Some("other")));
    ledger.apply_network(&lab(
        json!({"spec": {"pools": {"matchLabels": {"site": "a"}}}}),
    ));
    let lab_scope = Scope::Network("lab".into());
    assert_eq!(scope_of(&ledger, "p"), lab_scope);
    assert_eq!(scope_of(&ledger, "q"), Scope::Pool(named("q")));
    assert_eq!(
        refusal(&ledger, &named("r")),
        Some(NetworkRefusal::NotFound("other".into()))
    );
    ledger.apply_pool(&labelled("q", "a", None));
    assert_eq!(scope_of(&ledger, "q"), lab_scope);
    // An empty selector selects all pools. Members stay in the network if it no longer allows their
    // namespace.
    ledger.apply_pool(&labelled("q", "b", None));
    ledger.apply_network(&lab(json!({"spec": {"pools": {}}})));
    assert_eq!(ledger.addresses().members("lab").len(), 2);
    ledger.apply_network(&lab(
        json!({"spec": {"pools": {}, "namespaces": {"from": "None"}}}),
    ));
    let not_allowed = Some(NetworkRefusal::NotAllowed("lab".into()));
    assert_eq!(
        (
            ledger.addresses().members("lab").len(),
            refusal(&ledger, &named("p"))
        ),
        (2, not_allowed)
    );
    ledger.apply_pool(&labelled("s", "a", None));
    assert_eq!(
        (scope_of(&ledger, "s"), refusal(&ledger, &named("s"))),
        (Scope::Pool(named("s")), None)
    );
    // Two networks that select one pool: none of them wins.
    ledger.apply_network(&lab(json!({"spec": {"pools": {}}})));
    ledger.apply_network(&lab(
        json!({"metadata": {"name": "lab-2"}, "spec": {"pools": {}}}),
    ));
    let ambiguous = NetworkRefusal::Ambiguous("lab".into(), "lab-2".into());
    assert_eq!(refusal(&ledger, &named("p")), Some(ambiguous));
    // The pool stays in its network, until it names another one.
    remove_network(&mut ledger, "lab");
    assert_eq!(
        (scope_of(&ledger, "p"), refusal(&ledger, &named("p"))),
        (lab_scope, Some(NetworkRefusal::Lost("lab".into())))
    );
    ledger.apply_pool(&labelled("p", "a", Some("lab-2")));
    assert_eq!(
        (scope_of(&ledger, "p"), refusal(&ledger, &named("p"))),
        (Scope::Network("lab-2".into()), None)
    );
}

#[test]
fn addresses_of_several_pools_of_a_network_are_shared() {
    let mut ledger = with_lab();
    for (name, addresses, shared) in [
        ("p", "10.0.0.1-10.0.0.9", 0),
        ("q", "10.0.0.20-10.0.0.29", 0),
        ("r", "10.0.0.5-10.0.0.24", 10),
        ("s", "10.0.0.6", 10),
        ("t", "10.0.0.15", 11),
    ] {
        ledger.apply_pool(&member(name, addresses));
        assert_eq!(ledger.network("lab").shared, shared, "{name}");
    }
    assert_eq!(ledger.network("lab").total, 29);
}

#[test]
fn gateways_and_exclusions_of_a_network_hold_for_all_its_pools() {
    let mut ledger = ledger();
    ledger.apply_network(&lab(
        json!({"spec": {"excluded": ["10.0.0.3-10.0.0.4", "fd00::/64"]}}),
    ));
    ledger.apply_pool(&member("p", "10.0.0.1-10.0.0.8"));
    assert_eq!(free(&ledger, "p"), 6);
    let with_gateway = |gateway: &str| {
        let spec = json!({"addresses": ["10.0.0.20"], "network": "lab", "gateway": gateway});
        pool(json!({"metadata": {"name": "q", "uid": "q"}, "spec": spec}))
    };
    ledger.apply_pool(&with_gateway("10.0.0.1"));
    assert_eq!(free(&ledger, "p"), 5, "the gateway of the other pool");
    ledger.apply_pool(&with_gateway("10.0.0.2"));
    assert_eq!(
        ledger.propose(&key(), &claim("a"), 1),
        Outcome::Offer(in_lab(1))
    );
    ledger.remove_pool(&named("q"));
    assert_eq!(free(&ledger, "p"), 5);
    ledger.apply(&address("b", 3));
    let counts = address_counts(&ledger);
    assert_eq!(
        (counts.used, counts.out_of_range),
        (0, 1),
        "an address in use is excluded later"
    );
    ledger.apply_network(&lab(json!({})));
    assert_eq!((address_counts(&ledger).used, free(&ledger, "p")), (1, 6));
}

#[test]
fn overlapping_pools_are_found_unless_in_one_network() {
    let mut ledger = ledger();
    let other = |name: &str, addresses: &str| {
        pool(json!({"metadata": {"name": name}, "spec": {"addresses": [addresses]}}))
    };
    ledger.apply_pool(&pool(json!({})));
    ledger.apply_pool(&other("q", "10.0.0.8-10.0.0.20"));
    ledger.apply_pool(&other("r", "10.0.0.9-10.0.0.20"));
    ledger.apply_pool(&member("s", "10.0.0.1-10.0.0.8"));
    assert_eq!(ledger.pools().overlapping(&key()), [named("q"), named("s")]);
    assert_eq!(ledger.pools().overlapping(&named("r")), [named("q")]);
    ledger.apply_pool(&other("q", "10.0.0.9-10.0.0.20"));
    assert_eq!(ledger.pools().overlapping(&key()), [named("s")]);
}
