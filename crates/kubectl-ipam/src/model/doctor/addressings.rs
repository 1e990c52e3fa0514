//! ClusterAddressings: Clusters that do not have their addresses, or not those that were written.

use capi_ipam_api::{ClusterAddressing, conditions};
use capi_ipam_provider::api::conditions::Condition;
use kube::ResourceExt;

use super::examination::Examination;
use super::snapshot::Snapshot;
use crate::model::finding::{Check, Finding, Severity, Subject};

/// What is expected, and ends without a change.
const EXPECTED: [&str; 2] = [conditions::ADDRESSES_PENDING, conditions::DELETING];

pub(super) fn not_ready(snapshot: &Snapshot) -> Examination {
    Examination::inspect_list(&snapshot.addressings, |addressing| {
        let status = addressing.status.as_ref()?;
        let find = |type_| conditions::find(&status.conditions, type_);
        let ready = find(conditions::READY).filter(|ready| ready.status == "False");
        let is_expected = |it: &&Condition| EXPECTED.contains(&it.reason());
        if let Some(ready) = ready.filter(|ready| !is_expected(ready)) {
            return Some(finding(addressing, ready));
        }
        let drifted = find(conditions::DRIFTED).filter(|drifted| drifted.status == "True")?;
        Some(finding(addressing, drifted).at(Severity::Warning))
    })
}

fn finding(addressing: &ClusterAddressing, condition: &Condition) -> Finding {
    let namespace = addressing.namespace().unwrap_or_default();
    let name = addressing.name_any();
    let reason = condition.reason();
    let text = condition.message();
    let subject = Subject::from(format!("ClusterAddressing {namespace}/{name}"));
    let command = format!("kubectl describe clusteraddressings {name} --namespace {namespace}");
    Check::ClusterAddressingNotReady
        .finding(
            subject.in_namespace(&namespace),
            format!("{reason}: {text}"),
            "correct what the message names; status.problems has each Cluster",
        )
        .with_commands([command])
}
