//! Whether the pools have room for the Machines that can exist at the same time.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use capi_ipam_api::PoolKey;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ledger::{ClaimAttributes, Demand, Ledger, plan as grant};
use capi_ipam_provider::api::{IPAddressClaim, Machine, MachineIndex};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::{ApiResource, DynamicObject};
use kube::core::SelectorExt;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::pool_name::PoolName;

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

/// An object that creates Machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Workload {
    group: String,
    kind: String,
    key: NamespacedName,
    /// The largest number of Machines that it keeps.
    replicas: u64,
    /// The number of further Machines during a rollout.
    surge: u64,
}

/// The addresses that the Machines of one object need at its peak: while a rollout runs, and with
/// the largest number of replicas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanLine {
    /// API group of the object.
    pub group: String,
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
    /// What its Machines use of one pool; omitted if none of them has a claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addresses: Option<PlanAddresses>,
}

/// The addresses of a pool that the Machines of one object need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanAddresses {
    /// The pool.
    pub pool: PoolName,
    /// The largest number of claims that one of its Machines has for the pool.
    pub per_machine: u64,
    /// The addresses that are needed at the peak.
    pub needed: u64,
    /// The addresses that its Machines have.
    pub held: u64,
    /// How many addresses the pool lacks for it, after those that are listed before.
    pub short: u64,
    /// Why the pool has no more; omitted if it has enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What is needed of one pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlanPool {
    /// The pool.
    pub pool: PoolName,
    /// The free addresses, with the headroom.
    pub free: u64,
    /// The addresses that are needed in addition to those that the Machines have, with those of
    /// other waiting claims.
    pub needed: u64,
    /// How many addresses the pool lacks.
    pub short: u64,
}

/// What the Machines of an object use of a pool.
struct Use {
    attributes: ClaimAttributes,
    /// The number of claims of each Machine.
    claims: HashMap<String, u64>,
    held: u64,
}

impl Workload {
    /// Reads an object of a kind; `None` if it is in deletion, or belongs to a MachineDeployment.
    pub(crate) fn of(kind: &ApiResource, object: &DynamicObject) -> Option<Self> {
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
        let replicas = stored.max(max);
        let mut workload = Self {
            group: kind.group.clone(),
            kind: kind.kind.clone(),
            key: NamespacedName::of(metadata),
            replicas: 0,
            surge: 0,
        };
        workload.set_replicas(object, replicas);
        Some(workload)
    }

