//! Compares a document with the schema of its kind, as the API server does with strict field
//! validation: nothing that a user writes is ignored.
//!
//! The schemas are those of the CustomResourceDefinitions. The API server evaluates their CEL
//! rules.

use std::collections::HashMap;
use std::sync::LazyLock;

use capi_ipam_api::{InClusterKind, crds, names};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::document::{Content, Field, Node};
use super::record::RESERVATION;
use crate::spelling::nearest;

/// The schemas of the stored version, by kind.
static SCHEMAS: LazyLock<HashMap<String, Value>> = LazyLock::new(schemas);

/// The fields of the metadata that an import does not set. The API server sets most of them.
pub(super) const METADATA_NOT_IMPORTED: [&str; 11] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// A part of a document that is wrong.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) line: u64,
    /// The path of the field.
    pub(super) path: String,
    /// The path of the field, and what is wrong.
    pub(super) problem: String,
    /// Whether the object can be decoded all the same: only a value is outside of its bounds.
    pub(super) is_bound: bool,
}

/// The schema of a kind that can be imported.
pub(super) fn schema(kind: &str) -> Option<&'static Value> {
    SCHEMAS.get(kind)
}

fn schemas() -> HashMap<String, Value> {
    let mut schemas = HashMap::new();
    for definition in crds::all().unwrap_or_default() {
        let stored = definition
            .spec
            .versions
            .iter()
            .find(|version| version.name == names::POOL_VERSION);
        let Some(version) = stored else { continue };
        let schema = version
            .schema
            .as_ref()
            .and_then(|schema| schema.open_api_v3_schema.as_ref());
        let Ok(mut schema) = serde_json::to_value(schema) else {
            continue;
        };
        if let Some(metadata) = schema.pointer_mut("/properties/metadata") {
            *metadata = metadata_schema();
        }
        let required = schema
            .as_object_mut()
            .map(|fields| fields.entry("required").or_insert_with(|| json!([])));
        if let Some(Value::Array(required)) = required {
            required.push(json!("metadata"));
        }
        schemas.insert(definition.spec.names.kind, schema);
    }
    schemas
}

/// The metadata that users write. A definition does not describe it.
fn metadata_schema() -> Value {
    let text = json!({ "type": "string" });
    let map = json!({ "type": "object", "additionalProperties": text });
    json!({
        "type": "object",
        "required": ["name"],
        "properties": { "name": text, "namespace": text, "labels": map, "annotations": map },
    })
}

/// Returns everything in a document that its schema does not allow, with line and path.
pub(super) fn faults(node: &Node, schema: &Value) -> Vec<Fault> {
    let mut check = Check { faults: Vec::new() };
    check.value(node, schema, "");
    check.faults
}

struct Check {
    faults: Vec<Fault>,
}

impl Check {
    /// A part that cannot be decoded.
    fn wrong(&mut self, line: u64, path: &str, text: impl AsRef<str>) {
        self.add(line, path, text.as_ref(), false);
    }

    /// A value outside of its bounds.
    fn out_of_bounds(&mut self, line: u64, path: &str, text: impl AsRef<str>) {
        self.add(line, path, text.as_ref(), true);
    }

    fn add(&mut self, line: u64, path: &str, text: &str, is_bound: bool) {
        self.faults.push(Fault {
            line,
            path: path.to_owned(),
            problem: format!("{path}: {text}"),
            is_bound,
        });
    }

    fn value(&mut self, node: &Node, schema: &Value, path: &str) {
        let expected = schema
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default();
        match (expected, &node.content) {
            ("object", Content::Map(fields)) => self.object(node, fields, schema, path),
            ("array", Content::List(items)) => self.list(node, items, schema, path),
            ("string", Content::Text(text)) => self.text(node, text, schema, path),
            ("integer", Content::Number(number)) if number.as_i64().is_some() => {
                self.number(node, number.as_i64().unwrap_or_default(), schema, path);
            }
            ("boolean", Content::Bool(_)) => {}
            _ => {
                let path = if path.is_empty() {
                    "the document"
                } else {
                    path
                };
                self.wrong(node.line, path, wrong_type(node, expected));
            }
        }
    }

    fn object(&mut self, node: &Node, fields: &[Field], schema: &Value, path: &str) {
        let properties = schema.get("properties").and_then(Value::as_object);
        let values = schema
            .get("additionalProperties")
            .filter(|values| values.is_object());
        for Field { line, name, value } in fields {
            let known = properties.and_then(|properties| properties.get(name));
            match (known, values) {
                (Some(known), _) => self.value(value, known, &join(path, name)),
                (None, Some(values)) => self.value(value, values, &format!("{path}[{name}]")),
                (None, None) => {
                    self.wrong(*line, &join(path, name), unknown_field(name, properties))
                }
            }
        }
        let required = schema
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        for name in required.filter_map(Value::as_str) {
            if node.get(name).is_none() {
                self.wrong(node.line, &join(path, name), "is missing");
            }
        }
        if let Some(most) =
            limit(schema, "maxProperties").filter(|most| exceeds(fields.len(), *most))
        {
            self.out_of_bounds(
                node.line,
                path,
                format!("has {} entries; at most {most} are possible", fields.len()),
            );
        }
    }

    fn list(&mut self, node: &Node, items: &[Node], schema: &Value, path: &str) {
        let of_items = schema.get("items").unwrap_or(&Value::Null);
        for (index, item) in items.iter().enumerate() {
            self.value(item, of_items, &format!("{path}[{index}]"));
        }
        if let Some(most) = limit(schema, "maxItems").filter(|most| exceeds(items.len(), *most)) {
            self.out_of_bounds(
                node.line,
                path,
                format!("has {} entries; at most {most} are possible", items.len()),
            );
        }
    }

