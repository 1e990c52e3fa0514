//! Compares a file with the objects of the cluster. A pure function.
//!
//! A reservation is identified by its pool and its block, not by its name: the manager moves a
//! reservation to another name when the pool joins or leaves a network.

mod pools;
mod reservations;

use std::collections::{BTreeMap, HashMap, HashSet};

use capi_ipam_api::{IPReservation, PoolKey, PoolSpec, Scope, Slot};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::{Block, Family, UsableBlocks};
use kube::ResourceExt;
use serde_json::Value;

use self::reservations::spec_of;
use super::difference::{differences, texts};
use super::existing::{Existing, ExistingReservation, Metadata};
use super::record::{Entry, Parsed, RESERVATION, Record, Texts};
use crate::cluster::Identity;
use crate::model::{ChangeAction, FieldChange, ImportProblem, PoolName};

/// A change of one object.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) line: Option<u64>,
    pub(super) action: Action,
    /// The fields that change.
    pub(super) fields: Vec<FieldChange>,
    /// Whether the API server can refuse it now, and not after the changes of pools: it is a
    /// reservation in a pool that changes.
    pub(super) follows_pool: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Action {
    CreatePool(PoolKey, Value),
    UpdatePool(PoolKey, Identity, Box<Update>),
    CreateReservation(Box<IPReservation>),
    /// Adds labels and annotations. Everything else is immutable.
    UpdateReservation(String, Identity, Metadata),
    DeleteReservation(String, Identity),
    DeletePool(PoolKey, Identity),
}

/// A change of a pool.
#[derive(Clone, Debug, Default)]
pub(super) struct Update {
    /// The new specification, if it changes.
    pub(super) spec: Option<Value>,
    /// Labels and annotations to set.
    pub(super) metadata: Metadata,
}

impl Action {
    /// What happens to the object.
    pub(super) fn kind(&self) -> ChangeAction {
        match self {
            Self::CreatePool(..) | Self::CreateReservation(_) => ChangeAction::Created,
            Self::UpdatePool(..) | Self::UpdateReservation(..) => ChangeAction::Updated,
            Self::DeleteReservation(..) | Self::DeletePool(..) => ChangeAction::Deleted,
        }
    }

    /// Kind, namespace and name of the object.
    pub(super) fn identity(&self) -> (String, Option<String>, String) {
        let of_pool = |key: &PoolKey| {
            let PoolName {
                kind,
                namespace,
                name,
            } = key.into();
            (kind, namespace, name)
        };
        let of_reservation = |name: String| (RESERVATION.to_owned(), None, name);
        match self {
            Self::CreatePool(key, _) | Self::UpdatePool(key, ..) | Self::DeletePool(key, _) => {
                of_pool(key)
            }
            Self::CreateReservation(new) => of_reservation(new.name_any()),
            Self::UpdateReservation(name, ..) | Self::DeleteReservation(name, _) => {
                of_reservation(name.clone())
            }
        }
    }

    /// The kind and the name of the object, as `InClusterIPPool team-a/web`.
    pub(super) fn object(&self) -> String {
        let (kind, namespace, name) = self.identity();
        match namespace {
            Some(namespace) => format!("{kind} {namespace}/{name}"),
            None => format!("{kind} {name}"),
        }
    }
}

/// The changes, in the order in which they are made, and the number of objects that are as in the
/// file.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Pools first: the webhook of a reservation reads its pool.
    pub(super) pools: Vec<Change>,
    pub(super) reservations: Vec<Change>,
    /// Reservations first: they are in the pools.
    pub(super) deletions: Vec<Change>,
    pub(super) unchanged: u64,
    /// What differs from the file although it is no problem.
    pub(super) warnings: Vec<String>,
}

impl Plan {
    /// The changes in the order of their dependencies: those of a phase can be made at the same
    /// time, after those of the phase before.
    pub(super) fn phases(self) -> [Vec<Change>; 4] {
        let is_pool = |change: &Change| matches!(change.action, Action::DeletePool(..));
        let (deleted_pools, deleted_reservations) = self.deletions.into_iter().partition(is_pool);
        [
            self.pools,
            self.reservations,
            deleted_reservations,
            deleted_pools,
        ]
    }
}

/// What is wrong with a file, and the changes that it requires all the same. They are not made.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) problems: Vec<ImportProblem>,
    pub(super) plan: Plan,
}

