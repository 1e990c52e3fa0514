//! API discovery: the kinds that the API server serves, and their versions.

use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResource;
use kube::Client;
use kube::core::ApiResource;
use tracing::{info, warn};

use crate::client::{CallError, NOT_SERVED, error_chain, with_timeout};
use crate::health::{Health, ReadinessGate};
use crate::log_limit::RepetitionLimit;

/// Time between two discovery requests for a missing kind.
const RETRY_INTERVAL: Duration = Duration::from_secs(3);

/// The first of `versions` in which the API server serves the resource `plural`; `None` if it
/// serves none of them.
pub(crate) async fn served_version<'a>(
    client: &Client,
    group: &str,
    plural: &str,
    versions: &[&'a str],
) -> Result<Option<&'a str>, CallError> {
    for version in versions {
        let group_version = format!("{group}/{version}");
        let operation = || format!("list the resources of {group_version}");
        let has_plural = |resource: &APIResource| resource.name == plural;
        match with_timeout(operation, client.list_api_group_resources(&group_version)).await {
            Ok(list) if list.resources.iter().any(has_plural) => return Ok(Some(version)),
            Ok(_) => {}
            Err(error) if error.is_not_found() || error.is_unserved() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Whether the API server serves a kind of an API group, in any version.
pub async fn is_served(client: &Client, group: &str, kind: &str) -> Result<bool, CallError> {
    let groups = with_timeout(
        || "list the API groups".to_owned(),
        client.list_api_groups(),
    );
    let groups = groups.await?.groups.into_iter();
    for found in groups.filter(|found| found.name == group) {
        for version in found.versions {
            let version = version.group_version;
            let operation = || format!("list the resources of {version}");
            let list = with_timeout(operation, client.list_api_group_resources(&version)).await?;
            if list.resources.iter().any(|resource| resource.kind == kind) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Waits until the API server serves a kind. Reports to `health` and logs what is missing. Returns
/// the first of `versions` that it serves; the version of `kind` has no meaning.
pub async fn wait_for_kind<'a>(
    client: &Client,
    health: &Health,
    kind: &ApiResource,
    versions: &[&'a str],
) -> &'a str {
    let ApiResource {
        group,
        plural,
        kind,
        ..
    } = kind;
    let awaited = health.await_kind(kind);
    let limit = RepetitionLimit::default();
    loop {
        let (problem, is_refused) = match served_version(client, group, plural, versions).await {
            Ok(Some(version)) => {
                if limit.end() {
                    info!(kind, group, version, "the API server serves the kind now");
                }
                return version;
            }
            Ok(None) => (unserved(group, plural, versions), true),
            Err(error) => (error_chain(&error), error.is_forbidden()),
        };
        if limit.allow(&problem, Instant::now()).is_some() {
            let definition = format!("{plural}.{group}");
            warn!(
                definition,
                problem, "waiting for a kind that the API server has to serve"
            );
        }
        awaited.waits(&problem, is_refused);
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

/// What probes show about a kind that the API server does not serve.
pub(crate) fn unserved(group: &str, plural: &str, versions: &[&str]) -> String {
    let versions = versions.join(" or ");
    format!(
        "{NOT_SERVED}; install the CustomResourceDefinition {plural}.{group} in version {versions}"
    )
}

/// Waits until the API server answers. Reports to `connected` and logs that it does not.
pub(crate) async fn wait_for_server(client: &Client, connected: &ReadinessGate) {
    let limit = RepetitionLimit::default();
    loop {
        let operation = || "reach the API server".to_owned();
        match with_timeout(operation, client.apiserver_version()).await {
            Ok(version) => {
                info!(version = version.git_version, "the API server answers");
                return;
            }
            // It answers, which is enough.
            Err(error) if error.is_forbidden() => return,
            Err(error) => {
                let text = error_chain(&error);
                if limit.allow(&text, Instant::now()).is_some() {
                    warn!(error = text, "waiting for the API server");
                }
                connected.failing(&text);
            }
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}
