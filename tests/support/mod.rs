//! Shared code of the integration tests, the demo and the benchmarks.
//!
//! A test binary includes it with `mod support;`, a program outside of `tests/` with
//! `#[path = "../tests/support/mod.rs"] mod support;`.

#![allow(dead_code, unreachable_pub, reason = "each binary uses only a part of these modules")]
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::panic,
    reason = "test code: a failure ends the test with a message"
)]

pub mod clusterctl;
pub mod consumer;
pub mod control_plane;
pub mod manager;
pub mod ports;
pub mod process;
pub mod proxy;
pub mod wait;
pub mod webhooks;
