use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The prefixes of a pool. Wire format of the Go in-cluster provider, `v1alpha2`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "The prefixes of the pool, as the operator wants them.")]
pub struct PrefixPoolSpec {
    /// The prefixes in CIDR notation (fd00:1::/48) that smaller ones are carved from and given to claims. All are of
    /// one address family.
    pub prefixes: Vec<String>,
    /// Length of the prefixes that are given to claims. It cannot be changed later.
    #[serde(default = "default_length")]
    #[schemars(range(min = 1, max = 128))]
    pub allocation_prefix_length: i64,
    /// Address handed out with each prefix as its gateway. It is not kept out of the prefixes that are given to claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Addresses, networks or ranges; a prefix with any address in one of them is never given to a claim.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded_prefixes: Vec<String>,
    /// Name of a network. Pools with the same network never give out the same address, whatever their kinds and
    /// namespaces. Without one a pool is a network of its own. It cannot be changed later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
}

/// What the API server fills in.
fn default_length() -> i64 {
    64
}
