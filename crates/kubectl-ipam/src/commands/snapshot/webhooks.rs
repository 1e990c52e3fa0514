//! The webhooks: their configuration, the replicas behind the service, the certificates, and
//! whether the API server reaches them.

use capi_ipam_api::installed;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhook, MutatingWebhookConfiguration, ValidatingWebhook,
    ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use kube::ResourceExt;
use kube::api::ListParams;

use super::certificate::facts;
use crate::cluster::named;
use crate::error::Error;
use crate::load::{Loader, Readable};
use crate::model::doctor::snapshot::{CertificateRow, WebhookRow};

/// The key of a certificate in a Secret.
const CERTIFICATE: &str = "tls.crt";
/// The annotation with which cert-manager marks a Secret that it writes.
const CERTIFICATE_NAME: &str = "cert-manager.io/certificate-name";

pub(super) async fn webhooks(loader: &mut Loader<'_>) -> Result<Readable<Vec<WebhookRow>>, Error> {
    let parameters = named(installed::WEBHOOK_CONFIGURATION);
    let found = loader
        .others::<ValidatingWebhookConfiguration>(None, &parameters)
        .await?;
    let mut rows = Vec::new();
    for configuration in found.seen() {
        // All webhooks of the provider are in one server.
        if let Some(webhook) = configuration.webhooks.iter().flatten().next() {
            let name = configuration.metadata.name.clone().unwrap_or_default();
            rows.push(row(loader, name, webhook).await?);
        }
    }
    Ok(found.map(|_| rows))
}

/// The names of the configurations of webhooks for Clusters that have no authority.
pub(super) async fn untrusted_mutations(
    loader: &mut Loader<'_>,
) -> Result<Readable<Vec<String>>, Error> {
    let parameters = named(installed::MUTATING_CONFIGURATION);
    let found = loader
        .others::<MutatingWebhookConfiguration>(None, &parameters)
        .await?;
    let has_authority = |webhook: &MutatingWebhook| webhook.client_config.ca_bundle.is_some();
    Ok(found.map(|mut configurations| {
        configurations.retain(|it| !it.webhooks.iter().flatten().all(has_authority));
        configurations.iter().map(ResourceExt::name_any).collect()
    }))
}

async fn row(
    loader: &mut Loader<'_>,
    name: String,
    webhook: &ValidatingWebhook,
) -> Result<WebhookRow, Error> {
    let bundle = webhook.client_config.ca_bundle.as_ref();
    let bundle = bundle.map_or(&[][..], |bundle| bundle.0.as_slice());
    let service = webhook.client_config.service.as_ref();
    let service = service.map(|service| (service.namespace.clone(), service.name.clone()));
    let answer = loader.cluster.call_webhooks().await;
    let answer = loader.readable(answer, Ok(()))?;
    let (ready, certificates) = match &service {
        Some((namespace, service)) => (
            ready_replicas(loader, namespace, service).await?.map(Some),
            certificates(loader, namespace, service, bundle).await?,
        ),
        None => (Readable::complete(None), Readable::complete(Vec::new())),
    };
    Ok(WebhookRow {
        name,
        has_authority: !bundle.is_empty(),
        service,
        ready,
        answer,
        certificates,
    })
}

/// The number of ready endpoints of a service.
async fn ready_replicas(
    loader: &mut Loader<'_>,
    namespace: &str,
    service: &str,
) -> Result<Readable<usize>, Error> {
    let label = format!("kubernetes.io/service-name={service}");
    let parameters = ListParams::default().labels(&label);
    let found = loader
        .others::<EndpointSlice>(Some(namespace), &parameters)
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

/// The certificates of a service: that of cert-manager, and that of the provider.
pub(super) async fn certificates(
    loader: &mut Loader<'_>,
    namespace: &str,
    service: &str,
    bundle: &[u8],
) -> Result<Readable<Vec<CertificateRow>>, Error> {
    let parameters = ListParams::default().fields("type=kubernetes.io/tls");
    let found = loader
        .others::<Secret>(Some(namespace), &parameters)
        .await?;
    let names = [
        format!("{service}-cert"),
        installed::CERTIFICATE_SECRET.to_owned(),
    ];
    let row = |secret: Secret| {
        let name = secret.metadata.name.filter(|name| names.contains(name))?;
        let annotations = secret.metadata.annotations.unwrap_or_default();
        let data = secret.data.unwrap_or_default();
        let certificate = data.get(CERTIFICATE).map_or(&[][..], |data| &data.0);
        Some(CertificateRow {
            namespace: namespace.to_owned(),
            secret: name,
            certificate: annotations.get(CERTIFICATE_NAME).cloned(),
            facts: facts(certificate, bundle),
        })
    };
    Ok(found.map(|secrets| secrets.into_iter().filter_map(row).collect()))
}
