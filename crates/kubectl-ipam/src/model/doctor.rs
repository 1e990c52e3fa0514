use std::collections::{BTreeSet, HashMap, HashSet};

use capi_ipam::api::{PoolKey, Scope, conditions, names};
use capi_ipam_ip::{Extents, UsableBlocks};
use jiff::{SignedDuration, Timestamp};

use super::finding::{Check, Finding, edit, full};
use super::slices::without_effect;
use crate::objects::{AddressRow, ClaimRow, Key, NetworkRow, PoolRow, ReservationRow, SliceRow};

/// Number of overlapping pools that a finding names.
const MAX_NAMED: usize = 5;

/// How long after its duration a lease may be without a renewal.
const LEASE_TOLERANCE: SignedDuration = SignedDuration::from_secs(30);

/// A lease of the provider.
#[derive(Clone, Debug)]
pub(crate) struct LeaseRow {
    pub(crate) namespace: String,
    pub(crate) holder: Option<String>,
    pub(crate) renewed: Option<Timestamp>,
    pub(crate) seconds: i64,
}

/// A service that the API server calls for webhooks.
#[derive(Clone, Debug)]
pub(crate) struct WebhookRow {
    /// The webhook configuration.
    pub(crate) name: String,
    pub(crate) has_authority: bool,
    /// Namespace and name of the service; `None` for a URL.
    pub(crate) service: Option<(String, String)>,
    /// The number of ready replicas; `None` if it cannot be read.
    pub(crate) ready: Option<usize>,
}

/// Everything that is checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inventory {
    pub(crate) pools: Vec<PoolRow>,
    pub(crate) networks: Vec<NetworkRow>,
    pub(crate) addresses: Vec<AddressRow>,
    pub(crate) reservations: Vec<ReservationRow>,
    pub(crate) claims: Vec<ClaimRow>,
    pub(crate) slices: Vec<SliceRow>,
    /// What cannot be decoded.
    pub(crate) unreadable: Vec<String>,
    /// `None` if they cannot be read.
    pub(crate) leases: Option<Vec<LeaseRow>>,
    pub(crate) webhooks: Vec<WebhookRow>,
}

/// Returns what is wrong, the most urgent first.
pub(crate) fn findings(inventory: &Inventory, now: Timestamp) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(duplicates(inventory));
    findings.extend(dangling(inventory));
    findings.extend(abandoned(inventory));
    inventory.pools.iter().for_each(|pool| findings.extend(problems(pool)));
    inventory.claims.iter().for_each(|claim| findings.extend(claim_problems(claim)));
    inventory.networks.iter().for_each(|network| findings.extend(network_problem(network)));
    findings.extend(overlaps(&inventory.pools));
    findings.extend(without_effect(&inventory.slices, &inventory.pools));
    let unreadable = |text: &String| {
        let repair = "correct or delete the objects: kubectl edit".to_owned();
        Check::UnreadableObject.finding("objects".to_owned(), text.clone(), repair)
    };
    findings.extend(inventory.unreadable.iter().map(unreadable));
    findings.extend(inventory.leases.as_deref().and_then(|leases| leaderless(leases, now)));
    inventory.webhooks.iter().for_each(|webhook| findings.extend(unavailable(webhook)));
    findings.sort_by(|a, b| (a.severity, a.check, &a.object).cmp(&(b.severity, b.check, &b.object)));
    findings
}

fn duplicates(inventory: &Inventory) -> Vec<Finding> {
    let scopes: HashMap<&PoolKey, &Scope> = inventory.pools.iter().map(|pool| (&pool.key, &pool.scope)).collect();
    let mut users: HashMap<_, Vec<&AddressRow>> = HashMap::new();
    for address in &inventory.addresses {
        let scope = scopes.get(&address.pool).map_or_else(|| Scope::Pool(address.pool.clone()), |&scope| scope.clone());
        users.entry((scope, address.block)).or_default().push(address);
    }
    let several = users.into_iter().filter(|(_, users)| users.len() > 1);
    several
        .map(|((_, block), users)| {
            let mut names: Vec<String> = users.iter().map(|address| join(&address.key)).collect();
            names.sort();
            let problem = format!("{} IPAddresses have this address: {}", users.len(), names.join(", "));
            let repair = format!("delete the machine of all but one claim; kubectl ipam who {block} shows them");
            Check::DuplicateAddress.finding(format!("address {block}"), problem, repair)
        })
        .collect()
}

