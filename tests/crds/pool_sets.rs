//! Validation by the CRD of sets of pools. What it rejects is also rejected by the types.

use capi_ipam_api::{PoolSetKey, PoolSetKind, PoolSetSpec};
use kube::core::ObjectMeta;
use support::prelude::*;

use super::{ControlPlane, object, with_file};

fn pool(kind: &str, name: &str) -> Value {
    json!({"kind": kind, "name": name})
}

/// Specifications of a kind that are not valid, and the field and a part of the message.
fn invalid() -> Vec<(PoolSetKind, Value, &'static str, &'static str)> {
    let (own, global) = (PoolSetKind::Namespaced, PoolSetKind::Global);
    let all = pool("GlobalInClusterIPPool", "all");
    let prefixes = pool("GlobalInClusterPrefixPool", "all");
    let of_namespace = pool("InClusterIPPool", "web");
    let set = pool("IPPoolSet", "racks");
    vec![
        (own, json!({}), "spec.pools", "exactly one of"),
        (own, json!({"pools": []}), "spec.pools", "exactly one of"),
        (
            global,
            json!({"pools": [all], "selector": {}}),
            "spec.pools",
            "exactly one of",
        ),
        (
            own,
            json!({"pools": [all, set]}),
            "spec.pools[1].kind",
            "a set contains no sets",
        ),
        (
            global,
            json!({"pools": [set]}),
            "spec.pools[0].kind",
            "nor sets",
        ),
        (
            global,
            json!({"pools": [of_namespace]}),
            "spec.pools[0].kind",
            "must be GlobalInClusterIPPool",
        ),
        (
            own,
            json!({"pools": [all, all]}),
            "spec.pools",
            "each pool must be listed once",
        ),
        (
            own,
            json!({"pools": [all, prefixes]}),
            "spec.pools",
            "all of them must have prefixes",
        ),
        (
            own,
            json!({"pools": [all], "fallback": true}),
            "spec.fallback",
            "ByFailureDomain",
        ),
        (
            own,
            json!({"pools": [all], "choose": "Best"}),
            "spec.choose",
            "supported values",
        ),
    ]
}

#[test]
fn sets_of_pools_are_validated() {
    let plane = ControlPlane::new();
    let create = |kind: PoolSetKind, spec: &Value| {
        let mut set = object(kind.name(), "racks", spec);
        if !kind.is_global() {
            set["metadata"]["namespace"] = json!("default");
        }
        with_file(&plane, &["create", "--dry-run=server"], &set)
    };
    let is_valid = |kind: PoolSetKind, spec: &Value| {
        let key = PoolSetKey::new(kind, &ObjectMeta::default());
        serde_json::from_value::<PoolSetSpec>(spec.clone())
            .is_ok_and(|spec| spec.members(&key).is_ok())
    };
    let domain = json!({"choose": "ByFailureDomain", "fallback": false, "selector": {"matchLabels": {"a": "b"}}});
    let global = json!({"pools": [pool("GlobalInClusterIPPool", "all")]});
    let both = json!({"choose": "MostFree",
        "pools": [pool("GlobalInClusterPrefixPool", "all"), pool("InClusterPrefixPool", "all")]});
    for (kind, spec) in [
        (PoolSetKind::Namespaced, &domain),
        (PoolSetKind::Global, &domain),
        (PoolSetKind::Global, &global),
        (PoolSetKind::Namespaced, &both),
    ] {
        create(kind, spec).unwrap_or_else(|error| panic!("{spec}: {error}"));
        assert!(is_valid(kind, spec), "{spec}");
    }
    for (kind, spec, field, text) in invalid() {
        let error = create(kind, &spec).expect_err(&format!("{spec} is not valid"));
        assert_contains(&error, field);
        assert_contains(&error, text);
        assert!(!is_valid(kind, &spec), "{spec}");
    }
}
