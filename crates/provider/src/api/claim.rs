use kube::api::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::conditions::Condition;
use super::contract::{ContractVersion, impl_resource, LocalReference, PoolReference};
use super::names;

/// A request for one address of a pool, made by an infrastructure provider.
///
/// Source: Cluster API book, IPAM provider contract. Reads `v1beta1` and `v1beta2` alike.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IPAddressClaim {
    /// Group and version; only set on objects that are to be created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind; only set on objects that are to be created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Standard metadata, without `managedFields`, which are not read.
    #[serde(default, deserialize_with = "super::metadata::without_managed_fields")]
    pub metadata: ObjectMeta,
    /// What is asked for; never changes.
    pub spec: IPAddressClaimSpec,
    /// What was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<IPAddressClaimStatus>,
    /// Annotations were left out to save memory: the object must be read before it is written whole.
    #[serde(skip)]
    pub is_trimmed: bool,
}

impl_resource!(IPAddressClaim, names::GROUP, "ipaddressclaims", NamespaceResourceScope, ContractVersion, |version| {
    version.as_str()
});

/// What an [`IPAddressClaim`] asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IPAddressClaimSpec {
    /// Name of the Cluster the claim belongs to. Many clients leave it out and set the label instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// The pool to take an address from.
    pub pool_ref: PoolReference,
}

/// What an [`IPAddressClaim`] was given, and how it stands.
///
/// The two versions of the contract keep the same lists of conditions in different places; both are read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IPAddressClaimStatus {
    /// The IPAddress made for the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address_ref: Option<LocalReference>,
    /// In `v1beta2` conditions as in metav1; in `v1beta1` those with a severity.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// In `v1beta2` the place of the conditions with a severity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<Deprecated>,
    /// In `v1beta1` the place of the conditions as in metav1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v1beta2: Option<LegacyConditions>,
}

/// Holder of the fields that the next version of the contract drops.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Deprecated {
    /// Fields of `v1beta1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v1beta1: Option<LegacyConditions>,
}

/// A list of conditions below another field.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LegacyConditions {
    /// The conditions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl IPAddressClaim {
    /// The name of the Cluster the claim belongs to: `spec.clusterName`, else the label. `None` when neither is set
    /// or both are empty.
    pub fn cluster_name(&self) -> Option<&str> {
        let label = || self.metadata.labels.as_ref()?.get(names::CLUSTER_NAME_LABEL).map(String::as_str);
        self.spec.cluster_name.as_deref().filter(|name| !name.is_empty()).or_else(label).filter(|name| !name.is_empty())
    }

    /// The name of the bound IPAddress, if the claim is bound.
    pub fn bound_address(&self) -> Option<&str> {
        let name = self.status.as_ref()?.address_ref.as_ref()?.name.as_str();
        (!name.is_empty()).then_some(name)
    }
}

impl IPAddressClaimStatus {
    /// The conditions as in metav1, wherever `version` keeps them.
    pub fn conditions(&self, version: ContractVersion) -> &[Condition] {
        match version {
            ContractVersion::V1Beta2 => &self.conditions,
            ContractVersion::V1Beta1 => self.v1beta2.as_ref().map_or(&[], |list| &list.conditions),
        }
    }

    /// The conditions as in metav1, to change them.
    pub fn conditions_mut(&mut self, version: ContractVersion) -> &mut Vec<Condition> {
        match version {
            ContractVersion::V1Beta2 => &mut self.conditions,
            ContractVersion::V1Beta1 => &mut self.v1beta2.get_or_insert_default().conditions,
        }
    }

    /// The conditions with a severity, which clients of `v1beta1` read, to change them.
    pub fn legacy_conditions_mut(&mut self, version: ContractVersion) -> &mut Vec<Condition> {
        match version {
            ContractVersion::V1Beta2 => {
                &mut self.deprecated.get_or_insert_default().v1beta1.get_or_insert_default().conditions
            }
            ContractVersion::V1Beta1 => &mut self.conditions,
        }
    }
}
