use kube::core::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::conditions::Condition;
use super::contract::{ContractVersion, LocalReference, PoolReference, impl_resource};
use super::names;

/// The maximum length of a requested address that is kept of a watched claim, in bytes.
pub const MAX_REQUEST_LENGTH: usize = 64;

/// A request for one address of a pool, created by an infrastructure provider.
///
/// Source: Cluster API book, IPAM provider contract. Reads `v1beta1` and `v1beta2` alike.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IPAddressClaim {
    /// API group and version; set only to create an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind; set only to create an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Standard object metadata, without `managedFields`.
    #[serde(default, deserialize_with = "super::metadata::without_managed_fields")]
    pub metadata: ObjectMeta,
    /// The requested pool and Cluster. Immutable.
    pub spec: IPAddressClaimSpec,
    /// The IPAddress and the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<IPAddressClaimStatus>,
    /// Annotations were dropped to save memory: read the object again before replacing it.
    #[serde(skip)]
    pub is_trimmed: bool,
}

impl_resource!(
    IPAddressClaim,
    names::GROUP,
    "ipaddressclaims",
    NamespaceResourceScope,
    ContractVersion,
    |version| { version.as_str() }
);

/// The specification of an [`IPAddressClaim`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IPAddressClaimSpec {
    /// Name of the Cluster that the claim belongs to. Many clients set only the label
    /// `cluster.x-k8s.io/cluster-name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_name: Option<String>,
    /// The pool to allocate an address from.
    pub pool_ref: PoolReference,
}

/// The status of an [`IPAddressClaim`].
///
/// The versions of the contract have the same two lists of conditions in different fields. Use
/// [`conditions`](Self::conditions) to read the one that is as in metav1.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IPAddressClaimStatus {
    /// The IPAddress that the claim is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address_ref: Option<LocalReference>,
    /// Conditions in the form of the contract version: as in metav1 in `v1beta2`, with a severity
    /// in `v1beta1`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// In `v1beta2`: contains the conditions with a severity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<DeprecatedStatus>,
    /// In `v1beta1`: contains the conditions as in metav1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v1beta2: Option<NestedConditions>,
}

/// The deprecated part of the status, `status.deprecated`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeprecatedStatus {
    /// Status fields of `v1beta1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v1beta1: Option<NestedConditions>,
}

/// A list of conditions within another field.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NestedConditions {
    /// The conditions, at most one of each type.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

impl IPAddressClaim {
    /// The name of the Cluster that the claim belongs to: `spec.clusterName`, or else the label
    /// `cluster.x-k8s.io/cluster-name`. `None` if both are missing or empty.
    pub fn cluster_name(&self) -> Option<&str> {
        let label = || {
            self.metadata
                .labels
                .as_ref()?
                .get(names::CLUSTER_NAME_LABEL)
                .map(String::as_str)
        };
        self.spec
            .cluster_name
            .as_deref()
            .filter(|name| !name.is_empty())
            .or_else(label)
            .filter(|name| !name.is_empty())
    }

    /// The text of the annotation [`names::REQUESTED_ADDRESS`], or else of
    /// [`names::METAL3_REQUESTED_ADDRESS`]. `None` if both are missing or empty. Of a watched claim
    /// it is truncated after [`MAX_REQUEST_LENGTH`] bytes, which is longer than any address or
    /// prefix.
    pub fn requested_address(&self) -> Option<&str> {
        let annotations = self.metadata.annotations.as_ref()?;
        let names = [names::REQUESTED_ADDRESS, names::METAL3_REQUESTED_ADDRESS];
        names
            .into_iter()
            .filter_map(|name| annotations.get(name))
            .map(String::as_str)
            .find(|text| !text.is_empty())
    }

    /// The name of the IPAddress that the claim is bound to; `None` if the claim is not bound.
    pub fn bound_address(&self) -> Option<&str> {
        let name = self.status.as_ref()?.address_ref.as_ref()?.name.as_str();
        (!name.is_empty()).then_some(name)
    }
}

impl IPAddressClaimStatus {
    /// The conditions as in metav1, from the field that `version` has for them. The definitions of
    /// the first releases of `v1beta1` do not have this field: then those with a severity.
    pub fn conditions(&self, version: ContractVersion) -> &[Condition] {
        match version {
            ContractVersion::V1Beta2 => &self.conditions,
            ContractVersion::V1Beta1 => match &self.v1beta2 {
                Some(list) if !list.conditions.is_empty() => &list.conditions,
                _ => &self.conditions,
            },
        }
    }

    /// Mutable access to the conditions as in metav1.
    pub fn conditions_mut(&mut self, version: ContractVersion) -> &mut Vec<Condition> {
        match version {
            ContractVersion::V1Beta2 => &mut self.conditions,
            ContractVersion::V1Beta1 => &mut self.v1beta2.get_or_insert_default().conditions,
        }
    }

    /// Mutable access to the conditions with a severity, which clients of `v1beta1` read.
    pub fn v1beta1_conditions_mut(&mut self, version: ContractVersion) -> &mut Vec<Condition> {
        match version {
            ContractVersion::V1Beta2 => {
                &mut self
                    .deprecated
                    .get_or_insert_default()
                    .v1beta1
                    .get_or_insert_default()
                    .conditions
            }
            ContractVersion::V1Beta1 => &mut self.conditions,
        }
    }
}
