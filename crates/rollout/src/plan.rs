//! Whether the pools have room for the Machines that can exist at the same time.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use capi_ipam_api::{IPSlice, NamedPool, PoolChoice, PoolKey, PoolName, Scope};
use capi_ipam_contract::{IPAddressClaim, Machine, MachineIndex, Uid};
use capi_ipam_ledger::{
    ClaimAttributes, Ledger, Outcome, PoolInfo, Preparation, Reason, SetInfo, failure_domain,
    machine_failure_domain,
};
use capi_ipam_objects::clock;
use capi_ipam_objects::namespaced_name::NamespacedName;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::ResourceExt;
use kube::core::{ApiResource, DynamicObject, SelectorExt};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// The maximum number of replicas of an object, and of further addresses of a plan, that are
/// considered: the ledger is asked for each address.
pub const MAX_REPLICAS: u64 = 100_000;

/// The annotation with the maximum that the autoscaler uses.
const MAX_SIZE: &str = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size";
/// The label of the Machines of a MachineDeployment: its name.
const DEPLOYMENT_NAME: &str = "cluster.x-k8s.io/deployment-name";
/// The kind that this label is about.
const MACHINE_DEPLOYMENT: &str = "MachineDeployment";
/// Where the versions of MachineDeployments and control planes have the strategy of a rollout.
const STRATEGIES: [&str; 3] = [
    "/spec/rollout/strategy",
    "/spec/strategy",
    "/spec/rolloutStrategy",
];

/// An object that creates Machines, and the addresses that these need at its peak: while a rollout
/// runs, and with the largest number of replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanLine {
    /// Kind of the object, such as `MachineDeployment`.
    pub kind: String,
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// The replicas, or the maximum of the autoscaler if that is larger.
    pub replicas: u64,
    /// The number of further Machines during a rollout.
    pub max_surge: u64,
    /// The failure domain of its template.
    #[serde(skip)]
    pub zone: Option<String>,
    /// What its Machines use of one pool; omitted if none of them has a claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addresses: Option<PlanAddresses>,
}

/// The addresses of a pool that the Machines of one object need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanAddresses {
    /// The pool, or the set of pools.
    pub pool: PoolName,
    /// The largest number of claims that one of its Machines has for the pool.
    pub per_machine: u64,
    /// The addresses that are needed at the peak.
    pub needed: u64,
    /// The addresses that its Machines have, or that are reserved for their claims.
    pub held: u64,
    /// How many addresses the pool lacks for it, after those that are listed before.
    pub short: u64,
    /// Why they get no more; omitted if they get enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What is assumed of the failure domain of its Machines, if a set chooses pools by it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assumption: Option<String>,
}

/// What is needed of one pool, or of the pools of a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanPool {
    /// The pool, or the set of pools.
    pub pool: PoolName,
    /// The free addresses, with the headroom.
    pub free: u64,
    /// The addresses that are needed in addition to those that the Machines have, with those that
    /// other waiting claims get before.
    pub needed: u64,
    /// How many addresses the pool lacks for the Machines.
    pub short: u64,
    /// Those of them that it lacks since no address is free, and not because of a rule or a state.
    #[serde(skip)]
    pub missing: u64,
}

impl PlanLine {
    /// Reads an object of a kind; `None` if it is in deletion, or belongs to a MachineDeployment.
    /// `planned` is another number of replicas.
    pub fn of(kind: &ApiResource, object: &DynamicObject, planned: Option<u64>) -> Option<Self> {
        let metadata = &object.metadata;
        let controller = controller(object.owner_references());
        let is_part = controller.is_some_and(|(kind, _)| kind == MACHINE_DEPLOYMENT);
        if metadata.deletion_timestamp.is_some() || is_part {
            return None;
        }
        let stored = object.data.pointer("/spec/replicas");
        let stored = stored.and_then(Value::as_u64).unwrap_or(1);
        let max = object.annotations().get(MAX_SIZE);
        let max = max.and_then(|max| max.parse().ok()).unwrap_or_default();
        let replicas = planned.unwrap_or(stored.max(max)).min(MAX_REPLICAS);
        let template = object.data.pointer("/spec/template").cloned();
        let template: Option<Machine> = template.and_then(|it| serde_json::from_value(it).ok());
        // Only the other kinds have a rollout of their Machines.
        let max_surge = match kind.kind.as_str() {
            "MachineSet" | "MachinePool" => 0,
            _ => surge(&object.data, replicas),
        };
        Some(Self {
            kind: kind.kind.clone(),
            namespace: metadata.namespace.clone().unwrap_or_default(),
            name: object.name_any(),
            replicas,
            max_surge,
            zone: template.as_ref().and_then(machine_failure_domain),
            addresses: None,
        })
    }
}

