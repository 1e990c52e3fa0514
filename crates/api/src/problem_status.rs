use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::conditions::{self, Condition};

/// The status of an object that a user created: whether it has an effect. Objects of the provider
/// have none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "The observed state of an object that a user created.")]
pub struct ProblemStatus {
    /// Conditions of the object. Ready is False with reason Error if the object has no effect, and
    /// True with reason Validated if it is valid. An object without conditions is valid, or new.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions::list_schema")]
    pub conditions: Vec<Condition>,
}

impl ProblemStatus {
    /// The problem that the status reports.
    pub fn problem(&self) -> Option<&str> {
        let ready = conditions::find(&self.conditions, conditions::READY)?;
        let is_problem = ready.status == "False";
        is_problem.then(|| ready.message())
    }

    /// Whether the status reports that the object has an effect. `None` if it reports neither.
    pub fn is_ready(&self) -> Option<bool> {
        let ready = conditions::find(&self.conditions, conditions::READY)?;
        ready.status.to_lowercase().parse().ok()
    }

    /// The status that an object with this status gets: it reports `problem`, or that there is
    /// none. `generation` is that of the object. Without a problem it is not observed: a claim that
    /// takes a reservation over changes the generation, and not whether it is valid.
    pub fn updated(
        before: Option<&Self>,
        problem: Option<&str>,
        generation: Option<i64>,
        now: Time,
    ) -> Option<Self> {
        let ready = match problem {
            Some(problem) => Condition::new(conditions::READY, false, conditions::ERROR, problem),
            None => Condition::new(conditions::READY, true, conditions::VALIDATED, ""),
        };
        let mut status = before.cloned().unwrap_or_default();
        let ready = ready.with_observed_generation(generation.filter(|_| problem.is_some()));
        conditions::set_ready(&mut status.conditions, ready, now);
        Some(status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Time {
        serde_json::from_value(serde_json::json!("2026-01-01T12:00:00Z")).unwrap()
    }

    fn states(status: Option<&ProblemStatus>) -> Vec<(String, String)> {
        let all = status.into_iter().flat_map(|status| &status.conditions);
        all.map(|one| {
            let reason = one.reason.clone().unwrap_or_default();
            (format!("{}={}", one.type_, one.status), reason.into_owned())
        })
        .collect()
    }

    #[test]
    fn status_reports_a_problem_or_that_there_is_none() {
        let valid = ProblemStatus::updated(None, None, Some(1), now());
        assert_eq!(
            states(valid.as_ref()),
            [("Ready=True".to_owned(), "Validated".to_owned())]
        );
        let is_ready = |status: &Option<ProblemStatus>| status.as_ref()?.is_ready();
        assert_eq!(is_ready(&valid), Some(true));
        assert_eq!(is_ready(&Some(ProblemStatus::default())), None);
        let failed = ProblemStatus::updated(None, Some("spec.block: no"), Some(1), now());
        let problem = failed.as_ref().and_then(ProblemStatus::problem);
        assert_eq!(problem, Some("spec.block: no"));
        assert_eq!(is_ready(&failed), Some(false));
        assert_eq!(
            states(failed.as_ref()),
            [
                ("Ready=False".to_owned(), "Error".to_owned()),
                ("Stalled=True".to_owned(), "Error".to_owned())
            ]
        );
        let again = ProblemStatus::updated(failed.as_ref(), Some("spec.block: no"), Some(1), now());
        assert_eq!(again, failed, "nothing is written twice");
        let corrected = ProblemStatus::updated(failed.as_ref(), None, Some(2), now());
        assert_eq!(
            states(corrected.as_ref()),
            [("Ready=True".to_owned(), "Validated".to_owned())]
        );
        let later = ProblemStatus::updated(corrected.as_ref(), None, Some(3), now());
        assert_eq!(
            later, corrected,
            "nothing is written while nothing is wrong"
        );
    }
}
