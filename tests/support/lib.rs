//! Shared code of the integration tests, the demo and the benchmarks. The generic part is the crate
//! `capi-ipam-testing`.

#![allow(
    missing_docs,
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
pub mod policy;
pub mod prelude;
pub mod registry;
pub mod repository;
pub mod scene;
pub mod snapshot;
pub mod specifications;
pub mod wait;
pub mod webhooks;

pub use capi_ipam_testing::{patience, ports, process, proxy};
