//! What the spec of a pool says, and what is wrong with it.

mod addresses;
mod prefixes;

pub use addresses::PoolAddresses;
pub use prefixes::PoolPrefixes;

use std::fmt;

use ipnet::IpNet;
use thiserror::Error;

use crate::{Entry, Family, parse_entry, ParseError, Span};

/// How many problems of one pool are listed at most.
pub const MAX_PROBLEMS: usize = 64;

/// The numbers of `::ffff:0:0/96`, the IPv4-mapped addresses (RFC 4291 section 2.5.5.2).
const MAPPED: (u128, u128) = (0xffff_0000_0000, 0xffff_ffff_ffff);

/// The field of a pool's spec that a problem is in. Displayed, it gives the path of the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// `spec.addresses` as a whole.
    Addresses,
    /// The entry of `spec.addresses` with this index, counted from 0.
    Address(usize),
    /// The entry of `spec.excludedAddresses` with this index, counted from 0.
    ExcludedAddress(usize),
    /// `spec.prefixes` as a whole.
    Prefixes,
    /// The entry of `spec.prefixes` with this index, counted from 0.
    PrefixEntry(usize),
    /// The entry of `spec.excludedPrefixes` with this index, counted from 0.
    ExcludedPrefix(usize),
    /// `spec.gateway`.
    Gateway,
    /// `spec.prefix`.
    Prefix,
    /// `spec.allocationPrefixLength`.
    AllocationPrefixLength,
}

impl Field {
    /// The path of the field; of an entry of a list the path of the list.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Field::Addresses | Field::Address(_) => "spec.addresses",
            Field::ExcludedAddress(_) => "spec.excludedAddresses",
            Field::Prefixes | Field::PrefixEntry(_) => "spec.prefixes",
            Field::ExcludedPrefix(_) => "spec.excludedPrefixes",
            Field::Gateway => "spec.gateway",
            Field::Prefix => "spec.prefix",
            Field::AllocationPrefixLength => "spec.allocationPrefixLength",
        }
    }

    /// The index of the entry, if the field is one of a list.
    #[must_use]
    pub fn index(self) -> Option<usize> {
        match self {
            Field::Address(index)
            | Field::ExcludedAddress(index)
            | Field::PrefixEntry(index)
            | Field::ExcludedPrefix(index) => Some(index),
            _ => None,
        }
    }
}

/// One thing that is wrong with a pool.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field}: {kind}")]
pub struct PoolProblem {
    /// Where it is.
    pub field: Field,
    /// The value as written; empty when there is none.
    pub value: String,
    /// What it is.
    pub kind: PoolProblemKind,
}

/// What is wrong with a field of a pool.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PoolProblemKind {
    /// The field is empty and must not be.
    #[error("is required")]
    Required,
    /// The text cannot be read.
    #[error(transparent)]
    Text(#[from] ParseError),
    /// The text is of another family than the first entry of the addresses.
    #[error("{text} is {family}, but the pool's first entry is {pool}")]
    OtherFamily {
        /// The text as written.
        text: String,
        /// The family of the text.
        family: Family,
        /// The family of the pool.
        pool: Family,
    },
    /// The entry has addresses outside of the pool's one subnet.
    #[error("{text} is not within the pool's subnet {subnet}")]
    OutsideSubnet {
        /// The entry as written.
        text: String,
        /// The subnet of the first entry's first address.
        subnet: IpNet,
    },
    /// The prefix length does not exist.
    #[error("{prefix} is not between {shortest} and {longest}")]
    Prefix {
        /// The prefix length as written.
        prefix: i64,
        /// The smallest prefix length that makes sense.
        shortest: u8,
        /// The greatest prefix length of the pool's family.
        longest: u8,
    },
    /// A prefix has to stand here, and it is something else.
    #[error("{text} is not a prefix in CIDR notation; write for example fd00:1::/48")]
    NotAPrefix {
        /// The entry as written.
        text: String,
    },
    /// Bits behind the length of the prefix are set.
    #[error("{text} has bits behind its length; write {aligned}")]
    NotAligned {
        /// The entry as written.
        text: String,
        /// The prefix that is probably meant.
        aligned: IpNet,
    },
    /// The prefix is smaller than what is to be given out.
    #[error("{text} is longer than the allocation prefix length {length}")]
    LongerThanAllocation {
        /// The entry as written.
        text: String,
        /// The length of what is given out.
        length: u8,
    },
}

/// The IPv4-mapped addresses, which only the numbers of IPv6 have.
fn mapped(family: Family) -> Option<Span> {
    match family {
        Family::V4 => None,
        Family::V6 => Span::new(MAPPED.0, MAPPED.1),
    }
}

/// A text of the pool that could be read.
struct Item<'a> {
    field: Field,
    text: &'a str,
    entry: Entry,
}

/// The problems found so far.
#[derive(Default)]
struct Problems {
    found: Vec<PoolProblem>,
}

impl Problems {
    fn add(&mut self, field: Field, value: impl Into<String>, kind: PoolProblemKind) {
        self.found.push(PoolProblem { field, value: value.into(), kind });
        // So that a list of a million wrong texts does not take a million problems to keep.
        if self.found.len() > MAX_PROBLEMS.saturating_mul(2) {
            self.shorten();
        }
    }

    /// Keeps the problems of the first fields.
    fn shorten(&mut self) {
        self.found.sort_by_key(|problem| problem.field);
        self.found.truncate(MAX_PROBLEMS);
    }

    /// The item of a text that could be read; otherwise adds a problem.
    fn keep<'a>(&mut self, field: Field, text: &'a str, entry: Result<Entry, ParseError>) -> Option<Item<'a>> {
        match entry {
            Ok(entry) => Some(Item { field, text, entry }),
            Err(error) => {
                self.add(field, text, PoolProblemKind::Text(error));
                None
            }
        }
    }

    /// The items of all texts that can be read.
    fn read<'a>(&mut self, field: fn(usize) -> Field, texts: &'a [String]) -> Vec<Item<'a>> {
        let numbered = texts.iter().enumerate();
        numbered.filter_map(|(index, text)| self.keep(field(index), text, parse_entry(text))).collect()
    }

    /// All items must be of the family `pool`.
    fn check_family<'a>(&mut self, pool: Family, items: impl Iterator<Item = &'a Item<'a>>) {
        for item in items {
            let family = item.entry.family;
            if family != pool {
                let text = item.text.to_owned();
                self.add(item.field, item.text, PoolProblemKind::OtherFamily { text, family, pool });
            }
        }
    }

    /// The value if there are no problems, and the sorted problems if there are.
    fn none_or<T>(mut self, value: Option<T>) -> Result<T, Vec<PoolProblem>> {
        match value {
            Some(value) if self.found.is_empty() => Ok(value),
            _ => {
                self.shorten();
                Err(self.found)
            }
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.path())?;
        self.index().map_or(Ok(()), |index| write!(formatter, "[{index}]"))
    }
}
