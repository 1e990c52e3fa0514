//! Validation by the CRDs of slices, and of how pools are divided into them.

use serde_json::{Value, json};

use super::table::{ADDRESSES, GLOBAL_ADDRESSES, GLOBAL_PREFIXES, PREFIXES, Table};
use super::{ControlPlane, Options, object, with_file};

fn pool(kind: &str, slices: &Value) -> Value {
    let is_prefix = kind.contains("Prefix");
    let mut spec = if is_prefix {
        json!({"prefixes": ["fd00::/48"]})
    } else {
        json!({"addresses": ["10.0.0.0/16"], "prefix": 16})
    };
    spec["slices"] = slices.clone();
    object(kind, "case", &spec)
}

#[test]
fn api_server_validates_slices_by_the_crd_rules() {
    let plane = ControlPlane::start(Options::default());
    let mut table = Table::new(&plane);
    for kind in [ADDRESSES, PREFIXES, GLOBAL_ADDRESSES, GLOBAL_PREFIXES] {
        for good in [
            json!({"size": 1, "per": "Cluster"}),
            json!({"size": 1_048_576, "per": "Namespace", "mostEach": 1, "keepSeconds": 0}),
            json!({"size": 64, "per": "Label", "label": "topology/rack"}),
        ] {
            table.accepts_object(&pool(kind, &good));
        }
        for (bad, field, text) in [
            (
                json!({"per": "Cluster"}),
                "spec.slices.size",
                "Required value",
            ),
            (json!({"size": 64}), "spec.slices.per", "Required value"),
            (
                json!({"size": 48, "per": "Cluster"}),
                "spec.slices.size",
                "must be a power of two",
            ),
            (
                json!({"size": 2_097_152, "per": "Cluster"}),
                "spec.slices.size",
                "1048576",
            ),
            (
                json!({"size": 64, "per": "Node"}),
                "spec.slices.per",
                "Unsupported value",
            ),
            (
                json!({"size": 64, "per": "Label"}),
                "spec.slices.label",
                "must be set with per: Label",
            ),
            (
                json!({"size": 64, "per": "Cluster", "label": "a"}),
                "spec.slices.label",
                "unless per is Label",
            ),
            (
                json!({"size": 64, "per": "Label", "label": "-a"}),
                "spec.slices.label",
                "must be the name of a label",
            ),
            (
                json!({"size": 64, "per": "Cluster", "mostEach": 0}),
                "spec.slices.mostEach",
                "greater than or equal to 1",
            ),
            (
                json!({"size": 64, "per": "Cluster", "keepSeconds": -1}),
                "spec.slices.keepSeconds",
                "equal to 0",
            ),
        ] {
            table.rejects_object(&pool(kind, &bad), field, text);
        }
    }
    let slice = |name: &str, change: Value| {
        let owner = json!({"kind": "Cluster", "namespace": "team-a", "name": "alpha"});
        let mut spec = json!({"scope": "g.site-a", "block": "10.8.0.64/26", "owner": owner});
        json_patch::merge(&mut spec, &change);
        object("IPSlice", name, &spec)
    };
    let name = "g.site-a.10.8.0.64-26";
    table.accepts_object(&slice(name, json!({})));
    table.accepts_object(&slice(
        "h.0123abcd.10.8.0.64-26",
        json!({"assignedAt": "2026-01-01T00:00:00Z"}),
    ));
    table.accepts_object(&slice(
        "pp.a.b.c.x",
        json!({"scope": "pp.a.b.c", "block": "fd00::/62"}),
    ));
    table.rejects_object(
        &slice("g.site-b.10.8.0.64-26", json!({})),
        "metadata",
        "the name must be",
    );
    for (change, field, text) in [
        (
            json!({"block": "10.8.0.65/26"}),
            "spec.block",
            "without host bits",
        ),
        (
            json!({"block": "10.8.0.64"}),
            "spec.block",
            "without host bits",
        ),
        (
            json!({"owner": {"kind": "Rack"}}),
            "spec.owner.kind",
            "Unsupported value",
        ),
        (
            json!({"owner": {"namespace": null}}),
            "spec.owner.namespace",
            "must be set with kind: Cluster",
        ),
        (
            json!({"owner": {"kind": "Label"}}),
            "spec.owner.namespace",
            "unless kind is Cluster",
        ),
        (json!({"owner": null}), "spec.owner", "Required value"),
    ] {
        table.rejects_object(&slice(name, change), field, text);
    }
    table.rejects_object(
        &slice("n.lab.x", json!({"scope": "n.lab"})),
        "spec.owner",
        "a ManagementCluster owns blocks of networks",
    );
    for scope in ["p.a", "x.a.b", "site-a"] {
        table.rejects_object(
            &slice(&format!("{scope}.x"), json!({"scope": scope})),
            "spec.scope",
            "must name a pool",
        );
    }
    table.done();
    immutable_fields(
        &plane,
        &slice(name, json!({"assignedAt": "2026-01-01T00:00:00Z"})),
    );
}

fn immutable_fields(plane: &ControlPlane, slice: &Value) {
    let name = slice["metadata"]["name"].as_str().expect("a name");
    with_file(plane, &["create"], slice).unwrap_or_else(|error| panic!("{error}"));
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
    let mut wanted = pool(GLOBAL_ADDRESSES, &json!({"size": 64, "per": "Cluster"}));
    wanted["metadata"]["name"] = json!("sized");
    with_file(plane, &["create"], &wanted).unwrap_or_else(|error| panic!("{error}"));
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
