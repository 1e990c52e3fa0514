//! The fields of a Cluster that hold addresses.

use kube::core::ObjectMeta;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::contract::{ContractVersion, impl_resource};
use super::metadata::is_paused;
use super::names;

/// A Cluster with the fields that hold its addresses. They are the same in every version of the
/// contract.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cluster {
    /// Standard object metadata, without `managedFields`.
    #[serde(default, deserialize_with = "super::metadata::without_managed_fields")]
    pub metadata: ObjectMeta,
    /// The specification, reduced to what holds addresses.
    #[serde(default)]
    pub spec: AddressableClusterSpec,
}

impl_resource!(
    Cluster,
    names::CLUSTER_GROUP,
    "clusters",
    NamespaceResourceScope,
    ContractVersion,
    |version| version.as_str()
);

impl Cluster {
    /// Returns whether the Cluster is paused, by `spec.paused` or by the annotation
    /// `cluster.x-k8s.io/paused`.
    pub fn is_paused(&self) -> bool {
        self.spec.paused.unwrap_or_default() || is_paused(&self.metadata)
    }
}

/// The part of the specification of a Cluster that holds addresses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AddressableClusterSpec {
    /// Whether controllers must not reconcile the Cluster and its objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Where the API server of the Cluster is reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane_endpoint: Option<Endpoint>,
    /// The networks of pods and Services.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_network: Option<ClusterNetwork>,
    /// The ClusterClass of the Cluster, and the values of its variables.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<Topology>,
}

/// The address of an API server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Endpoint {
    /// Name or address; empty if it is not known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// Port; none or 0 if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<i32>,
}

/// The networks of a Cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterNetwork {
    /// The network of the pods.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pods: Option<NetworkRanges>,
    /// The network of the Services.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub services: Option<NetworkRanges>,
}

/// The blocks of a network of a Cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NetworkRanges {
    /// Blocks in CIDR notation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cidr_blocks: Vec<String>,
}

/// The topology of a Cluster that a ClusterClass manages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Topology {
    /// The values of variables.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<Variable>,
}

/// The value of a variable of a ClusterClass.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Variable {
    /// Name of the variable.
    pub name: String,
    /// Its value, of the type that the ClusterClass declares.
    pub value: Value,
}