    fn text(&mut self, node: &Node, text: &str, schema: &Value, path: &str) {
        if let Some(choices) = schema.get("enum").and_then(Value::as_array) {
            let choices: Vec<&str> = choices.iter().filter_map(Value::as_str).collect();
            if !choices.contains(&text) {
                self.wrong(
                    node.line,
                    path,
                    format!("{text:?} is none of {}", choices.join(", ")),
                );
            }
        }
        let length = text.chars().count();
        if limit(schema, "minLength").is_some_and(|least| exceeds_limit(least, length)) {
            self.out_of_bounds(node.line, path, "is too short");
        }
        if let Some(most) = limit(schema, "maxLength").filter(|most| exceeds(length, *most)) {
            self.out_of_bounds(
                node.line,
                path,
                format!("has {length} characters; at most {most} are possible"),
            );
        }
        let is_time = schema
            .get("format")
            .is_some_and(|format| format == "date-time");
        if is_time && text.parse::<Timestamp>().is_err() {
            self.wrong(
                node.line,
                path,
                format!("{text:?} is not a time; write it as 2026-01-31T12:00:00Z"),
            );
        }
    }

    fn number(&mut self, node: &Node, number: i64, schema: &Value, path: &str) {
        let is_int32 = schema.get("format").is_some_and(|format| format == "int32");
        if is_int32 && i32::try_from(number).is_err() {
            self.wrong(node.line, path, format!("{number} is too large"));
        }
        if let Some(least) = limit(schema, "minimum").filter(|least| number < *least) {
            self.out_of_bounds(
                node.line,
                path,
                format!("is {number}; the minimum is {least}"),
            );
        }
        if let Some(most) = limit(schema, "maximum").filter(|most| number > *most) {
            self.out_of_bounds(
                node.line,
                path,
                format!("is {number}; the maximum is {most}"),
            );
        }
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// A limit of a schema. The types of Kubernetes store some as floating-point numbers.
fn limit(schema: &Value, name: &str) -> Option<i64> {
    let value = schema.get(name)?;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the limits of the definitions are small whole numbers"
    )]
    let from_float = |number: f64| number as i64;
    value.as_i64().or_else(|| value.as_f64().map(from_float))
}

fn exceeds(count: usize, most: i64) -> bool {
    i64::try_from(count).unwrap_or(i64::MAX) > most
}

fn exceeds_limit(least: i64, count: usize) -> bool {
    i64::try_from(count).unwrap_or(i64::MAX) < least
}

/// What is wrong with a value of another type, and what to write.
fn wrong_type(node: &Node, expected: &str) -> String {
    let expected_text = match expected {
        "object" => "an object",
        "array" => "a list",
        "string" => "a text",
        "integer" => "a whole number",
        "boolean" => "true or false",
        other => other,
    };
    let found = match &node.content {
        Content::Null => {
            return format!(
                "is empty, but must be {expected_text}; write a value, or remove the field"
            );
        }
        Content::Bool(_) | Content::Number(_) => node.text.clone(),
        Content::Text(text) => format!("the text {text:?}"),
        Content::List(_) => "a list".to_owned(),
        Content::Map(_) => "an object".to_owned(),
    };
    let advice = match (expected, &node.content) {
        ("integer", Content::Number(_)) => {
            without_leading_zeros(&node.text).map(|number| format!("write {number}"))
        }
        ("integer", Content::Text(text)) => text
            .parse::<i64>()
            .ok()
            .map(|number| format!("write {number} without quotes")),
        ("boolean", Content::Text(text)) => text
            .parse::<bool>()
            .ok()
            .map(|value| format!("write {value} without quotes")),
        ("string", Content::Bool(_) | Content::Number(_)) => {
            Some(format!("write \"{}\" with quotes", node.text))
        }
        ("array", Content::Text(text)) => Some(format!("write [{text:?}]")),
        _ => None,
    };
    let advice = advice
        .map(|advice| format!("; {advice}"))
        .unwrap_or_default();
    format!("is {found}, but must be {expected_text}{advice}")
}

/// A decimal number that YAML does not read as a whole number because it begins with a zero.
fn without_leading_zeros(text: &str) -> Option<i64> {
    let is_decimal = text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_decimal { text.parse().ok() } else { None }
}

fn unknown_field(name: &str, known: Option<&Map<String, Value>>) -> String {
    let names = known.into_iter().flat_map(Map::keys).map(String::as_str);
    match nearest(name, names) {
        Some(near) => format!("unknown field; {near} exists"),
        None => "unknown field".to_owned(),
    }
}

/// Why a kind cannot be imported, and the kind that is probably meant.
pub(super) fn unknown_kind(kind: &str) -> String {
    if kind.is_empty() {
        return "is missing".to_owned();
    }
    let pools = InClusterKind::ALL.map(InClusterKind::name);
    let known = || pools.into_iter().chain([RESERVATION]);
    // `IPPool` or `prefix`.
    let has_part = |known: &&str| known.to_lowercase().contains(&kind.to_lowercase());
    let advice = match nearest(kind, known()).or_else(|| known().find(has_part)) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("the kinds of pools are {}", pools.join(", ")),
    };
    format!("{kind} is neither a pool nor {RESERVATION}; {advice}")
}
