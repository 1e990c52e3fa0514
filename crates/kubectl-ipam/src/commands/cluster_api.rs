//! The objects of Cluster API that create Machines, and the Machines.

use capi_ipam_api::names::CLUSTER_GROUP;
use capi_ipam_provider::api::Machine;
use kube::api::{ApiResource, DynamicObject, ListParams};
use serde::de::DeserializeOwned;

use crate::cluster::CLUSTERS;
use crate::error::Error;
use crate::load::Loader;

/// The kinds of Cluster API that create Machines, apart from control planes.
const WORKLOADS: [&str; 3] = ["machinedeployments", "machinesets", "machinepools"];
/// The plural of the kind Machine.
const MACHINES: &str = "machines";

/// Lists the Machines of a namespace or of all. Fails if they may not be read.
pub(super) async fn machines(
    loader: &Loader<'_>,
    namespace: Option<&str>,
) -> Result<Vec<Machine>, Error> {
    let kinds = loader.cluster.kinds_of(CLUSTER_GROUP).await?;
    let Some(kind) = kinds.iter().find(|kind| kind.plural == MACHINES) else {
        return Err(Error::NotInstalled {
            plural: MACHINES.to_owned(),
            group: CLUSTER_GROUP.to_owned(),
        });
    };
    let parameters = ListParams::default();
    loader.cluster.list_kind(kind, namespace, &parameters).await
}

/// Lists the objects that create Machines, control planes first. Those that may not be read are left
/// out, and the loader knows why.
pub(super) async fn workloads(
    loader: &mut Loader<'_>,
    namespace: Option<&str>,
) -> Result<Vec<(ApiResource, DynamicObject)>, Error> {
    let kinds = loader.cluster.kinds_of(CLUSTER_GROUP).await?;
    let mut found = Vec::new();
    if let Some(kind) = kinds.iter().find(|kind| kind.plural == CLUSTERS) {
        for kind in control_planes(loader, kind, namespace).await? {
            list(loader, &kind, namespace, &mut found).await?;
        }
    }
    for plural in WORKLOADS {
        if let Some(kind) = kinds.iter().find(|kind| kind.plural == plural) {
            list(loader, kind, namespace, &mut found).await?;
        }
    }
    Ok(found)
}

/// The kinds of the control planes that the Clusters name.
async fn control_planes(
    loader: &mut Loader<'_>,
    clusters: &ApiResource,
    namespace: Option<&str>,
) -> Result<Vec<ApiResource>, Error> {
    let clusters: Vec<DynamicObject> = readable(loader, clusters, namespace).await?;
    let mut names: Vec<(String, String)> = Vec::new();
    for cluster in &clusters {
        let text = |path: &str| {
            let value = cluster.data.pointer("/spec/controlPlaneRef")?.get(path)?;
            value.as_str()
        };
        // A reference of v1beta1 has the version, too.
        let group = text("apiGroup").or_else(|| Some(text("apiVersion")?.split_once('/')?.0));
        if let (Some(group), Some(kind)) = (group, text("kind")) {
            names.push((group.to_owned(), kind.to_owned()));
        }
    }
    names.sort();
    names.dedup();
    let mut kinds = Vec::new();
    for (group, name) in names {
        let served = loader.cluster.kinds_of(&group).await?;
        kinds.extend(served.into_iter().find(|kind| kind.kind == name));
    }
    Ok(kinds)
}

async fn list(
    loader: &mut Loader<'_>,
    kind: &ApiResource,
    namespace: Option<&str>,
    found: &mut Vec<(ApiResource, DynamicObject)>,
) -> Result<(), Error> {
    for object in readable(loader, kind, namespace).await? {
        found.push((kind.clone(), object));
    }
    Ok(())
}

/// The objects of a kind; none if they may not be read.
async fn readable<T: DeserializeOwned>(
    loader: &mut Loader<'_>,
    kind: &ApiResource,
    namespace: Option<&str>,
) -> Result<Vec<T>, Error> {
    let parameters = ListParams::default();
    let listed = loader.cluster.list_kind(kind, namespace, &parameters).await;
    Ok(loader.readable(listed, Vec::new())?.into_seen())
}
