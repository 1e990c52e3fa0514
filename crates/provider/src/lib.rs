//! SDK for IPAM providers of Kubernetes Cluster API.
//!
//! A provider allocates and releases addresses. [`ClaimReconciler`] does the rest, equally for
//! every provider: pausing, finalizers, the IPAddress with its owner references and labels, binding
//! and releasing in an order that survives crashes, waiting for restored IPAddresses, conditions
//! and events.
//!
//! - [`prelude`]: what every provider needs. A [`PoolProvider`] has pools that are objects of one
//!   kind, which [`WatchedPools`] watches; [`ClaimReconciler::builder`] adds the controller of its
//!   claims to a program;
//! - [`advanced`]: what some providers need, such as [`ProviderAdapter`] and [`ClaimHandler`]. You
//!   want [`PoolProvider`] unless you have several kinds of pools, pools without a namespace, or
//!   need the whole object of a claim;
//! - [`api`]: the kinds of the Cluster API IPAM contract, in the versions `v1beta1` and `v1beta2`;
//! - [`references`]: finalizers with which an object keeps others that it uses;
//! - [`controller`]: the crate `capi-ipam-controller` with manager, client, watches and patches.
//!
//! The rules come from the [IPAM provider contract] of Cluster API.
//!
//! # Dependencies
//! `capi-ipam-controller`, kube and k8s-openapi. A provider needs only this crate of the workspace.
//! This crate knows no kind of pool, has no address arithmetic, and has no webhook server or
//! certificate code.
//!
//! # Invariants
//! - An address is released ([`ClaimHandler::release_address`]) only after the API server confirmed
//!   that its IPAddress no longer exists, and that the claim is being deleted or no longer exists.
//!   Absence from a watch, a list or a cache is never sufficient.
//! - A claim keeps its finalizer until its address is released. An IPAddress keeps its finalizer
//!   until its claim is deleted and has no finalizers of other controllers.
//! - A claim is bound by one write, after its IPAddress exists with finalizer and owner references.
//! - A paused claim, pool or Cluster, and everything that belongs to it, is not changed.
//! - Each write has the uid and the resourceVersion of the object that was read as preconditions.
//!   An IPAddress or a claim with the same name that was created later is never changed by mistake.
//! - Every step can be repeated. After a crash, reconciliation continues with the first step that
//!   is not done.
//!
//! # Example
//! A provider for an existing IPAM system. `examples/list-provider` is a complete provider without
//! one.
//!
//! ```no_run
//! use std::net::IpAddr;
//! use std::process::ExitCode;
//!
//! use capi_ipam_provider::prelude::*;
//! use kube::CustomResource;
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! # mod ipam {
//! #     pub async fn reserve(_: &str, _: &str, _: Option<std::net::IpAddr>) -> Result<std::net::IpAddr, std::io::Error> {
//! #         Ok([10, 0, 0, 5].into())
//! #     }
//! #     pub async fn release(_: &str) -> Result<(), std::io::Error> {
//! #         Ok(())
//! #     }
//! # }
//! /// A pool of the IPAM system.
//! #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
//! #[kube(group = "example.com", version = "v1", kind = "ExternalPool", namespaced)]
//! struct ExternalPoolSpec {
//!     network: String,
//!     prefix: u8,
//! }
//!
//! struct ExternalIpam;
//!
//! impl PoolProvider for ExternalIpam {
//!     type Pool = ExternalPool;
//!
//!     async fn allocate(
//!         &self,
//!         claim: &Claim,
//!         pool: &ExternalPool,
//!         existing: Option<IpAddr>,
//!     ) -> Result<Allocation, HandlerError> {
//!         // Idempotent: returns the same address for the same owner.
//!         let address = ipam::reserve(&pool.spec.network, &claim.uid.to_string(), existing)
//!             .await
//!             .map_err(|error| HandlerError::transient("cannot reserve an address", error))?;
//!         Ok(Allocation::new(address, pool.spec.prefix))
//!     }
//!
//!     async fn release(&self, claim: &Claim) -> Result<Released, HandlerError> {
//!         ipam::release(&claim.uid.to_string())
//!             .await
//!             .map_err(|error| HandlerError::transient("cannot release the address", error))?;
//!         Ok(Released::Now)
//!     }
//! }
//!
//! fn main() -> ExitCode {
//!     manager::main(Identity::new("external-ipam", env!("CARGO_PKG_VERSION")), async |manager| {
//!         ClaimReconciler::builder(manager).build(async |setup| Ok(WatchedPools::new(setup, ExternalIpam).await)).await
//!     })
//! }
//! ```
//!
//! [IPAM provider contract]: https://cluster-api.sigs.k8s.io/developer/providers/contracts/ipam
//! [`ClaimHandler`]: advanced::ClaimHandler
//! [`ClaimHandler::release_address`]: advanced::ClaimHandler::release_address
//! [`ClaimReconciler`]: prelude::ClaimReconciler
//! [`ClaimReconciler::builder`]: prelude::ClaimReconciler::builder
//! [`PoolProvider`]: prelude::PoolProvider
//! [`ProviderAdapter`]: advanced::ProviderAdapter
//! [`WatchedPools`]: prelude::WatchedPools

