//! Validation by the CRDs when an object is updated: immutable fields, and objects that are older
//! than the rules.

use serde_json::Map;
use support::prelude::*;

use super::{COMMITTED, ControlPlane, DEFINITIONS, Options, object, wait_until, with_file};

/// A merge patch of an object in `default`.
fn patch(
    plane: &ControlPlane,
    kind: &str,
    name: &str,
    more: &[&str],
    patch: &Value,
) -> Result<String, String> {
    let patch = format!("--patch={patch}");
    plane.try_kubectl(
        &[
            &[
                "patch",
                kind,
                name,
                "--namespace=default",
                "--type=merge",
                &patch,
            ],
            more,
        ]
        .concat(),
    )
}

fn make(plane: &ControlPlane, kind: &str, name: &str, spec: &Value) {
    with_file(plane, &["create"], &object(kind, name, spec))
        .unwrap_or_else(|error| panic!("{error}"));
}

fn refused(answer: &Result<String, String>, field: &str, text: &str) {
    let output = answer.as_ref().expect_err("the request is rejected");
    let reported = output
        .lines()
        .any(|line| line.contains(&format!("{field}: ")) && line.contains(text));
    assert!(reported, "{field}: {text} is not in: {output}");
}

#[test]
fn immutable_fields_cannot_be_changed() {
    let plane = ControlPlane::start(Options::default());
    let pools = [
        (
            "InClusterIPPool",
            json!({"addresses": ["10.0.0.1"], "prefix": 24}),
        ),
        (
            "GlobalInClusterIPPool",
            json!({"addresses": ["10.0.0.1"], "prefix": 24}),
        ),
        ("InClusterPrefixPool", json!({"prefixes": ["fd00::/48"]})),
        (
            "GlobalInClusterPrefixPool",
            json!({"prefixes": ["fd00::/48"], "allocationPrefixLength": 56}),
        ),
    ];
    for (kind, mut spec) in pools {
        let change = |name: &str, field: &str, value: Value| {
            patch(&plane, kind, name, &[], &json!({"spec": {field: value}}))
        };
        make(&plane, kind, "none", &spec);
        for network in [json!("lab"), json!("other"), json!(""), Value::Null] {
            change("none", "network", network).expect("a pool can join and leave networks");
        }
        change(
            "none",
            "gateway",
            json!(if kind.contains("Prefix") {
                "fd00::1"
            } else {
                "10.0.0.2"
            }),
        )
        .expect("it may");

        spec["network"] = json!("lab");
        make(&plane, kind, "lab", &spec);
        refused(
            &patch(&plane, kind, "lab", &[], &json!({"spec": null})),
            "spec",
            "Required value: spec is required",
        );
        if kind.contains("Prefix") {
            refused(
                &change("lab", "allocationPrefixLength", json!(60)),
                "spec.allocationPrefixLength",
                "immutable",
            );
            // The default is 64.
            let is_64 = !kind.contains("Global");
            for same in [json!(64), Value::Null] {
                let answer = change("lab", "allocationPrefixLength", same);
                if is_64 {
                    answer.expect("it is what it was");
                } else {
                    refused(&answer, "spec.allocationPrefixLength", "immutable");
                }
            }
        }
    }
    reservations_stay(&plane);
    block_lengths_stay(&plane);
    registries_stay(&plane);
}

/// The servers and the Secret of a registry can change, but not where the records are.
fn registries_stay(plane: &ControlPlane) {
    let kind = "IPRegistry";
    let change = |name: &str, spec: &Value| patch(plane, kind, name, &[], &json!({"spec": spec}));
    let nats = json!({"servers": ["nats://a"], "bucket": "ipam"});
    make(
        plane,
        kind,
        "site",
        &json!({"clusterID": "west", "nats": nats}),
    );
    make(
        plane,
        kind,
        "hub",
        &json!({"kubernetes": {"secretName": "hub"}}),
    );
    for (name, spec) in [
        (
            "site",
            json!({"nats": {"servers": ["nats://b"], "secretName": "nats"}}),
        ),
        ("hub", json!({"kubernetes": {"secretName": "other"}})),
    ] {
        change(name, &spec).expect("it is the same registry");
    }
    let other = "create another registry";
    for (name, spec, field) in [
        ("site", json!({"clusterID": "east"}), "spec.clusterID"),
        ("site", json!({"clusterID": null}), "spec.clusterID"),
        ("hub", json!({"clusterID": "east"}), "spec.clusterID"),
        ("site", json!({"nats": {"bucket": "other"}}), "spec.nats"),
        (
            "site",
            json!({"nats": null, "kubernetes": {"secretName": "hub"}}),
            "spec.nats",
        ),
        (
            "hub",
            json!({"kubernetes": null, "nats": nats}),
            "spec.nats",
        ),
    ] {
        refused(&change(name, &spec), field, other);
    }
}

