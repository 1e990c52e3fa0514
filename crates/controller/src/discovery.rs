//! API discovery: the kinds that the API server serves, and their versions.

use std::time::Duration;

use kube::Client;
use tracing::{info, warn};

use crate::client::{CallError, error_chain, with_timeout};

/// Time between two discovery requests for a missing kind.
const RETRY_INTERVAL: Duration = Duration::from_secs(3);

/// The first of `versions` in which the API server serves the resource `plural`; `None` if it serves none of them.
pub(crate) async fn served_version<'a>(
    client: &Client,
    group: &str,
    plural: &str,
    versions: &[&'a str],
) -> Result<Option<&'a str>, CallError> {
    for version in versions {
        let group_version = format!("{group}/{version}");
        let operation = || format!("list the resources of {group_version}");
        match with_timeout(operation, client.list_api_group_resources(&group_version)).await {
            Ok(list) if list.resources.iter().any(|resource| resource.name == plural) => return Ok(Some(version)),
            Ok(_) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Waits until the API server serves a kind, and logs every few seconds what is missing. Returns the first of
/// `versions` that it serves.
pub async fn wait_for_kind<'a>(client: &Client, group: &str, plural: &str, versions: &[&'a str]) -> &'a str {
    let mut waited = false;
    loop {
        match served_version(client, group, plural, versions).await {
            Ok(Some(version)) => {
                if waited {
                    info!(kind = plural, group, version, "the API server serves the kind now");
                }
                return version;
            }
            Ok(None) => warn!(
                definition = format!("{plural}.{group}"),
                ?versions,
                "waiting for a kind that the API server does not serve; install its CustomResourceDefinition"
            ),
            Err(error) => {
                warn!(
                    definition = format!("{plural}.{group}"),
                    error = error_chain(&error),
                    "cannot check whether the API server serves a kind"
                );
            }
        }
        waited = true;
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

/// Waits until the API server answers, and logs every few seconds that it does not.
pub(crate) async fn wait_for_server(client: &Client) {
    loop {
        match with_timeout(|| "reach the API server".to_owned(), client.apiserver_version()).await {
            Ok(version) => {
                info!(version = version.git_version, "the API server answers");
                return;
            }
            // It answers, which is enough.
            Err(error) if error.is_forbidden() => return,
            Err(error) => warn!(error = error_chain(&error), "waiting for the API server"),
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}
