//! `plan`: whether the pools have room for a rollout.

use std::collections::BTreeSet;

use capi_ipam_api::{NamespaceSource, PoolKey};
use capi_ipam_provider::api::IPAddressClaim;
use kube::ResourceExt;

use super::{claims, cluster_api};
use crate::cli::Global;
use crate::cluster::Cluster;
use crate::error::{Code, Error};
use crate::load::Loader;
use crate::model::{Report, Workload, plan};
use crate::objects::{Kind, PoolRow};
use crate::output;

/// Only a MachineDeployment of this name is planned, if there is one, with the number of replicas.
pub(super) async fn run(
    global: &Global,
    deployment: Option<&str>,
    replicas: Option<u64>,
) -> Result<Code, Error> {
    let cluster = Cluster::connect(global).await?;
    let mut loader = Loader::new(&cluster);
    let namespace = global.listed_namespace(&cluster.namespace);
    let mut workloads = Vec::new();
    for (kind, object) in cluster_api::workloads(&mut loader, namespace).await? {
        let is_wanted = deployment
            .is_none_or(|name| kind.plural == "machinedeployments" && object.name_any() == name);
        if let Some(mut workload) = Workload::of(&kind, &object).filter(|_| is_wanted) {
            if let Some(replicas) = replicas {
                workload.set_replicas(&object, replicas);
            }
            workloads.push(workload);
        }
    }
    if workloads.is_empty() {
        require(&loader, namespace, deployment).await?;
    }
    let machines = cluster_api::machines(&loader, namespace).await?;
    let claims: Vec<IPAddressClaim> = loader.read_objects(Kind::Claim, namespace).await?;
    loader.require_known(&[Kind::Claim], || "which pools Machines use".to_owned())?;
    read_pools(&mut loader, &claims, namespace).await?;
    let mut ledger = loader.ledger.take().unwrap_or_default();
    let (lines, pools) = plan(&workloads, &machines, &claims, &mut ledger);
    let is_short = pools.iter().any(|pool| pool.short > 0);
    let report = Report::RolloutPlan { lines, pools };
    let code = output::finish(&loader, &report, global.output, output::style(global))?;
    Ok(if is_short { Code::Findings } else { code })
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
    if let Some(namespace) = namespace {
        loader.require_namespace(namespace).await?;
    }
    match deployment {
        Some(name) => Err(Error::NoMachineDeployment {
            name: name.to_owned(),
            place: claims::place(namespace),
        }),
        None => Ok(()),
    }
}

/// Lists everything that the free addresses of the pools of claims depend on. Fails if something of
/// it may not be read.
async fn read_pools(
    loader: &mut Loader<'_>,
    claims: &[IPAddressClaim],
    namespace: Option<&str>,
) -> Result<(), Error> {
    let keys: BTreeSet<PoolKey> = claims.iter().filter_map(PoolKey::of_claim).collect();
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
