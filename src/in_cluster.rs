//! The in-cluster provider: allocates addresses from pools that are objects of the management cluster.
//!
//! Uniqueness depends on the API server alone. An address is allocated by creating an
//! [`IPReservation`](crate::api::IPReservation) whose name is derived from the scope and the address
//! ([`reservation_name`](crate::api::reservation_name)): if two clients create it, one of them gets a conflict. The
//! in-memory [`ledger`] makes this fast. It proposes the lowest address that seems free; a wrong proposal costs a
//! retry, never a duplicate.
//!
//! - [`adapter`](InClusterAdapter): the watches, and the handler of one claim;
//! - `allocate`, `release`: creation and deletion of reservations (steps A2 and R2);
//! - [`ledger`]: index of addresses in use, free addresses and waiting claims;
//! - `cooldown`: the end of cool-downs, during which a released address is not reused;
//! - `pools`: finalizer, counts and conditions of pools; `deletion_check`: what blocks the deletion of a pool;
//! - `move_label`: the label with which `clusterctl move` moves reservations;
//! - [`LedgerHandle`]: read access to the ledger for admission, in every replica;
//! - `sweeper`: releases abandoned addresses and creates missing reservations.

pub mod ledger;

mod adapter;
mod allocate;
mod context;
mod cooldown;
mod deletion_check;
mod duplicates;
mod kinds;
mod move_label;
mod options;
mod pools;
mod release;
mod reservation;
mod standby;
mod sweeper;

pub use adapter::{InClusterAdapter, register};
pub use options::InClusterOptions;
pub use standby::{LedgerHandle, run_standby};
