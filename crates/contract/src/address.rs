use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::contract::{ContractVersion, LocalReference, PoolReference, impl_resource};
use super::names;

/// An address that is allocated to a claim. It has the name and the namespace of the claim.
///
/// Source: Cluster API book, IPAM provider contract. Reads `v1beta1` and `v1beta2` alike.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IPAddress {
    /// API group and version; set only to create an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind; set only to create an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Standard object metadata, without `managedFields`.
    #[serde(default, deserialize_with = "super::metadata::without_managed_fields")]
    pub metadata: ObjectMeta,
    /// The allocated address. Immutable.
    pub spec: IPAddressSpec,
}

impl_resource!(
    IPAddress,
    names::GROUP,
    "ipaddresses",
    NamespaceResourceScope,
    ContractVersion,
    |version| version.as_str()
);

impl IPAddress {
    /// The claim among the owners, in any version.
    pub fn claim_owner(&self) -> Option<&OwnerReference> {
        let owners = self.metadata.owner_references.as_deref()?;
        owners.iter().find(|owner| is_claim_owner(owner))
    }

    /// The uid of the claim that owns the IPAddress.
    pub fn claim_uid(&self) -> Option<&str> {
        Some(&self.claim_owner()?.uid)
    }
}

/// Whether an owner is a claim, in any version.
pub fn is_claim_owner(owner: &OwnerReference) -> bool {
    let group = owner.api_version.split_once('/').map(|(group, _)| group);
    owner.kind == "IPAddressClaim" && group == Some(names::GROUP)
}

/// The specification of an [`IPAddress`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IPAddressSpec {
    /// The claim that the address is allocated to.
    #[serde(default)]
    pub claim_ref: LocalReference,
    /// The pool that the address is allocated from.
    #[serde(default)]
    pub pool_ref: PoolReference,
    /// The IPv4 or IPv6 address.
    #[serde(default)]
    pub address: String,
    /// Prefix length of the subnet, in bits.
    #[serde(default)]
    pub prefix: i64,
    /// Gateway of the subnet; omitted, not empty, if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
}
