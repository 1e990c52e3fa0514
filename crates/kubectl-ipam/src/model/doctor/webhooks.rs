//! The webhooks: whether the API server reaches them, and their certificate.

use capi_ipam_api::installed;
use jiff::{SignedDuration, Timestamp};

use super::examination::Examination;
use super::manifest::{apply_for, logs};
use super::snapshot::{CertificateRow, DeploymentRow, Snapshot, WebhookMode, WebhookRow};
use crate::model::finding::{Check, Finding, Severity};

/// Validity below which a certificate should have been renewed. The alert
/// `CapiIpamCertificateExpires` fires at the same time.
const MIN_VALIDITY: SignedDuration = SignedDuration::from_hours(48);

/// The Deployment of a manager that serves webhooks.
fn serving(snapshot: &Snapshot) -> Option<&DeploymentRow> {
    let deployments = snapshot.deployments.seen();
    deployments
        .iter()
        .find(|deployment| deployment.webhooks != WebhookMode::Off)
}

/// A manager that serves webhooks which the API server does not call.
pub(super) fn missing(snapshot: &Snapshot) -> Examination {
    let webhooks = &snapshot.webhooks;
    Examination::compare(webhooks.missing_with(&snapshot.deployments), || {
        let deployment = serving(snapshot).filter(|_| webhooks.seen().is_empty())?;
        let problem = "the webhook configuration is missing, so pools are checked by the CustomResourceDefinitions only";
        let object = format!(
            "validatingwebhookconfiguration {}",
            installed::WEBHOOK_CONFIGURATION
        );
        Some(Check::WebhookMissing.finding(object, problem, apply_for(deployment)))
    })
}

/// Webhook configurations without an authority.
pub(super) fn untrusted(snapshot: &Snapshot) -> Examination {
    Examination::inspect_list(&snapshot.webhooks, |webhook| {
        let problem = "it has no caBundle, so pools cannot be written";
        let finding = Check::WebhookUntrusted.finding(&webhook.name, problem, inject());
        (!webhook.has_authority).then_some(finding)
    })
}

/// Webhook configurations for Clusters without an authority.
pub(super) fn untrusted_mutations(snapshot: &Snapshot) -> Examination {
    Examination::inspect_list(&snapshot.untrusted_mutations, |name| {
        let problem = "it has no caBundle, so Clusters are created without their addresses";
        let object = format!("mutatingwebhookconfiguration {name}");
        Some(Check::ClusterWebhookUntrusted.finding(object, problem, inject()))
    })
}

/// What writes the authority into the configuration, and into the definitions that it converts.
pub(super) fn inject() -> String {
    "cert-manager's CA injector, or the provider with --webhook-certs=self-managed, writes it; see its log: kubectl \
     logs deployment/cert-manager-cainjector --namespace cert-manager"
        .to_owned()
}

/// What renews a certificate, with the commands in their order: a Secret that is deleted while
/// nobody creates it again leaves a replica that starts without a certificate.
fn renewal(row: &CertificateRow) -> (String, Vec<String>) {
    let (namespace, secret) = (&row.namespace, &row.secret);
    let delete = format!("kubectl delete secret {secret} --namespace {namespace}");
    if let Some(certificate) = &row.certificate {
        let repair = format!(
            "1. correct what keeps cert-manager from renewing its Certificate {certificate}, which the Secret names in the \
             annotation cert-manager.io/certificate-name; 2. only then delete the Secret {secret}, which cert-manager \
             creates again with a new certificate"
        );
        let describe = format!(
            "kubectl describe certificates.cert-manager.io {certificate} --namespace {namespace}"
        );
        let pods = "kubectl get pods --namespace cert-manager".to_owned();
        return (repair, vec![pods, describe, delete]);
    }
    if secret == installed::CERTIFICATE_SECRET {
        let repair = format!(
            "1. correct what keeps the leader from renewing its certificate, which its log and /readyz name; 2. only then \
             delete the Secret {secret}, which the leader creates again with a new certificate"
        );
        return (repair, vec![logs(namespace), delete]);
    }
    let repair = format!(
        "renew the certificate in the Secret {secret} with the tool that created it: the Secret has no annotation \
         cert-manager.io/certificate-name, so cert-manager does not renew it"
    );
    let show = format!("kubectl get secret {secret} --namespace {namespace} --output yaml");
    (repair, vec![show])
}

/// Services without a ready endpoint.
pub(super) fn unavailable(snapshot: &Snapshot) -> Examination {
    Examination::of_each(&snapshot.webhooks, |webhook| {
        let finding = webhook.unavailable_service().map(|(namespace, service)| {
            let problem = format!(
                "no replica of service {namespace}/{service} is ready, so pools cannot be written"
            );
            let repair = format!("kubectl describe pods --namespace {namespace}");
            Check::WebhookUnavailable.finding(&webhook.name, problem, repair)
        });
        Examination::complete(finding).with_unknown(webhook.ready.missing.clone(), false)
    })
}

