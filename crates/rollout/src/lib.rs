//! Whether the pools have room for the Machines that can exist at the same time: while rollouts run,
//! and with the largest numbers of replicas.
//!
//! Nothing here sends a request: the caller lists the objects, and passes a [`Ledger`] that is not
//! used for anything else, since it proposes addresses to claims that do not exist.
//!
//! [`Ledger`]: capi_ipam_ledger::Ledger

#![forbid(unsafe_code)]

mod plan;
mod workloads;

pub use plan::{MAX_REPLICAS, PlanAddresses, PlanLine, PlanPool, Uses, machine_index, plan};
pub use workloads::{DEPLOYMENTS, WORKLOADS, control_plane};
