//! How a pool chooses the address of a claim.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a pool chooses the address of a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllocationPolicy {
    /// Order of allocation. LowestFirst, the default: the lowest free address. RoundRobin: the next
    /// free address above the one that was allocated last, so that a released address is reused as
    /// late as possible. Random: each free address with the same probability. It can be changed at
    /// any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<AllocationOrder>,
    /// A claim gets the address back that the last claim of its namespace and name had, also while
    /// that address cools down. A released address is kept for its claim for an hour or for the
    /// grace period, whichever is longer. After the grace period it is allocated to other claims
    /// when no other address is free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sticky: Option<bool>,
    /// Claims may request an address with the annotation ipam.cluster.x-k8s.io/requested-address,
    /// or a prefix of a pool of prefixes. A claim waits until the requested address is free, and
    /// never gets another one. Without this field the annotation is ignored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests: Option<bool>,
}

/// How long the released address of a claim is kept for the next claim of its name in a pool with
/// [`AllocationPolicy::sticky`], unless the grace period of the pool is longer.
pub const STICKY_SECONDS: i64 = 3_600;

/// The order in which a pool allocates its free addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AllocationOrder {
    /// The lowest free address.
    #[default]
    LowestFirst,
    /// The next free address above the one that was allocated last; after the highest one, the
    /// lowest one.
    RoundRobin,
    /// A random free address.
    Random,
}