mod adapter;
mod address_in_use;
mod address_use;
mod attempt_state;
mod backoff;
mod bind;
mod claim;
mod claim_cache;
mod claim_conditions;
mod claim_reporter;
mod claim_status;
mod clusters;
mod compaction;
mod contract;
mod early_release;
mod error;
mod guarded;
mod index;
mod ip_address;
mod metrics;
mod options;
mod owner_versions;
mod pending_creates;
mod pool_controller;
mod pools;
mod reconciler;
mod release;
mod repair;
mod reported;
mod restore;
mod selection;
mod setup;
mod status_fields;
mod status_rate;
mod status_writer;
mod sweep;
mod testing;
mod unserved_kinds;
mod verification;
mod verify;
mod waiting_claims;

pub mod references;

pub use capi_ipam_contract as api;
pub use capi_ipam_controller as controller;

/// What every provider needs.
///
/// ```
/// use capi_ipam_provider::prelude::*;
/// ```
pub mod prelude {
    pub use crate::adapter::{Allocation, HandlerError, Released};
    pub use crate::claim::Claim;
    pub use crate::controller::manager::{self, Identity};
    pub use crate::options::PoolOptions;
    pub use crate::pools::{PoolCounts, PoolProvider, PoolStatus, WatchedPools};
    pub use crate::reconciler::ClaimReconciler;
}

/// What some providers need: several kinds of pools or their own watches, flags, verification and
/// sweep of addresses, and reports of what is wrong with them.
pub mod advanced {
    pub use crate::adapter::{
        AddressOrigin, ClaimHandler, Ensured, PoolKind, PoolView, ProviderAdapter,
    };
    pub use crate::address_use::AddressUse;
    pub use crate::claim_cache::{ClaimCache, ClaimSnapshot, CompactClaim};
    pub use crate::claim_reporter::ClaimReporter;
    pub use crate::contract::ContractClient;
    pub use crate::ip_address::new_ip_address;
    pub use crate::metrics::METRICS;
    pub use crate::options::{ClaimOptions, SweepOptions};
    pub use crate::pool_controller::{PoolControl, PoolPlan, run_pools};
    pub use crate::repair::{
        AbandonedObjects, Found, Release, ReleaseAbandoned, Repair, Repaired, run_repair,
    };
    pub use crate::reported::Reported;
    pub use crate::selection::Selection;
    pub use crate::setup::{ClaimReconcilerBuilder, ProviderSetup};
    pub use crate::status_rate::STATUS_INTERVAL;
    pub use crate::status_writer::{StatusWrite, StatusWriter};
}
