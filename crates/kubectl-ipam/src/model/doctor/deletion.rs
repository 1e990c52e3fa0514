//! Objects in deletion, and what keeps them.

use capi_ipam_api::{advice, conditions, names};
use jiff::SignedDuration;

use super::examination::Examination;
use super::names::{claims_wait, first_names, of_address, of_claim};
use super::snapshot::Snapshot;
use crate::model::finding::{Check, Finding, Severity, counted, full, resource_of};
use crate::objects::{AddressRow, ClaimRow, Deletion, PoolRow};

/// How long the deletion of a machine, which other controllers do, usually takes.
const USUAL: SignedDuration = SignedDuration::from_mins(15);

/// Pools that wait for their addresses.
pub(super) fn pools(snapshot: &Snapshot) -> Examination {
    let addresses = snapshot.addresses.as_ref().and(snapshot.claims.as_ref());
    let all = snapshot.pools.as_ref().and(addresses);
    Examination::compare(&all, |(pools, (addresses, claims))| {
        let deleted = pools.iter().filter(|pool| pool.is_deleting());
        deleted
            .map(|pool| {
                let used: Vec<&AddressRow> = addresses
                    .iter()
                    .filter(|address| address.pool == pool.key)
                    .collect();
                let waiting: Vec<&ClaimRow> = claims
                    .served
                    .iter()
                    .filter(|claim| claim.is_waiting() && claim.pool == pool.key)
                    .collect();
                deleting(pool, &used, &waiting)
            })
            .collect()
    })
}

fn deleting(pool: &PoolRow, used: &[&AddressRow], waiting: &[&ClaimRow]) -> Finding {
    let mut problem = if used.is_empty() {
        "it is being deleted, and no address is in use".to_owned()
    } else {
        let claims = used.iter().map(|address| address.claim_key());
        format!(
            "it is being deleted, and waits until {} release its addresses ({})",
            counted(used.len(), "claim"),
            first_names(claims)
        )
    };
    if !waiting.is_empty() {
        let waiting = claims_wait(waiting.iter().copied());
        problem = format!("{problem}; {waiting} for a pool that allocates nothing");
    }
    let resource = resource_of(&pool.key);
    let repair = if used.is_empty() {
        format!("the manager removes its finalizer; if not: kubectl describe {resource}")
    } else {
        advice::pool_deleting(&pool.key)
    };
    Check::PoolDeleting
        .finding(full(&pool.key), problem, repair)
        .since(pool.deleted)
}

/// Claims and IPAddresses that finalizers of other controllers keep.
pub(super) fn blocked(snapshot: &Snapshot) -> Examination {
    let claims = snapshot.claims.seen().served.iter();
    // The address of a claim that was released early is free already, which is another finding.
    let claims = claims
        .filter(|claim| claim.reason.as_deref() != Some(conditions::RELEASED_EARLY))
        .filter_map(|claim| blocked_claim(claim, snapshot));
    let addresses = snapshot.addresses.seen().iter();
    let addresses = addresses.filter_map(|address| blocked_address(address, snapshot));
    let findings: Vec<Finding> = claims.chain(addresses).collect();
    let lists = snapshot.claims.as_ref().depends_on(&snapshot.addresses);
    let is_partly =
        !snapshot.claims.seen().served.is_empty() || !snapshot.addresses.seen().is_empty();
    Examination::complete(findings).with_unknown(&lists, is_partly)
}

fn blocked_claim(claim: &ClaimRow, snapshot: &Snapshot) -> Option<Finding> {
    let deletion = claim.deletion.as_ref()?;
    let (namespace, name) = claim.key.parts();
    let repair = format!(
        "if its machine still exists, wait; if it does not, release the address: kubectl annotate ipaddressclaims.{} \
         {name} --namespace {namespace} {}=UID, with the uid of the claim (docs/reclaim.md)",
        names::GROUP,
        names::RELEASE_NOW_ANNOTATION
    );
    blocked_by(of_claim(claim), namespace, deletion, snapshot, repair)
}

fn blocked_address(address: &AddressRow, snapshot: &Snapshot) -> Option<Finding> {
    let deletion = address.deletion.as_ref()?;
    let (namespace, name) = address.key.parts();
    let repair = format!(
        "see in the log of the controller of the finalizer why it keeps the object: kubectl get ipaddresses.{} {name} \
         --namespace {namespace} --output yaml",
        names::GROUP
    );
    blocked_by(of_address(address), namespace, deletion, snapshot, repair)
}

fn blocked_by(
    object: String,
    namespace: &str,
    deletion: &Deletion,
    snapshot: &Snapshot,
    repair: String,
) -> Option<Finding> {
    if deletion.blockers.is_empty() {
        return None;
    }
    let mut problem = format!(
        "it is being deleted, and its address stays allocated until other controllers remove {}: {}",
        counted(deletion.blockers.len(), "finalizer"),
        deletion.blockers.join(", ")
    );
    if snapshot.deleted_namespaces.contains(namespace) {
        problem.push_str("; the namespace, which is being deleted, waits for it");
    }
    // Until then the machine is probably being deleted.
    let severity = if snapshot.now.duration_since(deletion.since) > USUAL {
        Severity::Warning
    } else {
        Severity::Note
    };
    let finding = Check::ReleaseBlocked.finding(object, problem, repair);
    Some(finding.since(Some(deletion.since)).at(severity))
}
