use kube::api::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::contract::{ContractVersion, impl_resource};
use super::names;

/// The few fields of a Cluster that matter to an IPAM provider: whether it is paused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cluster {
    /// Standard metadata, without `managedFields`, which are not read.
    #[serde(default, deserialize_with = "super::metadata::without_managed_fields")]
    pub metadata: ObjectMeta,
    /// The part of the specification that is read.
    #[serde(default)]
    pub spec: ClusterSpec,
}

impl_resource!(Cluster, names::CLUSTER_GROUP, "clusters", NamespaceResourceScope, ContractVersion, |version| version
    .as_str());

/// The part of a Cluster's specification that is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterSpec {
    /// Whether reconciliation of the Cluster and of all that belongs to it has to stop.
    pub paused: Option<bool>,
}

impl Cluster {
    /// Whether the Cluster is paused, by its specification or by annotation.
    pub fn is_paused(&self) -> bool {
        self.spec.paused.unwrap_or_default()
            || self.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(names::PAUSED_ANNOTATION))
    }
}
