use capi_ipam_ip::{PoolAddresses, PoolPrefixes, PoolProblem, Usable};

use super::ip_pool::IPPoolSpec;
use super::prefix_pool::PrefixPoolSpec;

/// The specification of a pool.
#[derive(Clone, Copy, Debug)]
pub enum PoolSpec<'a> {
    /// Of a pool of single addresses.
    Addresses(&'a IPPoolSpec),
    /// Of a pool of prefixes.
    Prefixes(&'a PrefixPoolSpec),
}

impl<'a> PoolSpec<'a> {
    /// What the pool may give to claims, or everything that is wrong with it.
    pub fn usable(self) -> Result<Usable, Vec<PoolProblem>> {
        match self {
            Self::Addresses(spec) => PoolAddresses {
                addresses: &spec.addresses,
                excluded: &spec.excluded_addresses,
                prefix: spec.prefix,
                gateway: spec.gateway.as_deref(),
                allocate_reserved: spec.allocate_reserved_ip_addresses,
            }
            .usable(),
            Self::Prefixes(spec) => PoolPrefixes {
                prefixes: &spec.prefixes,
                excluded: &spec.excluded_prefixes,
                length: spec.allocation_prefix_length,
                gateway: spec.gateway.as_deref(),
            }
            .usable(),
        }
    }

    /// The named network, if there is one. An empty name is none.
    pub fn network(self) -> Option<&'a str> {
        let network = match self {
            Self::Addresses(spec) => &spec.network,
            Self::Prefixes(spec) => &spec.network,
        };
        network.as_deref().filter(|name| !name.is_empty())
    }

    /// How many seconds a released address rests; prefixes never do.
    pub fn rest(self) -> i64 {
        match self {
            Self::Addresses(spec) => spec.address_reuse_grace_period_seconds.unwrap_or_default().max(0).into(),
            Self::Prefixes(_) => 0,
        }
    }
}
