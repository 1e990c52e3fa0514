#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    reason = "test code: a failure ends the test"
)]

mod fields;
mod laws;
mod one_round;

use capi_ipam_api::{InClusterKind, Pool, PoolKey, PoolSpec, Scope};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::Block;
use serde_json::json;

use super::existing::{Existing, ExistingPool, ExistingReservation, Metadata};
use super::file::parse;
use super::laws::Model;
use super::plan::{Action, Change, Plan, plan};
use super::record::{Entry, IMPORT_LABEL};
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
    let refused = plan(parse(text, "team-a"), existing, "racks", true).unwrap_err();
    refused
        .problems
        .into_iter()
        .map(|problem| (problem.line, problem.problem))
        .collect()
}

fn planned(text: &str, existing: &Existing, prune: bool) -> Plan {
    plan(parse(text, "team-a"), existing, "racks", prune).unwrap()
}

fn is_empty(plan: &Plan) -> bool {
    plan.pools.is_empty() && plan.reservations.is_empty() && plan.deletions.is_empty()
}

fn key(namespace: &str, name: &str) -> NamespacedName {
    NamespacedName::new(namespace, name)
}

fn version() -> Identity {
    Identity {
        uid: "u".to_owned(),
        resource_version: "7".to_owned(),
        generation: 1,
    }
}

/// The objects that the first import of a file creates.
fn imported(text: &str) -> Existing {
    let mut model = Model::default();
    model.apply(planned(text, &model.existing, false)).unwrap();
    model.existing
}

/// Sets the name of the import that created all objects.
fn set_import(existing: &mut Existing, import: Option<&str>) {
    let pools = existing.pools.values_mut().map(|pool| &mut pool.metadata);
    let all = pools.chain(
        existing
            .reservations
            .iter_mut()
            .map(|reservation| &mut reservation.metadata),
    );
    all.for_each(|metadata| match import {
        Some(import) => drop(
            metadata
                .labels
                .insert(IMPORT_LABEL.to_owned(), import.to_owned()),
        ),
        None => drop(metadata.labels.remove(IMPORT_LABEL)),
    });
}

/// The pool of single addresses in [`TABLE`].
fn web() -> PoolKey {
    PoolKey::new(InClusterKind::IPPool, Some("team-a"), "web")
}

#[test]
fn table_creates_pools_and_reservations() {
    let plan = planned(TABLE, &Existing::default(), false);
    let lines: Vec<_> = plan
        .pools
        .iter()
        .chain(&plan.reservations)
        .map(|change| change.line)
        .collect();
    assert_eq!(lines, [Some(2), Some(3), Some(5), Some(6)]);
    let Action::CreatePool(key, pool) = &plan.pools[0].action else {
        panic!("a pool")
    };
    assert_eq!(
        (key, &pool["metadata"]["namespace"]),
        (&web(), &json!("team-a"))
    );
    let spec = json!({
        "addresses": ["10.0.0.2-10.0.0.9", "10.0.0.20"], "excludedAddresses": ["10.0.0.5"], "prefix": 24,
        "gateway": "10.0.0.1", "network": "lab",
    });
    assert_eq!(pool["spec"], spec);
    let names: Vec<_> = plan
        .reservations
        .iter()
        .map(|change| {
            let Action::CreateReservation(new) = &change.action else {
                panic!("a reservation")
            };
            assert!(new.slot().is_ok());
            (
                new.metadata.name.clone().unwrap(),
                new.spec.claim_ref.clone().unwrap().namespace,
            )
        })
        .collect();
    let expected = [
        ("n.lab.10.0.0.7", "team-a"),
        (
            "gp.pods.fd00-0000-0000-0007-0000-0000-0000-0000-64",
            "team-b",
        ),
    ];
    assert_eq!(
        names,
        expected.map(|(name, namespace)| (name.to_owned(), namespace.to_owned()))
    );
}

#[test]
fn second_import_changes_nothing() {
    let plan = planned(TABLE, &imported(TABLE), true);
    assert_eq!(
        (
            plan.pools.len(),
            plan.reservations.len(),
            plan.deletions.len(),
            plan.unchanged
        ),
        (0, 0, 0, 4)
    );
}

