use std::collections::{BTreeMap, BTreeSet};

use capi_ipam_ip::{Block, Span, SpanSet, UsableBlocks};
use schemars::JsonSchema;
use serde::Serialize;

use super::contents::Contents;
use super::holders::HolderState;
use super::regions::Regions;

/// Maximum number of cells of a map.
const MAX_CELLS: u128 = 512;

/// A map of a pool: every address of the blocks that contain the pool, in the order of the
/// addresses. A cell is a block of addresses, whose length is a power of two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OccupancyMap {
    /// Number of addresses in one cell, as a decimal number.
    pub cell_size: String,
    /// Number of cells.
    pub cells: u64,
    /// Whether only the part of a large pool is shown that has addresses in use.
    pub is_part: bool,
    /// The cells that are not free, or not of the pool.
    pub used: Vec<Cell>,
    /// Positions of the cells with which a slice begins.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<u64>,
    /// First address of each row of 32 cells.
    pub rows: Vec<String>,
}

/// A cell that is not free, or not of the pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cell {
    /// Position in the map, starting at 0.
    pub index: u64,
    /// Addresses with an IPAddress, or being allocated.
    pub allocated: u64,
    /// Addresses that are promised or excluded by a reservation, or quarantined.
    pub reserved: u64,
    /// Addresses that cool down.
    pub cooling_down: u64,
    /// Addresses of draining parts that are not in use.
    #[serde(skip_serializing_if = "super::pools::is_zero")]
    pub draining: u64,
    /// Addresses in blocks of the network that this management cluster does not have.
    #[serde(skip_serializing_if = "super::pools::is_zero")]
    pub other_blocks: u64,
    /// Addresses that the specification of the pool or its network excludes, and gateways.
    #[serde(skip_serializing_if = "super::pools::is_zero")]
    pub excluded: u64,
    /// Addresses that are not in the pool.
    #[serde(skip_serializing_if = "super::pools::is_zero")]
    pub outside: u64,
    /// Whether the cell contains a gateway of the pool.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gateway: bool,
    /// Whether no address of the cell can be allocated.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unusable: bool,
    /// Whether no address of the cell is free that could be allocated.
    pub full: bool,
}

/// Cells in one row of the map.
pub(crate) const ROW: u64 = 32;

/// What a map shows of a pool.
pub(super) struct Content<'a> {
    /// The blocks that the pool can have in use.
    pub(super) usable: &'a UsableBlocks,
    /// The numbers of draining blocks that are not in use.
    drained: SpanSet,
    /// The numbers in blocks of the network that this management cluster does not have.
    other_blocks: &'a SpanSet,
    /// The addresses that are not free.
    pub(super) held: &'a [(Block, HolderState)],
    pub(super) regions: Regions,
    /// The length of a slice, in addresses.
    pub(super) slice_size: Option<u128>,
}

impl<'a> Content<'a> {
    /// What is in use in a pool. `None` if the specification is invalid or has no addresses, or if
    /// it is unknown which ones are free.
    pub(super) fn of(contents: &'a Contents<'_>, slice_size: Option<i64>) -> Option<Self> {
        let usable = contents.usable()?;
        let held = contents.held.as_ref()?;
        let used = held.iter().map(|(block, _)| *block);
        let numbers = used.clone().filter_map(|block| usable.number(block));
        let in_use: SpanSet = numbers.map(Span::single).collect();
        Some(Self {
            usable,
            drained: usable.draining.subtract(&in_use),
            other_blocks: &contents.other_blocks,
            held,
            regions: Regions::of(usable, used),
            slice_size: slice_size.and_then(|size| u128::try_from(size).ok()),
        })
    }
}

/// A part of a map, divided into cells.
pub(super) struct Cells {
    /// Number of addresses in one cell; the last cell of a part can have fewer.
    pub(super) size: u128,
    pub(super) count: u64,
    /// The cells that are not free, or not of the pool.
    pub(super) used: Vec<Cell>,
    /// Positions of the cells with which a slice begins.
    pub(super) slices: Vec<u64>,
}

/// The number of positions of a cell, a power of two, so that at most `max` cells have `length`.
pub(super) fn cell_size(length: u128, max: u128) -> u128 {
    let size = length.div_ceil(max).max(1);
    size.checked_next_power_of_two().unwrap_or(1 << 127)
}

