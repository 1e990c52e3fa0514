use std::collections::{BTreeSet, HashMap, HashSet};

use capi_ipam_api::{PoolKey, Scope, advice, conditions, names};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::{Extents, UsableBlocks};
use jiff::{SignedDuration, Timestamp};

use super::finding::{Check, Finding, Unchecked, edit, full};
use super::owners::outdated_owners;
use super::promises::impossible;
use super::slices::without_effect;
use crate::load::{Claims, Readable};
use crate::objects::{
    AddressRow, ClaimRow, NetworkRow, PoolRow, ReservationRow, SliceRow, UnservedClaim,
};

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
    /// The number of ready replicas; `None` for a URL.
    pub(crate) ready: Readable<Option<usize>>,
}

/// Everything that is checked.
#[derive(Clone, Debug)]
pub(crate) struct Inventory {
    pub(crate) pools: Readable<Vec<PoolRow>>,
    pub(crate) networks: Readable<Vec<NetworkRow>>,
    pub(crate) addresses: Readable<Vec<AddressRow>>,
    pub(crate) reservations: Readable<Vec<ReservationRow>>,
    pub(crate) claims: Readable<Claims>,
    pub(crate) slices: Readable<Vec<SliceRow>>,
    /// What cannot be decoded.
    pub(crate) unreadable: Vec<String>,
    pub(crate) leases: Readable<Vec<LeaseRow>>,
    pub(crate) webhooks: Readable<Vec<WebhookRow>>,
}

/// What is wrong, and what could not be checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Diagnosis {
    /// The most urgent first.
    pub(crate) findings: Vec<Finding>,
    pub(crate) unchecked: Vec<Unchecked>,
}

impl Diagnosis {
    /// Makes checks that compare objects: each missing object would be a wrong finding, so they
    /// need all.
    fn compare<T>(
        &mut self,
        checks: &[Check],
        input: &Readable<T>,
        find: impl FnOnce(&T) -> Vec<Finding>,
    ) {
        match input.known() {
            Some(input) => self.findings.extend(find(input)),
            None => self.skip(checks, input, false),
        }
    }

    /// Makes checks of single objects, of those that can be read.
    fn inspect<T>(
        &mut self,
        checks: &[Check],
        input: &Readable<Vec<T>>,
        find: impl FnMut(&T) -> Vec<Finding>,
    ) {
        self.findings.extend(input.seen().iter().flat_map(find));
        self.skip(checks, input, !input.seen().is_empty());
    }

    fn skip<T>(&mut self, checks: &[Check], input: &Readable<T>, partly: bool) {
        if input.is_complete() {
            return;
        }
        let reason = crate::error::sentences(input.missing());
        self.unchecked.extend(checks.iter().map(|check| Unchecked {
            check: *check,
            reason: reason.clone(),
            partly,
        }));
    }
}

