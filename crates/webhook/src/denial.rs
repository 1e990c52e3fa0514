//! Denials of admission requests, with the messages and details of the validation errors of
//! Kubernetes.

use std::fmt;

use kube::core::Status;
use kube::core::response::{StatusCause, StatusDetails, reason};
use serde_json::Value;

/// Length to which quoted values are truncated, in characters.
const MAX_QUOTED_LENGTH: usize = 256;

/// The object is invalid: 422. `causes` are the errors of its fields.
pub fn invalid(group: &str, kind: &str, name: &str, causes: Vec<StatusCause>) -> Box<Status> {
    let mut texts: Vec<String> = Vec::new();
    for text in causes
        .iter()
        .map(|cause| format!("{}: {}", cause.field, cause.message))
    {
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
    let details = StatusDetails {
        group: group.into(),
        kind: kind.into(),
        name: name.into(),
        causes,
        ..no_details()
    };
    denied(422, reason::INVALID, &message, details)
}

/// The request is wrong: 400.
pub fn bad_request(message: &str) -> Box<Status> {
    denied(400, reason::BAD_REQUEST, message, no_details())
}

/// The validator cannot decide now: 503. Clients such as kubectl retry automatically after a
/// second.
pub fn unavailable(message: &str) -> Box<Status> {
    denied(
        503,
        reason::SERVICE_UNAVAILABLE,
        message,
        StatusDetails {
            retry_after_seconds: 1,
            ..no_details()
        },
    )
}

/// The request is not allowed in the present state of the cluster: 403.
pub fn forbidden(message: &str) -> Box<Status> {
    denied(403, reason::FORBIDDEN, message, no_details())
}

/// The validator has a bug: 500.
pub fn internal(message: &str) -> Box<Status> {
    denied(500, reason::INTERNAL_ERROR, message, no_details())
}

/// The value of a field is invalid. `field` is its path, such as `spec.ranges[2]`.
pub fn invalid_value(field: &str, value: &Value, detail: impl fmt::Display) -> StatusCause {
    let message = format!("Invalid value: {}: {detail}", quoted(value));
    StatusCause {
        reason: "FieldValueInvalid".to_owned(),
        message,
        field: field.to_owned(),
    }
}

/// A field is required and has no value.
pub fn required_value(field: &str, detail: impl fmt::Display) -> StatusCause {
    let message = format!("Required value: {detail}");
    StatusCause {
        reason: "FieldValueRequired".to_owned(),
        message,
        field: field.to_owned(),
    }
}

fn denied(code: u16, reason: &str, message: &str, details: StatusDetails) -> Box<Status> {
    Status::failure(message, reason)
        .with_code(code)
        .with_details(details)
        .boxed()
}

fn no_details() -> StatusDetails {
    StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 0,
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
        let message = |group, causes| invalid(group, "Thing", "a", causes).message;
        let size = invalid_value("spec.size", &json!(-1), "must not be negative");
        let name = required_value("spec.name", "it identifies the object");
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
        let cause = invalid_value("f", &json!("a\"b"), "no quotes");
        assert_eq!(cause.message, r#"Invalid value: "a\"b": no quotes"#);
        let long = invalid_value("f", &json!("ä".repeat(1000)), "too long").message;
        assert!(
            long.chars().count() < 300 && long.ends_with("…: too long"),
            "{long}"
        );
    }
}
