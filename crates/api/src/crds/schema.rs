//! Structural schemas, equivalent to those of the Go provider: without `nullable`, with the same
//! formats, and without defaults.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// The schema of a timestamp.
pub(crate) fn date_time_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

/// Builds the schema of an object with metadata, specification and status.
pub(super) fn object(description: &str, spec: &Value, status: Option<Value>) -> Value {
    let mut schema = json!({
        "type": "object",
        "description": description,
        "properties": {
            "apiVersion": { "type": "string", "description": "API group and version of the object." },
            "kind": { "type": "string", "description": "Kind of the object." },
            "metadata": { "type": "object" },
            "spec": spec,
        },
    });
    if let (Some(properties), Some(status)) = (properties(&mut schema), status) {
        properties.insert("status".to_owned(), status);
    }
    schema
}

/// Returns the schema without one of its properties.
pub(super) fn without(mut schema: Value, property: &str) -> Value {
    if let Some(properties) = properties(&mut schema) {
        properties.remove(property);
    }
    schema
}

/// Returns the structural schema of a type: without references, `null` and defaults.
pub(super) fn structural<T: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::draft07();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value();
    normalize(&mut schema);
    schema
}

fn properties(schema: &mut Value) -> Option<&mut serde_json::Map<String, Value>> {
    schema.get_mut("properties").and_then(Value::as_object_mut)
}

fn normalize(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else {
        return;
    };
    fields.remove("title");
    // Applied when an object is read, so that what is stored equals what was written.
    fields.remove("default");
    if fields
        .get("format")
        .is_some_and(|format| format == "int64" || format == "uint8")
    {
        fields.remove("format");
    }
    if let Some(Value::Array(types)) = fields.get("type") {
        let first = types
            .iter()
            .find(|name| *name != "null")
            .cloned()
            .unwrap_or_default();
        fields.insert("type".to_owned(), first);
    }
    if let Some(Value::Array(choices)) = fields.remove("anyOf") {
        let present = choices
            .into_iter()
            .find(|choice| choice.get("type").is_none_or(|name| name != "null"));
        for (name, value) in present
            .and_then(|choice| choice.as_object().cloned())
            .unwrap_or_default()
        {
            // The description of the field is more specific than that of its type.
            fields.entry(name).or_insert(value);
        }
    }
    // The values of an enum, each with its description.
    if let Some(Value::Array(choices)) = fields.remove("oneOf") {
        let value = |choice: &Value| {
            choice
                .get("const")
                .or_else(|| choice.get("enum")?.get(0))
                .cloned()
        };
        fields.insert("type".to_owned(), json!("string"));
        fields.insert(
            "enum".to_owned(),
            choices.iter().filter_map(value).collect(),
        );
    }
    if let Some(items) = fields.get_mut("items") {
        normalize(items);
    }
    join_lines(schema);
    for (name, property) in properties(schema).into_iter().flatten() {
        if name == "conditions" {
            // Written by hand, in its final form, but for the comment of the field.
            join_lines(property);
        } else {
            normalize(property);
        }
    }
}

/// Where the lines of a comment end is no part of the API.
fn join_lines(schema: &mut Value) {
    if let Some(description) = schema.get_mut("description")
        && let Some(text) = description.as_str()
    {
        *description = Value::String(text.replace('\n', " "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IPPoolSpec;

    #[test]
    fn bounds_match_the_go_provider() {
        let spec = structural::<IPPoolSpec>();
        let prefix = &spec["properties"]["prefix"];
        assert_eq!(
            (&prefix["minimum"], &prefix["maximum"], &prefix["format"]),
            (&json!(0), &json!(128), &Value::Null)
        );
        assert_eq!(
            spec["required"],
            Value::Null,
            "addresses and prefix are required by rules, unless there are ranges"
        );
        assert_eq!(
            spec["properties"]["addressReuseGracePeriodSeconds"]["format"],
            "int32"
        );
        assert_eq!(
            spec["properties"]["gateway"],
            json!({"type": "string",
            "description": "Gateway of the subnet. It is set on each IPAddress and never allocated."})
        );
    }
}
