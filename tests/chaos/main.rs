//! The manager in a failing environment: API server and etcd crash or are restored, clocks are
//! skewed, CRDs are deleted, quotas are exceeded, and other namespaces create floods of claims.
//! Each test starts its own control plane, and ends when the state is correct and no write happens.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "test code: a failure ends the test with a message"
)]

mod clocks;
mod fairness;
mod kinds;
mod outages;
mod pauses;
mod proxy;
mod quota;
mod relist;
mod restore;
mod silent_watches;
mod workload;
