//! Several active managers. The lease excludes it among replicas; managers without leader election,
//! or in several namespaces, do not exclude each other.

use std::collections::{BTreeSet, HashMap};

use capi_ipam_api::{advice, names};
use jiff::{SignedDuration, Timestamp};

use super::examination::Examination;
use super::lease::is_held;
use super::names::first_names;
use super::snapshot::{DeploymentRow, EventRow, LeaseRow, Snapshot};
use crate::model::finding::{Check, Finding, Severity};

/// Age of the oldest event that says something about now.
const MAX_EVENT_AGE: SignedDuration = SignedDuration::from_mins(10);

/// Age of the last alternation after which one of the processes may have been stopped: a manager
/// in use publishes events more often.
const MAX_ALTERNATION_AGE: SignedDuration = SignedDuration::from_mins(1);

/// How far the clocks of two nodes may differ: after a handover, an event of the last leader can
/// seem to be later than the first one of the next leader.
const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(1);

pub(super) fn several(snapshot: &Snapshot) -> Examination {
    let (leases, deployments) = (&snapshot.leases, &snapshot.deployments);
    let events = &snapshot.events;
    let mut held: Vec<&LeaseRow> = leases.seen().iter().collect();
    held.retain(|lease| is_held(lease, snapshot.now));
    let unelected = deployments.seen().iter().filter_map(without_election);
    let mut findings: Vec<Finding> = unelected.collect();
    findings.extend(several_leases(&held));
    findings.extend(alternating(events.seen(), snapshot.now));
    let missing = [leases.missing_with(deployments), events.missing.clone()].concat();
    let is_partly = leases.is_complete() || deployments.is_complete() || events.is_complete();
    Examination::complete(findings).with_unknown(missing, is_partly)
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
    let repair = "if not, uninstall one of them: clusterctl delete --ipam in-cluster";
    let object = format!("lease {}", names::IN_CLUSTER_LEASE);
    let note = Check::SeveralManagers.finding(object, problem, repair);
    Some(note.at(Severity::Note))
}

/// Two processes that publish events at the same time: one has published again after another one
/// began. Processes that follow each other, such as after restarts, never do.
fn alternating(events: &[EventRow], now: Timestamp) -> Option<Finding> {
    let is_recent = |event: &&EventRow| now.duration_since(event.time) <= MAX_EVENT_AGE;
    let mut events: Vec<&EventRow> = events.iter().filter(is_recent).collect();
    events.sort_by_key(|event| event.time);
    let (other, again) = last_alternation(&events)?;
    let problem = format!(
        "{} and {} both wrote events until {} UTC",
        other.instance,
        again.instance,
        other.time.strftime("%H:%M:%S")
    );
    let repair = advice::SEVERAL_MANAGERS;
    let finding = Check::SeveralManagers.finding("managers", problem, repair);
    let mut finding = finding.since(Some(other.time));
    // The later event shows only that its process is active.
    if now.duration_since(other.time) > MAX_ALTERNATION_AGE {
        let minutes = MAX_EVENT_AGE.as_mins();
        finding.severity = Severity::Note;
        finding.repair = format!(
            "nothing, if one of them was stopped since: this note ends {minutes} minutes after the last event; otherwise \
             {repair}"
        );
    }
    Some(finding)
}

/// The last event of a process that was active before and after an event of another one, with the
/// event of the other one. The events are in the order of their times.
fn last_alternation<'a>(events: &[&'a EventRow]) -> Option<(&'a EventRow, &'a EventRow)> {
    let mut began: HashMap<&str, Timestamp> = HashMap::new();
    for event in events {
        began.entry(&event.instance).or_insert(event.time);
    }
    events.iter().rev().find_map(|again| {
        let began = began.get(again.instance.as_str())?;
        let is_between = |other: &&&EventRow| {
            let is_before = again.time.duration_since(other.time) >= MAX_CLOCK_SKEW;
            other.instance != again.instance && *began < other.time && is_before
        };
        let other = events.iter().rev().find(is_between)?;
        Some((*other, *again))
    })
}
