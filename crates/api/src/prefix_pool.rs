use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::access::{Headroom, NamespaceAccess, PoolLimits};
use super::address_metadata::AddressMetadata;
use super::allocation::AllocationPolicy;
use super::ranges::PrefixRange;
use super::reclaim::ReclaimPolicy;
use super::slice_policy::SlicePolicy;

/// The specification of a pool of prefixes. Wire format of the Go in-cluster provider, `v1alpha2`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "The desired state of the pool.")]
pub struct PrefixPoolSpec {
    /// Prefixes in CIDR notation (fd00:1::/48) from which smaller prefixes are allocated. All must
    /// have the same IP family. Required without ranges.
    #[serde(default)]
    pub prefixes: Vec<String>,
    /// Length of the allocated prefixes: 64 by default. Immutable.
    #[serde(default = "default_length")]
    #[schemars(range(min = 1, max = 128))]
    pub allocation_prefix_length: i64,
    /// Gateway that is set on each IPAddress. It is not excluded from the allocated prefixes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Addresses, networks or ranges. A prefix that overlaps with one of them is never allocated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded_prefixes: Vec<String>,
    /// Name of a network. Among all pools with the same network, of any kind and namespace, an
    /// address is allocated only once. Without a network, prefixes are unique within the pool only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Further prefixes, each range with its gateway. They are used after prefixes, in the order of
    /// the list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<PrefixRange>,
    /// Addresses, networks or ranges. Prefixes that overlap with one of them are no longer
    /// allocated. What is in use there stays until it is released; status.draining counts it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub draining: Vec<String>,
    /// Labels and annotations of each new IPAddress. A change does not affect existing ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address_metadata: Option<AddressMetadata>,
    /// How the pool chooses the address of a claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<AllocationPolicy>,
    /// Divides the pool into slices: contiguous blocks of prefixes, each for the claims of one
    /// owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slices: Option<SlicePolicy>,
    /// Which addresses count as abandoned although their claims exist: none by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reclaim: Option<ReclaimPolicy>,
    /// Namespaces whose claims may use the pool: all by default. Addresses in use are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_namespaces: Option<NamespaceAccess>,
    /// Maximum numbers of addresses. A claim beyond a limit waits. Addresses in use are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<PoolLimits>,
    /// The last free addresses are only for some claims, such as those of control planes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub headroom: Option<Headroom>,
}

/// Not in the schema: what is stored equals what was written.
fn default_length() -> i64 {
    64
}
