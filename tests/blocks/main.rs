//! Two management clusters share the range of a network through a registry: two API servers with a
//! manager each, and a registry in NATS or at another API server.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "test code: a failure ends the test with a message"
)]

mod agreement;
mod allocation;
mod chaos;
mod conflicts;
mod faults;
mod identity;
mod interceptor;
mod moves;
mod outages;
mod registries;
mod restored;
mod returns;
mod site;
mod starts;
mod upgrade;
