//! The blocks that a pool can allocate.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::block::host_bits;
use crate::{Block, Entry, Family, FreeSet, Span, SpanSet};

/// How many times more spans a set needs for a binary search to be faster than a walk through all.
const MANY_TIMES: usize = 16;

/// The blocks that a pool can allocate. All have the same length.
///
/// A block is identified by its number: that of its first address, shifted right by the number of
/// host bits. For single addresses this is the number of the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsableBlocks {
    /// The family of all addresses of the pool.
    pub family: Family,
    /// The length of each block in bits: that of an address, or the allocation prefix length.
    pub length: u8,
    /// The parts of the pool, in the order in which they are used.
    pub ranges: Vec<UsableRange>,
    /// The numbers of the usable blocks of all ranges; empty if all are excluded.
    pub set: SpanSet,
    /// The numbers of usable blocks that are no longer allocated, but can be in use.
    pub draining: SpanSet,
}

/// A part of a pool, with its prefix length and gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsableRange {
    /// The prefix length of allocated addresses: that of the subnet, or the length of the block.
    pub prefix: u8,
    /// The gateway, which can be outside of the range.
    pub gateway: Option<IpAddr>,
    /// The subnet of all addresses of the range; `None` for a pool of prefixes.
    pub subnet: Option<IpNet>,
    /// The numbers of all blocks of the range, including excluded ones.
    pub set: SpanSet,
}

impl UsableRange {
    /// Whether an address is the first one of the subnet, or the last one of an IPv4 subnet.
    pub fn ends_at(&self, address: IpAddr) -> bool {
        match self.subnet {
            Some(IpNet::V4(subnet)) => address == subnet.network() || address == subnet.broadcast(),
            Some(IpNet::V6(subnet)) => address == subnet.network(),
            None => false,
        }
    }
}

impl UsableBlocks {
    /// Returns the block with this number.
    pub fn block(&self, number: u128) -> Block {
        let first = number.checked_shl(self.shift()).unwrap_or_default();
        Block::new(self.family.address(first), self.length)
    }

    /// Returns the number of a block, also if it is not in the pool; `None` if it has another
    /// family or length.
    pub fn number(&self, block: Block) -> Option<u128> {
        (block.family() == self.family && block.length() == self.length)
            .then(|| self.number_of(block.span().first()))
    }

    /// Whether the pool can allocate this block.
    pub fn contains(&self, block: Block) -> bool {
        self.number(block)
            .is_some_and(|number| self.set.contains(number))
    }

    /// The place in [`ranges`](Self::ranges) of the range that contains a block; the first one if none
    /// does.
    pub fn range_index_of(&self, block: Block) -> usize {
        let Some(number) = self.number(block).filter(|_| self.ranges.len() > 1) else {
            return 0;
        };
        let mut ranges = self.ranges.iter();
        let found = ranges.position(|range| range.set.contains(number));
        found.unwrap_or_default()
    }

    /// The range that contains a block; the first range if none does.
    pub fn range_of(&self, block: Block) -> Option<&UsableRange> {
        self.ranges.get(self.range_index_of(block))
    }

    /// The prefix length that an allocated block has: that of its range.
    pub fn prefix_of(&self, block: Block) -> u8 {
        self.range_of(block)
            .map_or(self.length, |range| range.prefix)
    }

    /// The gateway that an allocated block has: that of its range.
    pub fn gateway_of(&self, block: Block) -> Option<IpAddr> {
        self.range_of(block)?.gateway
    }

    /// The gateways of all ranges.
    pub fn gateways(&self) -> impl Iterator<Item = IpAddr> {
        self.ranges.iter().filter_map(|range| range.gateway)
    }

    /// Whether the block is of the pool and is no longer allocated.
    pub fn is_draining(&self, block: Block) -> bool {
        !self.draining.is_empty()
            && self
                .number(block)
                .is_some_and(|number| self.draining.contains(number))
    }

    /// Whether the block with this number can be allocated: it is in the set, and not draining.
    pub fn can_allocate(&self, number: u128) -> bool {
        self.set.contains(number) && !self.draining.contains(number)
    }

    /// The numbers of the blocks that are allocated: those of the set that are not draining.
    pub fn allocatable(&self) -> SpanSet {
        if self.draining.is_empty() {
            self.set.clone()
        } else {
            self.set.subtract(&self.draining)
        }
    }

    /// The lowest free number of the first range that has a free one.
    pub fn first_free(&self, free: &FreeSet) -> Option<u128> {
        match self.ranges.as_slice() {
            [] | [_] => free.lowest(),
            ranges => ranges.iter().find_map(|range| free.lowest_in(&range.set)),
        }
    }

    /// Returns the numbers of all blocks with the length of the pool that overlap with `block`,
    /// which can have any length; `None` if it is of another family.
    pub fn numbers_overlapping(&self, block: Block) -> Option<Span> {
        self.numbers_of(block.span())
            .filter(|_| block.family() == self.family)
    }

    /// Whether any block overlaps with `block`, which can have any length and family. By binary
    /// search.
    pub fn overlaps_block(&self, block: Block) -> bool {
        let numbers = self.numbers_overlapping(block);
        numbers.is_some_and(|numbers| self.set.overlaps(numbers))
    }

    /// Returns the numbers of all blocks with the length of the pool that overlap with a span of
    /// addresses.
    pub(super) fn numbers_of(&self, addresses: Span) -> Option<Span> {
        Span::new(
            self.number_of(addresses.first()),
            self.number_of(addresses.last()),
        )
    }

