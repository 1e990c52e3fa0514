use std::collections::HashMap;
use std::net::IpAddr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::core::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::claim::IPAddressClaim;
use super::contract::{ContractVersion, impl_resource};
use super::names;

/// The suffix of the API groups of infrastructure providers.
const INFRASTRUCTURE_GROUP: &str = "infrastructure.cluster.x-k8s.io";

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
    /// The failure domain in which the Machine is created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_domain: Option<String>,
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

impl Machine {
    /// The IP addresses that the Machine reports, each once, in ascending order. Names are left
    /// out.
    pub fn ip_addresses(&self) -> Vec<IpAddr> {
        let mut addresses = Vec::new();
        for address in &self.status.addresses {
            if let Ok(address) = address.address.parse::<IpAddr>() {
                addresses.push(address.to_canonical());
            }
        }
        addresses.sort_unstable();
        addresses.dedup();
        addresses
    }
}

/// The owner of a claim that is a Machine, or an infrastructure machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineOwner<'a> {
    /// The name. Cluster API gives infrastructure machines the name of their Machine.
    pub name: &'a str,
    /// The kind of the infrastructure machine; `None` for a Machine.
    infrastructure: Option<&'a str>,
}

impl<'a> MachineOwner<'a> {
    /// The first owner of a claim that is one; `None` if it has no such owner.
    pub fn of(claim: &'a IPAddressClaim) -> Option<Self> {
        claim.owner_references().iter().find_map(Self::new)
    }

    /// Whether this Machine, which has the name, is the owner, or has it as infrastructure machine.
    pub fn is_of(&self, machine: &Machine) -> bool {
        let InfrastructureReference { kind, name } = &machine.spec.infrastructure_ref;
        match self.infrastructure {
            Some(infrastructure) => kind == infrastructure && name == self.name,
            None => true,
        }
    }

    fn new(owner: &'a OwnerReference) -> Option<Self> {
        let (group, _) = owner.api_version.split_once('/')?;
        let is_machine = group == names::CLUSTER_GROUP && owner.kind == "Machine";
        let infrastructure = (group == INFRASTRUCTURE_GROUP).then_some(owner.kind.as_str());
        (is_machine || infrastructure.is_some()).then_some(Self {
            name: &owner.name,
            infrastructure,
        })
    }
}

/// The Machines of one namespace, with what is known of each.
#[derive(Clone, Debug)]
pub struct MachineIndex<T> {
    by_name: HashMap<Box<str>, T>,
    /// The names of the Machines whose infrastructure machine has another name, by kind and name of
    /// the latter.
    by_infrastructure: HashMap<(Box<str>, Box<str>), Box<str>>,
}

impl<T> Default for MachineIndex<T> {
    fn default() -> Self {
        Self {
            by_name: HashMap::new(),
            by_infrastructure: HashMap::new(),
        }
    }
}

impl<T> MachineIndex<T> {
    /// Adds a Machine, unless it has no name.
    pub fn insert(&mut self, machine: &Machine, value: T) {
        let Some(name) = machine.metadata.name.as_deref() else {
            return;
        };
        self.by_name.insert(name.into(), value);
        let InfrastructureReference {
            kind,
            name: infrastructure,
        } = &machine.spec.infrastructure_ref;
        if infrastructure != name {
            let key = (kind.as_str().into(), infrastructure.as_str().into());
            self.by_infrastructure.insert(key, name.into());
        }
    }

    /// The name of the Machine of a claim, by the owner references of the claim, and what is known
    /// of it; `None` if there is no such Machine.
    pub fn find(&self, claim: &IPAddressClaim) -> Option<(&str, &T)> {
        let owner = MachineOwner::of(claim)?;
        let renamed = owner.infrastructure.and_then(|kind| {
            self.by_infrastructure
                .get(&(kind.into(), owner.name.into()))
        });
        let name = renamed.map_or(owner.name, AsRef::as_ref);
        let (name, value) = self.by_name.get_key_value(name)?;
        Some((name, value))
    }
}
