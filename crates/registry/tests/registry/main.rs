//! One suite for both backends, against real servers: nats-server, and kube-apiserver with
//! `manifests/registry.yaml`.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "test code: a failure ends the test with a message"
)]

mod availability;
mod cluster;
mod hub;
mod nats;
mod policy;
mod schema;
mod settings;
mod size;
mod support;
mod watch;
mod writes;
