use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::access::{Headroom, NamespaceAccess, PoolLimits};
use super::address_metadata::AddressMetadata;
use super::allocation::AllocationPolicy;
use super::name_servers::PoolDns;
use super::ranges::AddressRange;
use super::reclaim::ReclaimPolicy;
use super::slice_policy::SlicePolicy;

/// The specification of a pool of single addresses. Wire format of the Go in-cluster provider,
/// `v1alpha2`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "The desired state of the pool.")]
pub struct IPPoolSpec {
    /// Addresses that can be allocated. An entry is a single address (10.0.0.7), a network in CIDR
    /// notation (10.0.0.0/24) or a range including both ends (10.0.0.10-10.0.0.99). All entries
    /// must have the same IP family and be in one subnet. Required without ranges.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// Prefix length of the subnet that contains the addresses. It is set on each IPAddress.
    /// Required with addresses.
    #[serde(default)]
    #[schemars(range(min = 0, max = 128))]
    pub prefix: i64,
    /// Gateway of the subnet. It is set on each IPAddress and never allocated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Allows the allocation of the first address of the subnet and, for IPv4, of the last one. By
    /// default they are reserved.
    #[serde(
        default,
        rename = "allocateReservedIPAddresses",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub allocate_reserved_ip_addresses: bool,
    /// Addresses, networks or ranges that are never allocated, in the same notation as addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded_addresses: Vec<String>,
    /// Seconds before a released address can be reused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub address_reuse_grace_period_seconds: Option<i32>,
    /// Name of a network. Among all pools with the same network, of any kind and namespace, an
    /// address is allocated only once. Without a network, addresses are unique within the pool
    /// only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// Further addresses in other subnets, each range with its gateway. They are used after
    /// addresses, in the order of the list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<AddressRange>,
    /// Addresses, networks or ranges, in the notation of addresses, in which nothing is allocated.
    /// What is in use there stays until it is released; status.draining counts it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub draining: Vec<String>,
    /// Labels and annotations of each new IPAddress. A change does not affect existing ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address_metadata: Option<AddressMetadata>,
    /// Addresses of the name servers for the machines. They are set as an annotation on each new
    /// IPAddress.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns_servers: Vec<String>,
    /// Search domains for the machines. They are set as an annotation on each new IPAddress.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub search_domains: Vec<String>,
    /// DNS names of the addresses. The name is set as an annotation on each new IPAddress, and
    /// optionally as a DNSEndpoint of ExternalDNS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<PoolDns>,
    /// How the pool chooses the address of a claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<AllocationPolicy>,
    /// Divides the pool into slices: contiguous blocks of addresses, each for the claims of one
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
