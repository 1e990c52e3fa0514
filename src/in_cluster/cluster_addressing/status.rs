//! The status of a ClusterAddressing.

use std::time::Duration;

use capi_ipam_api::conditions::{self, Condition};
use capi_ipam_api::{ClusterAddressing, ClusterAddressingStatus, ClusterProblem, counted};
use capi_ipam_controller::client::CallError;
use capi_ipam_controller::clock;
use capi_ipam_provider::advanced::StatusWrite;
use kube::ResourceExt;
use kube::core::Selector;

use super::{AddressingReconciler, Outcome};

/// The maximum number of problems that a status lists.
const MAX_PROBLEMS: usize = 50;
/// The maximum number of problems that the message of a condition has.
const MAX_NAMED: usize = 3;

/// The selector of the Clusters.
///
/// # Errors
/// What is wrong with the specification.
pub(super) fn validated(addressing: &ClusterAddressing) -> Result<Selector, String> {
    let problems = addressing.problems();
    let mut texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    match addressing.spec.selector() {
        Ok(selector) if texts.is_empty() => return Ok(selector),
        Ok(_) => {}
        Err(problem) => texts.push(problem.to_string()),
    }
    Err(texts.join("; "))
}

/// The status after the selected Clusters were processed; `Err` if the specification is not valid.
/// `kept` is the number of claims.
pub(super) fn status(
    addressing: &ClusterAddressing,
    outcomes: &Result<&[Outcome], String>,
    kept: usize,
) -> ClusterAddressingStatus {
    let generation = addressing.metadata.generation;
    let before = addressing.status.clone().unwrap_or_default();
    let known = outcomes.as_ref().copied().unwrap_or_default();
    let mut list = before.conditions.clone();
    let ready = ready(addressing, outcomes, kept).with_observed_generation(generation);
    conditions::set_ready(&mut list, ready, clock::now());
    let is_known = outcomes.is_ok() && addressing.metadata.deletion_timestamp.is_none();
    if is_known {
        let drifted = drifted(known).with_observed_generation(generation);
        conditions::set(&mut list, drifted, clock::now());
    }
    let problem = |outcome: &Outcome| {
        outcome.problem.as_ref().map(|problem| ClusterProblem {
            cluster: outcome.cluster.clone(),
            reason: problem.reason.clone(),
            message: problem.message.clone(),
        })
    };
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let mut status = ClusterAddressingStatus {
        observed_generation: generation,
        conditions: list,
        ..before
    };
    if is_known {
        status.clusters = count(known.len());
        status.ready = count(known.iter().filter(|outcome| outcome.is_ready).count());
        status.problems = known
            .iter()
            .filter_map(problem)
            .take(MAX_PROBLEMS)
            .collect();
    }
    status
}

fn ready(
    addressing: &ClusterAddressing,
    outcomes: &Result<&[Outcome], String>,
    kept: usize,
) -> Condition {
    let not_ready = |reason, message| Condition::new(conditions::READY, false, reason, message);
    if addressing.metadata.deletion_timestamp.is_some() {
        let message = format!(
            "waiting for {} until their Clusters are deleted",
            counted(kept, "IPAddressClaim", "IPAddressClaims")
        );
        return not_ready(conditions::DELETING, message);
    }
    let outcomes = match outcomes {
        Ok(outcomes) => outcomes,
        Err(problem) => return not_ready(conditions::INVALID_SPEC, problem.clone()),
    };
    let waiting: Vec<&Outcome> = outcomes.iter().filter(|it| !it.is_ready).collect();
    if waiting.is_empty() {
        let message = match outcomes.len() {
            0 => "no Cluster is selected".to_owned(),
            count => format!("{} with addresses", counted(count, "Cluster", "Clusters")),
        };
        return Condition::new(
            conditions::READY,
            true,
            conditions::ADDRESSES_READY,
            message,
        );
    }
    let is_expected = |it: &&Outcome| {
        it.has_reason(conditions::ADDRESSES_PENDING) || it.has_reason(conditions::PAUSED_REASON)
    };
    let reason = if waiting.iter().all(is_expected) {
        conditions::ADDRESSES_PENDING
    } else {
        conditions::DELIVERY_FAILED
    };
    let message = format!("not ready: {}", named(&waiting));
    not_ready(reason, message)
}