/// The further Machines of a rollout: a number, or a percentage that is rounded up. The default of
/// Cluster API is 1.
fn surge(data: &Value, replicas: u64) -> u64 {
    let strategy = STRATEGIES.iter().find_map(|path| data.pointer(path));
    let is_manual = strategy.is_some_and(|it| it.get("type") == Some(&"OnDelete".into()));
    if replicas == 0 || is_manual {
        return 0;
    }
    let surge = strategy.and_then(|strategy| strategy.pointer("/rollingUpdate/maxSurge"));
    let percent = surge.and_then(Value::as_str);
    let percent = percent.and_then(|text| text.strip_suffix('%')?.parse::<u64>().ok());
    match percent {
        Some(percent) => replicas.saturating_mul(percent).div_ceil(100),
        None => surge.and_then(Value::as_u64).unwrap_or(1),
    }
    .min(MAX_REPLICAS)
}

/// The kind and the name of the controlling owner.
fn controller(owners: &[OwnerReference]) -> Option<(&str, &str)> {
    let owner = owners.iter().find(|owner| owner.controller == Some(true))?;
    Some((&owner.kind, &owner.name))
}

/// The kind and the name of the object that has created a Machine.
fn creator(machine: &Machine) -> Option<(&str, &str)> {
    match machine.labels().get(DEPLOYMENT_NAME) {
        Some(name) => Some((MACHINE_DEPLOYMENT, name)),
        None => controller(machine.owner_references()),
    }
}

/// A claim, and its Machine.
type Claimed<'a> = (&'a IPAddressClaim, Option<&'a Machine>);

/// The largest number of claims of one Machine.
fn per_machine(claims: &[Claimed<'_>]) -> u64 {
    let mut counts = HashMap::new();
    for (_, machine) in claims {
        let name = machine.and_then(|it| it.metadata.name.as_deref());
        *counts.entry(name).or_default() += 1;
    }
    counts.into_values().max().unwrap_or_default()
}

/// When the newest Machine of some claims was created.
fn newest<'a>(claims: &[Claimed<'a>]) -> Option<&'a Time> {
    let created =
        |(_, machine): &Claimed<'a>| machine.as_ref()?.metadata.creation_timestamp.as_ref();
    claims.iter().filter_map(created).max()
}