/// Returns what is wrong, the most urgent first, and what could not be checked.
pub(crate) fn diagnosis(inventory: &Inventory, now: Timestamp) -> Diagnosis {
    let mut found = Diagnosis::default();
    let pools = inventory.pools.as_ref();
    let addresses = || inventory.addresses.as_ref();
    let users = pools.clone().and(addresses());
    found.compare(&[Check::DuplicateAddress], &users, |(pools, addresses)| {
        duplicates(pools, addresses)
    });
    let claimed = addresses().and(inventory.claims.as_ref());
    let references = [Check::LostAddress, Check::OrphanAddress];
    found.compare(&references, &claimed, |(addresses, claims)| {
        unreferenced(addresses, claims)
    });
    let referring = pools.clone().and(claimed);
    found.compare(
        &[Check::MissingPool],
        &referring,
        |(pools, (addresses, claims))| missing_pools(pools, addresses, &claims.served),
    );
    let held = inventory
        .reservations
        .as_ref()
        .and(inventory.claims.as_ref());
    found.compare(
        &[Check::AbandonedReservation],
        &held,
        |(reservations, claims)| abandoned(reservations, claims),
    );
    found.inspect(
        &[Check::InvalidReservation],
        &inventory.reservations,
        |reservation| impossible(reservation).into_iter().collect(),
    );
    found
        .findings
        .extend(outdated_owners(inventory.addresses.seen()));
    found.skip(
        &[Check::OutdatedOwner],
        &inventory.addresses,
        !inventory.addresses.seen().is_empty(),
    );
    let unserved = inventory.claims.clone().map(|claims| claims.unserved);
    found.inspect(&[Check::UnknownPoolKind], &unserved, |claim| {
        vec![unknown_kind(claim)]
    });
    let of_pools = [
        Check::PoolNotReady,
        Check::MoveStalled,
        Check::AddressesOutOfRange,
    ];
    found.inspect(&of_pools, &inventory.pools, problems);
    let claims = inventory.claims.clone().map(|claims| claims.served);
    let of_claims = [
        Check::AddressNotInUse,
        Check::ReleasedEarly,
        Check::RestoredWithoutAddress,
    ];
    found.inspect(&of_claims, &claims, claim_problems);
    found.inspect(&[Check::NetworkNotReady], &inventory.networks, |network| {
        network_problem(network).into_iter().collect()
    });
    // An overlap of two pools is one, whatever other pools there are.
    found.findings.extend(overlaps(inventory.pools.seen()));
    found.skip(&[Check::PoolsOverlap], &pools, !pools.seen().is_empty());
    let slices = inventory.slices.as_ref().and(pools);
    found.compare(&[Check::SliceWithoutEffect], &slices, |(slices, pools)| {
        without_effect(slices, pools)
    });
    found
        .findings
        .extend(inventory.unreadable.iter().map(|text| unreadable(text)));
    found.skip(
        &[Check::UnreadableObject],
        &all_lists(inventory),
        has_objects(inventory),
    );
    let leases = &inventory.leases;
    found.compare(&[Check::NoLeader], leases, |leases| {
        leaderless(leases, now).into_iter().collect()
    });
    let of_webhooks = [Check::WebhookUnavailable, Check::WebhookUntrusted];
    found.inspect(&of_webhooks, &inventory.webhooks, unavailable);
    for webhook in inventory.webhooks.seen() {
        found.skip(&[Check::WebhookUnavailable], &webhook.ready, false);
    }
    found
        .findings
        .sort_by(|a, b| (a.severity, a.check, &a.object).cmp(&(b.severity, b.check, &b.object)));
    found
}

/// All lists of objects of the provider.
fn all_lists(inventory: &Inventory) -> Readable<()> {
    let Inventory {
        pools,
        networks,
        addresses,
        reservations,
        claims,
        slices,
        ..
    } = inventory;
    let all = Readable::complete(())
        .depends_on(pools)
        .depends_on(networks)
        .depends_on(addresses);
    all.depends_on(reservations)
        .depends_on(claims)
        .depends_on(slices)
}

fn has_objects(inventory: &Inventory) -> bool {
    let Inventory {
        pools,
        networks,
        addresses,
        reservations,
        claims,
        slices,
        ..
    } = inventory;
    let is_empty = [
        pools.seen().is_empty(),
        networks.seen().is_empty(),
        addresses.seen().is_empty(),
        reservations.seen().is_empty(),
        claims.seen().served.is_empty(),
        slices.seen().is_empty(),
    ];
    is_empty.contains(&false)
}

fn unreadable(text: &str) -> Finding {
    let repair = "correct or delete the objects: kubectl edit".to_owned();
    Check::UnreadableObject.finding("objects".to_owned(), text.to_owned(), repair)
}

/// A claim that no provider serves. Nothing else reports it: the claim has no condition and no
/// event.
fn unknown_kind(claim: &UnservedClaim) -> Finding {
    let (namespace, name) = claim.key.parts();
    let user = claim
        .machine
        .as_deref()
        .map(|machine| format!(" of {machine}"))
        .unwrap_or_default();
    let repair = format!(
        "a claim cannot be changed: correct the pool (apiGroup: {group}, kind: {}) in the template{user} from which the \
         claim was created, and delete the claim so that its controller creates it again: kubectl delete \
         ipaddressclaims.{group} {name} --namespace {namespace}",
        claim.meant,
        group = names::GROUP,
    );
    Check::UnknownPoolKind.finding(
        format!("ipaddressclaim {}", claim.key),
        claim.problem(),
        repair,
    )
}

