//! All that can be found is reported at once: what is wrong with one part of a file does not hide
//! what is wrong with another one.

use super::*;

fn texts(text: &str) -> Vec<(u64, String)> {
    let found = problems(text).into_iter();
    found
        .map(|(line, problem)| (line.unwrap(), problem))
        .collect()
}

#[test]
fn addresses_of_a_pool_with_an_unknown_field_are_checked() {
    let text = "\
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: InClusterIPPool
metadata: {name: web}
spec:
  addresses:
  - 10.0.0.2
  - 10.0.0.300
  prefix: \"24\"
  gatewy: 10.0.0.1
  excludedAddresses: [10.0.0.x]
---
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: GlobalInClusterPrefixPool
metadata: {name: pods}
spec: {prefixes: [\"fd00::1/48\"], allocationPrefixLength: 64, ranges: none}
";
    let expected = [
        (
            7,
            "spec.addresses[1]: \"10.0.0.300\" is not an IPv4 or IPv6 address",
        ),
        (8, "spec.prefix: is the text \"24\""),
        (9, "spec.gatewy: unknown field; gateway exists"),
        (
            10,
            "spec.excludedAddresses[0]: \"10.0.0.x\" is not an IPv4 or IPv6 address",
        ),
        (
            15,
            "spec.prefixes[0]: fd00::1/48 has host bits set; write fd00::/48",
        ),
        (15, "spec.ranges: is the text \"none\""),
    ];
    let found = texts(text);
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for ((line, problem), (expected_line, start)) in found.iter().zip(expected) {
        assert_eq!(*line, expected_line, "{problem}");
        assert!(problem.starts_with(start), "{problem} instead of {start}");
    }
}

#[test]
fn cells_of_one_row_are_checked_together() {
    let text = "\
kind,namespace,name,addresses,prefix,gateway,pool,claim
IP,a,,10.0.0.300,abc,,,
IPReservation,a,web,10.0.0.x,24,,Foo/web,a/b/c
";
    let found = texts(text);
    let starts = [
        (2, "name: is empty"),
        (2, "prefix: "),
        (2, "spec.addresses[0]: \"10.0.0.300\""),
        (3, "addresses: "),
        (3, "claim: "),
        (3, "name: a reservation has none"),
        (3, "pool: Foo is not a kind of pool"),
        (3, "prefix: a reservation has none"),
    ];
    assert_eq!(found.len(), starts.len(), "{found:#?}");
    for ((line, problem), (expected, start)) in found.iter().zip(starts) {
        assert_eq!(*line, expected, "{problem}");
        assert!(problem.starts_with(start), "{problem} instead of {start}");
    }
}

#[test]
fn reservation_in_a_wrong_pool_has_no_problem() {
    let table = "\
kind,namespace,name,addresses,prefix,pool
IP,a,web,10.0.0.2-10.0.0.9,abc,
IPReservation,a,,10.0.0.3,,web
IPReservation,a,,10.0.0.3,,other
";
    let found = texts(table);
    let lines: Vec<u64> = found.iter().map(|(line, _)| *line).collect();
    assert_eq!(lines, [2, 4], "{found:#?}");
    let manifest = "\
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: InClusterIPPool
metadata: {name: web}
spec: {addresses: [10.0.0.2], prefix: 24, gatewy: 10.0.0.1}
---
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: IPReservation
metadata: {name: p.team-a.web.10.0.0.2}
spec: {scope: p.team-a.web, address: 10.0.0.2, poolRef: {kind: InClusterIPPool, namespace: team-a, name: web}}
";
    let found = texts(manifest);
    assert_eq!(found.len(), 1, "{found:#?}");
}

#[test]
fn reserved_address_can_have_the_length_of_its_subnet() {
    let table = "\
kind,namespace,name,addresses,prefix,pool
IP,a,web,10.0.0.2-10.0.0.9,24,
IPReservation,a,,10.0.0.3/24,,web
";
    let planned = plan(parse(table, "a"), &Existing::default(), "racks", true).unwrap();
    assert_eq!(planned.reservations.len(), 1);
}

/// The API server checks the changes of the lines without a problem.
#[test]
fn rest_of_a_wrong_file_is_planned() {
    let text = "\
kind,namespace,name,addresses,prefix,pool
IP,a,web,10.0.0.2-10.0.0.9,24,
IP,a,db,10.0.1.300,24,
IPReservation,a,,10.0.0.3,,web
IPReservation,a,,10.0.9.9,,web
";
    let refused = plan(parse(text, "team-a"), &Existing::default(), "racks", true).unwrap_err();
    let lines = |changes: &[Change]| changes.iter().map(|it| it.line).collect::<Vec<_>>();
    assert_eq!(lines(&refused.plan.pools), [Some(2)]);
    assert_eq!(lines(&refused.plan.reservations), [Some(4)]);
    assert_eq!(refused.problems.len(), 2, "{:?}", refused.problems);
}

#[test]
fn unknown_kind_names_the_one_that_is_meant() {
    for (kind, meant) in [
        ("InClusterIpPool", "InClusterIPPool"),
        ("InClusterPool", "InClusterIPPool"),
        ("GlobalInClusterIPool", "GlobalInClusterIPPool"),
        ("IPPool", "InClusterIPPool"),
        ("PrefixPool", "InClusterPrefixPool"),
        ("IPReservations", "IPReservation"),
    ] {
        let manifest = format!(
            "apiVersion: ipam.cluster.x-k8s.io/v1alpha2\nkind: {kind}\nmetadata: {{name: a}}\n"
        );
        let problem =
            format!("kind: {kind} is neither a pool nor IPReservation; did you mean {meant}?");
        assert_eq!(texts(&manifest), [(1, problem.clone())]);
        if kind.contains("Pool") && kind != "InClusterIpPool" {
            let table = format!("kind,name\n{kind},a\n");
            assert_eq!(texts(&table), [(2, problem)]);
        }
    }
    let other = texts("kind,name\nMachine,a\n");
    assert!(
        other[0].1.ends_with(
            "the kinds of pools are InClusterIPPool, GlobalInClusterIPPool, \
                              InClusterPrefixPool, GlobalInClusterPrefixPool"
        ),
        "{other:?}"
    );
}
