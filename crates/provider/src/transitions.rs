//! The log and the events of what changes in the conditions of pools and networks: one line for
//! each change of a status or reason, and none while nothing changes.

use std::fmt::Display;

use capi_ipam_controller::client::{CallError, error_chain};
use capi_ipam_controller::controller::{Attempt, Conflicts};
use capi_ipam_controller::events::EventPublisher;
use kube::Resource;
use tracing::{info, warn};

use crate::api::conditions::{self, Condition};

/// The change of one condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Transition<'a> {
    type_: &'a str,
    /// The status before and after; `None` without the condition.
    from: Option<&'a str>,
    to: Option<&'a str>,
    reason: &'a str,
    details: &'a str,
}

/// Logs what has changed between two lists of conditions. `is_warning` decides whether a condition
/// reports a problem.
pub fn log_transitions(
    object: &dyn Display,
    before: &[Condition],
    after: &[Condition],
    is_warning: impl Fn(&Condition) -> bool,
) {
    for transition in transitions(before, after) {
        let Transition {
            type_,
            from,
            to,
            reason,
            details,
        } = transition;
        let is_problem = conditions::find(after, type_).is_some_and(&is_warning);
        if is_problem {
            warn!(%object, condition = type_, from, to, reason, details, "condition changed");
        } else {
            info!(%object, condition = type_, from, to, reason, details, "condition changed");
        }
    }
}

/// The conditions in `after` whose status or reason differs from that in `before`.
pub fn changed_conditions(before: &[Condition], after: &[Condition]) -> Vec<Condition> {
    let is_unchanged = |condition: &Condition| {
        let present = conditions::find(before, &condition.type_);
        present.is_some_and(|present| {
            (&present.status, &present.reason) == (&condition.status, &condition.reason)
        })
    };
    let changed = after.iter().filter(|condition| !is_unchanged(condition));
    changed.cloned().collect()
}

/// Publishes a warning event for each condition that has changed and reports a problem.
pub fn publish_warnings<K: Resource>(
    events: &EventPublisher,
    object: &K,
    version: &K::DynamicType,
    changed: &[Condition],
    is_warning: impl Fn(&Condition) -> bool,
) {
    for condition in changed.iter().filter(|condition| is_warning(condition)) {
        let reason = condition.reason.as_deref().unwrap_or_default();
        let message = condition.message.as_deref().unwrap_or_default();
        events.warning(object, version, reason, "Inspect", message);
    }
}

/// Publishes a warning event if the API server rejects the status of an object lastingly: then the
/// conditions cannot report it. Called with the error of each attempt at the object.
pub fn publish_rejected_status<K: Resource>(
    events: &EventPublisher,
    object: &K,
    version: &K::DynamicType,
    error: &CallError,
    attempt: &Attempt<Conflicts>,
) {
    let is_rejected = error.is_forbidden() || error.is_invalid() || error.is_conflict();
    if !is_rejected || !attempt.begins_to_be_rejected_lastingly() {
        return;
    }
    let error = error_chain(error);
    let note = format!("cannot write the object or its status, will retry: {error}");
    let reason = conditions::INITIALIZATION_FAILED;
    events.warning(object, version, reason, "Inspect", &note);
}

fn transitions<'a>(before: &'a [Condition], after: &'a [Condition]) -> Vec<Transition<'a>> {
    let changed = after.iter().filter_map(|condition| {
        let present = conditions::find(before, &condition.type_);
        is_news(present, condition).then(|| Transition {
            type_: &condition.type_,
            from: present.map(|present| present.status.as_ref()),
            to: Some(condition.status.as_ref()),
            reason: condition.reason.as_deref().unwrap_or_default(),
            details: condition.message.as_deref().unwrap_or_default(),
        })
    });
    let is_removed = |condition: &&Condition| {
        condition.status == "True" && conditions::find(after, &condition.type_).is_none()
    };
    let removed = before
        .iter()
        .filter(is_removed)
        .map(|condition| Transition {
            type_: &condition.type_,
            from: Some(condition.status.as_ref()),
            to: None,
            reason: "",
            details: "",
        });
    let repeats_ready =
        |it: &Transition<'_>| [conditions::RECONCILING, conditions::STALLED].contains(&it.type_);
    changed
        .chain(removed)
        .filter(|transition| !repeats_ready(transition))
        .collect()
}

/// Whether a condition is news. That a new object has no problem is none.
fn is_news(before: Option<&Condition>, after: &Condition) -> bool {
    match before {
        Some(before) => (&before.status, &before.reason) != (&after.status, &after.reason),
        None => after.type_ == conditions::READY || after.status == "True",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(conditions: &[(&'static str, bool, &'static str)]) -> Vec<Condition> {
        let condition =
            |(type_, status, reason): &(&'static str, bool, &'static str)| -> Condition {
                Condition::new(type_, *status, reason, "text")
            };
        conditions.iter().map(condition).collect()
    }

    fn changes(before: &[Condition], after: &[Condition]) -> Vec<String> {
        let text = |it: Transition<'_>| {
            let (from, to) = (it.from.unwrap_or("-"), it.to.unwrap_or("-"));
            format!("{} {from} {to} {}", it.type_, it.reason)
        };
        transitions(before, after).into_iter().map(text).collect()
    }

    #[test]
    fn each_change_of_a_condition_is_one_line() {
        let free = list(&[
            ("Ready", true, "PoolReady"),
            ("Exhausted", false, "AddressesFree"),
            ("Overlapping", false, "NoOverlap"),
        ]);
        let full = list(&[
            ("Ready", true, "PoolReady"),
            ("Exhausted", true, "NoFreeAddress"),
            ("Overlapping", false, "NoOverlap"),
        ]);
        assert_eq!(changes(&[], &free), ["Ready - True PoolReady"]);
        assert_eq!(changes(&free, &free), [""; 0]);
        assert_eq!(
            changes(&free, &full),
            ["Exhausted False True NoFreeAddress"]
        );
        assert_eq!(
            changes(&full, &free),
            ["Exhausted True False AddressesFree"]
        );
    }

    #[test]
    fn conditions_that_repeat_ready_are_no_lines() {
        let ready = list(&[
            ("Ready", true, "PoolReady"),
            ("OverLimit", true, "LimitsExceeded"),
        ]);
        let invalid = list(&[
            ("Ready", false, "InvalidSpec"),
            ("Stalled", true, "InvalidSpec"),
        ]);
        assert_eq!(
            changes(&ready, &invalid),
            ["Ready True False InvalidSpec", "OverLimit True - "]
        );
        let other = list(&[("Ready", false, "NetworkNotFound")]);
        assert_eq!(
            changes(&invalid, &other),
            ["Ready False False NetworkNotFound"]
        );
    }
}
