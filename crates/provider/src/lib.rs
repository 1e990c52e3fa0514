//! The framework for IPAM providers.
//!
//! A provider implements [`ProviderAdapter`] and [`ClaimHandler`]: which kinds of pools it serves, and how an address is
//! allocated and given back. [`ClaimReconciler`] does the rest, the same for every provider: pausing, finalizers, owner
//! references and labels of the IPAddress, binding and releasing in an order that survives crashes, conditions and
//! events.
//!
//! What is to be done is decided by [`decision`], a pure function; the other modules act. This module names no kind of
//! pool.
//!
//! Source of the rules: Cluster API book, IPAM provider contract; proposal 20220125-ipam-integration.

pub mod api;
pub mod decision;

mod adapter;
mod address;
mod restore;
mod bind;
mod clusters;
mod contract;
mod duplicate;
mod failing;
mod held;
mod index;
mod pending_creates;
mod reconciler;
mod release;
mod report;
mod reporting;
mod rewrite;
mod selection;
mod claim_cache;

pub use adapter::{
    Allocation, ClaimHandler, HandlerError, PoolKind, PoolView, ProviderAdapter, ProviderSetup, Released,
};
pub use contract::ContractClient;
pub use duplicate::DuplicateReports;
pub use index::{AddressIndex, AddressRecord};
pub use reconciler::{ClaimReconciler, ReconcileError};
pub use selection::Selection;
pub use claim_cache::{Claims, ClaimSnapshot, CompactClaim};
