//! The slices of a pool.

use capi_ipam::api::SliceOwner;
use capi_ipam_ip::{Span, SpanSet, UsableBlocks};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::show::Contents;
use crate::objects::SliceRow;

/// A slice of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SliceLine {
    /// Name of the IPSlice.
    pub name: String,
    /// Addresses of the slice in CIDR notation.
    pub block: String,
    /// The owner.
    pub owner: SliceOwner,
    /// Number of addresses of the pool in the slice.
    pub total: u64,
    /// Number of these addresses that an IPAddress has.
    pub used: u64,
    /// Number of these addresses that are free.
    pub free: u64,
    /// Whether a user created the slice: the provider never returns it.
    pub pinned: bool,
    /// Since when no address of the slice is in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub empty_since: Option<Timestamp>,
}

/// Describes the slices of a pool with these addresses, in their order.
pub(super) fn slice_lines(usable: &UsableBlocks, slices: &[SliceRow], contents: &Contents<'_>) -> Vec<SliceLine> {
    let mut used: Vec<u128> = contents.inside.iter().filter_map(|row| usable.number(row.block)).collect();
    used.sort_unstable();
    used.dedup();
    let allocatable = usable.allocatable();
    // In the order of their addresses.
    let held = contents.held.iter().filter_map(|(block, _)| usable.number(*block));
    let taken: Vec<u128> = held.filter(|number| allocatable.contains(*number)).collect();
    let mut rows: Vec<_> = slices.iter().filter_map(|row| Some((row.block.as_ref().ok()?.1, row))).collect();
    rows.sort_by_key(|(block, _)| (block.span().first(), block.length()));
    let line = |(block, row): (capi_ipam_ip::Block, &SliceRow)| {
        let span = usable.numbers_overlapping(block);
        let within = |set: &SpanSet| span.map(|span| set.intersect(&SpanSet::from(span)).len()).unwrap_or_default();
        let count = |numbers: &[u128]| span.map(|span| count_within(numbers, span)).unwrap_or_default();
        SliceLine {
            name: row.name.clone(),
            block: format!("{}/{}", block.base(), block.length()),
            owner: row.owner.clone(),
            total: capped(within(&usable.set)),
            used: capped(count(&used)),
            free: capped(within(&allocatable).saturating_sub(count(&taken))),
            pinned: row.is_pinned,
            empty_since: row.empty_since,
        }
    };
    rows.into_iter().map(line).collect()
}

/// How many of the sorted numbers are in a span.
fn count_within(numbers: &[u128], span: Span) -> u128 {
    let before = numbers.partition_point(|number| *number < span.first());
    let until = numbers.partition_point(|number| *number <= span.last());
    until.saturating_sub(before) as u128
}

fn capped(count: u128) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX).min(i64::MAX.unsigned_abs())
}
