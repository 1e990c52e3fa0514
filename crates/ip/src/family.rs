//! The two address families, and the mapping of addresses to numbers.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The family of an address.
///
/// The number of an address is the big-endian integer of its bits, so `0.0.0.0` and `::` both have
/// the number 0. A number alone does not identify an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4, numbers of 32 bits.
    V4,
    /// IPv6, numbers of 128 bits.
    V6,
}

impl Family {
    /// Returns the family of `address`. An IPv4-mapped IPv6 address is IPv6.
    pub fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::V4,
            IpAddr::V6(_) => Self::V6,
        }
    }

    /// The length of an address in bits: 32 or 128.
    pub fn bits(self) -> u8 {
        match self {
            Self::V4 => 32,
            Self::V6 => 128,
        }
    }

    /// Returns the number of `address` within its family.
    pub fn to_number(address: IpAddr) -> u128 {
        match address {
            IpAddr::V4(v4) => u128::from(v4.to_bits()),
            IpAddr::V6(v6) => v6.to_bits(),
        }
    }

    /// Returns the address with this number. Numbers greater than [`Family::last`] return the last
    /// address.
    pub fn address(self, number: u128) -> IpAddr {
        match self {
            Self::V4 => IpAddr::V4(Ipv4Addr::from_bits(
                u32::try_from(number).unwrap_or(u32::MAX),
            )),
            Self::V6 => IpAddr::V6(Ipv6Addr::from_bits(number)),
        }
    }

    /// The number of the last address: 2^32 − 1 or 2^128 − 1.
    pub fn last(self) -> u128 {
        match self {
            Self::V4 => u128::from(u32::MAX),
            Self::V6 => u128::MAX,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn families_have_their_limits() {
        assert_eq!(Family::V4.bits(), 32);
        assert_eq!(Family::V6.bits(), 128);
        assert_eq!(
            Family::V4.address(Family::V4.last()).to_string(),
            "255.255.255.255"
        );
        assert_eq!(
            Family::V6.address(Family::V6.last()).to_string(),
            "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
        );
        assert_eq!(format!("{:>5}|{}", Family::V4, Family::V6), " IPv4|IPv6");
    }

    #[test]
    fn number_out_of_range_is_the_last_address() {
        let beyond = Family::V4.last() + 1;
        assert_eq!(Family::V4.address(beyond).to_string(), "255.255.255.255");
        assert_eq!(Family::V4.address(u128::MAX).to_string(), "255.255.255.255");
    }

    proptest! {
        #[test]
        fn address_and_number_are_one_to_one(address: IpAddr) {
            let family = Family::of(address);
            prop_assert!(Family::to_number(address) <= family.last());
            prop_assert_eq!(family.address(Family::to_number(address)), address);
        }

        #[test]
        fn numbers_have_the_order_of_addresses(a: std::net::Ipv6Addr, b: std::net::Ipv6Addr) {
            let (left, right) = (Family::to_number(a.into()), Family::to_number(b.into()));
            prop_assert_eq!(left.cmp(&right), a.cmp(&b));
        }
    }
}
