//! Schemas in the form that the API server asks for, and in the words of the Go provider: no `nullable`, formats only
//! where it has them, and no default but the one that means something.

use schemars::generate::SchemaSettings;
use schemars::{json_schema, JsonSchema, Schema, SchemaGenerator};
use serde_json::{json, Value};

/// Schema of a point in time.
pub(in crate::api) fn date_time_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

/// The schema of a whole object.
pub(super) fn object(description: &str, spec: &Value, status: Option<Value>) -> Value {
    let mut schema = json!({
        "type": "object",
        "description": description,
        "properties": {
            "apiVersion": { "type": "string", "description": "Group and version of the object." },
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

/// The schema without one of its properties.
pub(super) fn without(mut schema: Value, property: &str) -> Value {
    if let Some(properties) = properties(&mut schema) {
        properties.remove(property);
    }
    schema
}

/// The schema of a type: without references, `null`, and defaults that say nothing.
pub(super) fn structural<T: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::draft07();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    normalise(&mut schema);
    schema
}

fn properties(schema: &mut Value) -> Option<&mut serde_json::Map<String, Value>> {
    schema.get_mut("properties").and_then(Value::as_object_mut)
}

fn normalise(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    fields.remove("title");
    if fields.get("default").is_some_and(says_nothing) {
        fields.remove("default");
    }
    if fields.get("format").is_some_and(|format| format == "int64") {
        fields.remove("format");
    }
    if let Some(Value::Array(types)) = fields.get("type") {
        let first = types.iter().find(|name| *name != "null").cloned().unwrap_or_default();
        fields.insert("type".to_owned(), first);
    }
    if let Some(Value::Array(choices)) = fields.remove("anyOf") {
        let present = choices.into_iter().find(|choice| choice.get("type").is_some_and(|name| name != "null"));
        fields.extend(present.and_then(|choice| choice.as_object().cloned()).unwrap_or_default());
    }
    if let Some(description) = fields.get_mut("description")
        && let Some(text) = description.as_str()
    {
        *description = Value::String(text.replace('\n', " "));
    }
    if let Some(items) = fields.get_mut("items") {
        normalise(items);
    }
    for (name, property) in properties(schema).into_iter().flatten() {
        // Expectations by hand, in its final form.
        if name != "conditions" {
            normalise(property);
        }
    }
}

/// Whether a default is what a missing field means anyway.
fn says_nothing(default: &Value) -> bool {
    match default {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use crate::api::IPPoolSpec;
    use super::*;

    #[test]
    fn bounds_are_those_of_the_go_provider() {
        let spec = structural::<IPPoolSpec>();
        let prefix = &spec["properties"]["prefix"];
        assert_eq!((&prefix["minimum"], &prefix["maximum"], &prefix["format"]), (&json!(0), &json!(128), &Value::Null));
        assert_eq!(spec["required"], json!(["addresses", "prefix"]));
        assert_eq!(spec["properties"]["addressReuseGracePeriodSeconds"]["format"], "int32");
        assert_eq!(
            spec["properties"]["gateway"],
            json!({"type": "string",
            "description": "Gateway of the subnet, handed out with each address and never given to a claim."})
        );
    }
}
