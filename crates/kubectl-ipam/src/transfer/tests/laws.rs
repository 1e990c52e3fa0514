//! The laws of an import for random files.

use proptest::prelude::*;

use super::super::laws::check;

/// A table of a few pools and reservations that often have the same names, blocks and networks.
fn table() -> impl Strategy<Value = String> {
    let network = prop_oneof![Just(""), Just("lab")];
    let pool = (0..3_usize, network, 0..3_u8).prop_map(|(index, network, last)| {
        let (kind, namespace, name) = POOLS[index];
        format!(
            "{kind},{namespace},{name},10.0.0.2-10.0.0.{},24,{network},,\n",
            7 + last
        )
    });
    let claim = prop_oneof![Just(""), Just("team-a/vm-1"), Just("team-b/vm-2")];
    let reservation = (0..3_usize, 2..10_u8, claim).prop_map(|(index, address, claim)| {
        let (kind, namespace, name) = POOLS[index];
        format!("IPReservation,{namespace},,10.0.0.{address},,,{kind}/{name},{claim}\n")
    });
    let rows = (
        proptest::collection::vec(pool, 0..4),
        proptest::collection::vec(reservation, 0..5),
    );
    rows.prop_map(|(pools, reservations)| {
        format!(
            "kind,namespace,name,addresses,prefix,network,pool,claim\n{}{}",
            pools.concat(),
            reservations.concat()
        )
    })
}

const POOLS: [(&str, &str, &str); 3] = [
    ("IP", "team-a", "one"),
    ("IP", "team-b", "two"),
    ("GlobalIP", "", "all"),
];

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn import_obeys_its_laws(before in table(), file in table(), moves: u64) {
        prop_assert_eq!(check(&before, &file, moves), Ok(()));
    }
}

#[test]
fn order_of_two_pools_that_exclude_one_address_does_not_matter() {
    let file = "\
kind,namespace,name,addresses,prefix,network,pool,claim
IP,team-b,two,10.0.0.2-10.0.0.8,24,lab,,
GlobalIP,,all,10.0.0.2-10.0.0.7,24,lab,,
IPReservation,team-b,,10.0.0.8,,,IP/two,
IPReservation,,,10.0.0.8,,,GlobalIP/all,
";
    assert_eq!(check("", file, 386_528_242_998_316_145), Ok(()));
}

#[test]
fn laws_hold_for_manifests() {
    let file = "\
apiVersion: v1
kind: List
items:
- apiVersion: ipam.cluster.x-k8s.io/v1alpha2
  kind: GlobalInClusterIPPool
  metadata: {name: all, labels: {net: lab}}
  spec:
    ranges: [{addresses: [10.0.0.2-10.0.0.9], prefix: 24, gateway: 10.0.0.1}]
    allowedNamespaces: {from: Selector, selector: {matchLabels: {team: a}}}
- apiVersion: ipam.cluster.x-k8s.io/v1alpha2
  kind: IPReservation
  metadata: {name: g.all.10.0.0.7}
  spec: {scope: g.all, address: 10.0.0.7, poolRef: {kind: GlobalInClusterIPPool, name: all}}
";
    for moves in [0, 3, 0x0123_4567_89ab_cdef, u64::MAX] {
        assert_eq!(check("", file, moves), Ok(()));
        assert_eq!(check(file, file, moves), Ok(()));
    }
}
