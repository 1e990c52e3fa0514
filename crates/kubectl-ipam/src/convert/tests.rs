#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    reason = "test code: a failure ends the test"
)]

use capi_ipam_api::{IPReservation, Pool};
use serde_json::{Value, json};

use super::{Converted, SOURCE_LABEL, convert};

const TABLE: &str = "\
kind,namespace,name,addresses,excludedAddresses,prefix,gateway,network,pool,claim
IPReservation,team-a,,10.0.0.7,,,,,ip/web,vm-1
InClusterIPPool,team-a,web,10.0.0.2-10.0.0.9 10.0.0.20,10.0.0.5,24,10.0.0.1,lab,,
GlobalPrefix,,pods,fd00::/48,,64,,,,
,,,,,,,,,
IPReservation,,,fd00:0:0:7::/64,,,,,GlobalPrefix/pods,team-b/vm-2
IPNetwork,,lab,,10.0.0.1-10.0.0.3,,,,,
";

fn converted(text: &str) -> Converted {
    convert(text, "team-a", None).unwrap()
}

fn problems(text: &str) -> Vec<String> {
    match convert(text, "team-a", None) {
        Ok(converted) => panic!("no problem: {converted:?}"),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    }
}

/// The problems of a row of a pool of single addresses.
fn pool_problems(row: &str) -> Vec<String> {
    problems(&format!(
        "kind,name,addresses,excludedAddresses,prefix,gateway,network,addressReuseGracePeriodSeconds\n{row}\n"
    ))
}

#[test]
fn objects_follow_those_that_they_refer_to() {
    let found = converted(TABLE);
    let names: Vec<_> = found
        .objects
        .iter()
        .map(|it| &it["metadata"]["name"])
        .collect();
    let expected = [
        "lab",
        "web",
        "pods",
        "gp.pods.fd00-0000-0000-0007-0000-0000-0000-0000-64",
        "n.lab.10.0.0.7",
    ];
    assert_eq!(names, expected);
    assert_eq!(
        found.objects[0]["spec"],
        json!({ "excluded": ["10.0.0.1-10.0.0.3"] })
    );
    let web = &found.objects[1];
    assert_eq!(web["apiVersion"], "ipam.cluster.x-k8s.io/v1alpha2");
    assert_eq!(
        web["metadata"],
        json!({ "name": "web", "namespace": "team-a" })
    );
    let spec = json!({
        "addresses": ["10.0.0.2-10.0.0.9", "10.0.0.20"], "excludedAddresses": ["10.0.0.5"], "prefix": 24,
        "gateway": "10.0.0.1", "network": "lab",
    });
    assert_eq!(web["spec"], spec);
    let spec = json!({ "prefixes": ["fd00::/48"], "allocationPrefixLength": 64 });
    assert_eq!(found.objects[2]["spec"], spec);
    let claims = [3, 4].map(|index| {
        let new: IPReservation = serde_json::from_value(found.objects[index].clone()).unwrap();
        assert!(new.slot().is_ok(), "{new:?}");
        new.spec.claim_ref.unwrap().namespace
    });
    assert_eq!(claims, ["team-b", "team-a"]);
    assert!(found.warnings.is_empty());
}

#[test]
fn all_objects_have_the_label_of_the_source() {
    let found = convert(TABLE, "team-a", Some("racks")).unwrap();
    for object in &found.objects {
        let labels = &object["metadata"]["labels"];
        assert_eq!(labels, &json!({ SOURCE_LABEL: "racks" }));
    }
}

#[test]
fn table_without_rows_is_named() {
    let found = converted("kind,name\n,\n");
    assert_eq!(
        found.warnings,
        ["the table has no rows: no manifest is written"]
    );
    assert!(found.objects.is_empty());
}

#[test]
fn line_with_the_separator_is_no_row() {
    let text = "sep=;\r\nkind;name;addresses;prefix\r\nIP;a;10.0.0.2;24\r\n";
    assert_eq!(converted(text).objects.len(), 1);
    let found = problems(&text.replace("10.0.0.2", "10.0.0.x"));
    assert!(
        found[0].starts_with("line 3, column addresses: "),
        "{found:?}"
    );
}

#[test]
fn order_of_the_rows_does_not_matter() {
    let mut lines: Vec<&str> = TABLE.lines().collect();
    lines[1..].reverse();
    assert_eq!(converted(&lines.join("\n")), converted(TABLE));
}

