//! The ranges of a pool, each with its subnet and gateway.

use capi_ipam_ip::PoolRange;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Addresses of a pool in one subnet, with its gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressRange {
    /// Addresses that can be allocated, in the notation of spec.addresses. All must be in one
    /// subnet.
    pub addresses: Vec<String>,
    /// Prefix length of the subnet that contains the addresses. It is set on each IPAddress of the
    /// range.
    #[schemars(range(min = 0, max = 128))]
    pub prefix: i64,
    /// Gateway of the subnet. It is set on each IPAddress of the range and never allocated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
    /// Addresses of the name servers; by default those of the pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns_servers: Vec<String>,
    /// Search domains; by default those of the pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub search_domains: Vec<String>,
}

/// Prefixes of a pool with their gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrefixRange {
    /// Prefixes in CIDR notation from which prefixes of the length spec.allocationPrefixLength are
    /// allocated.
    pub prefixes: Vec<String>,
    /// Gateway that is set on each IPAddress of the range. It is not excluded from the allocated
    /// prefixes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<String>,
}

impl AddressRange {
    pub(super) fn to_range(&self) -> PoolRange<'_> {
        PoolRange {
            entries: &self.addresses,
            prefix: self.prefix,
            gateway: self.gateway.as_deref(),
        }
    }
}

impl PrefixRange {
    pub(super) fn to_range(&self) -> PoolRange<'_> {
        PoolRange {
            entries: &self.prefixes,
            gateway: self.gateway.as_deref(),
            ..PoolRange::default()
        }
    }
}
