//! `who`: which management cluster has the block of an address.

use capi_ipam_ip::Block;
use capi_ipam_registry::Key;

use super::block_lines::{BlockLine, BlockState};
use crate::objects::{NetworkRow, Objects, PoolRow};

/// Whether a pool of a network contains an address. Other pools share no blocks.
pub(crate) fn is_in_network(objects: &Objects, address: Block) -> bool {
    let mut pools = objects.pools().into_iter();
    pools.any(|pool| pool.network.is_some() && contains(pool, address))
}

/// Whether a pool has an address of a block.
pub(crate) fn contains(pool: &PoolRow, address: Block) -> bool {
    let Ok(usable) = &pool.usable else {
        return false;
    };
    match usable.numbers_overlapping(address) {
        Some(span) => usable.set.overlaps(span),
        None => false,
    }
}

/// The shared blocks that contain an address, in the networks of the pools that contain it.
pub(crate) fn searched_blocks(objects: &Objects, address: Block) -> Vec<(&NetworkRow, Block)> {
    let mut found = Vec::new();
    for network in objects.networks.sorted() {
        let mut members = objects.members(&network.name).into_iter();
        if let Some(block) = network.block_of(address)
            && members.any(|pool| contains(pool, address))
        {
            found.push((network, block));
        }
    }
    found
}

/// The name of the record of a block.
pub(crate) fn key_of(network: &str, block: Block) -> String {
    let network = network.into();
    Key::Block { network, block }.to_string()
}

/// Describes a block that this management cluster has.
pub(crate) fn held_block(network: &NetworkRow, block: Block, cluster: String) -> BlockLine {
    BlockLine {
        clusters: vec![cluster],
        is_own: true,
        ..BlockLine::new(&network.name, block, BlockState::Held)
    }
}

/// A block of which nothing is known, for a reason.
pub(crate) fn unknown_block(network: &str, block: Block, reason: String) -> BlockLine {
    BlockLine {
        note: Some(reason),
        ..BlockLine::new(network, block, BlockState::Unknown)
    }
}