/// Returns the changes, or all problems. `prune` deletes objects of the import that the file does
/// not contain.
pub(super) fn plan(
    parsed: Parsed,
    existing: &Existing,
    import: &str,
    prune: bool,
) -> Result<Plan, Box<Refused>> {
    let mut planner = Planner::new(&parsed, existing, import);
    planner.problems = parsed.problems;
    let (pools, reservations): (Vec<_>, Vec<_>) = parsed
        .records
        .into_iter()
        .partition(|record| matches!(record.entry, Entry::Pool(_)));
    for Record {
        line,
        entry,
        out_of_bounds,
    } in pools.into_iter().chain(reservations)
    {
        let result = match entry {
            Entry::Pool(wanted) => planner.pool(line, *wanted, out_of_bounds),
            Entry::Reservation(wanted) => planner.reservation(line, &wanted),
        };
        if let Err(problem) = result {
            planner.problem(line, problem);
        }
    }
    if prune {
        planner.prune();
    }
    let warnings = planner.scope_warnings();
    let Planner {
        mut plan,
        mut problems,
        ..
    } = planner;
    problems.sort();
    plan.warnings = warnings;
    if problems.is_empty() {
        Ok(plan)
    } else {
        Err(Box::new(Refused { problems, plan }))
    }
}

/// A pool as it will be after the import.
struct PlannedPool {
    /// The network or the pool itself.
    scope: Scope,
    /// The blocks; `None` if the specification is not valid, which is a problem of the pool.
    usable: Option<UsableBlocks>,
}

impl PlannedPool {
    fn new(spec: &PoolSpec, scope: Scope) -> Self {
        Self {
            scope,
            usable: spec.usable().ok(),
        }
    }
}

struct Planner<'a> {
    existing: &'a Existing,
    import: &'a str,
    plan: Plan,
    problems: Vec<ImportProblem>,
    /// Whether the file is a table.
    is_table: bool,
    /// The pools of the file, and those of the cluster that were needed.
    pools: HashMap<PoolKey, PlannedPool>,
    /// The pools that the import changes.
    changed_pools: HashSet<PoolKey>,
    /// The lines of pools, and of reservations by pool and block.
    pool_lines: HashMap<PoolKey, u64>,
    reservation_lines: HashMap<(PoolKey, Block), u64>,
    /// The lines of the names that the import creates.
    slot_lines: HashMap<Slot, (u64, Option<NamespacedName>)>,
    /// The block length of each network and family, as the first pool of the file has it.
    lengths: HashMap<(String, Family), (u8, PoolKey)>,
    /// The reservations of the cluster. While one is moved, there are two of a pool and block.
    by_block: HashMap<(&'a PoolKey, Block), Vec<&'a ExistingReservation>>,
    by_slot: HashMap<Slot, &'a ExistingReservation>,
    /// The names of reservations that a line of the file requires.
    required: HashSet<&'a str>,
    /// The claims with IPAddresses.
    users: HashMap<Block, Vec<(&'a PoolKey, &'a NamespacedName)>>,
    /// Reservations for which the file states another scope: the first line, that scope, and their
    /// number, by pool.
    other_scopes: BTreeMap<PoolKey, (u64, String, usize)>,
    /// The pools of the file that cannot be read.
    unread_pools: HashSet<PoolKey>,
}

impl<'a> Planner<'a> {
    fn new(parsed: &Parsed, existing: &'a Existing, import: &'a str) -> Self {
        let mut users: HashMap<Block, Vec<_>> = HashMap::new();
        for (pool, block, claim) in &existing.addresses {
            users.entry(*block).or_default().push((pool, claim));
        }
        let mut by_block: HashMap<_, Vec<_>> = HashMap::new();
        let mut by_slot = HashMap::new();
        for reservation in &existing.reservations {
            by_block
                .entry((&reservation.pool, reservation.block))
                .or_default()
                .push(reservation);
            by_slot.insert(reservation.slot(), reservation);
        }
        Self {
            existing,
            import,
            plan: Plan::default(),
            problems: Vec::new(),
            is_table: parsed.is_table,
            pools: HashMap::new(),
            changed_pools: HashSet::new(),
            pool_lines: HashMap::new(),
            reservation_lines: HashMap::new(),
            slot_lines: HashMap::new(),
            lengths: HashMap::new(),
            by_block,
            by_slot,
            required: HashSet::new(),
            users,
            other_scopes: BTreeMap::new(),
            unread_pools: parsed.unread_pools.clone(),
        }
    }

