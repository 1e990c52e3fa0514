//! Objects that do not come from an API server.

use std::sync::Arc;

use capi_ipam_api::{IPNetwork, IPRegistry, IPReservation, IPSlice, InClusterKind, Pool};
use capi_ipam_controller::watch::MaybeInvalid;
use capi_ipam_provider::api::{IPAddress, IPAddressClaim};
use jiff::{SignedDuration, Timestamp};
use kube::runtime::watcher::Event;
use serde_json::{Value, json};

use super::super::state::State;
use crate::model::registry::tests::entries;
use crate::model::{Answer, LeaseRow, RegistryFacts, Unread};
use crate::objects::{AddressRow, Kind, RegistryRow, ReservationRow, ServedKinds, Shown};

pub(super) fn ago(seconds: i64) -> String {
    Timestamp::now()
        .checked_sub(SignedDuration::from_secs(seconds))
        .unwrap()
        .to_string()
}

/// The kinds that the API server serves.
fn served() -> ServedKinds {
    ServedKinds {
        groups: ["ipam.cluster.x-k8s.io".to_owned()].into(),
        own: InClusterKind::ALL.map(|kind| kind.name().to_owned()).into(),
        ..ServedKinds::default()
    }
}

/// Adds or changes an object.
fn apply<K: Shown>(state: &State, kind: Kind, object: K) {
    let event = Event::Apply(MaybeInvalid(Ok(object)));
    state.update(|tables| tables.apply(kind, event));
}

pub(super) fn pool(
    state: &State,
    kind: InClusterKind,
    namespace: &str,
    name: &str,
    spec: &Value,
    status: &Value,
) {
    let object: Pool = serde_json::from_value(json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": kind.name(), "spec": spec, "status": status,
        "metadata": {
            "name": name, "namespace": if kind.is_global() { None } else { Some(namespace) },
            "finalizers": ["ipam.cluster.x-k8s.io/ProtectPool"],
        },
    }))
    .unwrap();
    apply(state, Kind::Pool(kind), object);
}

pub(super) fn ready(counts: &Value) -> Value {
    json!({ "ipAddresses": counts, "conditions": [{ "type": "Ready", "status": "True", "reason": "Ready",
            "message": "", "lastTransitionTime": ago(9000) }] })
}

pub(super) fn claim(
    namespace: &str,
    name: &str,
    pool: &Value,
    seconds: i64,
    status: &Value,
) -> IPAddressClaim {
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "namespace": namespace, "creationTimestamp": ago(seconds),
            "labels": { "cluster.x-k8s.io/cluster-name": "prod" },
            "ownerReferences": [{ "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "VSphereVM",
                                  "name": format!("prod-{name}"), "uid": "1", "controller": true }],
        },
        "spec": { "poolRef": pool, "clusterName": "prod" }, "status": status,
    }))
    .unwrap()
}

/// A claim with its address.
pub(super) fn bind(
    state: &State,
    namespace: &str,
    name: &str,
    pool: &Value,
    address: &str,
    prefix: u8,
) {
    let claim = claim(
        namespace,
        name,
        pool,
        86_400 * 3,
        &json!({ "addressRef": { "name": name } }),
    );
    let mut object: IPAddress = serde_json::from_value(json!({
        "metadata": { "name": name, "namespace": namespace, "creationTimestamp": ago(86_400 * 3) },
        "spec": { "poolRef": pool, "claimRef": { "name": name }, "address": address, "prefix": prefix },
    }))
    .unwrap();
    apply(state, Kind::Claim, claim);
    // As the provider does, if it knows the pool.
    state.update(|tables| {
        let pools = tables.objects.pools();
        let mut rows = pools.iter();
        let row = rows.find(|row| pool["name"].as_str() == Some(&*row.key.name));
        let gateway = row.and_then(|row| {
            let block = AddressRow::of(&object)?.block;
            row.usable.as_ref().ok()?.gateway_of(block)
        });
        object.spec.gateway = gateway.map(|gateway| gateway.to_string());
    });
    apply(state, Kind::Address, object);
}

pub(super) fn wait(
    state: &State,
    namespace: &str,
    name: &str,
    pool: &Value,
    seconds: i64,
    reason: &str,
    message: &str,
) {
    let condition = json!({ "type": "Ready", "status": "False", "reason": reason, "message": message,
                            "lastTransitionTime": ago(seconds) });
    let claim = claim(
        namespace,
        name,
        pool,
        seconds,
        &json!({ "conditions": [condition] }),
    );
    apply(state, Kind::Claim, claim);
}

