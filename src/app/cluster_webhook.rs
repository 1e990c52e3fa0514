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
    // A Cluster is not refused because of what only this webhook does not understand.
    let mut cluster = match AddressableCluster::deserialize(object) {
        Ok(cluster) => cluster,
        Err(error) => {
            let text = format!("the Cluster cannot be decoded, and gets no addresses: {error}");
            return Ok(Mutation {
                warnings: vec![text],
                ..Mutation::default()
            });
        }
    };
    cluster.metadata.namespace = Some(request.namespace.clone());
    cluster.metadata.uid = None;
    let before = cluster.clone();
    let id = (!request.dry_run).then(|| request.uid.clone());
    let delivered = clusters.deliver(cluster, id.as_deref()).await;
    let Requested { cluster, warnings } =
        delivered.map_err(|refusal| denial::forbidden(&refusal.to_string()))?;
    if cluster == before {
        return Ok(Mutation {
            warnings,
            ..Mutation::default()
        });
    }
    let changes = Changes::between(&before, &cluster)
        .map_err(|error| denial::internal(&format!("cannot encode the Cluster: {error}")))?;
    Ok(Mutation {
        patch: changes.main,
        warnings,
    })
}