fn drifted(outcomes: &[Outcome]) -> Condition {
    let changed: Vec<&Outcome> = outcomes
        .iter()
        .filter(|it| {
            it.has_reason(conditions::ADDRESS_CHANGED) || it.has_reason(conditions::CLAIM_MISSING)
        })
        .collect();
    if changed.is_empty() {
        return Condition::new(
            conditions::DRIFTED,
            false,
            conditions::ADDRESSES_UNCHANGED,
            "",
        );
    }
    let message = named(&changed);
    Condition::new(
        conditions::DRIFTED,
        true,
        conditions::ADDRESS_CHANGED,
        message,
    )
}

/// The first Clusters with their problems, and the number of the others.
fn named(outcomes: &[&Outcome]) -> String {
    let describe = |outcome: &&Outcome| {
        let problem = outcome.problem.as_ref();
        let message = problem.map(|problem| problem.message.as_str());
        format!(
            "Cluster {}: {}",
            outcome.cluster,
            message.unwrap_or_default()
        )
    };
    let texts: Vec<String> = outcomes.iter().take(MAX_NAMED).map(describe).collect();
    let others = outcomes.len().saturating_sub(texts.len());
    let text = texts.join("; ");
    match others {
        0 => text,
        others => format!("{text}; and {others} more, see status.problems"),
    }
}

pub(super) fn conditions_of(addressing: &ClusterAddressing) -> Vec<Condition> {
    let status = addressing.status.as_ref();
    status
        .map(|status| status.conditions.clone())
        .unwrap_or_default()
}

/// Whether a condition reports a problem: a transition to it is reported by a warning.
pub(super) fn is_warning(condition: &Condition) -> bool {
    let reason = condition.reason();
    match &*condition.type_ {
        conditions::READY => {
            let is_expected =
                [conditions::DELETING, conditions::ADDRESSES_PENDING].contains(&reason);
            condition.status == "False" && !is_expected
        }
        conditions::DRIFTED => condition.status == "True",
        _ => false,
    }
}

impl AddressingReconciler {
    /// Writes the status. Returns how long the write has to wait, if it was not sent.
    pub(super) async fn write_status(
        &self,
        addressing: &ClusterAddressing,
        status: ClusterAddressingStatus,
    ) -> Result<Option<Duration>, CallError> {
        if addressing.status.as_ref() == Some(&status) {
            return Ok(None);
        }
        let mut wanted = addressing.clone();
        wanted.status = Some(status);
        let client = self.addressings(&addressing.namespace().unwrap_or_default());
        let write = self
            .status_writer
            .write_limited(&client, addressing, &wanted);
        Ok(match write.await? {
            StatusWrite::Delayed(delay) => Some(delay),
            StatusWrite::Unchanged | StatusWrite::Written(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn addressing() -> ClusterAddressing {
        serde_json::from_value(json!({
            "metadata": {"name": "bonn", "namespace": "n"}, "spec": {"clusterSelector": {}, "items": []}}))
        .unwrap()
    }

    fn outcome(is_ready: bool, reason: &str) -> Outcome {
        Outcome {
            cluster: "alpha".to_owned(),
            is_ready,
            problem: Some(super::super::Problem::new(reason, "why")),
            retry: None,
        }
    }

    fn state_of(status: &ClusterAddressingStatus, type_: &str) -> (String, String) {
        let found = conditions::find(&status.conditions, type_).unwrap();
        let reason = found.reason();
        (found.status.to_string(), reason.to_owned())
    }

    #[test]
    fn cluster_without_its_claim_is_not_ready() {
        let outcomes = [outcome(false, conditions::CLAIM_MISSING)];
        let status = status(&addressing(), &Ok(&outcomes), 0);
        assert_eq!((status.clusters, status.ready), (1, 0));
        let ready = state_of(&status, conditions::READY);
        assert_eq!(
            ready,
            ("False".to_owned(), conditions::DELIVERY_FAILED.to_owned())
        );
        assert_eq!(state_of(&status, conditions::DRIFTED).0, "True");
    }

    #[test]
    fn drift_is_kept_while_the_specification_is_invalid() {
        let mut addressing = addressing();
        let outcomes = [outcome(true, conditions::ADDRESS_CHANGED)];
        addressing.status = Some(status(&addressing, &Ok(&outcomes), 0));
        let status = status(&addressing, &Err("spec.items: wrong".to_owned()), 0);
        assert_eq!(
            state_of(&status, conditions::READY).1,
            conditions::INVALID_SPEC
        );
        assert_eq!(state_of(&status, conditions::DRIFTED).0, "True");
        assert_eq!(status.problems.len(), 1);
    }
}
