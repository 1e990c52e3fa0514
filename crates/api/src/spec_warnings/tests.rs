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

fn of_addresses(spec: &Value) -> Vec<String> {
    let mut whole = json!({"addresses": ["10.0.0.0/24"], "prefix": 24});
    json_patch::merge(&mut whole, spec);
    warnings(InClusterKind::GlobalIPPool, &whole).unwrap()
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

#[test]
fn addresses_that_hosts_do_not_accept_are_named() {
    let whole = |spec: &Value| warnings(InClusterKind::IPPool, spec).unwrap();
    for (entry, what) in [
        ("0.0.0.0/24", "addresses of this network (0.0.0.0/8)"),
        ("127.0.0.1", "loopback addresses (127.0.0.0/8)"),
        ("239.1.2.0/24", "multicast addresses (224.0.0.0/4)"),
        ("250.0.0.0/24", "reserved addresses (240.0.0.0/4)"),
        (
            "::1",
            "the unspecified address and the loopback address (::/127)",
        ),
        ("ff02::/64", "multicast addresses (ff00::/8)"),
    ] {
        let expected = format!(
            "spec: the pool allocates {what}, which hosts do not accept as their own; add them to \
             spec.excludedAddresses"
        );
        assert_eq!(
            whole(&json!({"addresses": [entry], "prefix": 24})),
            [expected],
            "{entry}"
        );
    }
    let excluded = json!({"addresses": ["0.0.0.0/0"], "prefix": 0,
                          "excludedAddresses": ["0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/3"]});
    assert_eq!(whole(&excluded), [""; 0]);
}

#[test]
fn gateways_that_machines_cannot_use_are_named() {
    let gateway = |gateway: &str| of_addresses(&json!({ "gateway": gateway }));
    assert_eq!(gateway("10.0.0.1"), [""; 0]);
    assert_eq!(
        gateway("10.0.9.1"),
        ["spec.gateway: 10.0.9.1 is outside of the subnet 10.0.0.0/24"]
    );
    assert_eq!(
        gateway("10.0.0.0"),
        ["spec.gateway: 10.0.0.0 is the network address of the subnet 10.0.0.0/24"]
    );
    assert_eq!(
        gateway("10.0.0.255"),
        ["spec.gateway: 10.0.0.255 is the broadcast address of the subnet 10.0.0.0/24"]
    );
    let empty = "is empty: IPAddresses have no gateway; remove the field if this is intended";
    assert_eq!(gateway(""), [format!("spec.gateway: {empty}")]);
    let pair = json!({"addresses": ["10.0.0.0/31"], "prefix": 31, "gateway": "10.0.0.0"});
    assert_eq!(of_addresses(&pair), [""; 0]);
    let range =
        json!({"ranges": [{"addresses": ["10.0.1.0/24"], "prefix": 24, "gateway": "10.0.1.255"}]});
    let expected =
        "spec.ranges[0].gateway: 10.0.1.255 is the broadcast address of the subnet 10.0.1.0/24";
    assert_eq!(of_addresses(&range), [expected]);
}

#[test]
fn parts_without_a_usable_address_are_named() {
    let excluded = of_addresses(
        &json!({"addresses": ["10.0.0.5-10.0.0.9"], "excludedAddresses": ["10.0.0.0/28"]}),
    );
    assert_eq!(
        excluded,
        ["spec.addresses: nothing can be allocated: all is excluded or reserved"]
    );
    let reserved =
        of_addresses(&json!({"addresses": ["10.0.0.0", "10.0.0.1"], "gateway": "10.0.0.1"}));
    assert_eq!(reserved.len(), 1, "{reserved:?}");
    let ranges = json!({"ranges": [{"addresses": ["10.0.1.0"], "prefix": 24}, {"addresses": ["10.0.2.1"], "prefix": 24}]});
    let expected =
        "spec.ranges[0].addresses: nothing can be allocated: all is excluded or reserved";
    assert_eq!(of_addresses(&ranges), [expected]);
    let prefixes = json!({"prefixes": ["fd00::/64"], "excludedPrefixes": ["fd00::5"]});
    let expected = "spec.prefixes: nothing can be allocated: all is excluded or reserved";
    assert_eq!(
        warnings(InClusterKind::PrefixPool, &prefixes).unwrap(),
        [expected]
    );
}

#[test]
fn selectors_of_all_and_of_nothing_are_named() {
    let selector = |selector: Value| {
        of_addresses(&json!({"allowedNamespaces": {"from": "Selector", "selector": selector}}))
    };
    let all = "spec.allowedNamespaces.selector: is empty and selects all namespaces; write from: All if this is intended";
    assert_eq!(selector(json!({})), [all]);
    assert_eq!(
        selector(json!({"matchLabels": {}, "matchExpressions": []})),
        [all]
    );
    let expression = |operator: &str, values: &[&str]| json!({"key": "a", "operator": operator, "values": values});
    let nothing = "spec.allowedNamespaces.selector: selects no namespace: its requirements contradict each other";
    for contradictory in [
        json!({"matchLabels": {"a": "b"}, "matchExpressions": [expression("NotIn", &["b", "c"])]}),
        json!({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}),
        json!({"matchExpressions": [expression("In", &["b"]), expression("In", &["c"])]}),
    ] {
        assert_eq!(
            selector(contradictory.clone()),
            [nothing],
            "{contradictory}"
        );
    }
    for possible in [
        json!({"matchLabels": {"a": "b"}}),
        json!({"matchLabels": {"a": "b"}, "matchExpressions": [expression("In", &["b", "c"])]}),
        json!({"matchExpressions": [expression("NotIn", &["b"]), {"key": "a", "operator": "DoesNotExist"}]}),
    ] {
        assert_eq!(selector(possible.clone()), [""; 0], "{possible}");
    }
    let names = of_addresses(&json!({"allowedNamespaces": {"from": "Names"}}));
    let none = "spec.allowedNamespaces.names: is empty and allows no namespace; write from: None if this is intended";
    assert_eq!(names, [none]);
    assert_eq!(
        of_addresses(&json!({"allowedNamespaces": {"from": "None"}})),
        [""; 0]
    );
    let access = json!({"namespaces": {"from": "Selector", "selector": {}}});
    let network = network_warnings(&serde_json::from_value(access).unwrap());
    assert_eq!(
        network,
        [
            "spec.namespaces.selector: is empty and selects all namespaces; write from: All if this is intended"
        ]
    );
}
