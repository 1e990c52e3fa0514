//! Addresses of Clusters, against a real API server with the definitions of Cluster API.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "test code: a failure ends the test with a message"
)]
#![allow(
    clippy::needless_pass_by_value,
    reason = "the values are written where they are passed"
)]

mod deletion;
mod delivery;
mod documented;
mod requested;
mod scene;
