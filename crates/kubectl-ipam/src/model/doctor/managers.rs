//! Several active managers. The lease excludes it among replicas; managers without leader election,
//! or in several namespaces, do not exclude each other.

use std::collections::BTreeSet;

use capi_ipam_api::{advice, names};
use jiff::{SignedDuration, Timestamp};

use super::examination::Examination;
use super::lease::is_held;
use super::names::first_names;
use super::snapshot::{DeploymentRow, EventRow, LeaseRow, Snapshot};
use crate::model::finding::{Check, Finding, Severity};

/// How often the events of two processes alternate if both are active. After a change of the leader
/// they change once.
const MIN_CHANGES: usize = 3;

/// Age of the oldest event that says something about now.
const MAX_EVENT_AGE: SignedDuration = SignedDuration::from_mins(10);

pub(super) fn several(snapshot: &Snapshot) -> Examination {
    let leases = snapshot.leases.seen();
    let held: Vec<&LeaseRow> = leases
        .iter()
        .filter(|lease| is_held(lease, snapshot.now))
        .collect();
    let unelected = snapshot
        .deployments
        .seen()
        .iter()
        .filter_map(without_election);
    let mut findings: Vec<Finding> = unelected.collect();
    findings.extend(several_leases(&held));
    findings.extend(alternating(snapshot.events.seen(), snapshot.now));
    let lists = snapshot
        .leases
        .as_ref()
        .depends_on(&snapshot.deployments)
        .depends_on(&snapshot.events);
    let is_partly = snapshot.leases.is_complete()
        || snapshot.deployments.is_complete()
        || snapshot.events.is_complete();
    Examination::complete(findings).with_unknown(&lists, is_partly)
}

/// A Deployment with several replicas that are all active.
fn without_election(deployment: &DeploymentRow) -> Option<Finding> {
    if deployment.elects || deployment.replicas < 2 {
        return None;
    }
    let DeploymentRow {
        namespace,
        name,
        replicas,
        ..
    } = deployment;
    let problem = format!("its {replicas} replicas run without --leader-elect, so all are active");
    let repair = format!(
        "add the argument --leader-elect: kubectl edit deployment {name} --namespace {namespace}"
    );
    Some(Check::SeveralManagers.finding(format!("deployment {namespace}/{name}"), problem, repair))
}

/// Leases in several namespaces. Managers with different flags can serve different claims.
fn several_leases(held: &[&LeaseRow]) -> Option<Finding> {
    if held.len() < 2 {
        return None;
    }
    let namespaces: BTreeSet<&str> = held.iter().map(|lease| lease.namespace.as_str()).collect();
    let problem = format!(
        "managers in several namespaces hold it: {}; this is right only if their flags --namespace or --watch-filter \
         select different claims",
        first_names(namespaces)
    );
    let repair = "if not, uninstall one of them: clusterctl delete --ipam in-cluster".to_owned();
    let object = format!("lease {}", names::IN_CLUSTER_LEASE);
    let note = Check::SeveralManagers.finding(object, problem, repair);
    Some(note.at(Severity::Note))
}

/// Processes that publish events by turns.
fn alternating(events: &[EventRow], now: Timestamp) -> Option<Finding> {
    let is_recent = |event: &&EventRow| now.duration_since(event.time) <= MAX_EVENT_AGE;
    let mut events: Vec<&EventRow> = events.iter().filter(is_recent).collect();
    events.sort_by_key(|event| event.time);
    let pairs = events.iter().zip(events.iter().skip(1));
    let changes: Vec<_> = pairs
        .filter(|(one, other)| one.instance != other.instance && one.time != other.time)
        .collect();
    let instances: BTreeSet<&str> = changes
        .iter()
        .flat_map(|(one, other)| [one.instance.as_str(), other.instance.as_str()])
        .collect();
    // Each process after the first one is a change that a restart explains.
    let explained = instances.len().saturating_sub(1);
    if changes.len() < explained.saturating_add(MIN_CHANGES.saturating_sub(1)) {
        return None;
    }
    let last = changes.last()?;
    let problem = format!(
        "they are active at the same time: their events alternate; {} have alternated last",
        first_names([&last.0.instance, &last.1.instance])
    );
    Some(
        Check::SeveralManagers
            .finding(
                "managers".to_owned(),
                problem,
                advice::SEVERAL_MANAGERS.to_owned(),
            )
            .since(changes.first().map(|(_, event)| event.time)),
    )
}
