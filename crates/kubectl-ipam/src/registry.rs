//! Registries of blocks: opens them as the manager does, with the Secret in its namespace, and reads
//! their records.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use capi_ipam_api::{IPRegistrySpec, installed};
use capi_ipam_controller::client::error_chain;
use capi_ipam_registry::{IDENTITY_NAMESPACE, RecordCache, Registry, SecretRef, list, secret_of};
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use tokio::time::timeout;

use crate::cli::RegistryAccess;
use crate::cluster::{self, Cluster, lease_selector, provider_selector};
use crate::error::Error;
use crate::load::Loader;
use crate::model::{LeaseRow, RegistryFacts, Unread};
use crate::objects::{Kind, RegistryRow};

/// How long it may take to open a registry, and to list its records: less than a request to the API
/// server may take by default, since the cluster is well although a registry hangs.
const TIMEOUT: Duration = Duration::from_secs(8);

/// The name of the client, as the servers of a registry see it.
const USER_AGENT: &str = concat!("kubectl-ipam/", env!("CARGO_PKG_VERSION"));

/// Reads the records of a registry, if it can be opened.
pub(crate) async fn facts(
    loader: &mut Loader<'_>,
    row: &RegistryRow,
    access: &RegistryAccess,
) -> Result<RegistryFacts, Error> {
    Ok(RegistryFacts {
        row: row.clone(),
        cluster: identity(loader.cluster, row).await?,
        records: unless_unread(records(loader, row, access).await)?,
    })
}

/// Reads the records of a registry.
pub(crate) async fn records(
    loader: &mut Loader<'_>,
    row: &RegistryRow,
    access: &RegistryAccess,
) -> Result<Arc<RecordCache>, Error> {
    let registry = open(loader, row, access).await?;
    let listed = list(&registry, TIMEOUT).await;
    listed.map_err(|error| unreadable(row, error_chain(&error)))
}

/// Opens a registry.
pub(crate) async fn open(
    loader: &mut Loader<'_>,
    row: &RegistryRow,
    access: &RegistryAccess,
) -> Result<Registry, Error> {
    let spec = spec(row, access);
    let secret = match (&access.hub_kubeconfig, secret_of(&spec)) {
        (Some(path), _) if spec.kubernetes.is_some() => Some(secret_of_file(path)?),
        (_, Some(named)) => Some(secret(loader, row, &named).await?),
        (_, None) => None,
    };
    let opened = capi_ipam_registry::open(&spec, secret.as_ref(), USER_AGENT);
    match timeout(TIMEOUT, opened).await {
        Ok(opened) => opened.map_err(|error| unreadable(row, error_chain(&error))),
        Err(_) => Err(unreadable(row, format!("no answer within {TIMEOUT:?}"))),
    }
}

/// The records of a registry cannot be read.
fn unreadable(row: &RegistryRow, reason: String) -> Error {
    Error::Registry {
        operation: "read".to_owned(),
        registry: row.name.clone(),
        reason,
    }
}

/// What was read of a registry, or why it cannot be read. Another failure is an error.
pub(crate) fn unless_unread<T>(read: Result<T, Error>) -> Result<Result<T, Unread>, Error> {
    match read {
        Ok(read) => Ok(Ok(read)),
        Err(Error::Forbidden(right)) => Ok(Err(right.into())),
        Err(Error::Registry { reason, .. }) => Ok(Err(Unread::new(reason))),
        Err(error) => Err(error),
    }
}

/// The specification with the servers of the command line.
fn spec(row: &RegistryRow, access: &RegistryAccess) -> IPRegistrySpec {
    let mut spec = row.spec.clone();
    if let Some(nats) = &mut spec.nats
        && !access.nats_server.is_empty()
    {
        nats.servers.clone_from(&access.nats_server);
    }
    spec
}

