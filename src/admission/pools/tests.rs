use capi_ipam_webhook::review::GroupVersionKind;
use serde_json::{Value, json};
use support::specifications;

use super::*;
use crate::admission::tests::{
    Cluster, address, network, pool, pool_of, registry, reservation, sharing_network,
};

fn object(kind: InClusterKind, spec: &Value) -> Value {
    json!({"kind": kind.name(), "metadata": {"namespace": "n", "name": "p"}, "spec": spec})
}

fn request_for(operation: Operation, old: Option<Value>, new: Option<Value>) -> AdmissionRequest {
    AdmissionRequest {
        uid: "u".to_owned(),
        kind: GroupVersionKind::gvk("", "", ""),
        operation,
        sub_resource: String::new(),
        namespace: "n".to_owned(),
        name: "p".to_owned(),
        object: new,
        old_object: old,
        dry_run: false,
    }
}

fn creation(kind: InClusterKind, spec: &Value, view: &Cluster) -> Decision {
    review(
        kind,
        &request_for(Operation::Create, None, Some(object(kind, spec))),
        view,
    )
}

fn change(kind: InClusterKind, old: &Value, new: &Value, view: &Cluster) -> Decision {
    review(
        kind,
        &request_for(
            Operation::Update,
            Some(object(kind, old)),
            Some(object(kind, new)),
        ),
        view,
    )
}

/// The code, fields and message of a denial.
fn denied(decision: Decision) -> (u16, Vec<String>, String) {
    let status = decision.expect_err("the request is denied");
    let causes = status
        .details
        .into_iter()
        .flat_map(|details| details.causes);
    (
        status.code,
        causes.map(|cause| cause.field).collect(),
        status.message,
    )
}

fn warnings_of(decision: Decision) -> Vec<String> {
    decision.expect("the request is allowed")
}

/// A cluster in which the address 10.0.0.1 of the pool is in use.
fn in_use() -> Cluster {
    Cluster::with(&[pool_of("10.0.0.1-10.0.0.9"), address("a", "10.0.0.1")])
}

