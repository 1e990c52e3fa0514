use std::collections::BTreeMap;

use capi_ipam_ip::{Block, UsableBlocks};
use schemars::JsonSchema;
use serde::Serialize;

use super::holders::HolderState;

/// Maximum number of cells of a map.
const MAX_CELLS: u128 = 512;

/// A map of the addresses of a pool, in the order of the addresses. A cell is a block of addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OccupancyMap {
    /// Number of addresses in one cell, as a decimal number; the last cell can have fewer.
    pub cell_size: String,
    /// Number of cells.
    pub cells: u64,
    /// The cells with addresses that are not free.
    pub used: Vec<Cell>,
    /// First address of each row of 32 cells.
    pub rows: Vec<String>,
}

/// A cell that is not free.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Cell {
    /// Position in the map, starting at 0.
    pub index: u64,
    /// Addresses with an IPAddress, or being allocated.
    pub allocated: u64,
    /// Addresses that are promised or excluded by a reservation.
    pub reserved: u64,
    /// Addresses that cool down.
    pub cooling_down: u64,
    /// Whether no address of the cell is free.
    pub full: bool,
}

/// Cells in one row of the map.
pub(crate) const ROW: u64 = 32;

/// A part of the addresses of a pool, divided into cells.
pub(super) struct Cells {
    /// Number of addresses in one cell; the last cell can have fewer.
    pub(super) size: u128,
    pub(super) count: u64,
    /// The cells with addresses that are not free.
    pub(super) used: Vec<Cell>,
}

/// Divides the positions from `start` to `start + length` into at most `max` cells. `start` is a
/// multiple of the size of a cell.
pub(super) fn cells(
    usable: &UsableBlocks,
    held: &[(Block, HolderState)],
    start: u128,
    length: u128,
    max: u128,
) -> Cells {
    let size = length
        .div_ceil(max)
        .max(1)
        .checked_next_power_of_two()
        .unwrap_or(1 << 127);
    let mut cells: BTreeMap<u64, Cell> = BTreeMap::new();
    for (block, state) in held {
        let Some(position) = usable
            .number(*block)
            .and_then(|number| position(usable, number))
        else {
            continue;
        };
        let Some(offset) = position
            .checked_sub(start)
            .filter(|offset| *offset < length)
        else {
            continue;
        };
        let index = u64::try_from(offset / size).unwrap_or_default();
        let cell = cells.entry(index).or_insert(Cell {
            index,
            allocated: 0,
            reserved: 0,
            cooling_down: 0,
            full: false,
        });
        let count = match state {
            HolderState::Allocated | HolderState::Allocating | HolderState::Held => {
                &mut cell.allocated
            }
            HolderState::Promised | HolderState::Excluded => &mut cell.reserved,
            HolderState::CoolingDown => &mut cell.cooling_down,
        };
        *count = count.saturating_add(1);
    }
    for cell in cells.values_mut() {
        let start = u128::from(cell.index).saturating_mul(size);
        let taken = u128::from(
            cell.allocated
                .saturating_add(cell.reserved)
                .saturating_add(cell.cooling_down),
        );
        cell.full = taken >= size.min(length.saturating_sub(start));
    }
    Cells {
        size,
        count: u64::try_from(length.div_ceil(size)).unwrap_or_default(),
        used: cells.into_values().collect(),
    }
}

pub(super) fn map(usable: &UsableBlocks, held: &[(Block, HolderState)]) -> OccupancyMap {
    let Cells { size, count, used } = cells(usable, held, 0, usable.set.len(), MAX_CELLS);
    let starts = (0..count.div_ceil(ROW))
        .map(|row| u128::from(row.saturating_mul(ROW)).saturating_mul(size));
    let rows = starts
        .filter_map(|start| number_at(usable, start))
        .map(|number| usable.block(number).to_string());
    OccupancyMap {
        cell_size: size.to_string(),
        cells: count,
        rows: rows.collect(),
        used,
    }
}

/// The position of a number among the usable ones.
pub(super) fn position(usable: &UsableBlocks, number: u128) -> Option<u128> {
    let mut before = 0_u128;
    for span in usable.set.spans() {
        if span.contains(number) {
            return before.checked_add(number.checked_sub(span.first())?);
        }
        before = before.saturating_add(span.len());
    }
    None
}

/// The usable number at a position.
pub(super) fn number_at(usable: &UsableBlocks, mut position: u128) -> Option<u128> {
    for span in usable.set.spans() {
        if position < span.len() {
            return span.first().checked_add(position);
        }
        position = position.saturating_sub(span.len());
    }
    None
}
