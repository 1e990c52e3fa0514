//! Shared code of the integration tests, the demo and the benchmarks.
//!
//! A test binary includes it with `mod support;`, a program outside of `tests/` with `#[path =
//! "../tests/support/mod.rs"] mod support;`. The generic part is the crate `capi-ipam-testing`.

#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "each binary uses only a part of these modules"
)]
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
pub mod webhooks;

pub use capi_ipam_testing::{patience, ports, process, proxy, wait};
