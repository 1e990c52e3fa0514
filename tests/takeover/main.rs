//! Switching from the Go in-cluster provider and back, on a real API server with the objects of
//! that provider. Each test starts its own control plane.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "test code: a failure ends the test with a message"
)]

mod back;
mod bulk;
mod fixture;
mod go_provider;
mod lease;
mod many;
mod owners;
mod snapshot;
mod special;
mod store;

use tokio::sync::RwLock;

/// A lock that gives the measuring test the machine exclusively: it locks for writing, the others
/// for reading.
static MACHINE: RwLock<()> = RwLock::const_new(());
