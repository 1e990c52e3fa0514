//! Compares a definition that an API server has with the one of this version.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion, JSONSchemaProps,
    JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

/// Fields that the API server keeps, whatever the schema declares.
const FIELDS_OF_ALL_OBJECTS: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Returns the paths of the fields of `own` that `served` lacks, such as `spec.network` or
/// `spec.ranges[].gateway`, ordered by version and path.
///
/// The API server removes such a field from each object that it reads from its storage or that a
/// client writes (pruning): a program that knows the field sees an object in which nobody set it.
///
/// `own` is a definition of [`all`](super::all), `served` the one of the same name of the API
/// server. The versions that both have are compared, whether `served` still serves them or not. The
/// path of a field of another version than the stored one of `own` ends with the version, as in
/// `spec.addresses (v1alpha1)`. Of a missing object only its own path is returned. Versions and
/// fields that only one of a later release has are ignored, and so is a version that `served`
/// lacks.
pub fn missing_fields(
    served: &CustomResourceDefinition,
    own: &CustomResourceDefinition,
) -> Vec<String> {
    let mut all_missing = Vec::new();
    for version in &own.spec.versions {
        let mut served_versions = served.spec.versions.iter();
        let Some(served) = served_versions.find(|it| it.name == version.name) else {
            continue;
        };
        let mut missing = Vec::new();
        compare(&schema_of(served), &schema_of(version), "", &mut missing);
        if !version.storage {
            for path in &mut missing {
                *path = format!("{path} ({})", version.name);
            }
        }
        all_missing.append(&mut missing);
    }
    all_missing
}

fn schema_of(version: &CustomResourceDefinitionVersion) -> JSONSchemaProps {
    let schema = version.schema.clone().unwrap_or_default();
    schema.open_api_v3_schema.unwrap_or_default()
}

/// Adds the fields of `own` that `served` lacks. `path` is that of both schemas, empty for that of
/// the whole object.
fn compare(served: &JSONSchemaProps, own: &JSONSchemaProps, path: &str, missing: &mut Vec<String>) {
    if served.x_kubernetes_preserve_unknown_fields == Some(true) {
        return;
    }
    for (name, own) in own.properties.iter().flatten() {
        if path.is_empty() && FIELDS_OF_ALL_OBJECTS.contains(&name.as_str()) {
            continue;
        }
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        match served.properties.as_ref().and_then(|it| it.get(name)) {
            Some(served) => compare(served, own, &path, missing),
            None => missing.push(path),
        }
    }
    if let (Some(served), Some(own)) = (items(served), items(own)) {
        compare(served, own, &format!("{path}[]"), missing);
    }
    if let (Some(served), Some(own)) = (values(served), values(own)) {
        compare(served, own, &format!("{path}.*"), missing);
    }
}

/// The schema of the items of a list. A structural schema has one for all of them.
fn items(schema: &JSONSchemaProps) -> Option<&JSONSchemaProps> {
    match schema.items.as_ref()? {
        JSONSchemaPropsOrArray::Schema(items) => Some(items),
        JSONSchemaPropsOrArray::Schemas(_) => None,
    }
}

/// The schema of the values of a map.
fn values(schema: &JSONSchemaProps) -> Option<&JSONSchemaProps> {
    match schema.additional_properties.as_ref()? {
        JSONSchemaPropsOrBool::Schema(values) => Some(values),
        JSONSchemaPropsOrBool::Bool(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// A definition with the schema for each version. The first one is stored.
    fn definition(versions: &[(&str, Value)]) -> CustomResourceDefinition {
        let versions: Vec<Value> = versions
            .iter()
            .enumerate()
            .map(|(index, (name, schema))| {
                json!({
                    "name": name, "served": true, "storage": index == 0,
                    "schema": { "openAPIV3Schema": schema },
                })
            })
            .collect();
        serde_json::from_value(json!({
            "metadata": { "name": "pools.example.org" },
            "spec": {
                "group": "example.org", "scope": "Cluster", "names": { "kind": "Pool", "plural": "pools" },
                "versions": versions,
            },
        }))
        .unwrap()
    }

    fn object(properties: Value) -> Value {
        let mut schema = json!({ "type": "object" });
        schema["properties"] = properties;
        schema
    }

    fn text() -> Value {
        json!({ "type": "string" })
    }

    fn missing(served: Value, own: Value) -> Vec<String> {
        missing_fields(&definition(&[("v1", served)]), &definition(&[("v1", own)]))
    }

    #[test]
    fn fields_are_compared_at_every_depth() {
        let own = object(json!({
            "apiVersion": text(), "kind": text(), "metadata": { "type": "object" },
            "spec": object(json!({
                "old": text(),
                "list": { "type": "array", "items": object(json!({ "a": text(), "b": text() })) },
                "map": { "type": "object", "additionalProperties": object(json!({ "c": text() })) },
                "group": object(json!({ "d": text(), "e": text() })),
                "new": object(json!({ "f": text() })),
            })),
            "status": object(json!({ "count": text() })),
        }));
        let served = object(json!({
            "spec": object(json!({
                "old": text(),
                "list": { "type": "array", "items": object(json!({ "a": text() })) },
                "map": { "type": "object", "additionalProperties": object(json!({})) },
                "group": object(json!({ "d": text(), "later": text() })),
            })),
        }));
        let expected = [
            "spec.group.e",
            "spec.list[].b",
            "spec.map.*.c",
            "spec.new",
            "status",
        ];
        assert_eq!(missing(served, own.clone()), expected);
        assert_eq!(missing(own.clone(), own), [""; 0]);
    }

    #[test]
    fn fields_that_are_not_pruned_are_not_missing() {
        let own = object(json!({ "spec": object(json!({ "a": text() })) }));
        let open = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        assert_eq!(
            missing(object(json!({ "spec": open })), own.clone()),
            [""; 0]
        );
        assert_eq!(missing(open, own), [""; 0]);
    }

    #[test]
    fn fields_of_other_versions_name_their_version() {
        let schema = |names: &[&str]| {
            let fields: serde_json::Map<_, _> = names
                .iter()
                .map(|name| ((*name).to_owned(), text()))
                .collect();
            object(json!({ "spec": object(Value::Object(fields)) }))
        };
        let own = definition(&[
            ("v2", schema(&["a", "b"])),
            ("v1", schema(&["a", "b"])),
            ("v0", schema(&["a"])),
        ]);
        let served = definition(&[("v1", schema(&["b"])), ("v2", schema(&["a"]))]);
        assert_eq!(missing_fields(&served, &own), ["spec.b", "spec.a (v1)"]);
    }

    #[test]
    fn definitions_of_this_version_lack_nothing() {
        for own in super::super::all().unwrap() {
            assert_eq!(missing_fields(&own, &own), [""; 0]);
        }
    }
}