fn block_lengths_stay(plane: &ControlPlane) {
    let kind = "IPNetwork";
    let change = |name: &str, spec: &Value| patch(plane, kind, name, &[], &json!({"spec": spec}));
    make(plane, kind, "later", &json!({}));
    change("later", &json!({"blockLengths": {}})).expect("a network needs no length");
    change("later", &json!({"blockLengths": {"ipv4": 32}})).expect("a length can be set later");
    change("later", &json!({"blockLengths": {"ipv6": 64}}))
        .expect("so can that of the other family");

    make(
        plane,
        kind,
        "lab",
        &json!({"blockLengths": {"ipv4": 32, "ipv6": 64}}),
    );
    change("lab", &json!({"blockLengths": {"ipv4": 32}, "pools": {}}))
        .expect("the lengths are the same");
    let immutable = "field is immutable once it is set";
    for (lengths, field) in [
        (json!({"ipv4": 31}), "ipv4"),
        (json!({"ipv4": null}), "ipv4"),
        (json!({"ipv6": 128}), "ipv6"),
        (json!({"ipv6": null}), "ipv6"),
    ] {
        let answer = change("lab", &json!({"blockLengths": lengths}));
        refused(&answer, &format!("spec.blockLengths.{field}"), immutable);
    }
    for removal in [json!({"blockLengths": null}), Value::Null] {
        refused(
            &change("lab", &removal),
            "spec.blockLengths.ipv4",
            immutable,
        );
        refused(
            &change("lab", &removal),
            "spec.blockLengths.ipv6",
            immutable,
        );
    }
}

fn reservations_stay(plane: &ControlPlane) {
    let kind = "IPReservation";
    let pool = json!({"kind": "InClusterIPPool", "namespace": "a", "name": "b"});
    let claim = json!({"namespace": "a", "name": "c"});
    let spec = json!({"scope": "p.a.b", "address": "10.0.0.4", "poolRef": pool, "prefixLength": 30, "claimRef": claim});
    let name = "p.a.b.10.0.0.4-30";
    make(plane, kind, name, &spec);
    let changes = [
        ("scope", json!("p.a.c")),
        ("address", json!("10.0.0.8")),
        ("poolRef", json!({"name": "c"})),
        ("prefixLength", Value::Null),
        ("prefixLength", json!(31)),
        ("claimRef", Value::Null),
        ("claimRef", json!({"uid": "1"})),
    ];
    for (field, value) in changes {
        let answer = patch(plane, kind, name, &[], &json!({"spec": {field: value}}));
        refused(&answer, &format!("spec.{field}"), "field is immutable");
    }
    patch(
        plane,
        kind,
        name,
        &[],
        &json!({"spec": {"releasedAt": "2026-01-01T00:00:00Z"}}),
    )
    .expect("it may be released");
    // A released reservation can be taken over, by a claim with a uid and only then.
    let claim = json!({"namespace": "a", "name": "d", "uid": "1"});
    let promise = json!({"namespace": "a", "name": "d", "uid": null});
    for (spec, is_allowed) in [
        (json!({"claimRef": claim}), false),
        (json!({"claimRef": promise, "releasedAt": null}), false),
        (
            json!({"claimRef": claim, "releasedAt": null, "address": "10.0.0.8"}),
            false,
        ),
        (
            json!({"claimRef": claim, "releasedAt": null, "poolRef": {"name": "e"}}),
            true,
        ),
    ] {
        let answer = patch(plane, kind, name, &[], &json!({"spec": spec}));
        assert_eq!(answer.is_ok(), is_allowed, "{spec}: {answer:?}");
    }
    // A later claim of the same name takes over what is not released: nothing but the uid changes.
    for claim in [
        json!({"uid": null}),
        json!({"name": "e", "uid": "2"}),
        json!({"namespace": "b", "uid": "2"}),
        json!({"cluster": "prod", "uid": "2"}),
        Value::Null,
    ] {
        let answer = patch(
            plane,
            kind,
            name,
            &[],
            &json!({"spec": {"claimRef": claim}}),
        );
        refused(&answer, "spec.claimRef", "field is immutable");
    }
    let (claim, released) = (json!({"uid": "2"}), "2026-01-01T00:00:00Z");
    for (spec, field) in [
        (
            json!({"claimRef": claim, "releasedAt": released}),
            "spec.claimRef",
        ),
        (
            json!({"claimRef": claim, "poolRef": {"name": "f"}}),
            "spec.poolRef",
        ),
    ] {
        refused(
            &patch(plane, kind, name, &[], &json!({"spec": spec})),
            field,
            "field is immutable",
        );
    }
    patch(
        plane,
        kind,
        name,
        &[],
        &json!({"spec": {"claimRef": claim}}),
    )
    .expect("it may be taken over");
}

