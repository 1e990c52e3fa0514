use kube::core::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::contract::{ContractVersion, impl_resource};
use super::metadata::is_paused;
use super::names;

/// The fields of a Cluster that determine whether it is paused.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cluster {
    /// Standard object metadata, without `managedFields`.
    #[serde(default, deserialize_with = "super::metadata::without_managed_fields")]
    pub metadata: ObjectMeta,
    /// The specification, reduced to what this crate reads.
    #[serde(default)]
    pub spec: ClusterSpec,
}

impl_resource!(
    Cluster,
    names::CLUSTER_GROUP,
    "clusters",
    NamespaceResourceScope,
    ContractVersion,
    |version| version.as_str()
);

/// The part of the specification of a Cluster that this crate reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterSpec {
    /// Whether controllers must not reconcile the Cluster and its objects.
    pub paused: Option<bool>,
}

impl Cluster {
    /// Returns whether the Cluster is paused, by `spec.paused` or by the annotation
    /// `cluster.x-k8s.io/paused`.
    pub fn is_paused(&self) -> bool {
        self.spec.paused.unwrap_or_default() || is_paused(&self.metadata)
    }
}
