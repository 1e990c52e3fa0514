use std::path::Path;

use capi_ipam::api::{IPNetwork, IPReservation, Pool};
use capi_ipam_ip::Block;
use capi_ipam_provider::api::{IPAddress, IPAddressClaim};
use serde_json::{Value, json};

use super::lists::{abbreviate, bar};
use super::*;
use crate::cli::Format;
use crate::model::{
    Inventory, LeaseRow, WebhookRow, claims, findings, holders, matches_of, network_lines, pools, show,
};
use crate::objects::{AddressRow, ClaimRow, NetworkRow, PoolRow, ReservationRow};
use crate::output;

const CREATED: &str = "2026-01-02T03:04:05Z";

fn style() -> Style {
    Style { color: false, wide: false, namespaces: false, now: "2026-01-05T03:04:05Z".parse().unwrap() }
}

/// Compares a text with a committed file. `UPDATE_GOLDEN=1` writes the file.
fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(&path).unwrap_or_default(), "{name}: UPDATE_GOLDEN=1 writes it");
}

fn pool(kind: &str, name: &str, spec: &Value, status: &Value) -> PoolRow {
    let namespace = (!kind.starts_with("Global")).then_some("team-a");
    let metadata = json!({ "name": name, "namespace": namespace, "finalizers": ["ipam.cluster.x-k8s.io/ProtectPool"] });
    let object: Pool =
        serde_json::from_value(json!({ "kind": kind, "metadata": metadata, "spec": spec, "status": status })).unwrap();
    PoolRow::from(&object)
}

fn web() -> PoolRow {
    let spec = json!({
        "addresses": ["10.0.0.2-10.0.0.41"], "prefix": 24, "gateway": "10.0.0.2",
        "excludedAddresses": ["10.0.0.3"], "addressReuseGracePeriodSeconds": 60,
    });
    let counts = json!({ "total": 38, "free": 34, "used": 1, "outOfRange": 1, "coolingDown": 1, "reserved": 2 });
    let ready = json!([{ "type": "Ready", "status": "True", "reason": "PoolReady" }]);
    pool("InClusterIPPool", "web", &spec, &json!({ "ipAddresses": counts, "conditions": ready }))
}

fn all_pools() -> Vec<PoolRow> {
    let prefixes = json!({ "prefixes": ["fd00:10::/48"], "allocationPrefixLength": 64, "network": "backbone" });
    let counts = json!({ "total": 65536, "free": 0, "used": 65536, "outOfRange": 0 });
    let invalid = json!({ "addresses": ["10.0.0.300"], "prefix": 24 });
    let not_ready = json!([{ "type": "Ready", "status": "False", "reason": "InvalidSpec", "message": "bad" }]);
    vec![
        web(),
        pool("GlobalInClusterIPPool", "broken", &invalid, &json!({ "conditions": not_ready })),
        pool("GlobalInClusterPrefixPool", "pods", &prefixes, &json!({ "ipAddresses": counts })),
    ]
}

