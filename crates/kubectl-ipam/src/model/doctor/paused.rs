//! What is paused: Clusters, claims and pools.

use std::collections::BTreeMap;

use capi_ipam_api::{PoolKey, advice, conditions, names};
use capi_ipam_controller::namespaced_name::NamespacedName;

use super::examination::Examination;
use super::names::{claims_wait, first_names, of_claims};
use super::snapshot::Snapshot;
use crate::model::finding::{Check, Finding, Severity, Subject, counted, resource_of};
use crate::objects::{ClaimRow, Kind, Objects, PoolRow};

/// An object that is paused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Paused<'a> {
    Cluster(NamespacedName),
    Claim(&'a NamespacedName),
    Pool(&'a PoolKey),
}

/// What is paused although claims wait for it, as a warning, and other paused pools, as a note. A
/// paused Cluster whose claims are bound does no harm.
pub(super) fn paused(snapshot: &Snapshot) -> Examination {
    let objects = &snapshot.objects;
    Examination::compare(objects.lacking_of_pools_and(&[Kind::Claim]), || {
        findings(objects)
    })
}

fn findings(objects: &Objects) -> Vec<Finding> {
    let is_paused_pool = |key: &PoolKey| objects.pool(key).is_some_and(|pool| pool.paused);
    let mut held: BTreeMap<Paused<'_>, Vec<&ClaimRow>> = BTreeMap::new();
    for pool in objects.pools() {
        if pool.paused {
            held.entry(Paused::Pool(&pool.key)).or_default();
        }
    }
    // A claim for a pool that was paused before it was ready has another reason, and one in deletion
    // can have none.
    let is_paused = |claim: &&ClaimRow| {
        let says_so = claim.reason.as_deref() == Some(conditions::PAUSED_REASON);
        says_so || (claim.is_waiting() || claim.is_deleting()) && is_paused_pool(&claim.pool)
    };
    for claim in objects.served().into_iter().filter(is_paused) {
        let cause = cause(claim, is_paused_pool(&claim.pool));
        held.entry(cause).or_default().push(claim);
    }
    let finding = |(object, claims): (Paused<'_>, Vec<&ClaimRow>)| {
        let is_deleted = match &object {
            Paused::Pool(key) => objects.pool(key).is_some_and(PoolRow::is_deleting),
            Paused::Cluster(_) | Paused::Claim(_) => false,
        };
        finding(&object, &claims, is_deleted)
    };
    held.into_iter().map(finding).collect()
}

fn cause(claim: &ClaimRow, is_paused_pool: bool) -> Paused<'_> {
    if claim.paused {
        return Paused::Claim(&claim.key);
    }
    match &claim.cluster {
        Some(cluster) if !is_paused_pool => {
            Paused::Cluster(NamespacedName::new(claim.key.namespace(), cluster))
        }
        _ => Paused::Pool(&claim.pool),
    }
}

fn finding(object: &Paused<'_>, claims: &[&ClaimRow], is_deleted: bool) -> Finding {
    let (subject, repair) = match object {
        Paused::Cluster(key) => {
            let subject = of_claims(format!("Cluster {key}"), claims.iter().copied());
            (subject, unpause_cluster(key))
        }
        Paused::Claim(key) => {
            let (namespace, name) = key.parts();
            let resource = format!(
                "ipaddressclaims.{} {name} --namespace {namespace}",
                names::GROUP
            );
            (Subject::of_claim(key), unpause(&resource))
        }
        Paused::Pool(key) => (Subject::from(*key), unpause(&resource_of(key))),
    };
    let mut problem = "it is paused".to_owned();
    if is_deleted {
        problem = format!("{problem}, so that it is not deleted");
    }
    let waiting: Vec<&ClaimRow> = claims
        .iter()
        .copied()
        .filter(|it| it.is_waiting())
        .collect();
    if !waiting.is_empty() {
        problem = format!("{problem}; {}", claims_wait(waiting.iter().copied()));
    }
    let kept: Vec<&ClaimRow> = claims
        .iter()
        .copied()
        .filter(|it| it.is_deleting())
        .collect();
    if !kept.is_empty() {
        let names = first_names(kept.iter().map(|claim| &claim.key));
        let number = counted(kept.len(), "claim");
        let verb = if kept.len() == 1 { "is" } else { "are" };
        problem = format!("{problem}; {number} in deletion {verb} not released ({names})");
    }
    let does_harm = is_deleted || !waiting.is_empty() || !kept.is_empty();
    let severity = if does_harm {
        Severity::Warning
    } else {
        Severity::Note
    };
    let since = waiting.iter().filter_map(|claim| claim.created).min();
    Check::Paused
        .finding(subject, problem, repair)
        .at(severity)
        .since(since)
}

fn unpause(resource: &str) -> String {
    format!(
        "{}: kubectl annotate {resource} {}-",
        advice::PAUSED,
        names::PAUSED_ANNOTATION
    )
}

fn unpause_cluster(key: &NamespacedName) -> String {
    let (namespace, name) = key.parts();
    let resource = format!("clusters.cluster.x-k8s.io {name} --namespace {namespace}");
    format!(
        "{}; kubectl patch {resource} --type merge --patch '{{\"spec\":{{\"paused\":false}}}}'",
        unpause(&resource)
    )
}
