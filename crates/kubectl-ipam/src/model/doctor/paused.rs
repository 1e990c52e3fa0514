//! What is paused: Clusters, claims, pools and sets of pools.

use std::collections::BTreeMap;

use capi_ipam_api::{NamedPool, PoolKey, PoolSetKey, advice, conditions, counted, names};
use capi_ipam_controller::namespaced_name::NamespacedName;

use super::examination::Examination;
use super::names::{claim_names, claim_resource, claims_wait, of_claims, oldest};
use super::snapshot::Snapshot;
use crate::model::finding::{Check, Finding, Severity, Subject, resource_of, resource_of_set};
use crate::objects::{ClaimRow, Kind, Objects, PoolRow};

/// An object that is paused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Paused<'a> {
    Cluster(NamespacedName),
    Claim(&'a NamespacedName),
    Pool(&'a PoolKey),
    Set(&'a PoolSetKey),
}

/// What is paused although claims wait for it, as a warning, and other paused pools and sets, as a
/// note. A paused Cluster whose claims are bound does no harm.
pub(super) fn paused(snapshot: &Snapshot) -> Examination {
    let objects = &snapshot.objects;
    Examination::compare(objects.lacking_of_pools_and(&[Kind::Claim]), || {
        findings(objects)
    })
}

fn findings(objects: &Objects) -> Vec<Finding> {
    let mut held: BTreeMap<Paused<'_>, Vec<&ClaimRow>> = BTreeMap::new();
    for pool in objects.pools() {
        if pool.paused {
            held.entry(Paused::Pool(&pool.key)).or_default();
        }
    }
    for set in objects.pool_sets().filter(|set| set.paused) {
        held.entry(Paused::Set(&set.key)).or_default();
    }
    for claim in objects.served() {
        // A claim for a pool that was paused before it was ready has another reason, and one in
        // deletion can have none.
        let says_so = claim.reason.as_deref() == Some(conditions::PAUSED_REASON);
        let pool = paused_pool(claim, objects);
        let needs_pool = claim.is_waiting() || claim.is_deleting();
        if says_so || needs_pool && pool.is_some() {
            let cause = cause(claim, pool);
            held.entry(cause).or_default().push(claim);
        }
    }
    let mut findings = Vec::new();
    for (object, claims) in held {
        findings.push(finding(&object, &claims, objects));
    }
    findings
}

/// The set or the pool of a claim that is paused.
fn paused_pool<'a>(claim: &'a ClaimRow, objects: &'a Objects) -> Option<Paused<'a>> {
    if let Ok(NamedPool::Set(key)) = &claim.pool
        && objects.pool_sets().any(|set| set.key == *key && set.paused)
    {
        return Some(Paused::Set(key));
    }
    let pool = objects.pool_of(claim).and_then(|key| objects.pool(key))?;
    pool.paused.then_some(Paused::Pool(&pool.key))
}

/// Whether the pool or the set of a claim is paused.
pub(super) fn has_paused_pool(claim: &ClaimRow, objects: &Objects) -> bool {
    paused_pool(claim, objects).is_some()
}

fn cause<'a>(claim: &'a ClaimRow, pool: Option<Paused<'a>>) -> Paused<'a> {
    if claim.paused {
        return Paused::Claim(&claim.key);
    }
    match (pool, &claim.cluster, &claim.pool) {
        (Some(pool), ..) => pool,
        (None, Some(cluster), _) => {
            Paused::Cluster(NamespacedName::new(claim.key.namespace(), cluster))
        }
        (None, None, Ok(NamedPool::Pool(pool))) => Paused::Pool(pool),
        (None, None, Ok(NamedPool::Set(set))) => Paused::Set(set),
        (None, None, Err(_)) => Paused::Claim(&claim.key),
    }
}

fn finding(object: &Paused<'_>, claims: &[&ClaimRow], objects: &Objects) -> Finding {
    let mut is_deleted = false;
    let (subject, repair) = match object {
        Paused::Cluster(key) => (
            of_claims(format!("Cluster {key}"), claims, objects),
            unpause_cluster(key),
        ),
        Paused::Claim(key) => (Subject::claim(key), unpause(&claim_resource(key))),
        Paused::Pool(key) => {
            is_deleted = objects.pool(key).is_some_and(PoolRow::is_deleting);
            (Subject::pool(key), unpause(&resource_of(key)))
        }
        Paused::Set(key) => (Subject::pool_set(key), unpause(&resource_of_set(key))),
    };
    let mut problem = "it is paused".to_owned();
    if is_deleted {
        problem = format!("{problem}, so that it is not deleted");
    }
    let mut waiting = claims.to_vec();
    waiting.retain(|claim| claim.is_waiting());
    if !waiting.is_empty() {
        problem = format!("{problem}; {}", claims_wait(&waiting));
    }
    let mut kept = claims.to_vec();
    kept.retain(|claim| claim.is_deleting());
    if !kept.is_empty() {
        let names = claim_names(&kept);
        let number = counted(kept.len(), "claim in deletion is", "claims in deletion are");
        problem = format!("{problem}; {number} not released ({names})");
    }
    let finding = Check::Paused.finding(subject, problem, repair);
    let finding = finding.since(oldest(&waiting));
    let does_harm = is_deleted || !waiting.is_empty() || !kept.is_empty();
    if does_harm {
        finding
    } else {
        finding.at(Severity::Note)
    }
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