/// The number of claims that have an address of the pools, or for which one is reserved.
fn held(claims: &[Claimed<'_>], named: &NamedPool, ledger: &Ledger) -> u64 {
    let pools = ledger.pools_of(named);
    let mut count = 0;
    for (claim, _) in claims {
        let uid = Uid::of(claim.metadata.uid.as_deref().unwrap_or_default());
        let key = NamespacedName::of(&claim.metadata);
        let reserved = ledger.addresses().held_by(&key, uid);
        if claim.bound_address().is_some() || reserved.iter().any(|it| pools.contains(&it.pool)) {
            count += 1;
        }
    }
    count
}

/// The attributes of one of the claims, of one with an owner of slices if there is any.
fn attributes(claims: &[Claimed<'_>], info: &PoolInfo) -> ClaimAttributes {
    let mut found = ClaimAttributes::default();
    for (claim, machine) in claims {
        if found.slice_owner.is_none() {
            found = ClaimAttributes::of(claim, info, None);
        }
        if let (Some(selector), Some(machine)) = (info.headroom_selector(), machine) {
            found.uses_headroom |= selector.matches(machine.labels());
        }
    }
    found
}

/// The failure domain that the Machines of some claims have in common.
fn common_zone(claims: &[Claimed<'_>]) -> Option<String> {
    let zones = claims.iter();
    let zones = zones.map(|(claim, machine)| failure_domain(claim, *machine));
    let zones: BTreeSet<Option<String>> = zones.collect();
    zones
        .first()
        .cloned()
        .flatten()
        .filter(|_| zones.len() == 1)
}

/// What is assumed of the failure domain of further Machines.
fn assumption(set: Option<&SetInfo>, zone: Option<&str>) -> Option<String> {
    if set?.choose != PoolChoice::ByFailureDomain {
        return None;
    }
    Some(match zone {
        Some(zone) => format!("further Machines are assumed to be in failure domain {zone}"),
        None => "the failure domain of further Machines is unknown: all pools of the set count"
            .to_owned(),
    })
}

/// The claims that the Machines of each workload have for each pool or set, and those of others that
/// wait.
pub struct Uses<'a> {
    of_workloads: Vec<BTreeMap<NamedPool, Vec<Claimed<'a>>>>,
    waiting: Vec<(NamedPool, Claimed<'a>)>,
}

impl<'a> Uses<'a> {
    /// Assigns claims to the workloads whose Machines they are for.
    pub fn of(
        workloads: &[PlanLine],
        machines: &'a [Machine],
        claims: &'a [IPAddressClaim],
    ) -> Self {
        let mut numbers = HashMap::new();
        for (number, it) in workloads.iter().enumerate() {
            numbers.insert((&*it.namespace, &*it.kind, &*it.name), number);
        }
        let index = machine_index(machines);
        let mut uses = Self {
            of_workloads: vec![BTreeMap::new(); workloads.len()],
            waiting: Vec::new(),
        };
        for claim in claims {
            let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
            let found = index.get(namespace).and_then(|index| index.find(claim));
            let machine = found.map(|(_, machine)| *machine);
            let of_machine = machine.and_then(|it| it.metadata.deletion_timestamp.as_ref());
            let deleted = of_machine.or(claim.metadata.deletion_timestamp.as_ref());
            let Some(pool) = NamedPool::of_claim(claim).filter(|_| deleted.is_none()) else {
                continue;
            };
            let creator = machine.and_then(creator);
            let number = creator.and_then(|(kind, name)| numbers.get(&(namespace, kind, name)));
            if let Some(pools) = number.and_then(|number| uses.of_workloads.get_mut(*number)) {
                pools.entry(pool).or_default().push((claim, machine));
            } else if claim.bound_address().is_none() {
                uses.waiting.push((pool, (claim, machine)));
            }
        }
        uses
    }

    /// The pools and sets that the Machines of the workloads use.
    pub fn pools(&self) -> BTreeSet<NamedPool> {
        let pools = self.of_workloads.iter().flat_map(BTreeMap::keys);
        pools.cloned().collect()
    }
}

/// The Machines of each namespace.
pub fn machine_index(machines: &[Machine]) -> HashMap<&str, MachineIndex<&Machine>> {
    let mut index: HashMap<&str, MachineIndex<&Machine>> = HashMap::new();
    for machine in machines {
        let namespace = machine.metadata.namespace.as_deref().unwrap_or_default();
        index.entry(namespace).or_default().insert(machine, machine);
    }
    index
}

/// Plans the peaks of all workloads at the same time, in their order. Other claims that wait for
/// their pools are served first.
pub fn plan(
    workloads: Vec<PlanLine>,
    uses: &Uses<'_>,
    ledger: &mut Ledger,
) -> (Vec<PlanLine>, Vec<PlanPool>) {
    let mut planner = Planner::new(ledger, uses.pools());
    planner.serve_others(&uses.waiting);
    let mut lines = Vec::new();
    let mut unobserved = Vec::new();
    for (workload, used) in workloads.into_iter().zip(&uses.of_workloads) {
        let latest = used.values().map(|claims| newest(claims)).max();
        for (named, claims) in used {
            let is_latest = Some(newest(claims)) == latest;
            lines.push(PlanLine {
                addresses: Some(planner.plan_use(&workload, named, claims, is_latest)),
                ..workload.clone()
            });
        }
        if used.is_empty() {
            unobserved.push(workload);
        }
    }
    lines.extend(unobserved);
    (lines, planner.pools.into_values().collect())
}

/// What a pool gives the claims: their attributes, or why it gives nothing more.
type Offer = Result<ClaimAttributes, Refusal>;

/// Why a pool or a set gives no further address.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Refusal {
    /// No address is free.
    NoAddress,
    /// A rule or the state of the pool.
    Other(String),
}

impl Refusal {
    fn other(reason: &str) -> Self {
        Self::Other(reason.to_owned())
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::NoAddress => "no further address is free for it",
            Self::Other(reason) => reason,
        })
    }
}

