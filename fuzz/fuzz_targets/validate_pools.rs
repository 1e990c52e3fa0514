//! Fuzzes the admission of pools with arbitrary old and new pools.
//!
//! Invariants: admission follows exactly these rules. A pool can be created if it and its policies
//! are valid and its network has the same block length. An update without a change of the spec is
//! allowed, also if the spec is not valid. For other updates the new pool has to be one that can be
//! created, with the same network, length and size of slices, and with all addresses in use that it
//! had before. A pool in use cannot be deleted without the annotation for it.
//!
//! Run with `cargo +nightly fuzz run validate_pools`.

#![no_main]

#[path = "validate_pools/inputs.rs"]
mod inputs;
#[path = "validate_pools/policy.rs"]
mod policy;

use capi_ipam::admission::pools;
use capi_ipam_api::{InClusterKind, Pool, names};
use capi_ipam_webhook::review::{AdmissionRequest, GroupVersionKind, Operation};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

use inputs::{Cluster, LedgerView, Spec};
use policy::Slices;

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    prefixes: bool,
    old: Spec<'a>,
    new: Spec<'a>,
    cluster: Cluster,
    deleting: bool,
    annotation: Option<bool>,
}

fuzz_target!(|input: Input<'_>| {
    check(
        if input.prefixes {
            InClusterKind::PrefixPool
        } else {
            InClusterKind::IPPool
        },
        &input,
    );
});

fn check(kind: InClusterKind, input: &Input<'_>) {
    let cluster = &input.cluster;
    let view = cluster.view(kind);
    let object = |spec: &Spec<'_>| {
        let metadata = json!({"namespace": "n", "name": "p"});
        json!({"kind": kind.name(), "metadata": metadata, "spec": spec.to_json(input.prefixes)})
    };
    let (old, mut new) = (object(&input.old), object(&input.new));
    let [before, after] =
        [&input.old, &input.new].map(|spec| pool_of(kind, spec.to_json(input.prefixes)));
    let (usable_before, usable) = (before.spec.usable().ok(), after.spec.usable().ok());

    let is_valid = usable.as_ref().is_some_and(|usable| {
        let network = after.spec.network();
        let agrees = network.is_none()
            || cluster
                .declared_length
                .filter(|_| cluster.complete)
                .is_none_or(|length| length == usable.length);
        let has_valid_grace_period =
            input.prefixes || input.new.grace_period.is_none_or(|seconds| seconds >= 0);
        let listed = pool_of(kind, input.new.to_listed_json(input.prefixes))
            .spec
            .usable();
        let total = listed.map_or_else(|_| usable.set.len(), |listed| listed.set.len());
        let has_valid_policy = input.new.policy.is_valid(total, usable.length);
        agrees
            && has_valid_grace_period
            && has_valid_policy
            && network.is_none_or(|network| ["lab", "other"].contains(&network))
    });
    assert_eq!(
        is_allowed(kind, Operation::Create, None, Some(&new), &view),
        is_valid,
        "{new}"
    );

    let same_length = !input.prefixes || input.old.length == input.new.length;
    let keeps = usable_before.zip(usable).is_none_or(|(before, after)| {
        let dropped = cluster
            .blocks(kind)
            .any(|block| before.contains(block) && !after.contains(block));
        before.set.subtract(&after.set).is_empty() || (cluster.complete && !dropped)
    });
    let sizes = [&input.old, &input.new].map(|spec| spec.policy.slices.as_ref().map(Slices::size));
    let same_size = sizes.contains(&None) || sizes[0] == sizes[1];
    let fits = is_valid && same_length && same_size && keeps;
    let update =
        |old: &Value, new: &Value| is_allowed(kind, Operation::Update, Some(old), Some(new), &view);
    let is_update = fits || old["spec"] == new["spec"];
    assert_eq!(update(&old, &new), is_update, "{old} -> {new}");
    assert!(update(&old, &old) && update(&new, &new));

    if let Some(skip) = input.annotation {
        let name = if skip {
            names::SKIP_VALIDATE_DELETE
        } else {
            names::DELETE_FOR_MOVE
        };
        new["metadata"]["annotations"] = json!({name: ""});
    }
    if input.deleting {
        new["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(update(&old, &new), is_update, "{old} -> {new}");
    }
    let unused = cluster.complete && cluster.blocks(kind).next().is_none();
    let can_be_deleted = input.deleting || input.annotation.is_some() || unused;
    assert_eq!(
        is_allowed(kind, Operation::Delete, Some(&new), None, &view),
        can_be_deleted
    );
}

fn pool_of(kind: InClusterKind, spec: Value) -> Pool {
    let metadata = json!({"namespace": "n", "name": "p"});
    serde_json::from_value(json!({"kind": kind.name(), "metadata": metadata, "spec": spec}))
        .expect("a pool")
}

/// Whether the request is allowed. A denial has a message.
fn is_allowed(
    kind: InClusterKind,
    operation: Operation,
    old: Option<&Value>,
    new: Option<&Value>,
    view: &LedgerView,
) -> bool {
    let request = AdmissionRequest {
        uid: "u".to_owned(),
        kind: GroupVersionKind::gvk("", "", kind.name()),
        operation,
        sub_resource: String::new(),
        namespace: "n".to_owned(),
        name: String::new(),
        object: new.cloned(),
        old_object: old.cloned(),
        dry_run: false,
    };
    match pools::review(kind, &request, view) {
        Ok(warnings) => assert!(warnings.iter().all(|text| !text.is_empty())),
        Err(status) => {
            assert!((400..600).contains(&status.code) && !status.message.is_empty());
            let mut causes = status.details.iter().flat_map(|details| &details.causes);
            assert!(
                causes.all(|cause| cause.field.starts_with("spec.") && !cause.message.is_empty())
            );
            return false;
        }
    }
    true
}
