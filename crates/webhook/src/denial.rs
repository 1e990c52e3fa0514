//! Denials of admission requests, with the messages and details of the validation errors of Kubernetes.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

/// Length to which quoted values are truncated, in characters.
const MAX_QUOTED_LENGTH: usize = 256;

/// A denied admission request, in the form of a Kubernetes `Status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Denial {
    /// HTTP status code, 400 or greater.
    pub code: u16,
    /// The reason in CamelCase, such as `Invalid`.
    pub reason: &'static str,
    /// The message for users.
    pub message: String,
    /// API group of the object; may be empty.
    pub group: String,
    /// Kind of the object; may be empty.
    pub kind: String,
    /// Name of the object; may be empty.
    pub name: String,
    /// The errors of single fields.
    pub causes: Vec<FieldError>,
    /// Seconds after which a retry may succeed. Clients such as kubectl then retry automatically.
    pub retry_after: Option<u32>,
    /// Warnings that clients show in addition to the error.
    pub warnings: Vec<String>,
}

/// The error of one field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldError {
    /// The reason in CamelCase, such as `FieldValueInvalid`.
    pub reason: &'static str,
    /// The message, without the path of the field.
    pub message: String,
    /// The path of the field, such as `spec.ranges[2]`.
    pub field: String,
}

impl FieldError {
    /// The value of the field is invalid.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: impl fmt::Display) -> Self {
        let message = format!("Invalid value: {}: {detail}", quoted(value));
        Self { reason: "FieldValueInvalid", message, field: field.into() }
    }

    /// The field is required and has no value.
    pub fn required(field: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self { reason: "FieldValueRequired", message: format!("Required value: {detail}"), field: field.into() }
    }

    /// The value occurs more than once in a list.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        let message = format!("Duplicate value: {}", quoted(value));
        Self { reason: "FieldValueDuplicate", message, field: field.into() }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl Denial {
    /// The object is invalid: 422.
    pub fn invalid(
        group: impl Into<String>,
        kind: impl Into<String>,
        name: impl Into<String>,
        causes: Vec<FieldError>,
    ) -> Self {
        let (group, kind, name) = (group.into(), kind.into(), name.into());
        let mut texts: Vec<String> = Vec::new();
        for text in causes.iter().map(ToString::to_string) {
            // As in Go, a repeated message occurs once.
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let dot = if group.is_empty() { "" } else { "." };
        let mut message = format!("{kind}{dot}{group} {name:?} is invalid");
        match texts.as_slice() {
            [] => {}
            [one] => message = format!("{message}: {one}"),
            several => message = format!("{message}: [{}]", several.join(", ")),
        }
        Self { code: 422, reason: "Invalid", message, group, kind, name, causes, ..Self::default() }
    }

    /// The request is wrong: 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self { code: 400, reason: "BadRequest", message: message.into(), ..Self::default() }
    }

    /// The validator cannot decide now, and the client should retry: 503.
    pub fn unavailable(message: impl Into<String>) -> Self {
        let (code, reason) = (503, "ServiceUnavailable");
        Self { code, reason, message: message.into(), retry_after: Some(1), ..Self::default() }
    }

    /// The validator has a bug: 500.
    pub fn internal(message: impl Into<String>) -> Self {
        Self { code: 500, reason: "InternalError", message: message.into(), ..Self::default() }
    }
}

fn quoted(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(MAX_QUOTED_LENGTH) {
        None => text,
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn message_has_the_format_of_kubernetes() {
        let message = |group, causes| Denial::invalid(group, "Thing", "a", causes).message;
        let size = FieldError::invalid("spec.size", &json!(-1), "must not be negative");
        let name = FieldError::required("spec.name", "it identifies the object");
        assert_eq!(
            message("example.com", vec![size.clone()]),
            "Thing.example.com \"a\" is invalid: spec.size: Invalid value: -1: must not be negative"
        );
        assert_eq!(
            message("", vec![size.clone(), name, size]),
            "Thing \"a\" is invalid: [spec.size: Invalid value: -1: must not be negative, \
             spec.name: Required value: it identifies the object]"
        );
        assert_eq!(message("x", vec![]), "Thing.x \"a\" is invalid");
    }

    #[test]
    fn field_errors_quote_the_value() {
        let cause = FieldError::invalid("f", &json!("a\"b"), "no quotes");
        assert_eq!(cause.message, r#"Invalid value: "a\"b": no quotes"#);
        assert_eq!(FieldError::duplicate("f[1]", &json!("x")).to_string(), "f[1]: Duplicate value: \"x\"");
        let long = FieldError::invalid("f", &json!("ä".repeat(1000)), "too long").message;
        assert!(long.chars().count() < 300 && long.ends_with("…: too long"), "{long}");
    }
}
