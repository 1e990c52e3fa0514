//! `Reconciling` and `Stalled`: the conditions of kstatus, by which Flux, Argo CD and other tools
//! tell an object in progress from one that failed:
//! <https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus>.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Deserializer};

use super::{Condition, DELETING, PAUSED_REASON, remove, set};

/// Condition type, as in kstatus: the object is not ready, and the provider retries. Absent
/// otherwise.
pub const RECONCILING: &str = "Reconciling";

/// Condition type, as in kstatus: the object is not ready before somebody corrects it. Absent
/// otherwise.
pub const STALLED: &str = "Stalled";

/// Reason of an object with an invalid specification.
pub const INVALID_SPEC: &str = "InvalidSpec";

/// Reason of an object whose finalizer or status cannot be written, because the API server rejects
/// it.
pub const INITIALIZATION_FAILED: &str = "InitializationFailed";

/// The observed generation of an object that no controller has processed: the default in the
/// definition of a kind. By the rules of kstatus such an object is in progress.
pub const UNPROCESSED_GENERATION: i64 = -1;

/// Returns `Reconciling` or `Stalled` for an object that is not ready, with the reason and the
/// message of `ready`. An object that is ready, paused or being deleted has neither.
fn progress(ready: &Condition, is_retried: bool) -> Option<Condition> {
    let is_expected = [PAUSED_REASON, DELETING].contains(&ready.reason.as_deref()?);
    if ready.status == "True" || is_expected {
        return None;
    }
    let type_ = if is_retried { RECONCILING } else { STALLED };
    Some(Condition {
        type_: type_.into(),
        status: "True".into(),
        ..ready.clone()
    })
}

/// Sets `Ready`, and `Stalled` if it is False, or `Reconciling` with the reason
/// [`INITIALIZATION_FAILED`]. Returns whether the list changed.
pub fn set_ready(conditions: &mut Vec<Condition>, ready: Condition, now: Time) -> bool {
    let is_retried = ready.reason() == INITIALIZATION_FAILED;
    set_ready_or_retried(conditions, ready, is_retried, now)
}

/// Sets `Ready`, and if it is False `Reconciling` for an object that can become ready although
/// nobody changes it (`is_retried`), else `Stalled`. Returns whether the list changed.
pub fn set_ready_or_retried(
    conditions: &mut Vec<Condition>,
    ready: Condition,
    is_retried: bool,
    now: Time,
) -> bool {
    let progress = progress(&ready, is_retried);
    let mut is_changed = set(conditions, ready, now.clone());
    for absent in [RECONCILING, STALLED] {
        if progress.as_ref().is_none_or(|found| found.type_ != absent) {
            is_changed |= remove(conditions, absent);
        }
    }
    if let Some(progress) = progress {
        is_changed |= set(conditions, progress, now);
    }
    is_changed
}

/// Deserializes an observed generation: `None` if it is [`UNPROCESSED_GENERATION`], and so no
/// controller has written it.
///
/// # Errors
/// If the value is not an integer.
pub fn observed_generation<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<i64>, D::Error> {
    let found = Option::<i64>::deserialize(deserializer)?;
    Ok(found.filter(|generation| *generation != UNPROCESSED_GENERATION))
}

/// Deserializes a status: `None` if it states nothing, such as the default of a definition.
///
/// # Errors
/// If the value is no such status.
pub fn written_status<'de, D, S>(deserializer: D) -> Result<Option<S>, D::Error>
where
    D: Deserializer<'de>,
    S: Deserialize<'de> + Default + PartialEq,
{
    let found = Option::<S>::deserialize(deserializer)?;
    Ok(found.filter(|status| *status != S::default()))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::super::READY;
    use super::*;

    fn now() -> Time {
        Time(Timestamp::from_second(1).unwrap())
    }

    fn types(list: &[Condition]) -> Vec<String> {
        list.iter()
            .map(|condition| format!("{}={}", condition.type_, condition.status))
            .collect()
    }

    #[test]
    fn object_that_is_not_ready_is_stalled_or_retried() {
        let mut list = Vec::new();
        let mut states = |ready, reason| {
            set_ready(
                &mut list,
                Condition::new(READY, ready, reason, "text"),
                now(),
            );
            types(&list)
        };
        assert_eq!(
            states(false, INITIALIZATION_FAILED),
            ["Ready=False", "Reconciling=True"]
        );
        assert_eq!(states(false, INVALID_SPEC), ["Ready=False", "Stalled=True"]);
        for reason in [PAUSED_REASON, DELETING] {
            assert_eq!(states(false, reason), ["Ready=False"]);
        }
        assert_eq!(states(false, INVALID_SPEC).len(), 2);
        assert_eq!(states(true, "NetworkReady"), ["Ready=True"]);
    }

    #[test]
    fn default_of_the_definition_is_no_status() {
        #[derive(Debug, Default, PartialEq, Deserialize)]
        struct Status {
            #[serde(default, deserialize_with = "observed_generation")]
            generation: Option<i64>,
            #[serde(default)]
            count: i64,
        }
        #[derive(Deserialize)]
        struct Object {
            #[serde(default, deserialize_with = "written_status")]
            status: Option<Status>,
        }
        let status = |value| -> Option<Status> {
            let object: Object = serde_json::from_value(value).unwrap();
            object.status
        };
        for unwritten in [
            serde_json::json!({}),
            serde_json::json!({"status": null}),
            serde_json::json!({"status": {}}),
            serde_json::json!({"status": {"generation": -1}}),
        ] {
            assert_eq!(status(unwritten), None);
        }
        let partly = status(serde_json::json!({"status": {"generation": -1, "count": 2}}));
        let expected = Status {
            generation: None,
            count: 2,
        };
        assert_eq!(partly, Some(expected));
    }
}
