//! Objects in deletion, and what keeps them.

use capi_ipam_api::{advice, conditions, names};
use jiff::{SignedDuration, Timestamp};

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
    let now = snapshot.now;
    let claims = snapshot.claims.seen().served.iter();
    let of_claims = claims.filter_map(|claim| {
        let deletion = claim.deletion.as_ref()?;
        // The address is free already, which is another finding.
        if claim.reason.as_deref() == Some(conditions::RELEASED_EARLY) {
            return None;
        }
        finding(
            of_claim(claim),
            "ipaddressclaims",
            claim.key.parts(),
            deletion,
            now,
        )
    });
    let mut findings: Vec<Finding> = of_claims.collect();
    let addresses = snapshot.addresses.seen().iter();
    findings.extend(addresses.filter_map(|address| {
        let deletion = address.deletion.as_ref()?;
        finding(
            of_address(address),
            "ipaddresses",
            address.key.parts(),
            deletion,
            now,
        )
    }));
    let lists = snapshot.claims.as_ref().depends_on(&snapshot.addresses);
    let is_partly =
        !snapshot.claims.seen().served.is_empty() || !snapshot.addresses.seen().is_empty();
    Examination::complete(findings).with_unknown(&lists, is_partly)
}

fn finding(
    object: String,
    plural: &str,
    (namespace, name): (&str, &str),
    deletion: &Deletion,
    now: Timestamp,
) -> Option<Finding> {
    if deletion.blockers.is_empty() {
        return None;
    }
    let problem = format!(
        "it is being deleted, and its address stays allocated until other controllers remove {}: {}; a namespace that \
         is being deleted waits for it",
        counted(deletion.blockers.len(), "finalizer"),
        deletion.blockers.join(", ")
    );
    let repair = format!(
        "see in the log of the controller of the finalizer why it keeps the object: kubectl get {plural}.{} {name} \
         --namespace {namespace} --output yaml",
        names::GROUP
    );
    // Until then the machine is probably being deleted.
    let severity = if now.duration_since(deletion.since) > USUAL {
        Severity::Warning
    } else {
        Severity::Note
    };
    Some(
        Check::ReleaseBlocked
            .finding(object, problem, repair)
            .since(Some(deletion.since))
            .at(severity),
    )
}
