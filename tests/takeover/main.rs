//! Taking over from the Go in-cluster provider, and back, on a real API server that holds what that provider leaves.
//! Each test has a control plane of its own.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "test code: a failure ends the test with a text that says what went wrong"
)]

#[path = "../support/mod.rs"]
mod support;

mod back;
mod bulk;
mod fixture;
mod go_provider;
mod lease;
mod many;
mod snapshot;
mod special;
mod store;

use tokio::sync::RwLock;

/// The test that measures time has the machine to itself: it writes, the others read.
static MACHINE: RwLock<()> = RwLock::const_new(());
