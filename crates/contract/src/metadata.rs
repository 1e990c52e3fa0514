use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::core::ObjectMeta;
use serde::{Deserialize, Deserializer};

use super::names;

/// Whether an object with this metadata has the annotation `cluster.x-k8s.io/paused`, with any
/// value.
pub fn is_paused(metadata: &ObjectMeta) -> bool {
    metadata
        .annotations
        .as_ref()
        .is_some_and(|all| all.contains_key(names::PAUSED_ANNOTATION))
}

/// Whether the API server accepts the value of a label, which can be empty: at most 63 letters,
/// digits, dashes, dots and underscores, with a letter or digit at both ends.
pub fn is_label_value(value: &str) -> bool {
    let is_end = |byte: &u8| byte.is_ascii_alphanumeric();
    let is_inner = |byte: u8| is_end(&byte) || b"-_.".contains(&byte);
    let bytes = value.as_bytes();
    let mut ends = bytes.first().into_iter().chain(bytes.last());
    value.len() <= 63 && ends.all(is_end) && value.bytes().all(is_inner)
}

/// Deserializes metadata without `managedFields`, which are more than half of most objects and
/// expensive to parse. To read them, request the metadata only ([`kube::core::PartialObjectMeta`]).
pub fn without_managed_fields<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<ObjectMeta, D::Error> {
    let Metadata {
        name,
        generate_name,
        namespace,
        uid,
        resource_version,
        generation,
        creation_timestamp,
        deletion_timestamp,
        deletion_grace_period_seconds,
        labels,
        annotations,
        finalizers,
        owner_references,
    } = Metadata::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name,
        generate_name,
        namespace,
        uid,
        resource_version,
        generation,
        creation_timestamp,
        deletion_timestamp,
        deletion_grace_period_seconds,
        labels,
        annotations,
        finalizers,
        owner_references,
        managed_fields: None,
        self_link: None,
    })
}

/// The fields of [`ObjectMeta`] that are deserialized.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    name: Option<String>,
    generate_name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    deletion_grace_period_seconds: Option<i64>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    finalizers: Option<Vec<String>>,
    owner_references: Option<Vec<OwnerReference>>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_other_fields_are_read() {
        let expected = json!({
            "name": "a", "generateName": "a-", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 2,
            "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z",
            "deletionGracePeriodSeconds": 0, "labels": {"l": "1"}, "annotations": {"a": "1"}, "finalizers": ["f"],
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "o", "controller": true}],
        });
        let mut sent = expected.clone();
        sent["managedFields"] = json!([{"manager": "m", "fieldsV1": {"f:spec": {}}}]);
        sent["selfLink"] = json!("/a");
        let read = without_managed_fields(sent).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), expected);
        assert_eq!(
            without_managed_fields(json!({})).unwrap(),
            ObjectMeta::default()
        );
    }
}
