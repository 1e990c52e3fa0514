//! Tables of the checks: what is in the cluster, and what they find.

use std::collections::BTreeSet;

use capi_ipam_api::Pool;
use capi_ipam_provider::api::{IPAddress, IPAddressClaim};
use jiff::{SignedDuration, Timestamp};
use schemars::schema_for;
use serde_json::{Value, json};

use super::*;
use crate::error::MissingRight;
use crate::load::{Claims, Readable};
use crate::model::finding::{Finding, Severity};
use crate::model::{Alerts, Part, PartState, parts};
use crate::objects::{AddressRow, ClaimRow, PoolRow};

const GROUP: &str = "ipam.cluster.x-k8s.io";

fn now() -> Timestamp {
    "2026-01-05T03:04:05Z".parse().unwrap()
}

fn ago(seconds: i64) -> Timestamp {
    now()
        .checked_sub(SignedDuration::from_secs(seconds))
        .unwrap()
}

/// A cluster in which nothing runs outside of the API server.
fn empty() -> Snapshot {
    Snapshot {
        now: now(),
        is_go_provider: false,
        definitions: Vec::new(),
        deployments: Readable::complete(Vec::new()),
        leases: Readable::complete(vec![lease("a", 1)]),
        webhooks: Readable::complete(Vec::new()),
        events: Readable::complete(Vec::new()),
        pools: Readable::complete(Vec::new()),
        networks: Readable::complete(Vec::new()),
        addresses: Readable::complete(Vec::new()),
        reservations: Readable::complete(Vec::new()),
        claims: Readable::complete(Claims::default()),
        slices: Readable::complete(Vec::new()),
        deleted_namespaces: BTreeSet::new(),
        unreadable: Vec::new(),
    }
}

fn with(pools: &[Value], addresses: &[Value], claims: &[Value]) -> Snapshot {
    let pool = |value: &Value| {
        let pool: Pool = serde_json::from_value(value.clone()).unwrap();
        PoolRow::from(&pool)
    };
    let address = |value: &Value| {
        let address: IPAddress = serde_json::from_value(value.clone()).unwrap();
        AddressRow::of(&address).unwrap()
    };
    let claim = |value: &Value| {
        let claim: IPAddressClaim = serde_json::from_value(value.clone()).unwrap();
        ClaimRow::of(&claim).unwrap()
    };
    Snapshot {
        pools: Readable::complete(pools.iter().map(pool).collect()),
        addresses: Readable::complete(addresses.iter().map(address).collect()),
        claims: Readable::complete(Claims {
            served: claims.iter().map(claim).collect(),
            unserved: Vec::new(),
        }),
        ..empty()
    }
}

