//! The state of a network.

use super::network::{BlockLengths, MemberPhase};
use super::pool_key::PoolKey;

/// The state of a network.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NetworkView {
    /// Addresses that its pools can allocate, each counted once.
    pub total: u128,
    /// Addresses that more than one of its pools contains.
    pub shared: u128,
    /// Addresses of the pools that are in use by an IPAddress.
    pub used: u128,
    /// Addresses that can be allocated now.
    pub free: u128,
    /// The pools that belong to it, and those that still have reservations in it, ordered.
    pub members: Vec<(PoolKey, MemberPhase)>,
    /// The number of pools for which the deletion of the network waits. A pool that is not allowed
    /// in the network, or has another block length, is not counted if it holds no address of the
    /// network.
    pub needed_by: usize,
    /// The number of reservations in it.
    pub reservations: usize,
    /// Whether the lengths of its blocks cannot change: it has reservations, or pools with these
    /// lengths.
    pub keeps_lengths: bool,
    /// The block lengths that most reservations of claims have.
    pub reserved_lengths: BlockLengths,
    /// The block lengths of its oldest pools.
    pub oldest_lengths: BlockLengths,
}

impl NetworkView {
    /// Whether pools belong to the network or have reservations in it. A pool that names a network
    /// that does not allow it must not block the deletion of the network.
    pub fn is_used(&self) -> bool {
        self.needed_by > 0 || self.reservations > 0
    }
}