pub(super) fn reserve(state: &State, scope: &str, pool: &Value, address: &str, spec: &Value) {
    let name = format!("{scope}.{address}");
    let mut all = json!({ "scope": scope, "address": address, "poolRef": pool });
    all.as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    let object: IPReservation = serde_json::from_value(
        json!({ "metadata": { "name": name, "creationTimestamp": ago(600) }, "spec": all }),
    )
    .unwrap();
    let row = ReservationRow::of(&object);
    assert!(row.is_some(), "{name} has no effect");
    apply(state, Kind::Reservation, object);
}

pub(super) fn reference(kind: &str, name: &str) -> Value {
    json!({ "apiGroup": "ipam.cluster.x-k8s.io", "kind": kind, "name": name })
}

/// A lease that was renewed some seconds ago.
pub(super) fn lease(seconds: i64) -> LeaseRow {
    LeaseRow {
        namespace: "capi-ipam-in-cluster-system".to_owned(),
        holder: Some("capi-ipam-in-cluster-controller-manager-7d9c5b6f4-x2x8k".to_owned()),
        renewed: Some(ago(seconds).parse().unwrap()),
        seconds: 15,
    }
}

/// A network with pools.
fn network(state: &State, name: &str, pools: &[(&str, &str)]) {
    let members: Vec<Value> = pools
        .iter()
        .map(|(kind, name)| json!({ "kind": kind, "name": name, "phase": "Member" }))
        .collect();
    let object: IPNetwork = serde_json::from_value(json!({
        "metadata": { "name": name }, "spec": { "namespaces": { "from": "All" } },
        "status": {
            "pools": pools.len(), "total": 16_842_749, "used": 6_003, "free": 16_836_746, "members": members,
            "conditions": [{ "type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": ago(900) }],
        },
    }))
    .unwrap();
    apply(state, Kind::Network, object);
}

/// A pool with slices, and one of IPv6 whose specification sets everything.
fn sliced(state: &State) {
    let racks = reference("InClusterIPPool", "racks");
    let spec = json!({
        "addresses": ["10.7.0.0/24"], "prefix": 24, "gateway": "10.7.0.1",
        "slices": { "size": 32, "per": "Cluster", "mostEach": 2, "keepSeconds": 600 },
    });
    let counts = json!({ "total": 253, "used": 20, "free": 233, "outOfRange": 0, "reserved": 0, "coolingDown": 0 });
    pool(
        state,
        InClusterKind::IPPool,
        "team-a",
        "racks",
        &spec,
        &ready(&counts),
    );
    for number in 0..20 {
        let address = format!(
            "10.7.0.{}",
            if number < 12 { 2 + number } else { 60 + number }
        );
        bind(
            state,
            "team-a",
            &format!("rack-{number}"),
            &racks,
            &address,
            24,
        );
    }
    for (block, owner) in [
        ("10.7.0.0/27", "prod"),
        ("10.7.0.64/27", "a-cluster-with-a-rather-long-name"),
    ] {
        let name = format!("p.team-a.racks.{}", block.replace('/', "-"));
        let assigned = (owner == "prod").then(|| ago(600));
        let slice: IPSlice = serde_json::from_value(json!({
            "metadata": { "name": name, "creationTimestamp": ago(600) },
            "spec": { "scope": "p.team-a.racks", "block": block,
                      "owner": { "kind": "Cluster", "namespace": "team-a", "name": owner }, "assignedAt": assigned },
        }))
        .unwrap();
        apply(state, Kind::Slice, slice);
    }
    let six = reference("GlobalInClusterIPPool", "six");
    let spec = json!({
        "addresses": ["fd00:30:0:7::/64"], "prefix": 64, "excludedAddresses": ["fd00:30:0:7::/124"],
        "draining": ["fd00:30:0:7:0:0:1:0/112"], "addressReuseGracePeriodSeconds": 600,
        "allocation": { "order": "RoundRobin", "sticky": true, "requests": true },
        "allowedNamespaces": { "from": "Names", "names": ["team-a", "team-b"] },
        "limits": { "perNamespace": 100, "perCluster": 50 }, "headroom": { "addresses": 5, "for": {} },
        "reclaim": { "terminating": { "afterSeconds": 900 }, "verify": "Report" },
        "addressMetadata": { "labels": { "zone": "a" } },
    });
    let most = i64::MAX;
    let counts = json!({ "total": most, "used": 9, "free": most, "outOfRange": 0, "reserved": 0, "coolingDown": 0, "drained": 65_536 });
    pool(
        state,
        InClusterKind::GlobalIPPool,
        "",
        "six",
        &spec,
        &ready(&counts),
    );
    for number in 0..9 {
        let address = format!("fd00:30:0:7::{:x}", 0x10 + number * 7);
        bind(
            state,
            "team-b",
            &format!("six-{number}"),
            &six,
            &address,
            64,
        );
    }
}

