#![allow(clippy::needless_pass_by_value, reason = "the values are written where they are passed")]

use std::sync::Arc;

use capi_ipam_ip::{Block, Family, Usable};
use serde_json::{json, Value};

use crate::api::{InClusterIPPool, Pool, Scope};
use super::*;

/// A cluster with one pool of ten addresses, of which one is in use.
struct Cluster {
    network: Option<&'static str>,
}

impl View for Cluster {
    fn is_complete(&self) -> bool {
        true
    }
    fn in_use(&self, _: &PoolKey, _: &dyn Fn(Block) -> bool) -> Vec<Block> {
        Vec::new()
    }
    fn overlapping(&self, _: &PoolKey, _: &Scope, _: &Usable) -> Vec<PoolKey> {
        Vec::new()
    }
    fn network_length(&self, _: &str, _: Family) -> Option<u8> {
        None
    }
    fn members(&self, network: &str) -> Vec<PoolKey> {
        let member = self.network == Some(network);
        member
            .then(|| PoolKey { kind: InClusterIPPool::KIND, namespace: Some("n".into()), name: "p".into() })
            .into_iter()
            .collect()
    }
    fn pool(&self, pool: &PoolKey) -> Option<(Scope, Option<Arc<Usable>>)> {
        let object: InClusterIPPool = serde_json::from_value(json!({
            "metadata": {"namespace": "n", "name": "p"},
            "spec": {"addresses": ["10.0.0.1-10.0.0.10"], "prefix": 24},
        }))
        .unwrap();
        let is_it = *pool == PoolKey::of(&object);
        is_it.then(|| (Scope::of(pool, self.network), object.spec().usable().ok().map(Arc::new)))
    }
    fn holders(&self, slot: &Slot) -> Vec<(String, String)> {
        let used = slot.block.to_string() == "10.0.0.3";
        used.then(|| ("n".to_owned(), "holder".to_owned())).into_iter().collect()
    }
}

fn reservation(last: u8, change: Value) -> Value {
    let mut object = json!({
        "metadata": {"name": format!("p.n.p.10.0.0.{last}")},
        "spec": {"scope": "p.n.p", "address": format!("10.0.0.{last}"),
                 "poolRef": {"kind": "InClusterIPPool", "namespace": "n", "name": "p"}},
    });
    json_patch::merge(&mut object, &change);
    object
}

fn asks(operation: Operation, object: Value) -> Decision {
    let (new, old) = if operation == Operation::Delete { (None, Some(object)) } else { (Some(object), None) };
    let request = AdmissionRequest { operation, object: new, old_object: old, ..AdmissionRequest::default() };
    review(&request, &Cluster { network: None })
}

fn refused(verdict: Decision) -> (u16, Vec<String>, String) {
    let Decision::Denied(refusal) = verdict else { panic!("allowed: {verdict:?}") };
    (refusal.code, refusal.causes.into_iter().map(|cause| cause.field).collect(), refusal.message)
}

fn warned(verdict: Decision) -> Vec<String> {
    let Decision::Allowed { warnings, .. } = verdict else { panic!("refused: {verdict:?}") };
    warnings
}

#[test]
fn reservations_that_do_what_they_say_pass() {
    let promise = |name: &str| json!({"spec": {"claimRef": {"namespace": "n", "name": name}}});
    assert!(warned(asks(Operation::Create, reservation(2, json!({})))).is_empty());
    assert!(warned(asks(Operation::Create, reservation(2, promise("vip")))).is_empty());
    assert!(warned(asks(Operation::Create, reservation(3, promise("holder")))).is_empty(), "it keeps what it has");
    let unknown = json!({"metadata": {"name": "g.x.10.0.0.2"}, "spec": {"scope": "g.x",
        "poolRef": {"kind": "GlobalInClusterIPPool", "namespace": null, "name": "x"}}});
    assert_eq!(
        warned(asks(Operation::Create, reservation(2, unknown))),
        ["spec.poolRef: there is no GlobalInClusterIPPool x"]
    );
    let by_provider = json!({"spec": {"claimRef": {"namespace": "n", "name": "c", "uid": "u"}}});
    assert!(warned(asks(Operation::Create, reservation(77, by_provider))).is_empty());
}

#[test]
fn bad_ones_are_refused_with_the_reason() {
    let cases = [
        (reservation(77, json!({})), "spec.address", "does not give it out"),
        (reservation(3, json!({})), "spec.address", "in use by an IPAddress (see"),
        (reservation(3, json!({"spec": {"claimRef": {"namespace": "n", "name": "vip"}}})), "spec.address", "in use"),
        (reservation(2, json!({"metadata": {"name": "mine"}})), "metadata.name", "p.n.p.10.0.0.2"),
        (reservation(2, json!({"spec": {"scope": "g.p"}})), "spec.scope", "p.n.p"),
        (
            reservation(2, json!({"metadata": {"name": "n.lab.10.0.0.2"}, "spec": {"scope": "n.lab"}})),
            "spec.scope",
            "p.n.p",
        ),
        (reservation(2, json!({"spec": {"address": "10.0.0"}})), "spec.address", "10.0.0"),
        (reservation(2, json!({"spec": {"poolRef": {"kind": "Pod"}}})), "spec.poolRef", "Pod"),
    ];
    for (object, field, text) in cases {
        let (code, fields, message) = refused(asks(Operation::Create, object));
        assert_eq!((code, fields), (422, vec![field.to_owned()]), "{message}");
        assert!(message.contains(text) && message.matches(field).count() == 1, "{message}");
        assert!(!message.contains("holder"), "it names an object of a namespace: {message}");
    }
    assert_eq!(refused(asks(Operation::Create, json!(7))).0, 400);
}

#[test]
fn what_a_network_agreed_on_is_not_deleted_while_it_has_pools() {
    let unit = json!({
        "metadata": {"name": "n.lab.ipv4"},
        "spec": {"scope": "n.lab", "address": "0.0.0.0", "prefixLength": 32,
                 "poolRef": {"kind": "InClusterIPPool", "namespace": "n", "name": "p"}},
    });
    assert!(warned(asks(Operation::Create, unit.clone())).is_empty());
    assert!(warned(asks(Operation::Delete, unit.clone())).is_empty());
    assert!(warned(asks(Operation::Delete, reservation(2, json!({})))).is_empty());
    let request =
        AdmissionRequest { operation: Operation::Delete, old_object: Some(unit), ..AdmissionRequest::default() };
    let (code, _, message) = refused(review(&request, &Cluster { network: Some("lab") }));
    assert!(code == 400 && message.contains("network lab still has 1 namespaced pool;"), "{message}");
}

#[test]
fn what_clusterctl_moves_is_let_in_with_a_warning() {
    let cluster = Cluster { network: None };
    for last in [3, 77] {
        let by_hand = reservation(last, json!({}));
        assert!(create(&serde_json::from_value(by_hand).unwrap(), &cluster).is_err());
        let moved = json!({"metadata": {"labels": {"clusterctl.cluster.x-k8s.io/move": ""}}});
        let warnings = create(&serde_json::from_value(reservation(last, moved)).unwrap(), &cluster).unwrap();
        assert!(warnings.len() == 1 && warnings[0].starts_with("spec.address: "), "{warnings:?}");
    }
}
