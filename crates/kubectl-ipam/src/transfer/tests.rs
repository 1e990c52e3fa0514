#![allow(clippy::indexing_slicing, reason = "test code: a failure ends the test")]

use capi_ipam::api::{InClusterKind, PoolSpec};
use serde_json::json;

use super::plan::{Action, Existing, ExistingPool, ExistingReservation, Plan, plan};
use super::*;
use crate::cluster::Identity;

const TABLE: &str = "\
kind,namespace,name,addresses,excludedAddresses,prefix,gateway,network,pool,claim
InClusterIPPool,team-a,web,10.0.0.2-10.0.0.9 10.0.0.20,10.0.0.5,24,10.0.0.1,lab,,
GlobalPrefix,,pods,fd00::/48,,64,,,,
,,,,,,,,,
IPReservation,team-a,,10.0.0.7,,,,,ip/web,vm-1
IPReservation,,,fd00:0:0:7::/64,,,,,GlobalPrefix/pods,team-b/vm-2
";

fn problems(text: &str) -> Vec<(Option<u64>, String)> {
    problems_in(text, &Existing::default())
}

fn problems_in(text: &str, existing: &Existing) -> Vec<(Option<u64>, String)> {
    let problems = plan(parse(text, "team-a"), existing, "racks", true).unwrap_err();
    problems.into_iter().map(|problem| (problem.line, problem.problem)).collect()
}

fn planned(text: &str, existing: &Existing, prune: bool) -> Plan {
    plan(parse(text, "team-a"), existing, "racks", prune).unwrap()
}

fn key(namespace: &str, name: &str) -> Key {
    (namespace.into(), name.into())
}

fn version() -> Identity {
    Identity { uid: "u".to_owned(), resource_version: "7".to_owned(), generation: 1 }
}

/// The objects that the first import of a file creates.
fn imported(text: &str) -> Existing {
    let mut existing = Existing::default();
    let plan = planned(text, &existing, false);
    for change in plan.pools {
        let Action::CreatePool(key, pool) = change.action else { panic!("{change:?}") };
        let entry = ExistingPool { spec: pool.spec, import: Some("racks".to_owned()), version: version() };
        existing.pools.insert(key, entry);
    }
    for change in plan.reservations {
        let Action::CreateReservation(new) = change.action else { panic!("{change:?}") };
        let claim = new.spec.claim_ref.map(|claim| key(&claim.namespace, &claim.name));
        let entry = ExistingReservation { claim, is_held: false, import: Some("racks".to_owned()), version: version() };
        existing.reservations.insert(new.metadata.name.unwrap(), entry);
    }
    existing
}

#[test]
fn table_creates_pools_and_reservations() {
    let plan = planned(TABLE, &Existing::default(), false);
    let lines: Vec<_> = plan.pools.iter().chain(&plan.reservations).map(|change| change.line).collect();
    assert_eq!(lines, [Some(2), Some(3), Some(5), Some(6)]);
    let Action::CreatePool(key, pool) = &plan.pools[0].action else { panic!("a pool") };
    assert_eq!((key.kind, pool.metadata.namespace.as_deref()), (InClusterKind::IPPool, Some("team-a")));
    let spec = json!({
        "addresses": ["10.0.0.2-10.0.0.9", "10.0.0.20"], "excludedAddresses": ["10.0.0.5"], "prefix": 24,
        "gateway": "10.0.0.1", "network": "lab",
    });
    assert_eq!(serde_json::to_value(&pool.spec).unwrap(), spec);
    let names: Vec<_> = plan
        .reservations
        .iter()
        .map(|change| {
            let Action::CreateReservation(new) = &change.action else { panic!("a reservation") };
            assert!(new.slot().is_ok());
            (new.metadata.name.clone().unwrap(), new.spec.claim_ref.clone().unwrap().namespace)
        })
        .collect();
    let expected = [("n.lab.10.0.0.7", "team-a"), ("gp.pods.fd00-0000-0000-0007-0000-0000-0000-0000-64", "team-b")];
    assert_eq!(names, expected.map(|(name, namespace)| (name.to_owned(), namespace.to_owned())));
}

#[test]
fn second_import_changes_nothing() {
    let plan = planned(TABLE, &imported(TABLE), true);
    assert_eq!((plan.pools.len(), plan.reservations.len(), plan.deletions.len(), plan.unchanged), (0, 0, 0, 4));
}

