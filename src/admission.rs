//! Admission and conversion of pools and reservations: pure functions of the new object, the old
//! object and the ledger, of which a [`View`] returns the current state.
//!
//! - [`pools`]: validates creations, updates and deletions of pools, with warnings about probable
//!   mistakes;
//! - [`networks`]: validates creations, updates and deletions of networks;
//! - [`registries`]: denies the deletion of registries in use;
//! - [`cluster_addressings`]: validates the addresses of Clusters;
//! - [`reservations`]: validates manually created reservations;
//! - [`conversion`]: converts pools between their versions;
//! - [`routes`]: the webhook paths.
//!
//! Nothing depends on admission for safety. Without webhooks the custom resource definitions reject
//! most mistakes, and the others are reported in the conditions of the pool.

pub mod cluster_addressings;
pub mod conversion;
pub mod networks;
pub mod pools;
pub mod registries;
pub mod reservations;
pub mod routes;

mod deletion;
mod limits;
mod scope_changes;
mod shared_blocks;
#[cfg(test)]
mod tests;
mod view;
mod warnings;

use capi_ipam_webhook::denial;
use kube::Resource;
use kube::core::Status;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use view::View;

/// Decodes the object of a request.
fn decode<K>(object: Option<&Value>) -> Result<K, Box<Status>>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let object = object.ok_or_else(|| denial::bad_request("the request has no object"))?;
    K::deserialize(object).map_err(|error| {
        let kind = K::kind(&());
        denial::bad_request(&format!("cannot decode the object as an {kind}: {error}"))
    })
}
