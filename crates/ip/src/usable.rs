//! What a pool may give to claims.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::block::host_bits;
use crate::{Block, Family, Span, SpanSet};

/// The blocks that a pool may give to claims, all of one length.
///
/// A block is handled as its number: the number of its first address without the bits behind the prefix. For a pool of
/// single addresses that is the number of the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usable {
    /// The family of all addresses of the pool.
    pub family: Family,
    /// The length of each block, in bits: that of an address, or the allocation prefix length.
    pub length: u8,
    /// The prefix length that goes with each block, in bits: that of the subnet, or the length of the block.
    pub prefix: u8,
    /// The gateway, which may be outside of the pool.
    pub gateway: Option<IpAddr>,
    /// The subnet that all addresses of the pool are in; a pool of prefixes has none.
    pub subnet: Option<IpNet>,
    /// The numbers of the usable blocks; empty when the exclusions cover everything.
    pub set: SpanSet,
}

impl Usable {
    /// The block with that number.
    #[must_use]
    pub fn block(&self, number: u128) -> Block {
        let first = number.checked_shl(self.shift()).unwrap_or_default();
        Block::new(self.family.address(first), self.length)
    }

    /// The number of a block of this pool's length, whether the pool has it or not.
    #[must_use]
    pub fn number(&self, block: Block) -> Option<u128> {
        (block.family() == self.family && block.length() == self.length).then(|| self.number_of(block.span().first()))
    }

    /// Whether the pool may give out this very block.
    #[must_use]
    pub fn contains(&self, block: Block) -> bool {
        self.number(block).is_some_and(|number| self.set.contains(number))
    }

    /// The numbers of all blocks of this pool's length that have an address in common with `block`, whatever its
    /// length.
    #[must_use]
    pub fn numbers_touching(&self, block: Block) -> Option<Span> {
        self.numbers_of(block.span()).filter(|_| block.family() == self.family)
    }

    /// The numbers of all blocks of this pool's length that have an address in that span.
    pub(super) fn numbers_of(&self, addresses: Span) -> Option<Span> {
        Span::new(self.number_of(addresses.first()), self.number_of(addresses.last()))
    }

    /// The addresses of all usable blocks.
    #[must_use]
    pub fn addresses(&self) -> SpanSet {
        self.address_spans().collect()
    }

    /// The addresses of the usable blocks in ascending spans.
    fn address_spans(&self) -> impl Iterator<Item = Span> {
        self.set.spans().iter().filter_map(|span| self.widened(*span))
    }

    /// The addresses of the blocks with these numbers.
    fn widened(&self, span: Span) -> Option<Span> {
        let first = |number: u128| number.checked_shl(self.shift()).unwrap_or_default();
        Span::new(first(span.first()), first(span.last()) | host_bits(self.family, self.length))
    }

    /// The span from the lowest to the highest usable address.
    fn bounds(&self) -> Option<Span> {
        let (first, last) = self.set.spans().first().zip(self.set.spans().last())?;
        self.widened(Span::new(first.first(), last.last())?)
    }

    /// Whether the addresses of both lie, in part, between the same ends: without that they have none in common.
    #[must_use]
    pub fn is_near(&self, other: &Self) -> bool {
        let meet = |(one, two): (Span, Span)| one.first() <= two.last() && two.first() <= one.last();
        self.family == other.family && self.bounds().zip(other.bounds()).is_some_and(meet)
    }

    /// Whether both have a usable address in common; linear in the spans up to the first one.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let (mut ours, mut theirs) = (self.address_spans(), other.address_spans());
        let (mut one, mut two) = (ours.next(), theirs.next());
        while let (Some(a), Some(b)) = (one, two) {
            if a.first() <= b.last() && b.first() <= a.last() {
                return self.family == other.family;
            }
            if a.last() < b.last() {
                one = ours.next();
            } else {
                two = theirs.next();
            }
        }
        false
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

    /// Blocks of the family with that length, by their numbers.
    fn usable(length: u8, numbers: Vec<(u8, u8)>) -> Usable {
        let spans = numbers
            .into_iter()
            .filter_map(|(first, more)| Span::new(first.into(), u128::from(first).saturating_add(more.into())));
        Usable { family: Family::V4, length, prefix: 24, gateway: None, subnet: None, set: spans.collect() }
    }

    fn any_usable() -> impl Strategy<Value = Usable> {
        let numbers = proptest::collection::vec((any::<u8>(), 0..4_u8), 0..6);
        (28..=32_u8, numbers).prop_map(|(length, numbers)| usable(length, numbers))
    }

    proptest! {
        #[test]
        fn overlaps_are_those_of_the_addresses(one in any_usable(), other in any_usable()) {
            let expected = !one.addresses().intersect(&other.addresses()).is_empty();
            prop_assert_eq!(one.overlaps(&other), expected);
            prop_assert_eq!(other.overlaps(&one), expected);
            prop_assert!(!expected || one.is_near(&other));
        }
    }

    #[test]
    fn other_families_never_overlap() {
        let one = usable(32, vec![(1, 3)]);
        let other = Usable { family: Family::V6, length: 128, ..one.clone() };
        assert!(!one.overlaps(&other) && !one.is_near(&other) && one.overlaps(&one));
    }
}
