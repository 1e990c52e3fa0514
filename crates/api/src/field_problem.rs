//! A field of a pool with an invalid value.

use std::borrow::Cow;

use serde_json::Value;

/// A field of a pool with an invalid value. Displayed with the path of the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {text}")]
pub struct FieldProblem {
    /// The path of the field.
    pub field: Cow<'static, str>,
    /// The value as written.
    pub value: Value,
    /// What is wrong, and what to write.
    pub text: String,
}

impl FieldProblem {
    pub(super) fn new(
        field: impl Into<Cow<'static, str>>,
        value: impl Into<Value>,
        text: impl Into<String>,
    ) -> Self {
        Self {
            field: field.into(),
            value: value.into(),
            text: text.into(),
        }
    }
}