#[test]
fn moved_reservation_is_the_same_one() {
    // The network selects the pool, and the manager moves the reservation: afterwards, or it is
    // about to.
    let text = TABLE.replace(",lab,", ",,").replace(",vm-1", ",");
    for keeps_old in [false, true] {
        let mut existing = imported(&text);
        let scope = Scope::Network("everything".into());
        existing.pools.get_mut(&web()).unwrap().scope = scope.clone();
        let index = existing
            .reservations
            .iter()
            .position(|found| found.pool == web())
            .unwrap();
        let name = "n.everything.10.0.0.7".to_owned();
        let moved = ExistingReservation {
            name,
            scope,
            ..existing.reservations[index].clone()
        };
        if !keeps_old {
            existing.reservations.remove(index);
        }
        existing.reservations.push(moved);
        let plan = planned(&text, &existing, true);
        assert!(is_empty(&plan), "{plan:?}");
        assert_eq!(plan.unchanged, 4);
    }
}

#[test]
fn export_is_imported_in_every_kind_of_network() {
    let mut existing = imported(&TABLE.replace(",lab,", ",,"));
    let spec = json!({ "scope": "n.everything", "address": "10.0.0.7",
                       "poolRef": { "kind": "InClusterIPPool", "namespace": "team-a", "name": "web" },
                       "claimRef": { "namespace": "team-a", "name": "vm-1" } });
    let exported = json!({ "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "IPReservation",
                           "metadata": { "name": "n.everything.10.0.0.7" }, "spec": spec });
    // The pool has left the network meanwhile.
    let plan = planned(&exported.to_string(), &existing, false);
    assert!(is_empty(&plan) && plan.warnings.is_empty(), "{plan:?}");
    // In a cluster in which the network does not select the pool.
    existing.reservations.clear();
    let plan = planned(&exported.to_string(), &existing, false);
    assert_eq!(
        plan.reservations[0].action.object(),
        "IPReservation p.team-a.web.10.0.0.7"
    );
    assert_eq!(
        plan.warnings,
        [
            "line 1: spec.scope: is n.everything; p.team-a.web is used, the scope of InClusterIPPool team-a/web"
        ]
    );
    // In one in which it does.
    existing.pools.get_mut(&web()).unwrap().scope = Scope::Network("everything".into());
    let plan = planned(&exported.to_string(), &existing, false);
    assert_eq!(
        plan.reservations[0].action.object(),
        "IPReservation n.everything.10.0.0.7"
    );
    assert!(plan.warnings.is_empty());
}

#[test]
fn changed_pool_is_updated_only_by_its_import() {
    let text = TABLE.replace("10.0.0.20", "10.0.0.30");
    let mut existing = imported(TABLE);
    let plan = planned(&text, &existing, false);
    assert!(matches!(plan.pools[0].action, Action::UpdatePool(..)));
    assert_eq!(plan.unchanged, 3);
    set_import(&mut existing, None);
    let problems = problems_in(&text, &existing);
    let problem = "InClusterIPPool team-a/web exists with another specification and was not created by an import; \
                   change it with kubectl edit";
    assert_eq!(problems, [(Some(2), problem.to_owned())]);
}

#[test]
fn reservation_is_never_replaced() {
    // Between a deletion and a creation, a waiting claim would get the address.
    for (line, found) in [
        (",vm-3", "reserved for the claim team-a/vm-1"),
        (",", "reserved for the claim team-a/vm-1"),
    ] {
        let text = TABLE.replace(",vm-1", line);
        let problems = problems_in(&text, &imported(TABLE));
        let problem = format!(
            "10.0.0.7 of network lab is {found}, which cannot be changed; delete the reservation first: \
             kubectl ipam unreserve IP/web 10.0.0.7 --namespace team-a"
        );
        assert_eq!(problems, [(Some(5), problem)]);
    }
    let mut existing = imported(TABLE);
    existing
        .reservations
        .iter_mut()
        .for_each(|reservation| reservation.is_held = true);
    let problems = problems_in(TABLE, &existing);
    assert!(
        problems[0]
            .1
            .contains("is held by the claim team-a/vm-1, or cools down"),
        "{problems:?}"
    );
}

#[test]
fn table_does_not_remove_fields_that_it_cannot_state() {
    let mut existing = imported(TABLE);
    let web = existing.pools.get_mut(&web()).unwrap();
    let mut spec = serde_json::to_value(&web.spec).unwrap();
    spec["draining"] = json!(["10.0.0.9"]);
    web.spec = PoolSpec::Addresses(serde_json::from_value(spec).unwrap());
    // The columns are as in the cluster: nothing changes.
    assert!(is_empty(&planned(TABLE, &existing, true)));
    let problem = "InClusterIPPool team-a/web has draining, for which a table has no column; import it as YAML or JSON";
    assert_eq!(
        problems_in(&TABLE.replace("10.0.0.20", "10.0.0.30"), &existing),
        [(Some(2), problem.to_owned())]
    );
}

