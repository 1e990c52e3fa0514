//! What a claim gets: one address, or one prefix.

use std::fmt;
use std::net::IpAddr;

use crate::{Family, Span};

/// One address, or all addresses with one prefix. A claim gets a whole block.
///
/// An address is the block whose length is that of an address. Displayed, an address stands alone and a prefix has its
/// length behind it: `10.0.0.5`, `fd00:0:0:4::/64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Block {
    base: IpAddr,
    length: u8,
}

impl Block {
    /// The block that `base` lies in, `length` bits long. A length beyond that of an address is that of an address;
    /// bits of `base` beyond the length are cleared.
    #[must_use]
    pub fn new(base: IpAddr, length: u8) -> Block {
        let family = Family::of(base);
        let length = length.min(family.bits());
        let number = Family::to_number(base) & !host_bits(family, length);
        Block { base: family.address(number), length }
    }

    /// The block of one address.
    #[must_use]
    pub fn address(address: IpAddr) -> Block {
        Block { base: address, length: Family::of(address).bits() }
    }

    /// The first address of the block.
    #[must_use]
    pub fn base(self) -> IpAddr {
        self.base
    }

    /// How many leading bits all addresses of the block have in common.
    #[must_use]
    pub fn length(self) -> u8 {
        self.length
    }

    /// The family of its addresses.
    #[must_use]
    pub fn family(self) -> Family {
        Family::of(self.base)
    }

    /// Whether the block is a single address.
    #[must_use]
    pub fn is_address(self) -> bool {
        self.length == self.family().bits()
    }

    /// The numbers of its addresses.
    #[must_use]
    pub fn span(self) -> Span {
        let first = Family::to_number(self.base);
        Span::new(first, first | host_bits(self.family(), self.length)).unwrap_or(Span::single(first))
    }
}

/// The bits of an address behind a prefix of that length.
pub(super) fn host_bits(family: Family, length: u8) -> u128 {
    family.last().checked_shr(u32::from(length)).unwrap_or_default()
}

impl fmt::Display for Block {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.base)?;
        if self.is_address() { Ok(()) } else { write!(formatter, "/{}", self.length) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_block_is_shown_as_people_write_it() {
        let shown = |base: &str, length| Block::new(base.parse().unwrap(), length).to_string();
        assert_eq!(shown("10.0.0.5", 32), "10.0.0.5");
        assert_eq!(shown("10.0.0.5", 200), "10.0.0.5");
        assert_eq!(shown("10.0.0.5", 24), "10.0.0.0/24");
        assert_eq!(shown("fd00:0:0:4::9", 64), "fd00:0:0:4::/64");
        assert_eq!(shown("ffff::", 0), "::/0");
        assert_eq!(Block::new("::1".parse().unwrap(), 0).span().len(), u128::MAX);
    }

    proptest! {
        #[test]
        fn a_block_holds_the_address_it_was_made_of(address: IpAddr, length in 0..=128_u8) {
            let block = Block::new(address, length);
            prop_assert!(block.span().contains(Family::to_number(address)));
            prop_assert_eq!(Block::new(block.base(), block.length()), block);
            prop_assert_eq!(block.is_address(), block == Block::address(address));
        }
    }
}
