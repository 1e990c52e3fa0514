//! What the API server itself refuses: limits, and rules in its expression language (CEL).
//!
//! A cluster whose webhooks are not installed or do not answer refuses most bad objects all the same. Apart from the
//! limits, what is here is never stricter than the validation in [`addr`](capi_ipam_ip). What is not here is left to the
//! webhooks: see [`pools`].
//!
//! They need Kubernetes 1.31, the first version whose expressions can read addresses in definitions.
//!
//! How rules are written:
//!
//! - each hangs on the smallest part of the object that it can be decided on. The API server lets a rule fail whose part
//!   an update does not change ("ratcheting"), so an object that was bad before the rule existed can still be labelled,
//!   reported on and deleted;
//! - what goes through a long list first asks whether it is what it was;
//! - none may fail to evaluate, whatever stands in the object: that is never forgiven. So what cannot be read is passed
//!   over by all rules but the one that says so, fields are looked for before they are read, and lists beyond the limit
//!   are left alone, which would cost more than the API server allows;
//! - texts are taken apart by `substring` and not by `split`: the API server adds up before what a rule can cost at most,
//!   and does not know how long the pieces are. For the same reason numbers are made into texts digit by digit.

pub(super) mod pools;
pub(super) mod reservations;

use serde_json::{json, Map, Value};

use super::CrdError;

/// A rule. It has to hold for one part of an object.
#[derive(Default)]
struct Rule {
    /// The expression; `self` is the part.
    expression: String,
    /// What a refusal says, after the path of the field and its value.
    message: &'static str,
    /// An expression for a better message.
    better_message: Option<String>,
    /// The field within the part that a refusal names.
    field: Option<&'static str>,
    /// What sort of error it is, unless the value is invalid.
    reason: Option<&'static str>,
    /// Whether the rule is also asked when there is no old object, which then is an optional value.
    old_self_is_optional: bool,
}

impl Rule {
    fn new(expression: impl Into<String>, message: &'static str) -> Self {
        Self { expression: expression.into(), message, ..Self::default() }
    }

    /// For a rule that needs more than one field.
    fn of(field: &'static str, expression: impl Into<String>, message: &'static str) -> Self {
        Self { field: Some(field), ..Self::new(expression, message) }
    }

    /// The rule is asked for new objects, too, and its expression uses `oldSelf`.
    fn with_optional_old_self(self) -> Self {
        Self { old_self_is_optional: true, ..self }
    }

    fn to_value(&self) -> Value {
        let mut fields = Map::new();
        let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
        set("rule", json!(self.expression));
        set("message", json!(self.message));
        if let Some(message) = &self.better_message {
            set("messageExpression", json!(message));
        }
        if let Some(field) = self.field {
            set("fieldPath", json!(format!(".{field}")));
        }
        if let Some(reason) = self.reason {
            set("reason", json!(reason));
        }
        if self.old_self_is_optional {
            set("optionalOldSelf", json!(true));
        }
        Value::Object(fields)
    }
}

/// Adds rules to a part of a schema: a path such as `spec.addresses[]`, or nothing for the whole.
fn add(schema: &mut Value, path: &'static str, rules: impl IntoIterator<Item = Rule>) -> Result<(), CrdError> {
    let part = part(schema, path)?;
    let all = part.entry("x-kubernetes-validations").or_insert_with(|| json!([]));
    if let Some(all) = all.as_array_mut() {
        all.extend(rules.into_iter().map(|rule| rule.to_value()));
    }
    Ok(())
}

/// Sets a bound of a part of a schema.
fn limit(schema: &mut Value, path: &'static str, bound: &str, number: usize) -> Result<(), CrdError> {
    part(schema, path)?.insert(bound.to_owned(), json!(number));
    Ok(())
}

fn part<'a>(schema: &'a mut Value, path: &'static str) -> Result<&'a mut Map<String, Value>, CrdError> {
    let pointer: String = path
        .split('.')
        .filter(|name| !name.is_empty())
        .map(|name| match name.strip_suffix("[]") {
            Some(list) => format!("/properties/{list}/items"),
            None => format!("/properties/{name}"),
        })
        .collect();
    schema.pointer_mut(&pointer).and_then(Value::as_object_mut).ok_or(CrdError::NoSuchField { path })
}

/// The text of a number from 0 to 199.
fn decimal(number: &str) -> String {
    let digit = |digit: &str| format!("'0123456789'.substring({digit}, {digit} + 1)");
    let (tens, ones) = (digit(&format!("{number} / 10 % 10")), digit(&format!("{number} % 10")));
    format!("({number} > 99 ? '1' : '') + ({number} > 9 ? {tens} : '') + {ones}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_is_not_there_is_a_mistake() {
        let mut schema = json!({"properties": {"spec": {"properties": {"list": {"items": {}}}}}});
        add(&mut schema, "spec.list[]", [Rule::of("a", "true", "is wrong")]).unwrap();
        let rules = &schema["properties"]["spec"]["properties"]["list"]["items"]["x-kubernetes-validations"];
        assert_eq!(rules, &json!([{"rule": "true", "message": "is wrong", "fieldPath": ".a"}]));
        let error = limit(&mut schema, "spec.lost", "maxLength", 3).unwrap_err();
        assert!(error.to_string().contains("spec.lost"), "{error}");
    }
}
