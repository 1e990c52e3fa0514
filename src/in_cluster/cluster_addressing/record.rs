//! The annotation on a Cluster that records which addresses were written for a ClusterAddressing.

use std::collections::{BTreeMap, BTreeSet};

use capi_ipam_api::{ClusterAddressing, ClusterField, names};
use capi_ipam_provider::api::AddressableCluster;
use kube::ResourceExt;
use kube::core::ObjectMeta;

use super::fields;

/// The prefix of the keys in the record that have the address of an item.
pub(super) const ITEM_PREFIX: &str = "item:";
/// What the record has in place of the address of an item whose fields the user has written.
pub(super) const SET_BY_USER: &str = "set by the user";
/// A key of a record that was written when the Cluster was created: its ConfigMaps, which the
/// Cluster owns, do not exist yet, or claims that it does not use are not released.
pub(super) const UNFINISHED: &str = "unfinished";

/// What the annotation of a Cluster says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// The addresses are not written.
    Missing,
    /// The text is not a record. The addresses may be written.
    Invalid,
    /// What was written when the Cluster was created. ConfigMaps, or the release of unused claims,
    /// follow.
    Unfinished(BTreeMap<String, String>),
    /// What was written, by field and by item.
    Written(BTreeMap<String, String>),
}

/// What the annotation of a Cluster says of a ClusterAddressing.
pub(super) fn record(cluster: &AddressableCluster, addressing: &ClusterAddressing) -> Record {
    let annotation = annotation(&addressing.name_any());
    let Some(text) = cluster.annotations().get(&annotation) else {
        return Record::Missing;
    };
    match serde_json::from_str::<BTreeMap<String, String>>(text) {
        Ok(written) if written.contains_key(UNFINISHED) => Record::Unfinished(written),
        // A record has all items.
        Ok(written) if !written.is_empty() => Record::Written(written),
        _ => Record::Invalid,
    }
}

/// Whether a Cluster has its addresses, as its annotation says.
pub(super) fn is_delivered(cluster: &AddressableCluster, addressing: &ClusterAddressing) -> bool {
    matches!(record(cluster, addressing), Record::Written(_))
}

/// Whether a Cluster has a part of its addresses, as its annotation says.
pub(super) fn is_unfinished(cluster: &AddressableCluster, addressing: &ClusterAddressing) -> bool {
    matches!(record(cluster, addressing), Record::Unfinished(_))
}

/// The names of the items of a ClusterAddressing, and of those whose addresses a Cluster has.
pub(super) fn item_names(
    cluster: &AddressableCluster,
    addressing: &ClusterAddressing,
) -> BTreeSet<String> {
    let items = addressing.spec.items.iter();
    let found = items.map(|item| item.name.clone());
    found.chain(recorded_names(cluster, addressing)).collect()
}

/// The names of the items whose addresses a Cluster has.
pub(super) fn recorded_names(
    cluster: &AddressableCluster,
    addressing: &ClusterAddressing,
) -> BTreeSet<String> {
    match record(cluster, addressing) {
        Record::Written(written) | Record::Unfinished(written) => {
            recorded_items(&written).map(str::to_owned).collect()
        }
        Record::Missing | Record::Invalid => BTreeSet::new(),
    }
}

/// The items with an address in a record.
pub(super) fn recorded_items(written: &BTreeMap<String, String>) -> impl Iterator<Item = &str> {
    let allocated = written.iter().filter(|(_, value)| *value != SET_BY_USER);
    allocated.filter_map(|(key, _)| key.strip_prefix(ITEM_PREFIX))
}

/// The name of the annotation that records what was written for a ClusterAddressing.
pub(super) fn annotation(addressing: &str) -> String {
    format!("{}{addressing}", names::DELIVERED_ANNOTATION_PREFIX)
}

/// The fields of a Cluster that do not have the value that was written.
pub(super) fn drift(
    cluster: &AddressableCluster,
    written: &BTreeMap<String, String>,
) -> Option<String> {
    let mut changed = Vec::new();
    for (text, expected) in written {
        let Some(field) = ClusterField::parse(text) else {
            continue;
        };
        let found = fields::read(cluster, &field);
        if found.as_ref() != Some(expected) {
            let found = found.unwrap_or_else(|| "empty".to_owned());
            changed.push(format!("{field} is {found}, not {expected}"));
        }
    }
    if changed.is_empty() {
        return None;
    }
    Some(changed.join("; "))
}

/// Whether a Cluster has the annotation, whatever it says.
pub(super) fn has_record(cluster: &ObjectMeta, addressing: &str) -> bool {
    let annotations = cluster.annotations.as_ref();
    annotations.is_some_and(|all| all.contains_key(&annotation(addressing)))
}
