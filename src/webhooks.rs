//! What the API server asks about pools while it serves a request. The answers are functions of what it sends.
//!
//! - [`conversion`]: the versions of a pool, one made from the other.

pub mod conversion;
