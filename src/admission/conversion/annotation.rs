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
    pub(super) spec: Fields,
    /// The conversion-data annotation that the object had in its other version, if any; empty if it
    /// had the field `annotations` without this annotation. `None` if no annotations have to be
    /// restored.
    pub(super) annotations: Option<Fields>,
    /// Whether an earlier release omitted fields because they are too large.
    pub(super) is_truncated: bool,
}

impl ConversionData {
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
            annotations,
            is_truncated,
        })
    }

    /// Returns the text of the annotation: compact, with sorted names and an empty status, as the
    /// Go provider writes it.
    pub(super) fn to_text(&self, api_version: &str, kind: &str) -> String {
        let mut object =
            json!({ "apiVersion": api_version, "kind": kind, "spec": self.spec, "status": {} });
        if let (Some(fields), Some(annotations)) = (object.as_object_mut(), &self.annotations) {
            fields.insert("metadata".to_owned(), json!({ "annotations": annotations }));
        }
        object.to_string()
    }
}

/// Returns a field of the metadata, labels or annotations, if the object has it.
pub(super) fn in_metadata<'a>(object: &'a Fields, field: &str) -> Option<&'a Fields> {
    object.get("metadata")?.get(field)?.as_object()
}

/// Returns the text of the conversion-data annotation.
pub(super) fn text(object: &Fields) -> Option<&str> {
    in_metadata(object, "annotations")?
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
    if in_metadata(object, "annotations").is_some_and(Fields::is_empty)
        && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.remove("annotations");
    }
}

/// Adds a field of the metadata, labels or annotations, if it is missing, and returns it; `None` if
/// it is not an object.
pub(super) fn ensure<'a>(object: &'a mut Fields, field: &str) -> Option<&'a mut Fields> {
    let mut fields = object;
    for name in ["metadata", field] {
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
    let annotations = ensure(&mut object, "annotations")?;
    annotations.insert(
        names::CONVERSION_DATA_ANNOTATION.to_owned(),
        Value::String(text),
    );
    let bytes = annotations
        .iter()
        .map(|(name, value)| name.len() + value.as_str().map_or(0, str::len));
    (bytes.sum::<usize>() <= MAX_BYTES).then_some(object)
}