    /// Whether any block overlaps with `addresses`, the numbers of addresses of the same family. By
    /// binary search in the larger one of both sets.
    pub fn overlaps_addresses(&self, addresses: &SpanSet) -> bool {
        if addresses.spans().len() > self.set.spans().len() {
            return self.address_spans().any(|span| addresses.overlaps(span));
        }
        let mut numbers = addresses
            .spans()
            .iter()
            .filter_map(|span| self.numbers_of(*span));
        numbers.any(|numbers| self.set.overlaps(numbers))
    }

    /// Returns the blocks without those that overlap with `addresses`, the numbers of addresses of
    /// the same family.
    #[must_use]
    pub fn without(&self, addresses: &SpanSet) -> Self {
        if self.shift() == 0 {
            return self.without_numbers(addresses);
        }
        self.without_numbers(
            &addresses
                .spans()
                .iter()
                .filter_map(|span| self.numbers_of(*span))
                .collect(),
        )
    }

    fn without_numbers(&self, numbers: &SpanSet) -> Self {
        let (set, draining) = (self.set.subtract(numbers), self.draining.subtract(numbers));
        let Self { family, length, .. } = *self;
        Self {
            family,
            length,
            ranges: self.ranges.clone(),
            set,
            draining,
        }
    }

    /// Returns the addresses of all usable blocks.
    pub fn addresses(&self) -> SpanSet {
        self.address_spans().collect()
    }

    /// The addresses of all usable blocks as ascending spans.
    fn address_spans(&self) -> impl Iterator<Item = Span> {
        self.set
            .spans()
            .iter()
            .filter_map(|span| self.addresses_of(*span))
    }

    /// Returns the addresses of the blocks with these numbers.
    fn addresses_of(&self, span: Span) -> Option<Span> {
        let first = |number: u128| number.checked_shl(self.shift()).unwrap_or_default();
        Span::new(
            first(span.first()),
            first(span.last()) | host_bits(self.family, self.length),
        )
    }

    /// Returns the span from the lowest to the highest usable address; `None` without a usable
    /// address.
    pub fn bounds(&self) -> Option<Span> {
        let (first, last) = self.set.spans().first().zip(self.set.spans().last())?;
        self.addresses_of(Span::new(first.first(), last.last())?)
    }

    /// Whether both have a common usable address. Linear in the spans up to the first common
    /// address, or by binary search if one has much fewer spans.
    pub fn overlaps(&self, other: &Self) -> bool {
        let (mut few, mut many) = (self, other);
        if few.set.spans().len() > many.set.spans().len() {
            (few, many) = (many, few);
        }
        if few.set.spans().len().saturating_mul(MANY_TIMES) > many.set.spans().len() {
            return self.first_shared(other).is_some();
        }
        let has_shared = |span| {
            let numbers = many.numbers_of(span);
            numbers.is_some_and(|numbers| many.set.overlaps(numbers))
        };
        few.family == many.family && few.address_spans().any(has_shared)
    }

    /// The first range of usable addresses that both have. Linear in the spans up to this range.
    pub fn first_shared(&self, other: &Self) -> Option<Entry> {
        if self.family != other.family {
            return None;
        }
        let (mut ours, mut theirs) = (self.address_spans(), other.address_spans());
        let (mut one, mut two) = (ours.next(), theirs.next());
        while let (Some(a), Some(b)) = (one, two) {
            let shared = Span::new(a.first().max(b.first()), a.last().min(b.last()));
            if let Some(span) = shared {
                let family = self.family;
                return Some(Entry { family, span });
            }
            if a.last() < b.last() {
                one = ours.next();
            } else {
                two = theirs.next();
            }
        }
        None
    }

    fn shift(&self) -> u32 {
        u32::from(self.family.bits().saturating_sub(self.length))
    }

    fn number_of(&self, address: u128) -> u128 {
        address.checked_shr(self.shift()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Blocks of this length, from pairs of first number and number of further ones.
    fn usable(length: u8, numbers: Vec<(u8, u8)>) -> UsableBlocks {
        let spans = numbers.into_iter().filter_map(|(first, more)| {
            Span::new(first.into(), u128::from(first).saturating_add(more.into()))
        });
        UsableBlocks {
            family: Family::V4,
            length,
            ranges: Vec::new(),
            set: spans.collect(),
            draining: SpanSet::default(),
        }
    }

    fn any_usable() -> impl Strategy<Value = UsableBlocks> {
        let numbers = proptest::collection::vec((any::<u8>(), 0..4_u8), 0..6);
        (28..=32_u8, numbers).prop_map(|(length, numbers)| usable(length, numbers))
    }

    proptest! {
        #[test]
        fn overlaps_agree_with_the_sets_of_addresses(one in any_usable(), other in any_usable()) {
            let expected = !one.addresses().intersect(&other.addresses()).is_empty();
            prop_assert_eq!(one.overlaps(&other), expected);
            prop_assert_eq!(other.overlaps(&one), expected);
            let overlap = |(one, two): (Span, Span)| one.first() <= two.last() && two.first() <= one.last();
            prop_assert!(!expected || one.bounds().zip(other.bounds()).is_some_and(overlap));
        }
    }

    proptest! {
        #[test]
        fn blocks_that_overlap_with_addresses_are_removed(one in any_usable(), other in any_usable()) {
            let addresses = other.addresses();
            let remaining = one.without(&addresses);
            prop_assert!(remaining.addresses().intersect(&addresses).is_empty());
            let is_removed = remaining.set != one.set;
            prop_assert_eq!(one.overlaps_addresses(&addresses), is_removed);
            prop_assert_eq!(is_removed, !one.addresses().intersect(&addresses).is_empty());
        }
    }

    #[test]
    fn pools_of_different_families_never_overlap() {
        let one = usable(32, vec![(1, 3)]);
        let other = UsableBlocks {
            family: Family::V6,
            length: 128,
            ..one.clone()
        };
        assert!(!one.overlaps(&other) && one.overlaps(&one));
    }
}