    fn problem(&mut self, line: u64, problem: String) {
        self.problems.push(ImportProblem::of_line(line, problem));
    }

    fn is_unchanged(&mut self) {
        self.plan.unchanged = self.plan.unchanged.saturating_add(1);
    }

    /// Fails if an object is not one of this import, which may not change it.
    fn require_own(&self, metadata: &Metadata) -> Result<(), String> {
        match metadata.import() {
            Some(name) if name == self.import => Ok(()),
            Some(name) => Err(format!("was created by the import {name}")),
            None => Err("was not created by an import".to_owned()),
        }
    }

    /// Deletes what the import created and the file does not contain.
    fn prune(&mut self) {
        self.prune_reservations();
        self.prune_pools();
    }

    fn prune_reservations(&mut self) {
        let is_unwanted = |found: &&ExistingReservation| {
            let is_own = found.metadata.import() == Some(self.import) && !found.is_held;
            let key = (found.pool.clone(), found.block);
            let is_in_file = self.reservation_lines.contains_key(&key);
            is_own && !is_in_file && !self.required.contains(found.name.as_str())
        };
        let mut unwanted: Vec<_> = self.existing.reservations.iter().collect();
        unwanted.retain(is_unwanted);
        unwanted.sort_by_key(|found| &found.name);
        for found in unwanted {
            let action = Action::DeleteReservation(found.name.clone(), found.version.clone());
            let spec = spec_of(&found.slot(), &found.pool, found.claim.as_ref());
            self.delete(action, deleted_fields(&spec));
        }
    }

    fn prune_pools(&mut self) {
        let mut reserving_lines: HashMap<&PoolKey, u64> = HashMap::new();
        for ((pool, _), line) in &self.reservation_lines {
            let first = reserving_lines.entry(pool).or_insert(*line);
            *first = (*first).min(*line);
        }
        let mut unwanted = BTreeMap::new();
        for (key, pool) in &self.existing.pools {
            if pool.metadata.import() != Some(self.import) || self.pool_lines.contains_key(key) {
                continue;
            }
            if let Some(line) = reserving_lines.get(key) {
                let problem = format!(
                    "{key} is not in the file, but this line reserves an address of it; add the pool"
                );
                self.problems.push(ImportProblem::of_line(*line, problem));
                continue;
            }
            if self.existing.pools_in_use.contains(key) {
                let problem = format!(
                    "{key} is not in the file, but has IPAddresses or claims; it cannot be deleted"
                );
                self.problems.push(ImportProblem::general(problem));
                continue;
            }
            unwanted.insert(key, pool);
        }
        for (key, pool) in unwanted {
            let action = Action::DeletePool(key.clone(), pool.version.clone());
            let spec = serde_json::to_value(&pool.spec).unwrap_or_default();
            self.delete(action, deleted_fields(&spec));
        }
    }

    fn delete(&mut self, action: Action, fields: Vec<FieldChange>) {
        self.plan.deletions.push(Change {
            line: None,
            action,
            fields,
            follows_pool: false,
        });
    }
}

/// The fields of a specification that is deleted.
fn deleted_fields(spec: &Value) -> Vec<FieldChange> {
    differences("spec", Some(spec), None)
}

/// The labels and annotations that an object gets, without the label of the import.
fn metadata_fields(found: &Metadata, wanted: &Metadata) -> Vec<FieldChange> {
    let mut fields = texts(
        "metadata.annotations",
        &found.annotations,
        &wanted.annotations,
    );
    fields.extend(texts("metadata.labels", &found.labels, &wanted.labels));
    fields
}

/// The labels and annotations of the file that an object does not have.
fn missing_metadata(wanted: &Metadata, found: &Metadata) -> Metadata {
    let missing = |wanted: &Texts, found: &Texts| {
        let differs = |(key, value): &(&String, &String)| found.get(*key) != Some(*value);
        wanted
            .iter()
            .filter(differs)
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    };
    Metadata {
        labels: missing(&wanted.labels, &found.labels),
        annotations: missing(&wanted.annotations, &found.annotations),
    }
}