/// The webhook denies a specification at its creation and in an update.
#[test]
fn webhook_gives_the_verdicts_of_the_table() {
    let mut wrong = Vec::new();
    for case in specifications::all() {
        let Some(kind) = InClusterKind::of(case.kind()) else {
            continue;
        };
        let new = case.object.clone();
        let mut old = object(
            kind,
            &json!({"addresses": ["10.0.0.1-10.0.0.9"], "prefix": 24, "prefixes": ["fd00::/48"]}),
        );
        for immutable in ["allocationPrefixLength", "slices"] {
            old["spec"][immutable] = new["spec"][immutable].clone();
        }
        for (operation, old) in [(Operation::Create, None), (Operation::Update, Some(old))] {
            let request = request_for(operation, old, Some(new.clone()));
            let decision = review(kind, &request, &Cluster::default());
            let is_right = match (&case.webhook, decision.clone()) {
                (None, Ok(warnings)) => {
                    let expected = case.warnings.as_ref();
                    expected.is_none_or(|expected| *expected == warnings)
                }
                (None, Err(_)) | (Some(_), Ok(_)) => false,
                (Some(denial), denied_decision) => {
                    let (code, fields, message) = denied(denied_decision);
                    let start = format!("{kind}.ipam.cluster.x-k8s.io \"");
                    // An object that cannot be decoded has no field.
                    let is_invalid = code == 422 && message.starts_with(&start);
                    let is_undecodable = code == 400 && denial.field.is_empty();
                    (is_invalid || is_undecodable)
                        && fields.iter().all(|field| *field == denial.field)
                        && message.contains(&denial.text)
                }
            };
            if !is_right {
                wrong.push(format!("{new}: {decision:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn probable_mistakes_cause_warnings() {
    let of_other = json!({"addresses": ["10.0.0.0/25"], "prefix": 24});
    let mut other = pool("GlobalInClusterIPPool", "other", &of_other);
    other["metadata"]["namespace"] = Value::Null;
    let view = Cluster::with(&[other]);
    let spec = json!({
        "addresses": ["10.0.0.0/25"], "prefix": 24, "gateway": "10.0.9.1",
        "excludedAddresses": ["10.0.0.5", "10.0.0.200"],
    });
    let warnings = warnings_of(creation(InClusterKind::IPPool, &spec, &view));
    for (warning, part) in warnings.iter().zip([
        "spec.gateway: 10.0.9.1",
        "spec.excludedAddresses[1]",
        "GlobalInClusterIPPool other",
        "overlapping pools: ",
    ]) {
        assert!(warning.contains(part), "{warning}");
    }
    assert_eq!(warnings.len(), 4);
    let spec =
        json!({"prefixes": ["fd00::/120"], "allocationPrefixLength": 128, "gateway": "fd00::1"});
    let warnings = warnings_of(creation(
        InClusterKind::PrefixPool,
        &spec,
        &Cluster::default(),
    ));
    assert!(
        warnings.len() == 2 && warnings[0].contains("128") && warnings[1].contains("fd00::1"),
        "{warnings:?}"
    );
    let plain = json!({"addresses": ["10.0.0.0/25"], "prefix": 24, "gateway": "10.0.0.1"});
    assert!(warnings_of(creation(InClusterKind::IPPool, &plain, &Cluster::default())).is_empty());
}

#[test]
fn pool_of_one_shared_block_is_warned_about() {
    let view = Cluster::with(&[registry(), sharing_network()]);
    let warnings = |addresses: &str, network: Option<&str>| {
        let spec = json!({"addresses": [addresses], "prefix": 16, "network": network});
        warnings_of(creation(InClusterKind::IPPool, &spec, &view))
    };
    let [warning] = &*warnings("10.0.0.70-10.0.0.127", Some("lab")) else {
        panic!("there is one warning");
    };
    assert!(
        warning.starts_with("spec.addresses: all addresses are in one block of IPNetwork lab"),
        "{warning}"
    );
    assert!(warning.len() < 256, "clients show the first 256 bytes");
    assert_eq!(warnings("10.0.0.70-10.0.0.128", Some("lab")), [""; 0]);
    assert_eq!(warnings("10.0.0.70-10.0.0.127", None), [""; 0]);
}

#[test]
fn overlapping_pools_of_other_namespaces_are_counted() {
    let spec = json!({"addresses": ["10.0.0.0/25"], "prefix": 24});
    let other = |namespace: &str| {
        let mut pool = pool("InClusterIPPool", "secret", &spec);
        pool["metadata"]["namespace"] = json!(namespace);
        pool
    };
    let view = Cluster::with(&[other("n"), other("other"), other("third")]);
    let problem = "the same addresses, such as 10.0.0.1-10.0.0.127, can be allocated by InClusterIPPool n/secret and 2 pools in other namespaces, so two \
                   machines can get one address";
    let advice = "overlapping pools: if they are in one network, create an IPNetwork that allows the namespaces, and \
                  name the same IPNetwork in spec.network of all of them; otherwise exclude the \
                  shared range in all but one of them";
    assert_eq!(
        warnings_of(creation(InClusterKind::IPPool, &spec, &view)),
        [problem, advice]
    );
    let mut global = object(InClusterKind::GlobalIPPool, &spec);
    global["metadata"] = json!({"name": "p"});
    let request = request_for(Operation::Create, None, Some(global));
    let warnings = warnings_of(review(InClusterKind::GlobalIPPool, &request, &view));
    assert!(
        warnings.len() == 2 && warnings[0].contains("3 namespaced pools"),
        "{warnings:?}"
    );
    assert!(!warnings[0].contains("secret"), "{warnings:?}");
}

#[test]
fn addresses_in_use_cannot_be_removed() {
    let spec = |addresses: &str| json!({"addresses": [addresses], "prefix": 24});
    let view = Cluster::with(&[
        pool_of("10.0.0.1-10.0.0.9"),
        address("a", "10.0.0.5"),
        address("b", "10.0.0.200"),
    ]);
    let whole = spec("10.0.0.1-10.0.0.9");
    assert!(
        warnings_of(change(
            InClusterKind::IPPool,
            &whole,
            &spec("10.0.0.2-10.0.0.20"),
            &view
        ))
        .is_empty()
    );
    let mut excluding = whole.clone();
    excluding["excludedAddresses"] = json!(["10.0.0.4/30"]);
    let mut gateway = whole.clone();
    gateway["gateway"] = json!("10.0.0.5");
    for less in [spec("10.0.0.6-10.0.0.9"), excluding, gateway] {
        let (code, fields, message) = denied(change(InClusterKind::IPPool, &whole, &less, &view));
        assert_eq!((code, fields.len()), (400, 0));
        assert!(
            message.contains("10.0.0.5") && !message.contains("10.0.0.200"),
            "{message}"
        );
    }
    let incomplete = Cluster::incomplete();
    assert_eq!(
        denied(change(
            InClusterKind::IPPool,
            &whole,
            &spec("10.0.0.6-10.0.0.9"),
            &incomplete
        ))
        .0,
        503
    );
    assert!(
        warnings_of(change(
            InClusterKind::IPPool,
            &whole,
            &spec("10.0.0.1-10.0.0.99"),
            &incomplete
        ))
        .is_empty()
    );
}

#[test]
fn updates_without_spec_change_are_allowed() {
    let bad = json!({"addresses": ["nonsense"], "prefix": 24});
    let good = json!({"addresses": ["10.0.0.1"], "prefix": 24});
    let view = in_use();
    assert!(warnings_of(change(InClusterKind::IPPool, &bad, &bad, &view)).is_empty());
    assert!(warnings_of(change(InClusterKind::IPPool, &bad, &good, &view)).is_empty());
    assert_eq!(
        denied(change(InClusterKind::IPPool, &good, &bad, &view)).0,
        422
    );
    let undecodable = json!({"addresses": ["10.0.0.1"], "prefix": 24, "network": 5});
    assert!(
        warnings_of(change(
            InClusterKind::IPPool,
            &undecodable,
            &undecodable,
            &view
        ))
        .is_empty()
    );
    let mut status = request_for(
        Operation::Update,
        Some(object(InClusterKind::IPPool, &good)),
        Some(object(InClusterKind::IPPool, &bad)),
    );
    status.sub_resource = "status".to_owned();
    assert!(warnings_of(review(InClusterKind::IPPool, &status, &view)).is_empty());
}

#[test]
fn older_reservations_are_named_when_a_pool_is_created() {
    let older = ["10.0.0.1", "10.0.0.2"].map(|address| reservation("p.n.p", address));
    let view = Cluster::with(&older);
    let spec = json!({"addresses": ["10.0.0.1"], "prefix": 24});
    let warnings = warnings_of(creation(InClusterKind::IPPool, &spec, &view));
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let start = "metadata.name: 2 IPReservations that users created for an earlier pool";
    assert!(warnings[0].starts_with(start), "{warnings:?}");
}

#[test]
fn pool_that_is_being_deleted_is_checked() {
    let kind = InClusterKind::IPPool;
    let view = in_use();
    let deleting = |spec: &Value| {
        let mut pool = object(kind, spec);
        pool["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        Some(pool)
    };
    let change = |old: &Value, new: &Value| {
        review(
            kind,
            &request_for(Operation::Update, deleting(old), deleting(new)),
            &view,
        )
    };
    let good = json!({"addresses": ["10.0.0.1-10.0.0.9"], "prefix": 24});
    let bad = json!({"addresses": ["nonsense"], "prefix": 24});
    assert_eq!(denied(change(&good, &bad)).0, 422);
    let smaller = json!({"addresses": ["10.0.0.2-10.0.0.9"], "prefix": 24});
    assert_eq!(denied(change(&good, &smaller)).0, 400);
    assert!(warnings_of(change(&bad, &bad)).is_empty());
}

#[test]
fn immutable_fields_cannot_be_changed() {
    let with = |length: i64, network: &str| json!({"prefixes": ["fd00::/48"], "allocationPrefixLength": length, "network": network});
    let without = json!({"prefixes": ["fd00::/48"]});
    let view = Cluster::default();
    let (code, fields, _) = denied(change(
        InClusterKind::PrefixPool,
        &with(64, "a"),
        &with(65, "b"),
        &view,
    ));
    assert_eq!(
        (code, fields),
        (422, vec!["spec.allocationPrefixLength".to_owned()])
    );
    let warnings = warnings_of(change(
        InClusterKind::PrefixPool,
        &without,
        &with(64, "a"),
        &view,
    ));
    assert_eq!(
        warnings,
        ["spec.network: IPNetwork a does not exist; create it, or correct spec.network"]
    );
    let lengths = json!({"status": {"blockLengths": {"ipv6": 64}}});
    let declared = Cluster::with(&[network("a", &lengths)]);
    let (_, fields, message) = denied(change(
        InClusterKind::PrefixPool,
        &with(64, "a"),
        &with(65, "a"),
        &declared,
    ));
    assert_eq!(fields, ["spec.allocationPrefixLength"], "{message}");
    assert!(
        warnings_of(change(
            InClusterKind::PrefixPool,
            &without,
            &with(64, ""),
            &view
        ))
        .is_empty()
    );
}

#[test]
fn pool_in_use_is_deleted_only_with_annotation() {
    let used = in_use();
    let delete = |annotations: Value, deleting: Value, view: &Cluster| {
        let old = json!({
            "kind": "InClusterIPPool",
            "metadata": {"namespace": "n", "name": "p", "annotations": annotations, "deletionTimestamp": deleting},
            "spec": {"addresses": ["10.0.0.1"], "prefix": 24},
        });
        review(
            InClusterKind::IPPool,
            &request_for(Operation::Delete, Some(old), None),
            view,
        )
    };
    let (code, _, message) = denied(delete(Value::Null, Value::Null, &used));
    assert!(
        code == 400
            && message.starts_with("Pool has IPAddresses allocated. Cannot delete Pool until"),
        "{message}"
    );
    assert!(warnings_of(delete(Value::Null, Value::Null, &Cluster::default())).is_empty());
    for annotation in [names::SKIP_VALIDATE_DELETE, names::DELETE_FOR_MOVE] {
        assert!(warnings_of(delete(json!({annotation: ""}), Value::Null, &used)).is_empty());
    }
    assert!(warnings_of(delete(Value::Null, json!("2026-01-01T00:00:00Z"), &used)).is_empty());
    assert_eq!(
        denied(delete(Value::Null, Value::Null, &Cluster::incomplete())).0,
        503
    );
}

#[test]
fn undecodable_pool_is_deleted_if_it_is_not_in_use() {
    let delete = |view: &Cluster| {
        let metadata = json!({"namespace": "n", "name": "p"});
        let old = json!({"kind": "InClusterIPPool", "metadata": metadata, "spec": 5});
        let request = request_for(Operation::Delete, Some(old), None);
        review(InClusterKind::IPPool, &request, view)
    };
    assert!(warnings_of(delete(&Cluster::default())).is_empty());
    let used = in_use();
    assert_eq!(denied(delete(&used)).0, 400);
}

#[test]
fn undecodable_objects_are_denied() {
    let view = Cluster::default();
    for operation in [Operation::Create, Operation::Update, Operation::Delete] {
        assert_eq!(
            denied(review(
                InClusterKind::IPPool,
                &request_for(operation.clone(), None, None),
                &view
            ))
            .0,
            400
        );
        if operation == Operation::Delete {
            continue;
        }
        let undecodable = Some(json!({"kind": "InClusterIPPool", "spec": 5}));
        assert_eq!(
            denied(review(
                InClusterKind::IPPool,
                &request_for(operation, undecodable.clone(), Some(json!(7))),
                &view
            ))
            .0,
            400
        );
    }
}

#[test]
fn object_of_another_or_no_kind_is_denied() {
    let (spec, view) = (
        json!({"addresses": ["10.0.0.1"], "prefix": 24}),
        Cluster::default(),
    );
    let mut without = object(InClusterKind::IPPool, &spec);
    without["kind"] = Value::Null;
    for (object, reason) in [
        (without, "`kind`"),
        (
            object(InClusterKind::GlobalIPPool, &spec),
            "GlobalInClusterIPPool",
        ),
    ] {
        let request = request_for(Operation::Create, None, Some(object));
        let (code, _, message) = denied(review(InClusterKind::IPPool, &request, &view));
        assert!(code == 400 && message.contains(reason), "{message}");
    }
}

#[test]
fn size_of_slices_cannot_be_changed() {
    let spec =
        |slices: Value| json!({"addresses": ["10.0.0.0/26"], "prefix": 24, "slices": slices});
    let (kind, view) = (InClusterKind::GlobalIPPool, Cluster::default());
    let large = spec(json!({"size": 64, "per": "Label", "label": "topology/rack"}));
    let small = spec(json!({"size": 32, "per": "Label", "label": "topology/rack"}));
    let (_, fields, message) = denied(change(kind, &large, &small, &view));
    assert_eq!(fields, ["spec.slices.size"]);
    assert!(message.contains("field is immutable"), "{message}");
    assert!(change(kind, &large, &spec(Value::Null), &view).is_ok());
}

/// A pool stays in its network while addresses of it are in use, unless its annotation says that it
/// leaves.
#[test]
fn change_of_the_network_with_addresses_in_use_is_warned_about() {
    let own = pool_of("10.0.0.0/29");
    let mut labelled = own.clone();
    labelled["metadata"]["labels"] = json!({"net": "lab"});
    let mut leaving = own.clone();
    leaving["metadata"]["annotations"] = json!({names::LEAVE_NETWORK_ANNOTATION: "lab"});
    let mut member = own.clone();
    member["spec"]["network"] = json!("lab");
    let mut moving = own.clone();
    moving["spec"]["network"] = json!("other");
    let mut leaving_for_other = leaving.clone();
    leaving_for_other["spec"]["network"] = json!("other");
    let stays = "the pool stays in IPNetwork lab, where addresses of it are in use; to leave: ";
    let leaves = "the pool leaves IPNetwork lab with 2 addresses in use, which other pools of";
    let joins = "the pool joins IPNetwork lab with 2 addresses in use that other pools of";
    for (old, new, field, expected) in [
        (&labelled, &own, "metadata.labels", stays),
        (&member, &own, "spec.network", stays),
        (&member, &moving, "spec.network", leaves),
        (&member, &leaving, "spec.network", leaves),
        (&member, &leaving_for_other, "spec.network", leaves),
        (&own, &labelled, "metadata.labels", joins),
        (&own, &member, "spec.network", joins),
    ] {
        let selects = |name: &str| {
            network(
                name,
                &json!({"spec": {"pools": {"matchLabels": {"net": name}}}}),
            )
        };
        let mut neighbour = member.clone();
        neighbour["metadata"]["name"] = json!("q");
        let of_neighbour = ["10.0.0.1", "10.0.0.2"].map(|text| {
            let mut address = address(&format!("q-{text}"), text);
            address["spec"]["poolRef"]["name"] = json!("q");
            address
        });
        let [first, second] = of_neighbour;
        let view = Cluster::with(&[
            selects("lab"),
            selects("other"),
            old.clone(),
            neighbour,
            address("a", "10.0.0.1"),
            address("b", "10.0.0.2"),
            first,
            second,
        ]);
        let request = request_for(Operation::Update, Some(old.clone()), Some(new.clone()));
        let warnings = warnings_of(review(InClusterKind::IPPool, &request, &view));
        let start = format!("{field}: {expected}");
        assert!(warnings[0].starts_with(&start), "{start}: {warnings:?}");
    }
}

#[test]
fn labels_that_change_no_network_cause_no_warning() {
    let old = pool_of("10.0.0.0/29");
    let mut new = old.clone();
    new["metadata"]["labels"] = json!({"a": "b"});
    let view = Cluster::with(&[old.clone(), address("a", "10.0.0.1")]);
    let request = request_for(Operation::Update, Some(old), Some(new));
    assert_eq!(
        warnings_of(review(InClusterKind::IPPool, &request, &view)),
        [""; 0]
    );
}

/// A network decides about the block length, so its name is not a matter of the table.
#[test]
fn pool_with_another_length_than_its_network_is_denied() {
    let lengths = json!({"status": {"blockLengths": {"ipv4": 24}}});
    let view = Cluster::with(&[network("prefixes", &lengths)]);
    let spec = json!({"addresses": ["10.0.0.1"], "prefix": 24, "network": "prefixes"});
    let (code, fields, message) = denied(creation(InClusterKind::IPPool, &spec, &view));
    assert_eq!(
        (code, fields),
        (422, vec!["spec.network".to_owned()]),
        "{message}"
    );
}
