//! The block of a network for which a claim waits.

use std::sync::Arc;

use super::block_supply::BlockObstacle;

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
