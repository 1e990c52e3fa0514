//! Which kinds the API server serves, and in which version.

use std::time::Duration;

use kube::Client;
use tracing::{info, warn};

use crate::client::{CallError, chain, within};

/// How long to wait before a missing kind is looked for again.
const PAUSE: Duration = Duration::from_secs(3);

/// The first of `versions` in which the API server serves the kind with that plural name; `None` when it serves none.
pub async fn served_version<'a>(
    client: &Client,
    group: &str,
    plural: &str,
    versions: &[&'a str],
) -> Result<Option<&'a str>, CallError> {
    for version in versions {
        let group_version = format!("{group}/{version}");
        let operation = || format!("ask which kinds {group_version} has");
        match within(operation, client.list_api_group_resources(&group_version)).await {
            Ok(list) if list.resources.iter().any(|resource| resource.name == plural) => return Ok(Some(version)),
            Ok(_) => {}
            Err(error) if error.is_not_found() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Waits until the API server serves a kind, telling every few seconds what is missing. Returns the first of `versions`
/// that it serves.
pub async fn wait_for_kind<'a>(client: &Client, group: &str, plural: &str, versions: &[&'a str]) -> &'a str {
    let mut waited = false;
    loop {
        match served_version(client, group, plural, versions).await {
            Ok(Some(version)) => {
                if waited {
                    info!(kind = plural, group, version, "the kind is there now");
                }
                return version;
            }
            Ok(None) => warn!(
                definition = format!("{plural}.{group}"),
                ?versions,
                "waiting for a definition that is not installed; install its CustomResourceDefinition"
            ),
            Err(error) => {
                warn!(definition = format!("{plural}.{group}"), error = chain(&error), "cannot ask for a kind");
            }
        }
        waited = true;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Waits until the API server answers, telling every few seconds that it does not.
pub async fn wait_for_server(client: &Client) {
    loop {
        match within(|| "reach the API server".to_owned(), client.apiserver_version()).await {
            Ok(version) => {
                info!(version = version.git_version, "the API server answers");
                return;
            }
            // It answers, if only to say no.
            Err(error) if error.is_forbidden() => return,
            Err(error) => warn!(error = chain(&error), "waiting for the API server"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}
