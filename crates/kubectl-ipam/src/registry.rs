//! Registries of blocks: opens them as the manager does, with the Secret in its namespace, and reads
//! their records.

use std::path::Path;
use std::time::Duration;

use capi_ipam_api::{IPRegistrySpec, installed};
use capi_ipam_controller::client::error_chain;
use capi_ipam_registry::{IDENTITY_NAMESPACE, Registry, SecretRef, list, secret_of};
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::ListParams;
use tokio::time::timeout;

use crate::cli::RegistryAccess;
use crate::cluster::{Cluster, OtherKind, lease_selector, provider_selector};
use crate::error::Error;
use crate::load::Loader;
use crate::model::{RegistryFacts, Unread};
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
    let cluster = identity(loader.cluster, row).await?;
    let records = match open(loader, row, access).await? {
        Ok(registry) => {
            let listed = list(&registry, TIMEOUT).await;
            listed.map_err(|error| Unread::new(error_chain(&error)))
        }
        Err(unread) => Err(unread),
    };
    Ok(RegistryFacts {
        row: row.clone(),
        cluster,
        records,
    })
}

/// Opens a registry. The inner error is the reason why it cannot be opened.
pub(crate) async fn open(
    loader: &mut Loader<'_>,
    row: &RegistryRow,
    access: &RegistryAccess,
) -> Result<Result<Registry, Unread>, Error> {
    let spec = spec(row, access);
    let secret = match &access.hub_kubeconfig {
        Some(path) if spec.kubernetes.is_some() => Some(secret_of_file(path)?),
        _ => match secret_of(&spec) {
            Some(named) => match secret(loader, &named).await? {
                Ok(secret) => Some(secret),
                Err(unread) => return Ok(Err(unread)),
            },
            None => None,
        },
    };
    let opened = capi_ipam_registry::open(&spec, secret.as_ref(), USER_AGENT);
    Ok(match timeout(TIMEOUT, opened).await {
        Ok(Ok(registry)) => Ok(registry),
        Ok(Err(error)) => Err(Unread::new(error_chain(&error))),
        Err(_) => Err(Unread::new(format!("no answer within {TIMEOUT:?}"))),
    })
}

/// The error of a command that needs the records of a registry.
pub(crate) fn unread_error(registry: &str, unread: Unread) -> Error {
    match unread.missing {
        Some(right) => Error::Forbidden(right),
        None => Error::Registry {
            operation: "read".to_owned(),
            registry: registry.to_owned(),
            reason: unread.reason,
        },
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
    named: &SecretRef<'_>,
) -> Result<Result<Secret, Unread>, Error> {
    let namespace = manager_namespace(loader.cluster).await?;
    let parameters = ListParams::default().fields(&format!("metadata.name={}", named.name));
    let found = loader
        .others::<Secret>(Some(&namespace), &parameters)
        .await?;
    if let Some(right) = found.missing.first() {
        return Ok(Err(right.clone().into()));
    }
    let secret = found.into_seen().into_iter().next();
    Ok(secret.ok_or_else(|| Unread::new(named.missing_in(&namespace).to_string())))
}

/// The namespace of the manager: that of its lease, which was renewed last, or else that of its
/// Deployment, or that of the manifests.
async fn manager_namespace(cluster: &Cluster) -> Result<String, Error> {
    let leases = allowed::<Lease>(cluster, &lease_selector()).await?;
    let lease = leases.into_iter().max_by_key(renewed);
    if let Some(namespace) = lease.and_then(|lease| lease.metadata.namespace) {
        return Ok(namespace);
    }
    let selector = provider_selector();
    let found = allowed::<Deployment>(cluster, &selector).await?;
    let mut namespaces = found.into_iter().filter_map(|it| it.metadata.namespace);
    Ok(namespaces
        .next()
        .unwrap_or_else(|| installed::NAMESPACE.to_owned()))
}

/// When a lease was last renewed.
fn renewed(lease: &Lease) -> Option<jiff::Timestamp> {
    let spec = lease.spec.as_ref()?;
    spec.renew_time.as_ref().map(|time| time.0)
}

/// The selected objects of all namespaces; none without the permission: another guess is left.
async fn allowed<T: OtherKind>(
    cluster: &Cluster,
    parameters: &ListParams,
) -> Result<Vec<T>, Error> {
    match cluster.list_other(None, parameters).await {
        Ok(found) => Ok(found),
        Err(Error::Forbidden(_)) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The identity of this management cluster; `None` if it is unknown.
pub(crate) async fn identity(
    cluster: &Cluster,
    row: &RegistryRow,
) -> Result<Option<String>, Error> {
    let known = row.spec.cluster_id.as_ref();
    if let Some(id) = known.or(row.status.cluster_id.as_ref()) {
        return Ok(Some(id.clone()));
    }
    namespace_uid(cluster).await
}

/// The UID of the namespace that identifies this cluster; `None` if it cannot be read.
pub(crate) async fn namespace_uid(cluster: &Cluster) -> Result<Option<String>, Error> {
    let name = ListParams::default().fields(&format!("metadata.name={IDENTITY_NAMESPACE}"));
    let found = allowed::<Namespace>(cluster, &name).await?;
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
