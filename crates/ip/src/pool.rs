//! Validation of the spec of a pool.

mod addresses;
mod prefixes;
mod ranges;

use std::fmt;

use ipnet::IpNet;
use thiserror::Error;

pub use self::addresses::PoolAddresses;
pub use self::prefixes::PoolPrefixes;
pub use self::ranges::{PoolRange, RangeField};
use crate::{Entry, Family, ParseError, Span, parse_address, parse_entry};

/// The maximum number of problems that are returned for one pool.
pub const MAX_PROBLEMS: usize = 64;

/// The maximum number of ranges of one pool.
pub const MAX_RANGES: usize = 64;

/// The numbers of `::ffff:0:0/96`, the IPv4-mapped addresses (RFC 4291 section 2.5.5.2).
const IPV4_MAPPED: (u128, u128) = (0xffff_0000_0000, 0xffff_ffff_ffff);

/// A field of the spec of a pool. It is displayed as its path, with the index of an entry:
/// `spec.addresses[2]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// `spec.addresses` as a whole.
    Addresses,
    /// The entry of `spec.addresses` with this index, starting at 0.
    Address(usize),
    /// The entry of `spec.excludedAddresses` with this index, starting at 0.
    ExcludedAddress(usize),
    /// `spec.prefixes` as a whole.
    Prefixes,
    /// The entry of `spec.prefixes` with this index, starting at 0.
    PrefixEntry(usize),
    /// The entry of `spec.excludedPrefixes` with this index, starting at 0.
    ExcludedPrefix(usize),
    /// `spec.gateway`.
    Gateway,
    /// `spec.prefix`.
    Prefix,
    /// `spec.allocationPrefixLength`.
    AllocationPrefixLength,
    /// `spec.ranges` as a whole.
    Ranges,
    /// A field of the range with this index, starting at 0.
    Range(usize, RangeField),
    /// The entry of `spec.draining` with this index, starting at 0.
    Draining(usize),
}

impl Field {
    /// The path of the field; for an entry of a list, and for a field of a range, the path of the
    /// list.
    pub fn path(self) -> &'static str {
        match self {
            Self::Addresses | Self::Address(_) => "spec.addresses",
            Self::ExcludedAddress(_) => "spec.excludedAddresses",
            Self::Prefixes | Self::PrefixEntry(_) => "spec.prefixes",
            Self::ExcludedPrefix(_) => "spec.excludedPrefixes",
            Self::Gateway => "spec.gateway",
            Self::Prefix => "spec.prefix",
            Self::AllocationPrefixLength => "spec.allocationPrefixLength",
            Self::Ranges | Self::Range(..) => "spec.ranges",
            Self::Draining(_) => "spec.draining",
        }
    }

    /// The index of the entry or of the range, if the field is one, or a part of one.
    pub fn index(self) -> Option<usize> {
        match self {
            Self::Address(index)
            | Self::ExcludedAddress(index)
            | Self::PrefixEntry(index)
            | Self::ExcludedPrefix(index)
            | Self::Range(index, _)
            | Self::Draining(index) => Some(index),
            _ => None,
        }
    }
}

/// A problem of the spec of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field}: {kind}")]
pub struct PoolProblem {
    /// The field with the problem.
    pub field: Field,
    /// The value as written; empty if it is missing.
    pub value: String,
    /// The problem.
    pub kind: PoolProblemKind,
}

