//! The lease for which the replicas of the provider compete.

use capi_ipam_api::{counted, installed, names};
use jiff::{SignedDuration, Timestamp};

use super::examination::Examination;
use super::manifest::logs;
use super::names::first_names;
use super::snapshot::{LeaseRow, Snapshot};
use crate::model::finding::{Check, Finding, Severity};

/// Nobody renews the lease.
pub(super) fn leaderless(snapshot: &Snapshot) -> Examination {
    let leases = &snapshot.leases;
    Examination::compare(leases.missing.clone(), || finding(leases.seen(), snapshot))
}

/// Whether the lease is held at this time: after the duration that the lease states, another
/// process can take it.
pub(crate) fn is_held(lease: &LeaseRow, now: Timestamp) -> bool {
    let duration = SignedDuration::from_secs(lease.seconds);
    let is_fresh = lease
        .renewed
        .is_some_and(|renewed| now.duration_since(renewed) <= duration);
    is_fresh && lease.holder().is_some()
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

/// The pods that run although nobody renews the lease, with what one of them reports; `None` if
/// none is known to run.
fn running(snapshot: &Snapshot) -> Option<String> {
    let pods = &snapshot.running;
    if pods.is_empty() {
        return None;
    }
    let names = first_names(pods.iter().map(|pod| &pod.name));
    let count = counted(pods.len(), "pod runs", "pods run");
    let text = format!("{count}, and cannot write the lease ({names})");
    let reported = pods.iter().find_map(|pod| pod.problem.as_deref());
    Some(match reported {
        Some(problem) => format!("{text}: {problem}"),
        None => text,
    })
}

fn finding(leases: &[LeaseRow], snapshot: &Snapshot) -> Option<Finding> {
    let needed = need(snapshot);
    let is_held = |lease| is_held(lease, snapshot.now);
    if needed == Some(false) || leases.iter().any(is_held) {
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
            return Some(Check::NoLeader.finding(object, problem, repair));
        }
        // A manager that runs outside of the cluster needs none. If none runs at all, the claims
        // that it does not process are findings of their own.
        let repair = "nothing, if the manager runs without --leader-elect; otherwise start it: clusterctl init --ipam \
                      in-cluster";
        let note = Check::NoLeader.finding(object, problem, repair);
        return Some(note.at(Severity::Note));
    };
    let object = format!("lease {}/{}", lease.namespace, names::IN_CLUSTER_LEASE);
    let mut problem = match lease.holder() {
        Some(holder) => format!(
            "nobody renews it, and it has expired after {} s; {holder} was the last holder",
            lease.seconds
        ),
        None => "it was released, and no manager has taken it".to_owned(),
    };
    let Some(running) = running(snapshot) else {
        let finding = Check::NoLeader.finding(object, problem, repair);
        return Some(finding.since(lease.renewed));
    };
    problem = format!("{problem}; {running}");
    let repair = "correct what keeps the manager from writing it: a permission, the connection to the API server, or an \
                  etcd that refuses writes, for example because its space is used up";
    let finding = Check::NoLeader.finding(object, problem, repair);
    Some(
        finding
            .with_commands([logs(namespace)])
            .since(lease.renewed),
    )
}
