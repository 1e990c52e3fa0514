//! The pools of the claims, and their addresses.

use std::net::Ipv4Addr;

/// A pool.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// The address and prefix length that the baseline allocates to the claim with a number.
pub(crate) fn address_of(number: usize, pools: usize) -> (String, u8) {
    let (pool, place) = (number % pools, number / pools + 1);
    let base = if pools == 1 {
        0x0a00_0000
    } else {
        0x0a00_0000 + (pool << 16)
    };
    let address = u32::try_from(base + place).expect("the pools have enough addresses");
    (
        Ipv4Addr::from(address).to_string(),
        if pools == 1 { 12 } else { 16 },
    )
}
