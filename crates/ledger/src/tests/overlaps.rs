//! Overlapping pools, also many and large ones.

use super::*;
use capi_ipam_api::names::LEAVE_NETWORK_ANNOTATION;

fn numbered(number: usize, change: serde_json::Value) -> Pool {
    let mut pool = pool(change);
    pool.metadata.name = Some(format!("p{number:03}"));
    pool
}

#[test]
fn search_for_overlaps_ends_after_twenty() {
    let mut ledger = ledger();
    for number in 0..50 {
        ledger.apply_pool(&numbered(number, json!({})));
    }
    let found = ledger.pools().overlapping(&named("p049"));
    assert_eq!(found.len(), MAX_OVERLAPS);
    let first: Vec<PoolKey> = (0..MAX_OVERLAPS)
        .map(|number| named(&format!("p{number:03}")))
        .collect();
    assert_eq!(
        found, first,
        "the order is stable, so that a status does not change without a cause"
    );
}

/// The advice of the condition for two pools, which then are as it says. Returns whether both can
/// allocate and whether the overlap is gone.
fn follow(advice: &str, length: i64) -> (bool, bool) {
    let mut ledger = with_lab();
    let prefixes = |change: serde_json::Value| {
        let mut pool = json!({
            "kind": "InClusterPrefixPool", "metadata": {"namespace": "n", "name": "q", "uid": "q", "finalizers":
                ["ipam.cluster.x-k8s.io/ProtectPool"]},
            "spec": {"prefixes": ["10.0.0.0/24"], "allocationPrefixLength": length},
        });
        json_patch::merge(&mut pool, &change);
        serde_json::from_value::<Pool>(pool).unwrap()
    };
    let (mut own, mut other) = (json!({}), json!({}));
    if advice.contains("name the same IPNetwork") {
        (own, other) = (
            json!({"spec": {"network": "lab"}}),
            json!({"spec": {"network": "lab"}}),
        );
    } else if advice.starts_with("exclude the shared range") {
        other = json!({"spec": {"excludedPrefixes": ["10.0.0.0/28"]}});
    }
    ledger.apply_pool(&pool(own));
    ledger.apply_pool(&prefixes(other));
    let prefix_pool = PoolKey::new(InClusterKind::PrefixPool, Some("n"), "q");
    let is_usable = |key: &PoolKey| {
        let info = ledger.pools().pool_info(key).unwrap();
        info.usable.is_ok() && info.network_problem.is_none()
    };
    (
        is_usable(&key()) && is_usable(&prefix_pool),
        ledger.pools().overlapping(&key()).is_empty(),
    )
}

#[test]
fn advice_about_an_overlap_ends_it() {
    use capi_ipam_api::advice;

    let scope = Scope::Pool(key());
    for (length, has_one_length) in [(28, false), (32, true)] {
        assert_eq!(follow("", length), (true, false), "the pools overlap");
        assert_eq!(
            follow(advice::overlap(&scope, has_one_length), length),
            (true, true),
            "length {length}"
        );
    }
    // One network cannot have both lengths: a pool that it refuses stays outside of it, and
    // overlaps.
    assert_eq!(
        follow(advice::overlap(&scope, true), 28),
        (false, false),
        "the pools need the other advice"
    );
}

#[test]
fn lengths_of_overlapping_pools_are_compared() {
    let mut ledger = with_pool();
    ledger.apply_pool(&numbered(1, json!({})));
    let others = ledger.pools().overlapping(&key());
    assert!(ledger.pools().have_length(&others, 32) && !ledger.pools().have_length(&others, 28));
}

