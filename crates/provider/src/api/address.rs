use kube::api::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::contract::{ContractVersion, impl_resource, LocalReference, PoolReference};
use super::names;

/// An address given to a claim. It has the claim's name and namespace.
///
/// Source: Cluster API book, IPAM provider contract. Reads `v1beta1` and `v1beta2` alike.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IPAddress {
    /// Group and version; only set on objects that are to be created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind; only set on objects that are to be created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Standard metadata, without `managedFields`, which are not read.
    #[serde(default, deserialize_with = "super::metadata::without_managed_fields")]
    pub metadata: ObjectMeta,
    /// The address; never changes.
    pub spec: IPAddressSpec,
}

impl_resource!(IPAddress, names::GROUP, "ipaddresses", NamespaceResourceScope, ContractVersion, |version| version
    .as_str());

/// The address of an [`IPAddress`], and whom it was given to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IPAddressSpec {
    /// The claim the address was made for.
    #[serde(default)]
    pub claim_ref: LocalReference,
    /// The pool the address was taken from.
    #[serde(default)]
    pub pool_ref: PoolReference,
    /// The address as text, at most 39 characters.
    #[serde(default)]
    pub address: String,
    /// Length of the subnet's prefix, in bits.
    #[serde(default)]
    pub prefix: i64,
    /// Gateway of the subnet; left out, never empty, when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
}
