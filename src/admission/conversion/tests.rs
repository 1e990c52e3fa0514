use capi_ipam_api::names::CONVERSION_DATA_ANNOTATION as ANNOTATION;
use capi_ipam_api::{IPPoolSpec, IPPoolSpecV1Alpha1};
use capi_ipam_ip::PoolAddresses;
use serde_json::json;

use super::*;

mod laws;

const OLD: &str = "ipam.cluster.x-k8s.io/v1alpha1";
const NEW: &str = "ipam.cluster.x-k8s.io/v1alpha2";
const KIND: &str = "InClusterIPPool";

fn old(spec: &Value) -> Value {
    json!({ "apiVersion": OLD, "kind": KIND, "metadata": { "name": "p", "namespace": "n" }, "spec": spec })
}

fn new(spec: &Value) -> Value {
    json!({ "apiVersion": NEW, "kind": KIND, "metadata": { "name": "p", "namespace": "n" }, "spec": spec })
}

fn to_new(object: &Value) -> Value {
    convert(object.clone(), NEW).unwrap()
}

fn to_old(object: &Value) -> Value {
    convert(object.clone(), OLD).unwrap()
}

/// The parsed conversion-data annotation.
fn conversion_data(object: &Value) -> Value {
    let text = object["metadata"]["annotations"][ANNOTATION].as_str();
    text.map_or(Value::Null, |text| serde_json::from_str(text).unwrap())
}

/// The object with this text in the annotation.
fn with_annotation(mut object: Value, text: &str) -> Value {
    object["metadata"]["annotations"][ANNOTATION] = json!(text);
    object
}

fn without_annotation(mut object: Value) -> Value {
    object["metadata"]["annotations"]
        .as_object_mut()
        .unwrap()
        .remove(ANNOTATION);
    object
}

