//! The kind `IPBlock`: the records of a registry of blocks at a hub API server. Other registries
//! store the same records in another form.

use std::collections::BTreeMap;

use capi_ipam_ip::{Family, SpanSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::shared_blocks::DEFAULT_QUARANTINE_SECONDS;

/// The maximum number of [`BlockRecord::contenders`].
pub const MAX_CONTENDERS: usize = 8;

/// The maximum number of [`ClusterRecord::exclusions`]: the record of a cluster is small.
pub const MAX_EXCLUSIONS: usize = 64;

/// The number of hexadecimal digits of an [`exclusions_hash`].
pub(super) const HASH_LENGTH: usize = 8;

/// A record of a registry that several management clusters share.
///
/// Its name is derived from the record, so the API server lets only one client create it: a block
/// has one holder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IPBlock {
    /// API group and version; set only to create an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind; set only to create an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Standard object metadata, without `managedFields`.
    #[serde(
        default,
        deserialize_with = "capi_ipam_contract::without_managed_fields"
    )]
    pub metadata: ObjectMeta,
    /// The record.
    pub spec: IPBlockSpec,
}

super::resource::cluster_resource!(IPBlock, "ipblocks");

/// A record of a registry. In JSON an object with exactly one field, such as `{"block": {...}}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum IPBlockSpec {
    /// A cluster holds a block of a network.
    Block(BlockRecord),
    /// A cluster uses the registry.
    Cluster(ClusterRecord),
    /// The size of the blocks of a network: all clusters use the same one.
    Network(NetworkRecord),
    /// The registry.
    Registry(RegistryRecord),
}

/// A cluster holds a block of a network: only this cluster allocates its addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockRecord {
    /// Name of the network.
    #[schemars(length(min = 1, max = 253))]
    pub network: String,
    /// Addresses of the block in CIDR notation, such as 10.8.0.64/26.
    #[schemars(length(min = 4, max = 43))]
    pub block: String,
    /// Id of the cluster that holds the block.
    #[schemars(length(min = 1, max = 253))]
    pub cluster: String,
    /// Time at which the cluster took the block, in whole seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::crds::date_time_schema")]
    pub since: Option<Time>,
    /// Time at which the cluster returned the block, in whole seconds. It may take it back; another
    /// cluster takes it after the quarantine of the network.
    #[serde(default, alias = "emptySince", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::crds::date_time_schema")]
    pub returned_at: Option<Time>,
    /// Ids of other clusters that use addresses of the block, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(min = 1, max = 253)))]
    pub contenders: Vec<String>,
    /// Number of addresses in use when the cluster wrote the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>", range(min = 0))]
    pub used: Option<u64>,
}

/// A cluster uses the registry. It writes this record every minute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterRecord {
    /// Id of the cluster.
    #[schemars(length(min = 1, max = 253))]
    pub cluster: String,
    /// UID of the namespace kube-system of the cluster: another one is that of another cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub uid: Option<String>,
    /// Random id of the process that wrote the record.
    #[schemars(length(max = 253))]
    pub process: String,
    /// Time of the write, in whole seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::crds::date_time_schema")]
    pub seen: Option<Time>,
    /// Number of blocks that the cluster holds.
    #[serde(default)]
    #[schemars(with = "i64", range(min = 0))]
    pub blocks: u32,
    /// Number of writes of this record. If it gets smaller, the registry has lost some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i64>", range(min = 0))]
    pub writes: Option<u64>,
    /// Hash of the addresses that no pool of the cluster allocates, by network: the gateways of its
    /// pools, and spec.excluded of the network. At most 64 networks, the first ones by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub exclusions: BTreeMap<String, String>,
}

/// The size of the blocks of a network: all clusters use the same one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkRecord {
    /// Name of the network.
    #[schemars(length(min = 1, max = 253))]
    pub network: String,
    /// Number of addresses or prefixes of a block.
    #[schemars(with = "i64", range(min = 1))]
    pub size: u64,
    /// Id of the cluster that wrote the size first.
    #[schemars(length(min = 1, max = 253))]
    pub size_of: String,
    /// Seconds after the return of a block during which no other cluster takes it: the longest that
    /// any cluster has asked for. The default is 604800, a week.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub quarantine_seconds: Option<i64>,
}

impl NetworkRecord {
    /// How long after the return of a block no other cluster takes it, in seconds.
    pub fn quarantine(&self) -> i64 {
        self.quarantine_seconds
            .unwrap_or(DEFAULT_QUARANTINE_SECONDS)
    }
}

/// The identity of a registry. The first cluster that uses it writes this record, and nobody
/// changes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegistryRecord {
    /// Random id. Another id, or none, is another registry.
    #[schemars(length(min = 1, max = 63))]
    pub id: String,
}

/// The value of [`ClusterRecord::exclusions`] for these addresses. It depends on the addresses
/// only, not on how they are written, and is the same in all versions of this program.
pub fn exclusions_hash(v4: &SpanSet, v6: &SpanSet) -> String {
    let mut hasher = Sha256::new();
    for (family, addresses) in [(Family::V4, v4), (Family::V6, v6)] {
        for span in addresses.spans() {
            hasher.update([family.bits()]);
            hasher.update(span.first().to_be_bytes());
            hasher.update(span.last().to_be_bytes());
        }
    }
    let mut hash = format!("{:x}", hasher.finalize());
    hash.truncate(HASH_LENGTH);
    hash
}

impl IPBlock {
    /// An object of this name with this record, to create it.
    pub fn new(name: &str, spec: IPBlockSpec) -> Self {
        Self {
            api_version: Some(format!(
                "{}/{}",
                super::names::GROUP,
                super::names::POOL_VERSION
            )),
            kind: Some("IPBlock".to_owned()),
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            spec,
        }
    }
}

#[cfg(test)]
mod tests {
    use capi_ipam_ip::Span;
    use serde_json::json;

    use super::*;

    #[test]
    fn hash_of_exclusions_is_the_same_in_all_versions() {
        let set = |last: &[u128]| -> SpanSet { last.iter().copied().map(Span::single).collect() };
        let none = SpanSet::default();
        assert_eq!(exclusions_hash(&none, &none), "e3b0c442");
        assert_eq!(exclusions_hash(&set(&[1, 2]), &set(&[7])), "7827d7dd");
        let adjacent: SpanSet = Span::new(1, 2).into_iter().collect();
        assert_eq!(exclusions_hash(&adjacent, &set(&[7])), "7827d7dd");
        assert_ne!(
            exclusions_hash(&set(&[1]), &none),
            exclusions_hash(&none, &set(&[1]))
        );
    }

    #[test]
    fn record_is_the_only_field_of_the_specification() {
        let value = json!({
            "metadata": {"name": "block.lab.10.0.0.0-26"},
            "spec": {"block": {"network": "lab", "block": "10.0.0.0/26", "cluster": "west",
                               "since": "2026-01-01T12:00:00Z", "of a later version": 1}},
        });
        let block: IPBlock = serde_json::from_value(value).unwrap();
        let IPBlockSpec::Block(record) = &block.spec else {
            panic!("{block:?}")
        };
        assert_eq!(record.cluster, "west");
        let written = serde_json::to_value(&block).unwrap();
        assert_eq!(
            written["spec"]["block"]["since"],
            json!("2026-01-01T12:00:00Z")
        );
        assert_eq!(written["spec"].as_object().unwrap().len(), 1);
    }
}
