//! Claims that wait, by their cause. A cause has one finding, whatever number of claims waits for
//! it: [`check_of`] decides which check reports a claim.

use capi_ipam_api::{NamedPool, PoolKey, advice, conditions, installed, names};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::examination::Examination;
use super::manifest::logs;
use super::names::{
    MAX_NAMED, claim_names, claim_resource, claims_wait, describe_claim, grouped, of_claim,
    of_claims, oldest, places,
};
use super::paused::has_paused_pool;
use super::snapshot::Snapshot;
use crate::model::finding::{Check, Finding, Severity, Subject, edit, resource_of_set};
use crate::objects::{ClaimRow, Kind, PoolRow};

/// Age from which a manager should have processed a claim or a pool.
const MAX_UNPROCESSED: SignedDuration = SignedDuration::from_secs(10);

/// The check that reports why a claim waits; `None` if it was created just now, or if other checks
/// report it: the pool does not exist or is being deleted, or something is paused.
fn check_of(claim: &ClaimRow, snapshot: &Snapshot) -> Option<Check> {
    let objects = &snapshot.objects;
    let key = claim.named_pool();
    let pool = key.and_then(|key| objects.pool(key));
    let is_missing = key.is_some() && pool.is_none() && objects.has(&Kind::POOLS);
    if is_missing || has_paused_pool(claim, objects) {
        return None;
    }
    let Some(reason) = claim.reason.as_deref() else {
        return is_old(claim.created, snapshot.now).then_some(Check::NotReconciled);
    };
    match (reason, pool) {
        (conditions::PAUSED_REASON, _) => None,
        (conditions::CLUSTER_NOT_FOUND, _) => Some(Check::ClusterNotFound),
        (_, Some(pool)) if pool.is_deleting() => None,
        (conditions::POOL_EXHAUSTED, Some(pool)) if pool.is_exhausted() => {
            Some(Check::PoolExhausted)
        }
        _ => Some(Check::ClaimsWait),
    }
}

/// Whether a manager should have processed an object that was created at a time.
pub(crate) fn is_old(created: Option<Timestamp>, now: Timestamp) -> bool {
    created.is_some_and(|created| now.duration_since(created) > MAX_UNPROCESSED)
}

/// The waiting claims that a check reports.
fn waiting(snapshot: &Snapshot, check: Check) -> Vec<&ClaimRow> {
    let mut claims = snapshot.objects.served();
    claims.retain(|claim| claim.is_waiting() && check_of(claim, snapshot) == Some(check));
    claims
}

/// Checks of claims and pools. Without all of them, another check could be the right one.
fn of_all(snapshot: &Snapshot, find: impl FnOnce() -> Vec<Finding>) -> Examination {
    Examination::compare(snapshot.objects.lacking_of_pools_and(&[Kind::Claim]), find)
}

/// Pools without a free address.
pub(super) fn exhausted(snapshot: &Snapshot) -> Examination {
    of_all(snapshot, || {
        let of_pool = grouped(waiting(snapshot, Check::PoolExhausted), |it| {
            it.named_pool()
        });
        let mut pools = snapshot.objects.pools();
        pools.retain(|pool| pool.is_exhausted() && !pool.is_deleting() && !lacks_block(pool));
        let mut findings = Vec::new();
        for pool in pools {
            let claims = of_pool.get(&Some(&pool.key)).map(Vec::as_slice);
            findings.push(exhausted_pool(pool, claims.unwrap_or_default()));
        }
        findings
    })
}

/// Whether the pool waits for another block of its network. The claims that wait for it are another
/// finding.
fn lacks_block(pool: &PoolRow) -> bool {
    let reason = pool.exhausted_reason().unwrap_or_default();
    [
        conditions::WAITING_FOR_BLOCK,
        conditions::REGISTRY_UNREACHABLE,
    ]
    .contains(&reason)
}

fn exhausted_pool(pool: &PoolRow, claims: &[&ClaimRow]) -> Finding {
    let counts = pool.counts.unwrap_or_default();
    let described = advice::describe_counts(&counts, None);
    let mut problem = format!("no free address ({described})");
    if !claims.is_empty() {
        problem = format!("{problem}; {}", claims_wait(claims));
    }
    let repair = advice::exhausted(&counts, pool.network.is_some());
    let finding = Check::PoolExhausted
        .finding(Subject::pool(&pool.key), problem, repair)
        .with_commands([edit(&pool.key)])
        .since(oldest(claims));
    // A full pool for which no claim waits can have exactly the size that is needed.
    if claims.is_empty() {
        return finding.at(Severity::Note);
    }
    finding
}