#[test]
fn spec_is_parsed_once_per_generation() {
    let mut ledger = ledger();
    let at = |generation: i64, addresses: &str| {
        let mut pool = pool(json!({"spec": {"addresses": [addresses]}}));
        pool.metadata.generation = Some(generation);
        pool
    };
    ledger.apply_pool(&at(1, "10.0.0.1-10.0.0.8"));
    let read = info_of(&ledger).unwrap().usable.clone().unwrap();
    // An API server never sends this: it shows that the spec of a known generation is not parsed
    // again.
    ledger.apply_pool(&at(1, "nothing"));
    assert!(ledger.pools().is_current(&key(), &read));
    let mut paused = at(1, "nothing");
    paused.metadata.annotations =
        Some([("cluster.x-k8s.io/paused".to_owned(), String::new())].into());
    ledger.apply_pool(&paused);
    assert!(ledger.pools().is_current(&key(), &read) && info_of(&ledger).unwrap().paused);
    ledger.apply_pool(&at(2, "10.0.0.1-10.0.0.4"));
    assert_eq!(counts(&ledger), (4, 4, 0, 0));
    let mut another = at(2, "10.0.0.1-10.0.0.2");
    another.metadata.uid = Some("recreated".to_owned());
    ledger.apply_pool(&another);
    assert_eq!(
        counts(&ledger),
        (2, 2, 0, 0),
        "a recreated pool has another spec"
    );
}

#[test]
fn unused_pool_has_no_free_set() {
    let mut ledger = with_pool();
    let has_list = |ledger: &Ledger| ledger.pools.get(&key()).unwrap().has_free_list();
    assert!(!has_list(&ledger));
    ledger.apply(&address("a", 1));
    assert_eq!((has_list(&ledger), counts(&ledger)), (true, (8, 7, 1, 0)));
    ledger.delete(&address("a", 1));
    assert_eq!(counts(&ledger), (8, 8, 0, 0));
}

/// A network has no block length at first: its pools wait, and allocate in the network only.
#[test]
fn pools_that_wait_for_one_network_do_not_overlap() {
    let mut ledger = ledger();
    ledger.apply_network(&lab(json!({"status": null})));
    ledger.apply_pool(&pool(json!({"metadata": {"name": "own", "uid": "own"}})));
    ledger.apply_pool(&pool(json!({"metadata": {"name": "q", "uid": "q"}})));
    assert_eq!(ledger.pools().overlapping(&named("q")), [named("own")]);
    ledger.apply_pool(&member("p", "10.0.0.1-10.0.0.3"));
    for name in ["own", "q"] {
        ledger.pools_mut().set_notified(&named(name), false);
    }
    take(&mut ledger);
    ledger.apply_pool(&member("q", "10.0.0.1-10.0.0.8"));
    assert_eq!(
        (
            ledger.pools().overlapping(&key()),
            ledger.pools().overlapping(&named("q"))
        ),
        (vec![named("own")], vec![named("own")])
    );
    assert!(
        ledger.take_effects().pools.contains(&named("own")),
        "its condition names other pools"
    );
    assert_eq!(
        ledger.network("lab").shared,
        0,
        "they do not belong to it yet"
    );
    ledger.apply_network(&lab(json!({})));
    assert_eq!(ledger.pools().overlapping(&key()), [named("own")]);
    assert_eq!(ledger.network("lab").shared, 3);
}

#[test]
fn addresses_in_use_in_several_scopes_are_counted() {
    let mut ledger = ledger();
    let of = |name: &str, claim: &str, last: u8| {
        let mut address = address(claim, last);
        address.spec.pool_ref.name = name.to_owned();
        address
    };
    let own = |name: &str| {
        let annotations = json!({LEAVE_NETWORK_ANNOTATION: "other"});
        pool(json!({"metadata": {"name": name, "uid": name, "annotations": annotations}}))
    };
    ledger.apply_network(&lab(json!({})));
    ledger.apply_network(&lab(json!({"metadata": {"name": "other", "uid": "other"}})));
    ledger.apply_pool(&own("q"));
    ledger.apply_pool(&own("r"));
    for (pool, claim, last) in [("q", "a", 1), ("q", "b", 2), ("r", "c", 1), ("r", "d", 3)] {
        ledger.apply(&of(pool, claim, last));
    }
    assert_eq!(ledger.addresses().shared_addresses(), 1);
    ledger.apply(&of("r", "e", 2));
    ledger.apply(&of("r", "f", 2));
    assert_eq!(
        ledger.addresses().shared_addresses(),
        2,
        "two claims of one scope count once"
    );

    ledger.apply_pool(&member("q", "10.0.0.1-10.0.0.8"));
    assert_eq!(
        ledger.addresses().shared_addresses(),
        2,
        "one of two pools is in a network"
    );
    ledger.apply_pool(&pool(
        json!({"metadata": {"name": "r", "uid": "r"}, "spec": {"network": "other"}}),
    ));
    assert_eq!(
        ledger.addresses().shared_addresses(),
        0,
        "addresses of two networks do not meet"
    );
    ledger.apply_pool(&own("r"));
    // A pool that no longer contains its addresses has them still.
    ledger.apply_pool(&pool(
        json!({"metadata": {"name": "r", "uid": "r"}, "spec": {"addresses": ["10.0.9.1"]}}),
    ));
    assert_eq!(ledger.addresses().shared_addresses(), 2);

    for (claim, last) in [("c", 1), ("e", 2)] {
        ledger.delete(&of("r", claim, last));
    }
    assert_eq!(
        ledger.addresses().shared_addresses(),
        1,
        "another claim has the second one"
    );
    ledger.delete(&of("r", "f", 2));
    assert_eq!(ledger.addresses().shared_addresses(), 0);
}

