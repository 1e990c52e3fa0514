//! Blocks: what is allocated to a claim, one address or one prefix.

use std::fmt;
use std::net::IpAddr;

use crate::{Family, Span};

/// One address, or all addresses with one prefix: the unit of allocation.
///
/// A single address is a block with the length of an address. It is displayed without the length, a
/// prefix with it: `10.0.0.5`, `fd00:0:0:4::/64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block {
    base: IpAddr,
    length: u8,
}

impl Block {
    /// Returns the block that contains `base`, with a prefix of `length` bits. Host bits of `base`
    /// are cleared. A length that exceeds that of an address is reduced to it.
    pub fn new(base: IpAddr, length: u8) -> Self {
        let family = Family::of(base);
        let length = length.min(family.bits());
        let number = Family::to_number(base) & !host_bits(family, length);
        Self {
            base: family.address(number),
            length,
        }
    }

    /// Returns the block of one address.
    pub fn address(address: IpAddr) -> Self {
        Self {
            base: address,
            length: Family::of(address).bits(),
        }
    }

    /// The first address of the block.
    pub fn base(self) -> IpAddr {
        self.base
    }

    /// The prefix length: the number of leading bits that all addresses of the block share.
    pub fn length(self) -> u8 {
        self.length
    }

    /// The family of the addresses.
    pub fn family(self) -> Family {
        Family::of(self.base)
    }

    /// Whether the block is a single address.
    pub fn is_address(self) -> bool {
        self.length == self.family().bits()
    }

    /// Whether an address is in both blocks.
    pub fn overlaps(self, other: Self) -> bool {
        let length = self.length.min(other.length);
        Self::new(self.base, length) == Self::new(other.base, length)
    }

    /// The numbers of the addresses.
    pub fn span(self) -> Span {
        let first = Family::to_number(self.base);
        Span::new(first, first | host_bits(self.family(), self.length))
            .unwrap_or(Span::single(first))
    }
}

/// Returns the mask of the host bits of a prefix of that length.
pub(super) fn host_bits(family: Family, length: u8) -> u128 {
    family
        .last()
        .checked_shr(u32::from(length))
        .unwrap_or_default()
}

impl fmt::Display for Block {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.base)?;
        if self.is_address() {
            Ok(())
        } else {
            write!(formatter, "/{}", self.length)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn blocks_are_displayed_in_cidr_notation() {
        let displayed = |base: &str, length| Block::new(base.parse().unwrap(), length).to_string();
        assert_eq!(displayed("10.0.0.5", 32), "10.0.0.5");
        assert_eq!(displayed("10.0.0.5", 200), "10.0.0.5");
        assert_eq!(displayed("10.0.0.5", 24), "10.0.0.0/24");
        assert_eq!(displayed("fd00:0:0:4::9", 64), "fd00:0:0:4::/64");
        assert_eq!(displayed("ffff::", 0), "::/0");
        assert_eq!(
            Block::new("::1".parse().unwrap(), 0).span().len(),
            u128::MAX
        );
    }

    proptest! {
        #[test]
        fn block_contains_the_address_it_is_built_from(address: IpAddr, length in 0..=128_u8) {
            let block = Block::new(address, length);
            prop_assert!(block.overlaps(Block::address(address)));
            prop_assert!(block.span().contains(Family::to_number(address)));
            prop_assert_eq!(Block::new(block.base(), block.length()), block);
            prop_assert_eq!(block.is_address(), block == Block::address(address));
        }
    }
}