#[test]
fn prune_deletes_only_what_the_import_created() {
    let text = TABLE.lines().next().unwrap();
    let mut existing = imported(TABLE);
    let plan = planned(text, &existing, true);
    assert_eq!(plan.deletions.len(), 4);
    assert!(planned(text, &existing, false).deletions.is_empty());
    existing.pools_in_use.insert(web());
    assert!(
        problems_in(text, &existing)[0]
            .1
            .contains("has IPAddresses or claims")
    );
    set_import(&mut existing, None);
    existing.reservations[0]
        .metadata
        .labels
        .insert(IMPORT_LABEL.to_owned(), "others".to_owned());
    existing.reservations[1]
        .metadata
        .labels
        .insert(IMPORT_LABEL.to_owned(), "racks".to_owned());
    existing.reservations[1].is_held = true;
    assert!(planned(text, &existing, true).deletions.is_empty());
}

#[test]
fn pool_with_reservations_of_the_file_is_not_deleted() {
    let without_pool: Vec<&str> = TABLE
        .lines()
        .filter(|line| !line.starts_with("GlobalPrefix"))
        .collect();
    let text = without_pool.join("\n");
    let problem = "GlobalInClusterPrefixPool pods is not in the file, but this line reserves an address of it; add the pool";
    assert_eq!(
        problems_in(&text, &imported(TABLE)),
        [(Some(5), problem.to_owned())]
    );
    assert!(is_empty(&planned(&text, &imported(TABLE), false)));
}

#[test]
fn one_exclusion_is_enough_for_the_pools_of_a_network() {
    let text = "\
kind,namespace,name,addresses,prefix,network,pool
IP,a,one,10.0.0.2-10.0.0.9,24,lab,
IP,a,two,10.0.0.2-10.0.0.9,24,lab,
IPReservation,a,,10.0.0.7,,,one
IPReservation,a,,10.0.0.7,,,two
";
    let existing = imported(text);
    assert_eq!(
        (
            existing.reservations.len(),
            planned(text, &existing, true).unchanged
        ),
        (1, 4)
    );
    // The line of the other pool still needs the reservation.
    let without_one: Vec<&str> = text
        .lines()
        .filter(|line| !line.ends_with(",,,one"))
        .collect();
    assert!(is_empty(&planned(&without_one.join("\n"), &existing, true)));
    let promise = text
        .replace(",two\n", ",two,\n")
        .replace(",pool\n", ",pool,claim\n")
        .replace(",one\n", ",one,vm\n");
    assert!(
        problems(&promise)[0]
            .1
            .contains("10.0.0.7 of network lab is also in line 4"),
        "{:?}",
        problems(&promise)
    );
}

#[test]
fn object_that_is_as_in_the_file_is_not_checked() {
    // Objects that an earlier version has accepted: the pool does not contain the address, and has
    // an invalid limit.
    let mut existing = imported(TABLE);
    let pool = json!({ "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "GlobalInClusterIPPool",
                       "metadata": { "name": "old" },
                       "spec": { "addresses": ["10.9.0.1", "10.8.0.1"], "prefix": 24, "limits": { "perNamespace": 0 } } });
    let reservation = json!({ "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "IPReservation",
                              "metadata": { "name": "g.old.10.7.0.1" },
                              "spec": { "scope": "g.old", "address": "10.7.0.1",
                                        "poolRef": { "kind": "GlobalInClusterIPPool", "name": "old" },
                                        "claimRef": { "namespace": "a", "name": "Bad_Name" } } });
    let file = format!("{pool}\n---\n{reservation}\n");
    let found = problems_in(&file, &existing);
    let places: Vec<_> = found
        .iter()
        .map(|(line, problem)| (line.unwrap(), problem.split(": ").nth(1)))
        .collect();
    assert!(
        places.contains(&(1, Some("spec.limits.perNamespace"))),
        "{found:?}"
    );
    let key = PoolKey::new(InClusterKind::GlobalIPPool, None, "old");
    let stored: Pool = serde_json::from_value(pool).unwrap();
    let (scope, metadata) = (Scope::Pool(key.clone()), Metadata::default());
    existing.pools.insert(
        key.clone(),
        ExistingPool {
            spec: stored.spec,
            scope,
            metadata,
            version: version(),
        },
    );
    // Everything else is checked if it has to be written.
    assert!(
        problems_in(&file, &existing)[0]
            .1
            .starts_with("spec.claimRef.name: \"Bad_Name\"")
    );
    let block = Block::address("10.7.0.1".parse().unwrap());
    existing.reservations.push(ExistingReservation {
        name: "g.old.10.7.0.1".to_owned(),
        pool: key.clone(),
        scope: Scope::Pool(key),
        block,
        claim: Some(self::key("a", "Bad_Name")),
        is_held: false,
        metadata: Metadata::default(),
        version: version(),
    });
    assert_eq!(planned(&file, &existing, false).unchanged, 2);
}

