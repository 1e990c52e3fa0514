//! The conversion-data annotation, which stores the fields that only the other version of an object
//! has.

use capi_ipam_api::names;
use serde_json::{Value, json};

use super::spec::Fields;

/// The maximum size of the annotations of an object in bytes, names and values together. The API
/// server rejects converted objects that exceed it, and with them the whole request.
const MAX_BYTES: usize = 256 * 1024;

/// The content of the annotation: a part of the object in its other version.
#[derive(Debug, Default, Clone)]
pub(super) struct ConversionData {
    /// Fields of the spec.
    pub(super) spec: Fields,
    /// Fields of the status.
    pub(super) status: Fields,
    /// The conversion-data annotation that the object had in its other version, if any; empty if it
    /// had the field `annotations` without this annotation. `None` if no annotations have to be
    /// restored.
    pub(super) annotations: Option<Fields>,
    /// Whether fields were omitted because they are too large.
    pub(super) is_truncated: bool,
}

impl ConversionData {
    /// Whether there are no fields of spec and status.
    pub(super) fn is_empty(&self) -> bool {
        self.spec.is_empty() && self.status.is_empty()
    }

    /// Parses the text of the annotation. Returns `None` unless it is an object of this version and
    /// kind, within the size limit of annotations.
    pub(super) fn parse(text: &str, api_version: &str, kind: &str) -> Option<Self> {
        if text.len() > MAX_BYTES {
            return None;
        }
        let object: Fields = serde_json::from_str(text).ok()?;
        if object.get("apiVersion")? != api_version || object.get("kind")? != kind {
            return None;
        }
        let fields = |name| match object.get(name) {
            None | Some(Value::Null) => Some(Fields::new()),
            Some(Value::Object(fields)) => Some(fields.clone()),
            Some(_) => None,
        };
        let annotations = fields("metadata")?
            .get("annotations")
            .and_then(Value::as_object)
            .cloned();
        let is_truncated = object.get("leftOut") == Some(&Value::Bool(true));
        Some(Self {
            spec: fields("spec")?,
            status: fields("status")?,
            annotations,
            is_truncated,
        })
    }

    /// Returns the text of the annotation: compact, with sorted names, as the Go provider writes
    /// it.
    pub(super) fn to_text(&self, api_version: &str, kind: &str) -> String {
        let (spec, status) = (&self.spec, &self.status);
        let mut object =
            json!({ "apiVersion": api_version, "kind": kind, "spec": spec, "status": status });
        if let Some(fields) = object.as_object_mut() {
            if let Some(annotations) = &self.annotations {
                fields.insert("metadata".to_owned(), json!({ "annotations": annotations }));
            }
            if self.is_truncated {
                fields.insert("leftOut".to_owned(), Value::Bool(true));
            }
        }
        object.to_string()
    }
}

/// Returns the annotations of an object, if it has the field.
pub(super) fn annotations(object: &Fields) -> Option<&Fields> {
    object.get("metadata")?.get("annotations")?.as_object()
}

/// Returns the text of the conversion-data annotation.
pub(super) fn text(object: &Fields) -> Option<&str> {
    annotations(object)?
        .get(names::CONVERSION_DATA_ANNOTATION)?
        .as_str()
}

/// Removes the conversion-data annotation. The field `annotations` stays, also if it is empty
/// afterwards.
pub(super) fn remove(object: &mut Fields) {
    let annotations = object
        .get_mut("metadata")
        .and_then(|metadata| metadata.get_mut("annotations"));
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.remove(names::CONVERSION_DATA_ANNOTATION);
    }
}

/// Removes the field `annotations` if it is empty.
pub(super) fn remove_if_empty(object: &mut Fields) {
    if annotations(object).is_some_and(Fields::is_empty)
        && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.remove("annotations");
    }
}

/// Adds the field `annotations` if it is missing, and returns it; `None` if it is not an object.
pub(super) fn ensure(object: &mut Fields) -> Option<&mut Fields> {
    let mut fields = object;
    for name in ["metadata", "annotations"] {
        let value = fields.entry(name).or_insert(Value::Null);
        if value.is_null() {
            *value = Value::Object(Fields::new());
        }
        fields = value.as_object_mut()?;
    }
    Some(fields)
}

/// Returns the object with the conversion-data annotation; `None` if its annotations would be too
/// large.
pub(super) fn with(object: &Fields, text: String) -> Option<Fields> {
    let mut object = object.clone();
    let annotations = ensure(&mut object)?;
    annotations.insert(
        names::CONVERSION_DATA_ANNOTATION.to_owned(),
        Value::String(text),
    );
    let bytes = annotations
        .iter()
        .map(|(name, value)| name.len() + value.as_str().map_or(0, str::len));
    (bytes.sum::<usize>() <= MAX_BYTES).then_some(object)
}
