//! What the kubeconfig and the cluster of a command line have.

use std::collections::BTreeSet;

use clap::{CommandFactory, FromArgMatches};
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt;
use kube::api::ListParams;

use super::Candidate;
use super::question::Values;
use crate::cli::{Cli, Global};
use crate::cluster::{Cluster, KubeconfigNames};
use crate::error::Error;
use crate::input::short;
use crate::load::Loader;
use crate::objects::Kind;

/// The candidates for the last word; the others have the flags of the connection.
pub(super) async fn values(kind: Values, words: &[String]) -> Result<Vec<Candidate>, Error> {
    let global = global(words)?;
    match kind {
        Values::Contexts => return Ok(names(KubeconfigNames::read(&global)?.contexts)),
        Values::ClustersOfKubeconfig => return Ok(names(KubeconfigNames::read(&global)?.clusters)),
        Values::Users => return Ok(names(KubeconfigNames::read(&global)?.users)),
        _ => {}
    }
    let cluster = Cluster::connect(&global).await?;
    let namespace = global.listed_namespace(&cluster.namespace);
    let mut loader = Loader::new(&cluster);
    match kind {
        Values::Namespaces => namespaces(&mut loader).await,
        Values::Pools => pools(&mut loader, namespace).await,
        Values::Networks => networks(&mut loader).await,
        Values::Registries => registries(&mut loader).await,
        Values::ManagementClusters => management_clusters(&mut loader).await,
        Values::Clusters => clusters(&mut loader, namespace).await,
        _ => claims(&mut loader, namespace).await,
    }
}

/// The flags of the words before the last one. A line that is being typed is not complete.
fn global(words: &[String]) -> Result<Global, Error> {
    let before = words.split_last().map_or(&[][..], |(_, before)| before);
    let program = "kubectl-ipam".to_owned();
    let line = std::iter::once(&program).chain(before);
    let invalid = |error: clap::Error| Error::Argument(error.to_string());
    let matches = Cli::command()
        .ignore_errors(true)
        .try_get_matches_from(line)
        .map_err(invalid)?;
    Global::from_arg_matches(&matches).map_err(invalid)
}

fn names(names: impl IntoIterator<Item = String>) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    for name in names {
        candidates.push(Candidate::new(&name, ""));
    }
    candidates
}

async fn namespaces(loader: &mut Loader<'_>) -> Result<Vec<Candidate>, Error> {
    let all = loader
        .others::<Namespace>(None, &ListParams::default())
        .await?;
    Ok(names(all.seen().iter().map(ResourceExt::name_any)))
}

/// The pools of a namespace and the global pools. Two of one name are completed with their kinds,
/// and those of all namespaces with their namespaces.
async fn pools(loader: &mut Loader<'_>, namespace: Option<&str>) -> Result<Vec<Candidate>, Error> {
    loader.read(&Kind::POOLS, namespace).await?;
    let rows = loader.objects.pools();
    let (mut seen, mut ambiguous) = (BTreeSet::new(), BTreeSet::new());
    for row in &rows {
        if !seen.insert(&row.key.name) {
            ambiguous.insert(&row.key.name);
        }
    }
    let mut candidates = Vec::new();
    for row in &rows {
        let key = &row.key;
        let value = match &key.namespace {
            Some(of_pool) if namespace.is_none() => format!("{of_pool}/{}", key.name),
            _ if ambiguous.contains(&key.name) => format!("{}/{}", short(key.kind), key.name),
            _ => key.name.to_string(),
        };
        candidates.push(Candidate::new(&value, key.kind.name()));
    }
    Ok(candidates)
}

async fn networks(loader: &mut Loader<'_>) -> Result<Vec<Candidate>, Error> {
    loader.read(&[Kind::Network], None).await?;
    let rows = loader.objects.networks.sorted();
    Ok(names(rows.into_iter().map(|row| row.name.clone())))
}

async fn registries(loader: &mut Loader<'_>) -> Result<Vec<Candidate>, Error> {
    loader.read(&[Kind::Registry], None).await?;
    let rows = loader.objects.registries.sorted();
    Ok(names(rows.into_iter().map(|row| row.name.clone())))
}

/// The management clusters of all registries, as their status has them.
async fn management_clusters(loader: &mut Loader<'_>) -> Result<Vec<Candidate>, Error> {
    loader.read(&[Kind::Registry], None).await?;
    let rows = loader.objects.registries.sorted();
    let mut found = BTreeSet::new();
    for row in &rows {
        let clusters = row.status.clusters.iter();
        found.extend(clusters.map(|cluster| cluster.id.clone()));
    }
    Ok(names(found))
}

async fn claims(loader: &mut Loader<'_>, namespace: Option<&str>) -> Result<Vec<Candidate>, Error> {
    loader.read(&[Kind::Claim], namespace).await?;
    let rows = loader.objects.served();
    let mut candidates = Vec::new();
    for row in &rows {
        let value = match namespace {
            Some(_) => row.key.name().to_owned(),
            None => row.key.to_string(),
        };
        candidates.push(Candidate::new(&value, &row.pool.to_string()));
    }
    Ok(candidates)
}

/// The Clusters that have claims.
async fn clusters(
    loader: &mut Loader<'_>,
    namespace: Option<&str>,
) -> Result<Vec<Candidate>, Error> {
    loader.read(&[Kind::Claim], namespace).await?;
    let rows = loader.objects.served();
    let mut found = BTreeSet::new();
    for row in &rows {
        found.extend(row.cluster.as_deref());
    }
    Ok(names(found.into_iter().map(str::to_owned)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_line_has_the_flags_of_the_connection() {
        let words = ["reserve", "--namespace", "lab", "--context=a", "--for", ""];
        let words = words.map(str::to_owned);
        let global = global(&words).unwrap();
        assert_eq!(global.namespace.as_deref(), Some("lab"));
        assert_eq!(global.context.as_deref(), Some("a"));
    }
}