/// The pools whose controllers are notified since the last call. The status of each is computed
/// again.
fn reconcile(ledger: &mut Ledger, reported: &mut BTreeMap<PoolKey, Vec<PoolKey>>) -> Vec<PoolKey> {
    let notified = ledger.take_effects().pools;
    for pool in &notified {
        ledger.pools_mut().set_notified(pool, false);
        let found = match ledger.pools_mut().begin_overlap_search(pool) {
            Some((usable, nearby)) => nearby.overlapping(&usable),
            None => Vec::new(),
        };
        ledger.pools_mut().end_overlap_search(pool, &found);
        reported.insert(pool.clone(), found);
    }
    notified
}

#[test]
fn change_of_a_pool_notifies_those_that_share_the_changed_part() {
    let (mut ledger, mut reported) = (ledger(), BTreeMap::new());
    for (number, range) in [(0, "10.0.0.1-10.0.0.8"), (1, "10.0.0.8-10.0.0.9")] {
        ledger.apply_pool(&numbered(number, json!({"spec": {"addresses": [range]}})));
    }
    reconcile(&mut ledger, &mut reported);
    let mut change = |first: u8| {
        let addresses = [format!("10.0.0.{first}-10.0.0.8")];
        ledger.apply_pool(&numbered(0, json!({"spec": {"addresses": addresses}})));
        reconcile(&mut ledger, &mut reported)
    };
    assert_eq!(change(2), [named("p000")]);
    assert_eq!(change(9), [named("p000"), named("p001")]);
}

#[test]
fn pool_behind_the_reported_ones_notifies_nobody() {
    let (mut ledger, mut reported) = (ledger(), BTreeMap::new());
    for number in 0..40 {
        ledger.apply_pool(&numbered(number, json!({})));
    }
    reconcile(&mut ledger, &mut reported);
    ledger.apply_pool(&numbered(99, json!({})));
    assert_eq!(reconcile(&mut ledger, &mut reported), [named("p099")]);
    ledger.remove_pool(&named("p003"));
    assert_eq!(reconcile(&mut ledger, &mut reported).len(), 41);
}

proptest! {
    /// Each pool is notified when the overlapping pools in its status change.
    #[test]
    fn reported_overlaps_are_current(
        steps in proptest::collection::vec((0..32_usize, 0..4_u8, 0..4_u8, any::<bool>()), 1..90),
    ) {
        let (mut ledger, mut reported) = (ledger(), BTreeMap::new());
        ledger.apply_network(&lab(json!({})));
        for (number, first, size, in_network) in steps {
            // Many pools with the same addresses.
            let number = if size == 0 { number } else { number % 25 };
            let network = in_network.then_some("lab");
            let last = first.saturating_add(size);
            let addresses = [format!("10.0.0.{first}-10.0.0.{last}")];
            let uid = format!("p{number:03}");
            let change = json!({"metadata": {"uid": uid}, "spec": {"addresses": addresses, "network": network}});
            if first == 3 && size == 3 {
                ledger.remove_pool(&named(&uid));
            } else {
                ledger.apply_pool(&numbered(number, change));
            }
            reconcile(&mut ledger, &mut reported);
            for (pool, found) in &reported {
                prop_assert_eq!(found, &ledger.pools().overlapping(pool), "{}", pool);
            }
        }
    }
}
