use serde_json::{Value, json};

use super::*;

fn claim(managers: &Value) -> ObjectMeta {
    serde_json::from_value(json!({
        "name": "c", "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": managers,
        "finalizers": ["ipam.cluster.x-k8s.io/ReleaseAddress"],
    }))
    .unwrap()
}

fn manager(name: &str, fields: &Value) -> Value {
    json!({"manager": name, "operation": "Update", "apiVersion": "ipam.cluster.x-k8s.io/v1beta2",
           "fieldsType": "FieldsV1", "fieldsV1": fields})
}

fn spec() -> Value {
    json!({"f:poolRef": {"f:kind": {}, "f:name": {}}})
}

fn finalizer() -> Value {
    json!({"f:finalizers": {".": {}, "v:\"ipam.cluster.x-k8s.io/ReleaseAddress\"": {}}})
}

fn at(mut entry: Value, time: &str) -> Value {
    entry["time"] = json!(time);
    entry
}

#[test]
fn claim_created_with_our_finalizer_may_be_moved() {
    let all_fields = json!({"f:spec": spec(), "f:metadata": finalizer()});
    for (creator, expected) in [
        ("kubectl-create", Origin::Unknown),
        ("argocd-controller", Origin::Unknown),
        ("clusterctl", Origin::Elsewhere),
        ("velero-server", Origin::Elsewhere),
        ("manager", Origin::Here),
    ] {
        let entry = at(manager(creator, &all_fields), "2026-01-01T00:00:00Z");
        assert_eq!(origin(&claim(&json!([entry])), None), expected, "{creator}");
    }
}

#[test]
fn claim_with_later_finalizer_is_local() {
    let another = json!({"f:finalizers": {".": {}, "v:\"example.com/in-use\"": {}}});
    let creator = manager(
        "capv-manager",
        &json!({"f:spec": spec(), "f:metadata": another}),
    );
    let served = manager("capi-ipam-in-cluster", &json!({"f:metadata": finalizer()}));
    assert_eq!(
        origin(&claim(&json!([creator, served])), None),
        Origin::Here
    );
    assert_eq!(origin(&claim(&json!([])), None), Origin::Here);
    assert_eq!(
        origin(&claim(&json!([{"manager": "x"}])), None),
        Origin::Here
    );
}

#[test]
fn claim_with_older_managed_fields_is_moved() {
    let of = |created: &str, protected: &str| {
        let creator = at(manager("capv-manager", &json!({"f:spec": spec()})), created);
        let served = at(
            manager("capi-ipam-in-cluster", &json!({"f:metadata": finalizer()})),
            protected,
        );
        origin(&claim(&json!([creator, served])), None)
    };
    assert_eq!(
        of("2025-12-31T23:59:50Z", "2025-12-31T23:59:52Z"),
        Origin::Elsewhere
    );
    // Its creator changed it after the restore.
    assert_eq!(
        of("2026-01-01T00:00:10Z", "2025-12-31T23:58:52Z"),
        Origin::Elsewhere
    );
    let together = at(
        manager(
            "manager",
            &json!({"f:spec": spec(), "f:metadata": finalizer()}),
        ),
        "2025-12-31T23:59:50Z",
    );
    assert_eq!(origin(&claim(&json!([together])), None), Origin::Elsewhere);
}

/// An admission policy adds the finalizer after the managed fields of the creator are recorded.
#[test]
fn finalizer_of_no_manager_is_local_unless_the_claim_is_older() {
    let of = |time: &str| {
        let creator = at(manager("capv-manager", &json!({"f:spec": spec()})), time);
        let later = at(
            manager("capi-ipam-in-cluster", &json!({"f:metadata": {}})),
            "2025-12-31T23:00:00Z",
        );
        origin(&claim(&json!([creator, later])), None)
    };
    assert_eq!(of("2026-01-01T00:00:00Z"), Origin::Here);
    assert_eq!(of("2025-12-31T23:59:50Z"), Origin::Elsewhere);
}