    /// Plans another number of replicas.
    pub(crate) fn set_replicas(&mut self, object: &DynamicObject, replicas: u64) {
        self.replicas = replicas;
        // Only these have a rollout of their Machines.
        let has_rollout = !["MachineSet", "MachinePool"].contains(&self.kind.as_str());
        self.surge = if has_rollout {
            surge(&object.data, replicas)
        } else {
            0
        };
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

/// What the wait queue would know of a claim, as the manager determines it.
fn attributes(
    pool: &PoolKey,
    claim: &IPAddressClaim,
    machine: Option<&Machine>,
    ledger: &Ledger,
) -> ClaimAttributes {
    let cluster = claim.cluster_name();
    let mut attributes = ClaimAttributes {
        cluster: cluster.map(Into::into),
        ..ClaimAttributes::default()
    };
    let Some(info) = ledger.pools().pool_info(pool) else {
        return attributes;
    };
    let access = info.access.as_ref();
    if let Some((_, selector)) = access.and_then(|access| access.headroom.as_ref()) {
        let is_machine = machine.is_some_and(|machine| selector.matches(machine.labels()));
        attributes.uses_headroom = is_machine || selector.matches(claim.labels());
    }
    if let Some(rules) = &info.slices {
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        let owner = rules.owner_of(namespace, cluster, claim.labels());
        attributes.slice_owner = owner.map(Arc::new);
    }
    attributes
}

/// What the claims in the cluster show.
struct Observed {
    /// What the Machines of each workload use.
    uses: Vec<BTreeMap<PoolKey, Use>>,
    /// Other claims that wait.
    waiting: Vec<Demand>,
}

impl Observed {
    fn of(
        workloads: &[Workload],
        machines: &[Machine],
        claims: &[IPAddressClaim],
        ledger: &Ledger,
    ) -> Self {
        let mut numbers = HashMap::new();
        for (number, workload) in workloads.iter().enumerate() {
            let (namespace, name) = workload.key.parts();
            numbers.insert((namespace, workload.kind.as_str(), name), number);
        }
        let index = machine_index(machines);
        let mut observed = Self {
            uses: workloads.iter().map(|_| BTreeMap::new()).collect(),
            waiting: Vec::new(),
        };
        for claim in claims {
            let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
            let found = index.get(namespace).and_then(|index| index.find(claim));
            let machine = found.map(|(_, machine)| *machine);
            let is_leaving = machine.is_some_and(|it| it.metadata.deletion_timestamp.is_some());
            let Some(pool) = PoolKey::of_claim(claim) else {
                continue;
            };
            if is_leaving || claim.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let creator = machine.and_then(creator);
            let number = creator.and_then(|(kind, owner)| numbers.get(&(namespace, kind, owner)));
            let attributes = attributes(&pool, claim, machine, ledger);
            let uses = number.and_then(|number| observed.uses.get_mut(*number));
            let is_bound = claim.bound_address().is_some();
            if let (Some(uses), Some((machine, _))) = (uses, found) {
                let used = uses.entry(pool).or_insert_with(|| Use::new(attributes));
                used.add(machine, is_bound);
            } else if !is_bound {
                observed.waiting.push(Demand {
                    pool,
                    namespace: namespace.to_owned(),
                    attributes,
                    addresses: 1,
                });
            }
        }
        observed
    }
}

impl Use {
    fn new(attributes: ClaimAttributes) -> Self {
        Self {
            attributes,
            claims: HashMap::new(),
            held: 0,
        }
    }

    fn add(&mut self, machine: &str, is_bound: bool) {
        let count = self.claims.entry(machine.to_owned()).or_default();
        *count = count.saturating_add(1);
        self.held = self.held.saturating_add(is_bound.into());
    }

    /// What a pool has to give to a workload.
    fn demand(&self, workload: &Workload, pool: &PoolKey) -> (PlanAddresses, Demand) {
        let per_machine = self.claims.values().copied().max().unwrap_or_default();
        let machines = workload.replicas.saturating_add(workload.surge);
        let needed = machines.saturating_mul(per_machine);
        let line = PlanAddresses {
            pool: pool.into(),
            per_machine,
            needed,
            held: self.held,
            short: 0,
            reason: None,
        };
        let demand = Demand {
            pool: pool.clone(),
            namespace: workload.key.namespace().to_owned(),
            attributes: self.attributes.clone(),
            addresses: needed.saturating_sub(self.held),
        };
        (line, demand)
    }
}

fn machine_index(machines: &[Machine]) -> HashMap<&str, MachineIndex<&Machine>> {
    let mut index: HashMap<&str, MachineIndex<&Machine>> = HashMap::new();
    for machine in machines {
        let namespace = machine.metadata.namespace.as_deref().unwrap_or_default();
        index.entry(namespace).or_default().insert(machine, machine);
    }
    index
}

/// Plans the peaks of all workloads at the same time, in their order. Other claims that wait are
/// served first.
pub(crate) fn plan(
    workloads: &[Workload],
    machines: &[Machine],
    claims: &[IPAddressClaim],
    ledger: &Ledger,
) -> (Vec<PlanLine>, Vec<PlanPool>) {
    let observed = Observed::of(workloads, machines, claims, ledger);
    let mut demands = observed.waiting;
    let mut lines = vec![None; demands.len()];
    let mut unobserved = Vec::new();
    for (workload, uses) in workloads.iter().zip(&observed.uses) {
        if uses.is_empty() {
            unobserved.push(workload.line(None));
        }
        for (pool, used) in uses {
            let (addresses, demand) = used.demand(workload, pool);
            lines.push(Some(workload.line(Some(addresses))));
            demands.push(demand);
        }
    }
    let grants = grant(ledger, &demands);
    let mut pools: BTreeMap<PoolKey, PlanPool> = BTreeMap::new();
    for ((demand, grant), line) in demands.iter().zip(grants).zip(&mut lines) {
        let short = demand.addresses.saturating_sub(grant.addresses);
        let key = &demand.pool;
        let pool = pools.entry(key.clone());
        let pool = pool.or_insert_with(|| PlanPool::of(key, ledger));
        pool.needed = pool.needed.saturating_add(demand.addresses);
        pool.short = pool.short.saturating_add(short);
        if let Some(addresses) = line.as_mut().and_then(|line| line.addresses.as_mut()) {
            addresses.short = short;
            addresses.reason = grant.limit.map(|limit| limit.to_string());
        }
    }
    let mut lines: Vec<PlanLine> = lines.into_iter().flatten().collect();
    lines.extend(unobserved);
    (lines, pools.into_values().collect())
}

impl Workload {
    fn line(&self, addresses: Option<PlanAddresses>) -> PlanLine {
        let (namespace, name) = self.key.parts();
        PlanLine {
            group: self.group.clone(),
            kind: self.kind.clone(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            replicas: self.replicas,
            max_surge: self.surge,
            addresses,
        }
    }
}

impl PlanPool {
    fn of(pool: &PoolKey, ledger: &Ledger) -> Self {
        let free = ledger.pools().counts(pool).free;
        Self {
            pool: pool.into(),
            free: u64::try_from(free).unwrap_or_default(),
            needed: 0,
            short: 0,
        }
    }
}

#[cfg(test)]
mod tests;
