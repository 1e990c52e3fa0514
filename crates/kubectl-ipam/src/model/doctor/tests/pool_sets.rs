//! The checks of sets of pools, and of the claims that wait for them.

use capi_ipam_api::{PoolSet, PoolSetKind};
use capi_ipam_controller::watch::MaybeInvalid;
use kube::runtime::watcher::Event;

use super::*;
use crate::objects::ServedKinds;

/// A snapshot with objects of a kind, as the API server has them.
fn with_objects<K: crate::objects::Shown>(kind: Kind, values: &[Value]) -> Snapshot {
    let mut snapshot = empty();
    snapshot.objects.served = ServedKinds {
        own: PoolSetKind::ALL.map(|kind| kind.name().to_owned()).into(),
        ..ServedKinds::default()
    };
    for value in values {
        let object: K = serde_json::from_value(value.clone()).unwrap();
        let event = Event::Apply(MaybeInvalid(Ok(object)));
        snapshot.objects.apply(kind, event);
    }
    snapshot
}

fn set(status: &str, reason: &str, message: &str) -> Snapshot {
    let ready = json!({"type": "Ready", "status": status, "reason": reason, "message": message});
    let set =
        json!({"metadata": {"namespace": "n", "name": "racks"}, "status": {"conditions": [ready]}});
    with_objects::<PoolSet>(Kind::PoolSet(PoolSetKind::Namespaced), &[set])
}

#[test]
fn set_that_is_not_ready_or_lacks_pools_is_reported() {
    let check = Check::PoolSetNotReady;
    let invalid = set("False", "InvalidSpec", "why");
    assert_eq!(found(&invalid, check), ["error IPPoolSet n/racks: why"]);
    let commands = finding(&invalid, check).commands;
    assert_eq!(commands, ["kubectl edit ippoolsets racks --namespace n"]);
    for (status, reason) in [("True", "PoolsReady"), ("False", "Deleting")] {
        let incomplete = set(status, reason, "these do not exist: a");
        let text = "warning IPPoolSet n/racks: these do not exist: a";
        assert_eq!(found(&incomplete, check), [text]);
    }
    assert!(found(&set("True", "PoolsReady", ""), check).is_empty());
}

#[test]
fn claims_that_wait_for_a_set_are_reported_by_reason() {
    let of_set = |name: &str, age: i64, reason: &str| {
        let mut claim = claim(name, age, reason);
        claim["spec"]["poolRef"]["kind"] = json!("IPPoolSet");
        claim
    };
    let claims = [
        of_set("a", 60, "PoolExhausted"),
        of_set("b", 60, "PoolExhausted"),
        of_set("c", 60, "Paused"),
        of_set("d", 60, ""),
        of_set("e", 1, ""),
    ];
    let snapshot = with_objects::<IPAddressClaim>(Kind::Claim, &claims);
    let waiting = found(&snapshot, Check::ClaimsWait);
    let text = "error IPPoolSet n/p: 2 claims wait (n/a, n/b) with the reason PoolExhausted: ";
    assert!(
        matches!(&*waiting, [one] if one.starts_with(text)),
        "{waiting:?}"
    );
}

#[test]
fn unprocessed_claims_of_a_set_are_reported() {
    let mut claim = claim("d", 60, "");
    claim["spec"]["poolRef"]["kind"] = json!("IPPoolSet");
    let snapshot = with_objects::<IPAddressClaim>(Kind::Claim, &[claim]);
    let text = "error IPPoolSet n/p: 1 claim waits (n/d) without any condition";
    assert_eq!(found(&snapshot, Check::NotReconciled), [text]);
}

#[test]
fn address_of_a_set_without_its_pool_is_named() {
    let mut of_set = address("a", "racks", "10.0.0.1");
    of_set["spec"]["poolRef"]["kind"] = json!("IPPoolSet");
    let objects = with_objects::<IPAddress>(Kind::Address, &[of_set]).objects;
    let problem = objects.undecodable(Kind::Address).unwrap();
    let text = "an object of ipaddresses cannot be decoded: n/a (the annotation \
                ipam.cluster.x-k8s.io/member-pool does not name its pool)";
    assert_eq!(problem, text);
}
