//! SDK for IPAM providers of Kubernetes Cluster API.
//!
//! A provider implements two traits: [`ProviderAdapter`] creates a handler for each reconcile of a claim, and this
//! [`ClaimHandler`] allocates and releases the address of the claim. [`ClaimReconciler::builder`] declares which kinds
//! of pools the provider serves and creates its adapter. [`ClaimReconciler`] does the rest, equally for every provider:
//! pausing, finalizers, the IPAddress with its owner references and labels, binding and releasing in an order that
//! survives crashes, waiting for restored IPAddresses, conditions and events.
//!
//! - [`api`]: the kinds of the Cluster API IPAM contract, in the versions `v1beta1` and `v1beta2`;
//! - [`decision`]: what to do for a claim, as a pure function of the observed state;
//! - [`controller`]: the crate `capi-ipam-controller` with manager, client, watches and patches.
//!
//! The rules come from the [IPAM provider contract] of Cluster API.
//!
//! # Dependencies
//! `capi-ipam-controller`, kube and k8s-openapi. A provider needs only this crate of the workspace. This crate knows no
//! kind of pool, has no address arithmetic, and has no webhook server or certificate code.
//!
//! # Invariants
//! - An address is released ([`ClaimHandler::release_address`]) only after the API server confirmed that its IPAddress
//!   no longer exists, and that the claim is being deleted or no longer exists. Absence from a watch, a list or a cache
//!   is never sufficient.
//! - A claim keeps its finalizer until its address is released. An IPAddress keeps its finalizer until its claim is
//!   deleted and has no finalizers of other controllers.
//! - A claim is bound by one write, after its IPAddress exists with finalizer and owner references.
//! - A paused claim, pool or Cluster, and everything that belongs to it, is not changed.
//! - Each write has the uid and the resourceVersion of the object that was read as preconditions. An IPAddress or a
//!   claim with the same name that was created later is never changed by mistake.
//! - Every step can be repeated. After a crash, reconciliation continues with the first step that is not done.
//!
//! # Example
//! A provider for an existing IPAM system. `examples/list_provider.rs` is a complete provider without one.
//!
//! ```no_run
//! use std::net::IpAddr;
//! use std::process::ExitCode;
//! use std::sync::Arc;
//!
//! use capi_ipam_provider::api::{IPAddress, IPAddressClaim};
//! use capi_ipam_provider::controller::client::ResourceClient;
//! use capi_ipam_provider::controller::manager::{self, Identity};
//! use capi_ipam_provider::{
//!     Allocation, ClaimHandler, ClaimReconciler, Ensured, HandlerError, PoolKind, PoolView, ProviderAdapter, Released,
//! };
//! use kube::{Api, Client, CustomResource, ResourceExt};
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! # mod ipam {
//! #     pub async fn reserve(_: &str, _: &str, _: Option<&str>) -> Result<std::net::IpAddr, std::io::Error> {
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
//! struct Adapter {
//!     client: Client,
//! }
//!
//! impl ProviderAdapter for Adapter {
//!     type Handler = Handler;
//!
//!     fn claim_handler(&self, claim: Arc<IPAddressClaim>) -> Handler {
//!         let namespace = claim.namespace().unwrap_or_default();
//!         let pools = ResourceClient::new(Api::namespaced(self.client.clone(), &namespace), &());
//!         Handler { pools, claim, pool: None }
//!     }
//! }
//!
//! struct Handler {
//!     pools: ResourceClient<ExternalPool>,
//!     claim: Arc<IPAddressClaim>,
//!     pool: Option<ExternalPool>,
//! }
//!
//! impl ClaimHandler for Handler {
//!     async fn fetch_pool(&mut self) -> Result<PoolView, HandlerError> {
//!         let name = &self.claim.spec.pool_ref.name;
//!         let pool = self.pools.get(name).await?;
//!         let missing = || HandlerError::PoolNotFound(format!("ExternalPool {name} does not exist; create it"));
//!         Ok(PoolView::of(self.pool.insert(pool.ok_or_else(missing)?)))
//!     }
//!
//!     async fn ensure_address(&mut self, existing: Option<&IPAddress>) -> Result<Ensured, HandlerError> {
//!         let pool = self.pool.as_ref().ok_or_else(|| HandlerError::Permanent("the pool is missing".to_owned()))?;
//!         let owner = self.claim.uid().unwrap_or_default();
//!         let wanted = existing.map(|address| address.spec.address.as_str());
//!         // Idempotent: returns the same address for the same owner.
//!         let address: IpAddr = ipam::reserve(&pool.spec.network, &owner, wanted)
//!             .await
//!             .map_err(|error| HandlerError::transient("cannot reserve an address", error))?;
//!         Ok(Allocation { address, prefix: pool.spec.prefix, gateway: None }.into())
//!     }
//!
//!     async fn release_address(&mut self) -> Result<Released, HandlerError> {
//!         let owner = self.claim.uid().unwrap_or_default();
//!         ipam::release(&owner).await.map_err(|error| HandlerError::transient("cannot release the address", error))?;
//!         Ok(Released::Now)
//!     }
//! }
//!
//! fn main() -> ExitCode {
//!     manager::main(Identity::new("external-ipam", env!("CARGO_PKG_VERSION")), async |manager| {
//!         ClaimReconciler::builder(manager)
//!             .pools(PoolKind::new("example.com", "ExternalPool"))
//!             .build(async |setup| Ok(Adapter { client: setup.manager.client.clone() }))
//!             .await
//!     })
//! }
//! ```
//!
//! [IPAM provider contract]: https://cluster-api.sigs.k8s.io/developer/providers/contracts/ipam

pub mod api;
pub mod decision;

mod adapter;
mod address_in_use;
mod backoff;
mod bind;
mod claim_cache;
mod claim_status;
mod clusters;
mod contract;
mod duplicate;
mod error;
mod index;
mod message_debounce;
mod options;
mod pending_creates;
mod reconciler;
mod release;
mod restore;
mod selection;
mod setup;
mod status_writer;

pub use adapter::{Allocation, ClaimHandler, Ensured, HandlerError, PoolKind, PoolView, ProviderAdapter, Released};
pub use capi_ipam_controller as controller;
pub use claim_cache::{ClaimCache, ClaimSnapshot, CompactClaim};
pub use contract::ContractClient;
pub use duplicate::DuplicateReporter;
pub use error::ReconcileError;
pub use index::{AddressIndex, AddressRecord};
pub use options::ClaimOptions;
pub use reconciler::ClaimReconciler;
pub use selection::Selection;
pub use setup::{ClaimReconcilerBuilder, ProviderSetup};
