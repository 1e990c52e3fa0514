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
    let paused = found(&snapshot, Check::Paused);
    assert_eq!(
        paused,
        ["warning Cluster n/prod: it is paused; 1 claim waits (n/c)"]
    );
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
    let text = "error claims of IPPoolSet n/p: 1 claim waits (n/d) without any condition: no manager has processed \
                them";
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

/// A bound claim of the set `p` with the IPAddress of its name.
fn bound(name: &str) -> Value {
    let mut claim = claim(name, 60, "");
    claim["spec"]["poolRef"]["kind"] = json!("IPPoolSet");
    claim["status"]["addressRef"] = json!({"name": name});
    claim
}

/// A snapshot with claims of the set `p`, and the IPAddress of the claim `a` in the pool `rack-1`.
fn with_claims(claims: &[Value]) -> Snapshot {
    let mut address = address("a", "p", "10.0.0.1");
    address["spec"]["poolRef"]["kind"] = json!("IPPoolSet");
    let member = json!({"ipam.cluster.x-k8s.io/member-pool": "InClusterIPPool/rack-1"});
    address["metadata"]["annotations"] = member;
    let mut snapshot = with_objects::<IPAddressClaim>(Kind::Claim, claims);
    let addresses = with_objects::<IPAddress>(Kind::Address, &[address]);
    snapshot.objects.addresses = addresses.objects.addresses;
    snapshot
}

#[test]
fn conflict_of_a_claim_of_a_set_is_reported_with_its_pool() {
    let mut claim = bound("a");
    claim["metadata"]["annotations"] = json!({"ipam.cluster.x-k8s.io/conflict": "ARP reply"});
    let snapshot = with_claims(&[claim]);
    let check = Check::AddressConflict;
    let text = "warning ipaddressclaim n/a: it reports a conflict of its address: ARP reply";
    assert_eq!(found(&snapshot, check), [text]);
    let pools = finding(&snapshot, check);
    let pools: Vec<_> = pools.pools().into_iter().map(ToString::to_string).collect();
    assert_eq!(pools, ["InClusterIPPool n/rack-1"]);
}

#[test]
fn lost_address_of_a_claim_of_a_set_is_reported() {
    let snapshot = with_claims(&[bound("a"), bound("b")]);
    let text = "error ipaddressclaim n/b: it is bound to IPAddress b, which does not exist";
    assert_eq!(found(&snapshot, Check::LostAddress), [text]);
}

#[test]
fn deletion_of_a_claim_of_a_set_is_reported() {
    let blocked = deleted(bound("a"), 3600, &["example.com/vm"]);
    let unreleased = deleted(bound("b"), 60, &[]);
    let snapshot = with_claims(&[blocked, unreleased]);
    let waiting = found(&snapshot, Check::ReleaseBlocked);
    let text = "warning ipaddressclaim n/a: it is being deleted, and its address stays allocated";
    assert!(
        matches!(&*waiting, [one] if one.starts_with(text)),
        "{waiting:?}"
    );
    let text =
        "error ipaddressclaim n/b: it is being deleted, and no manager has released its address";
    assert_eq!(found(&snapshot, Check::NotReconciled), [text]);
}

#[test]
fn paused_claim_set_or_pool_of_a_set_is_reported_once() {
    let mut waiting = claim("a", 60, "Paused");
    waiting["spec"]["poolRef"]["kind"] = json!("IPPoolSet");
    let alone = with_claims(&[paused(waiting.clone())]);
    let text = "warning ipaddressclaim n/a: it is paused; 1 claim waits (n/a)";
    assert_eq!(found(&alone, Check::Paused), [text]);
    assert!(found(&alone, Check::ClaimsWait).is_empty());

    let mut of_set = with_claims(&[waiting]);
    let set = paused(json!({"metadata": {"namespace": "n", "name": "p"}, "spec": {}}));
    let sets = with_objects::<PoolSet>(Kind::PoolSet(PoolSetKind::Namespaced), &[set]);
    of_set.objects.pool_sets = sets.objects.pool_sets;
    let text = "warning IPPoolSet n/p: it is paused; 1 claim waits (n/a)";
    assert_eq!(found(&of_set, Check::Paused), [text]);
    let repair = finding(&of_set, Check::Paused).repair;
    let command = "kubectl annotate ippoolsets p --namespace n cluster.x-k8s.io/paused-";
    assert!(repair.ends_with(command), "{repair}");

    let mut of_pool = with_claims(&[deleted(bound("a"), 60, &[])]);
    let member = paused(pool("rack-1", &range("10.0.0.1-10.0.0.3")));
    of_pool.objects.pools = with(&[member], &[], &[]).objects.pools;
    let text =
        "warning InClusterIPPool n/rack-1: it is paused; 1 claim in deletion is not released (n/a)";
    assert_eq!(found(&of_pool, Check::Paused), [text]);
    assert!(found(&of_pool, Check::NotReconciled).is_empty());
}

#[test]
fn missing_pool_of_a_set_names_its_bound_claims() {
    let snapshot = with_claims(&[bound("a")]);
    let text = "error InClusterIPPool n/rack-1: it does not exist; 1 of its addresses in use (n/a); 1 claim bound (n/a)";
    assert_eq!(found(&snapshot, Check::MissingPool), [text]);
}
