use kube::api::ObjectMeta;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::conditions::{self, Condition};
use super::contract::impl_resource;
use super::names;

/// A pool of single addresses for the claims of its namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InClusterIPPool {
    /// Group and version; only set on objects that are to be created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind; only set on objects that are to be created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Standard metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The addresses, as the operator wants them.
    pub spec: IPPoolSpec,
    /// Use of the addresses, as the provider sees it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<PoolStatus>,
}

impl_resource!(InClusterIPPool, names::GROUP, "inclusterippools", NamespaceResourceScope, (), |_version| {
    names::POOL_VERSION
});

/// A pool of single addresses for the claims of all namespaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GlobalInClusterIPPool {
    /// Group and version; only set on objects that are to be created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind; only set on objects that are to be created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Standard metadata.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The addresses, as the operator wants them.
    pub spec: IPPoolSpec,
    /// Use of the addresses, as the provider sees it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<PoolStatus>,
}

impl_resource!(GlobalInClusterIPPool, names::GROUP, "globalinclusterippools", ClusterResourceScope, (), |_version| {
    names::POOL_VERSION
});

/// The addresses of a pool of single addresses. Wire format of the Go in-cluster provider, `v1alpha2`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IPPoolSpec {
    /// The addresses that claims are served from. An entry is a single address (10.0.0.7), a network in CIDR notation
    /// (10.0.0.0/24) or a range with both ends included (10.0.0.10-10.0.0.99). All entries are of one address family
    /// and lie within one subnet.
    pub addresses: Vec<String>,
    /// Length of the prefix of the subnet that the addresses lie in; it is handed out with each address.
    #[schemars(range(min = 0, max = 128))]
    pub prefix: i64,
    /// Gateway of the subnet, handed out with each address and never given to a claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Whether the first address of the subnet and, for IPv4, the last one may be given to claims. They are held back
    /// unless this is set.
    #[serde(default, rename = "allocateReservedIPAddresses", skip_serializing_if = "std::ops::Not::not")]
    pub allocate_reserved_ip_addresses: bool,
    /// Addresses, networks or ranges, written as in addresses, that are never given to a claim.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded_addresses: Vec<String>,
    /// How many seconds a released address rests before it is given out again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub address_reuse_grace_period_seconds: Option<i32>,
}

/// Use of a pool's addresses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolStatus {
    /// How many addresses there are, and how many of them are in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_addresses: Option<AddressCounts>,
    /// How the pool stands. Ready is False with reason InvalidSpec when its addresses cannot be understood.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions::list_schema")]
    pub conditions: Vec<Condition>,
}

/// Counts of a pool's addresses, each at most the largest signed 64-bit number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressCounts {
    /// Addresses that can be given to claims, whether in use or not.
    pub total: i64,
    /// Addresses that can be given out now.
    pub free: i64,
    /// Addresses of the pool that are in use.
    pub used: i64,
    /// Addresses in use that the pool no longer contains.
    pub out_of_range: i64,
}

/// What the kinds of pools of single addresses have in common.
pub trait Pool:
    kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// The kind's name.
    const KIND: &'static str;

    /// The specification.
    fn spec(&self) -> &IPPoolSpec;
    /// The status as last read.
    fn status(&self) -> Option<&PoolStatus>;
    /// The status, to be changed.
    fn status_mut(&mut self) -> &mut PoolStatus;
}

macro_rules! impl_pool {
    ($name:ident) => {
        impl Pool for $name {
            const KIND: &'static str = stringify!($name);

            fn spec(&self) -> &IPPoolSpec {
                &self.spec
            }
            fn status(&self) -> Option<&PoolStatus> {
                self.status.as_ref()
            }
            fn status_mut(&mut self) -> &mut PoolStatus {
                self.status.get_or_insert_default()
            }
        }
    };
}
impl_pool!(InClusterIPPool);
impl_pool!(GlobalInClusterIPPool);