/// An object that is older than the rules, and the expected result of an update.
struct Old {
    kind: &'static str,
    spec: Value,
    /// A change of another field of the spec, which is accepted.
    change: Value,
}

fn old_objects() -> Vec<Old> {
    let pool = |spec: Value| Old {
        kind: "InClusterIPPool",
        spec,
        change: json!({"allocateReservedIPAddresses": true}),
    };
    let prefixes = |spec: Value| Old {
        kind: "InClusterPrefixPool",
        spec,
        change: json!({"gateway": "fd00::1"}),
    };
    let many: Vec<String> = (0..20_000)
        .map(|number| format!("10.0.{}.{}", number / 256, number % 256))
        .collect();
    let lengthy = "10.0.0.1-10.0.0.2".repeat(10);
    vec![
        // A rule of one field or entry is not evaluated when another one changes.
        pool(json!({"addresses": ["web", "10.0.0.1", "-", ""], "prefix": 24})),
        pool(json!({"addresses": ["10.0.0.9-10.0.0.1"], "prefix": 24})),
        pool(json!({"addresses": [], "prefix": 24})),
        pool(json!({"addresses": ["10.0.0.1", "fd00::1"], "prefix": 24})),
        pool(json!({"addresses": ["10.0.0.1"], "prefix": 24, "excludedAddresses": ["web"]})),
        pool(json!({"addresses": ["10.0.0.1"], "prefix": 24, "excludedAddresses": ["fd00::1"]})),
        pool(json!({"addresses": ["10.0.0.1"], "prefix": 24, "gateway": "web"})),
        pool(json!({"addresses": ["10.0.0.1"], "prefix": 24, "network": "A_b"})),
        pool(json!({"addresses": ["10.0.0.1", "10.0.1.1"], "prefix": 24})),
        pool(json!({"addresses": ["10.0.0.1"], "prefix": -1})),
        pool(json!({"addresses": many, "excludedAddresses": many, "prefix": 8})),
        pool(json!({"addresses": [lengthy], "prefix": 24})),
        // What compares fields is left to the webhooks.
        pool(json!({"addresses": ["10.0.0.1"], "prefix": 200})),
        pool(json!({"addresses": ["fd00::1"], "prefix": 64, "gateway": "10.0.0.1"})),
        pool(json!({"prefix": 24})),
        pool(json!({})),
        prefixes(
            json!({"prefixes": ["web", "fd00::1", "fd00::1/48"], "allocationPrefixLength": 64}),
        ),
        prefixes(json!({"prefixes": ["fd00::/72"], "excludedPrefixes": ["10.0.0.1"]})),
        prefixes(json!({"prefixes": ["fd00::/48"], "allocationPrefixLength": 0})),
        prefixes(json!({"prefixes": ["fd00::/48"], "allocationPrefixLength": 1000})),
        prefixes(json!({})),
    ]
}

