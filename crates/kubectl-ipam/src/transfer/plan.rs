//! Compares a file with the objects of the cluster. A pure function.

use std::collections::{HashMap, HashSet};

use capi_ipam::api::{IPReservation, Pool, PoolKey, PoolSpec, Scope, Slot};
use capi_ipam_ip::Block;
use kube::api::ObjectMeta;
use serde_json::Value;

use super::{Entry, Parsed, Record, Wanted, table};
use crate::cluster::Identity;
use crate::model::ImportProblem;
use crate::objects::Key;
use crate::reserve::reservation;

/// The label of objects that `import` creates: the name of the import.
pub(super) const IMPORT_LABEL: &str = "ipam.cluster.x-k8s.io/import";

/// What the cluster contains.
#[derive(Debug, Default)]
pub(super) struct Existing {
    pub(super) pools: HashMap<PoolKey, ExistingPool>,
    /// By name.
    pub(super) reservations: HashMap<String, ExistingReservation>,
    /// The claims that have IPAddresses, by pool and address: those of the file only.
    pub(super) addresses: Vec<(PoolKey, Block, Key)>,
    /// Pools with IPAddresses or claims.
    pub(super) pools_in_use: HashSet<PoolKey>,
}

#[derive(Debug)]
pub(super) struct ExistingPool {
    pub(super) spec: PoolSpec,
    pub(super) import: Option<String>,
    pub(super) version: Identity,
}

#[derive(Debug)]
pub(super) struct ExistingReservation {
    pub(super) claim: Option<Key>,
    /// Whether a claim holds it, or the address cools down: it is not one of a user.
    pub(super) is_held: bool,
    pub(super) import: Option<String>,
    pub(super) version: Identity,
}

/// A change of one object.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) line: Option<u64>,
    pub(super) action: Action,
}

#[derive(Debug)]
pub(super) enum Action {
    CreatePool(PoolKey, Box<Pool>),
    UpdatePool(PoolKey, Identity, Value),
    CreateReservation(Box<IPReservation>),
    /// All fields are immutable: it is deleted and created.
    ReplaceReservation(Identity, Box<IPReservation>),
    DeleteReservation(String, Identity),
    DeletePool(PoolKey, Identity),
}

/// The changes, in the order in which they are made, and the number of objects that are as in the file.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Pools first: the webhook of a reservation reads its pool.
    pub(super) pools: Vec<Change>,
    pub(super) reservations: Vec<Change>,
    pub(super) deletions: Vec<Change>,
    pub(super) unchanged: u64,
}

/// Returns the changes, or all problems. `prune` deletes objects of the import that the file does not contain.
pub(super) fn plan(parsed: Parsed, existing: &Existing, import: &str, prune: bool) -> Result<Plan, Vec<ImportProblem>> {
    let mut planner = Planner::new(existing, import, parsed.problems);
    planner.is_table = parsed.is_table;
    let (pools, reservations): (Vec<_>, Vec<_>) =
        parsed.records.into_iter().partition(|record| matches!(record.entry, Entry::Pool(_)));
    for Record { line, entry } in pools.into_iter().chain(reservations) {
        let result = match entry {
            Entry::Pool(pool) => planner.pool(line, *pool),
            Entry::Reservation(wanted) => planner.reservation(line, &wanted),
        };
        if let Err(problem) = result {
            planner.problems.push(ImportProblem { line: Some(line), problem });
        }
    }
    if prune {
        planner.prune();
    }
    let Planner { plan, mut problems, .. } = planner;
    problems.sort();
    if problems.is_empty() { Ok(plan) } else { Err(problems) }
}

struct Planner<'a> {
    existing: &'a Existing,
    import: &'a str,
    plan: Plan,
    problems: Vec<ImportProblem>,
    /// Whether the file is a table.
    is_table: bool,
    /// Specifications of pools as they will be.
    specs: HashMap<PoolKey, PoolSpec>,
    /// The lines of pools and of the names of reservations.
    pool_lines: HashMap<PoolKey, u64>,
    reservation_lines: HashMap<String, u64>,
    /// The claims with IPAddresses.
    users: HashMap<Block, Vec<(&'a PoolKey, &'a Key)>>,
}

impl<'a> Planner<'a> {
    fn new(existing: &'a Existing, import: &'a str, problems: Vec<ImportProblem>) -> Self {
        let mut users: HashMap<Block, Vec<_>> = HashMap::new();
        for (pool, block, claim) in &existing.addresses {
            users.entry(*block).or_default().push((pool, claim));
        }
        Self {
            existing,
            import,
            plan: Plan::default(),
            problems,
            is_table: false,
            specs: existing.pools.iter().map(|(key, pool)| (key.clone(), pool.spec.clone())).collect(),
            pool_lines: HashMap::new(),
            reservation_lines: HashMap::new(),
            users,
        }
    }

