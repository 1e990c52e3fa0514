//! Objects in deletion, and what keeps them.

use std::collections::BTreeMap;

use capi_ipam_api::{PoolKey, advice, conditions, names};
use jiff::{SignedDuration, Timestamp};

use super::examination::Examination;
use super::names::{claims_wait, first_names, of_address, of_claim};
use super::snapshot::Snapshot;
use crate::model::finding::{Check, Finding, Severity, Subject, counted, resource_of};
use crate::objects::{AddressRow, ClaimRow, Deletion, Kind, PoolRow};

/// How long the deletion of a machine, which other controllers do, usually takes.
const USUAL: SignedDuration = SignedDuration::from_mins(15);

/// Pools that wait for their addresses.
pub(super) fn pools(snapshot: &Snapshot) -> Examination {
    let objects = &snapshot.objects;
    let lacking = objects.lacking_of_pools_and(&[Kind::Claim, Kind::Address]);
    Examination::compare(lacking, || {
        let mut kept: BTreeMap<&PoolKey, Kept<'_>> = BTreeMap::new();
        for pool in objects.pools() {
            if pool.is_deleting() {
                kept.insert(&pool.key, Kept::of(pool));
            }
        }
        for address in objects.addresses.sorted() {
            if let Some(kept) = kept.get_mut(&address.pool) {
                kept.used.push(address);
            }
        }
        for claim in objects.served() {
            if let Some(kept) = kept.get_mut(&claim.pool)
                && claim.is_waiting()
            {
                kept.waiting.push(claim);
            }
        }
        kept.into_values().map(|kept| deleting(&kept)).collect()
    })
}

/// A pool in deletion, with what keeps it.
struct Kept<'a> {
    pool: &'a PoolRow,
    used: Vec<&'a AddressRow>,
    waiting: Vec<&'a ClaimRow>,
}

impl<'a> Kept<'a> {
    fn of(pool: &'a PoolRow) -> Self {
        Self {
            pool,
            used: Vec::new(),
            waiting: Vec::new(),
        }
    }
}

fn deleting(kept: &Kept<'_>) -> Finding {
    let Kept {
        pool,
        used,
        waiting,
    } = kept;
    let mut problem = if used.is_empty() {
        "it is being deleted, and no address is in use".to_owned()
    } else {
        let claims = used.iter().map(|address| address.claim_key());
        let number = match used.len() {
            1 => "1 claim releases".to_owned(),
            more => format!("{more} claims release"),
        };
        format!(
            "it is being deleted, and waits until {number} its addresses ({})",
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
        .finding(&pool.key, problem, repair)
        .since(pool.deleted)
}

/// Claims and IPAddresses that finalizers of other controllers keep.
pub(super) fn blocked(snapshot: &Snapshot) -> Examination {
    let objects = &snapshot.objects;
    let claims = objects.served().into_iter();
    // The address of a claim that was released early is free already, which is another finding.
    let claims = claims
        .filter(|claim| claim.reason.as_deref() != Some(conditions::RELEASED_EARLY))
        .filter_map(|claim| blocked_claim(claim, snapshot));
    let addresses = objects.addresses.sorted().into_iter();
    let addresses = addresses.filter_map(|address| blocked_address(address, snapshot));
    let findings: Vec<Finding> = claims.chain(addresses).collect();
    let lacking = objects.lacking(&[Kind::Claim, Kind::Address]);
    let has_claims = objects.claims.iter().next().is_some();
    let is_partly = has_claims || objects.addresses.iter().next().is_some();
    Examination::complete(findings).with_unknown(lacking, is_partly)
}

/// An object that finalizers of other controllers keep.
struct Blocked<'a> {
    object: Subject,
    /// Plural, name and namespace as arguments of kubectl.
    resource: String,
    deletion: &'a Deletion,
    has_address: bool,
    /// Whether its namespace is being deleted, and waits for it.
    keeps_namespace: bool,
    /// The command that releases the address without the other controllers, if there is one.
    release: Option<String>,
}

fn blocked_claim(claim: &ClaimRow, snapshot: &Snapshot) -> Option<Finding> {
    let deletion = claim.deletion.as_deref()?;
    let (namespace, name) = claim.key.parts();
    let resource = format!(
        "ipaddressclaims.{} {name} --namespace {namespace}",
        names::GROUP
    );
    let annotation = names::RELEASE_NOW_ANNOTATION;
    let release = format!("kubectl annotate {resource} {annotation}={}", deletion.uid);
    let blocked = Blocked {
        object: of_claim(claim),
        resource,
        deletion,
        has_address: claim.bound.is_some(),
        keeps_namespace: snapshot.deleted_namespaces.contains(namespace),
        release: Some(release),
    };
    blocked.finding(snapshot.now)
}

fn blocked_address(address: &AddressRow, snapshot: &Snapshot) -> Option<Finding> {
    let deletion = address.deletion.as_deref()?;
    let (namespace, name) = address.key.parts();
    let blocked = Blocked {
        object: of_address(address),
        resource: format!(
            "ipaddresses.{} {name} --namespace {namespace}",
            names::GROUP
        ),
        deletion,
        has_address: true,
        keeps_namespace: snapshot.deleted_namespaces.contains(namespace),
        release: None,
    };
    blocked.finding(snapshot.now)
}

impl Blocked<'_> {
    fn finding(self, now: Timestamp) -> Option<Finding> {
        let blockers = &self.deletion.blockers;
        if blockers.is_empty() {
            return None;
        }
        let effect = if self.has_address {
            "and its address stays allocated until other controllers remove"
        } else {
            "has no address, and stays until other controllers remove"
        };
        let mut problem = format!(
            "it is being deleted, {effect} {}: {}",
            counted(blockers.len(), "finalizer"),
            blockers.join(", ")
        );
        if self.keeps_namespace {
            problem.push_str("; the namespace, which is being deleted, waits for it");
        }
        // Until then the machine is probably being deleted. Without an address, nothing is lost.
        let is_late = now.duration_since(self.deletion.since) > USUAL;
        let does_harm = self.has_address || self.keeps_namespace;
        let severity = if is_late && does_harm {
            Severity::Warning
        } else {
            Severity::Note
        };
        let (repair, commands) = self.repair();
        let finding = Check::ReleaseBlocked.finding(self.object, problem, repair);
        let finding = finding.with_commands(commands);
        Some(finding.since(Some(self.deletion.since)).at(severity))
    }

    /// What to do, with the commands.
    fn repair(&self) -> (String, Vec<String>) {
        let show = format!("kubectl get {} --output yaml", self.resource);
        let see = "see in the logs of the controllers of these finalizers why they keep the object"
            .to_owned();
        let release = self.release.clone().filter(|_| self.has_address);
        let (mut repair, mut commands) = match release {
            Some(release) => {
                let repair =
                    "if its machine still exists, wait; if it does not, release the address";
                (repair.to_owned(), vec![release])
            }
            None if self.keeps_namespace || self.has_address => (see, vec![show]),
            None => (format!("nothing for its address; {see}"), vec![show]),
        };
        if self.keeps_namespace {
            let end = "the deletion of the namespace ends only when these controllers remove their finalizers; if the \
                       controller of one no longer exists, and the machine does not either, remove this finalizer with \
                       kubectl edit";
            let beginning = if self.release.is_some() && self.has_address {
                "; this does not end the deletion of the namespace, since the claim stays: "
            } else {
                "; "
            };
            repair = format!("{repair}{beginning}{end}");
            commands.push(format!("kubectl edit {}", self.resource));
        }
        (repair, commands)
    }
}