/// A registry with the condition `Ready`. This management cluster is `west-1`.
pub(super) fn registry(state: &State, name: &str, ready: &Value, clusters: &Value) {
    let mut condition = json!({ "type": "Ready", "message": "", "lastTransitionTime": ago(900) });
    json_patch::merge(&mut condition, ready);
    let object: IPRegistry = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": { "clusterID": "west-1", "kubernetes": { "secretName": "hub" } },
        "status": { "conditions": [condition], "clusters": clusters },
    }))
    .unwrap();
    apply(state, Kind::Registry, object);
}

/// What was read from a registry: its records, or why there are none.
pub(super) fn receive(state: &State, name: &str, records: Result<&[(String, Value)], &str>) {
    let records = records.map(|records| {
        let records: Vec<(&str, Value)> = records
            .iter()
            .map(|(key, record)| (key.as_str(), record.clone()))
            .collect();
        Arc::new(entries(&records))
    });
    let facts = RegistryFacts {
        row: RegistryRow::default(),
        cluster: Some("west-1".to_owned()),
        records: records.map_err(|reason| Unread::new(reason.to_owned())),
    };
    state.receive_records(name, Ok(facts));
}

/// A network that shares blocks of 64 addresses, with one pool.
pub(super) fn shared_network(
    state: &State,
    (name, registry): (&str, &str),
    addresses: &str,
    status: &Value,
) {
    let prefix: u8 = addresses.split_once('/').unwrap().1.parse().unwrap();
    let spec = json!({ "addresses": [addresses], "prefix": prefix, "network": name });
    let counts = json!({ "total": 318, "used": 96, "free": 222, "outOfRange": 0, "reserved": 0, "coolingDown": 0 });
    pool(
        state,
        InClusterKind::IPPool,
        "team-a",
        name,
        &spec,
        &ready(&counts),
    );
    let member = json!({ "kind": "InClusterIPPool", "namespace": "team-a", "name": name, "phase": "Member" });
    let mut all = json!({
        "pools": 1, "total": 4_094, "used": 96, "free": 222, "members": [member],
        "conditions": [{ "type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": ago(900) }],
    });
    json_patch::merge(&mut all, status);
    let object: IPNetwork = serde_json::from_value(json!({
        "metadata": { "name": name }, "status": all,
        "spec": { "namespaces": { "from": "All" }, "blocks": { "registry": registry, "size": 64, "most": 16 } },
    }))
    .unwrap();
    apply(state, Kind::Network, object);
}

/// A block of this management cluster with addresses in use.
pub(super) fn own_block(state: &State, network: &str, first: &str, used: u8, change: &Value) {
    let name = format!("n.{network}.{first}-26");
    let mut spec = json!({
        "scope": format!("n.{network}"), "block": format!("{first}/26"), "assignedAt": ago(86_400 * 9),
        "confirmedAt": ago(86_400 * 9), "owner": { "kind": "ManagementCluster", "name": "west-1" },
    });
    json_patch::merge(&mut spec, change);
    let slice: IPSlice =
        serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec })).unwrap();
    apply(state, Kind::Slice, slice);
    let address: std::net::Ipv4Addr = first.parse().unwrap();
    let pool = reference("InClusterIPPool", network);
    for number in 1..=used {
        let address = std::net::Ipv4Addr::from(u32::from(address) + u32::from(number));
        let claim = format!("{network}-{address}");
        bind(state, "team-a", &claim, &pool, &address.to_string(), 20);
    }
}

/// The record of a block of 64 addresses, by its name.
pub(super) fn record(network: &str, first: &str, change: &Value) -> (String, Value) {
    let mut record =
        json!({ "network": network, "block": format!("{first}/26"), "since": ago(86_400 * 30) });
    json_patch::merge(&mut record, change);
    (format!("block.{network}.{first}-26"), record)
}

