#![allow(
    clippy::needless_pass_by_value,
    reason = "the values are written where they are passed"
)]

use capi_ipam_webhook::review::GroupVersionKind;
use serde_json::{Value, json};

use super::*;
use crate::admission::tests::{self, Cluster};

/// A cluster with one pool of ten addresses; one of them is in use.
fn cluster() -> Cluster {
    Cluster::with(&[
        tests::pool_of("10.0.0.1-10.0.0.10"),
        tests::address("holder", "10.0.0.3"),
    ])
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

fn request_for(operation: Operation, object: Value) -> AdmissionRequest {
    let (new, old) = if operation == Operation::Delete {
        (None, Some(object))
    } else {
        (Some(object), None)
    };
    AdmissionRequest {
        uid: "u".to_owned(),
        kind: GroupVersionKind::gvk("", "", ""),
        operation,
        sub_resource: String::new(),
        namespace: String::new(),
        name: "r".to_owned(),
        object: new,
        old_object: old,
        dry_run: false,
    }
}

fn review_of(operation: Operation, object: Value) -> Decision {
    review(&request_for(operation, object), &cluster())
}

fn denied(decision: Decision) -> (u16, Vec<String>, String) {
    let status = decision.expect_err("the request is denied");
    let causes = status
        .details
        .into_iter()
        .flat_map(|details| details.causes);
    (
        status.code,
        causes.map(|cause| cause.field).collect(),
        status.message,
    )
}

fn warnings_of(decision: Decision) -> Vec<String> {
    decision.expect("the request is allowed")
}

#[test]
fn effective_reservations_are_allowed() {
    assert!(warnings_of(review_of(Operation::Create, reservation(2, json!({})))).is_empty());
    assert!(
        warnings_of(review_of(
            Operation::Create,
            reservation(2, promise("n", "vip"))
        ))
        .is_empty()
    );
    assert!(
        warnings_of(review_of(
            Operation::Create,
            reservation(3, promise("n", "holder"))
        ))
        .is_empty(),
        "the address is promised to its owner"
    );
    let unknown = json!({"metadata": {"name": "g.x.10.0.0.2"}, "spec": {"scope": "g.x",
        "poolRef": {"kind": "GlobalInClusterIPPool", "namespace": null, "name": "x"}}});
    assert_eq!(
        warnings_of(review_of(Operation::Create, reservation(2, unknown))),
        ["spec.poolRef: GlobalInClusterIPPool x does not exist"]
    );
    let by_provider = json!({"spec": {"claimRef": {"namespace": "n", "name": "c", "uid": "u"}}});
    assert!(warnings_of(review_of(Operation::Create, reservation(77, by_provider))).is_empty());
}

fn promise(namespace: &str, name: &str) -> Value {
    json!({"spec": {"claimRef": {"namespace": namespace, "name": name}}})
}

#[test]
fn reservations_without_effect_are_denied_with_field() {
    let cases = [
        (
            reservation(77, json!({})),
            "spec.address",
            "does not contain this address",
        ),
        (
            reservation(3, json!({})),
            "spec.address",
            "in use by an IPAddress (see",
        ),
        (
            reservation(
                3,
                json!({"spec": {"claimRef": {"namespace": "n", "name": "vip"}}}),
            ),
            "spec.address",
            "in use",
        ),
        (
            reservation(2, json!({"metadata": {"name": "mine"}})),
            "metadata.name",
            "p.n.p.10.0.0.2",
        ),
        (
            reservation(2, json!({"spec": {"scope": "g.p"}})),
            "spec.scope",
            "p.n.p",
        ),
        (
            reservation(
                2,
                json!({"metadata": {"name": "n.lab.10.0.0.2"}, "spec": {"scope": "n.lab"}}),
            ),
            "spec.scope",
            "p.n.p",
        ),
        (
            reservation(2, json!({"spec": {"address": "10.0.0"}})),
            "spec.address",
            "10.0.0",
        ),
        (
            reservation(2, json!({"spec": {"poolRef": {"kind": "Pod"}}})),
            "spec.poolRef",
            "Pod",
        ),
        (
            reservation(2, promise("n", "Bad_Claim")),
            "spec.claimRef.name",
            "is not the name of a claim",
        ),
        (
            reservation(2, promise("No", "vip")),
            "spec.claimRef.namespace",
            "is not the name of a namespace",
        ),
        (
            reservation(2, promise("kube-system", "vip")),
            "spec.claimRef.namespace",
            "claims of its namespace",
        ),
    ];
    for (object, field, text) in cases {
        let (code, fields, message) = denied(review_of(Operation::Create, object));
        assert_eq!((code, fields), (422, vec![field.to_owned()]), "{message}");
        assert!(
            message.contains(text) && message.matches(field).count() == 1,
            "{message}"
        );
        assert!(
            !message.contains("holder"),
            "the message names a namespaced object: {message}"
        );
    }
    assert_eq!(denied(review_of(Operation::Create, json!(7))).0, 400);
}

#[test]
fn address_in_a_block_of_another_cluster_is_denied() {
    let spec = json!({"addresses": ["10.0.0.1-10.0.0.100"], "prefix": 24, "network": "lab"});
    let view = Cluster::with(&[
        tests::registry(),
        tests::sharing_network(),
        tests::slice("10.0.0.0"),
        tests::pool("InClusterIPPool", "p", &spec),
    ]);
    let review_of = |address: &str| {
        let request = request_for(Operation::Create, tests::reservation("n.lab", address));
        review(&request, &view)
    };
    assert!(warnings_of(review_of("10.0.0.2")).is_empty());
    let (_, fields, message) = denied(review_of("10.0.0.66"));
    assert_eq!(fields, ["spec.address"]);
    let text = "10.0.0.66 is not in a block that this management cluster has";
    assert!(message.contains(text), "{message}");
}

#[test]
fn moved_reservations_are_allowed_with_a_warning() {
    let cluster = cluster();
    for last in [3, 77] {
        let created = reservation(last, json!({}));
        assert!(create(&serde_json::from_value(created).unwrap(), &cluster).is_err());
        let moved = json!({"metadata": {"labels": {"clusterctl.cluster.x-k8s.io/move": ""}}});
        let warnings = create(
            &serde_json::from_value(reservation(last, moved)).unwrap(),
            &cluster,
        )
        .unwrap();
        assert!(
            warnings.len() == 1 && warnings[0].starts_with("spec.address: "),
            "{warnings:?}"
        );
    }
}
