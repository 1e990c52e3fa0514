use std::fmt;

use capi_ipam_provider::impl_resource;
use kube::api::ObjectMeta;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::conditions::{self, Condition};
use super::ip_pool::IPPoolSpec;
use super::names;
use super::pool_spec::PoolSpec;
use super::prefix_pool::PrefixPoolSpec;

/// The kinds of pools of this provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum InClusterKind {
    /// [`InClusterIPPool`](super::InClusterIPPool).
    IPPool,
    /// [`GlobalInClusterIPPool`](super::GlobalInClusterIPPool).
    GlobalIPPool,
    /// [`InClusterPrefixPool`](super::InClusterPrefixPool).
    PrefixPool,
    /// [`GlobalInClusterPrefixPool`](super::GlobalInClusterPrefixPool).
    GlobalPrefixPool,
}

impl InClusterKind {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::IPPool, Self::GlobalIPPool, Self::PrefixPool, Self::GlobalPrefixPool];

    /// Returns the kind with this name.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The name, as in `kind: InClusterIPPool`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::IPPool => "InClusterIPPool",
            Self::GlobalIPPool => "GlobalInClusterIPPool",
            Self::PrefixPool => "InClusterPrefixPool",
            Self::GlobalPrefixPool => "GlobalInClusterPrefixPool",
        }
    }

    /// The plural name, as in API paths.
    pub const fn plural(self) -> &'static str {
        match self {
            Self::IPPool => "inclusterippools",
            Self::GlobalIPPool => "globalinclusterippools",
            Self::PrefixPool => "inclusterprefixpools",
            Self::GlobalPrefixPool => "globalinclusterprefixpools",
        }
    }

    /// Whether the kind is cluster-scoped.
    pub const fn is_global(self) -> bool {
        matches!(self, Self::GlobalIPPool | Self::GlobalPrefixPool)
    }
}

impl fmt::Display for InClusterKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// The observed state of a pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolStatus {
    /// Counts of the addresses of the pool. Pools of prefixes count prefixes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_addresses: Option<AddressCounts>,
    /// Conditions of the pool. Ready is False with reason InvalidSpec if the specification is invalid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions::list_schema")]
    pub conditions: Vec<Condition>,
}

/// Counts of the addresses of a pool. Each is limited to the maximum of a signed 64-bit integer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressCounts {
    /// Addresses that the pool can allocate, in use or not.
    pub total: i64,
    /// Addresses that can be allocated now.
    pub free: i64,
    /// Addresses of the pool that are in use.
    pub used: i64,
    /// Addresses in use that the pool no longer contains.
    pub out_of_range: i64,
    /// Addresses of the pool that are neither free, in use nor cooling down: reserved by a user, being allocated, or in
    /// use by another pool of the same network.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reserved: i64,
    /// Addresses of the pool that were released and cannot be reused before the grace period ends.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cooling_down: i64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(count: &i64) -> bool {
    *count == 0
}

/// The common interface of the kinds of pools.
pub trait Pool:
    kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static
{
    /// The kind of the pool.
    const KIND: InClusterKind;

    /// The specification of the pool.
    fn spec(&self) -> PoolSpec<'_>;
    /// The status of the pool, if it has one.
    fn status(&self) -> Option<&PoolStatus>;
    /// Mutable access to the status, which is created if it is missing.
    fn status_mut(&mut self) -> &mut PoolStatus;
    /// Clears the specification, which may list thousands of addresses, before the object is cached.
    fn clear_spec(&mut self);
}

/// Defines a kind of pool: the struct and its implementations of [`kube::Resource`] and [`Pool`].
macro_rules! pool_kind {
    ($(#[$documentation:meta])* $name:ident: $kind:ident, $plural:literal, $scope:ident, $variant:ident($spec:ty)) => {
        $(#[$documentation])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            /// API group and version; set only to create an object.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub api_version: Option<String>,
            /// Kind; set only to create an object.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub kind: Option<String>,
            /// Standard object metadata.
            #[serde(default)]
            pub metadata: ObjectMeta,
            /// The desired state of the pool.
            #[serde(default)]
            pub spec: $spec,
            /// The observed state of the pool.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub status: Option<PoolStatus>,
        }

        impl_resource!($name, names::GROUP, $plural, $scope, (), |_version| names::POOL_VERSION);

        impl Pool for $name {
            const KIND: InClusterKind = InClusterKind::$kind;

            fn spec(&self) -> PoolSpec<'_> {
                PoolSpec::$variant(&self.spec)
            }
            fn status(&self) -> Option<&PoolStatus> {
                self.status.as_ref()
            }
            fn status_mut(&mut self) -> &mut PoolStatus {
                self.status.get_or_insert_default()
            }
            fn clear_spec(&mut self) {
                self.spec = <$spec>::default();
            }
        }
    };
}

pool_kind! {
    /// A pool of single addresses for the claims of its namespace.
    InClusterIPPool: IPPool, "inclusterippools", NamespaceResourceScope, Addresses(IPPoolSpec)
}

pool_kind! {
    /// A pool of single addresses for the claims of all namespaces.
    GlobalInClusterIPPool: GlobalIPPool, "globalinclusterippools", ClusterResourceScope, Addresses(IPPoolSpec)
}

pool_kind! {
    /// A pool of prefixes for the claims of its namespace.
    InClusterPrefixPool: PrefixPool, "inclusterprefixpools", NamespaceResourceScope, Prefixes(PrefixPoolSpec)
}

pool_kind! {
    /// A pool of prefixes for the claims of all namespaces.
    GlobalInClusterPrefixPool: GlobalPrefixPool, "globalinclusterprefixpools", ClusterResourceScope, Prefixes(PrefixPoolSpec)
}
