//! Wiring of the webhooks: their view of the cluster, their certificate and the metrics endpoint.

use std::sync::Arc;

use capi_ipam_api::installed::{
    CERTIFICATE_SECRET, CONVERTED_DEFINITIONS, MUTATING_CONFIGURATION, WEBHOOK_CONFIGURATION,
    WEBHOOK_SERVICE,
};
use capi_ipam_controller::manager::{BoxError, Manager};
use capi_ipam_ledger::Ledger;
use capi_ipam_webhook::diagnostics;
use capi_ipam_webhook::endpoints::Endpoints;
use capi_ipam_webhook::options::{WebhookCerts, WebhookOptions};
use capi_ipam_webhook::self_managed::{Names, SelfManaged};
use capi_ipam_webhook::server::listen;
use clap::Args;

use super::cluster_webhook;
use crate::admission::{View, routes};
use crate::in_cluster::{LedgerHandle, RequestedClusters, run_standby};

/// The flags for the objects of the self-managed certificate.
#[derive(Args, Clone, Debug)]
pub(super) struct CertificateOptions {
    /// Secret with the self-managed certificate and its CA. It is created if it does not exist.
    #[arg(long, value_name = "NAME", default_value = CERTIFICATE_SECRET)]
    webhook_cert_secret: String,
}

impl CertificateOptions {
    fn names(&self, cluster_addressing: bool) -> Names {
        Names {
            service: WEBHOOK_SERVICE.to_owned(),
            secret: self.webhook_cert_secret.clone(),
            configuration: WEBHOOK_CONFIGURATION.to_owned(),
            mutating_configuration: cluster_addressing.then(|| MUTATING_CONFIGURATION.to_owned()),
            definitions: CONVERTED_DEFINITIONS
                .iter()
                .map(|&name| name.to_owned())
                .collect(),
            permissions: if cluster_addressing {
                "config/self-managed-certs and config/cluster-addressing"
            } else {
                "config/self-managed-certs"
            },
        }
    }
}

/// Adds the server of webhooks, unless the flags disable it. It runs on the leader and on standbys.
/// That of Clusters is served if `cluster_addressing` is set.
pub(super) async fn register(
    manager: &mut Manager,
    options: &WebhookOptions,
    certificate: &CertificateOptions,
    ledger: &LedgerHandle,
    cluster_addressing: bool,
) -> Result<(), BoxError> {
    let Some(server) = listen(options, &manager.health, &manager.metrics).await? else {
        manager.options.diagnostics.warn_without_certificate();
        return Ok(());
    };
    let view: Arc<dyn View> = Arc::new(LedgerView(ledger.clone()));
    diagnostics::register(manager, server.certificates(), options.tls.clone()).await?;
    if options.webhook_certs == WebhookCerts::SelfManaged {
        let (client, certificates) = (manager.client.clone(), server.certificates());
        let health = server.certificate_health();
        let certificate = SelfManaged::new(
            client,
            &options.self_managed,
            &certificate.names(cluster_addressing),
            certificates,
            health,
        );
        manager.add(
            "the self-managed certificate",
            certificate.run(manager.stop.clone()),
        );
    }
    let mut endpoints = routes::all(Endpoints::new(&manager.metrics), &view);
    if cluster_addressing {
        let (client, health) = (manager.client.clone(), manager.health.optional());
        let clusters = RequestedClusters::new(client, health, &manager.options);
        let clusters = Arc::new(clusters);
        let watch = Arc::clone(&clusters).watch_claims(manager.stop.clone());
        manager.add("the claims of Clusters that are created", watch);
        endpoints = endpoints.mutate(routes::MUTATE_CLUSTER, move |request| {
            cluster_webhook::mutate(Arc::clone(&clusters), request)
        });
    }
    tracing::info!(address = ?server.address(), "serving webhooks");
    manager.add(
        "the webhooks",
        server.serve(endpoints.router(), manager.stop.clone()),
    );
    if manager.options.leader_elect {
        let (health, ledger) = (manager.health.clone(), ledger.clone());
        let standby = run_standby(manager.client.clone(), health, ledger, manager.stop.clone());
        manager.add("the ledger of the standby", standby);
    }
    Ok(())
}

/// The view of admission: the newest complete ledger.
struct LedgerView(LedgerHandle);

impl View for LedgerView {
    fn with_ledger(&self, read: &mut dyn FnMut(&Ledger)) {
        if let Some(ledger) = self.0.complete() {
            ledger.read(read);
        }
    }
}
