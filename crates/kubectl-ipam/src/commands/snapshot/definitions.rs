//! The definitions of the provider, as the API server has them.

use capi_ipam_api::{InClusterKind, crds};
use futures::future::join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, WebhookClientConfig,
};
use kube::ResourceExt;

use super::webhooks::certificates;
use crate::cluster::{Cluster, named};
use crate::error::Error;
use crate::load::{Loader, Readable};
use crate::model::doctor::snapshot::{ConversionRow, ServedDefinition};

/// The definitions that exist, compared with those of this version. Those of the Go provider have
/// other fields and another service.
pub(super) async fn served(
    loader: &mut Loader<'_>,
) -> Result<Readable<Vec<ServedDefinition>>, Error> {
    if loader.cluster.is_go_provider() {
        return Ok(Readable::complete(Vec::new()));
    }
    let own = crds::all().unwrap_or_default();
    let lists = own.iter().map(|own| list(loader.cluster, own));
    let found = join_all(lists).await;
    let mut rows = Vec::new();
    let mut missing = Vec::new();
    for (own, found) in own.iter().zip(found) {
        let found = loader.readable(found, Vec::new())?;
        missing.extend(found.missing.clone());
        for definition in found.seen() {
            rows.push(ServedDefinition {
                name: definition.name_any(),
                missing_fields: crds::missing_fields(definition, own),
                conversion: conversion(loader, definition).await?,
            });
        }
    }
    Ok(Readable::part(rows, missing))
}

/// The definition with the name of an own one.
async fn list(
    cluster: &Cluster,
    own: &CustomResourceDefinition,
) -> Result<Vec<CustomResourceDefinition>, Error> {
    cluster.list_other(None, &named(&own.name_any())).await
}

async fn conversion(
    loader: &mut Loader<'_>,
    definition: &CustomResourceDefinition,
) -> Result<Option<ConversionRow>, Error> {
    let plural = &definition.spec.names.plural;
    let kind = InClusterKind::ALL
        .into_iter()
        .find(|kind| kind.plural() == plural);
    let (Some(kind), Some(config)) = (kind, webhook(definition)) else {
        return Ok(None);
    };
    let bundle = config.ca_bundle.as_ref();
    let bundle = bundle.map_or(&[][..], |bundle| bundle.0.as_slice());
    let is_trusted = match &config.service {
        Some(service) => {
            let rows = certificates(loader, &service.namespace, &service.name, bundle).await?;
            // A service can have the Secrets of two modes, of which the manager uses one.
            rows.map(|rows| {
                let mut known = rows
                    .iter()
                    .filter_map(|row| row.facts.as_ref().ok())
                    .peekable();
                known.peek()?;
                Some(known.any(|facts| facts.is_trusted))
            })
        }
        None => Readable::complete(None),
    };
    let answer = loader.cluster.convert_pool(kind).await;
    Ok(Some(ConversionRow {
        has_authority: !bundle.is_empty(),
        is_trusted,
        answer: loader.readable(answer, Ok(()))?,
    }))
}

fn webhook(definition: &CustomResourceDefinition) -> Option<&WebhookClientConfig> {
    let conversion = definition.spec.conversion.as_ref()?;
    conversion.webhook.as_ref()?.client_config.as_ref()
}