/// Webhooks that the API server could not call.
pub(super) fn failing(snapshot: &Snapshot) -> Examination {
    Examination::of_each(&snapshot.webhooks, |webhook| {
        let answer = &webhook.answer;
        let failure = answer.known().and_then(|answer| answer.as_ref().err());
        let finding = failure.map(|failure| failed_call(webhook, failure));
        Examination::complete(finding).with_unknown(answer.missing.clone(), false)
    })
}

impl WebhookRow {
    /// Namespace and name of the service, if none of its replicas is ready.
    fn unavailable_service(&self) -> Option<&(String, String)> {
        let ready = self.ready.known().copied().flatten();
        self.service.as_ref().filter(|_| ready == Some(0))
    }
}

fn failed_call(webhook: &WebhookRow, failure: &str) -> Finding {
    let namespace = webhook
        .service
        .as_ref()
        .map_or(installed::NAMESPACE, |(namespace, _)| namespace.as_str());
    let (repair, commands) = if failure.contains("certificate has expired") {
        let certificate = webhook.certificates.seen().first();
        certificate.map_or_else(
            || {
                let repair = "renew the certificate in the Secret of the webhooks";
                let show = format!("kubectl get secrets --namespace {namespace}");
                (repair.to_owned(), vec![show])
            },
            renewal,
        )
    } else if failure.contains("x509") {
        (
            format!("see who writes the caBundle: {}", inject()),
            Vec::new(),
        )
    } else {
        let describe = format!("kubectl describe pods --namespace {namespace}");
        ("see why no replica answers".to_owned(), vec![describe])
    };
    let problem = format!("the API server cannot call it, so pools cannot be written: {failure}");
    let finding = Check::WebhookFailing.finding(&webhook.name, problem, repair);
    finding.with_commands(commands)
}

/// Certificates that are expired, expire soon, or are not signed by the authority that the API
/// server has.
pub(super) fn certificates(snapshot: &Snapshot) -> Examination {
    let webhooks = &snapshot.webhooks;
    let serving = serving(snapshot);
    if serving.is_some() && webhooks.known().is_some_and(Vec::is_empty) {
        let reason =
            "the webhook configuration, which names the service of the certificate, is missing";
        return Examination::not_visible(reason, false);
    }
    Examination::of_each(webhooks, |webhook| {
        let found = certificate_problem(webhook.certificates.seen(), snapshot.now)
            .or_else(|| missing_certificate(webhook, serving?));
        Examination::complete(found).with_unknown(webhook.certificates.missing.clone(), false)
    })
}

/// No Secret has the certificate. The replicas that run have it in memory or in a file.
fn missing_certificate(webhook: &WebhookRow, serving: &DeploymentRow) -> Option<Finding> {
    let (namespace, service) = webhook.service.as_ref()?;
    if !webhook.certificates.known()?.is_empty() {
        return None;
    }
    let repair = if serving.webhooks == WebhookMode::SelfManaged {
        format!(
            "the provider creates it; see its log: kubectl logs deployment/{} --namespace {}",
            serving.name, serving.namespace
        )
    } else {
        format!(
            "cert-manager creates it: kubectl describe certificates.cert-manager.io --namespace {namespace}"
        )
    };
    let problem =
        "no Secret has the certificate of the webhooks, so a replica that starts cannot serve them";
    let object = format!("service {namespace}/{service}");
    let finding = Check::CertificateInvalid.finding(object, problem, repair);
    // While replicas serve the webhooks, nothing fails yet.
    let is_served = webhook.unavailable_service().is_none() && serving.ready > 0;
    if is_served {
        return Some(finding.at(Severity::Warning));
    }
    Some(finding)
}

/// A service can have the Secrets of two modes, of which the manager uses one: a good one is
/// enough.
fn certificate_problem(rows: &[CertificateRow], now: Timestamp) -> Option<Finding> {
    let mut mildest: Option<Finding> = None;
    for row in rows {
        let found = problem(row, now)?;
        if mildest
            .as_ref()
            .is_none_or(|known| found.severity > known.severity)
        {
            mildest = Some(found);
        }
    }
    mildest
}

fn problem(row: &CertificateRow, now: Timestamp) -> Option<Finding> {
    let object = format!("secret {}/{}", row.namespace, row.secret);
    let to_renew = |problem: String| {
        let (repair, commands) = renewal(row);
        let finding = Check::CertificateInvalid.finding(&object, problem, repair);
        finding.with_commands(commands)
    };
    let facts = match &row.facts {
        Ok(facts) => facts,
        Err(problem) => return Some(to_renew(problem.clone())),
    };
    let expires = facts.not_after;
    if expires <= now {
        let problem =
            format!("the certificate has expired at {expires}, so pools cannot be written");
        return Some(to_renew(problem));
    }
    if !facts.is_trusted {
        let problem = "the caBundle of the webhook configuration does not verify the certificate, so pools cannot be \
                       written";
        return Some(Check::CertificateInvalid.finding(&object, problem, inject()));
    }
    if expires.duration_since(now) < MIN_VALIDITY {
        let problem = format!("the certificate expires at {expires}, and was not renewed");
        return Some(to_renew(problem).at(Severity::Warning));
    }
    None
}