/// The record of a management cluster that was seen some seconds ago.
fn seen(cluster: &str, seconds: i64) -> (String, Value) {
    let record = json!({ "cluster": cluster, "process": "1", "seen": ago(seconds) });
    (format!("cluster.{cluster}"), record)
}

/// The first address of a block of 10.40.0.0/20.
fn nth(number: u32) -> String {
    std::net::Ipv4Addr::from(0x0a28_0000 + number * 64).to_string()
}

/// A network whose blocks several management clusters have.
fn region(state: &State) {
    let is_ready = json!({ "status": "True", "reason": "Ready" });
    registry(state, "site", &is_ready, &json!([]));
    let status = json!({ "blocks": { "held": 5, "spare": 1, "others": 26, "conflicts": 0 } });
    shared_network(state, ("region", "site"), "10.40.0.0/20", &status);
    let used = [62, 25, 7, 2, 0];
    let mut records = vec![
        seen("east-1", 30),
        seen("east-2", 20),
        seen("north", 86_400 * 2),
    ];
    for (number, used) in (0_u32..).zip(used) {
        own_block(state, "region", &nth(number), used, &json!({}));
        records.push(record(
            "region",
            &nth(number),
            &json!({ "cluster": "west-1" }),
        ));
    }
    for number in 5..31 {
        let cluster = match number {
            5..12 | 20..24 => "east-1",
            12..18 => "east-2",
            18..20 => "north",
            _ => "site-of-a-customer-with-a-rather-long-name-0123456789",
        };
        let other = json!({ "cluster": cluster, "used": number });
        records.push(record("region", &nth(number), &other));
    }
    receive(state, "site", Ok(&records));
}

/// Networks of blocks with everything that can be wrong.
pub(super) fn break_blocks(state: &State) {
    let message = "registry at https://hub.example.com:6443 cannot be reached: connection refused";
    let away = json!({ "status": "False", "reason": "RegistryUnreachable", "message": message });
    registry(state, "hub", &away, &json!([]));
    let conflict = json!({
        "type": "BlockConflict", "status": "True", "reason": "BlocksShared", "lastTransitionTime": ago(600),
        "message": "2 blocks are used by this management cluster and by another one: 10.40.0.64/26 (in use in west-1; the \
                    other one is east-1), 10.40.0.128/26 (not in use in west-1; the other one is unknown). Nothing in use \
                    is taken away, and no further address of them is allocated; the conflict of a block ends when one of \
                    the two has no address of it in use",
    });
    let is_ready = json!({ "type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": ago(900) });
    let status = json!({
        "blocks": { "held": 4, "spare": 0, "others": 9, "conflicts": 2 }, "conditions": [is_ready, conflict],
    });
    shared_network(state, ("campus", "hub"), "10.40.0.0/20", &status);
    let by = |cluster: &str| json!({ "conflict": { "cluster": cluster, "since": ago(600) } });
    own_block(state, "campus", &nth(0), 40, &json!({}));
    own_block(state, "campus", &nth(1), 12, &by("east-1"));
    own_block(state, "campus", &nth(2), 0, &by("unknown"));
    own_block(state, "campus", &nth(3), 0, &json!({ "confirmedAt": null }));
    let mut records = vec![seen("east-1", 40)];
    records.push(record(
        "campus",
        &nth(1),
        &json!({ "cluster": "east-1", "used": 9 }),
    ));
    records.push(record("campus", &nth(2), &json!({ "cluster": 7 })));
    records.push(record("campus", &nth(4), &json!({ "cluster": "west-1" })));
    records.push(record(
        "campus",
        &nth(5),
        &json!({ "cluster": "east-1", "contenders": ["north"] }),
    ));
    records.push(record(
        "campus",
        &nth(6),
        &json!({ "cluster": "<img src=x onerror=alert(1)>\u{202e}" }),
    ));
    let long = "x".repeat(4_000);
    records.push(record("campus", &nth(7), &json!({ "cluster": long })));
    records.push((
        format!("block.campus.{}-27", nth(8)),
        json!({
            "network": "campus", "block": format!("{}/27", nth(8)), "cluster": "east-1",
        }),
    ));
    receive(state, "hub", Ok(&records));
    receive(
        state,
        "hub",
        Err("https://hub.example.com:6443 cannot be reached: connection refused"),
    );

    // The Secret may not be read.
    let clusters = json!([
        { "id": "west-1", "blocks": 3, "lastSeen": ago(60) }, { "id": "east-1", "blocks": 12, "lastSeen": ago(1_200) },
        { "id": "north", "blocks": 1 },
    ]);
    let is_ready = json!({ "status": "True", "reason": "Ready" });
    registry(state, "remote", &is_ready, &clusters);
    let status = json!({ "blocks": { "held": 3, "spare": 1, "others": 13, "conflicts": 0 } });
    shared_network(state, ("branch", "remote"), "10.40.0.0/22", &status);
    for (number, used) in [(0, 62), (1, 20), (2, 0)] {
        own_block(state, "branch", &nth(number), used, &json!({}));
    }
    let reason = "you may not list secrets in the namespace capi-ipam-in-cluster-system: ask for a Role that allows it";
    receive(state, "remote", Err(reason));
}

