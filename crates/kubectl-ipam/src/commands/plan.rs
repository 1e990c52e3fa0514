//! `plan`: whether the pools have room for a rollout.

use std::collections::BTreeSet;

use capi_ipam_api::{NamedPool, NamespaceSource};
use capi_ipam_provider::api::IPAddressClaim;
use capi_ipam_rollout::{PlanLine, Uses, plan};

use super::{claims, cluster_api};
use crate::error::Error;
use crate::load::Loader;
use crate::model::Report;
use crate::objects::{Kind, PoolRow};

/// Only a MachineDeployment of this name is planned, if there is one, with the number of replicas.
pub(super) async fn report(
    loader: &mut Loader<'_>,
    namespace: Option<&str>,
    deployment: Option<&str>,
    replicas: Option<u64>,
) -> Result<Report, Error> {
    let found = cluster_api::workloads(loader, namespace, deployment).await?;
    let workloads = found.iter();
    let workloads = workloads.filter_map(|(kind, object)| PlanLine::of(kind, object, replicas));
    let workloads: Vec<PlanLine> = workloads.collect();
    if workloads.is_empty() {
        require(loader, namespace, deployment).await?;
    }
    let machines = cluster_api::machines(loader, namespace).await?;
    let claims: Vec<IPAddressClaim> = loader.read_objects(Kind::Claim, namespace).await?;
    loader.require_known(&[Kind::Claim], || "which pools Machines use".to_owned())?;
    let uses = Uses::of(&workloads, &machines, &claims);
    read_pools(loader, &uses.pools(), namespace).await?;
    let mut ledger = loader.ledger.take().unwrap_or_default();
    let (lines, pools) = plan(workloads, &uses, &mut ledger);
    Ok(Report::RolloutPlan { lines, pools })
}

/// Fails if nothing was found because of a missing permission, or because of a name that does not
/// exist.
async fn require(
    loader: &Loader<'_>,
    namespace: Option<&str>,
    deployment: Option<&str>,
) -> Result<(), Error> {
    if !loader.missing.is_empty() {
        return Err(Error::Unknown {
            what: "which objects create Machines".to_owned(),
            missing: loader.missing.clone(),
        });
    }
    loader.require_namespace(namespace).await?;
    match deployment {
        Some(name) => Err(Error::NotFound(format!(
            "MachineDeployment {name} does not exist in {}; list them with: kubectl get machinedeployments -A",
            claims::place(namespace)
        ))),
        None => Ok(()),
    }
}

/// Lists everything that the free addresses of some pools depend on. Fails if something of
/// it may not be read.
async fn read_pools(
    loader: &mut Loader<'_>,
    named: &BTreeSet<NamedPool>,
    namespace: Option<&str>,
) -> Result<(), Error> {
    loader.read_sets(named.iter().cloned(), namespace).await?;
    let ledger = loader.ledger.get_or_insert_default();
    let keys: Vec<_> = named.iter().flat_map(|it| ledger.pools_of(it)).collect();
    let kinds: BTreeSet<Kind> = keys.iter().map(|key| Kind::Pool(key.kind)).collect();
    loader.read(&Vec::from_iter(kinds), namespace).await?;
    let rows = keys.iter().filter_map(|key| loader.objects.pool(key));
    let rows: Vec<PoolRow> = rows.cloned().collect();
    loader.read_supplies(&rows, namespace).await?;
    let selects = |row: &PoolRow| {
        let allowed = row.spec.access().allowed_namespaces;
        allowed.is_some_and(|allowed| allowed.from == NamespaceSource::Selector)
    };
    if let Some(row) = rows.iter().find(|row| selects(row)) {
        let kind = Kind::Pool(row.key.kind);
        loader.list_namespaces(kind).await?;
    }
    loader.require_known(&Kind::ALL, || "the number of free addresses".to_owned())
}