/// Claims of one kind of Machine that need further addresses of a pool or a set.
struct Need<'a> {
    named: &'a NamedPool,
    set: Option<Arc<SetInfo>>,
    claims: &'a [Claimed<'a>],
    zone: Option<&'a str>,
    wanted: u64,
}

/// Fills the pools. What the ledger proposes to claims that do not exist is what the pools can give.
struct Planner<'a> {
    ledger: &'a mut Ledger,
    pools: BTreeMap<NamedPool, PlanPool>,
    /// The number of claims to which an address was proposed.
    proposals: u64,
}

impl<'a> Planner<'a> {
    fn new(ledger: &'a mut Ledger, used: BTreeSet<NamedPool>) -> Self {
        let mut pools = BTreeMap::new();
        for named in used {
            let members = ledger.pools_of(&named).into_iter();
            let free = members.map(|pool| ledger.pools().counts(&pool).free);
            let free = free.filter_map(|free| u64::try_from(free).ok());
            let line = PlanPool {
                pool: (&named).into(),
                free: free.fold(0, u64::saturating_add),
                needed: 0,
                short: 0,
                missing: 0,
            };
            pools.insert(named, line);
        }
        Self {
            ledger,
            pools,
            proposals: 0,
        }
    }

    /// The settings of the set that claims name.
    fn set_info(&mut self, named: &NamedPool) -> Option<Arc<SetInfo>> {
        match named {
            NamedPool::Pool(_) => None,
            NamedPool::Set(set) => Some(self.ledger.set_report(set)?.info),
        }
    }

