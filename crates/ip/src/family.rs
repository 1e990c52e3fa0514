//! The two address families, and how their addresses map to numbers.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The family of an address.
///
/// The number of an address is its bits read as one big-endian integer, so `0.0.0.0` and `::`
/// are both number 0. A number alone does not tell the family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4, numbers of 32 bits.
    V4,
    /// IPv6, numbers of 128 bits.
    V6,
}

impl Family {
    /// The family of `address`. An IPv4-mapped IPv6 address counts as IPv6.
    #[must_use]
    pub fn of(address: IpAddr) -> Family {
        match address {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        }
    }

    /// The length of an address in bits: 32 or 128.
    #[must_use]
    pub fn bits(self) -> u8 {
        match self {
            Family::V4 => 32,
            Family::V6 => 128,
        }
    }

    /// The number of `address` within its family.
    #[must_use]
    pub fn to_number(address: IpAddr) -> u128 {
        match address {
            IpAddr::V4(v4) => u128::from(v4.to_bits()),
            IpAddr::V6(v6) => v6.to_bits(),
        }
    }

    /// The address with number `number`. A number beyond [`Family::last`] gives the last address.
    #[must_use]
    pub fn address(self, number: u128) -> IpAddr {
        match self {
            Family::V4 => IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(number).unwrap_or(u32::MAX))),
            Family::V6 => IpAddr::V6(Ipv6Addr::from_bits(number)),
        }
    }

    /// The highest number of the family: 2^32 − 1 or 2^128 − 1.
    #[must_use]
    pub fn last(self) -> u128 {
        match self {
            Family::V4 => u128::from(u32::MAX),
            Family::V6 => u128::MAX,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_family_knows_its_limits() {
        assert_eq!(Family::V4.bits(), 32);
        assert_eq!(Family::V6.bits(), 128);
        assert_eq!(Family::V4.address(Family::V4.last()).to_string(), "255.255.255.255");
        assert_eq!(Family::V6.address(Family::V6.last()).to_string(), "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
        assert_eq!(format!("{:>5}|{}", Family::V4, Family::V6), " IPv4|IPv6");
    }

    #[test]
    fn a_number_beyond_the_family_gives_its_last_address() {
        let beyond = Family::V4.last() + 1;
        assert_eq!(Family::V4.address(beyond).to_string(), "255.255.255.255");
        assert_eq!(Family::V4.address(u128::MAX).to_string(), "255.255.255.255");
    }

    proptest! {
        #[test]
        fn an_address_and_its_number_are_one_to_one(address: IpAddr) {
            let family = Family::of(address);
            prop_assert!(Family::to_number(address) <= family.last());
            prop_assert_eq!(family.address(Family::to_number(address)), address);
        }

        #[test]
        fn numbers_order_as_addresses_do(a: std::net::Ipv6Addr, b: std::net::Ipv6Addr) {
            let (left, right) = (Family::to_number(a.into()), Family::to_number(b.into()));
            prop_assert_eq!(left.cmp(&right), a.cmp(&b));
        }
    }
}
