//! Validation by the CRDs of changes of slices, and of how pools are divided into them.

use super::{ControlPlane, object, with_file};
use support::prelude::*;

#[test]
fn slices_cannot_be_changed() {
    let plane = ControlPlane::new();
    let owner = json!({"kind": "Cluster", "namespace": "team-a", "name": "alpha"});
    let spec = json!({
        "scope": "g.site-a", "block": "10.8.0.64/26", "owner": owner, "assignedAt": "2026-01-01T00:00:00Z",
    });
    let name = "g.site-a.10.8.0.64-26";
    with_file(&plane, &["create"], &object("IPSlice", name, &spec))
        .unwrap_or_else(|error| panic!("{error}"));
    let patch = |kind: &str, name: &str, change: Value| {
        let patch = format!("--patch={}", json!({"spec": change}));
        plane.try_kubectl(&["patch", kind, name, "--type=merge", &patch])
    };
    patch(
        "ipslice",
        name,
        json!({"emptySince": "2026-01-02T00:00:00Z"}),
    )
    .expect("it is mutable");
    patch("ipslice", name, json!({"emptySince": null})).expect("it is mutable");
    for (field, value) in [
        ("block", json!("10.8.0.128/26")),
        ("scope", json!("g.site-b")),
        ("owner", json!({"name": "beta"})),
        ("assignedAt", Value::Null),
        ("registry", json!("site")),
    ] {
        let error = patch("ipslice", name, json!({field: value})).expect_err("it is immutable");
        assert!(
            error.contains(&format!("spec.{field}: ")) && error.contains("field is immutable"),
            "{error}"
        );
    }
    let slices = json!({"size": 64, "per": "Cluster"});
    let spec = json!({"addresses": ["10.0.0.0/16"], "prefix": 16, "slices": slices});
    let pool = object("GlobalInClusterIPPool", "sized", &spec);
    with_file(&plane, &["create"], &pool).unwrap_or_else(|error| panic!("{error}"));
    let change = |slices: Value| patch("globalinclusterippool", "sized", json!({"slices": slices}));
    let error = change(json!({"size": 32})).expect_err("it is immutable");
    assert!(
        error.contains("spec.slices.size: ") && error.contains("field is immutable"),
        "{error}"
    );
    change(json!({"per": "Namespace", "mostEach": 3})).expect("the owners can be changed");
    change(Value::Null).expect("slices can be removed");
    change(json!({"size": 32, "per": "Cluster"})).expect("slices of another size can be added");
}
