//! Texts of reports, compared with the files in `tests/golden`. The objects are shared.

mod details;
mod findings;
mod lists;
mod registries;

use std::collections::BTreeSet;
use std::path::Path;

use capi_ipam_api::{IPNetwork, IPReservation, InClusterKind, Pool, PoolKey};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::Block;
use capi_ipam_provider::api::{IPAddress, IPAddressClaim};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::lists::{abbreviate, bar};
use super::*;
use crate::cli::Format;
use crate::error::MissingRight;
use crate::load::Readable;
use crate::model::doctor::snapshot::{DefinitionRow, DeploymentRow, Rule, WebhookMode, WebhookRow};
use crate::model::{
    Check, Fact, HolderState, LeaseRow, PartState, PlanPool, PoolDetails, Snapshot, claims,
    diagnosis, health, holders, matches_of, network_line, parts, pools, show,
};
use crate::objects::{
    AddressRow, ClaimRow, Deletion, Kind, NetworkRow, Objects, PoolRow, ReservationRow, ServedKinds,
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
            "address": address, "prefix": 24, "gateway": "10.0.0.2", "claimRef": { "name": name },
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
    ClaimRow::served(&object)
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
