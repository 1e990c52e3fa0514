use capi_ipam_api::PoolSpec;
use capi_ipam_ip::Block;
use capi_ipam_ledger::Ledger;
use schemars::JsonSchema;
use serde::Serialize;

use super::contents::contents;
use super::fact::list;
use super::finding::Finding;
use super::holders::holders;
use super::map::{Cell, Cells, Content, cells, index_of};
use super::pools::{Size, size};
use super::show::{PoolDetails, specification};
use super::slices::pool_slices;
use super::waiting_groups::{WaitingGroup, waiting_groups};
use crate::objects::{Kind, Objects, PoolRow};

/// Maximum number of cells of a window.
const MAX_CELLS: u128 = 1024;
/// Minimum of the maximum number of cells that the page can ask for.
const MIN_CELLS: u128 = 64;
/// Maximum number of addresses out of range in a window.
const MAX_LISTED: usize = 100;

/// A pool, and a window of its map.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PoolWindow {
    /// The pool. Its holders are those of the window if a cell is a single address.
    #[serde(flatten)]
    pub(crate) details: PoolDetails,
    /// Number of all waiting claims of the pool; `null` if it is unknown.
    pub(crate) waiting_count: Option<usize>,
    /// The waiting claims of the pool, by reason.
    pub(crate) waiting_groups: Vec<WaitingGroup>,
    /// What `doctor` finds in the pool, the most urgent first.
    pub(crate) findings: Vec<Finding>,
    /// The exact numbers.
    pub(crate) size: Size,
    /// Whether the pool allocates the first and the last address of its subnet.
    pub(crate) allocates_reserved: bool,
    /// Omitted if the specification is invalid or has no addresses, or if it is unknown which ones
    /// are free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) window: Option<Window>,
}

/// A part of the map of a pool. Positions are those of the addresses of the map; large numbers are
/// decimal texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Window {
    /// Number of addresses in the pool.
    pub(crate) pool_total: String,
    /// Number of addresses in the map: also those between the addresses of the pool.
    pub(crate) total: String,
    /// Position of the first address.
    pub(crate) start: String,
    /// Number of addresses.
    pub(crate) length: String,
    /// Number of addresses in one cell.
    pub(crate) cell_size: String,
    /// Length of the window that shows one cell in detail; omitted if a cell is a single address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) zoom: Option<String>,
    /// The first address of each cell.
    pub(crate) labels: Vec<String>,
    /// Whether the map contains only the part of a large pool that has addresses in use.
    pub(crate) is_part: bool,
    /// The cells that are not free, or not of the pool.
    pub(crate) used: Vec<Cell>,
    /// Positions of the cells with which a slice begins.
    pub(crate) slices: Vec<u64>,
    /// The cell with the requested address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) focus: Option<u64>,
}

/// Which part of a map is requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum View {
    /// The whole pool.
    #[default]
    All,
    /// A number of addresses at a position.
    Range(u128, u128),
    /// The surroundings of an address, with one cell for each address.
    Around(Block),
}

/// The part of a map that is requested, and how many cells it has at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapPart {
    pub(crate) view: View,
    pub(crate) cells: u128,
}

impl Default for MapPart {
    fn default() -> Self {
        Self {
            view: View::All,
            cells: MAX_CELLS,
        }
    }
}

impl MapPart {
    /// A narrow window of the browser has room for fewer cells.
    pub(crate) fn new(view: View, cells: Option<u128>) -> Self {
        let cells = cells.unwrap_or(MAX_CELLS).clamp(MIN_CELLS, MAX_CELLS);
        let cells = cells.checked_next_power_of_two().unwrap_or(MAX_CELLS);
        Self { view, cells }
    }

    /// Length of the window that shows one cell of this size in detail; `None` for the smallest
    /// cells.
    fn zoom(self, size: u128) -> Option<String> {
        (size > 1).then(|| size.max(self.cells).to_string())
    }
}

/// Where a part of a map begins, and how long it is.
struct Extent {
    start: u128,
    length: u128,
    /// The position that was asked for.
    focus: Option<u128>,
}

