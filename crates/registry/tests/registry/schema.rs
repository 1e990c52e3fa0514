//! What the API server of a registry refuses from anybody.

use serde_json::{Value, json};

use crate::hub::World;
use crate::support::World as _;

fn object(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": "IPBlock",
        "metadata": {"name": name}, "spec": spec,
    })
}

fn block(network: &str, block: &str) -> Value {
    json!({"network": network, "block": block, "cluster": "west"})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_that_are_no_records_are_refused() {
    let world = World::start().await;
    let lab = block("lab", "10.0.0.0/26");
    let accepted = [
        ("block.lab.10.0.0.0-26", json!({"block": lab})),
        (
            "block.a.b.fd00-0000-0000-0000-0000-0000-0000-0000-64",
            json!({"block": block("a.b", "fd00::/64")}),
        ),
        (
            "cluster.west",
            json!({"cluster": {"cluster": "west", "process": "a", "exclusions": {"lab": "e3b0c442"}}}),
        ),
        // As an earlier version writes it.
        (
            "network.lab",
            json!({"network": {"network": "lab", "size": 64, "sizeOf": "west",
                               "excluded": {"west": ["10.0.0.1", "10.0.0.4-10.0.0.9"]}}}),
        ),
    ];
    for (name, spec) in &accepted {
        let created = world.plane.dry_create(&object(name, spec));
        assert_eq!(created, Ok(()), "{name}");
    }
    let two = json!({"block": lab, "cluster": {"cluster": "west", "process": "a"}});
    let mut many = lab.clone();
    many["contenders"] = json!(["a", "b", "c", "d", "e", "f", "g", "h", "i"]);
    let mut negative = lab.clone();
    negative["used"] = json!(-1);
    let long = json!({"cluster": "west", "process": "a", "exclusions": {"lab": "e3b0c442e"}});
    let refused = [
        ("block.lab.10.0.0.0-26", two, "exactly one"),
        ("block.lab.10.0.0.0-26", json!({}), "exactly one"),
        ("block.lab.10.0.0.64-26", json!({"block": lab}), "metadata"),
        ("block.other.10.0.0.0-26", json!({"block": lab}), "metadata"),
        ("network.lab.10.0.0.0-26", json!({"block": lab}), "metadata"),
        (
            "cluster.east",
            json!({"cluster": {"cluster": "west", "process": "a"}}),
            "metadata",
        ),
        (
            "block.lab.10.0.0.1-26",
            json!({"block": block("lab", "10.0.0.1/26")}),
            "host bits",
        ),
        (
            "block.lab.10.0.0.0-26",
            json!({"block": many}),
            "contenders",
        ),
        ("block.lab.10.0.0.0-26", json!({"block": negative}), "used"),
        ("cluster.west", json!({ "cluster": long }), "exclusions"),
        ("anything", json!({"later": {}}), "later"),
    ];
    for (name, spec, expected) in &refused {
        let refusal = world.plane.dry_create(&object(name, spec));
        let refusal = refusal.expect_err("it is no record");
        assert!(refusal.contains(expected), "{name}: {refusal}");
    }
}