#[test]
fn clock_skew_does_not_make_a_claim_moved() {
    let of = |protected: &str| {
        let creator = at(
            manager("capv-manager", &json!({"f:spec": spec()})),
            "2026-01-01T00:00:00Z",
        );
        let served = at(
            manager("capi-ipam-in-cluster", &json!({"f:metadata": finalizer()})),
            protected,
        );
        origin(&claim(&json!([creator, served])), None)
    };
    for protected in [
        "2025-12-31T23:59:10Z",
        "2025-12-31T23:59:58Z",
        "2026-01-01T00:00:01Z",
    ] {
        assert_eq!(of(protected), Origin::Here, "{protected}");
    }
}

/// `kubectl get --show-managed-fields` keeps the entry of the status, and `kubectl create` takes
/// over the others.
#[test]
fn status_entry_older_than_the_claim_shows_a_restore() {
    let of = |creator: &str, time: &str| {
        let all_fields = json!({"f:spec": spec(), "f:metadata": finalizer()});
        let creator = at(manager(creator, &all_fields), "2026-01-01T00:00:00Z");
        let mut status = at(
            manager(
                "capi-ipam-in-cluster",
                &json!({"f:status": {"f:addressRef": {}}}),
            ),
            time,
        );
        status["subresource"] = json!("status");
        origin(&claim(&json!([creator, status])), None)
    };
    assert_eq!(
        of("kubectl-create", "2025-12-31T23:59:50Z"),
        Origin::Elsewhere
    );
    assert_eq!(
        of("kubectl-create", "2025-12-31T23:59:58Z"),
        Origin::Unknown
    );
    assert_eq!(
        of("kubectl-create", "2026-01-01T00:00:05Z"),
        Origin::Unknown
    );
    // A local claim, whose status was written by an API server with another clock.
    assert_eq!(of("manager", "2025-12-31T23:59:50Z"), Origin::Here);
    assert_eq!(of("manager", "2025-12-31T23:00:00Z"), Origin::Elsewhere);
}

#[test]
fn bound_status_older_than_the_claim_shows_a_restore() {
    let of = |creator: &str, times: &[&str]| {
        let conditions: Vec<_> = times
            .iter()
            .map(|time| json!({"type": "x", "lastTransitionTime": time}))
            .collect();
        let status = json!({"addressRef": {"name": "c"}, "conditions": conditions});
        let all_fields = json!({"f:spec": spec(), "f:metadata": finalizer()});
        let creator = at(manager(creator, &all_fields), "2026-01-01T00:00:00Z");
        origin(
            &claim(&json!([creator])),
            Some(&serde_json::from_value(status).unwrap()),
        )
    };
    for creator in ["kubectl-create", "manager"] {
        assert_eq!(
            of(creator, &["2025-12-01T00:00:00Z"]),
            Origin::Elsewhere,
            "{creator}"
        );
        let mixed = ["2025-12-01T00:00:00Z", "2026-01-01T00:00:02Z"];
        assert_ne!(of(creator, &mixed), Origin::Elsewhere, "{creator}");
    }
    assert_eq!(of("kubectl-create", &[]), Origin::Elsewhere);
    assert_eq!(of("manager", &[]), Origin::Here);
}

#[test]
fn backup_that_kubectl_applied_shows_a_restore() {
    let of = |uid: &str, address: &str| {
        let applied = json!({"metadata": {"uid": uid, "name": "c"}, "status": {"addressRef": {"name": address}}});
        let mut claim = claim(&json!([]));
        claim.uid = Some("now".to_owned());
        let annotation = (
            "kubectl.kubernetes.io/last-applied-configuration".to_owned(),
            applied.to_string(),
        );
        claim.annotations = Some([annotation].into());
        origin(&claim, None)
    };
    assert_eq!(of("before", "c"), Origin::Elsewhere);
    assert_eq!(of("now", "c"), Origin::Here, "it was applied to itself");
    assert_eq!(of("before", "original"), Origin::Here, "it is a copy");
}
