//! Feeds arbitrary pools, as they were and as they are to be, to admission.
//!
//! What must hold: admission decides by exactly these rules. A pool may be made if it can be understood and its network
//! gives out blocks of its length. A change is refused only for what it changes: it may leave everything as it is, however
//! wrong that is; otherwise the new pool has to be one that may be made, with the same network and length, and with all
//! that is in use and was in it before. A pool that is used cannot be deleted, unless that is asked for.
//!
//! Run with `cargo +nightly fuzz run validate_pools`.

#![no_main]

#[path = "validate_pools/inputs.rs"]
mod inputs;

use capi_ipam::admission::pools;
use capi_ipam::api::{InClusterIPPool, InClusterPrefixPool, names, Pool};
use capi_ipam_webhook::review::{AdmissionRequest, Operation, Decision};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use serde_json::{json, Value};

use inputs::{Cluster, Spec};

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
    if input.prefixes { check::<InClusterPrefixPool>(&input) } else { check::<InClusterIPPool>(&input) }
});

fn check<P: Pool>(input: &Input<'_>) {
    let cluster = &input.cluster;
    let object =
        |spec: &Spec<'_>| json!({"metadata": {"namespace": "n", "name": "p"}, "spec": spec.written(input.prefixes)});
    let (old, mut new) = (object(&input.old), object(&input.new));
    let [before, after]: [P; 2] = [&old, &new].map(|object| serde_json::from_value(object.clone()).expect("a pool"));
    let (usable_before, usable) = (before.spec().usable().ok(), after.spec().usable().ok());

    let may_be_made = usable.as_ref().is_some_and(|usable| {
        let network = after.spec().network();
        let agrees = network.is_none() || cluster.agreed.is_none_or(|length| length == usable.length);
        let rests = input.prefixes || input.new.rest.is_none_or(|seconds| seconds >= 0);
        agrees && rests && network.is_none_or(|network| ["lab", "other"].contains(&network))
    });
    assert_eq!(ask::<P>(Operation::Create, None, Some(&new), cluster), may_be_made, "{new}");

    let same_length = !input.prefixes || input.old.length == input.new.length;
    let keeps = usable_before.zip(usable).is_none_or(|(before, after)| {
        let dropped = cluster.blocks().any(|block| before.contains(block) && !after.contains(block));
        before.set.subtract(&after.set).is_empty() || (cluster.complete && !dropped)
    });
    let fits = may_be_made && same_length && before.spec().network() == after.spec().network() && keeps;
    let update = |old: &Value, new: &Value| ask::<P>(Operation::Update, Some(old), Some(new), cluster);
    assert_eq!(update(&old, &new), fits || old["spec"] == new["spec"], "{old} -> {new}");
    assert!(update(&old, &old) && update(&new, &new));

    if let Some(skip) = input.annotation {
        let name = if skip { names::SKIP_VALIDATE_DELETE } else { names::DELETE_FOR_MOVE };
        new["metadata"]["annotations"] = json!({name: ""});
    }
    if input.deleting {
        new["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert!(update(&old, &new));
    }
    let unused = cluster.complete && cluster.blocks().next().is_none();
    let may_go = input.deleting || input.annotation.is_some() || unused;
    assert_eq!(ask::<P>(Operation::Delete, Some(&new), None, cluster), may_go);
}

/// Whether it may be written. A refusal says why.
fn ask<P: Pool>(operation: Operation, old: Option<&Value>, new: Option<&Value>, cluster: &Cluster) -> bool {
    let (object, old_object, namespace) = (new.cloned(), old.cloned(), "n".to_owned());
    let request = AdmissionRequest { operation, object, old_object, namespace, ..AdmissionRequest::default() };
    match pools::review::<P>(&request, cluster) {
        Decision::Allowed { warnings, .. } => assert!(warnings.iter().all(|text| !text.is_empty())),
        Decision::Denied(refusal) => {
            assert!((400..600).contains(&refusal.code) && !refusal.message.is_empty());
            assert!(refusal.causes.iter().all(|cause| cause.field.starts_with("spec.") && !cause.message.is_empty()));
            return false;
        }
    }
    true
}
