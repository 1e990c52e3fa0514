//! Reads the alerts of the provider: the rules of the Prometheus operator, and which of them fire.

use k8s_openapi::api::core::v1::Service;
use kube::api::ListParams;
use serde::de::IgnoredAny;

use crate::cluster::{OtherKind, PROMETHEUS_OPERATOR};
use crate::error::Error;
use crate::load::{Loader, Readable};
use crate::model::{Alerts, Prometheus, firing};

/// The label of the rules in the manifests.
const PROVIDER_LABEL: &str = "cluster.x-k8s.io/provider=ipam-in-cluster";

/// The label of the service that the Prometheus operator creates for each Prometheus.
const PROMETHEUS_LABEL: &str = "operated-prometheus=true";

/// The port of that service.
const PORT: u16 = 9090;

/// Reads the rules, and asks each Prometheus for the alerts that fire.
pub(super) async fn read(loader: &mut Loader<'_>) -> Result<Alerts, Error> {
    if !loader.cluster.kinds.groups.contains(PROMETHEUS_OPERATOR) {
        return Ok(Alerts::NoOperator);
    }
    let parameters = ListParams::default().labels(PROVIDER_LABEL);
    let rules = loader
        .others::<IgnoredAny>(OtherKind::PrometheusRule, None, &parameters)
        .await?;
    let parameters = ListParams::default().labels(PROMETHEUS_LABEL);
    let services = loader
        .others::<Service>(OtherKind::Service, None, &parameters)
        .await?;
    let mut prometheuses = Vec::new();
    for service in services.seen() {
        prometheuses.push(ask(loader, service).await?);
    }
    Ok(Alerts::Operator {
        rules: rules.map(|rules| rules.len()),
        prometheuses: services.map(|_| prometheuses),
    })
}

async fn ask(loader: &mut Loader<'_>, service: &Service) -> Result<Prometheus, Error> {
    let namespace = service.metadata.namespace.clone().unwrap_or_default();
    let name = service.metadata.name.clone().unwrap_or_default();
    let port = format!("{name}:{PORT}");
    let answer = loader
        .cluster
        .get_from_service(&namespace, &port, "/api/v1/alerts")
        .await;
    let answer: Readable<Result<String, String>> =
        loader.readable(answer, Err("you may not ask it".to_owned()))?;
    Ok(Prometheus {
        service: format!("{namespace}/{name}"),
        firing: answer.into_seen().and_then(|text| firing(&text)),
    })
}
