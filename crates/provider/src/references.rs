//! References: an object keeps others that it uses from deletion, by finalizers on them.
//!
//! ```no_run
//! use capi_ipam_provider::controller::client::ResourceClient;
//! use capi_ipam_provider::references::{self, ReferenceError};
//! use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
//!
//! /// Keeps the ConfigMap that a volume names, and no other one.
//! async fn keep(maps: &ResourceClient<ConfigMap>, user: &PersistentVolumeClaim, name: &str) -> Result<(), ReferenceError> {
//!     let reference = references::name_of(user, &());
//!     references::set(maps, &[name], &reference).await
//! }
//!
//! /// Called before the finalizer of the volume is removed.
//! async fn release(maps: &ResourceClient<ConfigMap>, user: &PersistentVolumeClaim) -> Result<(), ReferenceError> {
//!     references::clear(maps, &references::name_of(user, &())).await
//! }
//! ```
//!
//! A user adds a reference before it uses an object, and needs a finalizer itself
//! ([`Finalized`](crate::controller::controller::Finalized)), so that it can remove its references
//! before it is gone.

pub use crate::api::references::{PREFIX, describe, name_of, of};
pub use crate::controller::references::{ReferenceError, add, clear, remove, set};