fn duplicates(pools: &[PoolRow], addresses: &[AddressRow]) -> Vec<Finding> {
    let scopes: HashMap<&PoolKey, &Scope> =
        pools.iter().map(|pool| (&pool.key, &pool.scope)).collect();
    let mut users: HashMap<_, Vec<&AddressRow>> = HashMap::new();
    for address in addresses {
        let scope = scopes
            .get(&address.pool)
            .map_or_else(|| Scope::Pool(address.pool.clone()), |&scope| scope.clone());
        users
            .entry((scope, address.block))
            .or_default()
            .push(address);
    }
    let several = users.into_iter().filter(|(_, users)| users.len() > 1);
    several
        .map(|((_, block), users)| {
            let mut names: Vec<String> = users
                .iter()
                .map(|address| address.key.to_string())
                .collect();
            names.sort();
            let problem = format!(
                "{} IPAddresses have this address: {}",
                users.len(),
                names.join(", ")
            );
            let repair = format!("{}; kubectl ipam who {block} shows them", advice::DUPLICATE);
            Check::DuplicateAddress.finding(format!("address {block}"), problem, repair)
        })
        .collect()
}

/// IPAddresses without their claim, and bound claims without their IPAddress.
fn unreferenced(addresses: &[AddressRow], claims: &Claims) -> Vec<Finding> {
    let claim_keys = keys(claims);
    let address_keys: HashSet<&NamespacedName> =
        addresses.iter().map(|address| &address.key).collect();
    let mut findings = Vec::new();
    for address in addresses {
        let (namespace, name) = address.key.parts();
        if !claim_keys.contains(&address.claim_key()) {
            let problem = format!(
                "its claim {} does not exist; {} counts as in use",
                address.claim, address.block
            );
            let repair = format!(
                "if no machine uses it: kubectl delete ipaddresses.{} {name} --namespace {namespace}",
                names::GROUP
            );
            findings.push(Check::OrphanAddress.finding(of_address(address), problem, repair));
        }
    }
    for claim in &claims.served {
        let (namespace, name) = claim.key.parts();
        let bound = claim.address_key().filter(|_| !claim.deleting);
        let lost = bound.filter(|address| !address_keys.contains(address));
        if let Some(address) = lost {
            let problem = format!(
                "it is bound to IPAddress {}, which does not exist",
                address.name()
            );
            let repair = format!(
                "the provider creates it again; if not: kubectl describe ipaddressclaims.{} {name} --namespace \
                 {namespace}",
                names::GROUP
            );
            findings.push(Check::LostAddress.finding(of_claim(claim), problem, repair));
        }
    }
    findings
}

/// The names of all claims, also of those that no provider serves.
fn keys(claims: &Claims) -> HashSet<&NamespacedName> {
    let unserved = claims.unserved.iter().map(|claim| &claim.key);
    claims
        .served
        .iter()
        .map(|claim| &claim.key)
        .chain(unserved)
        .collect()
}

/// Claims and IPAddresses of pools that do not exist.
fn missing_pools(pools: &[PoolRow], addresses: &[AddressRow], claims: &[ClaimRow]) -> Vec<Finding> {
    let pools: HashSet<&PoolKey> = pools.iter().map(|pool| &pool.key).collect();
    let mut findings = Vec::new();
    let mut add = |object: String, pool: &PoolKey, repair: String| {
        findings.push(Check::MissingPool.finding(
            object,
            format!("{} does not exist", full(pool)),
            repair,
        ));
    };
    for address in addresses
        .iter()
        .filter(|address| !pools.contains(&address.pool))
    {
        let repair = format!(
            "create {}, or delete the claim {}",
            full(&address.pool),
            address.claim
        );
        add(of_address(address), &address.pool, repair);
    }
    for claim in claims.iter().filter(|claim| !pools.contains(&claim.pool)) {
        add(
            of_claim(claim),
            &claim.pool,
            advice::MISSING_POOL.to_owned(),
        );
    }
    findings
}

fn of_address(address: &AddressRow) -> String {
    format!("ipaddress {}", address.key)
}

fn of_claim(claim: &ClaimRow) -> String {
    format!("ipaddressclaim {}", claim.key)
}

