//! Validation by the CRD of the addresses of Clusters. What it rejects is also rejected by the
//! types.

use capi_ipam_api::{ClusterAddressing, ClusterAddressingSpec};

use super::{ControlPlane, object, with_file};
use support::prelude::*;

fn item(name: &str, kind: &str, to: &Value) -> Value {
    json!({"name": name, "to": to,
        "poolRef": {"apiGroup": "ipam.cluster.x-k8s.io", "kind": kind, "name": "p"}})
}

fn spec(items: &[Value]) -> Value {
    json!({"clusterSelector": {}, "items": items})
}

/// Specifications that are not valid, and the field and a part of the message of the API server.
fn invalid() -> Vec<(Value, &'static str, &'static str)> {
    let endpoint = json!([{"controlPlaneEndpoint": {"port": 6443}}]);
    let pods = json!([{"clusterNetwork": "Pods"}]);
    let pool = "InClusterIPPool";
    let one = |name: &str, kind: &str, to: &Value| spec(&[item(name, kind, to)]);
    let port = |port: i32| {
        one(
            "a",
            pool,
            &json!([{"controlPlaneEndpoint": {"port": port}}]),
        )
    };
    let variable = |variable: Value| one("a", pool, &json!([{ "variable": variable }]));
    let mut other_group = one("a", pool, &endpoint);
    other_group["items"][0]["poolRef"]["apiGroup"] = json!("example.com");
    vec![
        (spec(&[]), "spec.items", "at least 1"),
        (one("A", pool, &endpoint), "spec.items[0].name", "DNS label"),
        (
            one("a", "Pool", &endpoint),
            "spec.items[0].poolRef.kind",
            "must be InClusterIPPool",
        ),
        (
            other_group,
            "spec.items[0].poolRef.apiGroup",
            "must be ipam.cluster.x-k8s.io",
        ),
        (one("a", pool, &json!([])), "spec.items[0].to", "at least 1"),
        (
            one("a", pool, &json!([{}])),
            "spec.items[0].to[0]",
            "exactly one of",
        ),
        (
            one(
                "a",
                pool,
                &json!([{"resource": "Values", "variable": {"name": "v"}}]),
            ),
            "spec.items[0].to[0]",
            "exactly one of",
        ),
        (
            one("a", pool, &pods),
            "spec.items[0].to",
            "a pool of prefixes",
        ),
        (
            one("a", "GlobalInClusterPrefixPool", &endpoint),
            "spec.items[0].to",
            "a pool of single addresses",
        ),
        (
            port(0),
            "spec.items[0].to[0].controlPlaneEndpoint.port",
            "greater than or equal to 1",
        ),
        (
            port(65536),
            "spec.items[0].to[0].controlPlaneEndpoint.port",
            "less than or equal to 65535",
        ),
        (
            variable(json!({"name": "a.b"})),
            "spec.items[0].to[0].variable.name",
            "letters, digits",
        ),
        (
            variable(json!({"name": "a", "path": "b..c"})),
            "spec.items[0].to[0].variable.path",
            "separated by dots",
        ),
        (
            spec(&[
                item("a", pool, &endpoint),
                item("a", pool, &json!([{"resource": "Values"}])),
            ]),
            "spec.items",
            "must be unique",
        ),
    ]
}

#[test]
fn addresses_of_clusters_are_validated() {
    let plane = ControlPlane::new();
    let create = |name: &str, spec: &Value| {
        let mut addressing = object("ClusterAddressing", name, spec);
        addressing["metadata"]["namespace"] = json!("default");
        with_file(&plane, &["create", "--dry-run=server"], &addressing)
    };
    let to = json!([{"controlPlaneEndpoint": {"port": 6443}}, {"variable": {"name": "v", "path": "a.b"}},
        {"resource": "CiliumLoadBalancerIPPool"}]);
    let pods = json!([{"clusterNetwork": "Pods"}]);
    let items = [
        item("a", "InClusterIPPool", &to),
        item("b", "InClusterPrefixPool", &pods),
        item("c", "IPPoolSet", &json!([{"resource": "Values"}])),
        item(
            "d",
            "GlobalIPPoolSet",
            &json!([{"clusterNetwork": "Services"}]),
        ),
    ];
    let valid = spec(&items);
    create("bonn", &valid).unwrap_or_else(|error| panic!("{error}"));
    let error = create("bonn.a", &valid).expect_err("its name is a value of a label");
    assert_contains(&error, "must be a DNS label");
    let named = json!({"metadata": {"name": "bonn.a"}, "spec": valid});
    let named: ClusterAddressing = serde_json::from_value(named).expect("it is readable");
    assert!(!named.problems().is_empty());
    for (spec, field, text) in invalid() {
        let error = create("bonn", &spec).expect_err(field);
        let is_named = error.contains(&format!("{field}: "));
        assert!(is_named && error.contains(text), "{field}, {text}: {error}");
        let read: ClusterAddressingSpec = serde_json::from_value(spec).expect("it is readable");
        let found = read.problems();
        let problem = found
            .iter()
            .find(|problem| problem.field.starts_with(field));
        assert!(problem.is_some(), "{field}: {found:?}");
    }
}