#[test]
fn reservation_for_an_impossible_claim_is_refused() {
    let table = TABLE
        .replace(",vm-1", ",kube-system/vm-1")
        .replace("team-b/vm-2", "team-b/a b");
    let found = problems(&table);
    assert!(
        found[0]
            .1
            .starts_with("spec.claimRef.namespace: InClusterIPPool team-a/web allocates only"),
        "{found:?}"
    );
    assert!(
        found[1].1.starts_with("spec.claimRef.name: \"a b\""),
        "{found:?}"
    );
}

#[test]
fn promise_is_not_subject_to_allowed_namespaces() {
    let file = "apiVersion: ipam.cluster.x-k8s.io/v1alpha2\nkind: GlobalInClusterIPPool\nmetadata: {name: g}\nspec: \
         {addresses: [10.0.0.2-10.0.0.9], prefix: 24, allowedNamespaces: {from: Names, names: [team-a]}}\n---\n\
         apiVersion: ipam.cluster.x-k8s.io/v1alpha2\nkind: IPReservation\nmetadata: {name: g.g.10.0.0.7}\nspec: \
         {scope: g.g, address: 10.0.0.7, poolRef: {kind: GlobalInClusterIPPool, name: g}, \
         claimRef: {namespace: team-b, name: vm}}\n";
    assert_eq!(
        planned(file, &Existing::default(), false)
            .reservations
            .len(),
        1
    );
}

#[test]
fn labels_of_the_file_are_set() {
    let text = |label: &str| {
        format!(
            "apiVersion: ipam.cluster.x-k8s.io/v1alpha2\nkind: InClusterIPPool\nmetadata: {{name: web, labels: \
             {{net: {label}}}}}\nspec: {{addresses: [10.0.0.2], prefix: 24}}\n"
        )
    };
    let mut existing = imported(&text("lab"));
    assert!(is_empty(&planned(&text("lab"), &existing, true)));
    let plan = planned(&text("prod"), &existing, true);
    let Action::UpdatePool(_, _, update) = &plan.pools[0].action else {
        panic!("an update")
    };
    assert_eq!(
        update.metadata.labels,
        [("net".to_owned(), "prod".to_owned())].into()
    );
    assert!(update.spec.is_none());
    set_import(&mut existing, None);
    assert!(
        problems_in(&text("prod"), &existing)[0]
            .1
            .contains("exists with other labels or annotations")
    );
    assert!(is_empty(&planned(&text("lab"), &existing, true)));
}

#[test]
fn pools_of_a_network_have_one_block_length() {
    let text = "kind,namespace,name,addresses,prefix,network\nPrefix,a,one,fd00::/48,64,lab\nPrefix,a,two,fd01::/48,56,lab\n";
    let problem = "InClusterPrefixPool a/two: spec.network: allocates IPv6 blocks of length 56, and InClusterPrefixPool \
                   a/one of length 64; use another network for one of them";
    assert_eq!(problems(text), [(Some(3), problem.to_owned())]);
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
IPReservation;a;named;10.1.0.5;;ok;
InClusterIPPool;a;Bad_3;10.3.0.2;24;;
InClusterIPPool;A_B;b;10.3.0.2;24;;
InClusterIPPool;a;zero;10.3.0.2;024;;
InClusterIPPool;a;blank;10.3.0.2 - 9;24;;
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
        (
            12,
            "InClusterIPPool a/none exists neither in the cluster nor in the file",
        ),
        (13, "addresses: invalid address 10.1.0"),
        (14, "claim: invalid claim a/b/c"),
        (14, "prefix: a reservation has none"),
        (15, "the row has 9 cells, and the table 7 columns"),
        (16, "name: a reservation has none"),
        (
            17,
            "InClusterIPPool a/Bad_3: metadata.name: must consist of",
        ),
        (
            18,
            "InClusterIPPool A_B/b: metadata.namespace: no namespace can have this name",
        ),
        (19, "prefix: 024 is not a prefix length; write 24"),
        (
            20,
            "addresses: 10.3.0.2 - 9 is not a range; write it without blanks, for example 10.150.1.10-10.150.1.20",
        ),
    ];
    let found = problems(text);
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for ((line, problem), (expected_line, text)) in found.iter().zip(expected) {
        assert_eq!(*line, Some(expected_line), "{problem}");
        assert!(problem.starts_with(text), "{problem} instead of {text}");
    }
    assert!(
        problems("kind,name,adresses\n")[0]
            .1
            .starts_with("unknown column adresses; did you mean addresses?")
    );
    assert!(
        problems("name\nweb\n")[0]
            .1
            .contains("with the column kind")
    );
}

