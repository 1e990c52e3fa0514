//! Reads everything that the checks of `doctor` and `status` need.

mod certificate;
mod provider;
mod webhooks;

use capi_ipam_api::names;
use capi_ipam_controller::clock;

use crate::cli::RegistryAccess;
use crate::cluster::{CLUSTERS, Cluster, Kind};
use crate::error::Error;
use crate::load::{Loader, Readable};
use crate::model::{DefinitionRow, RegistryFacts, Snapshot};
use crate::registry;

/// Reads a snapshot, and returns it with the loader that knows the missing permissions.
pub(super) async fn read(cluster: &Cluster) -> Result<(Snapshot, Loader<'_>), Error> {
    let mut loader = Loader::new(cluster);
    loader.tolerates_missing_kinds = true;
    let pools = loader.pools(None).await?;
    let networks = loader.networks().await?;
    let addresses = loader.addresses(|_| true).await?;
    let reservations = loader.reservations(|_| true).await?;
    let claims = loader.all_claims(None, |_| true).await?;
    let slices = loader.slices(|_| true).await?;
    let registries = registries(&mut loader).await?;
    let unreadable = std::mem::take(&mut loader.warnings);
    let deployments = provider::deployments(&mut loader).await?;
    let events = provider::events(&mut loader).await?;
    let webhooks = webhooks::webhooks(&mut loader).await?;
    let deleted_namespaces = provider::deleted_namespaces(cluster).await?;
    let definitions = definitions(cluster).await?;
    // Last: a lease expires within seconds, and a webhook that does not answer takes longer.
    let leases = provider::leases(&mut loader).await?;
    let snapshot = Snapshot {
        now: clock::timestamp(),
        is_go_provider: cluster.is_go_provider(),
        definitions,
        deployments,
        leases,
        webhooks,
        events,
        pools,
        networks,
        addresses,
        reservations,
        claims,
        slices,
        registries,
        deleted_namespaces,
        unreadable,
    };
    Ok((snapshot, loader))
}

/// The registries with their records, as far as they can be read.
async fn registries(loader: &mut Loader<'_>) -> Result<Readable<Vec<RegistryFacts>>, Error> {
    let rows = registry::rows(loader).await?;
    let mut all = Vec::new();
    for row in rows.seen() {
        all.push(registry::facts(loader, row, &RegistryAccess::default()).await?);
    }
    Ok(rows.map(|_| all))
}

/// The kinds that the provider needs, as far as the API server serves them.
async fn definitions(cluster: &Cluster) -> Result<Vec<DefinitionRow>, Error> {
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
