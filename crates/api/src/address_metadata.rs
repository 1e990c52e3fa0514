//! Labels and annotations that a pool sets on its IPAddress objects.

use std::collections::BTreeMap;

use capi_ipam_contract::is_label_value;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::dns::is_dns_subdomain;

/// Labels and annotations for the IPAddress objects of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressMetadata {
    /// Labels of each new IPAddress. Keys of cluster.x-k8s.io and its subdomains are reserved.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations of each new IPAddress, such as DNS servers or a VLAN. Keys of cluster.x-k8s.io
    /// and its subdomains are reserved.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// A label or annotation that is not valid. Displayed with the path of the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {kind}")]
pub struct MetadataProblem {
    /// The path of the map, or of its entry: `spec.addressMetadata.labels[example.com/vlan]`.
    pub field: String,
    /// The key or value as written; empty for the map.
    pub value: String,
    /// The problem.
    pub kind: MetadataProblemKind,
}

/// The kinds of [`MetadataProblem`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MetadataProblemKind {
    /// The map has too many entries.
    #[error("has more than {} entries", AddressMetadata::MAX_ENTRIES)]
    TooMany,
    /// The key is one of Cluster API.
    #[error(
        "keys of cluster.x-k8s.io and its subdomains are reserved for Cluster API; use another key"
    )]
    Reserved,
    /// The key is not a qualified name.
    #[error(
        "must be a name of at most 63 letters, digits, '-', '_' and '.', which begins and ends with a letter or digit, \
         optionally after a DNS subdomain and a slash"
    )]
    Key,
    /// The value of a label is not valid.
    #[error(
        "must be empty, or at most 63 letters, digits, '-', '_' and '.', and begin and end with a letter or digit"
    )]
    LabelValue,
    /// The value of an annotation is too long.
    #[error("is longer than {} bytes", AddressMetadata::MAX_ANNOTATION_BYTES)]
    AnnotationValue,
}

impl AddressMetadata {
    /// The maximum number of labels, and of annotations.
    pub const MAX_ENTRIES: usize = 32;
    /// The maximum size of the value of an annotation in bytes.
    pub const MAX_ANNOTATION_BYTES: usize = 4096;

    /// Returns all problems of labels and annotations.
    pub fn problems(&self) -> Vec<MetadataProblem> {
        let is_short = |value: &str| value.len() <= Self::MAX_ANNOTATION_BYTES;
        let labels = check(
            "labels",
            &self.labels,
            is_label_value,
            MetadataProblemKind::LabelValue,
        );
        labels
            .chain(check(
                "annotations",
                &self.annotations,
                is_short,
                MetadataProblemKind::AnnotationValue,
            ))
            .collect()
    }
}

/// The problems of the entries of a map. At most [`AddressMetadata::MAX_ENTRIES`] entries are
/// checked.
fn check<'a>(
    name: &'static str,
    map: &'a BTreeMap<String, String>,
    is_valid_value: impl Fn(&str) -> bool + 'a,
    invalid_value: MetadataProblemKind,
) -> impl Iterator<Item = MetadataProblem> + 'a {
    let path = format!("spec.addressMetadata.{name}");
    let too_many = (map.len() > AddressMetadata::MAX_ENTRIES).then(|| MetadataProblem {
        field: path.clone(),
        value: String::new(),
        kind: MetadataProblemKind::TooMany,
    });
    let of_entry = move |(key, value): (&String, &String)| {
        let (kind, value) = if is_reserved(key) {
            (MetadataProblemKind::Reserved, key)
        } else if !is_qualified_name(key) {
            (MetadataProblemKind::Key, key)
        } else if !is_valid_value(value) {
            (invalid_value, value)
        } else {
            return None;
        };
        Some(MetadataProblem {
            field: format!("{path}[{key}]"),
            value: value.clone(),
            kind,
        })
    };
    too_many.into_iter().chain(
        map.iter()
            .take(AddressMetadata::MAX_ENTRIES)
            .filter_map(of_entry),
    )
}

/// Whether the contract, clusterctl or this provider may use the key.
fn is_reserved(key: &str) -> bool {
    let domain = key
        .split_once('/')
        .map(|(domain, _)| domain.to_ascii_lowercase());
    domain
        .is_some_and(|domain| domain == "cluster.x-k8s.io" || domain.ends_with(".cluster.x-k8s.io"))
}

/// Whether the API server accepts the key: a name, optionally after a DNS subdomain (RFC 1123) and
/// a slash.
pub(crate) fn is_qualified_name(key: &str) -> bool {
    let (domain, name) = key
        .split_once('/')
        .map_or((None, key), |(domain, name)| (Some(domain), name));
    !name.is_empty() && is_label_value(name) && domain.is_none_or(is_dns_subdomain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(
        labels: &[(&str, &str)],
        annotations: &[(&str, &str)],
    ) -> Vec<(String, MetadataProblemKind)> {
        let map = |entries: &[(&str, &str)]| {
            entries
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect()
        };
        let metadata = AddressMetadata {
            labels: map(labels),
            annotations: map(annotations),
        };
        metadata
            .problems()
            .into_iter()
            .map(|problem| (problem.field, problem.kind))
            .collect()
    }

    #[test]
    fn valid_metadata_has_no_problem() {
        let labels = [
            ("vlan", "120"),
            ("example.com/zone", ""),
            ("topology.kubernetes.io/zone", "a.b_c-D"),
        ];
        let long = "x".repeat(AddressMetadata::MAX_ANNOTATION_BYTES);
        let annotations = [
            ("example.com/dns", "10.0.0.53, 10.0.1.53"),
            ("a", ""),
            ("B_c.d-e", long.as_str()),
        ];
        assert_eq!(problems(&labels, &annotations), []);
    }

    // Keys and values of labels are in `tests/data/specifications.yaml`.
    #[test]
    fn number_and_size_of_entries_are_limited() {
        let long = "x".repeat(AddressMetadata::MAX_ANNOTATION_BYTES + 1);
        let field = "spec.addressMetadata.annotations[a]".to_owned();
        assert_eq!(
            problems(&[], &[("a", &long)]),
            [(field, MetadataProblemKind::AnnotationValue)]
        );
        let keys: Vec<String> = (0..=AddressMetadata::MAX_ENTRIES)
            .map(|number| format!("k{number}"))
            .collect();
        let many: Vec<(&str, &str)> = keys.iter().map(|key| (key.as_str(), "")).collect();
        let field = "spec.addressMetadata.annotations".to_owned();
        assert_eq!(
            problems(&[], &many),
            [(field, MetadataProblemKind::TooMany)]
        );
    }
}
