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
    let found: BTreeSet<String> = match kind {
        Values::Namespaces => {
            let parameters = ListParams::default();
            let all = loader.others::<Namespace>(None, &parameters).await?;
            all.seen().iter().map(ResourceExt::name_any).collect()
        }
        Values::Networks => {
            loader.read(&[Kind::Network], None).await?;
            let rows = loader.objects.networks.iter();
            rows.map(|row| row.name.clone()).collect()
        }
        Values::Registries => {
            loader.read(&[Kind::Registry], None).await?;
            let rows = loader.objects.registries.iter();
            rows.map(|row| row.name.clone()).collect()
        }
        Values::ManagementClusters => {
            loader.read(&[Kind::Registry], None).await?;
            let rows = loader.objects.registries.iter();
            let clusters = rows.flat_map(|row| &row.status.clusters);
            clusters.map(|cluster| cluster.id.clone()).collect()
        }
        Values::Clusters => {
            loader.read(&[Kind::Claim], namespace).await?;
            let rows = loader.objects.served().into_iter();
            let clusters = rows.filter_map(|row| row.cluster.as_deref());
            clusters.map(str::to_owned).collect()
        }
        Values::Pools => return pools(&mut loader, namespace).await,
        _ => return claims(&mut loader, namespace).await,
    };
    Ok(names(found))
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

async fn claims(loader: &mut Loader<'_>, namespace: Option<&str>) -> Result<Vec<Candidate>, Error> {
    loader.read(&[Kind::Claim], namespace).await?;
    let rows = loader.objects.served();
    let mut candidates = Vec::new();
    for row in &rows {
        let value = match namespace {
            Some(_) => row.key.name().to_owned(),
            None => row.key.to_string(),
        };
        let pool = row.pool.as_ref().ok().map(ToString::to_string);
        candidates.push(Candidate::new(&value, &pool.unwrap_or_default()));
    }
    Ok(candidates)
}
