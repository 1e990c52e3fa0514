//! The objects of Cluster API that create Machines, and the Machines.

use std::collections::BTreeSet;

use capi_ipam_api::names::CLUSTER_GROUP;
use capi_ipam_provider::api::Machine;
use capi_ipam_rollout::{DEPLOYMENTS, WORKLOADS, control_plane};
use kube::api::{ApiResource, DynamicObject, ListParams};

use crate::cluster::{CLUSTERS, named};
use crate::error::Error;
use crate::load::Loader;

/// Lists the Machines of a namespace or of all. Fails if they may not be read.
pub(super) async fn machines(
    loader: &Loader<'_>,
    namespace: Option<&str>,
) -> Result<Vec<Machine>, Error> {
    let cluster = loader.cluster;
    cluster
        .list_plural(CLUSTER_GROUP, "machines", namespace)
        .await
}

/// Lists the objects that create Machines, control planes first, or only the MachineDeployments with
/// a name. Those that may not be read are left out, and the loader knows why.
pub(super) async fn workloads(
    loader: &mut Loader<'_>,
    namespace: Option<&str>,
    deployment: Option<&str>,
) -> Result<Vec<(ApiResource, DynamicObject)>, Error> {
    let kinds = loader.cluster.kinds_of(CLUSTER_GROUP).await?;
    let of_plural = |plural: &str| kinds.iter().find(|kind| kind.plural == plural).cloned();
    if let Some(name) = deployment {
        return list(loader, of_plural(DEPLOYMENTS), namespace, &named(name)).await;
    }
    let all = ListParams::default();
    let clusters = list(loader, of_plural(CLUSTERS), namespace, &all).await?;
    let names = clusters.iter();
    let names: BTreeSet<_> = names.filter_map(|(_, it)| control_plane(it)).collect();
    let mut creators = Vec::new();
    for (group, name) in names {
        let served = loader.cluster.kinds_of(group).await?;
        creators.extend(served.into_iter().find(|kind| kind.kind == name));
    }
    creators.extend(WORKLOADS.into_iter().filter_map(of_plural));
    let mut found = Vec::new();
    for kind in creators {
        found.extend(list(loader, Some(kind), namespace, &all).await?);
    }
    Ok(found)
}

/// The objects of a kind; none if they may not be read, or if the kind is not served.
async fn list(
    loader: &mut Loader<'_>,
    kind: Option<ApiResource>,
    namespace: Option<&str>,
    parameters: &ListParams,
) -> Result<Vec<(ApiResource, DynamicObject)>, Error> {
    let Some(kind) = kind else {
        return Ok(Vec::new());
    };
    let listed = loader.cluster.list_kind(&kind, namespace, parameters);
    let listed = listed.await;
    let objects: Vec<DynamicObject> = loader.readable(listed, Vec::new())?.into_seen();
    Ok(objects.into_iter().map(|it| (kind.clone(), it)).collect())
}
