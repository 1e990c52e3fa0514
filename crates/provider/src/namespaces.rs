//! Claims to which an admission policy added our finalizer when they were created, and the creation times of their
//! namespaces.
//!
//! Such a claim looks like one that was restored with the finalizer. The policy therefore annotates it with the creation
//! time of its namespace ([`names::FINALIZER_ADDED_IN`]), and removes the annotation from a claim that is created with
//! the finalizer. In another cluster, and in a namespace that was created again, the time is another one. The uid would
//! be unique, but policies cannot read it.

use std::collections::HashMap;

use capi_ipam_controller::client::{CallError, ResourceClient};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use tracing::debug;

use crate::api::{IPAddressClaim, names};

/// The creation times of namespaces with such claims.
pub(crate) struct Namespaces {
    client: ResourceClient<PartialObjectMeta<Namespace>>,
    created: Mutex<HashMap<String, Timestamp>>,
}

impl Namespaces {
    pub(crate) fn new(client: Client) -> Self {
        Self { client: ResourceClient::new(Api::all(client), &()), created: Mutex::default() }
    }

    /// Returns whether the finalizer was added when the claim was created in this namespace. Reads the namespace if its
    /// creation time is not known; without the permission to read it, the claim counts as restored.
    pub(crate) async fn is_new(&self, claim: &IPAddressClaim) -> Result<bool, CallError> {
        let text = claim.annotations().get(names::FINALIZER_ADDED_IN);
        let Some(added) = text.and_then(|text| text.parse::<Timestamp>().ok()) else { return Ok(false) };
        let namespace = claim.namespace().unwrap_or_default();
        if self.created.lock().get(&namespace) == Some(&added) {
            return Ok(true);
        }
        let found = match self.client.get(&namespace).await {
            Ok(found) => found.and_then(|found| Some(found.metadata.creation_timestamp?.0)),
            Err(error) if error.is_forbidden() => {
                debug!(namespace, "the namespace of a claim cannot be read; the claim counts as restored");
                None
            }
            Err(error) => return Err(error),
        };
        let Some(found) = found else { return Ok(false) };
        self.created.lock().insert(namespace, found);
        Ok(found == added)
    }
}
