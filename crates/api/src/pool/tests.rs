use serde_json::json;

use super::*;

/// An object of the kind as the API server returns it, with every field.
fn complete(kind: InClusterKind) -> Value {
    let spec = if kind.has_prefixes() {
        json!({"prefixes": ["fd00::/48"], "allocationPrefixLength": 60, "gateway": "fd00::1",
               "excludedPrefixes": ["fd00::/64"], "network": "lab"})
    } else {
        json!({"addresses": ["10.0.0.0/24"], "prefix": 24, "gateway": "10.0.0.1", "allocateReservedIPAddresses": true,
               "excludedAddresses": ["10.0.0.9"], "addressReuseGracePeriodSeconds": 60, "network": "lab"})
    };
    json!({
        "apiVersion": "ipam.cluster.x-k8s.io/v1alpha2", "kind": kind.name(),
        "metadata": {
            "name": "p", "namespace": "n", "uid": "u", "resourceVersion": "7",
            "managedFields": [{"manager": "kubectl", "operation": "Apply"}],
        },
        "spec": spec,
        "status": {
            "ipAddresses": {"total": 9, "free": 1, "used": 2, "outOfRange": 3, "reserved": 4, "coolingDown": 2},
            "conditions": [{"type": "Ready", "status": "True", "reason": "PoolReady", "message": "",
                            "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        },
    })
}

fn read(text: &str) -> Result<Pool, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

#[test]
fn all_kinds_round_trip() {
    for kind in InClusterKind::ALL {
        let object = complete(kind);
        let pool = read(&object.to_string()).unwrap();
        assert_eq!((pool.kind, pool.spec.network()), (kind, Some("lab")));
        assert_eq!(
            matches!(pool.spec, PoolSpec::Prefixes(_)),
            kind.has_prefixes()
        );
        assert_eq!(serde_json::to_value(&pool).unwrap(), object);
        assert_eq!(serde_json::from_value::<Pool>(object).unwrap(), pool);
    }
}

#[test]
fn absent_fields_stay_absent() {
    for kind in InClusterKind::ALL {
        let spec = if kind.has_prefixes() {
            json!({"prefixes": [], "allocationPrefixLength": 0})
        } else {
            json!({"addresses": [], "prefix": 0})
        };
        let expected = json!({"kind": kind.name(), "metadata": {}, "spec": spec});
        for object in [
            json!({"kind": kind.name()}),
            json!({"kind": kind.name(), "apiVersion": null, "status": null, "unknown": {"spec": 1}}),
        ] {
            let mut pool = read(&object.to_string()).unwrap();
            assert_eq!(serde_json::to_value(&pool).unwrap(), expected);
            pool.clear_spec();
            assert_eq!(serde_json::to_value(&pool).unwrap(), expected);
        }
    }
    // The default of a prefix length that is not set is that of the definition.
    let pool =
        read(r#"{"kind": "InClusterPrefixPool", "spec": {"prefixes": ["fd00::/48"]}}"#).unwrap();
    assert!(matches!(pool.spec, PoolSpec::Prefixes(spec) if spec.allocation_prefix_length == 64));
}

#[test]
fn fields_are_read_in_any_order() {
    for kind in InClusterKind::ALL {
        let object = complete(kind);
        let expected = read(&object.to_string()).unwrap();
        let fields: Vec<String> = object
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| format!("{name:?}: {value}"))
            .collect();
        for first in 0..fields.len() {
            let rotated: Vec<&str> = fields
                .iter()
                .cycle()
                .skip(first)
                .take(fields.len())
                .map(String::as_str)
                .collect();
            let reversed: Vec<&str> = rotated.iter().rev().copied().collect();
            for order in [rotated, reversed] {
                assert_eq!(
                    read(&format!("{{{}}}", order.join(", "))).as_ref(),
                    Ok(&expected),
                    "{order:?}"
                );
            }
        }
    }
}

#[test]
fn invalid_objects_are_errors_that_name_the_problem() {
    let cases = [
        (
            r#"{"metadata": {"name": "p"}, "spec": {"addresses": [], "prefix": 24}}"#,
            "missing field `kind`",
        ),
        (r#"{"kind": null}"#, "missing field `kind`"),
        (r#"{"kind": "Pod"}"#, "Pod is not a kind of pool"),
        (
            r#"{"kind": "InClusterIPPool", "spec": {"ranges": [{"prefix": 24}]}}"#,
            "missing field `addresses`",
        ),
        (
            r#"{"spec": {"ranges": [{"addresses": []}]}, "kind": "InClusterIPPool"}"#,
            "missing field `prefix`",
        ),
        (
            r#"{"kind": "InClusterPrefixPool", "spec": {"ranges": [{"prefix": 24}]}}"#,
            "missing field `prefixes`",
        ),
        (
            r#"{"kind": "InClusterIPPool", "spec": null}"#,
            "invalid type: null",
        ),
        (
            r#"{"kind": "InClusterIPPool", "kind": "InClusterIPPool"}"#,
            "duplicate field `kind`",
        ),
        (
            r#"{"spec": {}, "kind": "InClusterIPPool", "spec": {"addresses": [], "prefix": 24}}"#,
            "duplicate field",
        ),
        (r#"["InClusterIPPool"]"#, "expected a pool"),
    ];
    for (text, problem) in cases {
        let error = read(text).unwrap_err();
        assert!(
            error.contains(problem) || problem == "duplicate field" && error.contains("addresses"),
            "{error}"
        );
    }
}

#[test]
fn paths_are_those_of_the_kind() {
    let paths =
        InClusterKind::ALL.map(|kind| Pool::url_path(&kind, (!kind.is_global()).then_some("n")));
    let group = "/apis/ipam.cluster.x-k8s.io/v1alpha2";
    assert_eq!(
        paths,
        [
            format!("{group}/namespaces/n/inclusterippools"),
            format!("{group}/globalinclusterippools"),
            format!("{group}/namespaces/n/inclusterprefixpools"),
            format!("{group}/globalinclusterprefixpools"),
        ]
    );
    for kind in InClusterKind::ALL {
        let reference = read(&complete(kind).to_string()).unwrap().object_ref(&kind);
        assert_eq!(reference.kind.as_deref(), Some(kind.name()));
        assert_eq!(
            reference.api_version.as_deref(),
            Some("ipam.cluster.x-k8s.io/v1alpha2")
        );
    }
}
