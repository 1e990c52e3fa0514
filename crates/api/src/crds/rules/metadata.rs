//! Limits and validation rules for the labels and annotations of IPAddress objects.
//!
//! The API server cannot bound the length of the keys of a map, so that a rule with a regular
//! expression for them is too expensive for it. The webhook and the provider check the keys.

use serde_json::Value;

use super::{Rule, add, limit};
use crate::AddressMetadata;
use crate::crds::CrdError;

/// The maximum length of the value of a label.
const MAX_LABEL_LENGTH: usize = 63;
/// The prefixes of keys that Cluster API and its providers use.
const RESERVED: [&str; 9] = [
    "",
    "ipam.",
    "clusterctl.",
    "topology.",
    "controlplane.",
    "bootstrap.",
    "infrastructure.",
    "addons.",
    "runtime.",
];

/// Adds the limits and rules of `spec.addressMetadata`.
pub(super) fn address_metadata(schema: &mut Value) -> Result<(), CrdError> {
    let maps = [
        (
            "spec.addressMetadata.labels",
            "spec.addressMetadata.labels{}",
            MAX_LABEL_LENGTH,
        ),
        (
            "spec.addressMetadata.annotations",
            "spec.addressMetadata.annotations{}",
            AddressMetadata::MAX_ANNOTATION_BYTES,
        ),
    ];
    for (map, value, length) in maps {
        limit(schema, map, "maxProperties", AddressMetadata::MAX_ENTRIES)?;
        limit(schema, value, "maxLength", length)?;
        let prefixes: Vec<String> = RESERVED
            .iter()
            .map(|domain| format!("key.startsWith('{domain}cluster.x-k8s.io/')"))
            .collect();
        let is_free = format!("!self.exists(key, {})", prefixes.join(" || "));
        add(
            schema,
            map,
            [Rule::new(
                is_free,
                "keys of cluster.x-k8s.io and its subdomains are reserved",
            )],
        )?;
    }
    let label = Rule::new(
        "self.matches('^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$')",
        "must consist of letters, digits, '-', '_' and '.', and begin and end with a letter or digit",
    );
    add(schema, "spec.addressMetadata.labels{}", [label])
}
