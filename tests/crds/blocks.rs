//! Validation by the CRDs of registries, of networks that share blocks, and of the slices of blocks.

use serde_json::{Value, json};

use super::table::Table;
use super::{ControlPlane, Options, object};

/// A slice of a block of a network.
fn block(change: &Value) -> Value {
    let owner = json!({"kind": "ManagementCluster", "name": "west-1"});
    let mut spec = json!({"scope": "n.lab", "block": "10.8.0.64/26", "owner": owner});
    json_patch::merge(&mut spec, change);
    object("IPSlice", "n.lab.10.8.0.64-26", &spec)
}

#[test]
fn api_server_validates_registries_by_the_crd_rules() {
    let plane = ControlPlane::start(Options::default());
    let mut table = Table::new(&plane);
    let nats = json!({"servers": ["nats://nats-0.nats:4222"], "bucket": "ipam"});
    for good in [
        json!({ "nats": nats }),
        json!({"clusterID": "west-1", "kubernetes": {"secretName": "hub"}}),
    ] {
        table.accepts_object(&object("IPRegistry", "site", &good));
    }
    let both = json!({"nats": nats, "kubernetes": {"secretName": "hub"}});
    for (bad, field, text) in [
        (json!({}), "spec", "exactly one of nats and kubernetes"),
        (both, "spec", "exactly one of nats and kubernetes"),
        (
            json!({"clusterID": "West", "nats": nats}),
            "spec.clusterID",
            "DNS label",
        ),
        (
            json!({"nats": {"servers": ["nats://a:b@nats-0"], "bucket": "ipam"}}),
            "spec.nats.servers[0]",
            "without a user name",
        ),
        (
            json!({"nats": {"servers": [], "bucket": "ipam"}}),
            "spec.nats.servers",
            "at least 1",
        ),
        (
            json!({"nats": {"servers": ["nats://a"], "bucket": "a.b"}}),
            "spec.nats.bucket",
            "letters, digits",
        ),
    ] {
        table.rejects_object(&object("IPRegistry", "site", &bad), field, text);
    }
}

#[test]
fn api_server_validates_shared_blocks_by_the_crd_rules() {
    let plane = ControlPlane::start(Options::default());
    let mut table = Table::new(&plane);
    let network = |blocks: &Value| object("IPNetwork", "lab", &json!({ "blocks": blocks }));
    table.accepts_object(&network(&json!({"registry": "site", "size": 64})));
    for (bad, field, text) in [
        (
            json!({"size": 64}),
            "spec.blocks.registry",
            "Required value",
        ),
        (
            json!({"registry": "Site", "size": 64}),
            "spec.blocks.registry",
            "DNS label",
        ),
        (
            json!({"registry": "site", "size": 48}),
            "spec.blocks.size",
            "power of two",
        ),
        (
            json!({"registry": "site", "size": 64, "most": 0}),
            "spec.blocks.most",
            "greater than or equal to 1",
        ),
    ] {
        table.rejects_object(&network(&bad), field, text);
    }
    table.accepts_object(&block(
        &json!({"registry": "site", "confirmedAt": "2026-01-01T12:00:00Z"}),
    ));
    for (bad, field, text) in [
        (json!({"scope": "g.lab"}), "metadata", "spec.scope"),
        (
            json!({"owner": {"kind": "Label"}}),
            "spec.owner",
            "ManagementCluster owns blocks of networks",
        ),
    ] {
        table.rejects_object(&block(&bad), field, text);
    }
}
