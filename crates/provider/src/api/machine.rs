use kube::api::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::contract::{ContractVersion, impl_resource};
use super::names;

/// The metadata of a Machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Standard object metadata, without `managedFields`.
    #[serde(default, deserialize_with = "super::metadata::without_managed_fields")]
    pub metadata: ObjectMeta,
}

impl_resource!(Machine, names::CLUSTER_GROUP, "machines", NamespaceResourceScope, ContractVersion, |version| version
    .as_str());