#[test]
fn cells_of_every_column_are_in_the_pool() {
    let text = "kind;name;addresses;prefix;allocateReservedIPAddresses;addressReuseGracePeriodSeconds;owner\n\
                GlobalIP;p;10.0.0.0 \u{2013} 10.0.0.9;/24;TRUE;600;anna\n";
    let found = converted(text);
    let spec = json!({
        "addresses": ["10.0.0.0-10.0.0.9"], "prefix": 24, "allocateReservedIPAddresses": true,
        "addressReuseGracePeriodSeconds": 600,
    });
    assert_eq!(found.objects[0]["spec"], spec);
    let pool: Pool = serde_json::from_value(found.objects[0].clone()).unwrap();
    assert!(pool.spec.usable().is_ok());
    assert_eq!(found.warnings, ["the column owner is ignored"]);
}

#[test]
fn problem_has_its_line_and_column() {
    for (row, expected) in [
        ("IP,,10.0.0.2,,24,,,", "line 2, column name: is empty"),
        ("IP,web,,,24,,,", "line 2, column addresses: is empty"),
        ("IP,web,10.0.0.2,,,,,", "line 2, column prefix: is empty"),
        (
            "IP,web,10.0.0.2,,x,,,",
            "line 2, column prefix: x is not a number",
        ),
        (
            "IP,web,10.0.0.2,,99,,,",
            "line 2, column prefix: 99 is not between 0 and 32",
        ),
        (
            "IP,web,10.0.0.2,,24,10.0.0.1,,-1",
            "line 2, column addressReuseGracePeriodSeconds: ",
        ),
        (
            "IP,web,10.0.0.2,,24,fd00::1,,",
            "line 2, column gateway: fd00::1 is IPv6",
        ),
        ("IP,web,10.0.0.300,,24,,,", "line 2, column addresses: "),
        (
            "IP,web,10.0.0.2,10.0.0.x,24,,,",
            "line 2, column excludedAddresses: ",
        ),
        (
            "IP,Web,10.0.0.2,,24,,,",
            "line 2, column name: must consist of",
        ),
        (
            "Prefix,p,fd00::/48,,64,,,3",
            "line 2, column addressReuseGracePeriodSeconds: an InClusterPrefixPool has none",
        ),
        (
            "Pool,web,10.0.0.2,,24,,,",
            "line 2, column kind: Pool is neither a pool nor",
        ),
        (",web,10.0.0.2,,24,,,", "line 2, column kind: is empty"),
        (
            "IP,web,10.0.0.2,,24,,,,,",
            "line 2: the row has 10 cells, and the table 8 columns",
        ),
        (
            "IPNetwork,lab,10.0.0.2,,,,,",
            "line 2, column addresses: an IPNetwork has none",
        ),
        (
            "IPNetwork,lab,,10.0.0.x,,,,",
            "line 2, column excludedAddresses: ",
        ),
        (
            "IPNetwork,lab.a,,,,,,",
            "line 2, column name: must consist of",
        ),
    ] {
        let found = pool_problems(row);
        assert!(
            found.len() == 1 && found[0].starts_with(expected),
            "{row}: {found:?}"
        );
    }
}

#[test]
fn all_problems_are_found_at_once() {
    let text = "kind,name,addresses,prefix,gateway\nIP,,10.0.0.x,24,fd00::1\nIP,b,10.1.0.2,24,x\n";
    let found = problems(text);
    assert_eq!(found.len(), 2, "{found:?}");
    let text = "kind,name,addresses,prefix,gateway\nIP,a,10.0.0.x,y,fd00::1\nIP,b,10.1.0.2,24,x\n";
    assert!(problems(text).len() >= 2);
    let text = "kind,adresses,kind\nIP,a,b\n";
    assert_eq!(problems(text).len(), 2);
}