/// Objects that refer to something that does not exist.
fn dangling(inventory: &Inventory) -> Vec<Finding> {
    let pools: HashSet<&PoolKey> = inventory.pools.iter().map(|pool| &pool.key).collect();
    let claims: HashSet<&Key> = inventory.claims.iter().map(|claim| &claim.key).collect();
    let addresses: HashSet<&Key> = inventory.addresses.iter().map(|address| &address.key).collect();
    let missing_pool = |object: String, pool: &PoolKey| {
        let repair = format!("create {}, or delete the object", full(pool));
        Check::MissingPool.finding(object, format!("{} does not exist", full(pool)), repair)
    };
    let mut findings = Vec::new();
    for address in &inventory.addresses {
        let (namespace, name) = &address.key;
        let object = format!("ipaddress {}", join(&address.key));
        if !claims.contains(&(namespace.clone(), address.claim.clone())) {
            let problem = format!("its claim {} does not exist; {} counts as in use", address.claim, address.block);
            let repair = format!(
                "if no machine uses it: kubectl delete ipaddresses.{} {name} --namespace {namespace}",
                names::GROUP
            );
            findings.push(Check::OrphanAddress.finding(object.clone(), problem, repair));
        }
        if !pools.contains(&address.pool) {
            findings.push(missing_pool(object, &address.pool));
        }
    }
    for claim in &inventory.claims {
        let (namespace, name) = &claim.key;
        let object = format!("ipaddressclaim {}", join(&claim.key));
        let bound = claim.bound.as_ref().filter(|_| !claim.deleting);
        if let Some(address) = bound.filter(|address| !addresses.contains(&(namespace.clone(), (*address).clone()))) {
            let problem = format!("it is bound to IPAddress {address}, which does not exist");
            let repair = format!(
                "the provider creates it again; if not: kubectl describe ipaddressclaims.{} {name} --namespace \
                 {namespace}",
                names::GROUP
            );
            findings.push(Check::LostAddress.finding(object.clone(), problem, repair));
        }
        if !pools.contains(&claim.pool) {
            findings.push(missing_pool(object, &claim.pool));
        }
    }
    findings
}

/// Reservations for claims that do not exist. Those that cool down end by themselves, and those of users stay.
fn abandoned(inventory: &Inventory) -> Vec<Finding> {
    let claims: HashSet<&Key> = inventory.claims.iter().map(|claim| &claim.key).collect();
    let held =
        inventory.reservations.iter().filter(|reservation| reservation.has_uid && reservation.released.is_none());
    held.filter_map(|reservation| {
        let claim = reservation.claim.as_ref().filter(|claim| !claims.contains(claim))?;
        let name = reservation.slot.reservation_name();
        let problem = format!("its claim {} does not exist; {} is not allocated", join(claim), reservation.slot.block);
        let repair = format!("the sweep deletes it after a minute; if not: kubectl delete ipreservation {name}");
        Some(Check::AbandonedReservation.finding(format!("ipreservation {name}"), problem, repair))
    })
    .collect()
}

/// What a pool reports.
fn problems(pool: &PoolRow) -> Vec<Finding> {
    let (object, edit) = (full(&pool.key), edit(&pool.key));
    let mut findings = Vec::new();
    if let Err(problem) = &pool.usable {
        findings.push(Check::PoolNotReady.finding(object.clone(), problem.clone(), format!("correct it: {edit}")));
    }
    for condition in &pool.conditions {
        let message = condition.message.clone().unwrap_or_default();
        let is = |status: &str| condition.status == status;
        let (check, repair) = match (condition.type_.as_ref(), condition.reason.as_deref()) {
            (conditions::READY, Some(conditions::INITIALIZATION_FAILED)) if is("False") => {
                (Check::PoolNotReady, "correct the webhook or policy that the message names".to_owned())
            }
            (conditions::READY, Some(conditions::NETWORK_NOT_FOUND)) if is("False") => {
                (Check::PoolNotReady, format!("create the IPNetwork, or correct spec.network: {edit}"))
            }
            (conditions::READY, Some(conditions::NETWORK_NOT_ALLOWED)) if is("False") => {
                let network = pool.spec.network().unwrap_or("NAME");
                (Check::PoolNotReady, format!("allow the namespace in the network: kubectl edit ipnetworks {network}"))
            }
            (conditions::READY, Some(conditions::NETWORK_NOT_READY)) if is("False") => {
                (Check::PoolNotReady, "correct the network that the message names: kubectl ipam networks".to_owned())
            }
            (conditions::READY, Some(conditions::BLOCK_LENGTH_MISMATCH)) if is("False") => {
                (Check::PoolNotReady, format!("use another network for the pool: {edit}"))
            }
            (conditions::OUT_OF_RANGE, _) if is("True") => {
                (Check::AddressesOutOfRange, format!("add the addresses again, or replace the machines: {edit}"))
            }
            _ => continue,
        };
        findings.push(check.finding(object.clone(), message, repair));
    }
    if let Some(network) = pool.moving.as_ref().filter(|_| !pool.paused) {
        let (action, name, remaining) = (network.phase, &network.name, network.remaining);
        let problem = format!("{action:?} network {name}: {remaining} reservations are not moved");
        let repair = "recreate the machine of one of the claims that report DuplicateAddress: kubectl ipam claims -A";
        findings.push(Check::MoveStalled.finding(object, problem, repair.to_owned()));
    }
    findings
}

