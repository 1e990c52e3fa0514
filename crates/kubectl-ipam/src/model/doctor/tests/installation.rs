//! What is installed: definitions, permissions, and the manifest that repairs them.

use super::*;

#[test]
fn missing_permissions_are_named() {
    let mut snapshot = empty();
    snapshot.deployments = Readable::complete(vec![deployment(1, 1, true)]);
    let [text] = &found(&snapshot, Check::MissingPermission)[..] else {
        panic!("one finding");
    };
    let (start, first) = text
        .split_once(" permissions are missing, first: ")
        .unwrap();
    assert!(
        start.starts_with("error serviceaccount system/manager: "),
        "{text}"
    );
    assert_eq!(first.split("; ").count(), 3, "{text}");
    assert!(
        text.contains("ipaddressclaims.ipam.cluster.x-k8s.io"),
        "{text}"
    );
}

#[test]
fn repair_applies_the_manifest_that_was_installed() {
    let definition = DefinitionRow {
        group: GROUP,
        plural: "ipslices",
        is_of_contract: false,
        versions: Vec::new(),
        is_supported: false,
    };
    let command = "kubectl apply --server-side --force-conflicts --filename manifests";
    for (mode, words, file) in [
        (None, "that you installed, for example: ", "install.yaml"),
        (
            Some(WebhookMode::Files),
            "that you installed: ",
            "install.yaml",
        ),
        (
            Some(WebhookMode::SelfManaged),
            "that you installed: ",
            "install-without-cert-manager.yaml",
        ),
    ] {
        let mut snapshot = empty();
        snapshot.definitions = vec![definition.clone()];
        let running = mode.map(|webhooks| DeploymentRow {
            webhooks,
            ..deployment(1, 1, true)
        });
        snapshot.deployments = Readable::complete(running.into_iter().collect());
        let text = format!("apply the manifest {words}{command}/{file}");
        let about = [Check::MissingDefinition, Check::MissingPermission];
        let findings = diagnosis(&snapshot).findings;
        let repairs = findings.iter().filter(|it| about.contains(&it.check));
        let repairs: Vec<&str> = repairs.map(|it| it.repair.as_str()).collect();
        assert_eq!(repairs.len(), if mode.is_some() { 2 } else { 1 });
        assert!(
            repairs.iter().all(|it| it.starts_with(&text)),
            "{repairs:?}"
        );
    }
}

#[test]
fn missing_definitions_have_a_finding_for_each_repair() {
    let row = |plural, is_of_contract, versions: &[&str], is_supported| DefinitionRow {
        group: GROUP,
        plural,
        is_of_contract,
        versions: versions.iter().map(ToString::to_string).collect(),
        is_supported,
    };
    let mut snapshot = empty();
    snapshot.definitions = vec![
        row("ipaddresses", true, &["v1alpha1"], false),
        row("ipaddressclaims", true, &["v1beta2"], true),
        row("ipreservations", false, &[], false),
        row("ipslices", false, &[], false),
        DefinitionRow {
            group: "cluster.x-k8s.io",
            ..row("clusters", true, &[], false)
        },
    ];
    let problem = "the API server does not serve this kind, without which no claim is served";
    assert_eq!(
        found(&snapshot, Check::MissingDefinition),
        [
            format!(
                "error customresourcedefinition ipaddresses.{GROUP}, clusters.cluster.x-k8s.io: {problem} (it serves \
                 ipaddresses only in v1alpha1)"
            ),
            format!(
                "error customresourcedefinition ipreservations.{GROUP}, ipslices.{GROUP}: {problem}"
            ),
        ]
    );
}

#[test]
fn definition_that_lacks_fields_is_found() {
    let definition = |missing: &[&str], conversion| ServedDefinition {
        name: format!("inclusterippools.{GROUP}"),
        missing_fields: missing.iter().map(ToString::to_string).collect(),
        conversion,
    };
    let mut snapshot = empty();
    snapshot.served = Readable::complete(vec![
        definition(&["spec.draining", "spec.network"], None),
        definition(&[], None),
    ]);
    let text = format!(
        "error customresourcedefinition inclusterippools.{GROUP}: the API server has an older definition without \
         spec.draining, spec.network, and removes these fields from all objects"
    );
    assert_eq!(found(&snapshot, Check::OutdatedDefinition), [text]);

    let conversion = |has_authority, is_trusted, answer| ConversionRow {
        has_authority,
        is_trusted: Readable::complete(is_trusted),
        answer: Readable::complete(answer),
    };
    let failure = "conversion webhook for x failed: x509: unknown authority".to_owned();
    for (row, expected) in [
        (conversion(true, Some(true), Ok(())), None),
        (conversion(true, None, Ok(())), None),
        (
            conversion(false, None, Ok(())),
            Some("spec.conversion has no caBundle"),
        ),
        (
            conversion(true, Some(false), Ok(())),
            Some("the caBundle of spec.conversion does not verify"),
        ),
        (
            conversion(true, Some(true), Err(failure)),
            Some("conversion webhook for x failed"),
        ),
    ] {
        snapshot.served = Readable::complete(vec![definition(&[], Some(row))]);
        let found = found(&snapshot, Check::ConversionFailing);
        let problem = "pools cannot be converted between their versions: ";
        let is_expected = match expected {
            Some(text) => found[0].contains(&format!("{problem}{text}")),
            None => found.is_empty(),
        };
        assert!(is_expected, "{found:?} instead of {expected:?}");
    }
}

#[test]
fn permissions_are_unknown_without_a_deployment() {
    let unchecked = |snapshot: &Snapshot| {
        let unchecked = diagnosis(snapshot).unchecked;
        let of_permissions = |it: &Unchecked| it.check == Check::MissingPermission;
        unchecked
            .into_iter()
            .find(of_permissions)
            .map(|it| it.reason)
    };
    let reason = "the manager has no Deployment in this cluster, so its user is unknown";
    assert_eq!(unchecked(&empty()).as_deref(), Some(reason));
    let right = MissingRight {
        verb: "impersonate",
        resource: "serviceaccounts".to_owned(),
        namespace: Some("system".to_owned()),
    };
    let mut deployment = deployment(1, 1, true);
    deployment.rules = Readable::part(None, vec![right]);
    let snapshot = Snapshot {
        deployments: Readable::complete(vec![deployment]),
        ..empty()
    };
    let reason = unchecked(&snapshot).unwrap();
    assert!(
        reason.contains("you may not impersonate serviceaccounts"),
        "{reason}"
    );
    assert!(found(&snapshot, Check::MissingPermission).is_empty());
}
