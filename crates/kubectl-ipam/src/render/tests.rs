use std::collections::BTreeSet;
use std::path::Path;

use capi_ipam_api::{IPNetwork, IPReservation, Pool};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::Block;
use capi_ipam_provider::api::{IPAddress, IPAddressClaim};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::lists::{abbreviate, bar};
use super::*;
use crate::cli::Format;
use crate::error::MissingRight;
use crate::load::{Claims, Readable};
use crate::model::{
    AccountRow, Alerts, Check, DefinitionRow, DeploymentRow, Fact, HolderState, LeaseRow, Part,
    PartState, PoolDetails, Rule, Snapshot, WebhookRow, claims, diagnosis, holders, matches_of,
    network_lines, parts, pools, show,
};
use crate::objects::{
    AddressRow, ClaimRow, Deletion, NetworkRow, PoolRow, ReservationRow, ServedKinds, UnservedClaim,
};
use crate::output;

const CREATED: &str = "2026-01-02T03:04:05Z";

fn style() -> Style {
    Style {
        color: false,
        wide: false,
        namespaces: false,
        headers: true,
        now: "2026-01-05T03:04:05Z".parse().unwrap(),
    }
}

/// Compares a text with a committed file. `UPDATE_GOLDEN=1` writes the file.
fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    assert_eq!(
        text,
        std::fs::read_to_string(&path).unwrap_or_default(),
        "{name}: UPDATE_GOLDEN=1 writes it"
    );
}

fn pool(kind: &str, name: &str, spec: &Value, status: &Value) -> PoolRow {
    let namespace = (!kind.starts_with("Global")).then_some("team-a");
    let metadata = json!({ "name": name, "namespace": namespace, "finalizers": ["ipam.cluster.x-k8s.io/ProtectPool"] });
    let object: Pool = serde_json::from_value(
        json!({ "kind": kind, "metadata": metadata, "spec": spec, "status": status }),
    )
    .unwrap();
    PoolRow::from(&object)
}

fn web() -> PoolRow {
    let spec = json!({
        "addresses": ["10.0.0.2-10.0.0.41"], "prefix": 24, "gateway": "10.0.0.2",
        "excludedAddresses": ["10.0.0.3"], "addressReuseGracePeriodSeconds": 60,
    });
    let counts = json!({ "total": 38, "free": 34, "used": 1, "outOfRange": 1, "coolingDown": 1, "reserved": 2 });
    let ready = json!([{ "type": "Ready", "status": "True", "reason": "PoolReady" }]);
    pool(
        "InClusterIPPool",
        "web",
        &spec,
        &json!({ "ipAddresses": counts, "conditions": ready }),
    )
}