    /// Serves claims of other Machines that wait for a pool of the workloads.
    fn serve_others(&mut self, waiting: &[(NamedPool, Claimed<'_>)]) {
        let used = self.pools.keys().flat_map(|it| self.ledger.pools_of(it));
        let used: BTreeSet<PoolKey> = used.collect();
        for (named, claim) in waiting {
            let mut members = self.ledger.pools_of(named).into_iter();
            if !members.any(|pool| used.contains(&pool)) {
                continue;
            }
            let claims = &[*claim];
            let zone = common_zone(claims);
            let need = Need {
                named,
                set: self.set_info(named),
                claims,
                zone: zone.as_deref(),
                wanted: 1_u64.saturating_sub(held(claims, named, self.ledger)),
            };
            let (got, _) = self.propose(&need);
            if let Some(line) = self.pools.get_mut(named) {
                line.needed = line.needed.saturating_add(got);
            }
        }
    }

    /// What the Machines of a workload need of one pool or set. New Machines use the pools of the
    /// newest one, and not those of an earlier template.
    fn plan_use(
        &mut self,
        workload: &PlanLine,
        named: &NamedPool,
        claims: &[Claimed<'_>],
        is_latest: bool,
    ) -> PlanAddresses {
        let per_machine = per_machine(claims);
        let needed = if is_latest {
            let machines = workload.replicas.saturating_add(workload.max_surge);
            machines.saturating_mul(per_machine)
        } else {
            claims.len() as u64
        };
        let held = held(claims, named, self.ledger);
        let zone = workload.zone.clone().or_else(|| common_zone(claims));
        let need = Need {
            named,
            set: self.set_info(named),
            claims,
            zone: zone.as_deref(),
            wanted: needed.saturating_sub(held),
        };
        let (got, reason) = self.propose(&need);
        let short = need.wanted.saturating_sub(got);
        if let Some(line) = self.pools.get_mut(named) {
            line.needed = line.needed.saturating_add(need.wanted);
            line.short = line.short.saturating_add(short);
            if reason == Some(Refusal::NoAddress) {
                line.missing = line.missing.saturating_add(short);
            }
        }
        PlanAddresses {
            pool: named.into(),
            per_machine,
            needed,
            held,
            short,
            reason: reason.map(|reason| reason.to_string()),
            assumption: assumption(need.set.as_deref(), need.zone),
        }
    }

    /// How many of the wanted addresses a pool or a set gives, and why it gives no more.
    fn propose(&mut self, need: &Need<'_>) -> (u64, Option<Refusal>) {
        let mut offers = BTreeMap::new();
        for got in 0..need.wanted {
            if let Err(reason) = self.propose_next(need, &mut offers) {
                return (got, Some(reason));
            }
        }
        (need.wanted, None)
    }

    /// Proposes one further address, or says why there is none. `offers` has what the pools gave
    /// before.
    fn propose_next(
        &mut self,
        need: &Need<'_>,
        offers: &mut BTreeMap<PoolKey, Offer>,
    ) -> Result<(), Refusal> {
        if self.proposals >= MAX_REPLICAS {
            let reason = format!("the plan has more than {MAX_REPLICAS} further addresses");
            return Err(Refusal::Other(reason));
        }
        let first = need.claims.first();
        let namespace = first.and_then(|(claim, _)| claim.metadata.namespace.as_deref());
        // No claim has such a name. Each proposal holds its address for its claim.
        let name = format!("-{}", self.proposals);
        let claim = NamespacedName::new(namespace.unwrap_or_default(), &name);
        self.proposals = self.proposals.saturating_add(1);
        let candidates = match (need.named, &need.set) {
            (NamedPool::Pool(pool), _) => vec![pool.clone()],
            (NamedPool::Set(key), Some(info)) if info.can_allocate() => {
                let domains = info.domains(need.zone);
                self.ledger.free_members(key, &claim, Uid::of(""), domains)
            }
            (NamedPool::Set(_), _) => {
                let reason = "the set does not exist, or allocates no address now";
                return Err(Refusal::other(reason));
            }
        };
        let mut refusal = None;
        for pool in candidates {
            let known = offers.remove(&pool);
            let offer = known.unwrap_or_else(|| offer(self.ledger, &pool, need.claims));
            let offer = offer.and_then(|it| propose_one(self.ledger, &pool, &claim, it));
            let refused = offer.as_ref().err().cloned();
            offers.insert(pool, offer);
            match refused {
                None => return Ok(()),
                refused => refusal = refusal.or(refused),
            }
        }
        Err(refusal.unwrap_or(Refusal::NoAddress))
    }
}

/// What the claims need to get an address of a pool, or why they get none.
fn offer(ledger: &Ledger, pool: &PoolKey, claims: &[Claimed<'_>]) -> Offer {
    let info = ledger.pools().pool_info(pool);
    let Some(info) = info.filter(|info| info.can_allocate()) else {
        let reason = "the pool does not exist, or allocates no address now";
        return Err(Refusal::other(reason));
    };
    let attributes = attributes(claims, &info);
    if info.slices.is_some() && attributes.slice_owner.is_none() {
        let reason = "its claims have no owner of slices of the pool (spec.slices)";
        return Err(Refusal::other(reason));
    }
    Ok(attributes)
}

/// Proposes an address of a pool to a claim.
fn propose_one(
    ledger: &mut Ledger,
    pool: &PoolKey,
    claim: &NamespacedName,
    attributes: ClaimAttributes,
) -> Offer {
    if !ledger.is_allowed_or_waits(pool, claim) {
        let reason = "the pool does not allow the namespace (spec.allowedNamespaces)";
        return Err(Refusal::other(reason));
    }
    let mut outcome = ledger.propose(pool, claim, attributes.clone());
    if let (Outcome::First(preparation), Some(owner)) = (&outcome, &attributes.slice_owner) {
        let (Preparation::AssignSlice(block) | Preparation::ResumeSlice(block)) = preparation;
        let scope = Scope::Pool(pool.clone());
        let slice = IPSlice::assigned(&scope, *block, (**owner).clone(), clock::now());
        ledger.insert_slice(&slice);
        outcome = ledger.propose(pool, claim, attributes.clone());
    }
    match &outcome {
        Outcome::NotNow(reason) => Err(refusal(reason)),
        _ => Ok(attributes),
    }
}

fn refusal(reason: &Reason) -> Refusal {
    match reason {
        Reason::LimitReached(limit) => Refusal::Other(limit.to_string()),
        Reason::SliceUnavailable(refusal) => Refusal::Other(refusal.to_string()),
        Reason::NeedsBlock(_) => Refusal::other(
            "no address is free in the blocks of this management cluster; the manager takes another \
             one if the registry has a free one",
        ),
        Reason::NoAddress | Reason::Unavailable(_) => Refusal::NoAddress,
    }
}

#[cfg(test)]
mod tests;
