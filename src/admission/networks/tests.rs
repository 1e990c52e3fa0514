use capi_ipam_api::InClusterKind::{self, GlobalIPPool};
use capi_ipam_api::{NetworkRefusal, PoolKey, Scope, ScopeChange};
use capi_ipam_ip::Block;
use serde_json::Value;

use super::*;
use crate::admission::tests::{self, Cluster, registry, reservation, slice};

fn review_request(operation: &str, old: &Value, new: &Value, view: &Cluster) -> Decision {
    let kind = json!({"group": names::GROUP, "version": names::POOL_VERSION, "kind": "IPNetwork"});
    let request =
        json!({"uid": "1", "kind": kind, "operation": operation, "object": new, "oldObject": old});
    review(
        &serde_json::from_value::<AdmissionRequest>(request).unwrap(),
        view,
    )
}

fn network(spec: &Value) -> Value {
    json!({"metadata": {"name": "lab"}, "spec": spec})
}

fn review_spec(spec: &Value, view: &Cluster) -> Decision {
    review_request("CREATE", &Value::Null, &network(spec), view)
}

fn pool(kind: InClusterKind, name: &str) -> PoolKey {
    PoolKey::new(kind, (!kind.is_global()).then_some("secret"), name)
}

#[test]
fn problems_name_their_fields() {
    let view = Cluster::default();
    let valid = json!({"excluded": ["10.0.0.1", "fd00::/64"], "pools": {}});
    assert_eq!(review_spec(&valid, &view), Ok(Vec::new()));
    let selector = json!({"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]});
    let invalid = json!({
        "excluded": ["10.0.0.1", "10.0.0.300"], "pools": selector,
        "namespaces": {"from": "Selector", "selector": selector},
    });
    let status = review_spec(&invalid, &view).unwrap_err();
    let causes = status.details.unwrap().causes;
    let fields: Vec<_> = causes.iter().map(|cause| cause.field.as_str()).collect();
    assert_eq!(
        fields,
        ["spec.excluded[1]", "spec.namespaces.selector", "spec.pools"]
    );
}

#[test]
fn network_that_is_being_deleted_is_checked() {
    let deleting = |spec: &Value| {
        let mut network = network(spec);
        network["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        network
    };
    let (valid, invalid) = (
        deleting(&json!({})),
        deleting(&json!({"excluded": ["10.0.0.300"]})),
    );
    let view = Cluster::default();
    assert!(review_request("UPDATE", &valid, &invalid, &view).is_err());
    // Its finalizer is removed.
    assert_eq!(
        review_request("UPDATE", &invalid, &invalid, &view),
        Ok(Vec::new())
    );
}

#[test]
fn network_in_use_is_deleted_only_with_annotation() {
    let delete = |metadata: &Value, view: &Cluster| {
        let mut old = network(&json!({}));
        old["metadata"]
            .as_object_mut()
            .unwrap()
            .extend(metadata.as_object().unwrap().clone());
        review_request("DELETE", &old, &Value::Null, view)
    };
    let spec = json!({"addresses": ["10.0.0.1"], "prefix": 24, "network": "lab"});
    let mut global = tests::pool("GlobalInClusterIPPool", "g", &spec);
    global["metadata"]["namespace"] = Value::Null;
    let mut namespaced = tests::pool("InClusterIPPool", "p", &spec);
    namespaced["metadata"]["namespace"] = json!("secret");
    let lab = || tests::network("lab", &json!({}));
    let with_pools = Cluster::with(&[lab(), global, namespaced]);
    let reserved = ["10.0.0.1", "10.0.0.2"].map(|address| reservation("n.lab", address));
    let [first, second] = reserved;
    let with_reservations = Cluster::with(&[lab(), first, second]);
    for (view, text) in [
        (
            &with_pools,
            "In use: GlobalInClusterIPPool g and 1 namespaced pool, 0 reservations",
        ),
        (
            &with_reservations,
            "In use: 1 namespaced pool, 2 reservations",
        ),
    ] {
        let status = delete(&json!({}), view).unwrap_err();
        assert_eq!(status.code, 400);
        assert!(
            status
                .message
                .starts_with("IPNetwork has pools or reservations. Cannot delete"),
            "{}",
            status.message
        );
        assert!(
            status.message.contains(text) && !status.message.contains("secret"),
            "{}",
            status.message
        );
        for annotation in [names::SKIP_VALIDATE_DELETE, names::DELETE_FOR_MOVE] {
            assert_eq!(
                delete(&json!({"annotations": {annotation: ""}}), view),
                Ok(Vec::new())
            );
        }
        assert_eq!(
            delete(&json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}), view),
            Ok(Vec::new())
        );
        assert_eq!(delete(&json!({"name": "other"}), view), Ok(Vec::new()));
    }
    let incomplete = Cluster::incomplete();
    assert_eq!(delete(&json!({}), &incomplete).unwrap_err().code, 503);
    // A specification that this version cannot read does not keep the object.
    let unreadable = json!({"metadata": {"name": "other"}, "spec": 5});
    assert_eq!(
        review_request("DELETE", &unreadable, &Value::Null, &with_pools),
        Ok(Vec::new())
    );
}

#[test]
fn network_without_its_registry_is_warned_about() {
    let spec = json!({"blocks": {"registry": "site", "size": 64}});
    for view in [Cluster::with(&[registry()]), Cluster::incomplete()] {
        assert_eq!(review_spec(&spec, &view), Ok(Vec::new()));
    }
    let view = Cluster::default();
    let warnings = review_spec(&spec, &view).unwrap();
    let expected = "spec.blocks.registry: IPRegistry site does not exist; until it is created, no block is taken, and claims \
                    wait";
    assert_eq!(warnings, [expected]);
    assert_eq!(review_spec(&json!({}), &view), Ok(Vec::new()));
}

#[test]
fn network_changes_its_registry_after_its_blocks_are_returned() {
    let mut other = registry();
    other["metadata"] = json!({"name": "other", "uid": "other"});
    let lab = tests::network("lab", &json!({}));
    let slices = [slice("10.0.0.0"), slice("10.0.0.64")];
    let [first, second] = slices;
    let in_site = Cluster::with(&[registry(), other.clone(), lab, first, second]);
    let of = |registry: &str| network(&json!({"blocks": {"registry": registry, "size": 64}}));
    let update =
        |old: &Value, new: &Value, view: &Cluster| review_request("UPDATE", old, new, view);
    let none = network(&json!({}));
    let status = update(&none, &of("other"), &in_site).unwrap_err();
    let cause = &status.details.unwrap().causes[0];
    assert_eq!(cause.field, "spec.blocks.registry");
    let expected = "2 blocks of the network are not yet returned to IPRegistry site; set the field to site, or release \
                    the addresses of the network and wait until its IPSlices are deleted";
    assert!(cause.message.ends_with(expected), "{}", cause.message);
    assert!(review_request("CREATE", &Value::Null, &of("other"), &in_site).is_err());

    assert_eq!(update(&none, &of("site"), &in_site), Ok(Vec::new()));
    assert_eq!(
        update(&none, &of("other"), &Cluster::with(&[other])),
        Ok(Vec::new())
    );
    // Other fields of a network that names another registry already can be changed.
    assert_eq!(update(&of("other"), &of("other"), &in_site), Ok(Vec::new()));
}

#[test]
fn end_of_shared_blocks_is_warned_about() {
    let view = Cluster::default();
    for (held, when) in [
        (json!(null), "from now on"),
        (
            json!({"held": 1, "spare": 0, "others": 2, "conflicts": 0}),
            "when its block is returned",
        ),
        (
            json!({"held": 3, "spare": 0, "others": 0, "conflicts": 0}),
            "when its 3 blocks are returned",
        ),
    ] {
        let mut old = network(&json!({"blocks": {"registry": "site", "size": 64}}));
        old["status"] = json!({"pools": 1, "total": 0, "used": 0, "free": 0, "blocks": held});
        let warnings = review_request("UPDATE", &old, &network(&json!({})), &view).unwrap();
        let expected = format!(
            "spec.blocks: {when}, the pools of the network allocate all their addresses, also those that other management \
             clusters allocate; remove the shared ranges from the pools first"
        );
        assert!(expected.len() < 256, "clients show the first 256 bytes");
        assert_eq!(warnings, [expected]);
        assert_eq!(review_request("UPDATE", &old, &old, &view), Ok(Vec::new()));
    }
}

#[test]
fn change_that_moves_pools_in_use_is_warned_about() {
    let lab = || Scope::Network("lab".into());
    let change =
        |name: &str, before: Scope, after: Scope, refusal, affected: &[&str]| ScopeChange {
            pool: pool(GlobalIPPool, name),
            before: Some(before),
            after,
            refusal,
            is_kept: false,
            affected: affected
                .iter()
                .map(|text| Block::address(text.parse().unwrap()))
                .collect(),
        };
    let own = |name: &str| Scope::Pool(pool(GlobalIPPool, name));
    let ambiguous = || Some(NetworkRefusal::Ambiguous("lab".into(), "other".into()));
    let changes = vec![
        change("a", lab(), own("a"), None, &["10.0.0.1", "10.0.0.2"]),
        change("b", lab(), own("b"), None, &[]),
        change("c", own("c"), lab(), None, &["10.0.0.1"]),
        change("d", own("d"), lab(), None, &[]),
        change("e", own("e"), own("e"), ambiguous(), &[]),
        change("f", lab(), lab(), ambiguous(), &[]),
    ];
    let warnings = scope_changes::of_network(&changes);
    let expected = [
        "spec: pools leave the network with 2 addresses in use, which other pools of the network can then allocate: \
         GlobalInClusterIPPool a; ",
        "spec: pools join the network with 1 address in use that other pools of the network use as well: \
         GlobalInClusterIPPool c; ",
        "spec: GlobalInClusterIPPool e and GlobalInClusterIPPool f cannot allocate addresses any more: the IPNetworks lab \
         and other both select the pool",
    ];
    assert_eq!(warnings.len(), expected.len(), "{warnings:?}");
    for (warning, start) in warnings.iter().zip(expected) {
        assert!(warning.starts_with(start), "{warning}");
    }
}
