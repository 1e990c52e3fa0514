//! The definitions of our kinds (CustomResourceDefinitions), made from the types.
//!
//! The schemas say what the Go provider's say: no `nullable`, no defaults, formats only where it has them. Whoever
//! changes a type sees the committed file under `config/crd` go out of date.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::{IPPoolSpec, IPReservationSpec, PoolStatus, PrefixPoolSpec, names};

/// What can go wrong while definitions are made; either is a mistake in the types.
#[derive(Debug, thiserror::Error)]
pub enum CrdError {
    /// The definition does not have the form that the API server asks for.
    #[error("the definition of {kind} is malformed")]
    Malformed {
        /// Kind that was being defined.
        kind: &'static str,
        /// What the parser said.
        #[source]
        source: serde_json::Error,
    },
}

/// The definitions of all our kinds, in the order in which they are written to `config/crd`.
pub fn all() -> Result<Vec<CustomResourceDefinition>, CrdError> {
    [
        ip_pool("GlobalInClusterIPPool", "globalinclusterippool", "Cluster", "cluster-wide"),
        prefix_pool("GlobalInClusterPrefixPool", "globalinclusterprefixpool", "Cluster", "cluster-wide"),
        ip_pool("InClusterIPPool", "inclusterippool", "Namespaced", "namespaced"),
        prefix_pool("InClusterPrefixPool", "inclusterprefixpool", "Namespaced", "namespaced"),
        reservation(),
    ]
    .into_iter()
    .map(|(kind, definition)| serde_json::from_value(definition).map_err(|source| CrdError::Malformed { kind, source }))
    .collect()
}

fn ip_pool(kind: &'static str, singular: &str, scope: &str, word: &str) -> (&'static str, Value) {
    let description = format!("{kind} is a {word} pool of IP addresses that IPAddressClaims are served from.");
    pool(kind, singular, scope, &description, "Addresses", &structural::<IPPoolSpec>())
}

fn prefix_pool(kind: &'static str, singular: &str, scope: &str, word: &str) -> (&'static str, Value) {
    let description = format!("{kind} is a {word} pool of prefixes that IPAddressClaims are served from.");
    pool(kind, singular, scope, &description, "Prefixes", &structural::<PrefixPoolSpec>())
}

fn pool(
    kind: &'static str,
    singular: &str,
    scope: &str,
    description: &str,
    given: &str,
    spec: &Value,
) -> (&'static str, Value) {
    let path = format!(".spec.{}", given.to_lowercase());
    let columns = json!([
        column(given, "string", &path, "What claims are served from."),
        column("Total", "integer", ".status.ipAddresses.total", "Addresses that can be given to claims."),
        column("Free", "integer", ".status.ipAddresses.free", "Addresses that can be given out now."),
        column("Used", "integer", ".status.ipAddresses.used", "Addresses in use."),
        column("Ready", "string", ".status.conditions[?(@.type==\"Ready\")].status", "Whether claims are served."),
    ]);
    let schema = json!({
        "type": "object",
        "description": description,
        "properties": {
            "apiVersion": { "type": "string", "description": "Group and version of the object." },
            "kind": { "type": "string", "description": "Kind of the object." },
            "metadata": { "type": "object" },
            "spec": spec,
            "status": structural::<PoolStatus>(),
        },
    });
    (kind, definition(kind, singular, scope, &columns, &schema, true))
}

fn reservation() -> (&'static str, Value) {
    let kind = "IPReservation";
    let columns = json!([
        column("Address", "string", ".spec.address", "The reserved address."),
        column("Pool", "string", ".spec.poolRef.name", "Pool that the address was taken from."),
        column("Namespace", "string", ".spec.claimRef.namespace", "Namespace of the claim that holds the address."),
        column("Claim", "string", ".spec.claimRef.name", "Claim that holds the address."),
        column("Released", "date", ".spec.releasedAt", "When the address was given back, while it rests."),
        column("Age", "date", ".metadata.creationTimestamp", "Time since the address was reserved."),
    ]);
    let mut spec = structural::<IPReservationSpec>();
    if let Some(fields) = spec.as_object_mut() {
        fields.insert("x-kubernetes-validations".to_owned(), Value::Array(immutable_rules()));
    }
    let schema = json!({
        "type": "object",
        "description": "IPReservation says who holds one address. Creating it is the claim to the address: \
                        its name is made of the scope and the address.",
        "required": ["spec"],
        "properties": {
            "apiVersion": { "type": "string", "description": "Group and version of the object." },
            "kind": { "type": "string", "description": "Kind of the object." },
            "metadata": { "type": "object" },
            "spec": spec,
        },
    });
    (kind, definition(kind, "ipreservation", "Cluster", &columns, &schema, false))
}

fn immutable_rules() -> Vec<Value> {
    let required = ["scope", "address", "poolRef"].map(|field| (field, format!("self.{field} == oldSelf.{field}")));
    let optional = ["prefixLength", "claimRef"].map(|field| {
        let same = format!("self.{field} == oldSelf.{field}");
        (field, format!("has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || {same})"))
    });
    let rules = required.into_iter().chain(optional);
    rules
        .map(|(field, rule)| {
            json!({
                "rule": rule,
                "fieldPath": format!(".{field}"),
                "message": "cannot be changed; delete the reservation and create another one",
            })
        })
        .collect()
}

fn definition(kind: &str, singular: &str, scope: &str, columns: &Value, schema: &Value, status: bool) -> Value {
    let plural = format!("{singular}s");
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{}", names::GROUP) },
        "spec": {
            "group": names::GROUP,
            "names": {
                "kind": kind,
                "listKind": format!("{kind}List"),
                "plural": plural,
                "singular": singular,
                "categories": ["cluster-api"],
            },
            "scope": scope,
            "versions": [{
                "name": names::POOL_VERSION,
                "served": true,
                "storage": true,
                "subresources": if status { json!({ "status": {} }) } else { Value::Null },
                "additionalPrinterColumns": columns,
                "schema": { "openAPIV3Schema": schema },
            }],
        },
    })
}

fn column(name: &str, type_: &str, path: &str, description: &str) -> Value {
    json!({ "name": name, "type": type_, "jsonPath": path, "description": description })
}

/// Schema of a point in time.
pub(super) fn date_time_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

/// The schema of a type in the form that the API server asks for: no references, no `null`, no defaults.
fn structural<T: JsonSchema>() -> Value {
    let mut settings = SchemaSettings::draft07();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    normalise(&mut schema);
    schema
}

fn normalise(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    fields.remove("title");
    fields.remove("default");
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
    if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
        for (name, property) in properties {
            // Written by hand, in its final form.
            if name != "conditions" {
                normalise(property);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_have_no_null_and_no_default() {
        let text = serde_json::to_string(&all().unwrap()).unwrap();
        for unwanted in ["nullable", "\"default\"", "anyOf", "\"null\"", "$ref"] {
            assert!(!text.contains(unwanted), "{unwanted} in {text}");
        }
    }

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
