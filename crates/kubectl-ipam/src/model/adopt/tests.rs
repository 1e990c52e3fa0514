use capi_ipam_api::{Pool, PoolSet, PoolSetKey, PoolSetKind};
use capi_ipam_ledger::SetInfo;
use serde_json::{Value, json};

use super::*;
use crate::objects::AddressRow;

fn pool(kind: &str, namespace: Option<&str>, name: &str, addresses: &str) -> PoolRow {
    let pool = json!({
        "kind": kind, "metadata": { "name": name, "namespace": namespace },
        "spec": { "addresses": [addresses], "prefix": 24 },
    });
    PoolRow::from(&serde_json::from_value::<Pool>(pool).unwrap())
}

fn reference() -> Value {
    json!({ "apiGroup": "ipam.cluster.x-k8s.io", "kind": "InClusterIPPool", "name": "web" })
}

fn address(claim: &str, address: &str) -> AddressRow {
    let object = json!({
        "metadata": { "namespace": "n", "name": claim },
        "spec": { "address": address, "prefix": 24, "claimRef": { "name": claim }, "poolRef": reference() },
    });
    AddressRow::of(&serde_json::from_value(object).unwrap()).unwrap()
}

fn machine(name: &str, addresses: &[&str]) -> Machine {
    let addresses: Vec<Value> = addresses
        .iter()
        .map(|address| json!({ "type": "InternalIP", "address": address }))
        .collect();
    serde_json::from_value(json!({
        "metadata": { "namespace": "n", "name": name },
        "spec": { "infrastructureRef": { "kind": "VSphereMachine", "name": format!("{name}-vm") } },
        "status": { "addresses": addresses },
    }))
    .unwrap()
}

fn claim(name: &str, machine: &str) -> IPAddressClaim {
    let owner = json!({ "apiVersion": "infrastructure.cluster.x-k8s.io/v1beta1", "kind": "VSphereVM", "name": machine, "uid": "u" });
    serde_json::from_value(json!({
        "metadata": { "namespace": "n", "name": name, "ownerReferences": [owner] },
        "spec": { "poolRef": reference() },
    }))
    .unwrap()
}

/// The pools of these tests: two of them overlap.
fn pools() -> [PoolRow; 3] {
    [
        pool("InClusterIPPool", Some("n"), "web", "10.0.0.2-10.0.0.20"),
        pool("InClusterIPPool", Some("other"), "db", "10.0.0.2-10.0.0.40"),
        pool(
            "GlobalInClusterIPPool",
            None,
            "shared",
            "10.0.0.20-10.0.0.30",
        ),
    ]
}

/// The addresses and claims of the reservations, and what is left out.
fn adopted(
    machines: &[Machine],
    claims: &[IPAddressClaim],
    objects: &Objects,
    template: Option<&str>,
) -> (Vec<String>, Vec<String>) {
    let adoption = adopt(machines, claims, (objects, &Ledger::default()), template);
    let text = |it: &IPReservation| {
        let claim = it.spec.claim_ref.as_ref().unwrap();
        assert!(claim.uid.is_none());
        format!(
            "{} {}/{}",
            it.metadata.name.as_deref().unwrap(),
            claim.namespace,
            claim.name
        )
    };
    (
        adoption.reservations.iter().map(text).collect(),
        adoption.left_out,
    )
}

#[test]
fn address_is_reserved_for_the_claim_that_waits() {
    let objects = Objects::of(pools(), [address("c", "10.0.0.7")], [], []);
    let machines = [
        machine("b", &["node.example.com", "10.0.0.11"]),
        machine("a", &["::ffff:10.0.0.12"]),
        machine("c", &["10.0.0.7"]),
    ];
    let claims = [claim("b-0", "b"), claim("a-0", "a"), claim("c", "c")];
    let (reserved, left_out) = adopted(&machines, &claims, &objects, None);
    assert_eq!(
        reserved,
        ["p.n.web.10.0.0.11 n/b-0", "p.n.web.10.0.0.12 n/a-0"]
    );
    assert_eq!(left_out, [""; 0]);
}

