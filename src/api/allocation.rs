//! How a pool chooses the address of a claim.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a pool chooses the address of a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllocationPolicy {
    /// Order of allocation. LowestFirst, the default: the lowest free address. RoundRobin: the next free address above
    /// the one that was allocated last, so that a released address is reused as late as possible. Random: each free
    /// address with the same probability. It can be changed at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order: Option<AllocationOrder>,
}

/// The order in which a pool allocates its free addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AllocationOrder {
    /// The lowest free address.
    #[default]
    LowestFirst,
    /// The next free address above the one that was allocated last; after the highest one, the lowest one.
    RoundRobin,
    /// A random free address.
    Random,
}
