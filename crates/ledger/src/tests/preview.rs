//! What a write of a pool or network would change.

use super::*;
use capi_ipam_api::ScopeChange;
use capi_ipam_api::names::LEAVE_NETWORK_ANNOTATION;

fn labelled(name: &str, last: u8, net: Option<&str>) -> Pool {
    let addresses = format!("10.0.0.1-10.0.0.{last}");
    pool(
        json!({"metadata": {"name": name, "uid": name, "labels": {"net": net}}, "spec": {"addresses": [addresses]}}),
    )
}

fn selecting(value: &str) -> IPNetwork {
    lab(json!({"spec": {"pools": {"matchLabels": {"net": value}}}}))
}

fn held_in(pool: &str, scope: &Scope, last: u8) -> IPReservation {
    let slot = Slot {
        scope: scope.clone(),
        block: block(last),
    };
    serde_json::from_value(json!({
        "metadata": {"name": slot.reservation_name(), "uid": format!("{}-{pool}", slot.reservation_name())},
        "spec": {"scope": scope.name(), "address": block(last).to_string(), "claimRef": held_by(pool),
                 "poolRef": {"kind": "InClusterIPPool", "namespace": "n", "name": pool}},
    }))
    .unwrap()
}

fn own(name: &str) -> Scope {
    Scope::Pool(named(name))
}

fn network() -> Scope {
    Scope::Network("lab".into())
}

/// The name of the pool, whether it leaves and joins, and the last bytes of the affected addresses.
fn summary(change: &ScopeChange) -> (String, bool, bool, Vec<Block>) {
    let moves = (
        change.left_network().is_some(),
        change.joined_network().is_some(),
    );
    (
        change.pool.name.to_string(),
        moves.0,
        moves.1,
        change.affected.clone(),
    )
}

/// The pools p and q are members with one address in use each; r and s are not.
fn ledger_with_pools() -> Ledger {
    let mut ledger = ledger();
    ledger.apply_network(&selecting("lab"));
    for (name, net) in [
        ("p", Some("lab")),
        ("q", Some("lab")),
        ("r", Some("other")),
        ("s", Some("other")),
    ] {
        ledger.apply_pool(&labelled(name, 8, net));
    }
    for (pool, scope, last) in [
        ("p", network(), 1),
        ("q", network(), 2),
        ("r", own("r"), 1),
        ("s", own("s"), 3),
    ] {
        ledger.insert_reservation(&held_in(pool, &scope, last));
    }
    ledger
}

#[test]
fn pool_that_leaves_affects_its_addresses_in_use() {
    let ledger = ledger_with_pools();
    let preview = |ledger: &Ledger, name: &str, net: Option<&str>| {
        summary(&ledger.preview_pool(&named(name), PoolInfo::of(&labelled(name, 8, net))))
    };
    let kept = ledger.preview_pool(&named("p"), PoolInfo::of(&labelled("p", 8, None)));
    assert!(kept.is_kept && kept.left_network().is_none(), "{kept:?}");
    let mut leaving = labelled("p", 8, None);
    let annotation = (LEAVE_NETWORK_ANNOTATION.to_owned(), "lab".to_owned());
    leaving.metadata.annotations = Some([annotation].into());
    assert_eq!(
        summary(&ledger.preview_pool(&named("p"), PoolInfo::of(&leaving))),
        ("p".to_owned(), true, false, vec![block(1)])
    );
    assert_eq!(
        preview(&ledger, "p", Some("lab")),
        ("p".to_owned(), false, false, vec![])
    );
    // It joins: 10.0.0.1 is in use in the network, 10.0.0.3 is not.
    assert_eq!(
        preview(&ledger, "r", Some("lab")),
        ("r".to_owned(), false, true, vec![block(1)])
    );
    assert_eq!(
        preview(&ledger, "s", Some("lab")),
        ("s".to_owned(), false, true, vec![])
    );
    assert_eq!(scope_of(&ledger, "p"), network(), "nothing has changed");
}

#[test]
fn network_change_affects_the_pools_that_it_moves() {
    let mut ledger = ledger_with_pools();
    let preview = |ledger: &Ledger, network: &IPNetwork| {
        ledger
            .preview_network(network)
            .iter()
            .map(summary)
            .collect::<Vec<_>>()
    };
    assert_eq!(preview(&ledger, &selecting("lab")), []);
    // With addresses in use they stay: this is reported.
    let kept = ledger.preview_network(&lab(json!({"spec": {}})));
    assert_eq!(kept.iter().filter(|change| change.is_kept).count(), 2);
    assert!(kept.iter().all(|change| change.left_network().is_none()));
    let all = [
        ("r".to_owned(), false, true, vec![block(1)]),
        ("s".to_owned(), false, true, vec![]),
    ];
    assert_eq!(preview(&ledger, &lab(json!({"spec": {"pools": {}}}))), all);
    assert_eq!(
        preview(
            &ledger,
            &lab(json!({"spec": {"pools": {}}, "status": null}))
        ),
        all,
        "its block length is not set yet"
    );
    // Two pools that join at the same time share an address that is not in use in the network.
    ledger.insert_reservation(&held_in("r", &own("r"), 5));
    ledger.insert_reservation(&held_in("s", &own("s"), 5));
    let changes = preview(&ledger, &lab(json!({"spec": {"pools": {}}})));
    assert_eq!(changes[0].3, [block(1), block(5)]);
    assert_eq!(changes[1].3, [block(5)]);
    assert_eq!(scope_of(&ledger, "r"), own("r"), "nothing has changed");
}
