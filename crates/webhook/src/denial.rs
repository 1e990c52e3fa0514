//! Why an object may not be written, in the words and with the details that Kubernetes itself uses.

use std::fmt;

use serde::Serialize;
use serde_json::Value;

/// Longer values are cut when they are quoted.
const MOST_QUOTED: usize = 256;

/// Why an object may not be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Denial {
    /// HTTP status code, from 400 on.
    pub code: u16,
    /// The code in a word, such as `Invalid`.
    pub reason: &'static str,
    /// The whole text for people.
    pub message: String,
    /// API group of the object, or empty.
    pub group: String,
    /// Kind of the object, or empty.
    pub kind: String,
    /// Name of the object, or empty.
    pub name: String,
    /// What is wrong, field by field.
    pub causes: Vec<FieldError>,
    /// After how many seconds to try again, when that makes sense. Clients such as kubectl do so by themselves.
    pub retry_after: Option<u32>,
    /// Texts that are shown beside the refusal.
    pub warnings: Vec<String>,
}

/// What is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldError {
    /// What is wrong in one word, such as `FieldValueInvalid`.
    pub reason: &'static str,
    /// What is wrong, without the name of the field.
    pub message: String,
    /// The path of the field, such as `spec.ranges[2]`.
    pub field: String,
}

impl FieldError {
    /// The value of the field is wrong.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: impl fmt::Display) -> Self {
        let message = format!("Invalid value: {}: {detail}", quoted(value));
        Self { reason: "FieldValueInvalid", message, field: field.into() }
    }

    /// The field has no value and needs one.
    pub fn required(field: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self { reason: "FieldValueRequired", message: format!("Required value: {detail}"), field: field.into() }
    }

    /// The field must not have this value now, though it may be right in itself.
    pub fn forbidden(field: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self { reason: "FieldValueForbidden", message: format!("Forbidden: {detail}"), field: field.into() }
    }

    /// The value is there twice.
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
    /// The object is wrong: 422.
    pub fn invalid(
        group: impl Into<String>,
        kind: impl Into<String>,
        name: impl Into<String>,
        causes: Vec<FieldError>,
    ) -> Self {
        let (group, kind, name) = (group.into(), kind.into(), name.into());
        let mut texts: Vec<String> = Vec::new();
        for text in causes.iter().map(ToString::to_string) {
            // As in Go, nothing is said twice.
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

    /// The request cannot be understood: 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self { code: 400, reason: "BadRequest", message: message.into(), ..Self::default() }
    }

    /// It is right as it stands, and not allowed: 403.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self { code: 403, reason: "Forbidden", message: message.into(), ..Self::default() }
    }

    /// It cannot be decided now; whoever asks should try again: 503.
    pub fn unavailable(message: impl Into<String>) -> Self {
        let (code, reason) = (503, "ServiceUnavailable");
        Self { code, reason, message: message.into(), retry_after: Some(1), ..Self::default() }
    }

    /// The code that should decide has a bug: 500.
    pub fn internal(message: impl Into<String>) -> Self {
        Self { code: 500, reason: "InternalError", message: message.into(), ..Self::default() }
    }
}

fn quoted(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(MOST_QUOTED) {
        None => text,
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_text_is_that_of_kubernetes() {
        let refused = |group, causes| Denial::invalid(group, "Thing", "a", causes).message;
        let size = FieldError::invalid("spec.size", &json!(-1), "must not be negative");
        let name = FieldError::required("spec.name", "it is how things are told apart");
        assert_eq!(
            refused("example.com", vec![size.clone()]),
            "Thing.example.com \"a\" is invalid: spec.size: Invalid value: -1: must not be negative"
        );
        assert_eq!(
            refused("", vec![size.clone(), name, size]),
            "Thing \"a\" is invalid: [spec.size: Invalid value: -1: must not be negative, \
             spec.name: Required value: it is how things are told apart]"
        );
        assert_eq!(refused("x", vec![]), "Thing.x \"a\" is invalid");
    }

    #[test]
    fn causes_name_what_is_wrong() {
        let cause = FieldError::invalid("f", &json!("a\"b"), "no quotes");
        assert_eq!(cause.message, r#"Invalid value: "a\"b": no quotes"#);
        assert_eq!(FieldError::forbidden("f", "cannot change").to_string(), "f: Forbidden: cannot change");
        assert_eq!(FieldError::duplicate("f[1]", &json!("x")).to_string(), "f[1]: Duplicate value: \"x\"");
        let long = FieldError::invalid("f", &json!("ä".repeat(1000)), "too long").message;
        assert!(long.chars().count() < 300 && long.ends_with("…: too long"), "{long}");
    }
}
