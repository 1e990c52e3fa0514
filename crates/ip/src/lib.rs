//! Arithmetic with IP addresses, for pools that allocate addresses or prefixes.
//!
//! - [`parse_entry`] and [`parse_address`]: strict parsers of the texts of a pool, and
//!   [`parse_block`] of what one claim has;
//! - [`PoolAddresses`] and [`PoolPrefixes`]: validation of the spec of a pool. The result is either
//!   a list of [`PoolProblem`]s or the [`UsableBlocks`] blocks: single addresses, or prefixes of
//!   one length;
//! - [`PoolRange`]: a part of a pool, with its subnet and gateway;
//! - [`FreeSet`]: the free blocks of a pool, to allocate the lowest one;
//! - [`Extents`]: search for pools whose address ranges overlap;
//! - [`Family`], [`Block`], [`Span`] and [`SpanSet`]: addresses, prefixes, ranges and sets as
//!   numbers.
//!
//! # Dependencies
//! ipnet and thiserror. The crate does no input or output, has no async code and reads no clock. It
//! knows nothing of Kubernetes, except the names of fields in [`Field`].
//!
//! # Invariants
//! - An address is a number (`u128`) with a [`Family`]; sets are sorted spans of numbers. Memory
//!   and time depend on the number of spans, never on the number of addresses: `::/0` costs as
//!   little as a single address.
//! - An accepted text has one meaning: a text that two programs could read differently is an error.
//! - [`UsableBlocks`] contains only addresses of the entries of the pool, and none that is
//!   excluded, reserved by the subnet, a gateway of a pool of addresses, or IPv4-mapped.
//! - No function panics or overflows, whatever the input.
//!
//! # Example
//! Allocating the lowest free addresses of a pool:
//!
//! ```
//! use capi_ipam_ip::{Block, FreeSet, PoolAddresses};
//!
//! let pool = PoolAddresses {
//!     addresses: &["10.0.0.0/24".to_owned()],
//!     excluded: &["10.0.0.1-10.0.0.9".to_owned()],
//!     prefix: 24,
//!     gateway: Some("10.0.0.10"),
//!     ..PoolAddresses::default()
//! };
//! let usable = pool.usable().expect("the pool is valid");
//! let mut free = FreeSet::new(&usable.set);
//!
//! let lowest = free.lowest().expect("addresses are free");
//! free.take(lowest);
//! assert_eq!(usable.block(lowest).to_string(), "10.0.0.11");
//! assert_eq!(free.len(), 243);
//!
//! // An address in use is found by its block.
//! let in_use = Block::address("10.0.0.12".parse()?);
//! free.take(usable.number(in_use).expect("the block has the length of the pool"));
//! assert_eq!(free.lowest().map(|number| usable.block(number).to_string()), Some("10.0.0.13".to_owned()));
//! # Ok::<(), std::net::AddrParseError>(())
//! ```

mod block;
mod extents;
mod family;
mod free;
mod parse;
mod pool;
mod set;
mod usable;

pub use block::Block;
pub use extents::Extents;
pub use family::Family;
pub use free::{FreeRanks, FreeSet};
pub use parse::{
    Entry, MAX_ENTRY_LENGTH, ParseError, network_with_host_bits, parse_address, parse_block,
    parse_entry, parse_lenient,
};
pub use pool::{
    Field, MAX_PROBLEMS, MAX_RANGES, PoolAddresses, PoolPrefixes, PoolProblem, PoolProblemKind,
    PoolRange, RangeField,
};
pub use set::{Span, SpanSet};
pub use usable::{UsableBlocks, UsableRange};
