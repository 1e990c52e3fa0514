//! Validation that the API server performs itself: limits, and validation rules in the Common
//! Expression Language (CEL).
//!
//! Even if the webhooks are not installed or not available, most invalid objects are rejected.
//! Apart from the limits, the rules are never stricter than the validation in [`capi_ipam_ip`]. For
//! what is left to the webhooks, see [`pools`].
//!
//! The rules need Kubernetes 1.31, the first version with the CEL functions for IP addresses in all
//! definitions.
//!
//! Conventions:
//!
//! - A rule is attached to the smallest part of the object that it needs. The API server ignores
//!   failures in parts that an update does not change (validation ratcheting), so an object that
//!   predates a rule can still be labelled, get a status and be deleted.
//! - A rule that iterates over a long list first compares the list with its old value.
//! - A message is complete without the value of the field, which the API server leaves out: it says
//!   what the value must be (`must be an IPv4 or IPv6 address`), or what to write.
//! - A rule must not fail to evaluate for any object, since such an error is not ratcheted.
//!   Therefore only one rule checks that a value can be parsed and the others ignore values that
//!   cannot, presence is checked before access, and lists beyond the limit are not iterated.
//! - Rules use `substring` instead of `split`: the API server estimates the maximum cost of a rule
//!   in advance, and cannot bound the length of the parts that `split` returns.

mod access;
pub(super) mod cluster_addressings;
mod metadata;
pub(super) mod networks;
pub(super) mod pool_sets;
pub(super) mod pools;
pub(super) mod registries;
pub(super) mod registry;
pub(super) mod reservations;
pub(super) mod slices;

use serde_json::{Map, Value, json};

use super::CrdError;

/// A validation rule for one part of an object.
#[derive(Default)]
struct Rule {
    /// The CEL expression; `self` is the part.
    expression: String,
    /// The error message, which follows the path of the field.
    message: &'static str,
    /// The field within the part that the error refers to.
    field: Option<&'static str>,
    /// The reason of the error; by default `FieldValueInvalid`.
    reason: Option<&'static str>,
    /// Whether the rule is also evaluated on create, with `oldSelf` as an optional value.
    optional_old_self: bool,
}

impl Rule {
    fn new(expression: impl Into<String>, message: &'static str) -> Self {
        Self {
            expression: expression.into(),
            message,
            ..Self::default()
        }
    }

    /// Creates a rule that needs more than one field; the error refers to `field`.
    fn of(field: &'static str, expression: impl Into<String>, message: &'static str) -> Self {
        Self {
            field: Some(field),
            ..Self::new(expression, message)
        }
    }

    /// Also evaluates a rule that uses `oldSelf` on create.
    fn with_optional_old_self(self) -> Self {
        Self {
            optional_old_self: true,
            ..self
        }
    }

    fn to_value(&self) -> Value {
        let mut fields = Map::new();
        let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
        set("rule", json!(self.expression));
        set("message", json!(self.message));
        if let Some(field) = self.field {
            set("fieldPath", json!(format!(".{field}")));
        }
        if let Some(reason) = self.reason {
            set("reason", json!(reason));
        }
        if self.optional_old_self {
            set("optionalOldSelf", json!(true));
        }
        Value::Object(fields)
    }
}

/// Adds rules to a part of a schema. The path is for example `spec.addresses[]` for the entries of
/// a list or `spec.labels{}` for the values of a map, or empty for the whole object.
fn add(
    schema: &mut Value,
    path: &'static str,
    rules: impl IntoIterator<Item = Rule>,
) -> Result<(), CrdError> {
    let part = part(schema, path)?;
    let all = part
        .entry("x-kubernetes-validations")
        .or_insert_with(|| json!([]));
    if let Some(all) = all.as_array_mut() {
        all.extend(rules.into_iter().map(|rule| rule.to_value()));
    }
    Ok(())
}

/// Sets a limit, such as `maxItems`, of a part of a schema.
fn limit(
    schema: &mut Value,
    path: &'static str,
    bound: &str,
    number: usize,
) -> Result<(), CrdError> {
    part(schema, path)?.insert(bound.to_owned(), json!(number));
    Ok(())
}

fn part<'a>(
    schema: &'a mut Value,
    path: &'static str,
) -> Result<&'a mut Map<String, Value>, CrdError> {
    let names = path.split('.').filter(|name| !name.is_empty());
    let pointer: String = names.map(pointer_of).collect();
    schema
        .pointer_mut(&pointer)
        .and_then(Value::as_object_mut)
        .ok_or(CrdError::UnknownField { path })
}

/// The JSON pointer of a field, of the entries of a list, or of the values of a map.
fn pointer_of(name: &str) -> String {
    match (name.strip_suffix("[]"), name.strip_suffix("{}")) {
        (Some(list), _) => format!("{}/items", pointer_of(list)),
        (None, Some(map)) => format!("{}/additionalProperties", pointer_of(map)),
        (None, None) => format!("/properties/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages of all rules in a schema.
    fn messages(schema: &Value, found: &mut Vec<String>) {
        if let Some(rules) = schema["x-kubernetes-validations"].as_array() {
            let texts = rules.iter().filter_map(|rule| rule["message"].as_str());
            found.extend(texts.map(str::to_owned));
        }
        match schema {
            Value::Object(fields) => fields.values().for_each(|field| messages(field, found)),
            Value::Array(items) => items.iter().for_each(|item| messages(item, found)),
            _ => {}
        }
    }

    #[test]
    fn messages_are_complete_without_the_value() {
        let mut found = Vec::new();
        for definition in crate::crds::all().unwrap() {
            messages(&serde_json::to_value(&definition).unwrap(), &mut found);
        }
        assert!(found.len() > 100, "{}", found.len());
        let predicate = |text: &String| {
            ["is ", "has ", "ends ", "cannot "]
                .iter()
                .any(|start| text.starts_with(start))
        };
        found.retain(predicate);
        assert_eq!(found, [""; 0], "say what the value must be");
    }

    #[test]
    fn unknown_field_is_an_error() {
        let mut schema = json!({"properties": {"spec": {"properties": {"list": {"items": {}}}}}});
        add(
            &mut schema,
            "spec.list[]",
            [Rule::of("a", "true", "is wrong")],
        )
        .unwrap();
        let rules = &schema["properties"]["spec"]["properties"]["list"]["items"]["x-kubernetes-validations"];
        assert_eq!(
            rules,
            &json!([{"rule": "true", "message": "is wrong", "fieldPath": ".a"}])
        );
        let error = limit(&mut schema, "spec.lost", "maxLength", 3).unwrap_err();
        assert!(error.to_string().contains("spec.lost"), "{error}");
    }
}