#[test]
fn changed_line_updates_what_the_import_created() {
    let text = TABLE.replace("10.0.0.20", "10.0.0.30").replace(",vm-1", ",vm-3");
    let mut existing = imported(TABLE);
    let plan = planned(&text, &existing, false);
    assert!(matches!(plan.pools[0].action, Action::UpdatePool(..)));
    assert!(matches!(plan.reservations[0].action, Action::ReplaceReservation(..)));
    assert_eq!(plan.unchanged, 2);
    existing.pools.values_mut().for_each(|pool| pool.import = None);
    existing.reservations.values_mut().for_each(|it| it.import = Some("others".to_owned()));
    let problems = problems_in(&text, &existing);
    assert_eq!((problems[0].0, problems[1].0), (Some(2), Some(5)));
    assert!(problems[0].1.contains("was not created by an import"), "{problems:?}");
    assert!(
        problems[1]
            .1
            .ends_with("reserved for the claim team-a/vm-1, and the reservation was created by the import others"),
        "{problems:?}"
    );
}

#[test]
fn table_does_not_remove_fields_that_it_cannot_state() {
    let mut existing = imported(TABLE);
    let web = existing.pools.values_mut().find(|pool| matches!(pool.spec, PoolSpec::Addresses(_))).unwrap();
    let mut spec = serde_json::to_value(&web.spec).unwrap();
    spec["draining"] = json!(["10.0.0.9"]);
    web.spec = PoolSpec::Addresses(serde_json::from_value(spec).unwrap());
    let problem = "InClusterIPPool team-a/web has draining, for which a table has no column; import it as YAML or JSON";
    assert_eq!(problems_in(TABLE, &existing), [(Some(2), problem.to_owned())]);
}

#[test]
fn prune_deletes_only_what_the_import_created() {
    let text = TABLE.lines().next().unwrap();
    let mut existing = imported(TABLE);
    let plan = planned(text, &existing, true);
    assert_eq!(plan.deletions.len(), 4);
    assert!(planned(text, &existing, false).deletions.is_empty());
    let used = existing.pools.keys().find(|key| key.kind == InClusterKind::IPPool).unwrap().clone();
    existing.pools_in_use.insert(used);
    assert!(problems_in(text, &existing)[0].1.contains("has IPAddresses or claims"));
    existing.pools.values_mut().for_each(|pool| pool.import = None);
    for (number, reservation) in existing.reservations.values_mut().enumerate() {
        reservation.import = Some(["others", "racks"][number].to_owned());
        reservation.is_held = number == 1;
    }
    assert!(planned(text, &existing, true).deletions.is_empty());
}

#[test]
fn each_problem_has_its_line() {
    let text = "\
Kind;Namespace;Name;Addresses;Prefix;Pool;Claim
Pod;a;b;10.0.0.1;24;;
InClusterIPPool;a;web;10.0.0.300;24;;
InClusterIPPool;a;;10.0.0.3;24;;
InClusterIPPool;a;db;10.0.0.3;x;;vm
GlobalIP;a;all;10.0.0.3;24;;
InClusterIPPool;a;ok;10.1.0.2-10.1.0.9;24;;
InClusterIPPool;a;ok;10.1.0.2;24;;
IPReservation;a;;10.1.0.77;;ok;
IPReservation;a;;10.1.0.3;;ok;
IPReservation;a;;10.1.0.3;;ok;vm
IPReservation;a;;10.1.0.3;;none;vm
IPReservation;a;;10.1.0;;ok;vm
IPReservation;a;;10.1.0.4;24;ok;a/b/c
InClusterIPPool;a;more;10.1.0.2;24;;;;
";
    let expected = [
        (2, "kind: Pod is neither a pool nor IPReservation"),
        (3, "InClusterIPPool a/web: spec.addresses[0]"),
        (4, "name: is empty"),
        (5, "claim: a pool has none"),
        (5, "prefix: x is not a number"),
        (6, "namespace: a GlobalInClusterIPPool has none"),
        (8, "InClusterIPPool a/ok is also in line 7"),
        (9, "InClusterIPPool a/ok does not contain 10.1.0.77"),
        (11, "10.1.0.3 of InClusterIPPool a/ok is also in line 10"),
        (12, "InClusterIPPool a/none exists neither in the cluster nor in the file"),
        (13, "addresses: invalid address 10.1.0"),
        (14, "prefix: a reservation has none"),
        (15, "the row has 9 cells, and the table 7 columns"),
    ];
    let found = problems(text);
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for ((line, problem), (expected_line, text)) in found.iter().zip(expected) {
        assert_eq!(*line, Some(expected_line), "{problem}");
        assert!(problem.starts_with(text), "{problem} instead of {text}");
    }
    assert!(problems("kind,color\n")[0].1.starts_with("unknown columns: color; known are kind, namespace"));
    assert!(problems("name\nweb\n")[0].1.contains("with the column kind"));
}

