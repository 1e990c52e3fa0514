//! Whether an object on which others depend is ready.

use std::time::Duration;

use kube::Resource;
use serde::Serialize;
use serde_json::Value;

use crate::namespaced_name::NamespacedName;

/// The delay before a dependency that is not ready is checked again. A watch of it triggers the
/// reconcile earlier.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// An object is not ready. This is no failure: its dependents wait.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{object} is not ready: {reason}")]
pub struct NotReady {
    /// The name of the object, with its namespace.
    pub object: String,
    /// Why, for users.
    pub reason: String,
}

impl NotReady {
    /// How long to wait until the object is read again: the same time after any number of attempts.
    pub fn delay(&self) -> Duration {
        RETRY_DELAY
    }
}

/// Requires that an object has the condition `Ready=True` for its present generation, as in
/// `metav1.Condition`. A condition without `observedGeneration` has that of the status; an object
/// without both does not say, and its condition counts.
///
/// # Errors
/// If the condition is missing, not True, or that of an earlier generation.
pub fn require<K: Resource + Serialize>(object: &K) -> Result<(), NotReady> {
    let metadata = object.meta();
    // An object that cannot be serialized shows no condition.
    let value = serde_json::to_value(object).unwrap_or_default();
    check(field(&value, "status"), metadata.generation).map_err(|reason| {
        let object = NamespacedName::of(metadata).to_string();
        NotReady { object, reason }
    })
}

/// A field of an object; null if there is none.
fn field<'a>(value: &'a Value, name: &str) -> &'a Value {
    value.get(name).unwrap_or(&Value::Null)
}

fn check(status: &Value, generation: Option<i64>) -> Result<(), String> {
    let conditions = field(status, "conditions").as_array();
    let is_ready = |condition: &&Value| field(condition, "type") == "Ready";
    let Some(ready) = conditions.and_then(|all| all.iter().find(is_ready)) else {
        return Err("it has no condition Ready".to_owned());
    };
    let observed_by = |value| field(value, "observedGeneration").as_i64();
    let observed = observed_by(ready).or_else(|| observed_by(status));
    if let (Some(observed), Some(generation)) = (observed, generation)
        && observed < generation
    {
        return Err(format!(
            "its controller has not observed generation {generation} yet"
        ));
    }
    if field(ready, "status") == "True" {
        return Ok(());
    }
    let text = |name| field(ready, name).as_str().filter(|text| !text.is_empty());
    let reason = text("reason").unwrap_or("Unknown");
    Err(match text("message") {
        Some(message) => format!("{reason}: {message}"),
        None => reason.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use kube::core::DynamicObject;
    use serde_json::json;

    use super::*;

    fn require_status(status: &Value) -> Result<(), NotReady> {
        let object = json!({
            "apiVersion": "example.com/v1", "kind": "Registry", "status": status,
            "metadata": {"namespace": "team", "name": "west", "generation": 3},
        });
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        require(&object)
    }

    #[test]
    fn ready_is_required_for_the_present_generation() {
        let ready =
            |observed| json!({"type": "Ready", "status": "True", "observedGeneration": observed});
        let old = json!({"type": "Ready", "status": "True"});
        let failed =
            json!({"type": "Ready", "status": "False", "reason": "Failed", "message": "no answer"});
        let behind = "its controller has not observed generation 3 yet";
        for (status, expected) in [
            (json!(null), Err("it has no condition Ready")),
            (json!({"conditions": [ready(3)]}), Ok(())),
            (json!({"conditions": [ready(4)]}), Ok(())),
            (json!({"conditions": [ready(2)]}), Err(behind)),
            (
                json!({"conditions": [old], "observedGeneration": 2}),
                Err(behind),
            ),
            (json!({"conditions": [old]}), Ok(())),
            (json!({"conditions": [failed]}), Err("Failed: no answer")),
        ] {
            let expected = expected.map_err(|reason| NotReady {
                object: "team/west".to_owned(),
                reason: reason.to_owned(),
            });
            assert_eq!(require_status(&status), expected, "{status}");
        }
    }
}
