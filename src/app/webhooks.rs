//! Wiring of the webhooks: what they know of the cluster, and when they are served.

use std::sync::Arc;

use capi_ipam_controller::manager::{BoxError, Manager};
use capi_ipam_ip::{Block, Family, Usable};
use capi_ipam_webhook::diagnostics::{self, Security};
use capi_ipam_webhook::endpoints::Endpoints;
use capi_ipam_webhook::options::{WebhookCerts, WebhookOptions};
use capi_ipam_webhook::self_managed::{Names, SelfManaged};
use capi_ipam_webhook::server::listen;
use clap::Args;

use crate::admission::{routes, View};
use crate::api::{PoolKey, Scope, Slot};
use crate::in_cluster::{run_standby, LedgerHandle};
use super::installed::{CERTIFICATE_SECRET, CONVERTED_DEFINITIONS, WEBHOOK_CONFIGURATION, WEBHOOK_SERVICE};

/// Flags for the objects that a self-managed certificate has to do with.
#[derive(Args, Clone, Debug)]
pub(super) struct CertificateOptions {
    /// Secret with the self-managed certificate and its authority. It is made when it is not there.
    #[arg(long, value_name = "NAME", default_value = CERTIFICATE_SECRET)]
    webhook_cert_secret: String,
}

impl CertificateOptions {
    fn names(&self) -> Names {
        Names {
            service: WEBHOOK_SERVICE.to_owned(),
            secret: self.webhook_cert_secret.clone(),
            configuration: WEBHOOK_CONFIGURATION.to_owned(),
            definitions: CONVERTED_DEFINITIONS.iter().map(|&name| name.to_owned()).collect(),
            permissions: "config/self-managed-certs",
        }
    }
}

/// Serves the webhooks from the beginning on, whether the process leads or not, if the flags say so.
pub(super) async fn register(
    manager: &mut Manager,
    options: &WebhookOptions,
    certificate: &CertificateOptions,
    published: &LedgerHandle,
) -> Result<(), BoxError> {
    let Some(server) = listen(options, &manager.health, &manager.metrics).await? else {
        manager.options.diagnostics.warn_without_certificate();
        return Ok(());
    };
    let view: Arc<dyn View> = Arc::new(LedgerView(published.clone()));
    let (tls, client) = (options.tls.clone(), manager.client.clone());
    let security = Security::new(server.certificates(), tls, client);
    let metrics = manager.metrics.clone();
    if let Some(diagnostics) = diagnostics::listen(&manager.options.diagnostics, metrics, security).await? {
        tracing::info!(address = ?diagnostics.address(), "metrics are served over TLS");
        manager.add("diagnostics", diagnostics.serve(manager.stop.clone()));
    }
    if options.webhook_certs == WebhookCerts::SelfManaged {
        let (client, certificates) = (manager.client.clone(), server.certificates());
        let health = server.certificate_health();
        let own = SelfManaged::new(client, &options.self_managed, certificate.names(), certificates, health);
        manager.add("the certificate of the webhooks", own.run(manager.stop.clone()));
    }
    let endpoints = routes::all(Endpoints::new(&manager.metrics), &view);
    tracing::info!(address = ?server.address(), "webhooks are served");
    manager.add("the webhooks", server.serve(endpoints.router(), manager.stop.clone()));
    if manager.options.leader_elect {
        let (health, published) = (manager.health.clone(), published.clone());
        let keep = run_standby(manager.client.clone(), health, published, manager.stop.clone());
        manager.add("the index for admission", keep);
    }
    Ok(())
}

/// What admission knows, from the best ledger there is.
struct LedgerView(LedgerHandle);

impl View for LedgerView {
    fn is_complete(&self) -> bool {
        self.0.complete().is_some()
    }

    fn in_use(&self, pool: &PoolKey, of_interest: &dyn Fn(Block) -> bool) -> Vec<Block> {
        self.0.complete().map(|ledger| ledger.in_use(pool, of_interest)).unwrap_or_default()
    }

    fn overlapping(&self, pool: &PoolKey, scope: &Scope, usable: &Usable) -> Vec<PoolKey> {
        self.0.complete().map(|ledger| ledger.would_overlap(pool, scope, usable)).unwrap_or_default()
    }

    fn network_length(&self, network: &str, family: Family) -> Option<u8> {
        self.0.complete()?.network_length(network, family)
    }

    fn members(&self, network: &str) -> Vec<PoolKey> {
        self.0.complete().map(|ledger| ledger.members(network)).unwrap_or_default()
    }

    fn pool(&self, pool: &PoolKey) -> Option<(Scope, Option<Arc<Usable>>)> {
        let facts = self.0.complete()?.facts(pool)?;
        Some((facts.scope, facts.usable.ok()))
    }

    fn holders(&self, slot: &Slot) -> Vec<(String, String)> {
        self.0.complete().map(|ledger| ledger.holders(slot)).unwrap_or_default()
    }
}