#[test]
fn objects_older_than_the_rules_can_be_updated() {
    let plane = ControlPlane::start(Options::default());
    let reservation = json!({"scope": "p.a.b", "address": "web", "poolRef": {"kind": "InClusterIPPool", "name": "b"}});
    // The API server observes the change of each CRD separately.
    let bad = [
        object(
            "InClusterIPPool",
            "probe",
            &json!({"addresses": [], "prefix": 24}),
        ),
        object(
            "InClusterPrefixPool",
            "probe",
            &json!({"prefixes": ["web"]}),
        ),
        object("IPReservation", "probe", &reservation),
    ];
    let is_accepted =
        |object: &Value| with_file(&plane, &["create", "--dry-run=server"], object).is_ok();

    let without_rules: Vec<Value> = DEFINITIONS.iter().map(without_rules).collect();
    let without_rules = json!({"apiVersion": "v1", "kind": "List", "items": without_rules});
    let apply = ["apply", "--server-side", "--force-conflicts"];
    with_file(&plane, &apply, &without_rules).expect("definitions without rules are definitions");
    wait_until("the rules are removed", || bad.iter().all(is_accepted));
    let old = old_objects();
    for (number, Old { kind, spec, .. }) in old.iter().enumerate() {
        make(&plane, kind, &format!("old-{number}"), spec);
    }
    let mut without_spec = object("InClusterIPPool", "old-spec", &json!({}));
    without_spec
        .as_object_mut()
        .expect("an object")
        .remove("spec");
    with_file(&plane, &["create"], &without_spec).expect("the rules are removed");
    make(&plane, "IPReservation", "old-name", &reservation);

    plane.kubectl(&[&apply, &[&*format!("--filename={COMMITTED}")][..]].concat());
    wait_until("the rules are enforced", || !bad.iter().any(is_accepted));
    for (number, Old { kind, change, spec }) in old.iter().enumerate() {
        let name = format!("old-{number}");
        assert_serviceable(&plane, kind, &name);
        let output = patch(
            &plane,
            kind,
            &name,
            &["--dry-run=server"],
            &json!({"spec": change}),
        );
        output.unwrap_or_else(|error| panic!("{spec} cannot be changed: {error}"));
        // An invalid field has to be valid when it is changed.
        let (touched, field) = match *kind {
            "InClusterIPPool" => (
                json!({"addresses": ["10.0.0.1", "web"], "prefix": 24}),
                "spec.addresses[1]",
            ),
            _ => (
                json!({"prefixes": ["fd00::/48", "web"]}),
                "spec.prefixes[1]",
            ),
        };
        refused(
            &patch(
                &plane,
                kind,
                &name,
                &["--dry-run=server"],
                &json!({"spec": touched}),
            ),
            field,
            "\"web\": must be",
        );
        assert_deletable(&plane, kind, &name);
    }
    assert_serviceable(&plane, "InClusterIPPool", "old-spec");
    assert_deletable(&plane, "InClusterIPPool", "old-spec");
    patch(
        &plane,
        "IPReservation",
        "old-name",
        &[],
        &json!({"metadata": {"labels": {"a": "b"}}}),
    )
    .expect("a label");
}

