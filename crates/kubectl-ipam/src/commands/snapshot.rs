//! Reads everything that the checks of `doctor` and `status` need.

mod certificate;
mod definitions;
mod provider;
mod webhooks;

use capi_ipam_api::{ClusterAddressing, names};
use capi_ipam_controller::clock;
use futures::future::try_join_all;
use futures::try_join;
use kube::Resource;
use kube::api::ListParams;

use crate::cli::RegistryAccess;
use crate::cluster::{CLUSTERS, Cluster};
use crate::error::Error;
use crate::load::{Loader, Readable};
use crate::model::doctor::snapshot::DefinitionRow;
use crate::model::{RegistryFacts, Snapshot, is_held};
use crate::objects::{Kind, RegistryRow};
use crate::registry;

/// Reads a snapshot, and returns it with the loader that knows the missing permissions. Lists are
/// read at the same time: each of them has many pages in a large cluster.
pub(super) async fn read(cluster: &Cluster) -> Result<(Snapshot, Loader<'_>), Error> {
    let kinds = Kind::ALL.map(|kind| alone(cluster, async move |it| it.read(&[kind], None).await));
    let mut loader = Loader::new(cluster);
    for read in try_join_all(kinds).await? {
        loader.absorb(read);
    }
    let unreadable = std::mem::take(&mut loader.warnings);
    let registries = registries(&mut loader).await?;
    let (served, deployments, events, webhooks, clusters, deleted_namespaces, definitions) = try_join!(
        alone(cluster, definitions::served),
        alone(cluster, provider::deployments),
        alone(cluster, provider::events),
        alone(cluster, webhooks::webhooks),
        alone(cluster, addressings),
        provider::deleted_namespaces(cluster),
        needed(cluster),
    )?;
    let served = loader.absorb(served);
    let deployments = loader.absorb(deployments);
    let events = loader.absorb(events);
    let webhooks = loader.absorb(webhooks);
    let (addressings, untrusted_mutations) = loader.absorb(clusters);
    // Last: a lease expires within seconds, and a webhook that does not answer takes longer.
    let leases = provider::leases(&mut loader).await?;
    let now = clock::timestamp();
    let is_held = leases.seen().iter().any(|lease| is_held(lease, now));
    let running = if is_held {
        Vec::new()
    } else {
        provider::running_pods(cluster).await?
    };
    let snapshot = Snapshot {
        now,
        is_go_provider: cluster.is_go_provider(),
        definitions,
        deployments,
        leases,
        running,
        served,
        webhooks,
        events,
        objects: std::mem::take(&mut loader.objects),
        registries,
        addressings,
        untrusted_mutations,
        deleted_namespaces,
        unreadable,
    };
    Ok((snapshot, loader))
}

/// The result of `read`, and the loader that it read with.
async fn alone<'a, T>(
    cluster: &'a Cluster,
    read: impl AsyncFnOnce(&mut Loader<'a>) -> Result<T, Error>,
) -> Result<(T, Loader<'a>), Error> {
    let mut loader = Loader::new(cluster);
    loader.tolerates_missing_kinds = true;
    let value = read(&mut loader).await?;
    Ok((value, loader))
}

/// The ClusterAddressings, and the configurations of their webhook without an authority. None if the
/// kind is not served.
async fn addressings(
    loader: &mut Loader<'_>,
) -> Result<(Readable<Vec<ClusterAddressing>>, Readable<Vec<String>>), Error> {
    if !loader.cluster.serves(&ClusterAddressing::plural(&())) {
        return Ok((
            Readable::complete(Vec::new()),
            Readable::complete(Vec::new()),
        ));
    }
    let found = loader.others(None, &ListParams::default()).await?;
    Ok((found, webhooks::untrusted_mutations(loader).await?))
}

/// The registries with their records, as far as they can be read.
async fn registries(loader: &mut Loader<'_>) -> Result<Readable<Vec<RegistryFacts>>, Error> {
    let rows = loader.objects.registries.sorted();
    let rows: Vec<RegistryRow> = rows.into_iter().cloned().collect();
    let mut all = Vec::new();
    for row in &rows {
        all.push(registry::facts(loader, row, &RegistryAccess::default()).await?);
    }
    let missing = loader.objects.lacking(&[Kind::Registry]);
    Ok(Readable::part(all, missing))
}

/// The kinds that the provider needs, as far as the API server serves them.
async fn needed(cluster: &Cluster) -> Result<Vec<DefinitionRow>, Error> {
    let row = |kind: Kind| {
        let version = cluster.version(kind);
        if matches!(version, Ok(None)) {
            return None;
        }
        Some(DefinitionRow {
            group: names::GROUP,
            plural: kind.plural(),
            is_of_contract: kind.is_of_contract(),
            versions: cluster.served_versions(kind).to_vec(),
            is_supported: version.is_ok(),
        })
    };
    let mut rows: Vec<DefinitionRow> = Kind::ALL.into_iter().filter_map(row).collect();
    // A manager serves no claim until it knows which Clusters are paused.
    let versions = cluster.versions_of_clusters().await?;
    let is_supported = versions
        .iter()
        .any(|version| Kind::Claim.versions().contains(&version.as_str()));
    rows.push(DefinitionRow {
        group: names::CLUSTER_GROUP,
        plural: CLUSTERS,
        is_of_contract: true,
        versions,
        is_supported,
    });
    Ok(rows)
}
