//! The Deployments of the provider. A replica is ready when its probe `/readyz` succeeds.

use super::examination::Examination;
use super::snapshot::{DeploymentRow, Snapshot};
use crate::model::finding::{Check, Finding, Severity};

/// Deployments without all of their replicas ready.
pub(super) fn not_ready(snapshot: &Snapshot) -> Examination {
    Examination::inspect_list(&snapshot.deployments, finding)
}

fn finding(deployment: &DeploymentRow) -> Option<Finding> {
    let DeploymentRow {
        namespace,
        name,
        replicas,
        ready,
        ..
    } = deployment;
    let object = format!("deployment {namespace}/{name}");
    if *replicas == 0 {
        let repair =
            format!("kubectl scale deployment {name} --namespace {namespace} --replicas=2");
        let problem = "it is scaled to 0 replicas, so no claim is served";
        return Some(Check::ReplicasNotReady.finding(object, problem, repair));
    }
    if ready >= replicas {
        return None;
    }
    let problem = format!("{ready} of {replicas} replicas are ready");
    let repair = format!(
        "the probe /readyz names the reason: kubectl describe pods --namespace {namespace}; kubectl logs \
         deployment/{name} --namespace {namespace}"
    );
    let severity = if *ready == 0 {
        Severity::Error
    } else {
        Severity::Warning
    };
    let finding = Check::ReplicasNotReady.finding(object, problem, repair);
    Some(finding.at(severity))
}