#[test]
fn address_in_use_is_not_reserved() {
    let mut existing = imported(TABLE);
    let pool = existing.pools.keys().find(|key| key.kind == InClusterKind::IPPool).unwrap().clone();
    // A pool of the same network: the address is in use there too.
    let other = PoolKey::new(pool.kind, pool.namespace.as_deref(), "other");
    let spec: Vec<PoolSpec> = existing.pools.values().map(|pool| pool.spec.clone()).collect();
    let spec = spec.into_iter().find(|spec| spec.network().is_some()).unwrap();
    existing.pools.insert(other.clone(), ExistingPool { spec, import: None, version: version() });
    existing.reservations.clear();
    let address = Block::address("10.0.0.7".parse().unwrap());
    existing.addresses.push((other, address, key("team-z", "vm-9")));
    assert_eq!(problems_in(TABLE, &existing)[0].1, "10.0.0.7 of network lab is in use by the claim team-z/vm-9");
    existing.addresses[0].2 = key("team-a", "vm-1");
    assert_eq!(planned(TABLE, &existing, false).reservations.len(), 2);
}

#[test]
fn manifests_have_lines_and_unknown_fields() {
    let text = "\
# Pools of a rack.
---
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: InClusterIPPool
metadata: {name: web}
spec: {addresses: [10.0.0.2-10.0.0.9], prefix: 24}
---
apiVersion: v1
kind: List
items:
- apiVersion: ipam.cluster.x-k8s.io/v1alpha2
  kind: InClusterIPPool
  metadata: {name: db}
  spec: {addresses: [10.0.1.2], prefix: 24, adresses: []}
- apiVersion: v1
  kind: Pod
";
    let parsed = parse(text, "team-a");
    assert_eq!((parsed.records.len(), parsed.records[0].line), (1, 3));
    let found: Vec<_> = parsed.problems.iter().map(|it| (it.line.unwrap(), it.problem.as_str())).collect();
    assert_eq!(
        found,
        [
            (11, "spec.adresses: unknown field"),
            (15, "apiVersion: is \"v1\"; ipam.cluster.x-k8s.io/v1alpha2 is supported")
        ]
    );
    let parsed = parse("{\"apiVersion\": [\n", "a");
    assert_eq!(parsed.records.len(), 0);
    assert!(!parsed.problems.is_empty());
}

#[test]
fn table_and_manifest_of_an_export_are_equal() {
    let existing = imported(TABLE);
    let pools: Vec<Pool> = parse(TABLE, "team-a")
        .records
        .into_iter()
        .filter_map(|record| if let Entry::Pool(pool) = record.entry { Some(*pool) } else { None })
        .collect();
    let reservations: Vec<_> = planned(TABLE, &Existing::default(), false)
        .reservations
        .into_iter()
        .map(|change| match change.action {
            Action::CreateReservation(new) => *new,
            other => panic!("{other:?}"),
        })
        .collect();
    let table = table::write(&pools, &reservations).unwrap();
    let plan = planned(&table, &existing, true);
    assert_eq!((plan.pools.len(), plan.deletions.len(), plan.unchanged), (0, 0, 4), "{table}");
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": reservations });
    let parsed = parse(&serde_json::to_string_pretty(&list).unwrap(), "team-a");
    assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
    assert_eq!(parsed.records.len(), 2);
}

#[test]
fn ten_thousand_rows_are_planned() {
    use std::fmt::Write;

    let mut text = "kind,namespace,name,addresses,prefix,pool\nIP,a,big,10.0.0.0/16,16,\n".to_owned();
    (1..10_000).for_each(|number: u32| {
        let _ = writeln!(text, "IPReservation,a,,10.0.{}.{},,big", number / 256, number % 256);
    });
    let plan = planned(&text, &Existing::default(), true);
    assert_eq!((plan.pools.len(), plan.reservations.len()), (1, 9_999));
}
