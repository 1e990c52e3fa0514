//! Whether the pools have room for the Machines that can exist at the same time.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use capi_ipam_api::{IPSlice, PoolKey, Scope};
use capi_ipam_controller::clock;
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ledger::{ClaimAttributes, Ledger, Outcome, Preparation, Reason};
use capi_ipam_provider::api::{IPAddressClaim, Machine, MachineIndex};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::ResourceExt;
use kube::api::{ApiResource, DynamicObject, ObjectMeta};
use kube::core::SelectorExt;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::pool_name::PoolName;
use crate::cli::MAX_REPLICAS;

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
    namespace: String,
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
        let replicas = stored.max(max).min(MAX_REPLICAS);
        let mut workload = Self {
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

/// What the Machines of each workload use of pools, and the claims of others that wait.
#[derive(Default)]
struct Uses {
    of_workloads: BTreeMap<(usize, PoolKey), Use>,
    waiting: Vec<(PoolKey, Use)>,
}

impl Uses {
    fn of(
        workloads: &[Workload],
        machines: &[Machine],
        claims: &[IPAddressClaim],
        ledger: &Ledger,
    ) -> Self {
        let mut numbers = HashMap::new();
        for (number, it) in workloads.iter().enumerate() {
            numbers.insert(
                (it.key.namespace(), it.kind.as_str(), it.key.name()),
                number,
            );
        }
        let index = machine_index(machines);
        let mut uses = Self::default();
        for claim in claims {
            let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
            let found = index.get(namespace).and_then(|index| index.find(claim));
            let machine = found.map(|(_, machine)| *machine);
            let is_leaving = |metadata: &ObjectMeta| metadata.deletion_timestamp.is_some();
            let is_left = is_leaving(&claim.metadata)
                || machine.is_some_and(|machine| is_leaving(&machine.metadata));
            let Some(pool) = PoolKey::of_claim(claim).filter(|_| !is_left) else {
                continue;
            };
            let creator = machine.and_then(creator);
            let number = creator.and_then(|(kind, name)| numbers.get(&(namespace, kind, name)));
            let is_bound = claim.bound_address().is_some();
            let new = || Use {
                attributes: attributes(&pool, claim, machine, ledger),
                namespace: namespace.to_owned(),
                claims: HashMap::new(),
                held: 0,
            };
            if let (Some(number), Some((machine, _))) = (number, found) {
                let entry = uses.of_workloads.entry((*number, pool.clone()));
                let entry = entry.or_insert_with(new);
                *entry.claims.entry(machine.to_owned()).or_default() += 1;
                entry.held = entry.held.saturating_add(is_bound.into());
            } else if !is_bound {
                uses.waiting.push((pool.clone(), new()));
            }
        }
        uses
    }
}

/// The Machines of each namespace.
pub(super) fn machine_index(machines: &[Machine]) -> HashMap<&str, MachineIndex<&Machine>> {
    let mut index: HashMap<&str, MachineIndex<&Machine>> = HashMap::new();
    for machine in machines {
        let namespace = machine.metadata.namespace.as_deref().unwrap_or_default();
        index.entry(namespace).or_default().insert(machine, machine);
    }
    index
}

/// Plans the peaks of all workloads at the same time, in their order. Other claims that wait are
/// served first. What the ledger proposes to claims that do not exist is what the pools can give.
pub(crate) fn plan(
    workloads: &[Workload],
    machines: &[Machine],
    claims: &[IPAddressClaim],
    ledger: &mut Ledger,
) -> (Vec<PlanLine>, Vec<PlanPool>) {
    let uses = Uses::of(workloads, machines, claims, ledger);
    let mut pools = BTreeMap::new();
    let mut proposals = 0;
    let mut take = |pool: &PoolKey, of: &Use, wanted: u64| {
        let counts = ledger.pools().counts(pool);
        let entry = pools.entry(pool.clone()).or_insert_with(|| PlanPool {
            pool: pool.into(),
            free: u64::try_from(counts.free).unwrap_or_default(),
            needed: 0,
            short: 0,
        });
        let (got, reason) = propose(ledger, &mut proposals, (pool, of, wanted));
        let short = wanted.saturating_sub(got);
        entry.needed = entry.needed.saturating_add(wanted);
        entry.short = entry.short.saturating_add(short);
        (short, reason)
    };
    for (pool, waiting) in &uses.waiting {
        take(pool, waiting, 1);
    }
    let mut lines = Vec::new();
    let mut observed = HashSet::new();
    for ((number, pool), used) in &uses.of_workloads {
        let Some(workload) = workloads.get(*number) else {
            continue;
        };
        observed.insert(*number);
        let per_machine = used.claims.values().copied().max().unwrap_or_default();
        let machines = workload.replicas.saturating_add(workload.surge);
        let needed = machines.saturating_mul(per_machine);
        let (short, reason) = take(pool, used, needed.saturating_sub(used.held));
        lines.push(workload.line(Some(PlanAddresses {
            pool: pool.into(),
            per_machine,
            needed,
            held: used.held,
            short,
            reason,
        })));
    }
    for (number, workload) in workloads.iter().enumerate() {
        if !observed.contains(&number) {
            lines.push(workload.line(None));
        }
    }
    (lines, pools.into_values().collect())
}

/// How many of the wanted addresses a pool gives, and why it gives no more.
fn propose(
    ledger: &mut Ledger,
    proposals: &mut u64,
    (pool, of, wanted): (&PoolKey, &Use, u64),
) -> (u64, Option<String>) {
    for got in 0..wanted {
        // No claim has such a name. Each proposal holds its address for its claim.
        let claim = NamespacedName::new(&of.namespace, &format!("-{proposals}"));
        *proposals = proposals.saturating_add(1);
        if !ledger.is_allowed_or_waits(pool, &claim) {
            let reason = "the pool does not allow the namespace (spec.allowedNamespaces)";
            return (got, Some(reason.to_owned()));
        }
        let mut outcome = ledger.propose(pool, &claim, of.attributes.clone());
        let owner = of.attributes.slice_owner.as_deref();
        if let (Outcome::First(preparation), Some(owner)) = (&outcome, owner) {
            let (Preparation::AssignSlice(block) | Preparation::ResumeSlice(block)) = preparation;
            let scope = Scope::Pool(pool.clone());
            let slice = IPSlice::assigned(&scope, *block, owner.clone(), clock::now());
            ledger.insert_slice(&slice);
            outcome = ledger.propose(pool, &claim, of.attributes.clone());
        }
        if let Outcome::NotNow(reason) = &outcome {
            return (got, Some(describe(reason)));
        }
    }
    (wanted, None)
}

fn describe(reason: &Reason) -> String {
    match reason {
        Reason::LimitReached(limit) => limit.to_string(),
        Reason::SliceUnavailable(refusal) => refusal.to_string(),
        Reason::NeedsBlock(_) => {
            "no address is free in the blocks of this management cluster; the manager takes another \
             one if the registry has a free one"
                .to_owned()
        }
        Reason::NoAddress | Reason::Unavailable(_) => {
            "no further address is free for it".to_owned()
        }
    }
}

impl Workload {
    fn line(&self, addresses: Option<PlanAddresses>) -> PlanLine {
        PlanLine {
            kind: self.kind.clone(),
            namespace: self.key.namespace().to_owned(),
            name: self.key.name().to_owned(),
            replicas: self.replicas,
            max_surge: self.surge,
            addresses,
        }
    }
}

#[cfg(test)]
mod tests;