/// The kinds of [`PoolProblem`]s.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PoolProblemKind {
    /// A required field is empty.
    #[error("is required")]
    Required,
    /// The text cannot be parsed.
    #[error(transparent)]
    Parse(#[from] ParseError),
    /// The text is of another family than the first entry of the pool.
    #[error("{text} is {family}, but the pool's first entry is {pool}")]
    OtherFamily {
        /// The text as written.
        text: String,
        /// The family of the text.
        family: Family,
        /// The family of the pool.
        pool: Family,
    },
    /// The entry has addresses outside of the subnet of the pool.
    #[error("{text} is not within the subnet {subnet}")]
    OutsideSubnet {
        /// The entry as written.
        text: String,
        /// The subnet of the pool: that of the first address of the first entry.
        subnet: IpNet,
    },
    /// The prefix length is out of range.
    #[error("{prefix} is not between {min} and {max}")]
    Prefix {
        /// The prefix length as written.
        prefix: i64,
        /// The minimum prefix length.
        min: u8,
        /// The maximum prefix length of the family of the pool.
        max: u8,
    },
    /// The entry is not a prefix.
    #[error("{text} is not a prefix in CIDR notation, such as fd00:1::/48")]
    NotAPrefix {
        /// The entry as written.
        text: String,
    },
    /// The prefix has host bits set.
    #[error("{text} has host bits set; write {aligned}")]
    NotAligned {
        /// The entry as written.
        text: String,
        /// The prefix without host bits.
        aligned: IpNet,
    },
    /// The prefix is smaller than the prefixes to allocate.
    #[error("{text} is longer than the allocation prefix length {length}")]
    LongerThanAllocation {
        /// The entry as written.
        text: String,
        /// The allocation prefix length.
        length: u8,
    },
    /// The entry has addresses of an earlier range.
    #[error("{text} overlaps with {other}; an address is in one range only")]
    Overlap {
        /// The entry as written.
        text: String,
        /// The addresses or prefixes of the pool, or the earlier range.
        other: Field,
    },
    /// The pool has too many ranges.
    #[error("has {count} ranges, which is more than {MAX_RANGES}")]
    TooManyRanges {
        /// The number of ranges.
        count: usize,
    },
}

/// Returns the numbers of the IPv4-mapped addresses of a family; only IPv6 has any.
fn ipv4_mapped(family: Family) -> Option<Span> {
    match family {
        Family::V4 => None,
        Family::V6 => Span::new(IPV4_MAPPED.0, IPV4_MAPPED.1),
    }
}

/// A valid text of the pool.
struct Item<'a> {
    field: Field,
    text: &'a str,
    entry: Entry,
}

/// Collects the problems of a pool.
#[derive(Default)]
struct Problems {
    found: Vec<PoolProblem>,
}

impl Problems {
    fn add(&mut self, field: Field, value: impl Into<String>, kind: PoolProblemKind) {
        self.found.push(PoolProblem {
            field,
            value: value.into(),
            kind,
        });
        // Limits the memory for a list of a million invalid texts.
        if self.found.len() > MAX_PROBLEMS.saturating_mul(2) {
            self.truncate();
        }
    }

    /// Sorts the problems by field, and removes all but the first [`MAX_PROBLEMS`].
    fn truncate(&mut self) {
        self.found.sort_by_key(|problem| problem.field);
        self.found.truncate(MAX_PROBLEMS);
    }

    /// Returns the item of a parsed text; adds a problem if it could not be parsed.
    fn accept<'a>(
        &mut self,
        field: Field,
        text: &'a str,
        entry: Result<Entry, ParseError>,
    ) -> Option<Item<'a>> {
        match entry {
            Ok(entry) => Some(Item { field, text, entry }),
            Err(error) => {
                self.add(field, text, PoolProblemKind::Parse(error));
                None
            }
        }
    }

    /// Returns the items of all texts that can be parsed, and adds problems for the others.
    fn parse_all<'a>(
        &mut self,
        field: impl Fn(usize) -> Field,
        texts: &'a [String],
    ) -> Vec<Item<'a>> {
        let numbered = texts.iter().enumerate();
        numbered
            .filter_map(|(index, text)| self.accept(field(index), text, parse_entry(text)))
            .collect()
    }

    /// Returns the gateway, if it is set and can be parsed.
    fn parse_gateway<'a>(&mut self, field: Field, gateway: Option<&'a str>) -> Option<Item<'a>> {
        let text = gateway.filter(|text| !text.is_empty())?;
        self.accept(field, text, parse_address(text).map(Entry::from))
    }

    /// Adds a problem for each item that is not of the family `pool`.
    fn check_family<'a>(&mut self, pool: Family, items: impl Iterator<Item = &'a Item<'a>>) {
        for item in items {
            let family = item.entry.family;
            if family != pool {
                let text = item.text.to_owned();
                self.add(
                    item.field,
                    item.text,
                    PoolProblemKind::OtherFamily { text, family, pool },
                );
            }
        }
    }

    /// Returns the value if there are no problems, otherwise the sorted problems.
    fn into_result<T>(mut self, value: Option<T>) -> Result<T, Vec<PoolProblem>> {
        match value {
            Some(value) if self.found.is_empty() => Ok(value),
            _ => {
                self.truncate();
                Err(self.found)
            }
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.path())?;
        self.index()
            .map_or(Ok(()), |index| write!(formatter, "[{index}]"))?;
        if let Self::Range(_, field) = self {
            write!(formatter, "{field}")
        } else {
            Ok(())
        }
    }
}