/// Clusters that claims name, and that do not exist.
pub(super) fn missing_clusters(snapshot: &Snapshot) -> Examination {
    of_all(snapshot, || {
        let of_cluster = grouped(waiting(snapshot, Check::ClusterNotFound), |claim| {
            let name = claim.cluster.as_deref().unwrap_or_default();
            (claim.key.namespace(), name)
        });
        let mut findings = Vec::new();
        for ((namespace, name), claims) in of_cluster {
            let problem = format!("it does not exist; {}", claims_wait(&claims));
            let subject = of_claims(
                format!("Cluster {namespace}/{name}"),
                &claims,
                &snapshot.objects,
            );
            let list = format!("kubectl get clusters.cluster.x-k8s.io --namespace {namespace}");
            let finding = Check::ClusterNotFound
                .finding(subject, problem, advice::MISSING_CLUSTER)
                .with_commands([list]);
            findings.push(finding.since(oldest(&claims)));
        }
        findings
    })
}

/// Claims and pools that no manager has processed.
pub(super) fn not_reconciled(snapshot: &Snapshot) -> Examination {
    of_all(snapshot, || unprocessed(snapshot))
}

fn unprocessed(snapshot: &Snapshot) -> Vec<Finding> {
    let mut findings = Vec::new();
    let objects = &snapshot.objects;
    let waiting = waiting(snapshot, Check::NotReconciled);
    for (pool, claims) in grouped(waiting, |claim| claim.pool.as_ref().ok()) {
        let Some(pool) = pool else { continue };
        let problem = format!(
            "{} without any condition: no manager has processed them",
            claims_wait(&claims)
        );
        let subject = of_claims(format!("claims of {pool}"), &claims, objects);
        findings.push(unreconciled(subject, &problem, oldest(&claims)));
    }
    for claim in objects.served() {
        // That the claims of a paused pool are kept is another finding.
        if !has_paused_pool(claim, objects) {
            findings.extend(not_released(claim, snapshot));
        }
    }
    for pool in objects.pools() {
        if is_unprocessed(pool, snapshot.is_go_provider, snapshot.now) {
            let problem = "it has no condition: no manager has processed it";
            findings.push(unreconciled(
                Subject::pool(&pool.key),
                problem,
                pool.created,
            ));
        }
    }
    findings
}

/// Whether a manager should have processed a pool, and none has. The Go provider writes no
/// conditions of pools.
pub(crate) fn is_unprocessed(pool: &PoolRow, is_go_provider: bool, now: Timestamp) -> bool {
    let is_processed = is_go_provider || !pool.conditions.is_empty();
    let is_left_alone = pool.paused || pool.is_deleting();
    !is_processed && !is_left_alone && is_old(pool.created, now)
}

/// A claim in deletion that nothing but the manager keeps.
fn not_released(claim: &ClaimRow, snapshot: &Snapshot) -> Option<Finding> {
    let deletion = claim.deletion.as_ref()?;
    let waits_for_manager = deletion.blockers.is_empty() && claim.reason.is_none();
    if !waits_for_manager || !is_old(Some(deletion.since), snapshot.now) {
        return None;
    }
    let problem = if claim.bound.is_some() {
        "it is being deleted, and no manager has released its address"
    } else {
        "it is being deleted, and no manager has removed its finalizer"
    };
    let subject = of_claim(claim, &snapshot.objects);
    Some(unreconciled(subject, problem, Some(deletion.since)))
}

fn unreconciled(subject: Subject, problem: &str, since: Option<Timestamp>) -> Finding {
    let repair = "see whether the flags --namespace or --watch-filter of the manager exclude the objects, and what its \
                  log names";
    Check::NotReconciled
        .finding(subject, problem, repair)
        .with_commands([logs(installed::NAMESPACE)])
        .since(since)
}

/// What to do about claims that wait for another reason, and whether that is a change of the pool.
/// The page on conditions says the same.
fn repair_of_other(reason: &str) -> (&'static str, Target) {
    match reason {
        conditions::AWAITING_ADDRESS => (
            "restore the IPAddress of each claim; to keep its old address without it, reserve this ADDRESS for the claim, \
             and then remove the finalizer of the provider from the claim",
            Target::Claim,
        ),
        conditions::POOL_NOT_ALLOWED => (
            "allow the namespaces in spec.allowedNamespaces of the pool, or delete the claims, so that their controllers \
             create them with another pool",
            Target::Pool,
        ),
        conditions::QUOTA_EXCEEDED => (advice::LIMIT, Target::Pool),
        conditions::SLICE_LIMIT => (
            "release claims of the owner, or increase spec.slices.mostEach of the pool",
            Target::Pool,
        ),
        conditions::NO_FREE_SLICE => (advice::NO_FREE_SLICE, Target::Pool),
        conditions::POOL_NOT_READY => ("correct or unpause the pool", Target::Pool),
        conditions::POOL_EXHAUSTED => (
            "add addresses, or release those that the message names",
            Target::Pool,
        ),
        conditions::SLICE_OWNER_MISSING => (
            "set the label or the cluster name, by which the pool assigns its slices, in the template of the claims",
            Target::Claim,
        ),
        conditions::REQUESTED_ADDRESS_UNAVAILABLE => (
            "change or remove the request of the claim, or free the address",
            Target::Claim,
        ),
        conditions::ALLOCATION_FAILED => (
            "correct what the message names: a webhook, a quota, a policy, or the IPAddress; attempts continue",
            Target::Claim,
        ),
        conditions::DUPLICATE_ADDRESS => (advice::DUPLICATE, Target::Claim),
        conditions::WAITING_FOR_BLOCK => (
            "wait while another block is taken; if the registry has no free one, add addresses to the pools of the network, \
             or release blocks of other management clusters",
            Target::Registry,
        ),
        conditions::REGISTRY_UNREACHABLE => (
            "repair the registry, or the connection of the manager to it",
            Target::Registry,
        ),
        _ => ("see what each claim reports", Target::Claim),
    }
}

