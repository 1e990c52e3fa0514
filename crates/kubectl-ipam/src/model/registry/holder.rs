//! `who`: which management cluster has the block of an address.

use std::collections::BTreeSet;

use capi_ipam_ip::Block;
use capi_ipam_registry::Key;

use super::block_lines::{BlockLine, BlockState};
use crate::objects::{NetworkRow, Objects, PoolRow};

/// The networks of the pools that contain an address. Other pools share no blocks.
pub(crate) fn networks_with(objects: &Objects, address: Block) -> BTreeSet<String> {
    let mut pools = objects.pools();
    pools.retain(|pool| contains(pool, address));
    let pools = pools.into_iter();
    pools.filter_map(|pool| pool.network.clone()).collect()
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
