use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::contract::impl_resource;
use super::names;

/// Who holds one address of one scope.
///
/// The name is made of the scope and the address, so that creating the object is the claim to the address: of two
/// writers the API server lets one through. Nothing but `releasedAt` ever changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IPReservation {
    /// Group and version; only set on objects that are to be created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<String>,
    /// Kind; only set on objects that are to be created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Standard metadata. The name is made by `in_cluster::reservation_name`.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// Address and holder.
    pub spec: IPReservationSpec,
}

impl_resource!(IPReservation, names::GROUP, "ipreservations", ClusterResourceScope, (), |_version| {
    names::POOL_VERSION
});

/// Address and holder of an [`IPReservation`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IPReservationSpec {
    /// The set within which the address is unique: p.NAMESPACE.POOL for a pool of a namespace, g.POOL for a global
    /// pool, n.NETWORK for a named network.
    #[schemars(length(min = 1, max = 512))]
    pub scope: String,
    /// The reserved address.
    #[schemars(length(min = 2, max = 39))]
    pub address: String,
    /// Length of the prefix when a whole prefix is reserved and not a single address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 128))]
    pub prefix_length: Option<i32>,
    /// The pool that the address was taken from.
    pub pool_ref: ReservationPool,
    /// The claim that holds the address. Without one the address is kept out of its pool. Without a uid the address is
    /// promised to the claim of that name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_ref: Option<ReservationClaim>,
    /// When the holder gave the address back. It is given out again once the grace period of the pool is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "super::crds::date_time_schema")]
    pub released_at: Option<Time>,
}

/// A reference to a pool from an object without a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReservationPool {
    /// Kind of the pool.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Namespace of the pool; none for a global pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: Option<String>,
    /// Name of the pool.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A reference to a claim from an object without a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReservationClaim {
    /// Namespace of the claim.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// Name of the claim.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Unique id of the claim; none while the address is only promised to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64))]
    pub uid: Option<String>,
}
