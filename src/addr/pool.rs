//! The usable addresses of a pool.

use crate::addr::{Entry, Family, ParseError, Span, SpanSet, parse_address, parse_entry};
use ipnet::IpNet;
use std::fmt;
use std::net::IpAddr;
use thiserror::Error;

/// How many problems of one pool are listed at most.
pub const MOST_PROBLEMS: usize = 64;

/// The numbers of `::ffff:0:0/96`, the IPv4-mapped addresses (RFC 4291 section 2.5.5.2).
const MAPPED: (u128, u128) = (0xffff_0000_0000, 0xffff_ffff_ffff);

/// What the spec of a pool says about its addresses.
#[derive(Debug, Clone, Copy)]
pub struct PoolAddresses<'a> {
    /// The entries that addresses are given from, see [`parse_entry`].
    pub addresses: &'a [String],
    /// The entries that no address is given from.
    pub excluded: &'a [String],
    /// The prefix length of the subnet, in bits.
    pub prefix: i64,
    /// The gateway of the subnet, which is never given out. The text `""` is none.
    pub gateway: Option<&'a str>,
    /// Whether to give out the first and the last address of the subnet as well.
    pub allocate_reserved: bool,
}

/// The addresses that a pool may give out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsableAddresses {
    /// The family of all addresses of the pool.
    pub family: Family,
    /// The prefix length of the subnet, in bits.
    pub prefix: u8,
    /// The gateway, which may be outside of the subnet.
    pub gateway: Option<IpAddr>,
    /// The subnet that all addresses of the pool are in.
    pub subnet: IpNet,
    /// The numbers of the usable addresses; empty when the exclusions cover everything.
    pub set: SpanSet,
}

/// The field of a pool's spec that a problem is in. Displayed, it gives the path of the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// `spec.addresses` as a whole.
    Addresses,
    /// The entry of `spec.addresses` with this index, counted from 0.
    Address(usize),
    /// The entry of `spec.excludedAddresses` with this index, counted from 0.
    ExcludedAddress(usize),
    /// `spec.gateway`.
    Gateway,
    /// `spec.prefix`.
    Prefix,
}

/// One thing that is wrong with a pool.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{field}: {kind}")]
pub struct PoolProblem {
    /// Where it is.
    pub field: Field,
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
    #[error("{text} is {family}, but the pool's addresses are {pool}")]
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
    #[error("{prefix} is not between 0 and {longest}")]
    Prefix {
        /// The prefix length as written.
        prefix: i64,
        /// The greatest prefix length of the pool's family.
        longest: u8,
    },
}

impl PoolAddresses<'_> {
    /// Checks the pool and works out which addresses it may give out.
    ///
    /// Usable are the addresses, without the excluded ones, the gateway and, unless
    /// `allocate_reserved`, those that the subnet reserves: its first address (the network
    /// address of IPv4, the Subnet-Router anycast address of IPv6, RFC 4291 section 2.6.1) and
    /// the last address of an IPv4 subnet (its broadcast address). A subnet of one or two
    /// addresses reserves none (RFC 3021, RFC 6164). IPv4-mapped addresses, which
    /// [`parse_address`] refuses, are never usable; only a network as wide as `::/0` has any.
    ///
    /// The subnet is the one of length `prefix` around the first address of the first entry.
    /// The gateway and excluded entries may be outside of it.
    ///
    /// # Errors
    ///
    /// Every problem of the pool, at least one, in the order of [`Field`], of which the first
    /// [`MOST_PROBLEMS`] are given.
    pub fn usable(&self) -> Result<UsableAddresses, Vec<PoolProblem>> {
        let mut problems = Problems::default();
        if self.addresses.is_empty() {
            problems.add(Field::Addresses, PoolProblemKind::Required);
        }
        let addresses = problems.read(Field::Address, self.addresses);
        let excluded = problems.read(Field::ExcludedAddress, self.excluded);
        let gateway = self
            .gateway
            .filter(|text| !text.is_empty())
            .and_then(|text| problems.keep(Field::Gateway, text, parse_address(text).map(Entry::from)));

        let first = addresses.first().map(|item| item.entry);
        let subnet = problems.check_prefix(self.prefix, first);
        if let Some(first) = first {
            let all = addresses.iter().chain(&excluded).chain(&gateway);
            problems.check_family(first.family, all);
        }
        if let Some(subnet) = subnet {
            problems.check_within(subnet, &addresses);
        }

        let subnet = problems.none_or(subnet)?;
        let (gateway_span, addresses, excluded) = (
            gateway.map(|item| item.entry.span),
            addresses.iter().map(|item| item.entry.span),
            excluded.iter().map(|item| item.entry.span),
        );
        let held_back = excluded
            .chain(gateway_span)
            .chain(reserved(subnet).filter(|_| !self.allocate_reserved))
            .chain(mapped(subnet));
        let family = Family::of(subnet.addr());
        Ok(UsableAddresses {
            family,
            prefix: subnet.prefix_len(),
            gateway: gateway_span.map(|span| family.address(span.first())),
            subnet,
            set: addresses.collect::<SpanSet>().subtract(&held_back.collect()),
        })
    }
}