/// Asserts that the provider can write finalizers and status of an object.
fn assert_serviceable(plane: &ControlPlane, kind: &str, name: &str) {
    let label_and_finalizer =
        json!({"labels": {"a": "b"}, "finalizers": ["ipam.cluster.x-k8s.io/ProtectPool"]});
    let answer = patch(
        plane,
        kind,
        name,
        &[],
        &json!({"metadata": label_and_finalizer}),
    );
    answer.unwrap_or_else(|error| panic!("{name}, metadata: {error}"));
    let condition = json!({
        "type": "Ready", "status": "False", "reason": "InvalidSpec", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let counts = json!({"total": 1, "free": 1, "used": 0, "outOfRange": 0});
    let status = json!({"status": {"conditions": [condition], "ipAddresses": counts}});
    let answer = patch(plane, kind, name, &["--subresource=status"], &status);
    answer.unwrap_or_else(|error| panic!("{name}, status: {error}"));
}

/// Asserts that an object can be deleted, which requires an update for the finalizer.
fn assert_deletable(plane: &ControlPlane, kind: &str, name: &str) {
    plane.kubectl(&["delete", kind, name, "--namespace=default", "--wait=false"]);
    let answer = patch(
        plane,
        kind,
        name,
        &[],
        &json!({"metadata": {"finalizers": null}}),
    );
    answer.unwrap_or_else(|error| panic!("{name}, finalizers: {error}"));
    let left = plane.kubectl(&[
        "get",
        kind,
        name,
        "--namespace=default",
        "--ignore-not-found",
    ]);
    assert_eq!(left, "", "{name} is still there");
}

/// A CRD that accepts any spec of the right types.
fn without_rules(definition: &Value) -> Value {
    const RULES: [&str; 9] = [
        "x-kubernetes-validations",
        "required",
        "minimum",
        "maximum",
        "minLength",
        "maxLength",
        "maxItems",
        "default",
        "pattern",
    ];
    match definition {
        Value::Object(fields) => {
            // A property may have the name of a rule.
            let is_schema = fields.get("type").is_some_and(Value::is_string);
            let kept = fields
                .iter()
                .filter(|(name, _)| !is_schema || !RULES.contains(&name.as_str()));
            let plain = |(name, value): (&String, &Value)| {
                let value = if name == "status" {
                    value.clone()
                } else {
                    without_rules(value)
                };
                (name.clone(), value)
            };
            Value::Object(kept.map(plain).collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(without_rules).collect(),
        other => other.clone(),
    }
}

/// The status of a pool in `default`, as the API server returns it.
fn status_of(plane: &ControlPlane, name: &str) -> Value {
    let pool = plane.kubectl(&[
        "get",
        "inclusterippools",
        name,
        "--namespace=default",
        "--output=json",
    ]);
    let pool: Value = serde_json::from_str(&pool).expect("it is an object");
    pool["status"].clone()
}

#[test]
fn only_a_missing_status_has_the_default() {
    let plane = ControlPlane::start(Options::default());
    let kind = "InClusterIPPool";
    let spec = json!({"addresses": ["10.0.0.1"], "prefix": 24});
    make(&plane, kind, "web", &spec);
    assert_eq!(status_of(&plane, "web"), json!({"observedGeneration": -1}));
    // A provider that does not know the field writes the status, and somebody the specification.
    let counts = json!({"total": 1, "free": 1, "used": 0, "outOfRange": 0});
    let mut written = object(kind, "web", &spec);
    written["status"] = json!({"ipAddresses": counts});
    let replace = ["replace", "--subresource=status"];
    with_file(&plane, &replace, &written).expect("the status can be replaced");
    assert_eq!(status_of(&plane, "web"), written["status"]);
    let changed = json!({"spec": {"addresses": ["10.0.0.2"]}, "status": null});
    patch(&plane, kind, "web", &[], &changed).expect("the pool can be changed");
    assert_eq!(status_of(&plane, "web"), written["status"]);
}

#[test]
fn stored_specification_is_the_one_that_was_written() {
    let plane = ControlPlane::start(Options::default());
    let specs = [
        (
            "InClusterIPPool",
            json!({"addresses": ["10.0.0.1"], "prefix": 24}),
        ),
        ("InClusterPrefixPool", json!({"prefixes": ["fd00::/48"]})),
    ];
    for (kind, spec) in specs {
        make(&plane, kind, "web", &spec);
        let pool = plane.kubectl(&["get", kind, "web", "--namespace=default", "--output=json"]);
        let pool: Value = serde_json::from_str(&pool).expect("it is an object");
        assert_eq!(pool["spec"], spec);
    }
}

#[test]
fn columns_show_the_first_entry_of_a_pool() {
    let plane = ControlPlane::start(Options::default());
    let range = |addresses: &str| json!({"addresses": [addresses], "prefix": 24});
    let ranges = json!([range("10.0.1.0/24"), range("10.0.2.0/24")]);
    let whole = ["10.0.0.10-10.0.0.99", "10.0.0.200"];
    let pools = [
        (
            "both",
            json!({"addresses": whole, "prefix": 24, "ranges": ranges}),
            "10.0.0.10-10.0.0.99",
        ),
        (
            "empty",
            json!({"addresses": [], "prefix": 24, "ranges": ranges}),
            "10.0.1.0/24",
        ),
        ("ranges", json!({"ranges": ranges}), "10.0.1.0/24"),
    ];
    for (name, spec, first) in pools {
        make(&plane, "InClusterIPPool", name, &spec);
        let row = plane.kubectl(&["get", "icipp", name, "--namespace=default", "--no-headers"]);
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(cells, [name, first]);
    }
    let nats = json!({"servers": ["nats://a"], "bucket": "blocks"});
    make(
        &plane,
        "IPRegistry",
        "site",
        &json!({"clusterID": "west", "nats": nats}),
    );
    let row = plane.kubectl(&["get", "ipregistries", "site", "--no-headers"]);
    assert!(row.contains("west"), "{row}");
}
