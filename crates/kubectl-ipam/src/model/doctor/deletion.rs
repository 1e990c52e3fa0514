//! Objects in deletion, and what keeps them.

use capi_ipam_api::{advice, conditions, counted, names};
use capi_ipam_controller::namespaced_name::NamespacedName;
use jiff::{SignedDuration, Timestamp};

use super::examination::Examination;
use super::names::{
    claim_resource, claims_wait, first_names, grouped, of_address, of_claim, resource,
};
use super::snapshot::Snapshot;
use crate::model::finding::{Check, Finding, Severity, Subject, resource_of};
use crate::objects::{AddressRow, ClaimRow, Deletion, Kind, PoolRow};

/// How long the deletion of a machine, which other controllers do, usually takes.
const USUAL: SignedDuration = SignedDuration::from_mins(15);

/// Pools that wait for their addresses.
pub(super) fn pools(snapshot: &Snapshot) -> Examination {
    let objects = &snapshot.objects;
    let lacking = objects.lacking_of_pools_and(&[Kind::Claim, Kind::Address]);
    Examination::compare(lacking, || {
        let mut pools = objects.pools();
        pools.retain(|pool| pool.is_deleting());
        let used = grouped(objects.addresses.sorted(), |address| &address.pool);
        let mut waiting = objects.served();
        waiting.retain(|claim| claim.is_waiting());
        let waiting = grouped(waiting, |claim| claim.named_pool());
        let finding = |pool: &PoolRow| {
            let used = used.get(&pool.key).map(Vec::as_slice).unwrap_or_default();
            let waiting = waiting.get(&Some(&pool.key)).map(Vec::as_slice);
            deleting(pool, used, waiting.unwrap_or_default())
        };
        let findings: Vec<Finding> = pools.into_iter().map(finding).collect();
        findings
    })
}

fn deleting(pool: &PoolRow, used: &[&AddressRow], waiting: &[&ClaimRow]) -> Finding {
    let mut problem = if used.is_empty() {
        "it is being deleted, and no address is in use".to_owned()
    } else {
        let claims = used.iter().map(|address| address.claim_key());
        let number = counted(used.len(), "claim releases", "claims release");
        format!(
            "it is being deleted, and waits until {number} its addresses ({})",
            first_names(claims)
        )
    };
    if !waiting.is_empty() {
        let waiting = claims_wait(waiting);
        problem = format!("{problem}; {waiting} for a pool that allocates nothing");
    }
    let resource = resource_of(&pool.key);
    let repair = if used.is_empty() {
        format!("the manager removes its finalizer; if not: kubectl describe {resource}")
    } else {
        advice::pool_deleting(&pool.key)
    };
    Check::PoolDeleting
        .finding(Subject::pool(&pool.key), problem, repair)
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
    is_claim: bool,
}

fn blocked_claim(claim: &ClaimRow, snapshot: &Snapshot) -> Option<Finding> {
    let blocked = Blocked {
        object: of_claim(claim, &snapshot.objects),
        resource: claim_resource(&claim.key),
        deletion: claim.deletion.as_deref()?,
        has_address: claim.bound.is_some(),
        keeps_namespace: is_in_deletion(&claim.key, snapshot),
        is_claim: true,
    };
    blocked.finding(snapshot.now)
}

fn blocked_address(address: &AddressRow, snapshot: &Snapshot) -> Option<Finding> {
    let blocked = Blocked {
        object: of_address(address),
        resource: resource("ipaddresses", &address.key),
        deletion: address.deletion.as_deref()?,
        has_address: true,
        keeps_namespace: is_in_deletion(&address.key, snapshot),
        is_claim: false,
    };
    blocked.finding(snapshot.now)
}

/// Whether the namespace of an object is being deleted.
fn is_in_deletion(key: &NamespacedName, snapshot: &Snapshot) -> bool {
    snapshot.deleted_namespaces.contains(key.namespace())
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
            counted(blockers.len(), "finalizer", "finalizers"),
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
        let resource = &self.resource;
        let can_release = self.is_claim && self.has_address;
        let mut commands = vec![if can_release {
            let (annotation, uid) = (names::RELEASE_NOW_ANNOTATION, &self.deletion.uid);
            format!("kubectl annotate {resource} {annotation}={uid}")
        } else {
            format!("kubectl get {resource} --output yaml")
        }];
        let see = "see in the logs of the controllers of these finalizers why they keep the object";
        let mut repair = if can_release {
            "if its machine still exists, wait; if it does not, release the address".to_owned()
        } else if self.keeps_namespace || self.has_address {
            see.to_owned()
        } else {
            format!("nothing for its address; {see}")
        };
        if self.keeps_namespace {
            let end = "the deletion of the namespace ends only when these controllers remove their finalizers; if the \
                       controller of one no longer exists, and the machine does not either, remove this finalizer with \
                       kubectl edit";
            let beginning = if can_release {
                "; this does not end the deletion of the namespace, since the claim stays: "
            } else {
                "; "
            };
            repair = format!("{repair}{beginning}{end}");
            commands.push(format!("kubectl edit {resource}"));
        }
        (repair, commands)
    }
}
