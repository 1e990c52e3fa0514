//! Fields of the status of an object that one controller writes. The kind may have others, and the
//! status may be written by other controllers as well.

use capi_ipam_controller::client::{ApiObject, CallError};
use kube::ResourceExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Reads fields from the status of an object; their defaults if it has none, or one that they
/// cannot be read from.
pub(crate) fn read<K: Serialize, S: DeserializeOwned + Default>(object: &K) -> S {
    let mut object = serde_json::to_value(object).unwrap_or_default();
    let status = object.get_mut("status").map(Value::take);
    let fields = status.map(serde_json::from_value);
    fields.and_then(Result::ok).unwrap_or_default()
}

/// Returns the object with these fields in its status. Other fields are kept.
///
/// # Errors
/// If the object or the fields cannot be serialized.
pub(crate) fn with<K: ApiObject, S: Serialize>(object: &K, fields: &S) -> Result<K, CallError> {
    merged(object, fields).map_err(|source| CallError::Serialize {
        operation: format!("patch the status of {}", object.name_any()),
        source,
    })
}

fn merged<K: ApiObject, S: Serialize>(object: &K, fields: &S) -> Result<K, serde_json::Error> {
    let mut object = serde_json::to_value(object)?;
    let mut status = match object.get_mut("status").map(Value::take) {
        Some(Value::Object(status)) => status,
        _ => Map::new(),
    };
    if let Value::Object(wanted) = serde_json::to_value(fields)? {
        status.extend(wanted);
    }
    if let Some(object) = object.as_object_mut() {
        object.insert("status".to_owned(), Value::Object(status));
    }
    serde_json::from_value(object)
}

#[cfg(test)]
mod tests {
    use kube::core::DynamicObject;
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Fields {
        observed_generation: i64,
    }

    #[test]
    fn other_fields_are_kept() {
        let object = |status: Value| -> DynamicObject {
            let object = json!({"metadata": {"name": "a"}, "status": status});
            serde_json::from_value(object).unwrap()
        };
        let before = object(json!({"lastBackup": "today", "observedGeneration": 1}));
        let mut fields: Fields = read(&before);
        assert_eq!(fields.observed_generation, 1);
        fields.observed_generation = 3;
        let after = with(&before, &fields).unwrap();
        let expected = json!({"lastBackup": "today", "observedGeneration": 3});
        assert_eq!(after.data["status"], expected);
        for none in [json!("text"), json!(null), json!({})] {
            assert_eq!(read::<_, Fields>(&object(none)), Fields::default());
        }
    }
}
