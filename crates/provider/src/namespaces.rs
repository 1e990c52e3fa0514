//! Claims to which an admission policy added our finalizer when they were created, and the uids of their namespaces.
//!
//! Such a claim looks like one that was restored with the finalizer. The policy therefore annotates it with the uid of
//! its namespace ([`names::FINALIZER_ADDED_IN`]), and removes the annotation from a claim that is created with the
//! finalizer. In another cluster, and in a namespace that was created again, the uid is another one.

use std::collections::HashMap;

use capi_ipam_controller::client::{CallError, ResourceClient};
use k8s_openapi::api::core::v1::Namespace;
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use tracing::debug;

use crate::api::{IPAddressClaim, names};

/// The uids of namespaces with such claims.
pub(crate) struct Namespaces {
    client: ResourceClient<PartialObjectMeta<Namespace>>,
    uids: Mutex<HashMap<String, String>>,
}

impl Namespaces {
    pub(crate) fn new(client: Client) -> Self {
        Self { client: ResourceClient::new(Api::all(client), &()), uids: Mutex::default() }
    }

    /// Returns whether the finalizer was added when the claim was created in this namespace. Reads the namespace if its
    /// uid is not known; without the permission to read it, the claim counts as restored.
    pub(crate) async fn is_new(&self, claim: &IPAddressClaim) -> Result<bool, CallError> {
        let Some(uid) = claim.annotations().get(names::FINALIZER_ADDED_IN) else { return Ok(false) };
        let namespace = claim.namespace().unwrap_or_default();
        if self.uids.lock().get(&namespace) == Some(uid) {
            return Ok(true);
        }
        let found = match self.client.get(&namespace).await {
            Ok(found) => found.and_then(|found| found.metadata.uid),
            Err(error) if error.is_forbidden() => {
                debug!(namespace, "the namespace of a claim cannot be read; the claim counts as restored");
                None
            }
            Err(error) => return Err(error),
        };
        let Some(found) = found else { return Ok(false) };
        let is_same = found == *uid;
        self.uids.lock().insert(namespace, found);
        Ok(is_same)
    }
}
