//! Blocks of networks that several management clusters share.
//!
//! A network with `spec.blocks` allocates only addresses of blocks that this management cluster has
//! taken from a registry. The IPSlice of a block says so, and the ledger knows the IPSlices: so
//! allocation never waits for the registry.
//!
//! | part | content |
//! |---|---|
//! | `registries` | the controller of IPRegistries: connects to each, and reports its state |
//! | `running` | what runs for one registry: the watch of its records, the driver, the sign of life |
//! | `open_registry` | the state of one registry: whether blocks are taken from it, and why not |
//! | `record_watch` | what the watch of the records shows, on its way into the cache and the ledger |
//! | `needs` | which blocks a network needs; plain values |
//! | `target` | a block, as the protocol has to know it; plain values |
//! | `backoff` | when a write is sent again; plain values |
//! | `driver` | decides for each block what is due, and sends it |
//! | `reservation_list` | the list of reservations that decides on returns |
//! | `measured`, `state_metrics` | the metrics of registries, and all registries by name |
//! | `check` | whether an address that was just reserved is in a block of this cluster |
//!
//! The order of the writes is that of [`capi_ipam_protocol::block`].

mod addresses;
mod backoff;
pub(super) mod check;
mod disturbance;
mod driver;
mod heartbeat;
mod measured;
mod needs;
mod open_registry;
mod record_watch;
mod recovery;
pub(super) mod registries;
mod reservation_list;
mod running;
mod state_metrics;
mod target;

use capi_ipam_controller::metrics::Description;

/// The metrics of registries.
pub const METRICS: &[Description] = &[
    state_metrics::UP,
    state_metrics::CLUSTER_ID_IN_USE,
    measured::REQUESTS,
    measured::REQUEST_SECONDS,
];
