//! The map of the blocks of a network.

use std::collections::{BTreeMap, HashMap};

use capi_ipam_ip::{Block, SpanSet};
use capi_ipam_registry::cidr;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::block_use::{BlockUse, KnownBlock};
use super::layout::BlockLayout;
use super::list::ClusterLine;
use crate::model::map::cell_size;
use crate::model::pool_name::PoolName;
use crate::model::window::{Extent, MapPart, extent, index_of};
use crate::objects::PoolRow;

/// Maximum number of pools of a block that are listed.
const MAX_POOLS: usize = 10;

/// A part of the map of the blocks of a network. Positions are those of the blocks of the map; large
/// numbers are decimal texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BlockWindow {
    /// Number of blocks in the map.
    pub(crate) total: String,
    /// Position of the first block.
    pub(crate) start: String,
    /// Number of blocks.
    pub(crate) length: String,
    /// Number of blocks in one cell.
    pub(crate) cell_size: String,
    /// Length of the window that shows one cell in detail; omitted if a cell is a single block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) zoom: Option<String>,
    /// The block of each cell in CIDR notation; its first address if a cell has several blocks.
    pub(crate) labels: Vec<String>,
    /// The last address of each cell.
    pub(crate) ends: Vec<String>,
    /// Whether the map contains only the surroundings of the known blocks of a large network.
    pub(crate) is_part: bool,
    /// The cells with a block that is not free.
    pub(crate) cells: Vec<BlockCell>,
    /// The cell with the requested address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) focus: Option<u64>,
}

/// A cell with a block that is not free.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BlockCell {
    /// Position in the window, starting at 0.
    pub(crate) index: u64,
    /// Blocks of this management cluster.
    pub(crate) own: u64,
    /// Blocks of other management clusters.
    pub(crate) others: u64,
    /// Blocks that several management clusters use.
    pub(crate) conflicts: u64,
    /// Blocks whose record cannot be decoded.
    pub(crate) unreadable: u64,
    /// The other management cluster with most of these blocks: its place in the list of clusters;
    /// omitted if it is not listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cluster: Option<usize>,
    /// Addresses in use in the blocks of this management cluster; `null` if it is unknown.
    pub(crate) used: Option<u64>,
    /// Addresses of pools in these blocks.
    pub(crate) size: u64,
    /// The block, if the cell is a single one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) block: Option<BlockDetails>,
}

/// A block that is not free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BlockDetails {
    /// Who has it.
    pub(crate) state: BlockUse,
    /// The management clusters that use it, the holder first. Several only in a conflict.
    pub(crate) clusters: Vec<String>,
    /// Since when its holder has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub(crate) since: Option<Timestamp>,
    /// Since when none of its addresses is in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub(crate) empty_since: Option<Timestamp>,
    /// Addresses of a block of another management cluster that were in use when it wrote the record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) recorded: Option<u64>,
    /// What else is to be known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
    /// The pools with addresses of a block of this management cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) pools: Vec<BlockPool>,
}

/// A pool with addresses of a block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct BlockPool {
    /// The pool.
    pub(crate) pool: PoolName,
    /// Its first address of the block.
    pub(crate) address: String,
}

/// What a map shows.
pub(super) struct Shown<'a> {
    pub(super) layout: &'a BlockLayout,
    /// The blocks that are not free.
    pub(super) known: &'a BTreeMap<Block, KnownBlock>,
    /// The listed management clusters.
    pub(super) clusters: &'a [ClusterLine],
    /// The pools of the network.
    pub(super) pools: &'a [&'a PoolRow],
    /// How many addresses of each block are in use; `None` if it is unknown.
    pub(super) used: Option<&'a HashMap<Block, u64>>,
}

/// The requested part of a map; `None` without a block.
pub(super) fn window(shown: &Shown<'_>, requested: MapPart) -> Option<BlockWindow> {
    let layout = shown.layout;
    if layout.len == 0 {
        return None;
    }
    let found = |address| layout.position_of_address(address);
    let Extent {
        start,
        length,
        focus,
    } = extent(layout.len, requested, found);
    let size = cell_size(length, requested.cells);
    let end = start.saturating_add(length);
    let (mut labels, mut ends) = (Vec::new(), Vec::new());
    let mut first = start;
    while first < end {
        let next = first.saturating_add(size).min(end);
        if let Some(block) = layout.block(first)
            && let Some(last) = layout.block(next.saturating_sub(1))
        {
            labels.push(if size == 1 {
                cidr(block)
            } else {
                block.base().to_string()
            });
            ends.push(last.family().address(last.span().last()).to_string());
        }
        first = next;
    }
    Some(BlockWindow {
        total: layout.len.to_string(),
        start: start.to_string(),
        length: length.to_string(),
        cell_size: size.to_string(),
        zoom: requested.zoom(size),
        labels,
        ends,
        is_part: layout.is_part,
        cells: cells(shown, start, length, size),
        focus: focus.and_then(|position| index_of(position, start, size)),
    })
}

