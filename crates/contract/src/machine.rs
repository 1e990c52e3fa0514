use kube::core::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::contract::{ContractVersion, impl_resource};
use super::names;

/// A Machine, reduced to what identifies it and to the addresses that it reports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Standard object metadata, without `managedFields`.
    #[serde(default, deserialize_with = "super::metadata::without_managed_fields")]
    pub metadata: ObjectMeta,
    /// The specification, reduced to what this crate reads.
    #[serde(default)]
    pub spec: MachineSpec,
    /// The status, reduced to what this crate reads.
    #[serde(default)]
    pub status: MachineStatus,
}

impl_resource!(
    Machine,
    names::CLUSTER_GROUP,
    "machines",
    NamespaceResourceScope,
    ContractVersion,
    |version| version.as_str()
);

/// The part of the specification of a Machine that this crate reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MachineSpec {
    /// The infrastructure machine.
    pub infrastructure_ref: InfrastructureReference,
}

/// A reference to an infrastructure machine, in any version of the contract.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InfrastructureReference {
    /// Kind of the infrastructure machine, such as `VSphereMachine`.
    pub kind: String,
    /// Name of the infrastructure machine.
    pub name: String,
}

/// The part of the status of a Machine that this crate reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineStatus {
    /// The addresses of the Machine.
    pub addresses: Vec<MachineAddress>,
}

/// An address that a Machine reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MachineAddress {
    /// An IP address or a name.
    pub address: String,
}
