//! The mutating webhook of Clusters: decodes the request, and encodes the changes as a patch.

use std::sync::Arc;

use capi_ipam_controller::patch::Changes;
use capi_ipam_provider::api::AddressableCluster;
use capi_ipam_webhook::denial;
use capi_ipam_webhook::review::{AdmissionRequest, Mutation, MutationDecision, Operation};
use serde::Deserialize as _;

use crate::in_cluster::{Requested, RequestedClusters};

/// Adds the addresses of a Cluster to the request that creates it.
pub(super) async fn mutate(
    clusters: Arc<RequestedClusters>,
    request: Arc<AdmissionRequest>,
) -> MutationDecision {
    let object = match &request.object {
        Some(object) if request.operation == Operation::Create => object,
        _ => return Ok(Mutation::default()),
    };
    let mut cluster = AddressableCluster::deserialize(object).map_err(|error| {
        denial::bad_request(&format!("cannot decode the object as a Cluster: {error}"))
    })?;
    cluster.metadata.namespace = Some(request.namespace.clone());
    let before = cluster.clone();
    let id = (!request.dry_run).then_some(request.uid.as_str());
    let delivered = clusters.deliver(cluster, id).await;
    let Requested { cluster, warnings } =
        delivered.map_err(|refusal| denial::forbidden(&refusal.to_string()))?;
    let changes = Changes::between(&before, &cluster)
        .map_err(|error| denial::bad_request(&format!("cannot encode the Cluster: {error}")))?;
    Ok(Mutation {
        patch: changes.main,
        warnings,
    })
}
