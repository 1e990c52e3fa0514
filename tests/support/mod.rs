//! What the integration tests, the demo and the benchmarks share.
//!
//! A test binary takes it in with `mod support;`, anything outside of `tests/` with
//! `#[path = "../tests/support/mod.rs"] mod support;`.

#![allow(dead_code, unreachable_pub, reason = "each binary that takes these modules in uses a part of them")]
#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::panic,
    reason = "test code: a failure ends the test with a text that says what went wrong"
)]

pub mod clusterctl;
pub mod consumer;
pub mod control_plane;
pub mod manager;
pub mod ports;
pub mod process;
pub mod webhooks;