/// A network with 16,384 blocks, of which 100 management clusters have 10,000.
pub(super) fn many_blocks(state: &State) {
    let is_ready = json!({ "status": "True", "reason": "Ready" });
    registry(state, "fabric", &is_ready, &json!([]));
    let status = json!({ "blocks": { "held": 100, "spare": 1, "others": 9_900, "conflicts": 0 } });
    shared_network(state, ("fabric", "fabric"), "10.128.0.0/12", &status);
    let mut records = Vec::new();
    for number in 0..10_000_u32 {
        let first = std::net::Ipv4Addr::from(0x0a80_0000 + number * 64).to_string();
        let cluster = number / 100;
        if cluster == 3 {
            own_block(state, "fabric", &first, 0, &json!({}));
        }
        let name = match cluster {
            3 => "west-1".to_owned(),
            other => format!("cluster-{other}"),
        };
        records.push(record("fabric", &first, &json!({ "cluster": name })));
    }
    receive(state, "fabric", Ok(&records));
}

/// Claims that wait for several reasons, some with long names.
pub(super) fn make_crowded(state: &State) {
    let edge = reference("InClusterIPPool", "edge");
    let message = "The pool InClusterIPPool team-b/edge has no free address.";
    for number in 0..25 {
        let name = format!(
            "edge-with-a-name-as-long-as-names-of-machine-deployments-are-7d9c5b6f4-x2x8k-{number}"
        );
        wait(
            state,
            "team-b",
            &name,
            &edge,
            300 + number,
            "PoolExhausted",
            message,
        );
    }
    let counts = json!({ "total": 32, "used": 30, "free": 2, "outOfRange": 0, "reserved": 0, "coolingDown": 0 });
    for number in 0..20 {
        let spec = json!({ "addresses": [format!("10.40.{number}.0/27")], "prefix": 24 });
        pool(
            state,
            InClusterKind::IPPool,
            "team-d",
            &format!("pool-{number}-of-a-team-that-likes-long-names"),
            &spec,
            &ready(&counts),
        );
    }
}

/// A healthy system.
pub(super) fn sample() -> Arc<State> {
    sample_of(None)
}