#[test]
fn rows_that_contradict_each_other_are_problems() {
    let header = "kind,namespace,name,addresses,prefix,network,pool,claim\n";
    for (rows, expected) in [
        (
            "IP,,a,10.0.0.2,24,,,\nIP,team-a,a,10.1.0.2,24,,,\n",
            "line 3, column name: InClusterIPPool team-a/a is also in line 2",
        ),
        (
            "IPNetwork,,lab,,,,,\nIPNetwork,,lab,,,,,\n",
            "line 3, column name: IPNetwork lab is also in line 2",
        ),
        (
            "IP,,a,10.0.0.2-10.0.0.9,24,,,\nGlobalIP,,b,10.0.0.9-10.0.0.20,24,,,\n",
            "line 3, column addresses: 10.0.0.9 is also in InClusterIPPool team-a/a: both would allocate it",
        ),
        (
            "IP,,a,10.0.0.2-10.0.0.9,24,lab,,\nPrefix,,b,10.1.0.0/16,24,lab,,\n",
            "line 3, column network: InClusterPrefixPool team-a/b allocates IPv4 blocks of length 24",
        ),
        (
            "IP,,a,10.0.0.2-10.0.0.9,24,,,\nIPReservation,,,10.0.0.10,,,a,\n",
            "line 3, column addresses: InClusterIPPool team-a/a does not contain 10.0.0.10",
        ),
        (
            "IP,,a,10.0.0.2-10.0.0.9,24,,,\nIPReservation,,,10.0.0.3,,,a,\nIPReservation,,,10.0.0.3,,,a,vm\n",
            "line 4, column addresses: 10.0.0.3 of",
        ),
        (
            "IP,,a,10.0.0.2-10.0.0.9,24,,,\nIPReservation,,,10.0.0.3,,lab,a,\n",
            "line 3, column network: InClusterIPPool team-a/a has the network none in line 2",
        ),
        (
            "IP,,a,10.0.0.2-10.0.0.9,24,,,\nIPReservation,,,10.0.0.3,,,a,team-b/vm\n",
            "line 3, column claim: ",
        ),
        (
            "IP,,a,10.0.0.2-10.0.0.9,24,,,\nIPReservation,,,10.0.0.3,,,a,vm\nIPReservation,,,10.0.0.4,,,a,vm\n",
            "line 4, column claim: team-a/vm is also in line 3: a claim gets one address",
        ),
    ] {
        let found = problems(&format!("{header}{rows}"));
        assert!(
            found.len() == 1 && found[0].starts_with(expected),
            "{rows}: {found:?}"
        );
    }
}

#[test]
fn pools_of_one_network_may_have_the_same_addresses() {
    let header = "kind,name,addresses,prefix,network\n";
    let of = |one: &str, other: &str| {
        let row = |name: &str, network: &str| format!("IP,{name},10.0.0.2-10.0.0.9,24,{network}\n");
        let text = format!("{header}{}{}", row("a", one), row("b", other));
        convert(&text, "team-a", None)
    };
    assert!(of("lab", "lab").unwrap().warnings.is_empty());
    let warnings = of("lab", "site").unwrap().warnings;
    let warning = "line 3: 10.0.0.2 is also in InClusterIPPool team-a/a, which is in another network: both allocate it";
    assert_eq!(warnings, [warning]);
    for (one, other) in [("lab", ""), ("", "lab"), ("", "")] {
        let found = of(one, other).unwrap_err();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].text.contains("both would allocate it"));
    }
}

/// Between two pools of a network, of which one reaches further.
#[test]
fn overlap_with_a_pool_without_a_network_is_found() {
    let text = "kind,name,addresses,prefix,network\nIP,a,10.0.0.2-10.0.0.200,24,lab\nIP,b,10.0.0.3-10.0.0.9,24,\n\
                IP,c,10.0.0.4-10.0.0.250,24,lab\n";
    let found = problems(text);
    assert!(found[0].contains("is also in"), "{found:?}");
}

/// Warnings are limited, problems are not.
#[test]
fn overlap_after_many_with_pools_of_other_networks_is_found() {
    let mut rows = vec!["kind,name,addresses,prefix,network".to_owned()];
    for number in 0..12 {
        rows.push(format!("IP,v{number},10.0.0.2-10.0.0.100,24,n{number}"));
    }
    rows.push("IP,q,10.0.0.90-10.0.0.110,24,".to_owned());
    let found = problems(&rows.join("\n"));
    assert!(found[0].contains("both would allocate it"), "{found:?}");
}

/// As spreadsheet programs write them.
#[test]
fn lines_of_any_kind_are_counted() {
    for end in ["\n", "\r\n", "\r"] {
        let rows = ["", "kind,name,addresses,prefix", "", "", "IP,a,10.0.0.2,x"];
        let found = problems(&rows.join(end));
        let expected = ["line 5, column prefix: x is not a number"];
        assert_eq!(found, expected, "{end:?}");
        let rows = [
            "kind,name,addresses,prefix",
            "IP,a,\"10.0.0.2",
            "10.0.0.4\",24",
            "IP,b,10.1.0.2,x",
        ];
        let found = problems(&rows.join(end));
        let expected = ["line 4, column prefix: x is not a number"];
        assert_eq!(found, expected, "{end:?}");
    }
}