/// The cells of a part of the map with a block that is not free.
fn cells(shown: &Shown<'_>, start: u128, length: u128, size: u128) -> Vec<BlockCell> {
    let mut cells: BTreeMap<u64, BlockCell> = BTreeMap::new();
    let mut others: BTreeMap<(u64, &str), u64> = BTreeMap::new();
    let end = start.saturating_add(length);
    for (block, known) in shown.known {
        let position = shown.layout.position(*block);
        let Some(position) = position.filter(|position| *position < end) else {
            continue;
        };
        let Some(index) = index_of(position, start, size) else {
            continue;
        };
        let cell = cells.entry(index).or_insert_with(|| BlockCell {
            index,
            used: shown.used.map(|_| 0),
            ..BlockCell::default()
        });
        add(cell, shown, *block, known);
        if let Some(other) = &known.other {
            let count = others.entry((index, other)).or_default();
            *count = count.saturating_add(1);
        }
        if size == 1 {
            cell.block = Some(details(shown, *block, known));
        }
    }
    for (index, cell) in &mut cells {
        let range = (*index, "")..(index.saturating_add(1), "");
        let most = others.range(range).max_by_key(|(_, count)| **count);
        cell.cluster = most.and_then(|((_, cluster), _)| {
            let mut listed = shown.clusters.iter();
            listed.position(|line| line.cluster == *cluster)
        });
    }
    cells.into_values().collect()
}

/// Counts a block in its cell.
fn add(cell: &mut BlockCell, shown: &Shown<'_>, block: Block, known: &KnownBlock) {
    let count = match known.state {
        BlockUse::Own => &mut cell.own,
        BlockUse::Other => &mut cell.others,
        BlockUse::Conflict => &mut cell.conflicts,
        BlockUse::Unreadable => &mut cell.unreadable,
    };
    *count = count.saturating_add(1);
    if !known.is_own {
        return;
    }
    cell.size = cell.size.saturating_add(addresses_of(shown.pools, block));
    if let (Some(sum), Some(used)) = (&mut cell.used, shown.used) {
        let more = used.get(&block).copied().unwrap_or_default();
        *sum = sum.saturating_add(more);
    }
}

/// The number of addresses of a block that a pool contains.
fn addresses_of(pools: &[&PoolRow], block: Block) -> u64 {
    let mut parts = Vec::new();
    for pool in pools {
        parts.extend(part_of(pool, block));
    }
    let all: SpanSet = parts.iter().collect();
    u64::try_from(all.len()).unwrap_or(u64::MAX)
}

/// The numbers of the addresses of a pool in a block; `None` if it has none.
fn part_of(pool: &PoolRow, block: Block) -> Option<SpanSet> {
    let usable = pool.usable.as_ref().ok()?;
    let span = usable.numbers_overlapping(block)?;
    // Most pools have no address of the block.
    if !usable.set.overlaps(span) {
        return None;
    }
    Some(usable.set.intersect(&SpanSet::from(span)))
}

fn details(shown: &Shown<'_>, block: Block, known: &KnownBlock) -> BlockDetails {
    let mut pools = Vec::new();
    for pool in shown.pools.iter().filter(|_| known.is_own) {
        if let Ok(usable) = &pool.usable
            && let Some(lowest) = part_of(pool, block).and_then(|part| part.lowest())
        {
            pools.push(BlockPool {
                pool: PoolName::from(&pool.key),
                address: usable.block(lowest).to_string(),
            });
        }
    }
    pools.truncate(MAX_POOLS);
    BlockDetails {
        state: known.state,
        clusters: known.clusters.clone(),
        since: known.since,
        empty_since: known.empty_since,
        recorded: known.recorded,
        note: known.note.clone(),
        pools,
    }
}
