//! The manager in operation: restarts, several replicas, permissions, and an API server that
//! restarts. Each test starts its own control plane.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "test code: a failure ends the test"
)]

mod contract_versions;
mod definitions;
mod endpoints;
mod flags;
mod networks;
mod order;
mod permissions;
mod policy;
mod pruned_status;
mod quarantine;
mod readiness;
mod reclaim;
mod releases;
mod restart;
mod scope;
mod several;
mod stored_versions;
