//! The webhooks: whether the API server reaches them, and their certificate.

use jiff::{SignedDuration, Timestamp};

use super::examination::Examination;
use super::snapshot::{CertificateRow, Snapshot, WebhookRow};
use crate::model::finding::{Check, Finding, Severity};

/// Validity below which a certificate should have been renewed. The alert
/// `CapiIpamCertificateExpires` fires at the same time.
const MIN_VALIDITY: SignedDuration = SignedDuration::from_hours(48);

/// Webhook configurations without an authority.
pub(super) fn untrusted(snapshot: &Snapshot) -> Examination {
    Examination::inspect(&snapshot.webhooks, |webhook| {
        if webhook.has_authority {
            return Vec::new();
        }
        let problem = "it has no caBundle, so pools cannot be written".to_owned();
        vec![Check::WebhookUntrusted.finding(webhook.name.clone(), problem, inject())]
    })
}

/// What writes the authority into the configuration.
fn inject() -> String {
    "cert-manager's CA injector, or the provider with --webhook-certs=self-managed, writes it; see its log: kubectl \
     logs deployment/cert-manager-cainjector --namespace cert-manager"
        .to_owned()
}

/// Services without a ready endpoint.
pub(super) fn unavailable(snapshot: &Snapshot) -> Examination {
    of_each(snapshot, &|webhook| {
        let mut findings = Vec::new();
        let ready = webhook.ready.known().copied().flatten();
        if let (Some((namespace, service)), Some(0)) = (&webhook.service, ready) {
            let problem = format!(
                "no replica of service {namespace}/{service} is ready, so pools cannot be written"
            );
            let repair = format!("kubectl describe pods --namespace {namespace}");
            findings.push(Check::WebhookUnavailable.finding(webhook.name.clone(), problem, repair));
        }
        Examination::complete(findings).with_unknown(&webhook.ready, false)
    })
}

/// Webhooks that the API server could not call.
pub(super) fn failing(snapshot: &Snapshot) -> Examination {
    of_each(snapshot, &|webhook| {
        let answer = &webhook.answer;
        let failure = answer.known().and_then(|answer| answer.as_ref().err());
        let finding = failure.map(|failure| failed_call(webhook, failure));
        Examination::complete(finding).with_unknown(answer, false)
    })
}

fn failed_call(webhook: &WebhookRow, failure: &str) -> Finding {
    let namespace = webhook
        .service
        .as_ref()
        .map_or(capi_ipam_api::installed::NAMESPACE, |(namespace, _)| {
            namespace.as_str()
        });
    let repair = if failure.contains("x509") {
        format!(
            "renew the certificate, and see who writes the caBundle: {}",
            inject()
        )
    } else {
        format!("kubectl describe pods --namespace {namespace}")
    };
    let problem = format!("the API server cannot call it, so pools cannot be written: {failure}");
    Check::WebhookFailing.finding(webhook.name.clone(), problem, repair)
}

/// Certificates that are expired, expire soon, or are not signed by the authority that the API
/// server has.
pub(super) fn certificates(snapshot: &Snapshot) -> Examination {
    of_each(snapshot, &|webhook| {
        let found = certificate_problem(webhook.certificates.seen(), snapshot.now);
        Examination::complete(found).with_unknown(&webhook.certificates, false)
    })
}

/// A service can have the Secrets of two modes, of which the manager uses one: a good one is
/// enough.
fn certificate_problem(rows: &[CertificateRow], now: Timestamp) -> Option<Finding> {
    let mut problems: Vec<Option<Finding>> = rows.iter().map(|row| problem(row, now)).collect();
    problems.sort_by_key(|problem| {
        problem
            .as_ref()
            .map(|finding| std::cmp::Reverse(finding.severity))
    });
    problems.into_iter().next().flatten()
}

fn problem(row: &CertificateRow, now: Timestamp) -> Option<Finding> {
    let CertificateRow {
        namespace,
        secret,
        facts,
    } = row;
    let renew = format!(
        "delete the Secret, and its owner creates it again: kubectl delete secret {secret} --namespace {namespace}"
    );
    let finding = |problem: String, repair: String| {
        Check::CertificateInvalid.finding(format!("secret {namespace}/{secret}"), problem, repair)
    };
    let facts = match facts {
        Ok(facts) => facts,
        Err(problem) => return Some(finding(problem.clone(), renew)),
    };
    let expires = facts.not_after;
    if expires <= now {
        let problem =
            format!("the certificate has expired at {expires}, so pools cannot be written");
        return Some(finding(problem, renew));
    }
    if !facts.is_trusted {
        let problem = "the caBundle of the webhook configuration does not verify the certificate, so pools cannot be \
                       written";
        return Some(finding(problem.to_owned(), inject()));
    }
    if expires.duration_since(now) < MIN_VALIDITY {
        let problem = format!("the certificate expires at {expires}, and was not renewed");
        return Some(finding(problem, renew).at(Severity::Warning));
    }
    None
}

/// A check of each webhook. Without webhooks, nothing is wrong with them.
fn of_each(snapshot: &Snapshot, examine: &dyn Fn(&WebhookRow) -> Examination) -> Examination {
    let mut all = Examination::default().with_unknown(&snapshot.webhooks, false);
    for webhook in snapshot.webhooks.seen() {
        let one = examine(webhook);
        all.findings.extend(one.findings);
        all.unknown = all.unknown.or(one.unknown);
    }
    all
}