/// The addresses that `subnet` reserves.
fn reserved(subnet: IpNet) -> impl Iterator<Item = Span> {
    let host_bits = subnet.max_prefix_len().saturating_sub(subnet.prefix_len());
    let span = Span::from(subnet);
    let broadcast = matches!(subnet, IpNet::V4(_)).then_some(span.last());
    std::iter::once(span.first()).chain(broadcast).filter(move |_| host_bits > 1).map(Span::single)
}

/// The IPv4-mapped addresses, which only the numbers of IPv6 have.
fn mapped(subnet: IpNet) -> Option<Span> {
    match subnet {
        IpNet::V4(_) => None,
        IpNet::V6(_) => Span::new(MAPPED.0, MAPPED.1),
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
    fn add(&mut self, field: Field, kind: PoolProblemKind) {
        self.found.push(PoolProblem { field, kind });
        // So that a list of a million wrong texts does not take a million problems to keep.
        if self.found.len() > MOST_PROBLEMS.saturating_mul(2) {
            self.shorten();
        }
    }

    /// Keeps the problems of the first fields.
    fn shorten(&mut self) {
        self.found.sort_by_key(|problem| problem.field);
        self.found.truncate(MOST_PROBLEMS);
    }

    /// The item of a text that could be read; otherwise adds a problem.
    fn keep<'a>(&mut self, field: Field, text: &'a str, entry: Result<Entry, ParseError>) -> Option<Item<'a>> {
        match entry {
            Ok(entry) => Some(Item { field, text, entry }),
            Err(error) => {
                self.add(field, PoolProblemKind::Text(error));
                None
            }
        }
    }

    /// The items of all texts that can be read.
    fn read<'a>(&mut self, field: fn(usize) -> Field, texts: &'a [String]) -> Vec<Item<'a>> {
        let numbered = texts.iter().enumerate();
        numbered.filter_map(|(index, text)| self.keep(field(index), text, parse_entry(text))).collect()
    }

    /// The subnet of length `prefix` around the first address of `first`.
    ///
    /// Without a first entry the family is not known: then a length is wrong if no family has it.
    fn check_prefix(&mut self, prefix: i64, first: Option<Entry>) -> Option<IpNet> {
        let family = first.map_or(Family::V6, |entry| entry.family);
        let number = first.map_or(0, |entry| entry.span.first());
        let length = u8::try_from(prefix).ok();
        let subnet = length.and_then(|length| IpNet::new(family.address(number), length).ok());
        if subnet.is_none() {
            let longest = family.bits();
            self.add(Field::Prefix, PoolProblemKind::Prefix { prefix, longest });
        }
        first.and(subnet).map(|subnet| subnet.trunc())
    }

    /// All items must be of the family `pool`.
    fn check_family<'a>(&mut self, pool: Family, items: impl Iterator<Item = &'a Item<'a>>) {
        for item in items {
            let family = item.entry.family;
            if family != pool {
                let text = item.text.to_owned();
                self.add(item.field, PoolProblemKind::OtherFamily { text, family, pool });
            }
        }
    }

    /// All items of the family of `subnet` must be within it.
    fn check_within(&mut self, subnet: IpNet, items: &[Item<'_>]) {
        let (family, whole) = (Family::of(subnet.addr()), Span::from(subnet));
        for item in items {
            let Entry { family: own, span } = item.entry;
            if own == family && !(whole.contains(span.first()) && whole.contains(span.last())) {
                let text = item.text.to_owned();
                self.add(item.field, PoolProblemKind::OutsideSubnet { text, subnet });
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
        match self {
            Field::Addresses => formatter.write_str("spec.addresses"),
            Field::Address(index) => write!(formatter, "spec.addresses[{index}]"),
            Field::ExcludedAddress(index) => write!(formatter, "spec.excludedAddresses[{index}]"),
            Field::Gateway => formatter.write_str("spec.gateway"),
            Field::Prefix => formatter.write_str("spec.prefix"),
        }
    }
}

#[cfg(test)]
mod tests;
