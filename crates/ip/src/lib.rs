//! Addresses of a pool as plain numbers.
//!
//! Everything here is pure computation: no cluster, no clock, no input or output. An address
//! is handled as its number (a `u128`) together with its [`Family`], and a pool as a sorted set
//! of spans of numbers. A pool that holds the whole of `::/0` therefore costs as little as one
//! that holds a single address, and nothing ever walks through addresses one by one.
//!
//! The way of a pool through this module:
//!
//! 1. [`parse_entry`] and [`parse_address`] read the texts that an operator wrote,
//! 2. [`PoolAddresses::usable`] or [`PoolPrefixes::usable`] checks a pool and gives its [`Usable`] blocks: single
//!    addresses or prefixes of one length,
//! 3. [`FreeSet`] tracks which of those are free and finds the lowest one; it is the same for both.

mod block;
mod family;
mod free;
mod parse;
mod pool;
mod set;
mod usable;

pub use block::Block;
pub use family::Family;
pub use free::FreeSet;
pub use parse::{Entry, MAX_ENTRY_LENGTH, ParseError, parse_address, parse_entry, parse_lenient};
pub use pool::{Field, MAX_PROBLEMS, PoolAddresses, PoolPrefixes, PoolProblem, PoolProblemKind};
pub use set::{Span, SpanSet};
pub use usable::Usable;
