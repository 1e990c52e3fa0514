//! Status fields that the API server does not store.
//!
//! An API server removes the fields that the served schema does not have ("pruning"): of a
//! definition that is older than the program, or of a newer one that dropped a deprecated field.
//! The object that it returns lacks them, so the difference from the wanted status never becomes
//! empty, and each reconcile would send a write that changes nothing. Such fields are therefore
//! learned from the response to a write, and left out for some time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;

/// How long a field is left out. After that it is written once more, since its definition may have
/// been upgraded.
const RELEARN_INTERVAL: Duration = Duration::from_mins(10);
/// Maximum number of fields that are kept: keys of a map count as fields.
const MAX_FIELDS: usize = 64;

/// One step of the path to a field.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// A field of an object.
    Field(String),
    /// All items of a list.
    Items,
}

type Path = Vec<Step>;

/// The status fields of one kind that the API server does not store, because the served schema does
/// not have them. Cheap to clone; clones share what they learn.
#[derive(Clone, Debug, Default)]
pub struct PrunedFields(Arc<Mutex<HashMap<Path, Instant>>>);

impl PrunedFields {
    /// Learns from a write: `wanted` is the status that was sent, `stored` the one of the response.
    pub(crate) fn learn(&self, wanted: &Value, stored: &Value, now: Instant) {
        let mut found = Vec::new();
        find_missing(wanted, stored, &mut Vec::new(), &mut found);
        if found.is_empty() {
            return;
        }
        let mut known = self.0.lock();
        known.retain(|_, until| now < *until);
        for path in found {
            if known.len() < MAX_FIELDS {
                known.insert(path, now + RELEARN_INTERVAL);
            }
        }
    }

    /// Removes the fields that are not stored from a status, except those that it had `before`.
    /// Returns whether it removed one.
    pub(crate) fn remove_from(
        &self,
        status: &mut Value,
        before: Option<&Value>,
        now: Instant,
    ) -> bool {
        let known = self.0.lock();
        let mut is_changed = false;
        for (path, until) in known.iter() {
            if now < *until {
                is_changed |= remove(status, before, path);
            }
        }
        is_changed
    }
}

/// Adds the paths of the fields that `wanted` has and `stored` does not have.
fn find_missing(wanted: &Value, stored: &Value, path: &mut Path, found: &mut Vec<Path>) {
    match (wanted, stored) {
        (Value::Object(wanted), Value::Object(stored)) => {
            for (name, value) in wanted.iter().filter(|(_, value)| !value.is_null()) {
                path.push(Step::Field(name.clone()));
                match stored.get(name) {
                    Some(stored) => find_missing(value, stored, path, found),
                    None => found.push(path.clone()),
                }
                path.pop();
            }
        }
        // A list of another length was changed by another writer, such as a webhook: its items do
        // not correspond.
        (Value::Array(wanted), Value::Array(stored)) if wanted.len() == stored.len() => {
            path.push(Step::Items);
            for (value, stored) in wanted.iter().zip(stored) {
                find_missing(value, stored, path, found);
            }
            path.pop();
        }
        _ => {}
    }
}

/// Removes the field at a path from `value`, unless `before` has it. Returns whether it was
/// removed.
fn remove(value: &mut Value, before: Option<&Value>, path: &[Step]) -> bool {
    let Some((first, rest)) = path.split_first() else {
        return false;
    };
    let mut is_removed = false;
    match (value, first) {
        (Value::Array(items), Step::Items) => {
            for (index, item) in items.iter_mut().enumerate() {
                is_removed |= remove(item, before.and_then(|before| before.get(index)), rest);
            }
        }
        (Value::Object(fields), Step::Field(name)) => {
            let before = before.and_then(|before| before.get(name));
            if !rest.is_empty() {
                is_removed = fields
                    .get_mut(name)
                    .is_some_and(|inner| remove(inner, before, rest));
            } else if before.is_none() {
                is_removed = fields.remove(name).is_some();
            }
        }
        _ => {}
    }
    is_removed
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn field_that_is_not_stored_is_left_out_for_a_time() {
        let (fields, now) = (PrunedFields::default(), Instant::now());
        let wanted = json!({"ready": true, "old": {"list": [1]}, "items": [{"a": 1, "b": 2}, {"a": 3, "b": 4}]});
        let stored = json!({"ready": true, "items": [{"a": 1}, {"a": 3}]});
        let cleaned = |now| {
            let mut status = wanted.clone();
            fields.remove_from(&mut status, Some(&stored), now);
            status
        };
        assert_eq!(cleaned(now), wanted, "nothing is known yet");
        fields.learn(&wanted, &stored, now);
        assert_eq!(cleaned(now), stored);
        assert_eq!(
            cleaned(now + RELEARN_INTERVAL),
            wanted,
            "the definition may have been upgraded"
        );
    }

    #[test]
    fn field_that_an_object_has_is_kept() {
        let (fields, now) = (PrunedFields::default(), Instant::now());
        fields.learn(&json!({"a": 1, "b": {"c": 1}}), &json!({"b": {}}), now);
        let mut status = json!({"a": 2, "b": {"c": 2}});
        assert!(fields.remove_from(&mut status, Some(&json!({"a": 1, "b": {}})), now));
        assert_eq!(status, json!({"a": 2, "b": {}}));
    }

    #[test]
    fn changed_values_are_not_learned() {
        let (fields, now) = (PrunedFields::default(), Instant::now());
        for (wanted, stored) in [
            (json!({"a": 1, "b": null}), json!({"a": 2})),
            (json!({"a": [{"b": 1}, {"b": 2}]}), json!({"a": [{}]})),
            (json!({"a": 1}), json!(null)),
        ] {
            fields.learn(&wanted, &stored, now);
            let mut status = wanted.clone();
            assert!(!fields.remove_from(&mut status, None, now), "{wanted}");
        }
    }

    #[test]
    fn number_of_fields_is_bounded() {
        let (fields, now) = (PrunedFields::default(), Instant::now());
        let many: serde_json::Map<String, Value> = (0..1000)
            .map(|number| (format!("f{number}"), json!(1)))
            .collect();
        fields.learn(&Value::Object(many), &json!({}), now);
        assert_eq!(fields.0.lock().len(), MAX_FIELDS);
    }
}