    fn pool(&mut self, line: u64, pool: Pool) -> Result<(), String> {
        let key = PoolKey::of(&pool);
        if let Some(other) = self.pool_lines.insert(key.clone(), line) {
            return Err(format!("{key} is also in line {other}"));
        }
        if let Err(problems) = pool.spec.usable() {
            for problem in &problems {
                self.problems.push(ImportProblem { line: Some(line), problem: format!("{key}: {problem}") });
            }
            return Ok(());
        }
        let spec = pool.spec.clone();
        let action = match self.existing.pools.get(&key) {
            None => Action::CreatePool(key.clone(), Box::new(self.labelled(pool))),
            Some(existing) if existing.spec == spec => {
                self.plan.unchanged = self.plan.unchanged.saturating_add(1);
                return Ok(());
            }
            Some(existing) => {
                self.require_own(existing.import.as_deref()).map_err(|why| {
                    format!("{key} exists with another specification and {why}; change it with kubectl edit")
                })?;
                let lost = if self.is_table { table::fields_without_column(&existing.spec) } else { Vec::new() };
                if !lost.is_empty() {
                    return Err(format!(
                        "{key} has {}, for which a table has no column; import it as YAML or JSON",
                        lost.join(", ")
                    ));
                }
                let value = serde_json::to_value(&spec).map_err(|error| error.to_string())?;
                Action::UpdatePool(key.clone(), existing.version.clone(), value)
            }
        };
        self.plan.pools.push(Change { line: Some(line), action });
        self.specs.insert(key, spec);
        Ok(())
    }

    /// The pool with the metadata of the file that users own, and with the label of the import.
    fn labelled(&self, pool: Pool) -> Pool {
        let ObjectMeta { name, namespace, labels, annotations, .. } = pool.metadata;
        let mut labels = labels.unwrap_or_default();
        labels.insert(IMPORT_LABEL.to_owned(), self.import.to_owned());
        let metadata = ObjectMeta { name, namespace, labels: Some(labels), annotations, ..ObjectMeta::default() };
        let api_version = format!("{}/{}", capi_ipam::api::names::GROUP, capi_ipam::api::names::POOL_VERSION);
        Pool { api_version: Some(api_version), metadata, status: None, ..pool }
    }

    fn require_own(&self, import: Option<&str>) -> Result<(), String> {
        match import {
            Some(name) if name == self.import => Ok(()),
            Some(name) => Err(format!("was created by the import {name}")),
            None => Err("was not created by an import".to_owned()),
        }
    }

    fn reservation(&mut self, line: u64, wanted: &Wanted) -> Result<(), String> {
        let Wanted { pool, block, scope, claim } = wanted;
        let spec =
            self.specs.get(pool).ok_or_else(|| format!("{pool} exists neither in the cluster nor in the file"))?;
        let expected = Scope::of(pool, spec.network());
        if let Some(scope) = scope.as_ref().filter(|scope| **scope != expected) {
            return Err(format!("spec.scope: is {}; the scope of {pool} is {}", scope.name(), expected.name()));
        }
        // An invalid specification has its own problem.
        if spec.usable().is_ok_and(|usable| !usable.contains(*block)) {
            return Err(format!("{pool} does not contain {block}"));
        }
        let slot = Slot { scope: expected, block: *block };
        let name = slot.reservation_name();
        if let Some(other) = self.reservation_lines.insert(name.clone(), line) {
            return Err(format!("{slot} is also in line {other}"));
        }
        if let Some(user) = self.user(&slot).filter(|user| Some(*user) != claim.as_ref()) {
            return Err(format!("{slot} is in use by the claim {}", join(user)));
        }
        let mut new = reservation(&slot, pool, claim.as_ref());
        new.metadata.labels = Some([(IMPORT_LABEL.to_owned(), self.import.to_owned())].into());
        let action = match self.existing.reservations.get(&name) {
            None => Action::CreateReservation(Box::new(new)),
            Some(existing) if existing.is_held => {
                let holder = existing.claim.as_ref().map(join).unwrap_or_default();
                return Err(format!("{slot} is held by the claim {holder}, or cools down after its release"));
            }
            Some(existing) if existing.claim == *claim => {
                self.plan.unchanged = self.plan.unchanged.saturating_add(1);
                return Ok(());
            }
            Some(existing) => {
                self.require_own(existing.import.as_deref()).map_err(|why| {
                    let purpose = existing.claim.as_ref().map_or_else(
                        || "excluded from allocation".to_owned(),
                        |claim| format!("reserved for the claim {}", join(claim)),
                    );
                    format!("{slot} is {purpose}, and the reservation {why}")
                })?;
                Action::ReplaceReservation(existing.version.clone(), Box::new(new))
            }
        };
        self.plan.reservations.push(Change { line: Some(line), action });
        Ok(())
    }

    /// The claim with an IPAddress for this address.
    fn user(&self, slot: &Slot) -> Option<&'a Key> {
        let users = self.users.get(&slot.block)?;
        let is_here = |pool: &PoolKey| Scope::of(pool, self.specs.get(pool).and_then(PoolSpec::network)) == slot.scope;
        users.iter().find(|(pool, _)| is_here(pool)).map(|(_, claim)| *claim)
    }

    fn prune(&mut self) {
        for (name, reservation) in &self.existing.reservations {
            let is_own = reservation.import.as_deref() == Some(self.import) && !reservation.is_held;
            if is_own && !self.reservation_lines.contains_key(name) {
                let action = Action::DeleteReservation(name.clone(), reservation.version.clone());
                self.plan.deletions.push(Change { line: None, action });
            }
        }
        for (key, pool) in &self.existing.pools {
            if pool.import.as_deref() != Some(self.import) || self.pool_lines.contains_key(key) {
                continue;
            }
            if self.existing.pools_in_use.contains(key) {
                let problem = format!("{key} is not in the file, but has IPAddresses or claims; it cannot be deleted");
                self.problems.push(ImportProblem { line: None, problem });
                continue;
            }
            let action = Action::DeletePool(key.clone(), pool.version.clone());
            self.plan.deletions.push(Change { line: None, action });
        }
    }
}

fn join((namespace, name): &Key) -> String {
    format!("{namespace}/{name}")
}