/// A Secret with a kubeconfig, as that of a registry at another API server.
fn secret_of_file(path: &Path) -> Result<Secret, Error> {
    let content = std::fs::read(path).map_err(|error| Error::File {
        path: path.display().to_string(),
        reason: error.to_string(),
    })?;
    Ok(Secret {
        data: Some([("kubeconfig".to_owned(), ByteString(content))].into()),
        ..Secret::default()
    })
}

/// Reads the Secret of a registry.
async fn secret(
    loader: &mut Loader<'_>,
    row: &RegistryRow,
    named: &SecretRef<'_>,
) -> Result<Secret, Error> {
    let namespace = manager_namespace(loader.cluster).await?;
    let parameters = cluster::named(named.name);
    let found = loader
        .others::<Secret>(Some(&namespace), &parameters)
        .await?;
    if let Some(right) = found.missing.first() {
        return Err(Error::Forbidden(right.clone()));
    }
    let secret = found.into_seen().into_iter().next();
    secret.ok_or_else(|| unreadable(row, named.missing_in(&namespace).to_string()))
}

/// The namespace of the manager: that of its lease, which was renewed last, or else that of its
/// Deployment, or that of the manifests.
async fn manager_namespace(cluster: &Cluster) -> Result<String, Error> {
    let leases = cluster.list_if_allowed::<Lease>(&lease_selector()).await?;
    let leases = leases.into_iter().map(LeaseRow::from);
    if let Some(lease) = leases.max_by_key(|lease| lease.renewed) {
        return Ok(lease.namespace);
    }
    let selector = provider_selector();
    let found = cluster.list_if_allowed::<Deployment>(&selector).await?;
    let mut namespaces = found.into_iter().filter_map(|it| it.metadata.namespace);
    let namespace = namespaces.next();
    Ok(namespace.unwrap_or_else(|| installed::NAMESPACE.to_owned()))
}

/// The identity of this management cluster; `None` if it is unknown.
pub(crate) async fn identity(
    cluster: &Cluster,
    row: &RegistryRow,
) -> Result<Option<String>, Error> {
    match row.cluster_id() {
        Some(id) => Ok(Some(id.clone())),
        None => namespace_uid(cluster).await,
    }
}

/// As [`identity`]. Fails if it is unknown.
pub(crate) async fn known_identity(cluster: &Cluster, row: &RegistryRow) -> Result<String, Error> {
    let id = identity(cluster, row).await?;
    id.ok_or_else(|| Error::NoIdentity {
        registry: row.name.clone(),
    })
}

/// The UID of the namespace that identifies this cluster; `None` if it cannot be read.
pub(crate) async fn namespace_uid(cluster: &Cluster) -> Result<Option<String>, Error> {
    let name = cluster::named(IDENTITY_NAMESPACE);
    let found = cluster.list_if_allowed::<Namespace>(&name).await?;
    let namespace = found.into_iter().next();
    Ok(namespace.and_then(|namespace| namespace.metadata.uid))
}

/// The registry of this name. Without a name, it has to be the only one.
pub(crate) async fn find(
    loader: &mut Loader<'_>,
    name: Option<&str>,
) -> Result<RegistryRow, Error> {
    let which = || "which registries exist".to_owned();
    loader.require(&[Kind::Registry], None, which).await?;
    if let Some(name) = name {
        let found = loader.objects.registry(name).cloned();
        return found.ok_or_else(|| Error::NoRegistry {
            name: name.to_owned(),
        });
    }
    let rows = loader.objects.registries.sorted();
    match rows.as_slice() {
        [one] => Ok((*one).clone()),
        [] => Err(Error::Argument(
            "the cluster has no IPRegistry; create one first".to_owned(),
        )),
        several => {
            let names: Vec<&str> = several.iter().map(|row| row.name.as_str()).collect();
            Err(Error::Argument(format!(
                "several registries exist: write --registry {}",
                names.join(" or --registry ")
            )))
        }
    }
}
