//! Webhooks and their certificates.

use super::*;

#[test]
fn certificates_are_compared_with_time_and_authority() {
    let row = |secret: &str, hours: i64, is_trusted| CertificateRow {
        namespace: "system".to_owned(),
        secret: secret.to_owned(),
        certificate: None,
        facts: Ok(CertificateFacts {
            not_after: now()
                .checked_add(SignedDuration::from_hours(hours))
                .unwrap(),
            is_trusted,
        }),
    };
    let malformed = CertificateRow {
        facts: Err("cannot be parsed".to_owned()),
        ..row("a", 1, true)
    };
    for (rows, expected) in [
        (vec![], None),
        (vec![row("a", 100, true)], None),
        (
            vec![row("a", 40, true)],
            Some("warning secret system/a: the certificate expires at 2026-01-06T19:04:05Z"),
        ),
        (
            vec![row("a", -1, true)],
            Some("error secret system/a: the certificate has expired at 2026-01-05T02:04:05Z"),
        ),
        (
            vec![row("a", 100, false)],
            Some("error secret system/a: the caBundle of the webhook configuration"),
        ),
        (
            vec![malformed],
            Some("error secret system/a: cannot be parsed"),
        ),
        (vec![row("a", -1, true), row("b", 100, true)], None),
        (
            vec![row("a", 40, true), row("b", -1, true)],
            Some("warning secret system/a"),
        ),
    ] {
        let mut snapshot = empty();
        snapshot.webhooks = Readable::complete(vec![webhook(Ok(()), rows)]);
        let found = found(&snapshot, Check::CertificateInvalid);
        let text = found.first().map(String::as_str);
        let is_expected = match expected {
            Some(start) => text.is_some_and(|text| text.starts_with(start)),
            None => text.is_none(),
        };
        assert!(is_expected, "{text:?} instead of {expected:?}");
    }
}

/// A Secret that is deleted first stays away while its owner does not run.
#[test]
fn repair_of_a_certificate_begins_with_its_owner() {
    let own = "capi-ipam-in-cluster-webhook-self-managed-cert";
    let row = |secret: &str, certificate: Option<&str>| CertificateRow {
        namespace: "system".to_owned(),
        secret: secret.to_owned(),
        certificate: certificate.map(str::to_owned),
        facts: Ok(CertificateFacts {
            not_after: ago(60),
            is_trusted: true,
        }),
    };
    let delete = |secret: &str| format!("kubectl delete secret {secret} --namespace system");
    let managed = [
        "kubectl get pods --namespace cert-manager".to_owned(),
        "kubectl describe certificates.cert-manager.io serving --namespace system".to_owned(),
        delete("webhook-cert"),
    ];
    let logs = "kubectl logs --namespace system --selector cluster.x-k8s.io/provider=ipam-in-cluster --tail=-1";
    let self_managed = [logs.to_owned(), delete(own)];
    let unowned = ["kubectl get secret webhook-cert --namespace system --output yaml".to_owned()];
    for (row, start, commands) in [
        (
            row("webhook-cert", Some("serving")),
            "1. correct what keeps cert-manager from renewing its Certificate serving, which the Secret names in the \
             annotation cert-manager.io/certificate-name; 2. only then delete",
            &managed[..],
        ),
        (
            row(own, None),
            "1. correct what keeps the leader",
            &self_managed,
        ),
        (
            row("webhook-cert", None),
            "renew the certificate in the Secret webhook-cert",
            &unowned,
        ),
    ] {
        let failure = "failed calling webhook: x509: certificate has expired".to_owned();
        let mut snapshot = empty();
        snapshot.webhooks = Readable::complete(vec![webhook(Err(failure), vec![row])]);
        let findings = diagnosis(&snapshot).findings;
        assert_eq!(findings.len(), 2, "{findings:?}");
        for finding in findings {
            assert!(finding.repair.starts_with(start), "{}", finding.repair);
            assert_eq!(finding.commands, commands);
        }
    }
}

#[test]
fn webhook_that_cannot_be_called_is_found() {
    let mut snapshot = empty();
    let failure = "failed calling webhook: x509: certificate has expired".to_owned();
    snapshot.webhooks = Readable::complete(vec![webhook(Err(failure), Vec::new())]);
    assert_eq!(
        found(&snapshot, Check::WebhookFailing),
        [
            "error hooks: the API server cannot call it, so pools cannot be written: failed calling webhook: x509: \
          certificate has expired"
        ]
    );
}

#[test]
fn manager_whose_webhooks_nobody_calls_is_found() {
    let serving = |webhooks| DeploymentRow {
        webhooks,
        ..deployment(1, 1, true)
    };
    let mut snapshot = empty();
    snapshot.deployments = Readable::complete(vec![serving(WebhookMode::Off)]);
    assert!(found(&snapshot, Check::WebhookMissing).is_empty());
    let state_of = |snapshot: &Snapshot, part| {
        let lines = parts(&diagnosis(snapshot), snapshot);
        let mut lines = lines.into_iter();
        lines.find(|line| line.part == part).unwrap().state
    };
    snapshot.deployments = Readable::complete(vec![serving(WebhookMode::SelfManaged)]);
    let problem = "the webhook configuration is missing, so pools are checked by the CustomResourceDefinitions only";
    let object =
        "validatingwebhookconfiguration capi-ipam-in-cluster-validating-webhook-configuration";
    let text = format!("warning {object}: {problem}");
    assert_eq!(found(&snapshot, Check::WebhookMissing), [text]);
    assert_eq!(state_of(&snapshot, Part::Webhooks), PartState::Warning);
    assert_eq!(state_of(&snapshot, Part::Certificate), PartState::Unknown);

    snapshot.webhooks = Readable::complete(vec![webhook(Ok(()), Vec::new())]);
    assert_eq!(
        found(&snapshot, Check::CertificateInvalid),
        [
            "warning service system/webhook: no Secret has the certificate of the webhooks, so a replica that starts \
             cannot serve them"
        ]
    );
    assert_eq!(state_of(&snapshot, Part::Certificate), PartState::Warning);
    // Without a replica that still has it, it is the cause.
    let stopped = DeploymentRow {
        ready: 0,
        ..serving(WebhookMode::SelfManaged)
    };
    snapshot.deployments = Readable::complete(vec![stopped]);
    snapshot.leases = Readable::complete(vec![lease("system", 60)]);
    let findings = diagnosis(&snapshot).findings;
    let first = findings.first().unwrap();
    assert_eq!(
        (first.check, first.severity),
        (Check::CertificateInvalid, Severity::Error)
    );
    let caused = |check| {
        findings
            .iter()
            .any(|it| it.check == check && it.cause.is_some())
    };
    assert!(
        caused(Check::NoLeader) && caused(Check::ReplicasNotReady),
        "{findings:?}"
    );
    snapshot.deployments = Readable::complete(vec![serving(WebhookMode::Off)]);
    assert_eq!(state_of(&snapshot, Part::Certificate), PartState::Ok);
}
