use std::fmt;

use capi_ipam_contract::IPAddressClaim;

use super::{PoolKey, PoolSetKey};

/// What a claim names: a pool, or a set of pools. Displayed as `InClusterIPPool team-a/web`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NamedPool {
    /// A pool.
    Pool(PoolKey),
    /// A set of pools.
    Set(PoolSetKey),
}

impl NamedPool {
    /// Returns what a claim names; `None` if it is not of a kind of this provider.
    pub fn of_claim(claim: &IPAddressClaim) -> Option<Self> {
        match PoolKey::of_claim(claim) {
            Some(pool) => Some(Self::Pool(pool)),
            None => PoolSetKey::of_claim(claim).map(Self::Set),
        }
    }

    /// Returns the pool; `None` if it is a set of pools.
    pub fn pool(&self) -> Option<&PoolKey> {
        match self {
            Self::Pool(pool) => Some(pool),
            Self::Set(_) => None,
        }
    }
}

impl fmt::Display for NamedPool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool(pool) => pool.fmt(formatter),
            Self::Set(set) => set.fmt(formatter),
        }
    }
}
