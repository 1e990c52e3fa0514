//! Addresses: those that several claims have, and the owners of IPAddresses.

use capi_ipam_api::IPReservation;

use super::*;
use crate::objects::ReservationRow;

fn reservation(scope: &str, name: &str, pool: &str, uid: Option<&str>) -> ReservationRow {
    let reservation: IPReservation = serde_json::from_value(json!({
        "metadata": {"name": format!("{scope}.10.0.0.1")},
        "spec": {"scope": scope, "address": "10.0.0.1",
                 "poolRef": {"kind": "InClusterIPPool", "namespace": "n", "name": pool},
                 "claimRef": {"namespace": "n", "name": name, "uid": uid}},
    }))
    .unwrap();
    ReservationRow::of(&reservation).unwrap()
}

#[test]
fn address_of_a_removed_pool_counts() {
    let used = [
        address("x", "old", "10.0.0.1"),
        address("y", "new", "10.0.0.1"),
    ];
    let new = pool("new", &range("10.0.0.1-10.0.0.9"));
    let snapshot = with(&[new], &used, &[]);
    let text = "error address 10.0.0.1: 10.0.0.1 is in use by n/x (InClusterIPPool n/old) and n/y (InClusterIPPool \
                n/new); one of these pools does not exist";
    assert_eq!(found(&snapshot, Check::DuplicateAddress), [text]);
    let duplicate = finding(&snapshot, Check::DuplicateAddress);
    let exclude = "1. end the overlap, otherwise the pools allocate more of these addresses: exclude the addresses";
    assert!(duplicate.repair.starts_with(exclude), "{duplicate:?}");
    assert_eq!(
        duplicate.commands[0],
        "kubectl edit inclusterippools new --namespace n"
    );
    // Both pools are gone.
    let snapshot = with(&[], &used, &[]);
    let text = "error address 10.0.0.1: 10.0.0.1 is in use by n/x (InClusterIPPool n/old) and n/y (InClusterIPPool \
                n/new); these pools do not exist";
    assert_eq!(found(&snapshot, Check::DuplicateAddress), [text]);
}

#[test]
fn address_of_a_removed_pool_counts_in_its_network() {
    let of_network = |name: &str| {
        let mut spec = range("10.0.0.1-10.0.0.9");
        spec["network"] = json!("lab");
        pool(name, &spec)
    };
    let used = [
        address("x", "old", "10.0.0.1"),
        address("y", "new", "10.0.0.1"),
    ];
    let mut snapshot = with(&[of_network("new")], &used, &[]);
    snapshot
        .objects
        .set_reservations([reservation("n.lab", "x", "old", Some("u"))]);
    let text = "error address 10.0.0.1: 2 IPAddresses have this address: n/x, n/y";
    assert_eq!(found(&snapshot, Check::DuplicateAddress), [text]);
    // The reservation says in which network the address is: two networks do not meet.
    snapshot
        .objects
        .set_reservations([reservation("n.two", "x", "old", Some("u"))]);
    assert!(found(&snapshot, Check::DuplicateAddress).is_empty());
}

#[test]
fn prefix_that_contains_another_one_is_found() {
    let prefix = |name: &str, pool: &str, base: &str, length: u8| {
        let mut address = address(name, pool, base);
        address["spec"]["prefix"] = json!(length);
        address["spec"]["poolRef"]["kind"] = json!("InClusterPrefixPool");
        address
    };
    let used = [
        prefix("x", "old", "fd00::", 60),
        prefix("y", "new", "fd00:0:0:1::", 64),
        prefix("z", "old", "fd00:0:0:2::", 64),
    ];
    let snapshot = with(&[], &used, &[]);
    assert_eq!(
        found(&snapshot, Check::DuplicateAddress),
        [
            "error address fd00:0:0:1::/64: fd00:0:0:1::/64 is in use by n/x (InClusterPrefixPool n/old) and n/y \
             (InClusterPrefixPool n/new); these pools do not exist",
            "error address fd00:0:0:2::/64: fd00:0:0:2::/64 is in use by n/x (InClusterPrefixPool n/old) and n/z \
             (InClusterPrefixPool n/old); these pools do not exist",
        ]
    );
}

#[test]
fn reservation_of_a_missing_pool_is_found() {
    let mut snapshot = with(&[pool("p", &range("10.0.0.1"))], &[], &[]);
    let all = [
        reservation("p.n.p", "x", "p", None),
        reservation("p.n.r", "x", "r", None),
        reservation("p.n.s", "x", "s", Some("u")),
    ];
    snapshot.objects.set_reservations(all);
    let text = "warning ipreservation p.n.r.10.0.0.1: InClusterIPPool n/r does not exist; 10.0.0.1 stays reserved, also \
                in a new pool of this name";
    assert_eq!(found(&snapshot, Check::InvalidReservation), [text]);
    let commands = finding(&snapshot, Check::InvalidReservation).commands;
    assert_eq!(commands, ["kubectl delete ipreservation p.n.r.10.0.0.1"]);
}

#[test]
fn owners_in_an_old_version_are_one_finding() {
    let owned = |name: &str, version: &str| {
        let mut address = address(name, "p", "10.0.0.1");
        let version = format!("{GROUP}/{version}");
        let owner =
            json!({"apiVersion": version, "kind": "IPAddressClaim", "name": name, "uid": "u"});
        address["metadata"]["ownerReferences"] = json!([owner]);
        address
    };
    let rows = [
        owned("a", "v1beta2"),
        owned("b", "v1beta1"),
        owned("c", "v1beta1"),
    ];
    let found_in = |rows: &[Value]| found(&with(&[], rows, &[]), Check::OutdatedOwner);
    assert!(found_in(&rows[..1]).is_empty());
    let problem = &found_in(&rows)[0];
    let several = "of 2 IPAddresses, such as n/b, are in the version v1beta1";
    assert!(problem.contains(several), "{problem}");
}
