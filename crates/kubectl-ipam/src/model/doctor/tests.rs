//! Tables of the checks: what is in the cluster, and what they find.

mod addressings;
mod claims;
mod duplicates;
mod installation;
mod pool_sets;
mod pools;
mod provider;
mod registries;
mod selection;
mod webhooks;

use std::collections::BTreeSet;

use capi_ipam_api::Pool;
use capi_ipam_provider::api::{IPAddress, IPAddressClaim};
use jiff::{SignedDuration, Timestamp};
use schemars::schema_for;
use serde_json::{Value, json};

use super::snapshot::{
    CertificateFacts, CertificateRow, ConversionRow, DefinitionRow, DeploymentRow, EventRow,
    PodRow, ServedDefinition, WebhookMode, WebhookRow,
};
use super::*;
use crate::error::MissingRight;
use crate::load::Readable;
use crate::model::finding::{Finding, Severity, word};
use crate::model::{Part, PartState, parts};
use crate::objects::{AddressRow, ClaimRow, Objects, PoolRow};

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
        running: Vec::new(),
        served: Readable::complete(Vec::new()),
        webhooks: Readable::complete(Vec::new()),
        events: Readable::complete(Vec::new()),
        objects: Objects::default(),
        registries: Readable::complete(Vec::new()),
        addressings: Readable::complete(Vec::new()),
        untrusted_mutations: Readable::complete(Vec::new()),
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
        ClaimRow::served(&claim)
    };
    let claims: Vec<ClaimRow> = claims.iter().map(claim).collect();
    Snapshot {
        objects: Objects::of(
            pools.iter().map(pool),
            addresses.iter().map(address),
            [],
            claims,
        ),
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
    let conditions = if reason.is_empty() {
        json!([])
    } else {
        json!([not_ready(reason)])
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
        account: "manager".to_owned(),
        rules: Readable::complete(Some(Vec::new())),
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
            word(finding.severity),
            finding.object,
            finding.problem
        )
    };
    of_check.map(text).collect()
}

/// The first finding of a check.
fn finding(snapshot: &Snapshot, check: Check) -> Finding {
    let findings = diagnosis(snapshot).findings;
    let mut of_check = findings.into_iter().filter(|it| it.check == check);
    of_check.next().expect("the check finds something")
}

/// A condition Ready that is False.
fn not_ready(reason: &str) -> Value {
    json!({"type": "Ready", "status": "False", "reason": reason, "message": "about it"})
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
    let lines = parts(&diagnosis(&snapshot), &snapshot);
    let detail = |part| lines.iter().find(|line| line.part == part).unwrap();
    let sweeper = detail(Part::Sweeper);
    assert_eq!(
        (sweeper.state, sweeper.detail.as_str()),
        (
            PartState::Unknown,
            "the API server does not serve ipreservations.ipam.cluster.x-k8s.io"
        )
    );
    let lease = detail(Part::Lease);
    assert_eq!(
        lease.detail,
        "no holder in system; the last one released the lease"
    );
    assert_eq!(lease.state, PartState::Error);
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