/// What the repair of waiting claims is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Claim,
    Pool,
    Registry,
}

/// The commands of the repair for one claim. The machine of a restored claim can use the old
/// address, so it has to be promised before the claim may get a new one.
fn commands_of_claim(claim: &ClaimRow, pool: &PoolKey, reason: &str) -> Vec<String> {
    if reason != conditions::AWAITING_ADDRESS {
        return vec![describe_claim(claim)];
    }
    let namespace = match &pool.namespace {
        Some(namespace) => format!(" --namespace {namespace}"),
        None => String::new(),
    };
    let mut commands = vec![format!(
        "kubectl ipam reserve {}/{} ADDRESS{namespace} --for {}",
        pool.kind, pool.name, claim.key
    )];
    commands.extend(remove_finalizer(claim));
    commands
}

/// The command that removes the finalizer of the provider from a claim, and keeps those of other
/// controllers. It fails if the list has changed; `None` if the claim does not have the finalizer.
fn remove_finalizer(claim: &ClaimRow) -> Option<String> {
    let entry = format!("/metadata/finalizers/{}", claim.own_finalizer?);
    let patch = json!([
        {"op": "test", "path": entry, "value": names::RELEASE_ADDRESS},
        {"op": "remove", "path": entry},
    ]);
    let resource = claim_resource(&claim.key);
    Some(format!(
        "kubectl patch {resource} --type json --patch '{patch}'"
    ))
}

/// Claims that wait for another reason, by pool and reason.
pub(super) fn other_reasons(snapshot: &Snapshot) -> Examination {
    of_all(snapshot, || {
        let groups = grouped(waiting(snapshot, Check::ClaimsWait), |claim| {
            let reason = claim.reason.as_deref().unwrap_or_default();
            (claim.pool.as_ref().ok(), reason)
        });
        let mut findings = Vec::new();
        for ((pool, reason), mut claims) in groups {
            claims.sort_by_key(|claim| (claim.created, &claim.key));
            findings.extend(pool.map(|pool| of_reason(pool, reason, &claims, snapshot)));
        }
        findings
    })
}

fn of_reason(
    named: &NamedPool,
    reason: &str,
    claims: &[&ClaimRow],
    snapshot: &Snapshot,
) -> Finding {
    let problem = format!(
        "{} with the reason {reason}: {}",
        claims_wait(claims),
        messages(claims)
    );
    let (repair, target) = repair_of_other(reason);
    let mut repair = repair.to_owned();
    let mut subject = of_claims(named.to_string(), claims, &snapshot.objects);
    let commands = match (named, target) {
        (NamedPool::Set(set), _) => vec![format!("kubectl describe {}", resource_of_set(set))],
        (NamedPool::Pool(pool), Target::Claim) => {
            if claims.len() > MAX_NAMED {
                let all = advice::claims_of(pool);
                repair = format!("{repair} (for all claims: {all} --waiting)");
            }
            let named = claims.iter().take(MAX_NAMED);
            named
                .flat_map(|claim| commands_of_claim(claim, pool, reason))
                .collect()
        }
        (NamedPool::Pool(pool), Target::Pool) => vec![edit(pool), advice::claims_of(pool)],
        (NamedPool::Pool(pool), Target::Registry) => {
            subject = places(pool, snapshot)
                .into_iter()
                .fold(subject, Subject::at);
            vec!["kubectl ipam registry list".to_owned()]
        }
    };
    Check::ClaimsWait
        .finding(subject, problem, repair)
        .with_commands(commands)
        .since(oldest(claims))
}

/// The messages of claims, each once. If they differ, with the claims of each.
fn messages(claims: &[&ClaimRow]) -> String {
    let of_message = grouped(claims.iter().copied(), |claim| {
        claim.message.as_deref().unwrap_or_default()
    });
    if let (1, Some((message, _))) = (of_message.len(), of_message.first_key_value()) {
        return (*message).to_owned();
    }
    let more = of_message.len().saturating_sub(MAX_NAMED);
    let mut texts = Vec::new();
    for (message, claims) in of_message.iter().take(MAX_NAMED) {
        texts.push(format!("{message} ({})", claim_names(claims)));
    }
    if more > 0 {
        texts.push(format!("and {more} other messages"));
    }
    texts.join("; ")
}
