//! What the API server asks before it writes a pool or a reservation: pure functions from the object, what it was
//! before and a [`View`] of the cluster to a verdict.
//!
//! - [`pools`]: whether a pool may be made, changed, deleted; warnings about what is probably not meant;
//! - [`reservations`]: whether a reservation made by hand does what it is meant for;
//! - [`conversion`]: one version of a pool made from the other;
//! - [`routes`]: the paths for all that.
//!
//! Nothing becomes safe by admission, and nothing relies on it: without webhooks the definitions refuse most mistakes,
//! and the rest shows as conditions of the pool.

pub mod conversion;
pub mod pools;
pub mod reservations;
pub mod routes;

mod view;
mod warnings;

pub use view::View;
