//! The manager while its surroundings fail: API server and etcd die or go back in time, clocks jump, kinds vanish,
//! quotas refuse, others flood it. Each test has a control plane of its own, and ends with everything right and quiet.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "test code: a failure ends the test with a text that says what went wrong"
)]

#[path = "../support/mod.rs"]
mod support;

mod clocks;
mod fairness;
mod kinds;
mod outages;
mod pauses;
mod quota;
mod relist;
mod restore;
mod workload;
