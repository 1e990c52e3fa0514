//! Sets of pools: what they report, and the claims that wait for them.

use capi_ipam_api::{PoolSetKey, conditions};

use super::examination::Examination;
use super::names::{claims_wait, grouped, oldest};
use super::snapshot::Snapshot;
use super::waiting::{is_old, messages, repair_of_other, unreconciled};
use crate::model::finding::{Check, Finding, Severity, Subject};
use crate::objects::{Kind, PoolSetRow, UnservedClaim};

/// Sets that are not ready, and those whose condition names pools that are missing or not used.
pub(super) fn not_ready(snapshot: &Snapshot) -> Examination {
    let objects = &snapshot.objects;
    let missing = objects.lacking(&Kind::POOL_SETS);
    Examination::inspect(objects.pool_sets(), missing, not_ready_set)
}

fn not_ready_set(set: &PoolSetRow) -> Option<Finding> {
    let ready = set.ready.as_ref()?;
    let is_ready = ready.status == "True";
    if is_ready && ready.message().is_empty() {
        return None;
    }
    let severity = if is_ready || ready.reason() == conditions::DELETING {
        Severity::Warning
    } else {
        Severity::Error
    };
    let finding = Check::PoolSetNotReady.finding(
        subject(&set.key),
        ready.message(),
        "correct the set, or the pools that the message names",
    );
    let since = ready.last_transition_time.as_ref().map(|time| time.0);
    let command = format!("kubectl edit {}", resource_of(&set.key));
    Some(finding.at(severity).with_commands([command]).since(since))
}

fn subject(set: &PoolSetKey) -> Subject {
    let subject = Subject::from(set);
    match &set.namespace {
        Some(namespace) => subject.in_namespace(namespace),
        None => subject,
    }
}

/// A set as an argument of kubectl.
fn resource_of(set: &PoolSetKey) -> String {
    let resource = format!("{} {}", set.kind.plural(), set.name);
    match &set.namespace {
        Some(namespace) => format!("{resource} --namespace {namespace}"),
        None => resource,
    }
}

/// Claims that wait for a set, by set and reason. What is paused is another finding.
pub(super) fn waiting(snapshot: &Snapshot) -> Vec<Finding> {
    let claims = snapshot.objects.unserved().into_iter();
    let claims = claims.filter(|claim| claim.is_waiting());
    let of_sets = claims.filter_map(|claim| Some((claim.pool.set.as_ref()?, claim)));
    let groups = grouped(of_sets, |(set, claim)| (*set, claim.reason.as_deref()));
    let mut findings = Vec::new();
    for ((set, reason), claims) in groups {
        let claims: Vec<&UnservedClaim> = claims.into_iter().map(|(_, claim)| claim).collect();
        findings.extend(of_reason(set, reason, &claims, snapshot));
    }
    findings
}

fn of_reason(
    set: &PoolSetKey,
    reason: Option<&str>,
    claims: &[&UnservedClaim],
    snapshot: &Snapshot,
) -> Option<Finding> {
    let mut subject = subject(set);
    for claim in claims {
        subject = subject.in_namespace(claim.key.namespace());
    }
    let oldest = oldest(claims);
    let Some(reason) = reason else {
        let problem = format!("{} without any condition", claims_wait(claims));
        let finding = || unreconciled(subject, &problem, oldest);
        return is_old(oldest, snapshot.now).then(finding);
    };
    if reason == conditions::PAUSED_REASON {
        return None;
    }
    let waiting = claims_wait(claims);
    let problem = format!("{waiting} with the reason {reason}: {}", messages(claims));
    let (repair, _) = repair_of_other(reason);
    let command = format!("kubectl describe {}", resource_of(set));
    let finding = Check::ClaimsWait.finding(subject, problem, repair);
    Some(finding.with_commands([command]).since(oldest))
}
