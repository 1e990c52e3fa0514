//! What a write changes about the scope of a pool.

use capi_ipam_ip::Block;

use super::network_refusal::NetworkRefusal;
use super::pool_key::PoolKey;
use super::scope::Scope;

/// The scope of a pool before and after a write.
#[derive(Clone, Debug, PartialEq)]
pub struct ScopeChange {
    /// The pool.
    pub pool: PoolKey,
    /// The scope before the write; `None` if the pool does not exist.
    pub before: Option<Scope>,
    /// The scope after the write.
    pub after: Scope,
    /// Why its network does not accept the pool after the write.
    pub refusal: Option<NetworkRefusal>,
    /// Whether nothing says any more that the pool belongs to its network after the write, and it
    /// stays there because addresses of it are in use.
    pub is_kept: bool,
    /// The addresses in use that the change affects, in ascending order. If the pool leaves a
    /// network: all of the pool. If it only joins one: those that another pool of the network has
    /// reserved or in use as well.
    pub affected: Vec<Block>,
}

impl ScopeChange {
    /// The network that the pool leaves.
    pub fn left_network(&self) -> Option<&str> {
        let before = self
            .before
            .as_ref()
            .filter(|before| **before != self.after)?;
        before.network()
    }

    /// The network that the pool joins.
    pub fn joined_network(&self) -> Option<&str> {
        if self.before.as_ref() == Some(&self.after) {
            return None;
        }
        self.after.network()
    }
}