/// Reservations for claims that do not exist. Those that cool down end by themselves, and those of
/// users stay.
fn abandoned(reservations: &[ReservationRow], claims: &Claims) -> Vec<Finding> {
    let claims = keys(claims);
    let held = reservations
        .iter()
        .filter(|reservation| reservation.has_uid && reservation.released.is_none());
    held.filter_map(|reservation| {
        let claim = reservation
            .claim
            .as_ref()
            .filter(|claim| !claims.contains(claim))?;
        let name = reservation.slot.reservation_name();
        let problem = format!(
            "its claim {claim} does not exist; {} is not allocated",
            reservation.slot.block
        );
        let repair = format!(
            "the sweep deletes it after a minute; if not: kubectl delete ipreservation {name}"
        );
        Some(Check::AbandonedReservation.finding(format!("ipreservation {name}"), problem, repair))
    })
    .collect()
}

/// What a pool reports.
fn problems(pool: &PoolRow) -> Vec<Finding> {
    let (object, edit) = (full(&pool.key), edit(&pool.key));
    let mut findings = Vec::new();
    if let Err(problem) = &pool.usable {
        findings.push(Check::PoolNotReady.finding(
            object.clone(),
            problem.clone(),
            format!("correct it: {edit}"),
        ));
    }
    for condition in &pool.conditions {
        let message = condition.message.clone().unwrap_or_default();
        let is = |status: &str| condition.status == status;
        let (check, repair) = match (condition.type_.as_ref(), condition.reason.as_deref()) {
            (conditions::READY, Some(conditions::INITIALIZATION_FAILED)) if is("False") => (
                Check::PoolNotReady,
                "correct the webhook or policy that the message names".to_owned(),
            ),
            (conditions::READY, Some(conditions::NETWORK_NOT_FOUND)) if is("False") => (
                Check::PoolNotReady,
                format!("create the IPNetwork, or correct spec.network: {edit}"),
            ),
            (conditions::READY, Some(conditions::NETWORK_NOT_ALLOWED)) if is("False") => {
                let network = pool.spec.network().unwrap_or("NAME");
                (
                    Check::PoolNotReady,
                    format!(
                        "allow the namespace in the network: kubectl edit ipnetworks {network}"
                    ),
                )
            }
            (conditions::READY, Some(conditions::NETWORK_NOT_READY)) if is("False") => (
                Check::PoolNotReady,
                "correct the network that the message names: kubectl ipam networks".to_owned(),
            ),
            (conditions::READY, Some(conditions::BLOCK_LENGTH_MISMATCH)) if is("False") => (
                Check::PoolNotReady,
                format!("use another network for the pool: {edit}"),
            ),
            (conditions::OUT_OF_RANGE, _) if is("True") => (
                Check::AddressesOutOfRange,
                format!("add the addresses again, or replace the machines: {edit}"),
            ),
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
    let object = of_claim(claim);
    let mut findings = Vec::new();
    if let Some(message) = claim.not_in_use.as_deref().filter(|_| !claim.deleting) {
        let user = claim.machine.as_deref().unwrap_or("its machine");
        let repair = format!("correct the network configuration of {user}, or replace the machine");
        findings.push(Check::AddressNotInUse.finding(object.clone(), message.to_owned(), repair));
    }
    if let Some(message) = claim.replaced.as_deref().filter(|_| !claim.deleting) {
        let user = claim.machine.as_deref().unwrap_or("its machine");
        let (namespace, name) = claim.key.parts();
        let repair = format!(
            "compare the address of {user} with that of the claim: kubectl get ipaddresses.{} {name} --namespace \
             {namespace}; replace the machine if they differ",
            names::GROUP
        );
        findings.push(Check::RestoredWithoutAddress.finding(
            object.clone(),
            message.to_owned(),
            repair,
        ));
    }
    if claim.deleting && claim.reason.as_deref() == Some(conditions::RELEASED_EARLY) {
        let message = claim.message.as_deref().unwrap_or_default().to_owned();
        let repair = "verify that the machine no longer exists, and then find out why its controller keeps the claim";
        findings.push(Check::ReleasedEarly.finding(object, message, repair.to_owned()));
    }
    findings
}

/// What a network reports. A network that is being deleted is not ready until its pools are
/// deleted.
fn network_problem(network: &NetworkRow) -> Option<Finding> {
    let reported = network
        .problem()
        .filter(|ready| ready.reason.as_deref() != Some(conditions::DELETING));
    let reported = reported.and_then(|ready| ready.message.clone());
    let problem = network.invalid.clone().or(reported)?;
    let repair = format!("correct it: kubectl edit ipnetworks {}", network.name);
    Some(Check::NetworkNotReady.finding(format!("IPNetwork {}", network.name), problem, repair))
}

/// Pools of different scopes that can allocate the same address. From the specifications: the Go
/// provider writes no conditions.
fn overlaps(pools: &[PoolRow]) -> Vec<Finding> {
    // A pool that its network refuses does not allocate.
    let network_problems = [
        conditions::NETWORK_NOT_FOUND,
        conditions::NETWORK_NOT_ALLOWED,
        conditions::NETWORK_NOT_READY,
        conditions::BLOCK_LENGTH_MISMATCH,
    ];
    let is_refused = |pool: &PoolRow| {
        pool.ready().is_some_and(|(_, reason)| {
            reason.is_some_and(|reason| network_problems.contains(&reason))
        })
    };
    let allocating = pools.iter().filter(|pool| !is_refused(pool));
    let known: Vec<_> = allocating
        .filter_map(|pool| Some((pool, pool.usable.as_ref().ok()?)))
        .collect();
    let mut extents = Extents::default();
    known
        .iter()
        .enumerate()
        .for_each(|(number, (_, usable))| extents.insert(usable, number));
    let of_pool = |(pool, usable): &(&PoolRow, &UsableBlocks)| {
        let near: BTreeSet<usize> = extents.overlapping(usable).copied().collect();
        let others = near.into_iter().filter_map(|number| known.get(number));
        let others =
            others.filter(|(other, theirs)| other.scope != pool.scope && usable.overlaps(theirs));
        let others: Vec<_> = others.collect();
        if others.is_empty() {
            return None;
        }
        let names: Vec<String> = others
            .iter()
            .take(MAX_NAMED)
            .map(|(other, _)| full(&other.key))
            .collect();
        let more = others.len().saturating_sub(MAX_NAMED);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        let problem = format!(
            "the same addresses can be allocated by {}{more}",
            names.join(", ")
        );
        let has_one_length = others
            .iter()
            .all(|(_, theirs)| theirs.length == usable.length);
        let repair = format!(
            "{}: {}",
            advice::overlap(&pool.scope, has_one_length),
            edit(&pool.key)
        );
        Some(Check::PoolsOverlap.finding(full(&pool.key), problem, repair))
    };
    known.iter().filter_map(of_pool).collect()
}

fn leaderless(leases: &[LeaseRow], now: Timestamp) -> Option<Finding> {
    let is_held = |lease: &LeaseRow| {
        let end = SignedDuration::from_secs(lease.seconds).saturating_add(LEASE_TOLERANCE);
        let renewed = lease
            .renewed
            .is_some_and(|renewed| now.duration_since(renewed) <= end);
        renewed
            && lease
                .holder
                .as_deref()
                .is_some_and(|holder| !holder.is_empty())
    };
    if leases.iter().any(is_held) {
        return None;
    }
    let (object, problem) = match leases.first() {
        Some(lease) => {
            let since = lease
                .renewed
                .map(|renewed| format!(" since {renewed}"))
                .unwrap_or_default();
            (
                format!("lease {}/{}", lease.namespace, names::IN_CLUSTER_LEASE),
                format!("nobody renews it{since}"),
            )
        }
        None => (
            format!("lease {}", names::IN_CLUSTER_LEASE),
            "it does not exist: no provider runs with leader election".to_owned(),
        ),
    };
    let namespace = leases
        .first()
        .map_or("capi-ipam-in-cluster-system", |lease| {
            lease.namespace.as_str()
        });
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
    if let (Some((namespace, service)), Some(Some(0))) = (&webhook.service, webhook.ready.known()) {
        let problem = format!(
            "no replica of service {namespace}/{service} is ready, so pools cannot be written"
        );
        let repair = format!("kubectl describe pods --namespace {namespace}");
        findings.push(Check::WebhookUnavailable.finding(webhook.name.clone(), problem, repair));
    }
    findings
}
