//! Networks.

use serde_json::{Value, json};

use crate::table::Table;
use crate::{ControlPlane, object};

pub(super) fn networks(plane: &ControlPlane) {
    let mut table = Table::new(plane);
    let network = |name: &str, spec: Value| object("IPNetwork", name, &spec);
    let labels = json!({"matchLabels": {"a": "b"}});
    for good in [
        json!({}),
        json!({"namespaces": {"from": "All"}, "pools": {}}),
        json!({"namespaces": {"from": "None"}, "pools": labels}),
        json!({"namespaces": {"from": "Names", "names": ["a", "b"]}}),
        json!({"namespaces": {"from": "Selector", "selector": labels}}),
        json!({"excluded": ["10.0.0.1", "fd00::/64", "10.0.0.2-10.0.0.9"]}),
        json!({"blockLengths": {"ipv4": 32, "ipv6": 64}}),
    ] {
        table.accepts_object(&network("lab", good));
    }
    for bad in ["a.b", &"x".repeat(64)] {
        table.rejects_object(&network(bad, json!({})), "metadata", "must be a DNS label");
    }
    let selector = "must be set with from: Selector";
    for (namespaces, field, text) in [
        (
            json!({"from": "Some"}),
            "spec.namespaces.from",
            "Unsupported value",
        ),
        (
            json!({"from": "Selector"}),
            "spec.namespaces.selector",
            selector,
        ),
        (
            json!({"from": "All", "selector": labels}),
            "spec.namespaces.selector",
            "unless from is Selector",
        ),
        (
            json!({"from": "All", "names": ["a"]}),
            "spec.namespaces.names",
            "unless from is Names",
        ),
        (
            json!({"names": ["a"]}),
            "spec.namespaces.from",
            "Required value",
        ),
    ] {
        table.rejects_object(
            &network("lab", json!({"namespaces": namespaces})),
            field,
            text,
        );
    }
    for bad in ["x", "10.0.0.300"] {
        table.rejects_object(
            &network("lab", json!({"excluded": ["10.0.0.1", bad]})),
            "spec.excluded[1]",
            "",
        );
    }
    let lengths = json!({"blockLengths": {"ipv4": 33}});
    table.rejects_object(&network("lab", lengths), "spec.blockLengths.ipv4", "32");
    table.done();
}
