//! What a registry has for a network: whether the network can get another block.

use std::collections::BTreeMap;
use std::sync::Arc;

use capi_ipam_api::PoolKey;
use capi_ipam_ip::Block;

/// Why a network gets no further block now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockObstacle {
    /// There is no such registry.
    NoRegistry,
    /// The registry cannot be reached.
    Unreachable,
    /// The registry can be reached, and refuses a record of the network or of a block.
    Refused,
    /// Another cluster writes with the identity of this management cluster.
    Suspended,
    /// The registry is not the one from which blocks were taken before.
    Replaced,
    /// The registry has lost writes, and not all management clusters have written again.
    Restored,
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
    /// The record of the network cannot be decoded.
    RecordUndecodable,
    /// No address of a block is allocated: its IPSlice, which has this name, is not valid, is being
    /// deleted, or is one of another management cluster or registry. There is no other block.
    SliceUnavailable(String),
}

/// The pool of a claim could allocate an address that is outside of the usable blocks of its
/// network: this management cluster has to take a block first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingBlock {
    /// The network.
    pub network: Arc<str>,
    /// The registry from which blocks are taken. `None` if the network does not share blocks any
    /// more: the pools allocate all addresses again when the last slice of a block is deleted.
    pub registry: Option<String>,
    /// Why it gets no further block now; `None` while one is being taken.
    pub obstacle: Option<BlockObstacle>,
}

/// What a registry has for a network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockSupply {
    /// The number of blocks of other management clusters. `None` as long as the registry does not
    /// show them: what the status of the network contains stays.
    pub others: Option<usize>,
    /// Why no pool gets a further block now.
    pub obstacle: Option<BlockObstacle>,
    /// Why single pools get no further block now.
    pub pools: BTreeMap<PoolKey, BlockObstacle>,
    /// Why the blocks of requested addresses are not taken now.
    pub requested: BTreeMap<Block, BlockObstacle>,
    /// The management clusters that exclude other addresses from the network than this one. `None`
    /// as long as the registry does not show it: what the status of the network contains stays.
    pub differing_clusters: Option<Vec<Box<str>>>,
}

impl BlockSupply {
    /// Why a pool gets no further block now, or not that of the requested address.
    pub(super) fn obstacle_of(
        &self,
        pool: &PoolKey,
        requested: Option<Block>,
    ) -> Option<&BlockObstacle> {
        let single = match requested {
            Some(address) => self.requested.get(&address),
            None => self.pools.get(pool),
        };
        self.obstacle.as_ref().or(single)
    }
}

/// The claims of a network that wait until this management cluster has another block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingForBlock {
    /// The network.
    pub network: Arc<str>,
    /// Numbers of claims, and why they get no block now; `None` while one is being taken. A reason
    /// can occur several times.
    pub claims: Vec<(Option<BlockObstacle>, usize)>,
}