/// A pool in the namespace `n`, or in that of its name, with conditions.
fn pool(name: &str, spec: &Value) -> Value {
    let (namespace, name) = name.split_once('/').unwrap_or(("n", name));
    json!({
        "kind": "InClusterIPPool",
        "metadata": {"namespace": namespace, "name": name, "creationTimestamp": ago(500)},
        "spec": spec,
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn range(addresses: &str) -> Value {
    json!({"addresses": [addresses], "prefix": 24})
}

fn address(name: &str, pool: &str, address: &str) -> Value {
    let (namespace, pool) = pool.split_once('/').unwrap_or(("n", pool));
    json!({
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"address": address, "prefix": 24, "claimRef": {"name": name},
                 "poolRef": {"apiGroup": GROUP, "kind": "InClusterIPPool", "name": pool}},
    })
}

/// A claim for the pool `p` that is as old as this, with a reason.
fn claim(name: &str, age: i64, reason: &str) -> Value {
    let ready =
        json!({"type": "Ready", "status": "False", "reason": reason, "message": "about it"});
    let conditions = if reason.is_empty() {
        json!([])
    } else {
        json!([ready])
    };
    json!({
        "metadata": {"namespace": "n", "name": name, "creationTimestamp": ago(age)},
        "spec": {"clusterName": "prod", "poolRef": {"apiGroup": GROUP, "kind": "InClusterIPPool", "name": "p"}},
        "status": {"conditions": conditions},
    })
}

/// An object in deletion.
fn deleted(mut object: Value, seconds: i64, finalizers: &[&str]) -> Value {
    object["metadata"]["deletionTimestamp"] = json!(ago(seconds));
    object["metadata"]["finalizers"] = json!(finalizers);
    object
}

fn paused(mut object: Value) -> Value {
    object["metadata"]["annotations"] = json!({"cluster.x-k8s.io/paused": ""});
    object
}

fn exhausted(mut pool: Value) -> Value {
    pool["status"]["ipAddresses"] = json!({"total": 3, "used": 3, "free": 0, "outOfRange": 0});
    pool
}

fn lease(namespace: &str, age: i64) -> LeaseRow {
    LeaseRow {
        namespace: namespace.to_owned(),
        holder: Some("pod-1".to_owned()),
        renewed: Some(ago(age)),
        seconds: 15,
    }
}

fn deployment(replicas: i32, ready: i32, elects: bool) -> DeploymentRow {
    DeploymentRow {
        namespace: "system".to_owned(),
        name: "manager".to_owned(),
        replicas,
        ready,
        image: "image".to_owned(),
        elects,
        webhooks: WebhookMode::Off,
        account: AccountRow {
            name: "manager".to_owned(),
            rules: Readable::complete(Some(Vec::new())),
        },
    }
}

fn webhook(answer: Result<(), String>, certificates: Vec<CertificateRow>) -> WebhookRow {
    WebhookRow {
        name: "hooks".to_owned(),
        has_authority: true,
        service: Some(("system".to_owned(), "webhook".to_owned())),
        ready: Readable::complete(Some(1)),
        answer: Readable::complete(answer),
        certificates: Readable::complete(certificates),
    }
}

/// What a check finds: severity, object and problem.
fn found(snapshot: &Snapshot, check: Check) -> Vec<String> {
    let findings = diagnosis(snapshot).findings;
    let of_check = findings.iter().filter(|finding| finding.check == check);
    let text = |finding: &Finding| {
        assert!(!finding.repair.is_empty(), "{finding:?}");
        format!(
            "{} {}: {}",
            finding.severity.word(),
            finding.object,
            finding.problem
        )
    };
    of_check.map(text).collect()
}

#[test]
fn each_check_is_made_once() {
    let schema = schema_for!(Check);
    let all = schema.get("oneOf").and_then(Value::as_array).unwrap();
    let listed: Vec<Check> = CHECKS
        .iter()
        .flat_map(|(checks, _)| *checks)
        .copied()
        .collect();
    let distinct: BTreeSet<Check> = listed.iter().copied().collect();
    assert_eq!((listed.len(), distinct.len()), (all.len(), all.len()));
}

#[test]
fn findings_of_the_provider_are_first() {
    let mut snapshot = with(&[], &[], &[claim("a", 60, "PoolNotReady")]);
    snapshot.leases = Readable::complete(vec![lease("a", 600)]);
    let checks: Vec<_> = diagnosis(&snapshot)
        .findings
        .iter()
        .map(|finding| finding.check)
        .collect();
    assert_eq!(checks, [Check::NoLeader, Check::MissingPool]);
}

#[test]
fn missing_lease_is_a_note_without_leader_election() {
    let none = "lease 7bb7acb4.ipam.cluster.x-k8s.io: it does not exist: no manager runs with leader election";
    let old =
        "error lease a/7bb7acb4.ipam.cluster.x-k8s.io: nobody renews it; pod-1 was the last holder";
    for (leases, deployments, expected) in [
        (vec![], vec![], vec![format!("note {none}")]),
        (
            vec![],
            vec![deployment(2, 2, true)],
            vec![format!("error {none}")],
        ),
        (vec![], vec![deployment(1, 1, false)], vec![]),
        (vec![lease("a", 20)], vec![], vec![]),
        (vec![lease("a", 46)], vec![], vec![old.to_owned()]),
        (vec![lease("a", 46), lease("b", 1)], vec![], vec![]),
    ] {
        let snapshot = Snapshot {
            leases: Readable::complete(leases),
            deployments: Readable::complete(deployments),
            ..empty()
        };
        assert_eq!(found(&snapshot, Check::NoLeader), expected);
    }
}

#[test]
fn replicas_that_are_not_ready_are_found() {
    for (deployment, expected) in [
        (deployment(2, 2, true), None),
        (
            deployment(2, 1, true),
            Some("warning deployment system/manager: 1 of 2 replicas are ready"),
        ),
        (
            deployment(2, 0, true),
            Some("error deployment system/manager: 0 of 2 replicas are ready"),
        ),
        (
            deployment(0, 0, true),
            Some(
                "error deployment system/manager: it is scaled to 0 replicas, so no claim is served",
            ),
        ),
    ] {
        let snapshot = Snapshot {
            deployments: Readable::complete(vec![deployment]),
            ..empty()
        };
        let found = found(&snapshot, Check::ReplicasNotReady);
        assert_eq!(found.first().map(String::as_str), expected);
    }
}

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
fn certificates_are_compared_with_time_and_authority() {
    let row = |secret: &str, hours: i64, is_trusted| CertificateRow {
        namespace: "system".to_owned(),
        secret: secret.to_owned(),
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
    assert_eq!(
        found(&snapshot, Check::WebhookMissing),
        Vec::<String>::new()
    );
    let state_of = |snapshot: &Snapshot, part| {
        let lines = parts(&diagnosis(snapshot), snapshot, &Alerts::NoOperator);
        let line = lines.into_iter().find(|line| line.part == part).unwrap();
        (line.state, line.detail)
    };
    snapshot.deployments = Readable::complete(vec![serving(WebhookMode::SelfManaged)]);
    let problem = "the webhook configuration is missing, so pools are checked by the CustomResourceDefinitions only";
    let object =
        "validatingwebhookconfiguration capi-ipam-in-cluster-validating-webhook-configuration";
    let text = format!("warning {object}: {problem}");
    assert_eq!(found(&snapshot, Check::WebhookMissing), [text]);
    let warning = (PartState::Warning, format!("warning: {object}: {problem}"));
    assert_eq!(state_of(&snapshot, Part::Webhooks), warning);
    assert_eq!(state_of(&snapshot, Part::Certificate).0, PartState::Unknown);

    snapshot.webhooks = Readable::complete(vec![webhook(Ok(()), Vec::new())]);
    assert_eq!(
        found(&snapshot, Check::CertificateInvalid),
        [
            "warning service system/webhook: no Secret has the certificate of the webhooks, so a replica that starts \
             cannot serve them"
        ]
    );
    assert_eq!(state_of(&snapshot, Part::Certificate).0, PartState::Warning);
    snapshot.deployments = Readable::complete(vec![serving(WebhookMode::Off)]);
    assert_eq!(state_of(&snapshot, Part::Certificate).0, PartState::Ok);
}

#[test]
fn status_does_not_count_what_is_not_served() {
    let mut snapshot = empty();
    snapshot.definitions = vec![DefinitionRow {
        group: GROUP,
        plural: "ipreservations",
        is_of_contract: false,
        versions: Vec::new(),
        is_supported: false,
    }];
    let released = LeaseRow {
        holder: Some(String::new()),
        ..lease("system", 0)
    };
    snapshot.leases = Readable::complete(vec![released]);
    let lines = parts(&diagnosis(&snapshot), &snapshot, &Alerts::NoOperator);
    let detail = |part| lines.iter().find(|line| line.part == part).unwrap();
    let sweeper = detail(Part::Sweeper);
    assert_eq!(
        (sweeper.state, sweeper.detail.as_str()),
        (
            PartState::Unknown,
            "the API server does not serve ipreservations.ipam.cluster.x-k8s.io"
        )
    );
    let text = &detail(Part::Lease).detail;
    assert!(
        text.starts_with("no holder in system; the last one released the lease; error: "),
        "{text}"
    );
}

#[test]
fn several_active_managers_are_found() {
    let event = |instance: &str, age: i64| EventRow {
        instance: instance.to_owned(),
        time: ago(age),
    };
    let events = |all: &[(&str, i64)]| all.iter().map(|(it, age)| event(it, *age)).collect();
    let none: Vec<EventRow> = Vec::new();
    for (leases, deployments, events, expected) in [
        (vec![lease("a", 1)], vec![], none.clone(), None),
        (
            vec![lease("a", 1), lease("b", 1)],
            vec![],
            none.clone(),
            Some("note lease"),
        ),
        (
            vec![lease("a", 1), lease("b", 99)],
            vec![],
            none.clone(),
            None,
        ),
        (
            vec![],
            vec![deployment(2, 2, false)],
            none.clone(),
            Some("warning deployment system/manager"),
        ),
        (vec![], vec![deployment(2, 2, true)], none.clone(), None),
        (vec![], vec![deployment(1, 1, false)], none, None),
        // Restarts.
        (
            vec![],
            vec![],
            events(&[("x", 9), ("y", 8), ("z", 7)]),
            None,
        ),
        (
            vec![],
            vec![],
            events(&[("x", 99), ("x", 9), ("y", 8), ("y", 7), ("z", 6)]),
            None,
        ),
        // A handover between nodes whose clocks differ.
        (
            vec![],
            vec![],
            events(&[("x", 9), ("x", 8), ("y", 8), ("y", 7)]),
            None,
        ),
        // Restarts after it are not part of it.
        (
            vec![],
            vec![],
            events(&[("x", 9), ("y", 8), ("x", 7), ("z", 6), ("v", 5)]),
            Some(
                "warning managers: y and x both wrote events until 03:03:58 UTC; this warning ends 10 minutes after",
            ),
        ),
        (
            vec![],
            vec![],
            events(&[("x", 909), ("y", 908), ("x", 907), ("y", 906)]),
            None,
        ),
    ] {
        let snapshot = Snapshot {
            leases: Readable::complete(leases),
            deployments: Readable::complete(deployments),
            events: Readable::complete(events),
            ..empty()
        };
        let found = found(&snapshot, Check::SeveralManagers);
        let is_expected = match expected {
            Some(start) => found.first().is_some_and(|text| text.starts_with(start)),
            None => found.is_empty(),
        };
        assert!(is_expected, "{found:?} instead of {expected:?}");
    }
}

#[test]
fn waiting_claims_have_one_finding_for_each_cause() {
    let usual = || pool("p", &range("10.0.0.1-10.0.0.3"));
    let of_pool = |claims: &[Value], pool: Value| {
        let snapshot = with(&[pool], &[], claims);
        let waiting = diagnosis(&snapshot).waiting;
        assert_eq!(waiting, u64::try_from(claims.len()).ok());
        let findings = diagnosis(&snapshot).findings;
        let texts: Vec<String> = findings
            .iter()
            .map(|it| {
                format!(
                    "{} {:?} {}: {}",
                    it.severity.word(),
                    it.check,
                    it.object,
                    it.problem
                )
            })
            .collect();
        texts
    };
    let two = |reason: &str| [claim("a", 60, reason), claim("b", 90, reason)];
    for (claims, pool, expected) in [
        (
            &two("PoolExhausted")[..],
            exhausted(usual()),
            "error PoolExhausted InClusterIPPool n/p: no free address (3 in total, 3 in use); 2 claims wait (n/a, n/b)",
        ),
        (
            &[],
            exhausted(usual()),
            "note PoolExhausted InClusterIPPool n/p: no free address (3 in total, 3 in use)",
        ),
        (
            &two("PoolExhausted"),
            usual(),
            "error ClaimsWait InClusterIPPool n/p: 2 claims wait (n/b, n/a) with the reason PoolExhausted: about it",
        ),
        (
            &two("ClusterNotFound"),
            usual(),
            "error ClusterNotFound Cluster n/prod: it does not exist; 2 claims wait (n/a, n/b)",
        ),
        (
            &two("Paused"),
            usual(),
            "warning Paused Cluster n/prod: it is paused; 2 claims wait (n/a, n/b)",
        ),
        (
            &two("Paused"),
            paused(usual()),
            "warning Paused InClusterIPPool n/p: it is paused; 2 claims wait (n/a, n/b)",
        ),
        (
            &two("PoolNotReady"),
            paused(usual()),
            "warning Paused InClusterIPPool n/p: it is paused; 2 claims wait (n/a, n/b)",
        ),
        (
            &[paused(claim("a", 60, "Paused"))],
            usual(),
            "warning Paused ipaddressclaim n/a: it is paused; 1 claim waits (n/a)",
        ),
        (
            &[],
            paused(usual()),
            "note Paused InClusterIPPool n/p: it is paused",
        ),
        (
            &two(""),
            usual(),
            "error NotReconciled claims of InClusterIPPool n/p: 2 claims wait (n/a, n/b) without any condition: no \
          manager has processed them",
        ),
        (
            &[claim("a", 60, "PoolNotReady")],
            deleted(usual(), 30, &[]),
            "warning PoolDeleting InClusterIPPool n/p: it is being deleted, and no address is in use; 1 claim waits (n/a) \
          for a pool that allocates nothing",
        ),
    ] {
        assert_eq!(of_pool(claims, pool), [expected]);
    }
    assert_eq!(of_pool(&[claim("a", 5, "")], usual()), Vec::<String>::new());
}

#[test]
fn paused_pool_names_the_claims_that_it_keeps() {
    let mut kept = claim("a", 60, "");
    kept["status"]["addressRef"] = json!({"name": "a"});
    let kept = deleted(kept, 60, &["ipam.cluster.x-k8s.io/ReleaseAddress"]);
    let snapshot = with(&[paused(pool("p", &range("10.0.0.1")))], &[], &[kept]);
    let text =
        "warning InClusterIPPool n/p: it is paused; 1 claim in deletion is not released (n/a)";
    assert_eq!(found(&snapshot, Check::Paused), [text]);
    let none = Vec::<String>::new();
    assert_eq!(found(&snapshot, Check::NotReconciled), none);
}

#[test]
fn restored_claim_keeps_its_address_by_a_reservation() {
    let claims = [claim("a", 60, "AwaitingAddress")];
    let snapshot = with(&[pool("p", &range("10.0.0.1"))], &[], &claims);
    let findings = diagnosis(&snapshot).findings;
    let repairs: Vec<&str> = findings.iter().map(|it| it.repair.as_str()).collect();
    let expected = "restore its IPAddress; to keep the old address without it: kubectl ipam reserve InClusterIPPool/p \
                    ADDRESS --namespace n --for n/a, and then remove the finalizer \
                    ipam.cluster.x-k8s.io/ReleaseAddress from the claim";
    assert_eq!(repairs, [expected]);
}

#[test]
fn oldest_claim_is_the_age_of_a_finding() {
    let claims = [
        claim("a", 60, "PoolExhausted"),
        claim("b", 90, "PoolExhausted"),
    ];
    let snapshot = with(
        &[exhausted(pool("p", &range("10.0.0.1-10.0.0.3")))],
        &[],
        &claims,
    );
    let findings = diagnosis(&snapshot).findings;
    assert_eq!(findings[0].since, Some(ago(90)));
}

#[test]
fn pool_that_no_manager_has_processed_is_found() {
    let mut unprocessed = pool("p", &range("10.0.0.1"));
    unprocessed["status"] = json!({});
    let mut snapshot = with(&[unprocessed], &[], &[]);
    assert_eq!(
        found(&snapshot, Check::NotReconciled),
        ["error InClusterIPPool n/p: it has no condition: no manager has processed it"]
    );
    snapshot.is_go_provider = true;
    assert_eq!(found(&snapshot, Check::NotReconciled), Vec::<String>::new());
}

#[test]
fn deletions_name_what_keeps_the_object() {
    let used = [address("x", "p", "10.0.0.1"), address("y", "p", "10.0.0.2")];
    let pools = [deleted(pool("p", &range("10.0.0.1-10.0.0.3")), 30, &[])];
    let bound = |name: &str| {
        let mut claim = claim(name, 60, "");
        claim["status"]["addressRef"] = json!({"name": name});
        claim
    };
    let snapshot = with(&pools, &used, &[bound("x"), bound("y")]);
    assert_eq!(
        found(&snapshot, Check::PoolDeleting),
        [
            "warning InClusterIPPool n/p: it is being deleted, and waits until 2 claims release its addresses (n/x, n/y)"
        ]
    );
    let own = [
        "ipam.cluster.x-k8s.io/ReleaseAddress",
        "ipam.cluster.x-k8s.io/ProtectAddress",
    ];
    let foreign = ["example.com/b", own[0], own[1], "example.com/a"];
    let text = "it is being deleted, and its address stays allocated until other controllers remove 2 finalizers: \
                example.com/b, example.com/a";
    for (object, expected) in [
        (
            deleted(bound("x"), 60, &foreign),
            Some(format!("note ipaddressclaim n/x: {text}")),
        ),
        (
            deleted(bound("x"), 6000, &foreign),
            Some(format!("warning ipaddressclaim n/x: {text}")),
        ),
        (deleted(bound("x"), 6000, &own), None),
    ] {
        let snapshot = with(&[], &used, &[object]);
        assert_eq!(
            found(&snapshot, Check::ReleaseBlocked).first(),
            expected.as_ref()
        );
    }
    let snapshot = with(&[], &[deleted(used[0].clone(), 60, &foreign)], &[]);
    assert_eq!(
        found(&snapshot, Check::ReleaseBlocked),
        [format!("note ipaddress n/x: {text}")]
    );
    let mut snapshot = with(&[], &[], &[deleted(bound("x"), 60, &foreign)]);
    snapshot.deleted_namespaces = ["n".to_owned()].into();
    let waits = "; the namespace, which is being deleted, waits for it";
    assert_eq!(
        found(&snapshot, Check::ReleaseBlocked),
        [format!("note ipaddressclaim n/x: {text}{waits}")]
    );
    let findings = diagnosis(&snapshot).findings;
    let blocked = findings
        .iter()
        .find(|it| it.check == Check::ReleaseBlocked)
        .unwrap();
    assert!(
        blocked.repair.contains(
            "kubectl annotate ipaddressclaims.ipam.cluster.x-k8s.io x --namespace n \
             ipam.cluster.x-k8s.io/release-now=UID"
        ),
        "{}",
        blocked.repair
    );
    let unreleased = with(&[], &[], &[deleted(bound("x"), 60, &own)]);
    assert_eq!(
        found(&unreleased, Check::NotReconciled),
        ["error ipaddressclaim n/x: it is being deleted, and no manager has released its address"]
    );
}

#[test]
fn overlapping_pools_are_one_finding() {
    let pools = [
        pool("a", &range("10.0.0.1-10.0.0.9")),
        pool("b", &range("10.0.0.5-10.0.0.20")),
        pool("m/c", &range("10.0.0.20-10.0.0.30")),
        pool("d", &range("10.0.0.40")),
    ];
    let text = "warning InClusterIPPool m/c: the same addresses, such as 10.0.0.20, can be allocated by InClusterIPPool \
                n/a, InClusterIPPool n/b, so two machines can get one address";
    let mut snapshot = with(&pools, &[], &[]);
    let overlaps = found(&snapshot, Check::PoolsOverlap);
    assert_eq!(overlaps.len(), 1, "{overlaps:?}");
    snapshot.pools = snapshot.pools.map(|mut pools| {
        pools.sort_by(|a, b| a.key.cmp(&b.key));
        pools
    });
    assert_eq!(found(&snapshot, Check::PoolsOverlap), [text]);
}

#[test]
fn address_in_use_in_two_pools_is_an_error() {
    let pools = |one: &Value, other: &Value| {
        let (mut a, mut b) = (range("10.0.0.1-10.0.0.9"), range("10.0.0.1-10.0.0.9"));
        a["network"] = one.clone();
        b["network"] = other.clone();
        [pool("a", &a), pool("m/b", &b)]
    };
    let used = [
        address("x", "a", "10.0.0.1"),
        address("y", "a", "10.0.0.2"),
        address("z", "a", "10.0.0.3"),
        address("x", "m/b", "10.0.0.1"),
        address("y", "m/b", "10.0.0.2"),
    ];
    let text = "error address 10.0.0.1: 10.0.0.1 is in use by m/x (InClusterIPPool m/b) and n/x (InClusterIPPool n/a), \
                whose pools overlap; so are 1 more of their addresses";
    let one = json!("one");
    let snapshot = with(&pools(&Value::Null, &Value::Null), &used, &[]);
    assert_eq!(found(&snapshot, Check::DuplicateAddress), [text]);
    // In one network it is one scope. In two, the administrator has declared that they do not meet.
    let snapshot = with(&pools(&one, &json!("two")), &used, &[]);
    assert_eq!(
        found(&snapshot, Check::DuplicateAddress),
        Vec::<String>::new()
    );
    let snapshot = with(&pools(&one, &Value::Null), &used, &[]);
    assert_eq!(found(&snapshot, Check::DuplicateAddress).len(), 1);
}

#[test]
fn gateway_outside_of_the_subnet_is_found() {
    for (gateway, expected) in [
        (json!("10.0.0.1"), None),
        (Value::Null, None),
        (
            json!("10.99.0.1"),
            Some("10.99.0.1 is outside of the subnet 10.0.0.0/24"),
        ),
        (
            json!("10.0.0.0"),
            Some("10.0.0.0 is the network address of the subnet 10.0.0.0/24"),
        ),
        (
            json!(""),
            Some("is empty: IPAddresses have no gateway; remove the field if this is intended"),
        ),
    ] {
        let mut spec = range("10.0.0.10");
        spec["gateway"] = gateway;
        let snapshot = with(&[pool("p", &spec)], &[], &[]);
        let expected: Vec<String> = expected
            .into_iter()
            .map(|text| format!("warning InClusterIPPool n/p: spec.gateway: {text}"))
            .collect();
        assert_eq!(found(&snapshot, Check::UnusableGateway), expected);
    }
}

#[test]
fn addresses_with_the_old_gateway_are_found() {
    let mut spec = range("10.0.0.10-10.0.0.20");
    spec["gateway"] = json!("10.0.0.1");
    spec["ranges"] = json!([{"addresses": ["10.1.0.10-10.1.0.20"], "prefix": 16}]);
    let with_gateway = |name: &str, text: &str, gateway: &str| {
        let mut address = address(name, "p", text);
        address["spec"]["gateway"] = json!(gateway);
        address
    };
    let mut right = address("right", "p", "10.1.0.10");
    right["spec"]["prefix"] = json!(16);
    let addresses = [
        with_gateway("a", "10.0.0.10", "10.0.0.9"),
        with_gateway("b", "10.0.0.11", "10.0.0.9"),
        with_gateway("good", "10.0.0.12", "10.0.0.1"),
        address("none", "p", "10.0.0.13"),
        // Another finding is about addresses that the pool does not contain.
        address("outside", "p", "10.9.0.1"),
        deleted(address("gone", "p", "10.0.0.14"), 5, &[]),
        right,
        address("short", "p", "10.1.0.11"),
    ];
    let snapshot = with(&[pool("p", &spec)], &addresses, &[]);
    let pool = "warning InClusterIPPool n/p";
    assert_eq!(
        found(&snapshot, Check::OutdatedGateway),
        [
            format!(
                "{pool}: 1 IPAddress has another gateway than the pool (none, the pool has 10.0.0.1): n/none"
            ),
            format!(
                "{pool}: 2 IPAddresses have another gateway than the pool (10.0.0.9, the pool has 10.0.0.1): n/a, n/b"
            ),
            format!(
                "{pool}: 1 IPAddress has another prefix length than the pool (/24, the pool has /16): n/short"
            ),
        ]
    );
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
    deployment.account.rules = Readable::part(None, vec![right]);
    let snapshot = Snapshot {
        deployments: Readable::complete(vec![deployment]),
        ..empty()
    };
    let reason = unchecked(&snapshot).unwrap();
    assert!(
        reason.contains("you may not impersonate serviceaccounts"),
        "{reason}"
    );
    assert_eq!(
        found(&snapshot, Check::MissingPermission),
        Vec::<String>::new()
    );
}

#[test]
fn notes_are_no_problems() {
    let snapshot = with(&[paused(pool("p", &range("10.0.0.1")))], &[], &[]);
    let list = diagnosis(&snapshot);
    let severities: Vec<_> = list.findings.iter().map(|it| it.severity).collect();
    assert_eq!(
        (severities, list.has_problems()),
        (vec![Severity::Note], false)
    );
}
