//! What sets of pools report.

use capi_ipam_api::conditions;

use super::examination::Examination;
use super::snapshot::Snapshot;
use crate::model::finding::{Check, Finding, Severity, Subject, resource_of_set};
use crate::objects::{Kind, PoolSetRow};

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
        Subject::pool_set(&set.key),
        ready.message(),
        "correct the set, or the pools that the message names",
    );
    let since = ready.last_transition_time.as_ref().map(|time| time.0);
    let command = format!("kubectl edit {}", resource_of_set(&set.key));
    Some(finding.at(severity).with_commands([command]).since(since))
}
