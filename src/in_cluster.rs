//! The in-cluster provider: pools of addresses kept as objects in the management cluster.
//!
//! Uniqueness rests on the API server alone: an address is allocated by creating an
//! [`IPReservation`](crate::api::IPReservation) whose name is made of the scope and the address
//! ([`reservation_name`](crate::api::reservation_name)), and of two writers one is let through. The [`ledger`] in memory makes that fast: it proposes
//! the lowest address that seems free; a wrong proposal costs a retry, never a duplicate.
//!
//! - [`adapter`](InClusterAdapter): what is watched, and the handler of one claim;
//! - `allocate`, `release`: the reservation's part of steps A2 and R2;
//! - [`ledger`]: who holds what, which claims wait;
//! - `cooldown`: the end of the time for which a released address is not reused;
//! - `pools`: finalizer, counts and conditions of pools; `pool_use`: what a deleted pool waits for;
//! - `move_label`: what `clusterctl move` takes along;
//! - [`LedgerHandle`]: the ledger for those who only ask;
//! - `sweeper`: what nobody holds any more, and what has no reservation yet.

pub mod ledger;

mod adapter;
mod allocate;
mod cooldown;
mod duplicates;
mod kinds;
mod move_label;
mod options;
mod pool_use;
mod pools;
mod standby;
mod release;
mod reservation;
mod context;
mod sweeper;

pub use adapter::{InClusterAdapter, register};
pub use options::InClusterOptions;
pub use standby::{LedgerHandle, run_standby};
