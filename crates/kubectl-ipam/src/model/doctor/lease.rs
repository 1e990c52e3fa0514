//! The lease for which the replicas of the provider compete.

use capi_ipam_api::{installed, names};
use jiff::{SignedDuration, Timestamp};

use super::examination::Examination;
use super::snapshot::{LeaseRow, Snapshot};
use crate::model::finding::{Check, Finding, Severity};

/// Nobody renews the lease.
pub(super) fn leaderless(snapshot: &Snapshot) -> Examination {
    let needed = need(snapshot);
    Examination::compare(&snapshot.leases, |leases| {
        finding(leases, needed, snapshot.now).into_iter().collect()
    })
}

/// Whether the lease is held at this time: after the duration that the lease states, another
/// process can take it.
pub(crate) fn is_held(lease: &LeaseRow, now: Timestamp) -> bool {
    let duration = SignedDuration::from_secs(lease.seconds);
    let is_fresh = lease
        .renewed
        .is_some_and(|renewed| now.duration_since(renewed) <= duration);
    let holder = lease.holder.as_deref().unwrap_or_default();
    is_fresh && !holder.is_empty()
}

/// Whether a Deployment of the provider runs with leader election; `None` if there is none, or if
/// it may not be read.
fn need(snapshot: &Snapshot) -> Option<bool> {
    let deployments = snapshot.deployments.seen();
    if deployments.is_empty() {
        return None;
    }
    Some(deployments.iter().any(|it| it.elects && it.replicas > 0))
}

fn finding(leases: &[LeaseRow], needed: Option<bool>, now: Timestamp) -> Option<Finding> {
    if needed == Some(false) || leases.iter().any(|lease| is_held(lease, now)) {
        return None;
    }
    let namespace = leases
        .first()
        .map_or(installed::NAMESPACE, |lease| lease.namespace.as_str());
    let repair = format!("start the provider: kubectl describe pods --namespace {namespace}");
    let Some(lease) = leases.first() else {
        let problem = "it does not exist: no manager runs with leader election";
        let object = format!("lease {}", names::IN_CLUSTER_LEASE);
        if needed == Some(true) {
            return Some(Check::NoLeader.finding(object, problem.to_owned(), repair));
        }
        // A manager that runs outside of the cluster needs none. If none runs at all, the claims
        // that it does not process are findings of their own.
        let repair = "nothing, if the manager runs without --leader-elect; otherwise start it: clusterctl init --ipam \
                      in-cluster"
            .to_owned();
        let note = Check::NoLeader.finding(object, problem.to_owned(), repair);
        return Some(note.at(Severity::Note));
    };
    let object = format!("lease {}/{}", lease.namespace, names::IN_CLUSTER_LEASE);
    let holder = lease.holder.as_deref().filter(|holder| !holder.is_empty());
    let problem = match holder {
        Some(holder) => format!(
            "nobody renews it, and it has expired after {} s; {holder} was the last holder",
            lease.seconds
        ),
        None => "it was released, and no manager has taken it".to_owned(),
    };
    let finding = Check::NoLeader.finding(object, problem, repair);
    Some(finding.since(lease.renewed))
}
