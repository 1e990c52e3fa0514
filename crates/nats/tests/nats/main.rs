//! Tests against real servers: one node, and a cluster of three.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "test code: a failure ends the test with a message"
)]

mod certificates;
mod cluster;
mod controller;
mod credentials;
mod garbage;
mod secondaries;
mod secondary_keys;
mod size;
mod start;
mod support;
mod watch;
mod writes;