fn address(name: &str, address: &str) -> AddressRow {
    let object: IPAddress = serde_json::from_value(json!({
        "metadata": { "name": name, "namespace": "team-a", "creationTimestamp": CREATED },
        "spec": {
            "address": address, "prefix": 24, "claimRef": { "name": name },
            "poolRef": { "apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "web" },
        },
    }))
    .unwrap();
    AddressRow::of(&object).unwrap()
}

fn addresses() -> Vec<AddressRow> {
    vec![address("vm-1", "10.0.0.4"), address("old", "10.0.0.99")]
}

fn reservations() -> Vec<ReservationRow> {
    let claim = |name: &str, uid: Option<&str>| json!({ "namespace": "team-a", "name": name, "uid": uid });
    let cases = [
        ("10.0.0.4", claim("vm-1", Some("1")), Value::Null),
        ("10.0.0.5", claim("vm-0", Some("0")), json!("2026-01-05T03:03:45Z")),
        ("10.0.0.6", claim("load-balancer", None), Value::Null),
        ("10.0.0.7", Value::Null, Value::Null),
    ];
    let row = |(address, claim, released): (&str, Value, Value)| {
        let object: IPReservation = serde_json::from_value(json!({
            "metadata": { "name": format!("p.team-a.web.{address}"), "creationTimestamp": CREATED },
            "spec": {
                "scope": "p.team-a.web", "address": address, "claimRef": claim, "releasedAt": released,
                "poolRef": { "kind": "InClusterIPPool", "namespace": "team-a", "name": "web" },
            },
        }))
        .unwrap();
        ReservationRow::of(&object).unwrap()
    };
    cases.into_iter().map(row).collect()
}

fn claim(name: &str, status: &Value) -> ClaimRow {
    let owner = json!([
        { "apiVersion": "v1", "kind": "Cluster", "name": "prod", "uid": "1" },
        { "apiVersion": "v1", "kind": "VSphereVM", "name": format!("machine-{name}"), "uid": "2", "controller": true },
    ]);
    let object: IPAddressClaim = serde_json::from_value(json!({
        "metadata": { "name": name, "namespace": "team-a", "creationTimestamp": CREATED, "ownerReferences": owner,
                      "labels": { "cluster.x-k8s.io/cluster-name": "prod" } },
        "spec": { "poolRef": { "apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "web" } },
        "status": status,
    }))
    .unwrap();
    ClaimRow::of(&object).unwrap()
}

fn claim_rows() -> Vec<ClaimRow> {
    let waiting = json!([{ "type": "Ready", "status": "False", "reason": "PoolExhausted", "message": "no \u{1b}[2J" }]);
    let old = json!([{ "type": "Ready", "status": "False", "severity": "Warning", "reason": "PoolNotReady" }]);
    vec![
        claim("vm-2", &json!({ "conditions": waiting })),
        claim("vm-1", &json!({ "addressRef": { "name": "vm-1" } })),
        claim("vm-3", &json!({ "conditions": old })),
        claim("vm-4", &Value::Null),
    ]
}

#[test]
fn pools_of_all_kinds_are_in_one_table() {
    let report = Report::PoolList { pools: pools(&all_pools(), &claim_rows()) };
    let table = text(&report, style());
    assert!(table.lines().all(|line| line.len() <= 80), "{table}");
    golden("pools.txt", &table);
    golden("pools-wide.txt", &text(&report, Style { wide: true, ..style() }));
    for (format, file) in [
        (Format::Json, "pools.json"),
        (Format::Yaml, "pools.yaml"),
        (Format::Csv, "pools.csv"),
        (Format::Name, "pools-name.txt"),
    ] {
        golden(file, &output::format(&report, format, style()).unwrap());
    }
    golden("pools-color.txt", &text(&report, Style { color: true, ..style() }));
}

fn network_rows() -> Vec<NetworkRow> {
    let member = |name: &str, phase: &str| json!({ "kind": "GlobalInClusterIPPool", "name": name, "phase": phase });
    let not_ready = json!([{ "type": "Ready", "status": "False", "reason": "InvalidSpec", "message": "bad" }]);
    let joined = json!({
        "pools": 2, "total": 65536, "used": 300, "free": 65200, "blockLengths": { "ipv4": 32, "ipv6": 64 },
        "members": [member("site-b", "Joining"), member("old", "Leaving"), member("site-a", "Member")],
        "conditions": [{ "type": "Ready", "status": "True", "reason": "NetworkReady" }],
    });
    let row = |(name, status): (&str, Value)| {
        let object: IPNetwork =
            serde_json::from_value(json!({ "metadata": { "name": name }, "status": status })).unwrap();
        NetworkRow::from(object)
    };
    let cases = [("backbone", joined), ("broken", json!({ "conditions": not_ready })), ("new", Value::Null)];
    cases.into_iter().map(row).collect()
}

#[test]
fn networks_show_counts_and_moving_pools() {
    let report = Report::NetworkList { networks: network_lines(&network_rows()) };
    let table = text(&report, style());
    assert!(table.lines().all(|line| line.len() <= 80), "{table}");
    golden("networks.txt", &table);
    golden("networks-wide.txt", &text(&report, Style { wide: true, ..style() }));
    for (format, file) in [
        (Format::Json, "networks.json"),
        (Format::Yaml, "networks.yaml"),
        (Format::Csv, "networks.csv"),
        (Format::Name, "networks-name.txt"),
    ] {
        golden(file, &output::format(&report, format, style()).unwrap());
    }
}

#[test]
fn claims_show_address_state_and_reason() {
    let report = Report::ClaimList { claims: claims(claim_rows(), &addresses()) };
    golden("claims.txt", &text(&report, style()));
    golden("claims-wide.txt", &text(&report, Style { wide: true, ..style() }));
}

fn who(query: &str) -> Report {
    let block = Block::address(query.parse().unwrap());
    let (mut addresses, mut reservations) = (addresses(), reservations());
    addresses.retain(|row| row.block == block);
    reservations.retain(|row| row.slot.block == block);
    let holders = holders(&[web()], &addresses, &reservations, &claim_rows());
    Report::HolderList { address: query.to_owned(), pools: matches_of(&[web()], block), holders }
}

#[test]
fn who_names_pool_membership_and_holder() {
    for (query, file) in [
        ("10.0.0.4", "who-allocated.txt"),
        ("10.0.0.5", "who-cooling.txt"),
        ("10.0.0.6", "who-promised.txt"),
        ("10.0.0.7", "who-excluded-by-reservation.txt"),
        ("10.0.0.8", "who-free.txt"),
        ("10.0.0.2", "who-gateway.txt"),
        ("10.0.0.3", "who-excluded.txt"),
        ("10.0.0.99", "who-out-of-range.txt"),
    ] {
        golden(file, &text(&who(query), style()));
    }
}

#[test]
fn show_draws_map_holders_and_waiting_claims() {
    let pool = show(&web(), &[web()], &addresses(), &reservations(), &[], claim_rows());
    assert_eq!((pool.counts.total, pool.counts.used, pool.counts.free), (38, 1, 34));
    assert_eq!((pool.counts.reserved, pool.counts.cooling_down, pool.counts.out_of_range), (2, 1, 1));
    let report = Report::PoolDetails(Box::new(pool));
    golden("show.txt", &text(&report, style()));
    golden("show-color.txt", &text(&report, Style { color: true, ..style() }));
    golden("show.json", &output::format(&report, Format::Json, style()).unwrap());
}

#[test]
fn show_lists_ranges_and_draining_parts() {
    let spec = json!({
        "ranges": [
            { "addresses": ["10.0.1.0/29"], "prefix": 29, "gateway": "10.0.1.1" },
            { "addresses": ["10.0.0.3-10.0.0.6"], "prefix": 24 },
        ],
        "draining": ["10.0.1.0/29", "10.0.0.4"],
    });
    let ranges = pool("InClusterIPPool", "web", &spec, &Value::Null);
    let pool = show(&ranges, std::slice::from_ref(&ranges), &addresses(), &[], &[], Vec::new());
    let text = text(&Report::PoolDetails(Box::new(pool)), style());
    for line in [
        "  Range        10.0.1.0/29, prefix /29, gateway 10.0.1.1\n",
        "  Range        10.0.0.3-10.0.0.6, prefix /24\n",
        "  Draining     10.0.1.0/29, 10.0.0.4\n",
        "9 total, 1 used, 3 free, 0 reserved, 0 cooling down, 5 drained",
    ] {
        assert!(text.contains(line), "{text}");
    }
    assert!(!text.contains("Ranges") && !text.contains("  Prefix"), "{text}");
}

#[test]
fn map_of_the_largest_pool_has_blocks() {
    let spec = json!({ "addresses": ["::/0"], "prefix": 0, "allocateReservedIPAddresses": true });
    let all = pool("InClusterIPPool", "all", &spec, &Value::Null);
    let pool = show(&all, std::slice::from_ref(&all), &[], &[], &[], Vec::new());
    let map = pool.map.unwrap();
    assert!(map.cells <= 512, "{}", map.cells);
    assert_eq!(map.rows.first().map(String::as_str), Some("::"));
}

#[test]
fn numbers_have_at_most_five_characters() {
    for (count, text) in [(9999, "9999"), (65_536, "65.5k"), (999_999, "999k"), (1_000_000, "1.0M")] {
        assert_eq!(abbreviate(count), text);
    }
    assert_eq!(abbreviate(i64::MAX.unsigned_abs()), "9.2E");
}

#[test]
fn bar_is_full_only_without_a_free_address() {
    assert_eq!(bar(1000, 1, style()), "#########.");
    assert_eq!(bar(1000, 0, style()), "##########");
    assert_eq!(bar(0, 0, style()), "..........");
}

#[test]
fn each_fault_has_a_finding_with_its_repair() {
    let spec = json!({ "addresses": ["10.0.0.2-10.0.0.41"], "prefix": 24 });
    let mut pools = all_pools();
    pools.push(pool("InClusterIPPool", "copy", &spec, &Value::Null));
    let refused = |reason: &str, message: &str| json!([{ "type": "Ready", "status": "False", "reason": reason, "message": message }]);
    let named = json!({ "addresses": ["10.9.0.2"], "prefix": 24, "network": "none" });
    for (name, reason) in
        [("lost", "NetworkNotFound"), ("stranger", "NetworkNotAllowed"), ("choice", "NetworkNotReady")]
    {
        let status = json!({ "conditions": refused(reason, "about the network"), "observedGeneration": 1 });
        pools.push(pool("InClusterIPPool", name, &named, &status));
    }
    let moving =
        json!({ "observedGeneration": 1, "network": { "name": "backbone", "phase": "Joining", "remaining": 2 } });
    pools.push(pool("InClusterIPPool", "slow", &json!({ "addresses": ["10.8.0.2"], "prefix": 24 }), &moving));
    let mut addresses = addresses();
    addresses.push(address("vm-9", "10.0.0.4"));
    let mut claims = claim_rows();
    claims.push(claim("vm-9", &json!({ "addressRef": { "name": "vm-9" } })));
    claims.push(claim("vm-5", &json!({ "addressRef": { "name": "vm-5" } })));
    let in_use =
        |status: &str| json!({ "type": "AddressInUse", "status": status, "message": "Machine vm-6 reports 10.0.0.9" });
    let ready = json!({ "type": "Ready", "status": "True" });
    claims.push(claim("vm-6", &json!({ "conditions": [ready, in_use("False")] })));
    claims.push(claim("vm-7", &json!({ "conditions": [ready, in_use("True")] })));
    let early =
        json!({ "type": "Ready", "status": "False", "reason": "ReleasedEarly", "message": "left: example.com/a" });
    let mut released = claim("vm-8", &json!({ "conditions": [early] }));
    released.deleting = true;
    claims.push(released);
    let mut reservations = reservations();
    reservations.extend(reservations.first().cloned().map(|mut row| {
        row.claim = Some(("team-a".into(), "gone".into()));
        row
    }));
    let lease = LeaseRow {
        namespace: "system".to_owned(),
        holder: Some("pod-1".to_owned()),
        renewed: Some("2026-01-05T02:04:05Z".parse().unwrap()),
        seconds: 15,
    };
    let webhook = WebhookRow {
        name: "hooks".to_owned(),
        has_authority: false,
        service: Some(("system".to_owned(), "webhook".to_owned())),
        ready: Some(0),
    };
    let mut inventory = Inventory {
        pools,
        networks: network_rows(),
        addresses,
        reservations,
        claims,
        slices: Vec::new(),
        unreadable: vec!["skipped 1 ipaddresses that cannot be decoded: team-a/x (no spec)".to_owned()],
        leases: Some(vec![lease]),
        webhooks: vec![webhook],
    };
    let now = style().now;
    let report = Report::FindingList { findings: findings(&inventory, now) };
    golden("doctor.txt", &text(&report, style()));
    golden("doctor.csv", &output::format(&report, Format::Csv, style()).unwrap());

    inventory.pools.retain(|pool| pool.key.name.as_ref() == "missing");
    let missing: Vec<_> = findings(&inventory, now).into_iter().map(|finding| finding.object).collect();
    assert!(missing.contains(&"ipaddressclaim team-a/vm-1".to_owned()), "{missing:?}");
    let healthy = Inventory {
        pools: vec![web()],
        leases: Some(vec![LeaseRow {
            namespace: "system".to_owned(),
            holder: Some("pod-1".to_owned()),
            renewed: Some(now),
            seconds: 15,
        }]),
        ..Inventory::default()
    };
    let report = Report::FindingList { findings: findings(&healthy, now) };
    assert_eq!(text(&report, style()), "No problems found.\n");
}
