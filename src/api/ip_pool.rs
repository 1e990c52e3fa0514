use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The addresses of a pool of single addresses. Wire format of the Go in-cluster provider, `v1alpha2`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "The addresses of the pool, as the operator wants them.")]
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
    /// Name of a network. Pools with the same network never give out the same address, whatever their kinds and
    /// namespaces. Without one a pool is a network of its own. It cannot be changed later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
}
