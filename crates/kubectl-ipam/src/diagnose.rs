//! `doctor`: reads everything that the checks need.

use std::time::Duration;

use capi_ipam::api::names;
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::cluster::{Cluster, OtherKind};
use crate::error::Error;
use crate::load::Loader;
use crate::model::{Check, Finding, Inventory, LeaseRow, WebhookRow, findings};

/// The webhook configuration of the provider.
const WEBHOOKS: &str = "capi-ipam-in-cluster-validating-webhook-configuration";

/// Time between two reads. What is right after it was a change in progress.
const RECHECK_DELAY: Duration = Duration::from_secs(3);

/// Returns what is wrong. What may be a change in progress is checked twice.
pub(crate) async fn diagnose(cluster: &Cluster) -> Result<(Vec<Finding>, Loader<'_>), Error> {
    let (found, loader) = check(cluster).await?;
    if !found.iter().any(|finding| finding.check.is_transient()) {
        return Ok((found, loader));
    }
    tokio::time::sleep(RECHECK_DELAY).await;
    let (mut again, loader) = check(cluster).await?;
    let was_found =
        |finding: &Finding| found.iter().any(|old| (old.check, &old.object) == (finding.check, &finding.object));
    // The problem states how many reservations are left: with progress it is another one.
    let is_stuck = |finding: &Finding| finding.check != Check::MoveStalled || found.contains(finding);
    again.retain(|finding| !finding.check.is_transient() || was_found(finding) && is_stuck(finding));
    Ok((again, loader))
}

async fn check(cluster: &Cluster) -> Result<(Vec<Finding>, Loader<'_>), Error> {
    let mut loader = Loader::new(cluster);
    let mut inventory = Inventory {
        pools: loader.pools(None).await?,
        networks: loader.networks().await?,
        addresses: loader.addresses(|_| true).await?,
        reservations: loader.reservations(|_| true).await?,
        claims: loader.claims(None, |_| true).await?,
        ..Inventory::default()
    };
    inventory.unreadable = std::mem::take(&mut loader.warnings);
    inventory.leases = leases(&mut loader).await?;
    inventory.webhooks = webhooks(&mut loader).await?;
    let is_complete = loader.missing.is_empty();
    inventory.slices = loader.slices(|_| true).await?;
    inventory.unreadable.append(&mut loader.warnings);
    // A part of the objects would show references to the others as dangling.
    if is_complete {
        return Ok((findings(&inventory, Timestamp::now()), loader));
    }
    let (addresses, reservations, claims, slices) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let complete = Inventory { addresses, reservations, claims, slices, ..inventory };
    Ok((findings(&complete, Timestamp::now()), loader))
}

async fn leases(loader: &mut Loader<'_>) -> Result<Option<Vec<LeaseRow>>, Error> {
    let name = names::IN_CLUSTER_LEASE;
    let Some(found) = loader.others::<Lease>(OtherKind::Lease, None, &format!("metadata.name={name}"), "").await?
    else {
        return Ok(None);
    };
    let rows = found.into_iter().map(|lease| {
        let spec = lease.spec.unwrap_or_default();
        LeaseRow {
            namespace: lease.metadata.namespace.unwrap_or_default(),
            holder: spec.holder_identity,
            renewed: spec.renew_time.map(|time| time.0),
            seconds: i64::from(spec.lease_duration_seconds.unwrap_or_default()),
        }
    });
    Ok(Some(rows.collect()))
}

async fn webhooks(loader: &mut Loader<'_>) -> Result<Vec<WebhookRow>, Error> {
    let field = format!("metadata.name={WEBHOOKS}");
    let found = loader.others::<ValidatingWebhookConfiguration>(OtherKind::Webhook, None, &field, "").await?;
    let mut rows = Vec::new();
    for configuration in found.into_iter().flatten() {
        let Some(webhook) = configuration.webhooks.unwrap_or_default().into_iter().next() else { continue };
        let has_authority = webhook.client_config.ca_bundle.is_some_and(|bundle| !bundle.0.is_empty());
        let service = webhook.client_config.service.map(|service| (service.namespace, service.name));
        let ready = match &service {
            Some((namespace, name)) => ready_replicas(loader, namespace, name).await?,
            None => None,
        };
        rows.push(WebhookRow { name: configuration.metadata.name.unwrap_or_default(), has_authority, service, ready });
    }
    Ok(rows)
}

/// The number of ready endpoints of a service.
async fn ready_replicas(loader: &mut Loader<'_>, namespace: &str, service: &str) -> Result<Option<usize>, Error> {
    let label = format!("kubernetes.io/service-name={service}");
    let found = loader.others::<EndpointSlice>(OtherKind::EndpointSlice, Some(namespace), "", &label).await?;
    let is_ready = |endpoint: &k8s_openapi::api::discovery::v1::Endpoint| {
        endpoint.conditions.as_ref().and_then(|conditions| conditions.ready).unwrap_or(true)
    };
    Ok(found.map(|slices| {
        let endpoints = slices.iter().flat_map(|slice| slice.endpoints.iter());
        endpoints.filter(|endpoint| is_ready(endpoint)).count()
    }))
}