/// The requested part of a map with this number of positions. `position` finds an address.
fn extent(total: u128, requested: MapPart, position: impl Fn(Block) -> Option<u128>) -> Extent {
    let (start, length, focus) = match requested.view {
        View::All => (0, total, None),
        View::Range(start, length) => (start, length.max(1), None),
        View::Around(block) => match position(block) {
            Some(position) => (position, requested.cells, Some(position)),
            None => (0, total, None),
        },
    };
    // A window begins at a multiple of its length, so that every window has the same neighbors.
    let length = if length >= total {
        total
    } else {
        length.checked_next_power_of_two().unwrap_or(total)
    };
    let start = if length >= total {
        0
    } else {
        start.min(total.saturating_sub(1)) / length * length
    };
    Extent {
        start,
        length: length.min(total.saturating_sub(start)),
        focus,
    }
}

/// Describes a pool and a part of its map. The ledger has the same objects.
pub(crate) fn window(
    pool: &PoolRow,
    objects: &Objects,
    ledger: &Ledger,
    requested: MapPart,
) -> PoolWindow {
    let contents = contents(pool, objects, ledger);
    let mut waiting = objects.served();
    waiting.retain(|claim| claim.is_waiting() && claim.named_pool() == Some(&pool.key));
    let waiting_count = objects.has(&[Kind::Claim]).then_some(waiting.len());
    // The groups list the claims.
    let mut details = specification(pool);
    details.counts = contents.counts;
    let outside = contents.outside.iter().copied().take(MAX_LISTED);
    details.out_of_range = list(holders(objects, outside, []), contents.has_addresses);
    details.slices = pool_slices(pool, objects, &contents);
    let slice_size = pool.spec.slices().map(|slices| slices.size);
    let content = Content::of(&contents, slice_size);
    let window = content.as_ref().map(|content| part(content, requested));
    if let (Some(content), Some(window)) = (&content, &window)
        && window.zoom.is_none()
    {
        let is_shown = |block: Block| {
            let number = content.usable.number(block);
            let position = number.and_then(|number| content.regions.position(number));
            position.is_some_and(|position| in_window(window, position))
        };
        let shown = contents.inside.iter().copied();
        let shown = shown.filter(|row| is_shown(row.block));
        let reserved = contents.reserved.iter().copied();
        let reserved = reserved.filter(|row| is_shown(row.slot.block));
        details.holders = Some(holders(objects, shown, reserved));
    } else if content.is_none() && contents.usable().is_some() {
        // Without a map there is no part of it: what can be read is listed.
        let shown = contents.inside.iter().copied().take(MAX_LISTED);
        let reserved = contents.reserved.iter().copied().take(MAX_LISTED);
        details.holders = list(holders(objects, shown, reserved), false);
    }
    let size = size(pool, &details.counts);
    let allocates_reserved = match &pool.spec {
        PoolSpec::Addresses(spec) => spec.allocate_reserved_ip_addresses,
        PoolSpec::Prefixes(_) => false,
    };
    PoolWindow {
        details,
        waiting_count,
        waiting_groups: waiting_groups(waiting, objects),
        findings: Vec::new(),
        size,
        allocates_reserved,
        window,
    }
}

fn in_window(window: &Window, position: u128) -> bool {
    let number = |text: &str| text.parse::<u128>().unwrap_or_default();
    position
        .checked_sub(number(&window.start))
        .is_some_and(|offset| offset < number(&window.length))
}

fn part(content: &Content<'_>, requested: MapPart) -> Window {
    let Content {
        usable, regions, ..
    } = content;
    let total = regions.len();
    let found = |block: Block| {
        // An address is part of the prefix that contains it.
        let number = usable.numbers_overlapping(block)?.first();
        regions.position(number)
    };
    let Extent {
        start,
        length,
        focus,
    } = extent(total, requested, found);
    let Cells {
        size,
        count,
        used,
        slices,
    } = cells(content, start, length, requested.cells);
    let starts =
        (0..count).map(|index| u128::from(index).saturating_mul(size).saturating_add(start));
    let labels = starts
        .filter_map(|start| regions.number_at(start))
        .map(|number| usable.block(number).to_string());
    let focus = focus.and_then(|position| index_of(position, start, size));
    Window {
        pool_total: usable.set.len().to_string(),
        total: total.to_string(),
        start: start.to_string(),
        length: length.to_string(),
        cell_size: size.to_string(),
        zoom: requested.zoom(size),
        labels: labels.collect(),
        is_part: regions.is_part,
        used,
        slices,
        focus,
    }
}
