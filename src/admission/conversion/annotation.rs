//! The annotation in which an object carries what only its other version can say.

use serde_json::{json, Value};

use crate::api::names;
use super::spec::Fields;

/// How many bytes the API server allows the annotations of an object to have, names and values together. It refuses
/// what a conversion gives beyond that, and with it the whole request.
const MAX_BYTES: usize = 256 * 1024;

/// Part of an object in its other version.
#[derive(Debug, Default, Clone)]
pub(super) struct Kept {
    /// Fields of the spec.
    pub(super) spec: Fields,
    /// Fields of the status.
    pub(super) status: Fields,
    /// Of the annotations of that object: whether it had any, and the one with what it kept itself. `None` says that
    /// it had none, or only others.
    pub(super) annotations: Option<Fields>,
    /// There is more, which was too large to be kept.
    pub(super) left_out: bool,
}

impl Kept {
    /// Whether nothing of spec and status is kept.
    pub(super) fn is_empty(&self) -> bool {
        self.spec.is_empty() && self.status.is_empty()
    }

    /// Reads the text of the annotation. Anything but an object of that version and kind is `None`, and so is a text that
    /// is longer than an annotation can be.
    pub(super) fn read(text: &str, api_version: &str, kind: &str) -> Option<Kept> {
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
        let annotations = fields("metadata")?.get("annotations").and_then(Value::as_object).cloned();
        let left_out = object.get("leftOut") == Some(&Value::Bool(true));
        Some(Kept { spec: fields("spec")?, status: fields("status")?, annotations, left_out })
    }

    /// The text of the annotation: compact, its names sorted, as the Go provider writes it.
    pub(super) fn write(&self, api_version: &str, kind: &str) -> String {
        let (spec, status) = (&self.spec, &self.status);
        let mut object = json!({ "apiVersion": api_version, "kind": kind, "spec": spec, "status": status });
        if let Some(fields) = object.as_object_mut() {
            if let Some(annotations) = &self.annotations {
                fields.insert("metadata".to_owned(), json!({ "annotations": annotations }));
            }
            if self.left_out {
                fields.insert("leftOut".to_owned(), Value::Bool(true));
            }
        }
        object.to_string()
    }
}

/// The annotations of an object, if it has the field.
pub(super) fn annotations(object: &Fields) -> Option<&Fields> {
    object.get("metadata")?.get("annotations")?.as_object()
}

/// The text of our annotation.
pub(super) fn text(object: &Fields) -> Option<&str> {
    annotations(object)?.get(names::CONVERSION_DATA_ANNOTATION)?.as_str()
}

/// Takes our annotation off, whatever is in it. The others stay, and the field does also when it is empty then.
pub(super) fn remove(object: &mut Fields) {
    let annotations = object.get_mut("metadata").and_then(|metadata| metadata.get_mut("annotations"));
    if let Some(annotations) = annotations.and_then(Value::as_object_mut) {
        annotations.remove(names::CONVERSION_DATA_ANNOTATION);
    }
}

/// Takes the field `annotations` off when it is empty.
pub(super) fn remove_if_empty(object: &mut Fields) {
    if annotations(object).is_some_and(Fields::is_empty)
        && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.remove("annotations");
    }
}

/// Makes sure that the object has the field `annotations`. `None` when it is something else than annotations.
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

/// The object with our annotation put on; `None` when its annotations are too large then.
pub(super) fn with(object: &Fields, text: String) -> Option<Fields> {
    let mut object = object.clone();
    let annotations = ensure(&mut object)?;
    annotations.insert(names::CONVERSION_DATA_ANNOTATION.to_owned(), Value::String(text));
    let bytes = annotations.iter().map(|(name, value)| name.len() + value.as_str().map_or(0, str::len));
    (bytes.sum::<usize>() <= MAX_BYTES).then_some(object)
}