/// What a claim reports about the use of its address.
fn claim_problems(claim: &ClaimRow) -> Vec<Finding> {
    let object = format!("ipaddressclaim {}", join(&claim.key));
    let mut findings = Vec::new();
    if let Some(message) = claim.not_in_use.as_deref().filter(|_| !claim.deleting) {
        let user = claim.machine.as_deref().unwrap_or("its machine");
        let repair = format!("correct the network configuration of {user}, or replace the machine");
        findings.push(Check::AddressNotInUse.finding(object.clone(), message.to_owned(), repair));
    }
    if claim.deleting && claim.reason.as_deref() == Some(conditions::RELEASED_EARLY) {
        let message = claim.message.as_deref().unwrap_or_default().to_owned();
        let repair = "verify that the machine no longer exists, and then find out why its controller keeps the claim";
        findings.push(Check::ReleasedEarly.finding(object, message, repair.to_owned()));
    }
    findings
}

/// What a network reports. A network that is being deleted is not ready until its pools are deleted.
fn network_problem(network: &NetworkRow) -> Option<Finding> {
    let reported = network.problem().filter(|ready| ready.reason.as_deref() != Some(conditions::DELETING));
    let reported = reported.and_then(|ready| ready.message.clone());
    let problem = network.invalid.clone().or(reported)?;
    let repair = format!("correct it: kubectl edit ipnetworks {}", network.name);
    Some(Check::NetworkNotReady.finding(format!("IPNetwork {}", network.name), problem, repair))
}

/// Pools of different scopes that can allocate the same address. From the specifications: the Go provider writes no
/// conditions.
fn overlaps(pools: &[PoolRow]) -> Vec<Finding> {
    // A pool that its network refuses does not allocate.
    let network_problems = [
        conditions::NETWORK_NOT_FOUND,
        conditions::NETWORK_NOT_ALLOWED,
        conditions::NETWORK_NOT_READY,
        conditions::BLOCK_LENGTH_MISMATCH,
    ];
    let is_refused = |pool: &PoolRow| {
        pool.ready().is_some_and(|(_, reason)| reason.is_some_and(|reason| network_problems.contains(&reason)))
    };
    let allocating = pools.iter().filter(|pool| !is_refused(pool));
    let known: Vec<_> = allocating.filter_map(|pool| Some((pool, pool.usable.as_ref().ok()?))).collect();
    let mut extents = Extents::default();
    known.iter().enumerate().for_each(|(number, (_, usable))| extents.insert(usable, number));
    let of_pool = |(pool, usable): &(&PoolRow, &UsableBlocks)| {
        let near: BTreeSet<usize> = extents.overlapping(usable).copied().collect();
        let others = near.into_iter().filter_map(|number| known.get(number));
        let others = others.filter(|(other, theirs)| other.scope != pool.scope && usable.overlaps(theirs));
        let names: Vec<String> = others.map(|(other, _)| full(&other.key)).collect();
        let more = names.len().saturating_sub(MAX_NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let first: Vec<String> = names.into_iter().take(MAX_NAMED).collect();
        if first.is_empty() {
            return None;
        }
        let problem = format!("the same addresses can be allocated by {}{more}", first.join(", "));
        let repair = format!(
            "if they are in one network, create an IPNetwork and name it in spec.network of both: {}",
            edit(&pool.key)
        );
        Some(Check::PoolsOverlap.finding(full(&pool.key), problem, repair))
    };
    known.iter().filter_map(of_pool).collect()
}

fn leaderless(leases: &[LeaseRow], now: Timestamp) -> Option<Finding> {
    let is_held = |lease: &LeaseRow| {
        let end = SignedDuration::from_secs(lease.seconds).saturating_add(LEASE_TOLERANCE);
        let renewed = lease.renewed.is_some_and(|renewed| now.duration_since(renewed) <= end);
        renewed && lease.holder.as_deref().is_some_and(|holder| !holder.is_empty())
    };
    if leases.iter().any(is_held) {
        return None;
    }
    let (object, problem) = match leases.first() {
        Some(lease) => {
            let since = lease.renewed.map(|renewed| format!(" since {renewed}")).unwrap_or_default();
            (format!("lease {}/{}", lease.namespace, names::IN_CLUSTER_LEASE), format!("nobody renews it{since}"))
        }
        None => (
            format!("lease {}", names::IN_CLUSTER_LEASE),
            "it does not exist: no provider runs with leader election".to_owned(),
        ),
    };
    let namespace = leases.first().map_or("capi-ipam-in-cluster-system", |lease| lease.namespace.as_str());
    let repair = format!("start the provider: kubectl describe pods --namespace {namespace}");
    Some(Check::NoLeader.finding(object, problem, repair))
}

fn unavailable(webhook: &WebhookRow) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !webhook.has_authority {
        let problem = "it has no caBundle, so pools cannot be written".to_owned();
        let repair = "see the log of cert-manager's CA injector, or of the provider".to_owned();
        findings.push(Check::WebhookUntrusted.finding(webhook.name.clone(), problem, repair));
    }
    if let (Some((namespace, service)), Some(0)) = (&webhook.service, webhook.ready) {
        let problem = format!("no replica of service {namespace}/{service} is ready, so pools cannot be written");
        let repair = format!("kubectl describe pods --namespace {namespace}");
        findings.push(Check::WebhookUnavailable.finding(webhook.name.clone(), problem, repair));
    }
    findings
}

fn join((namespace, name): &Key) -> String {
    format!("{namespace}/{name}")
}
