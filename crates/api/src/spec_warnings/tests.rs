use serde_json::{Value, json};

use super::*;
use crate::{InClusterKind, Pool, crds};

/// The warnings about a pool; an error if its specification is not valid.
fn warnings(kind: InClusterKind, spec: &Value) -> Result<Vec<String>, String> {
    let pool: Pool = serde_json::from_value(
        json!({"kind": kind.name(), "metadata": {"name": "p"}, "spec": spec}),
    )
    .unwrap();
    let usable = pool
        .spec
        .usable()
        .map_err(|problems| problems[0].to_string())?;
    Ok(pool_warnings(&pool.spec, &usable))
}

/// The paths of all lists of a schema whose entries have the length of addresses, networks and
/// ranges.
fn entry_fields(schema: &Value, path: &str, found: &mut Vec<String>) {
    let items = &schema["items"];
    if items["maxLength"] == capi_ipam_ip::MAX_ENTRY_LENGTH {
        found.push(path.to_owned());
    } else if items.is_object() {
        entry_fields(items, &format!("{path}[0]"), found);
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        entry_fields(field, &format!("{path}.{name}"), found);
    }
}

/// Sets the value at a path such as `spec.ranges[0].addresses`, where the lists exist.
fn set(spec: &mut Value, path: &str, value: Value) {
    let pointer = path
        .trim_start_matches("spec")
        .replace('.', "/")
        .replace("[0]", "/0");
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    spec.pointer_mut(parent).unwrap()[name] = value;
}

#[test]
fn host_bits_are_explained_in_every_field_of_every_kind() {
    let mut checked = 0;
    for kind in InClusterKind::ALL {
        let mut fields = Vec::new();
        entry_fields(&crds::stored_pool_spec(kind).unwrap(), "spec", &mut fields);
        assert_eq!(fields.len(), 4, "{kind}: {fields:?}");
        for field in fields {
            let mut spec = if kind.has_prefixes() {
                json!({"prefixes": ["10.0.0.0/24"], "allocationPrefixLength": 28,
                       "ranges": [{"prefixes": ["10.0.2.0/24"]}]})
            } else {
                json!({"addresses": ["10.0.0.0/24"], "prefix": 24, "ranges": [{"addresses": ["10.0.2.0/24"], "prefix": 24}]})
            };
            let third = if field.contains("ranges") { 2 } else { 0 };
            set(
                &mut spec,
                &field,
                json!([
                    format!("10.0.{third}.64/28"),
                    format!("10.0.{third}.200/28")
                ]),
            );
            let expected = format!(
                "{field}[1]: 10.0.{third}.200/28 means 10.0.{third}.192/28 (16 addresses, \
                 10.0.{third}.192-10.0.{third}.207)"
            );
            match warnings(kind, &spec) {
                Ok(warnings) => assert!(
                    warnings.contains(&expected),
                    "{kind}: {field}: {warnings:?}"
                ),
                // Prefixes to allocate must be aligned.
                Err(problem) => {
                    assert!(problem.contains("has host bits set"), "{kind}: {problem}");
                    assert!(
                        kind.has_prefixes()
                            && field.ends_with("refixes")
                            && !field.contains("xcluded"),
                        "{field}"
                    );
                }
            }
            checked += 1;
        }
    }
    assert_eq!(checked, 16);
    let network = IPNetworkSpec {
        excluded: vec!["fd00::5/64".to_owned()],
        ..IPNetworkSpec::default()
    };
    let expected = "spec.excluded[0]: fd00::5/64 means fd00::/64 (18446744073709551616 addresses, \
                    fd00::-fd00::ffff:ffff:ffff:ffff)";
    assert_eq!(network_warnings(&network), [expected]);
}

#[test]
fn aligned_networks_and_ranges_need_no_explanation() {
    for text in [
        "10.0.0.0/24",
        "10.0.0.5",
        "10.0.0.5-10.0.0.9",
        "10.0.0.5/32",
        "x/24",
        "10.0.0.5/33",
    ] {
        assert_eq!(host_bits_warning("spec.addresses[0]", text), None, "{text}");
    }
}
