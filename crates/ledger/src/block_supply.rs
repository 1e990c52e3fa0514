//! What a registry has for a network: whether the network can get another block.

use std::sync::Arc;

/// Why a network gets no further block now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockObstacle {
    /// There is no such registry.
    NoRegistry,
    /// The registry cannot be reached.
    Unreachable,
    /// The registry can be reached, and refuses a record of the network or of a block.
    Refused,
    /// Another process writes with the identity of this management cluster.
    Suspended,
    /// Other management clusters have all blocks in the ranges of the pool.
    AllTaken,
    /// This management cluster has as many blocks as it may have: this number.
    Limit(usize),
    /// Blocks have another size in another management cluster.
    SizeDiffers {
        /// The size there.
        size: u64,
        /// The management cluster that set it first.
        cluster: String,
    },
}

/// What a registry has for a network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockSupply {
    /// The number of blocks of other management clusters.
    pub others: usize,
    /// Why claims that wait for a block get none now.
    pub obstacle: Option<BlockObstacle>,
    /// What other management clusters exclude, as entries of a list of addresses. The pools respect
    /// it from the moment when the status of the network contains it. `None` as long as the registry
    /// has not shown it: what the status of the network contains stays.
    pub excluded: Option<Vec<String>>,
}

/// The claims of a network that wait until this management cluster has another block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingForBlock {
    /// The network.
    pub network: Arc<str>,
    /// Why it gets no further block now; `None` while one is being taken.
    pub obstacle: Option<BlockObstacle>,
    /// The number of claims.
    pub claims: usize,
}
