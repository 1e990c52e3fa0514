//! The ranges of a pool: parts, each with its subnet and gateway.

use std::fmt;

use crate::pool::{Field, Item, MAX_RANGES, PoolProblemKind, Problems};
use crate::{Family, Span, SpanSet};

/// A part of a pool, with its subnet and gateway.
#[derive(Debug, Clone, Copy, Default)]
pub struct PoolRange<'a> {
    /// The entries of the range: addresses, or prefixes in CIDR notation.
    pub entries: &'a [String],
    /// The prefix length of the subnet in bits. Not used in pools of prefixes.
    pub prefix: i64,
    /// The gateway of the range. An empty text means no gateway.
    pub gateway: Option<&'a str>,
}

/// A field of a range. It is displayed as its path within the range: `.addresses[2]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RangeField {
    /// The range as a whole.
    Whole,
    /// `addresses` as a whole.
    Addresses,
    /// The entry of `addresses` with this index, starting at 0.
    Address(usize),
    /// `prefixes` as a whole.
    Prefixes,
    /// The entry of `prefixes` with this index, starting at 0.
    PrefixEntry(usize),
    /// `gateway`.
    Gateway,
    /// `prefix`.
    Prefix,
}

impl fmt::Display for RangeField {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => Ok(()),
            Self::Addresses => formatter.write_str(".addresses"),
            Self::Address(index) => write!(formatter, ".addresses[{index}]"),
            Self::Prefixes => formatter.write_str(".prefixes"),
            Self::PrefixEntry(index) => write!(formatter, ".prefixes[{index}]"),
            Self::Gateway => formatter.write_str(".gateway"),
            Self::Prefix => formatter.write_str(".prefix"),
        }
    }
}

/// A range whose texts are parsed.
pub(super) struct ParsedRange<'a> {
    /// The field that names the range to users: that of the pool itself, or of one of its ranges.
    pub(super) field: Field,
    pub(super) items: Vec<Item<'a>>,
    pub(super) gateway: Option<Item<'a>>,
}

impl ParsedRange<'_> {
    /// The addresses of all entries.
    pub(super) fn spans(&self) -> impl Iterator<Item = Span> {
        self.items.iter().map(|item| item.entry.span)
    }

    /// The gateway as an address of this family.
    pub(super) fn gateway_of(&self, family: Family) -> Option<std::net::IpAddr> {
        self.gateway
            .as_ref()
            .map(|item| family.address(item.entry.span.first()))
    }
}

impl Problems {
    /// Adds a problem if the pool has more than [`MAX_RANGES`] ranges, and returns the ranges up to
    /// this number.
    pub(super) fn limit_ranges<'a, 'b>(
        &mut self,
        ranges: &'b [PoolRange<'a>],
    ) -> &'b [PoolRange<'a>] {
        let Some((first, _)) = ranges
            .split_at_checked(MAX_RANGES)
            .filter(|(_, more)| !more.is_empty())
        else {
            return ranges;
        };
        let count = ranges.len();
        self.add(
            Field::Ranges,
            count.to_string(),
            PoolProblemKind::TooManyRanges { count },
        );
        first
    }

    /// Adds a problem for each entry of a range with addresses of an earlier range. All have to be
    /// of one family.
    pub(super) fn check_overlaps(&mut self, ranges: &[ParsedRange<'_>]) {
        let mut earlier: Vec<(Field, SpanSet)> = Vec::with_capacity(ranges.len());
        for range in ranges {
            for item in &range.items {
                let overlapping = earlier
                    .iter()
                    .find(|(_, set)| set.overlaps(item.entry.span));
                if let Some((other, _)) = overlapping {
                    let text = item.text.to_owned();
                    self.add(
                        item.field,
                        item.text,
                        PoolProblemKind::Overlap {
                            text,
                            other: *other,
                        },
                    );
                }
            }
            earlier.push((range.field, range.spans().collect()));
        }
    }
}

#[cfg(test)]
mod tests;