#[test]
fn name_of_a_later_claim_is_that_of_the_template() {
    let mut objects = Objects::of(pools(), [address("d-vm-web", "10.0.0.9")], [], []);
    let machines = [
        machine("b", &["10.0.0.11", "10.0.0.25"]),
        machine("d", &["10.0.0.12"]),
    ];
    let (reserved, left_out) = adopted(&machines, &[], &objects, Some("{infrastructure}-{pool}"));
    assert_eq!(
        reserved,
        [
            "p.n.web.10.0.0.11 n/b-vm-web",
            "g.shared.10.0.0.25 n/b-vm-shared"
        ]
    );
    let taken = "10.0.0.12 of Machine n/d in InClusterIPPool n/web: the claim n/d-vm-web has another address";
    assert_eq!(left_out, [taken]);
    let (reserved, left_out) = adopted(&machines[..1], &[], &objects, Some("{machine}_{pool}"));
    assert!(reserved.is_empty() && left_out.len() == 2, "{left_out:?}");

    // What was applied is not written again, and the reservation of another claim is named.
    let rows = adopt(
        &machines[..1],
        &[],
        (&objects, &Ledger::default()),
        Some("{machine}-0-{pool}"),
    )
    .reservations;
    objects.set_reservations(rows.iter().filter_map(ReservationRow::of));
    let again = adopted(&machines[..1], &[], &objects, Some("{machine}-0-{pool}"));
    assert_eq!(again, (vec![], vec![]));
    let (reserved, left_out) = adopted(&machines[..1], &[], &objects, Some("{machine}-1-{pool}"));
    assert!(reserved.is_empty(), "{reserved:?}");
    let named = "10.0.0.11 of Machine n/b has the IPReservation p.n.web.10.0.0.11 already";
    assert_eq!(left_out[0], named);

    // A claim has one reservation, and one address of all pools.
    let another = [machine("b", &["10.0.0.13"])];
    let (reserved, left_out) = adopted(&another, &[], &objects, Some("{machine}-0-{pool}"));
    let has_another = "10.0.0.13 of Machine n/b: the claim n/b-0-web has another IPReservation";
    assert_eq!((reserved, left_out), (vec![], vec![has_another.to_owned()]));
    let objects = Objects::of(pools(), [], [], []);
    let (reserved, left_out) = adopted(&machines[..1], &[], &objects, Some("{machine}-0"));
    assert!(reserved.is_empty() && left_out.len() == 2, "{left_out:?}");
}

#[test]
fn machines_in_deletion_and_allocated_addresses_are_skipped() {
    let objects = Objects::of(pools(), [address("a", "10.0.0.20")], [], []);
    let mut leaving = machine("b", &["10.0.0.11"]);
    leaving.metadata.deletion_timestamp =
        serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    // The address is in two pools, and one of them has allocated it.
    let machines = [machine("a", &["10.0.0.20"]), leaving];
    let found = adopted(&machines, &[], &objects, Some("{machine}-0"));
    assert_eq!(found, (vec![], vec![]));
}

#[test]
fn what_cannot_be_matched_is_left_out() {
    let objects = Objects::of(pools(), [], [], []);
    let machines = [
        machine("a", &["10.0.0.20"]),
        machine("b", &["10.0.0.40", "10.0.0.11"]),
        machine("c", &["10.0.0.13"]),
        machine("d", &["10.0.0.14", "10.0.0.15"]),
        machine("e", &["10.0.0.16"]),
        machine("f", &["10.0.0.16"]),
    ];
    let claims = [
        claim("c-0", "c"),
        claim("c-1", "c"),
        claim("d-0", "d"),
        claim("e-0", "e"),
        claim("f-0", "f"),
    ];
    let (reserved, left_out) = adopted(&machines, &claims, &objects, None);
    assert_eq!(reserved, [""; 0]);
    assert_eq!(
        left_out,
        [
            "10.0.0.11 of Machine n/b in InClusterIPPool n/web: the name of its claim is unknown: write --claim-name",
            "10.0.0.13 of Machine n/c in InClusterIPPool n/web: the claims n/c-0 and n/c-1 wait for an address",
            "10.0.0.14 of Machine n/d is not the only address for the claim n/d-0",
            "10.0.0.15 of Machine n/d is not the only address for the claim n/d-0",
            "10.0.0.16 of Machine n/e is an address of another Machine, too",
            "10.0.0.16 of Machine n/f is an address of another Machine, too",
            "10.0.0.20 of Machine n/a is in InClusterIPPool n/web and in GlobalInClusterIPPool shared",
            "10.0.0.40 of Machine n/b is in no pool that the Machine can use",
        ]
    );
}

#[test]
fn claim_of_a_set_gets_the_address_of_any_of_its_pools() {
    let objects = Objects::of(pools(), [], [], []);
    let set: PoolSet = serde_json::from_value(json!({
        "metadata": { "namespace": "n", "name": "s" },
        "spec": { "pools": [{ "kind": "InClusterIPPool", "name": "other" }, { "kind": "InClusterIPPool", "name": "web" }] },
    }))
    .unwrap();
    let mut ledger = Ledger::default();
    let key = PoolSetKey::new(PoolSetKind::Namespaced, &set.metadata);
    ledger.apply_set(&key, Some(SetInfo::of(&key, &set)));
    let mut claim = claim("b-0", "b");
    claim.spec.pool_ref.kind = "IPPoolSet".to_owned();
    claim.spec.pool_ref.name = "s".to_owned();
    let machines = [machine("b", &["10.0.0.11", "10.0.0.25"])];
    let adoption = adopt(&machines, &[claim], (&objects, &ledger), None);
    let names = adoption.reservations.iter();
    let names: Vec<_> = names
        .map(|it| it.metadata.name.as_deref().unwrap())
        .collect();
    assert_eq!(names, ["p.n.web.10.0.0.11"]);
    // That pool is not one of the set.
    let problem = "10.0.0.25 of Machine n/b in GlobalInClusterIPPool shared: the name of its claim is unknown: write --claim-name";
    assert_eq!(adoption.left_out, [problem]);
}