#[test]
fn quotation_mark_that_hides_rows_is_a_problem() {
    let header = "kind,name,addresses,prefix,comment\n";
    for rows in [
        "IP,a,10.0.0.2,24,\"rack 19\nIP,b,10.1.0.3,24,\nIP,c,10.2.0.4,24,\n",
        "IP,a,10.0.0.2,24,\"rack 19\nIP,b,10.1.0.3,24,\"x\"\nIP,c,10.2.0.4,24,\n",
        "IP,\"a,10.0.0.2,24,\nIP,b\",10.1.0.3,24,\n",
    ] {
        let found = problems(&format!("{header}{rows}"));
        assert!(
            found[0].starts_with("line 2") && found[0].contains("quotation mark"),
            "{rows}: {found:?}"
        );
    }
    let comment = format!("{header}IP,a,10.0.0.2,24,\"rack 19,\nsecond floor\"\n");
    assert_eq!(converted(&comment).objects.len(), 1);
    assert_eq!(problems(""), ["line 1: the file is empty"]);
}

#[test]
fn reservation_is_checked_like_its_pool() {
    let header = "kind,namespace,name,addresses,excludedAddresses,prefix,gateway,network,pool\n";
    for (rows, expected) in [
        (
            "IPReservation,,,10.0.0.2,,,,,IP/a/b\n",
            "line 2, column pool: must consist of",
        ),
        (
            "IPReservation,,,10.0.0.2,,,,,WEB\n",
            "line 2, column pool: must consist of",
        ),
        (
            "IPReservation,Bad NS,,10.0.0.2,,,,,web\n",
            "line 2, column namespace: no namespace",
        ),
        (
            "IPReservation,,,10.0.0.2,,,,Bad Net,web\n",
            "line 2, column network: must consist of",
        ),
        (
            "GlobalIP,,a,10.0.0.2,,24,,,\nIPReservation,,,10.0.0.2,,,,,a\n",
            "line 3, column pool: InClusterIPPool team-a/a is not in the table; did you mean GlobalIP/a?",
        ),
        (
            "IPNetwork,,lab,,10.0.0.2,,,,\nIP,,a,10.0.0.2-10.0.0.9,,24,,lab,\nIPReservation,,,10.0.0.2,,,,,a\n",
            "line 4, column addresses: IPNetwork lab excludes 10.0.0.2",
        ),
        (
            "IP,,a,10.0.0.2-10.0.0.9,,24,,lab,\nIP,,b,10.0.0.20,,24,10.0.0.3,lab,\nIPReservation,,,10.0.0.3,,,,,a\n",
            "line 4, column addresses: 10.0.0.3 is the gateway of a pool of network lab",
        ),
    ] {
        let found = problems(&format!("{header}{rows}"));
        assert!(
            found.len() == 1 && found[0].starts_with(expected),
            "{rows}: {found:?}"
        );
    }
}

#[test]
fn overlap_with_a_pool_that_reaches_further_is_found() {
    let text = "kind,name,addresses,prefix\nIP,a,10.0.0.2-10.0.0.200,24\nIP,b,10.0.0.5,24\nIP,c,10.0.0.100,24\n";
    let found = problems(text);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found
            .iter()
            .all(|it| it.contains("InClusterIPPool team-a/a"))
    );
}

/// Only the problem of the pool is reported.
#[test]
fn reservation_in_a_pool_with_a_problem_is_no_further_problem() {
    let text = "kind,name,addresses,prefix,pool\nIP,a,10.0.0.x,24,\nIP,b,10.0.0.2,,\nIPReservation,,10.0.0.3,,a\n\
                IPReservation,,10.0.0.3,,b\n";
    assert_eq!(problems(text).len(), 2);
}

#[test]
fn reservation_in_another_pool_states_its_network() {
    let text = "kind,addresses,network,pool\nIPReservation,10.0.0.3,lab,a\nIPReservation,10.0.0.4,,b\n\
                IPReservation,10.0.0.5,,b\n";
    let found = converted(text);
    let scopes: Vec<&Value> = found
        .objects
        .iter()
        .map(|it| &it["spec"]["scope"])
        .collect();
    assert_eq!(scopes, ["p.team-a.b", "p.team-a.b", "n.lab"]);
    assert_eq!(found.warnings.len(), 1);
    let warning = "line 3: InClusterIPPool team-a/b is not in the table; 2 reservations in it: ";
    assert!(found.warnings[0].starts_with(warning), "{found:?}");
}