/// As [`sample`], for a page of one namespace.
pub(super) fn sample_of(namespace: Option<&str>) -> Arc<State> {
    let server = "https://management.example.com:6443".to_owned();
    let state = Arc::new(State::new(
        server,
        namespace.map(str::to_owned),
        served(),
        false,
    ));
    let web = reference("InClusterIPPool", "web");
    let data = reference("GlobalInClusterIPPool", "data-center");
    let spec = json!({ "addresses": ["10.0.0.10-10.0.0.250"], "prefix": 24, "gateway": "10.0.0.1",
                       "excludedAddresses": ["10.0.0.100-10.0.0.109"], "addressReuseGracePeriodSeconds": 3600 });
    let counts = json!({ "total": 231, "used": 120, "free": 99, "outOfRange": 0, "reserved": 5, "coolingDown": 7 });
    pool(
        &state,
        InClusterKind::IPPool,
        "team-a",
        "web",
        &spec,
        &ready(&counts),
    );
    for number in 0..120 {
        let last = if number < 90 {
            10 + number
        } else {
            110 + number - 90
        };
        bind(
            &state,
            "team-a",
            &format!("web-{number}"),
            &web,
            &format!("10.0.0.{last}"),
            24,
        );
    }
    for last in 150..157 {
        reserve(
            &state,
            "p.team-a.web",
            &json!({ "kind": "InClusterIPPool", "namespace": "team-a", "name": "web" }),
            &format!("10.0.0.{last}"),
            &json!({ "releasedAt": ago(900), "claimRef": { "namespace": "team-a", "name": format!("old-{last}"), "uid": "u" } }),
        );
    }
    for last in 200..205 {
        reserve(
            &state,
            "p.team-a.web",
            &json!({ "kind": "InClusterIPPool", "namespace": "team-a", "name": "web" }),
            &format!("10.0.0.{last}"),
            &json!({}),
        );
    }
    let spec = json!({ "addresses": ["172.16.0.0/16"], "prefix": 16, "gateway": "172.16.0.1", "network": "backbone" });
    let counts = json!({ "total": 65_533, "used": 6_000, "free": 59_533, "outOfRange": 0, "reserved": 0, "coolingDown": 0 });
    pool(
        &state,
        InClusterKind::GlobalIPPool,
        "",
        "data-center",
        &spec,
        &ready(&counts),
    );
    for number in 2_u32..6_002 {
        let number = number + (number / 700) * 3_000;
        let address = format!("172.16.{}.{}", number / 256, number % 256);
        bind(
            &state,
            "team-b",
            &format!("node-{number}"),
            &data,
            &address,
            16,
        );
    }
    let spec = json!({ "addresses": ["192.168.7.20-192.168.7.27"], "prefix": 24, "gateway": "192.168.7.1" });
    let counts = json!({ "total": 8, "used": 8, "free": 0, "outOfRange": 1, "reserved": 0, "coolingDown": 0 });
    let mut status = ready(&counts);
    let exhausted = json!({ "type": "Exhausted", "status": "True", "reason": "Exhausted", "lastTransitionTime": ago(60),
                            "message": "All 8 addresses are in use." });
    status["conditions"].as_array_mut().unwrap().push(exhausted);
    pool(
        &state,
        InClusterKind::IPPool,
        "team-b",
        "edge",
        &spec,
        &status,
    );
    let edge = reference("InClusterIPPool", "edge");
    for number in 0..8 {
        bind(
            &state,
            "team-b",
            &format!("edge-{number}"),
            &edge,
            &format!("192.168.7.{}", 20 + number),
            24,
        );
    }
    bind(&state, "team-b", "edge-old", &edge, "192.168.7.99", 24);
    let message = "The pool InClusterIPPool team-b/edge has no free address.";
    wait(
        &state,
        "team-b",
        "edge-8",
        &edge,
        7_300,
        "PoolExhausted",
        message,
    );
    wait(
        &state,
        "team-b",
        "edge-9",
        &edge,
        610,
        "PoolExhausted",
        message,
    );
    let none = reference("InClusterIPPool", "storage");
    wait(
        &state,
        "team-c",
        "disk-0",
        &none,
        95,
        "PoolNotFound",
        "The pool InClusterIPPool team-c/storage does not exist.",
    );
    let spec = json!({ "prefixes": ["fd00:10::/40"], "allocationPrefixLength": 64, "network": "backbone" });
    let counts = json!({ "total": 16_777_216, "used": 3, "free": 16_777_213, "outOfRange": 0, "reserved": 0, "coolingDown": 0 });
    pool(
        &state,
        InClusterKind::GlobalPrefixPool,
        "",
        "pods",
        &spec,
        &ready(&counts),
    );
    let pods = reference("GlobalInClusterPrefixPool", "pods");
    for number in 0..3 {
        bind(
            &state,
            "team-b",
            &format!("pods-{number}"),
            &pods,
            &format!("fd00:10:0:{number}::"),
            64,
        );
    }
    let spec = json!({ "addresses": ["10.9.0.0/33"], "prefix": 24 });
    let status = json!({ "conditions": [{ "type": "Ready", "status": "False", "reason": "InvalidSpec",
                         "message": "", "lastTransitionTime": ago(60) }] });
    pool(
        &state,
        InClusterKind::IPPool,
        "team-c",
        "broken",
        &spec,
        &status,
    );
    network(
        &state,
        "backbone",
        &[
            ("GlobalInClusterIPPool", "data-center"),
            ("GlobalInClusterPrefixPool", "pods"),
        ],
    );
    sliced(&state);
    region(&state);
    // It stays fresh while the pictures are taken.
    state.heard(Answer::Leases(vec![lease(-86_400)]));
    state.finish_lists();
    state.examine();
    state
}
