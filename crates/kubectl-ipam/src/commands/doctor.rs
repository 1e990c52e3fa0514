//! `doctor`: reads everything that the checks need, and prints what is wrong.

use std::time::Duration;

use capi_ipam_api::names;
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

use crate::cli::Global;
use crate::cluster::{Cluster, OtherKind};
use crate::error::{Code, Error};
use crate::load::{Loader, Readable};
use crate::model::{Check, Diagnosis, Finding, Inventory, LeaseRow, Report, WebhookRow, diagnosis};
use crate::output;
use crate::render::Style;

/// The webhook configuration of the provider.
const WEBHOOKS: &str = "capi-ipam-in-cluster-validating-webhook-configuration";

/// Time between two reads. What is right after it was a change in progress.
const RECHECK_DELAY: Duration = Duration::from_secs(3);

pub(super) async fn run(global: &Global) -> Result<Code, Error> {
    let cluster = Cluster::connect(global).await?;
    let (found, loader) = diagnose(&cluster).await?;
    // A finding is more important than a check that was not possible.
    let code = if found.findings.is_empty() {
        output::code(&loader)
    } else {
        Code::Findings
    };
    let report = Report::FindingList {
        findings: found.findings,
        unchecked: found.unchecked,
    };
    // The text has the missing permissions.
    if !output::is_text(global.output) {
        output::warn_incomplete(&loader);
    }
    // Findings are of objects of all namespaces.
    let style = Style {
        namespaces: true,
        ..output::style(global)
    };
    output::print_report(&report, &loader.sentences(), global.output, style)?;
    Ok(code)
}

/// Returns what is wrong. What may be a change in progress is checked twice.
async fn diagnose(cluster: &Cluster) -> Result<(Diagnosis, Loader<'_>), Error> {
    let (found, loader) = check(cluster).await?;
    if !found
        .findings
        .iter()
        .any(|finding| finding.check.is_transient())
    {
        return Ok((found, loader));
    }
    tokio::time::sleep(RECHECK_DELAY).await;
    let (mut again, loader) = check(cluster).await?;
    let was_found = |finding: &Finding| {
        found
            .findings
            .iter()
            .any(|old| (old.check, &old.object) == (finding.check, &finding.object))
    };
    // The problem states how many reservations are left: with progress it is another one.
    let is_stuck =
        |finding: &Finding| finding.check != Check::MoveStalled || found.findings.contains(finding);
    again
        .findings
        .retain(|finding| !finding.check.is_transient() || was_found(finding) && is_stuck(finding));
    Ok((again, loader))
}

async fn check(cluster: &Cluster) -> Result<(Diagnosis, Loader<'_>), Error> {
    let mut loader = Loader::new(cluster);
    let pools = loader.pools(None).await?;
    let networks = loader.networks().await?;
    let addresses = loader.addresses(|_| true).await?;
    let reservations = loader.reservations(|_| true).await?;
    let claims = loader.all_claims(None, |_| true).await?;
    let slices = loader.slices(|_| true).await?;
    let unreadable = std::mem::take(&mut loader.warnings);
    let leases = leases(&mut loader).await?;
    let webhooks = webhooks(&mut loader).await?;
    let inventory = Inventory {
        pools,
        networks,
        addresses,
        reservations,
        claims,
        slices,
        unreadable,
        leases,
        webhooks,
    };
    Ok((diagnosis(&inventory, Timestamp::now()), loader))
}

async fn leases(loader: &mut Loader<'_>) -> Result<Readable<Vec<LeaseRow>>, Error> {
    let fields = format!("metadata.name={}", names::IN_CLUSTER_LEASE);
    let found = loader
        .others::<Lease>(OtherKind::Lease, None, &fields, "")
        .await?;
    let row = |lease: Lease| {
        let spec = lease.spec.unwrap_or_default();
        LeaseRow {
            namespace: lease.metadata.namespace.unwrap_or_default(),
            holder: spec.holder_identity,
            renewed: spec.renew_time.map(|time| time.0),
            seconds: i64::from(spec.lease_duration_seconds.unwrap_or_default()),
        }
    };
    Ok(found.map(|leases| leases.into_iter().map(row).collect()))
}

async fn webhooks(loader: &mut Loader<'_>) -> Result<Readable<Vec<WebhookRow>>, Error> {
    let field = format!("metadata.name={WEBHOOKS}");
    let found = loader
        .others::<ValidatingWebhookConfiguration>(OtherKind::Webhook, None, &field, "")
        .await?;
    let mut rows = Vec::new();
    for configuration in found.seen() {
        let Some(webhook) = configuration.webhooks.iter().flatten().next() else {
            continue;
        };
        let has_authority = webhook
            .client_config
            .ca_bundle
            .as_ref()
            .is_some_and(|bundle| !bundle.0.is_empty());
        let service = webhook.client_config.service.as_ref();
        let service = service.map(|service| (service.namespace.clone(), service.name.clone()));
        let ready = match &service {
            Some((namespace, name)) => ready_replicas(loader, namespace, name).await?.map(Some),
            None => Readable::complete(None),
        };
        let name = configuration.metadata.name.clone().unwrap_or_default();
        rows.push(WebhookRow {
            name,
            has_authority,
            service,
            ready,
        });
    }
    Ok(found.map(|_| rows))
}

/// The number of ready endpoints of a service.
async fn ready_replicas(
    loader: &mut Loader<'_>,
    namespace: &str,
    service: &str,
) -> Result<Readable<usize>, Error> {
    let label = format!("kubernetes.io/service-name={service}");
    let found = loader
        .others::<EndpointSlice>(OtherKind::EndpointSlice, Some(namespace), "", &label)
        .await?;
    let is_ready = |endpoint: &Endpoint| {
        endpoint
            .conditions
            .as_ref()
            .and_then(|conditions| conditions.ready)
            .unwrap_or(true)
    };
    Ok(found.map(|slices| {
        let endpoints = slices.iter().flat_map(|slice| slice.endpoints.iter());
        endpoints.filter(|endpoint| is_ready(endpoint)).count()
    }))
}