#[test]
fn table_of_a_spreadsheet_is_the_same_table() {
    let rows = [
        "Kind,Comment,Namespace,NAME,Addresses,Prefix,Owner,Pool,Claim,,",
        "IP,first rack,a,web,10.150.1.10 - 10.150.1.20,24,me,,,,",
        "IPReservation,,a,,10.150.1.12,,,web,vm-1,,x",
    ];
    for separator in [",", ";", "\t"] {
        let text = format!("\u{feff}{}\r\n", rows.join("\r\n").replace(',', separator));
        let parsed = parse(&text, "team-a");
        assert_eq!(
            parsed.warnings(),
            ["the columns Comment, Owner, number 11 (without a name) are ignored"]
        );
        let plan = plan(parsed, &Existing::default(), "racks", false).unwrap();
        let Action::CreatePool(_, pool) = &plan.pools[0].action else {
            panic!("a pool")
        };
        assert_eq!(
            pool["spec"]["addresses"],
            json!(["10.150.1.10-10.150.1.20"])
        );
        assert_eq!(
            plan.reservations[0].action.object(),
            "IPReservation p.a.web.10.150.1.12"
        );
    }
}

#[test]
fn address_in_use_is_not_reserved() {
    let mut existing = imported(TABLE);
    // A pool that the network selects: the address is in use there too.
    let other = PoolKey::new(InClusterKind::IPPool, Some("team-z"), "other");
    let ExistingPool { spec, .. } =
        &existing.pools[&PoolKey::new(InClusterKind::GlobalPrefixPool, None, "pods")];
    let (scope, metadata) = (Scope::Network("lab".into()), Metadata::default());
    let pool = ExistingPool {
        spec: spec.clone(),
        scope,
        metadata,
        version: version(),
    };
    existing.pools.insert(other.clone(), pool);
    existing.reservations.clear();
    let address = Block::address("10.0.0.7".parse().unwrap());
    existing
        .addresses
        .push((other, address, key("team-z", "vm-9")));
    assert_eq!(
        problems_in(TABLE, &existing)[0].1,
        "10.0.0.7 of network lab is in use by the claim team-z/vm-9"
    );
    existing.addresses[0].2 = key("team-a", "vm-1");
    assert_eq!(planned(TABLE, &existing, false).reservations.len(), 2);
}

#[test]
fn table_and_manifest_of_an_export_are_equal() {
    let existing = imported(TABLE);
    let pools: Vec<Pool> = parse(TABLE, "team-a")
        .records
        .into_iter()
        .filter_map(|record| {
            if let Entry::Pool(wanted) = record.entry {
                Some(wanted.pool)
            } else {
                None
            }
        })
        .collect();
    let reservations: Vec<_> = planned(TABLE, &Existing::default(), false)
        .reservations
        .into_iter()
        .map(|change| match change.action {
            Action::CreateReservation(mut new) => {
                new.metadata.labels = None;
                *new
            }
            other => panic!("{other:?}"),
        })
        .collect();
    let table = table::write(&pools, &reservations).unwrap();
    let plan = planned(&table, &existing, true);
    assert_eq!(
        (plan.pools.len(), plan.deletions.len(), plan.unchanged),
        (0, 0, 4),
        "{table}"
    );
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": reservations });
    let parsed = parse(&serde_json::to_string_pretty(&list).unwrap(), "team-a");
    assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
    assert_eq!(parsed.records.len(), 2);
}

#[test]
fn ten_thousand_rows_are_planned() {
    use std::fmt::Write;

    let mut text =
        "kind,namespace,name,addresses,prefix,pool\nIP,a,big,10.0.0.0/16,16,\n".to_owned();
    (1..10_000).for_each(|number: u32| {
        let _ = writeln!(
            text,
            "IPReservation,a,,10.0.{}.{},,big",
            number / 256,
            number % 256
        );
    });
    let plan = planned(&text, &Existing::default(), true);
    assert_eq!((plan.pools.len(), plan.reservations.len()), (1, 9_999));
}
