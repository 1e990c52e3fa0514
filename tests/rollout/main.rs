//! The manager in operation: restarts, several at once, permissions, an API server that goes away. Each test has a
//! control plane of its own.

#![allow(clippy::expect_used, clippy::indexing_slicing, reason = "test code: a failure ends the test")]

#[path = "../support/mod.rs"]
mod support;

mod endpoints;
mod flags;
mod permissions;
mod readiness;
mod releases;
mod restart;
mod scope;
mod several;