fn all_pools() -> Vec<PoolRow> {
    let prefixes = json!({ "prefixes": ["fd00:10::/48"], "allocationPrefixLength": 64, "network": "backbone" });
    let counts = json!({ "total": 65536, "free": 0, "used": 65536, "outOfRange": 0 });
    let invalid = json!({ "addresses": ["10.0.0.300"], "prefix": 24 });
    let not_ready =
        json!([{ "type": "Ready", "status": "False", "reason": "InvalidSpec", "message": "bad" }]);
    vec![
        web(),
        pool(
            "GlobalInClusterIPPool",
            "broken",
            &invalid,
            &json!({ "conditions": not_ready }),
        ),
        pool(
            "GlobalInClusterPrefixPool",
            "pods",
            &prefixes,
            &json!({ "ipAddresses": counts }),
        ),
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
    let claim =
        |name: &str, uid: Option<&str>| json!({ "namespace": "team-a", "name": name, "uid": uid });
    let cases = [
        ("10.0.0.4", claim("vm-1", Some("1")), Value::Null),
        (
            "10.0.0.5",
            claim("vm-0", Some("0")),
            json!("2026-01-05T03:03:45Z"),
        ),
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
    let report = Report::PoolList {
        pools: pools(&all_pools(), &Readable::complete(&claim_rows())),
    };
    let table = text(&report, style());
    assert!(table.lines().all(|line| line.len() <= 80), "{table}");
    golden("pools.txt", &table);
    golden(
        "pools-wide.txt",
        &text(
            &report,
            Style {
                wide: true,
                ..style()
            },
        ),
    );
    for (format, file) in [
        (Format::Json, "pools.json"),
        (Format::Yaml, "pools.yaml"),
        (Format::Csv, "pools.csv"),
        (Format::Name, "pools-name.txt"),
    ] {
        golden(
            file,
            &output::format(&report, &[], format, style()).unwrap(),
        );
    }
    golden(
        "pools-color.txt",
        &text(
            &report,
            Style {
                color: true,
                ..style()
            },
        ),
    );
}

fn network_rows() -> Vec<NetworkRow> {
    let member = |name: &str, phase: &str| json!({ "kind": "GlobalInClusterIPPool", "name": name, "phase": phase });
    let not_ready =
        json!([{ "type": "Ready", "status": "False", "reason": "InvalidSpec", "message": "bad" }]);
    let joined = json!({
        "pools": 2, "total": 65536, "used": 300, "free": 65200, "blockLengths": { "ipv4": 32, "ipv6": 64 },
        "members": [member("site-b", "Joining"), member("old", "Leaving"), member("site-a", "Member")],
        "conditions": [{ "type": "Ready", "status": "True", "reason": "NetworkReady" }],
    });
    let row = |(name, status): (&str, Value)| {
        let object: IPNetwork =
            serde_json::from_value(json!({ "metadata": { "name": name }, "status": status }))
                .unwrap();
        NetworkRow::from(object)
    };
    let cases = [
        ("backbone", joined),
        ("broken", json!({ "conditions": not_ready })),
        ("new", Value::Null),
    ];
    cases.into_iter().map(row).collect()
}

#[test]
fn networks_show_counts_and_moving_pools() {
    let report = Report::NetworkList {
        networks: network_lines(&network_rows()),
    };
    let table = text(&report, style());
    assert!(table.lines().all(|line| line.len() <= 80), "{table}");
    golden("networks.txt", &table);
    golden(
        "networks-wide.txt",
        &text(
            &report,
            Style {
                wide: true,
                ..style()
            },
        ),
    );
    for (format, file) in [
        (Format::Json, "networks.json"),
        (Format::Yaml, "networks.yaml"),
        (Format::Csv, "networks.csv"),
        (Format::Name, "networks-name.txt"),
    ] {
        golden(
            file,
            &output::format(&report, &[], format, style()).unwrap(),
        );
    }
}

#[test]
fn claims_show_address_state_and_reason() {
    let report = Report::ClaimList {
        claims: claims(claim_rows(), &[], &Readable::complete(&addresses())),
    };
    golden("claims.txt", &text(&report, style()));
    golden(
        "claims-wide.txt",
        &text(
            &report,
            Style {
                wide: true,
                ..style()
            },
        ),
    );
}

fn who(query: &str) -> Report {
    let block = Block::address(query.parse().unwrap());
    let (mut addresses, mut reservations) = (addresses(), reservations());
    addresses.retain(|row| row.block == block);
    reservations.retain(|row| row.slot.block == block);
    let (pools, claims) = ([web()], claim_rows());
    let (addresses, reservations) = (
        Readable::complete(&addresses),
        Readable::complete(&reservations),
    );
    let holders = holders(
        &Readable::complete(&pools),
        addresses,
        reservations,
        Readable::complete(&claims),
    );
    Report::HolderList {
        address: query.to_owned(),
        pools: Some(matches_of(&[web()], block)),
        holders: Some(holders),
    }
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

fn shown(
    pool: &PoolRow,
    addresses: Vec<AddressRow>,
    reservations: Vec<ReservationRow>,
    claims: Vec<ClaimRow>,
) -> PoolDetails {
    let pools = [pool.clone()];
    let (addresses, reservations) = (
        Readable::complete(addresses),
        Readable::complete(reservations),
    );
    let slices = Readable::complete(Vec::new());
    show(
        pool,
        &Readable::complete(&pools),
        &addresses,
        &reservations,
        &slices,
        &Readable::complete(claims),
    )
}

#[test]
fn show_draws_map_holders_and_waiting_claims() {
    let pool = shown(&web(), addresses(), reservations(), claim_rows());
    assert_eq!(
        (pool.counts.total, pool.counts.used, pool.counts.free),
        (38, Some(1), Some(34))
    );
    assert_eq!(
        (
            pool.counts.reserved,
            pool.counts.cooling_down,
            pool.counts.out_of_range
        ),
        (Some(2), Some(1), Some(1))
    );
    let report = Report::PoolDetails(Box::new(pool));
    golden("show.txt", &text(&report, style()));
    golden(
        "show-color.txt",
        &text(
            &report,
            Style {
                color: true,
                ..style()
            },
        ),
    );
    golden(
        "show.json",
        &output::format(&report, &[], Format::Json, style()).unwrap(),
    );
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
    let pool = shown(&ranges, addresses(), Vec::new(), Vec::new());
    let text = text(&Report::PoolDetails(Box::new(pool)), style());
    for line in [
        "  Range        10.0.1.0/29, prefix /29, gateway 10.0.1.1\n",
        "  Range        10.0.0.3-10.0.0.6, prefix /24\n",
        "  Draining     10.0.1.0/29, 10.0.0.4\n",
        "9 total, 1 used, 3 free, 0 reserved, 0 cooling down, 5 drained",
    ] {
        assert!(text.contains(line), "{text}");
    }
    assert!(
        !text.contains("Ranges") && !text.contains("  Prefix"),
        "{text}"
    );
}

#[test]
fn map_of_the_largest_pool_has_blocks() {
    let spec = json!({ "addresses": ["::/0"], "prefix": 0, "allocateReservedIPAddresses": true });
    let all = pool("InClusterIPPool", "all", &spec, &Value::Null);
    let pool = shown(&all, Vec::new(), Vec::new(), Vec::new());
    let map = pool.map.known().unwrap();
    assert!(map.cells <= 512, "{}", map.cells);
    assert_eq!(map.rows.first().map(String::as_str), Some("::"));
    assert_eq!(
        (map.cell_size.as_str(), map.is_part),
        ("1", true),
        "the part in use"
    );
}

#[test]
fn map_shows_gaps_excluded_addresses_and_slices() {
    let spec = json!({
        "addresses": ["10.0.0.10-10.0.0.40", "10.0.0.72/29"], "prefix": 24, "gateway": "10.0.0.1",
        "excludedAddresses": ["10.0.0.20-10.0.0.22"], "slices": { "size": 8, "per": "Namespace" },
    });
    let web = pool("InClusterIPPool", "web", &spec, &Value::Null);
    let shown = shown(&web, Vec::new(), Vec::new(), Vec::new());
    let text = text(&Report::PoolDetails(Box::new(shown)), style());
    let map = "\
Map, 1 address per cell
  . free, x excluded, g gateway, - outside, | slice
  10.0.0.0   -g------|--......|....xxx.|........
  10.0.0.32  ........|.-------|--------|--------
  10.0.0.64  --------|........|--------|--------
";
    assert!(text.contains(map), "{text}");
}

#[test]
fn numbers_have_at_most_five_characters() {
    for (count, text) in [
        (9999, "9999"),
        (65_536, "65.5k"),
        (999_999, "999k"),
        (1_000_000, "1.0M"),
    ] {
        assert_eq!(abbreviate(count), text);
    }
    assert_eq!(abbreviate(i64::MAX.unsigned_abs()), ">9.2E", "or more");
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
    for (name, reason) in [
        ("lost", "NetworkNotFound"),
        ("stranger", "NetworkNotAllowed"),
        ("choice", "NetworkNotReady"),
    ] {
        let status =
            json!({ "conditions": refused(reason, "about the network"), "observedGeneration": 1 });
        pools.push(pool("InClusterIPPool", name, &named, &status));
    }
    let moving = json!({ "observedGeneration": 1, "network": { "name": "backbone", "phase": "Joining", "remaining": 2 } });
    pools.push(pool(
        "InClusterIPPool",
        "slow",
        &json!({ "addresses": ["10.8.0.2"], "prefix": 24 }),
        &moving,
    ));
    let mut addresses = addresses();
    addresses.push(address("vm-9", "10.0.0.4"));
    let mut claims = claim_rows();
    claims.push(claim("vm-9", &json!({ "addressRef": { "name": "vm-9" } })));
    claims.push(claim("vm-5", &json!({ "addressRef": { "name": "vm-5" } })));
    let in_use = |status: &str| json!({ "type": "AddressInUse", "status": status, "message": "Machine vm-6 reports 10.0.0.9" });
    let ready = json!({ "type": "Ready", "status": "True" });
    claims.push(claim(
        "vm-6",
        &json!({ "conditions": [ready, in_use("False")] }),
    ));
    claims.push(claim(
        "vm-7",
        &json!({ "conditions": [ready, in_use("True")] }),
    ));
    let early = json!({ "type": "Ready", "status": "False", "reason": "ReleasedEarly", "message": "left: example.com/a" });
    let mut released = claim("vm-8", &json!({ "conditions": [early] }));
    released.deletion = Some(Box::new(Deletion {
        since: style().now,
        blockers: vec!["example.com/a".to_owned()],
    }));
    claims.push(released);
    let mut reservations = reservations();
    reservations.extend(reservations.first().cloned().map(|mut row| {
        row.claim = Some(NamespacedName::new("team-a", "gone"));
        row
    }));
    let mut snapshot = healthy();
    snapshot.pools = Readable::complete(pools);
    snapshot.networks = Readable::complete(network_rows());
    snapshot.addresses = Readable::complete(addresses);
    snapshot.reservations = Readable::complete(reservations);
    snapshot.claims = Readable::complete(Claims {
        served: claims,
        unserved: vec![unserved()],
    });
    snapshot.unreadable =
        vec!["skipped 1 ipaddresses that cannot be decoded: team-a/x (no spec)".to_owned()];
    let expired = Some("2026-01-05T02:04:05Z".parse().unwrap());
    snapshot.leases = Readable::complete(vec![lease(expired)]);
    let webhook = WebhookRow {
        name: "hooks".to_owned(),
        has_authority: false,
        service: Some(("system".to_owned(), "webhook".to_owned())),
        ready: Readable::complete(Some(0)),
        answer: Readable::complete(Ok(())),
        certificates: Readable::complete(Vec::new()),
    };
    snapshot.webhooks = Readable::complete(vec![webhook]);
    let report = findings_of(&snapshot);
    golden("doctor.txt", &text(&report, style()));
    golden(
        "doctor.csv",
        &output::format(&report, &[], Format::Csv, style()).unwrap(),
    );
    let parts = Report::StatusList {
        parts: parts(&diagnosis(&snapshot), &snapshot, &Alerts::NoOperator),
    };
    golden("status.txt", &text(&parts, style()));

    snapshot.pools = Readable::complete(Vec::new());
    let missing: Vec<_> = diagnosis(&snapshot)
        .findings
        .into_iter()
        .map(|finding| finding.object)
        .collect();
    assert!(
        missing.contains(&"ipaddressclaim team-a/vm-1".to_owned()),
        "{missing:?}"
    );
}

#[test]
fn healthy_system_is_ok() {
    let snapshot = healthy();
    let findings = text(&findings_of(&snapshot), style());
    assert_eq!(findings, "35 checks, no problem.\n");
    let parts = Report::StatusList {
        parts: parts(&diagnosis(&snapshot), &snapshot, &Alerts::NoOperator),
    };
    golden("status-healthy.txt", &text(&parts, style()));
}

fn findings_of(snapshot: &Snapshot) -> Report {
    Report::FindingList(diagnosis(snapshot))
}

fn lease(renewed: Option<Timestamp>) -> LeaseRow {
    LeaseRow {
        namespace: "system".to_owned(),
        holder: Some("pod-1".to_owned()),
        renewed,
        seconds: 15,
    }
}

fn healthy() -> Snapshot {
    let deployment = DeploymentRow {
        namespace: "system".to_owned(),
        name: "manager".to_owned(),
        replicas: 2,
        ready: 2,
        image: "localhost/capi-ipam:v2".to_owned(),
        elects: true,
        account: AccountRow {
            name: "manager".to_owned(),
            rules: Readable::complete(Some(vec![all_permissions()])),
        },
    };
    let definition = DefinitionRow {
        plural: "inclusterippools",
        is_of_contract: false,
        versions: vec!["v1alpha2".to_owned()],
        is_supported: true,
    };
    Snapshot {
        now: style().now,
        is_go_provider: false,
        definitions: vec![definition],
        deployments: Readable::complete(vec![deployment]),
        leases: Readable::complete(vec![lease(Some(style().now))]),
        webhooks: Readable::complete(Vec::new()),
        events: Readable::complete(Vec::new()),
        pools: Readable::complete(vec![web()]),
        networks: Readable::complete(Vec::new()),
        addresses: Readable::complete(Vec::new()),
        reservations: Readable::complete(Vec::new()),
        claims: Readable::complete(Claims::default()),
        slices: Readable::complete(Vec::new()),
        unreadable: Vec::new(),
    }
}

fn all_permissions() -> Rule {
    let all: BTreeSet<String> = ["*".to_owned()].into();
    Rule {
        api_groups: all.clone(),
        resources: all.clone(),
        verbs: all,
        ..Rule::default()
    }
}

/// A claim whose pool has a kind that does not exist.
fn unserved() -> UnservedClaim {
    let claim: IPAddressClaim = serde_json::from_value(json!({
        "metadata": { "name": "m2", "namespace": "team-a", "creationTimestamp": CREATED },
        "spec": { "poolRef": { "apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIpPool", "name": "web" } },
    }))
    .unwrap();
    let own = ["InClusterIPPool", "GlobalInClusterIPPool"]
        .map(str::to_owned)
        .into();
    let served = ServedKinds {
        groups: ["ipam.cluster.x-k8s.io".to_owned()].into(),
        own,
    };
    UnservedClaim::of(&claim, &served).unwrap()
}

#[test]
fn claim_of_an_unknown_kind_is_unserved() {
    let lines = claims(
        claim_rows(),
        &[unserved()],
        &Readable::complete(&addresses()),
    );
    let table = text(&Report::ClaimList { claims: lines }, style());
    let line = table.lines().find(|line| line.starts_with("m2")).unwrap();
    assert!(
        line.contains("InClusterIpPool/web") && line.contains("Unserved  UnknownPoolKind"),
        "{table}"
    );
    let mut snapshot = healthy();
    snapshot.claims = Readable::complete(Claims {
        served: Vec::new(),
        unserved: vec![unserved()],
    });
    let findings = text(&findings_of(&snapshot), style());
    let expected = "error UnknownPoolKind: ipaddressclaim team-a/m2\n  kind InClusterIpPool is not served; did you mean \
                    InClusterIPPool?\n  Age:    3d\n  Repair: a claim cannot be changed: correct the pool";
    assert!(findings.starts_with(expected), "{findings}");
    assert!(
        findings
            .contains("kubectl delete ipaddressclaims.ipam.cluster.x-k8s.io m2 --namespace team-a"),
        "{findings}"
    );
}

fn right(resource: &str) -> MissingRight {
    MissingRight {
        verb: "list",
        resource: resource.to_owned(),
        namespace: None,
    }
}

fn unreadable<T>(resource: &str) -> Readable<Vec<T>> {
    Readable::part(Vec::new(), vec![right(resource)])
}

#[test]
fn check_that_is_not_possible_is_no_good_result() {
    let mut snapshot = healthy();
    snapshot.addresses = unreadable("ipaddresses");
    let text_of = |snapshot: &Snapshot| text(&findings_of(snapshot), style());
    let partly = text_of(&snapshot);
    for check in [
        "DuplicateAddress",
        "LostAddress",
        "OrphanAddress",
        "MissingPool",
    ] {
        let line = partly.lines().next().unwrap();
        assert!(
            line.starts_with("unknown ") && line.contains(check),
            "{partly}"
        );
    }
    assert!(
        partly.contains("  not checked: you may not list ipaddresses in the whole cluster"),
        "{partly}"
    );
    assert!(
        partly.ends_with(
            "28 checks, no problem. Not possible: 7 checks. Only for the objects that you may list: 1 check.\n"
        ),
        "{partly}"
    );
    let nothing = Snapshot {
        pools: unreadable("pools"),
        networks: unreadable("networks"),
        addresses: unreadable("addresses"),
        reservations: unreadable("reservations"),
        claims: Readable::part(Claims::default(), vec![right("claims")]),
        slices: unreadable("slices"),
        leases: unreadable("leases"),
        webhooks: unreadable("webhooks"),
        deployments: unreadable("deployments"),
        events: unreadable("events"),
        ..healthy()
    };
    assert_eq!(diagnosis(&nothing).checks, [Check::MissingDefinition]);
    let text = text_of(&nothing);
    assert!(text.starts_with("Nothing could be checked:\n"), "{text}");
    let parts = parts(&diagnosis(&nothing), &nothing, &Alerts::NoOperator);
    let known: Vec<_> = parts
        .iter()
        .filter(|line| line.state != PartState::Unknown)
        .map(|line| line.part)
        .collect();
    assert_eq!(known, [Part::Definitions]);
}

#[test]
fn counts_and_map_without_a_permission_are_unknown() {
    let pools = [web()];
    let all = Readable::complete(&pools[..]);
    let (addresses, reservations) = (
        Readable::complete(addresses()),
        Readable::complete(reservations()),
    );
    let (slices, claims) = (
        Readable::complete(Vec::new()),
        Readable::complete(claim_rows()),
    );
    let text_of = |pool: PoolDetails| text(&Report::PoolDetails(Box::new(pool)), style());
    let blind = text_of(show(
        &web(),
        &all,
        &unreadable("a"),
        &unreadable("r"),
        &slices,
        &unreadable("c"),
    ));
    for line in [
        "38 total, ? used, ? free, ? reserved, ? cooling down, ? out of range",
        "Map: unknown",
        "Holders: unknown",
        "Waiting claims: unknown",
    ] {
        assert!(blind.contains(line), "{blind}");
    }
    let without_addresses = show(
        &web(),
        &all,
        &unreadable("a"),
        &reservations,
        &slices,
        &claims,
    );
    let held = without_addresses.holders.as_ref().unwrap().first().unwrap();
    assert_eq!(
        (held.state, &held.ip_address),
        (HolderState::Held, &Fact::Unknown),
        "whether it has an IPAddress"
    );
    let without_reservations = show(&web(), &all, &addresses, &unreadable("r"), &slices, &claims);
    assert_eq!(
        (
            without_reservations.counts.used,
            without_reservations.counts.free
        ),
        (Some(1), None)
    );
    assert_eq!(
        without_reservations.holders.unwrap()[0].reservation,
        Fact::Unknown
    );
    let without_claims = show(
        &web(),
        &all,
        &addresses,
        &reservations,
        &slices,
        &unreadable("c"),
    );
    let text = text_of(without_claims);
    assert!(
        text.contains("team-a/vm-1           ?") && text.contains("Waiting claims: unknown"),
        "{text}"
    );
}

#[test]
fn many_findings_of_one_kind_are_grouped() {
    let mut snapshot = healthy();
    snapshot.pools = Readable::complete(Vec::new());
    let waiting = |number: usize| claim(&format!("vm-{number:02}"), &Value::Null);
    snapshot.claims = Readable::complete(Claims {
        served: (0..40).map(waiting).collect(),
        unserved: Vec::new(),
    });
    let table = text(&findings_of(&snapshot), style());
    assert_eq!(table.lines().count(), 5, "{table}");
    assert!(
        table.contains("ipaddressclaim team-a/vm-04 and 35 more"),
        "{table}"
    );
    let entries: Vec<String> = (0..63)
        .map(|number| format!("10.0.0.{}", 300 + number))
        .collect();
    let wrong = pool(
        "InClusterIPPool",
        "wrong",
        &json!({ "addresses": entries, "prefix": 24 }),
        &Value::Null,
    );
    let mut snapshot = healthy();
    snapshot.pools = Readable::complete(vec![wrong]);
    let table = text(&findings_of(&snapshot), style());
    assert!(
        table.contains("10.0.0.302") && !table.contains("10.0.0.303"),
        "{table}"
    );
    assert!(
        table.contains("more problems") && table.lines().count() == 4,
        "{table}"
    );
}