/// Divides the positions from `start` to `start + length` into at most `max` cells. `start` is a
/// multiple of the size of a cell.
pub(super) fn cells(content: &Content<'_>, start: u128, length: u128, max: u128) -> Cells {
    let size = cell_size(length, max);
    let count = u64::try_from(length.div_ceil(size)).unwrap_or_default();
    let mut cells = held_cells(content, start, length, size);
    let declared: SpanSet = content
        .usable
        .ranges
        .iter()
        .map(|range| &range.set)
        .collect();
    let gateways = gateway_cells(content, start, length, size);
    let mut slices = Vec::new();
    for index in 0..count {
        let first = start.saturating_add(u128::from(index).saturating_mul(size));
        let numbers: SpanSet = content.regions.numbers(first, size).into_iter().collect();
        let of_pool = numbers.intersect(&declared).len();
        let usable = numbers.intersect(&content.usable.set).len();
        let cell = cells.entry(index).or_default();
        cell.index = index;
        cell.outside = capped(numbers.len().saturating_sub(of_pool));
        let other_blocks = numbers.intersect(content.other_blocks).len();
        cell.other_blocks = capped(other_blocks);
        let excluded = of_pool.saturating_sub(usable).saturating_sub(other_blocks);
        cell.excluded = capped(excluded);
        cell.draining = capped(numbers.intersect(&content.drained).len());
        cell.gateway = gateways.contains(&index);
        cell.unusable = usable == 0;
        let taken = taken(cell);
        cell.full = usable > 0 && u128::from(taken) >= usable;
        if begins_slice(content, first, size) {
            slices.push(index);
        }
    }
    let is_shown = |cell: &Cell| {
        let not_allocated = [cell.excluded, cell.outside, cell.other_blocks];
        taken(cell) > 0 || cell.gateway || not_allocated.iter().any(|count| *count > 0)
    };
    Cells {
        size,
        count,
        used: cells.into_values().filter(is_shown).collect(),
        slices,
    }
}

/// The addresses of a cell that the pool contains and that are not free.
fn taken(cell: &Cell) -> u64 {
    cell.allocated
        .saturating_add(cell.reserved)
        .saturating_add(cell.cooling_down)
        .saturating_add(cell.draining)
}

/// The cells with addresses that are not free.
fn held_cells(content: &Content<'_>, start: u128, length: u128, size: u128) -> BTreeMap<u64, Cell> {
    let mut cells: BTreeMap<u64, Cell> = BTreeMap::new();
    for (block, state) in content.held {
        let Some(index) = cell_of(content, *block, start, length, size) else {
            continue;
        };
        let cell = cells.entry(index).or_default();
        let count = match state {
            HolderState::Allocated
            | HolderState::Releasing
            | HolderState::Allocating
            | HolderState::Held => &mut cell.allocated,
            HolderState::Promised | HolderState::Excluded | HolderState::Quarantined => {
                &mut cell.reserved
            }
            HolderState::CoolingDown => &mut cell.cooling_down,
        };
        *count = count.saturating_add(1);
    }
    cells
}

/// The cells that contain a gateway.
fn gateway_cells(content: &Content<'_>, start: u128, length: u128, size: u128) -> BTreeSet<u64> {
    let mut found = BTreeSet::new();
    for gateway in content.usable.gateways() {
        // The block of the gateway, also in a pool of prefixes.
        let block = Block::new(gateway, content.usable.length);
        if let Some(index) = cell_of(content, block, start, length, size) {
            found.insert(index);
        }
    }
    found
}

/// The cell of a part that contains a block.
fn cell_of(
    content: &Content<'_>,
    block: Block,
    start: u128,
    length: u128,
    size: u128,
) -> Option<u64> {
    let number = content.usable.number(block)?;
    let position = content.regions.position(number)?;
    let is_within = position < start.saturating_add(length);
    index_of(position, start, size).filter(|_| is_within)
}

/// The cell with a position in a part that begins at `start`.
pub(super) fn index_of(position: u128, start: u128, cell_size: u128) -> Option<u64> {
    let offset = position.checked_sub(start)?;
    u64::try_from(offset.checked_div(cell_size)?).ok()
}

/// Whether a slice begins with the cell at a position. A cell with several slices has no border.
fn begins_slice(content: &Content<'_>, position: u128, cell_size: u128) -> bool {
    let Some(slice_size) = content.slice_size.filter(|size| *size >= cell_size) else {
        return false;
    };
    let number = content.regions.number_at(position);
    number.is_some_and(|number| number.checked_rem(slice_size) == Some(0))
}

fn capped(count: u128) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// The map of a pool.
pub(super) fn map(content: &Content<'_>) -> OccupancyMap {
    let Cells {
        size,
        count,
        used,
        slices,
    } = cells(content, 0, content.regions.len(), MAX_CELLS);
    let mut rows = Vec::new();
    for row in 0..count.div_ceil(ROW) {
        let position = u128::from(row.saturating_mul(ROW)).saturating_mul(size);
        let number = content.regions.number_at(position);
        rows.extend(number.map(|number| content.usable.block(number).to_string()));
    }
    OccupancyMap {
        cell_size: size.to_string(),
        cells: count,
        is_part: content.regions.is_part,
        used,
        slices,
        rows,
    }
}