/// The problems that validation reports for the addresses of a `v1alpha2` spec; empty if they are
/// valid.
fn problems(spec: &Value) -> String {
    let spec: IPPoolSpec = serde_json::from_value(spec.clone()).unwrap();
    let pool = PoolAddresses {
        addresses: &spec.addresses,
        excluded: &spec.excluded_addresses,
        prefix: spec.prefix,
        gateway: spec.gateway.as_deref(),
        allocate_reserved: spec.allocate_reserved_ip_addresses,
        ..PoolAddresses::default()
    };
    let problems = pool.usable().err().unwrap_or_default();
    problems
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

// === objects of the Go provider ===

/// The pools with two versions in a list.
fn pools(text: &str) -> Vec<Value> {
    let list: Value = serde_json::from_str(text).unwrap();
    let is_converted = |item: &&Value| item["kind"].as_str().unwrap().ends_with("InClusterIPPool");
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(is_converted)
        .cloned()
        .collect()
}

#[test]
fn go_provider_pools_convert_identically_in_both_directions() {
    let stored = pools(include_str!("../../../tests/data/takeover/objects.json"));
    let shown = pools(include_str!(
        "../../../tests/data/takeover/pools-as-v1alpha1.json"
    ));
    assert_eq!((stored.len(), shown.len()), (6, 6));
    let mut with_data = Vec::new();
    for (stored, shown) in stored.iter().zip(&shown) {
        let view = to_old(stored);
        if conversion_data(&view).is_null() {
            assert_eq!(view, *shown);
        } else {
            assert_eq!(without_annotation(view.clone()), *shown);
            with_data.push((
                shown["metadata"]["name"].as_str().unwrap(),
                conversion_data(&view),
            ));
        }
        assert_eq!(to_new(&view), *stored);
        serde_json::from_value::<IPPoolSpecV1Alpha1>(view["spec"].clone()).unwrap();
    }
    let empty =
        json!({ "apiVersion": NEW, "kind": "GlobalInClusterIPPool", "spec": {}, "status": {} });
    let v4 = json!({ "excludedAddresses": ["10.0.0.16/28", "10.0.0.242"] });
    let v6 = json!({ "addressReuseGracePeriodSeconds": 60, "allocateReservedIPAddresses": true });
    let of = |spec| json!({ "apiVersion": NEW, "kind": KIND, "spec": spec, "status": {} });
    let mut v6 = of(v6);
    v6["metadata"] = json!({ "annotations": {} });
    // The last one was created in v1alpha2 and has no v1alpha2 fields; created in v1alpha1 it would
    // have an annotation.
    assert_eq!(with_data, [("v4", of(v4)), ("v6", v6), ("shared", empty)]);
}

#[test]
fn annotation_has_the_format_of_the_go_provider() {
    let pool = old(
        &json!({ "start": "10.11.0.10", "end": "10.11.0.20", "prefix": 24, "gateway": "10.11.0.1" }),
    );
    let text = r#"{"apiVersion":"ipam.cluster.x-k8s.io/v1alpha1","kind":"InClusterIPPool","spec":{"end":"10.11.0.20","gateway":"10.11.0.1","prefix":24,"start":"10.11.0.10"},"status":{}}"#;
    assert_eq!(to_new(&pool)["metadata"]["annotations"][ANNOTATION], text);
}

// === v1alpha1 to v1alpha2 ===

#[test]
fn subnet_and_its_ends_become_an_entry() {
    let cases = [
        (
            json!({ "addresses": ["10.0.0.7"], "prefix": 24 }),
            json!(["10.0.0.7"]),
            24,
        ),
        (
            json!({ "subnet": "10.0.0.0/24" }),
            json!(["10.0.0.1-10.0.0.254"]),
            24,
        ),
        (
            json!({ "subnet": "10.0.0.0/24", "prefix": 0 }),
            json!(["10.0.0.1-10.0.0.254"]),
            24,
        ),
        (
            json!({ "subnet": "10.0.0.0/24", "prefix": 16 }),
            json!(["10.0.0.1-10.0.0.254"]),
            16,
        ),
        (
            json!({ "subnet": "10.0.0.9/24" }),
            json!(["10.0.0.1-10.0.0.254"]),
            24,
        ),
        (
            json!({ "subnet": "10.0.0.0/24", "start": "10.0.0.9" }),
            json!(["10.0.0.9-10.0.0.254"]),
            24,
        ),
        (
            json!({ "subnet": "10.0.0.0/24", "end": "10.0.0.9" }),
            json!(["10.0.0.1-10.0.0.9"]),
            24,
        ),
        (
            json!({ "subnet": "", "start": "10.0.0.4", "end": "10.0.0.9" }),
            json!(["10.0.0.4-10.0.0.9"]),
            0,
        ),
        (
            json!({ "addresses": ["10.0.0.2"], "start": "10.0.0.4", "end": "10.0.0.9", "prefix": 24 }),
            json!(["10.0.0.2", "10.0.0.4-10.0.0.9"]),
            24,
        ),
        (
            json!({ "subnet": "10.0.0.0/30" }),
            json!(["10.0.0.1-10.0.0.2"]),
            30,
        ),
        (
            json!({ "subnet": "fd00::/126" }),
            json!(["fd00::1-fd00::2"]),
            126,
        ),
        (
            json!({ "subnet": "0.0.0.0/0" }),
            json!(["0.0.0.1-255.255.255.254"]),
            0,
        ),
        (
            json!({ "subnet": "::/0" }),
            json!(["::1-ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe"]),
            0,
        ),
    ];
    for (spec, addresses, prefix) in cases {
        let converted = to_new(&old(&spec));
        assert_eq!(
            converted["spec"],
            json!({ "addresses": addresses, "prefix": prefix }),
            "{spec}"
        );
        assert_eq!(problems(&converted["spec"]), "", "{spec}");
    }
}

#[test]
fn subnet_of_one_or_two_addresses_is_used_completely() {
    for (subnet, entry, prefix) in [
        ("10.0.0.4/31", "10.0.0.4-10.0.0.5", 31),
        ("10.0.0.4/32", "10.0.0.4-10.0.0.4", 32),
        ("fd00::4/127", "fd00::4-fd00::5", 127),
        ("fd00::4/128", "fd00::4-fd00::4", 128),
        ("255.255.255.255/32", "255.255.255.255-255.255.255.255", 32),
    ] {
        let converted = to_new(&old(&json!({ "subnet": subnet })));
        assert_eq!(
            converted["spec"],
            json!({ "addresses": [entry], "prefix": prefix })
        );
        assert_eq!(problems(&converted["spec"]), "");
    }
}

#[test]
fn invalid_values_are_reported_by_validation() {
    for (spec, part) in [
        (json!({ "subnet": "nonsense" }), r#""nonsense""#),
        (json!({ "subnet": "10.0.0.0/33" }), r#""10.0.0.0/33""#),
        (json!({ "subnet": "10.0.0.7" }), r#""10.0.0.7/""#),
        (
            json!({ "subnet": "10.0.0.1-10.0.0.9" }),
            r#""10.0.0.1-10.0.0.9/""#,
        ),
        (
            json!({ "subnet": "nonsense", "start": "10.0.0.1", "end": "10.0.0.9" }),
            r#""nonsense""#,
        ),
        (
            json!({ "subnet": "10.0.0.0/24", "start": "here" }),
            r#""here-10.0.0.254""#,
        ),
        (
            json!({ "start": "10.0.0.1", "end": "there" }),
            r#""10.0.0.1-there""#,
        ),
        (json!({ "start": "10.0.0.1" }), r#""10.0.0.1-""#),
        (
            json!({ "end": "10.0.0.9", "addresses": ["10.0.0.1"] }),
            r#""-10.0.0.9""#,
        ),
        (
            json!({ "start": "10.0.0.9", "end": "10.0.0.1" }),
            r#""10.0.0.9-10.0.0.1""#,
        ),
        (
            json!({ "start": "10.0.0.1", "end": "fd00::1" }),
            r#""10.0.0.1-fd00::1""#,
        ),
        (
            json!({ "subnet": "10.0.0.0/24", "prefix": -3 }),
            "spec.prefix: -3",
        ),
        (json!({}), "spec.addresses: "),
    ] {
        let problems = problems(&to_new(&old(&spec))["spec"]);
        assert!(problems.contains(part), "{spec}: {problems}");
    }
}

#[test]
fn missing_spec_is_converted() {
    let expected = json!({ "addresses": [], "prefix": 0 });
    for spec in [
        Value::Null,
        json!({}),
        json!({ "addresses": null, "prefix": null }),
    ] {
        assert_eq!(to_new(&old(&spec))["spec"], expected);
    }
    let bare = json!({ "apiVersion": OLD, "kind": KIND });
    assert_eq!(to_new(&bare)["spec"], expected);
    let bare = json!({ "apiVersion": NEW, "kind": KIND });
    assert_eq!(to_old(&bare)["spec"], json!({}));
}

#[test]
fn v1alpha1_spec_is_restored_with_subnet_fields() {
    let pool = old(&json!({ "subnet": "10.0.0.0/24", "gateway": "10.0.0.1" }));
    let back = to_old(&to_new(&pool));
    let spec = json!({
        "subnet": "10.0.0.0/24", "start": "10.0.0.1", "end": "10.0.0.254", "prefix": 24, "gateway": "10.0.0.1",
    });
    assert_eq!(back["spec"], spec);
    assert_eq!(
        back["metadata"],
        json!({ "name": "p", "namespace": "n", "annotations": {} })
    );
}

// === v1alpha2 to v1alpha1 ===

#[test]
fn change_in_v1alpha2_is_not_undone() {
    for kind in KINDS {
        let mut pool = to_new(&old(
            &json!({ "subnet": "10.0.0.0/24", "gateway": "10.0.0.1" }),
        ));
        pool["kind"] = json!(kind);
        let text = pool["metadata"]["annotations"][ANNOTATION]
            .as_str()
            .unwrap()
            .replace(KIND, kind);
        let pool = with_annotation(pool, &text);
        assert_eq!(to_old(&pool)["spec"]["subnet"], "10.0.0.0/24");
        for (field, value) in [
            ("addresses", json!(["10.0.0.9"])),
            ("prefix", json!(23)),
            ("gateway", json!("10.0.0.254")),
        ] {
            let mut changed = pool.clone();
            changed["spec"][field] = value;
            let view = to_old(&changed);
            assert_eq!(view["spec"], changed["spec"], "{kind} {field}");
            assert_eq!(to_new(&view), changed, "{kind} {field}");
        }
        let mut changed = pool.clone();
        changed["spec"].as_object_mut().unwrap().remove("gateway");
        assert_eq!(to_old(&changed)["spec"], changed["spec"]);
    }
}

#[test]
fn v1alpha2_fields_survive_changes_in_v1alpha1() {
    let mut pool = new(&json!({
        "addresses": ["10.0.0.0/24"], "prefix": 24, "excludedAddresses": ["10.0.0.9"], "network": "lab",
        "subnet": { "of": "tomorrow" }, "reclaim": { "terminating": { "afterSeconds": 60 }, "verify": "Report" },
    }));
    pool["status"] = json!({ "ipAddresses": { "total": 1 }, "conditions": [{ "type": "Ready" }] });
    let view = to_old(&pool);
    assert_eq!(
        view["spec"],
        json!({ "addresses": ["10.0.0.0/24"], "prefix": 24 })
    );
    assert_eq!(view["status"], pool["status"]);
    assert_eq!(to_new(&view), pool);

    let mut changed = view.clone();
    changed["spec"] = json!({ "addresses": ["10.0.0.0/25"], "prefix": 25, "gateway": "10.0.0.1" });
    changed["metadata"]["labels"] = json!({ "a": "b" });
    changed["metadata"]["annotations"]["c"] = json!("d");
    let back = to_new(&changed);
    assert_eq!(
        back["spec"],
        json!({
            "addresses": ["10.0.0.0/25"], "prefix": 25, "gateway": "10.0.0.1", "excludedAddresses": ["10.0.0.9"],
            "network": "lab", "subnet": { "of": "tomorrow" },
            "reclaim": { "terminating": { "afterSeconds": 60 }, "verify": "Report" },
        })
    );
    assert_eq!(back["status"], pool["status"]);
    // Every field of the v1alpha1 spec is also in v1alpha2, so no annotation keeps one.
    assert_eq!(
        back["metadata"],
        json!({ "name": "p", "namespace": "n", "labels": { "a": "b" }, "annotations": { "c": "d" } })
    );

    let mut with_subnet = view.clone();
    with_subnet["spec"] = json!({ "subnet": "10.0.1.0/24" });
    let back = to_new(&with_subnet);
    assert_eq!(back["spec"]["addresses"], json!(["10.0.1.1-10.0.1.254"]));
    assert_eq!(back["spec"]["excludedAddresses"], json!(["10.0.0.9"]));
    assert_eq!(back["spec"]["subnet"], json!({ "of": "tomorrow" }));
    assert_eq!(conversion_data(&back)["spec"]["subnet"], "10.0.1.0/24");
    assert_eq!(to_old(&back)["spec"]["subnet"], "10.0.1.0/24");
}

#[test]
fn annotations_survive_a_round_trip() {
    let spec = json!({ "addresses": ["10.0.0.0/24"], "prefix": 24 });
    let unusual = r#"{"kind":"InClusterIPPool", "apiVersion":"ipam.cluster.x-k8s.io/v1alpha1",
        "spec":{"addresses":["10.0.0.0/24"],"prefix":24},"status":{"ipAddresses":{"total":1}}}"#;
    let stale = unusual.replace("/24", "/25");
    let others = [None, Some(json!({})), Some(json!({ "a": "b" }))];
    for annotations in others
        .into_iter()
        .chain([unusual, &stale].map(|text| Some(json!({ ANNOTATION: text }))))
    {
        let mut pool = new(&spec);
        if let Some(annotations) = annotations {
            pool["metadata"]["annotations"] = annotations;
        }
        assert_eq!(to_new(&to_old(&pool)), pool);
        pool["spec"]["network"] = json!("lab");
        assert_eq!(to_new(&to_old(&pool)), pool);
    }
}

#[test]
fn invalid_annotation_is_ignored_and_removed() {
    let spec = json!({ "addresses": ["10.0.0.0/24"], "prefix": 24 });
    let of = |kind: &str, version: &str, rest: &str| {
        format!(r#"{{"apiVersion":"{version}","kind":"{kind}"{rest}}}"#)
    };
    for text in [
        String::new(),
        "{".to_owned(),
        "[]".to_owned(),
        "{}".to_owned(),
        of(KIND, "v1alpha1", ""),
        of("GlobalInClusterIPPool", OLD, ""),
        of("GlobalInClusterIPPool", NEW, ""),
        of(KIND, OLD, r#","spec":7"#),
        of(KIND, NEW, r#","spec":7"#),
    ] {
        let view = to_old(&with_annotation(new(&spec), &text));
        assert_eq!(view["spec"], spec, "{text}");
        let mut clean = new(&spec);
        clean["metadata"]["annotations"] = json!({});
        assert_eq!(to_new(&view), clean, "{text}");
        let fresh = to_new(&with_annotation(old(&spec), &text));
        assert_eq!(
            conversion_data(&fresh),
            json!({ "apiVersion": OLD, "kind": KIND, "spec": spec, "status": {} }),
            "{text}"
        );
    }
    // An annotation with data of the same version is ignored.
    let (own_old, own_new) = (
        of(KIND, OLD, r#","spec":{"subnet":"10.9.0.0/24"}"#),
        of(KIND, NEW, ""),
    );
    assert_eq!(to_new(&with_annotation(old(&spec), &own_old))["spec"], spec);
    assert_eq!(
        conversion_data(&to_old(&with_annotation(new(&spec), &own_new)))["spec"],
        json!({})
    );
    let mut number = new(&spec);
    number["metadata"]["annotations"] = json!({ ANNOTATION: 7 });
    assert_eq!(
        to_new(&to_old(&number))["metadata"]["annotations"],
        json!({})
    );
    // An invalid original annotation is not restored either.
    let nested = json!({ "annotations": { ANNOTATION: "garbage" } }).to_string();
    let text = of(KIND, NEW, &format!(r#","metadata":{nested}"#));
    assert_eq!(
        to_new(&with_annotation(old(&spec), &text))["metadata"]["annotations"],
        json!({})
    );
}

#[test]
fn annotation_adds_no_status() {
    let data = json!({
        "apiVersion": NEW, "kind": KIND, "spec": { "network": "lab" },
        "status": { "observedGeneration": 1, "network": { "name": "lab", "phase": "Member" } },
    });
    let pool = with_annotation(
        old(&json!({ "addresses": ["10.0.0.5"], "prefix": 24 })),
        &data.to_string(),
    );
    let converted = to_new(&pool);
    assert_eq!(converted["spec"]["network"], "lab");
    assert_eq!(converted.get("status"), None);
}

// === errors and limits ===

#[test]
fn v1alpha2_field_of_another_type_is_an_error() {
    for (spec, reason) in [
        (
            json!({ "network": 5 }),
            "invalid type: integer `5`, expected a string",
        ),
        (
            json!({ "draining": "x" }),
            "invalid type: string \"x\", expected a sequence",
        ),
        (
            json!({ "excludedAddresses": null }),
            "invalid type: null, expected a sequence",
        ),
    ] {
        // What is stored in the other version can be read.
        let mut stored = new(&json!({ "addresses": ["10.0.0.5"], "prefix": 24 }));
        stored["spec"]
            .as_object_mut()
            .unwrap()
            .extend(spec.as_object().unwrap().clone());
        let error = convert(to_old(&stored), NEW).unwrap_err().to_string();
        assert!(
            error.starts_with("the annotation cluster.x-k8s.io/conversion-data of n/p has"),
            "{error}"
        );
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn object_in_the_desired_version_is_returned_unchanged() {
    for object in [old(&json!("odd")), new(&json!({ "a": 1 }))] {
        let object = with_annotation(object, "garbage");
        let version = object["apiVersion"].as_str().unwrap();
        assert_eq!(convert(object.clone(), version).unwrap(), object);
    }
}

#[test]
fn unknown_kinds_and_versions_are_errors() {
    let fails = |object: Value, version: &str| convert(object, version).unwrap_err().to_string();
    assert_eq!(
        fails(json!([]), NEW),
        "the value to convert is not an object"
    );
    let mut other = old(&json!({}));
    other["kind"] = json!("InClusterPrefixPool");
    assert_eq!(
        fails(other, NEW),
        "n/p is of kind \"InClusterPrefixPool\"; only InClusterIPPool and GlobalInClusterIPPool can be converted"
    );
    assert!(fails(json!({}), NEW).starts_with("an object without a name is of kind \"\""));
    for version in [
        "v1alpha1",
        "ipam.cluster.x-k8s.io/v1",
        "example.com/v1alpha1",
        "",
    ] {
        let mut other = old(&json!({}));
        other["apiVersion"] = json!(version);
        assert!(fails(other, NEW).starts_with(&format!("n/p is of version {version:?}")));
        assert!(
            fails(old(&json!({})), version)
                .starts_with(&format!("cannot convert n/p to version {version:?}"))
        );
    }
}

#[test]
fn annotations_stay_within_the_limit_of_the_api_server() {
    let bytes = |object: &Value| {
        let annotations = object["metadata"]["annotations"]
            .as_object()
            .cloned()
            .unwrap_or_default();
        annotations
            .iter()
            .map(|(name, value)| name.len() + value.as_str().unwrap().len())
            .sum::<usize>()
    };
    let many: Vec<_> = (0..30_000)
        .map(|number| format!("10.0.{}.{}", number / 250, number % 250))
        .collect();

    // A v1alpha1 spec that is too large for the annotation: the addresses are converted.
    let pool = to_new(&old(
        &json!({ "addresses": many, "start": "10.1.0.1", "end": "10.1.0.9", "prefix": 8 }),
    ));
    assert_eq!(pool["spec"]["addresses"].as_array().unwrap().len(), 30_001);
    assert_eq!(bytes(&pool), 0);
    assert_eq!(to_old(&pool)["spec"], pool["spec"]);
    assert_eq!(to_new(&to_old(&pool)), pool);

    // Exclusions that are too large for the annotation: the pool can be read, and a write does not
    // remove them.
    let pool = new(&json!({ "addresses": ["10.0.0.0/8"], "prefix": 8, "excludedAddresses": many }));
    let view = to_old(&pool);
    assert_eq!(
        view["spec"],
        json!({ "addresses": ["10.0.0.0/8"], "prefix": 8 })
    );
    assert_eq!(bytes(&view), 0);
    let too_large = Err(ConversionError::TooLarge {
        object: "n/p".to_owned(),
    });
    assert_eq!(convert(view, NEW), too_large);
    // As an earlier release marked it.
    let data =
        json!({ "apiVersion": NEW, "kind": KIND, "spec": {}, "status": {}, "leftOut": true });
    let marked = with_annotation(old(&pool["spec"]), &data.to_string());
    assert_eq!(convert(marked, NEW), too_large);

    // Other annotations use the whole limit.
    let mut pool = new(&json!({ "addresses": ["10.0.0.0/8"], "prefix": 8, "network": "lab" }));
    pool["metadata"]["annotations"] = json!({ "a": "b".repeat(256 * 1024 - 1) });
    let view = to_old(&pool);
    assert_eq!(bytes(&view), 256 * 1024);
    assert_eq!(convert(view, NEW), too_large);
    let mut pool = new(&json!({ "addresses": ["10.0.0.0/8"], "prefix": 8 }));
    pool["metadata"]["annotations"] = json!({ "a": "b".repeat(256 * 1024 - 1) });
    assert_eq!(bytes(&to_old(&pool)), 256 * 1024);
    assert_eq!(to_new(&to_old(&pool)), pool);
}

// === pools with ranges ===

#[test]
fn pool_with_ranges_only_survives_a_round_trip() {
    let ranges = json!([{"addresses": ["10.1.0.0/24"], "prefix": 24, "gateway": "10.1.0.1"}]);
    for more in [
        json!({}),
        json!({"addresses": []}),
        json!({"prefix": 0}),
        json!({"addresses": ["10.0.0.1"]}),
    ] {
        let mut spec = json!({"ranges": ranges, "draining": ["10.1.0.9"], "addressMetadata": {"labels": {"a": "b"}}});
        json_patch::merge(&mut spec, &more);
        let object = new(&spec);
        assert_eq!(to_new(&to_old(&object)), object, "{more}");
    }
}
