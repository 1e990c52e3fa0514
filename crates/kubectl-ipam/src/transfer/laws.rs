//! The laws of `import`, checked on a model of a cluster. Property tests and the fuzz target use
//! them.
//!
//! - An import that was made and is repeated changes nothing, also after the manager has moved
//!   reservations to another scope, or is about to.
//! - `prune` deletes no reservation whose pool and block the file contains.
//! - A reservation is created only where there is none of its pool and block, and none with its
//!   name.
//! - Each value of the file is in the object that is written. An unknown field is a problem,
//!   wherever it is.

use std::collections::HashSet;

use capi_ipam_api::{Pool, PoolKey, Scope, Slot, reservation_name};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::Block;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::document;
use super::existing::{Existing, ExistingPool, ExistingReservation, Metadata};
use super::file::parse;
use super::plan::{Action, Plan, plan};
use super::record::{IMPORT_LABEL, Parsed};
use crate::cluster::Identity;

/// The name of the import.
pub(super) const IMPORT: &str = "racks";
/// The namespace of the caller.
const NAMESPACE: &str = "team-a";
/// A field that no kind has.
const UNKNOWN: &str = "zzUnknown";

/// Imports a file, and then another one with `prune`, and checks the laws. The bits of `moves`
/// decide which pools join or leave a network afterwards, and how far their reservations are moved.
/// Fails with the law that does not hold.
pub fn check(before: &str, file: &str, moves: u64) -> Result<(), String> {
    let mut model = Model::default();
    if let Ok(plan) = plan(parse(before, NAMESPACE), &model.existing, IMPORT, false) {
        model.apply(plan)?;
    }
    let wanted = reserved(&parse(file, NAMESPACE));
    let Ok(first) = plan(parse(file, NAMESPACE), &model.existing, IMPORT, true) else {
        return check_problems(file, &model.existing);
    };
    check_values(&parse(file, NAMESPACE))?;
    check_unknown_fields(file)?;
    model.check_prune(&first, &wanted)?;
    model.apply(first)?;
    let again = model.plan(file)?;
    if !again.pools.is_empty() || !again.reservations.is_empty() || !again.deletions.is_empty() {
        return Err(format!("the second import makes changes: {again:?}"));
    }
    model.move_pools(moves);
    let third = model.plan(file)?;
    model.check_prune(&third, &wanted)?;
    if !third.pools.is_empty() {
        return Err(format!(
            "an import changes pools because they were moved: {third:?}"
        ));
    }
    // Applying it checks that no reservation is created twice.
    model.apply(third)
}

/// The pools and blocks that a file reserves.
fn reserved(parsed: &Parsed) -> HashSet<(PoolKey, Block)> {
    parsed
        .reserved()
        .map(|wanted| (wanted.pool.clone(), wanted.block))
        .collect()
}

/// Each problem says what is wrong.
fn check_problems(file: &str, existing: &Existing) -> Result<(), String> {
    let problems = match plan(parse(file, NAMESPACE), existing, IMPORT, true) {
        Ok(_) => Vec::new(),
        Err(refused) => refused.problems,
    };
    match problems.iter().find(|problem| problem.problem.is_empty()) {
        Some(problem) => Err(format!("a problem without a text: {problem:?}")),
        None if problems.is_empty() => Err("the same file has problems and has none".to_owned()),
        None => Ok(()),
    }
}

/// The decoded specification of each pool has every value that was read.
fn check_values(parsed: &Parsed) -> Result<(), String> {
    for wanted in parsed.pools() {
        let decoded = serde_json::to_value(&wanted.pool.spec).unwrap_or_default();
        if !is_kept(&wanted.spec, &decoded) {
            return Err(format!("{} was read as {decoded}", wanted.spec));
        }
    }
    Ok(())
}

/// Whether a value has everything that was read. A field with an empty value can be missing.
fn is_kept(read: &Value, kept: &Value) -> bool {
    match (read, kept) {
        (Value::Object(read), Value::Object(kept)) => {
            read.iter().all(|(name, value)| match kept.get(name) {
                Some(kept) => is_kept(value, kept),
                None => is_empty(value),
            })
        }
        (Value::Array(read), Value::Array(kept)) => {
            read.len() == kept.len()
                && read
                    .iter()
                    .zip(kept)
                    .all(|(read, kept)| is_kept(read, kept))
        }
        _ => read == kept,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}

/// An unknown field is a problem in every object of a manifest that has known ones.
fn check_unknown_fields(file: &str) -> Result<(), String> {
    if parse(file, NAMESPACE).is_table {
        return Ok(());
    }
    let (documents, _) = document::parse(file);
    for document in documents {
        let value = document.to_value();
        for pointer in objects(&value) {
            let mut changed = value.clone();
            let fields = changed.pointer_mut(&pointer).and_then(Value::as_object_mut);
            if let Some(fields) = fields {
                fields.insert(UNKNOWN.to_owned(), json!({ UNKNOWN: 1 }));
            }
            let parsed = parse(&changed.to_string(), NAMESPACE);
            if parsed.problems.is_empty() {
                return Err(format!(
                    "an unknown field in {pointer:?} is accepted: {changed}"
                ));
            }
        }
    }
    Ok(())
}

/// The JSON pointers of all objects. The value of a map of texts is no text, so a map has the
/// problem too. What an import does not read is left out.
fn objects(value: &Value) -> Vec<String> {
    let (mut found, mut rest) = (Vec::new(), vec![(String::new(), value)]);
    let is_list = value.get("kind").is_some_and(|kind| kind == "List");
    while let Some((pointer, value)) = rest.pop() {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let name = name.replace('~', "~0").replace('/', "~1");
                    let is_read =
                        name != "status" && !(is_list && pointer.is_empty() && name == "metadata");
                    if is_read && !pointer.ends_with("/metadata")
                        || ["labels", "annotations"].contains(&name.as_str())
                    {
                        rest.push((format!("{pointer}/{name}"), value));
                    }
                }
                found.push(pointer);
            }
            Value::Array(items) => {
                rest.extend(
                    items
                        .iter()
                        .enumerate()
                        .map(|(index, item)| (format!("{pointer}/{index}"), item)),
                );
            }
            _ => {}
        }
    }
    found
}

/// A cluster with a manager that moves reservations.
#[derive(Default)]
pub(super) struct Model {
    pub(super) existing: Existing,
    /// The number of objects that were created.
    created: u64,
}

impl Model {
    fn plan(&self, file: &str) -> Result<Plan, String> {
        let planned = plan(parse(file, NAMESPACE), &self.existing, IMPORT, true);
        planned.map_err(|refused| {
            let problems = refused.problems;
            format!("an import that was made has problems: {problems:?}")
        })
    }

    fn version(&mut self) -> Identity {
        self.created = self.created.saturating_add(1);
        Identity {
            uid: self.created.to_string(),
            resource_version: "1".to_owned(),
            generation: 1,
        }
    }

    /// Nothing that the file contains is deleted.
    fn check_prune(&self, plan: &Plan, wanted: &HashSet<(PoolKey, Block)>) -> Result<(), String> {
        for change in &plan.deletions {
            let Action::DeleteReservation(name, _) = &change.action else {
                continue;
            };
            let found = self
                .existing
                .reservations
                .iter()
                .find(|found| found.name == *name);
            let Some(found) = found else {
                return Err(format!("{name} is deleted and does not exist"));
            };
            if wanted.contains(&(found.pool.clone(), found.block)) {
                return Err(format!("prune deletes {name}, which the file contains"));
            }
            if found.is_held {
                return Err(format!("prune deletes {name}, which a claim holds"));
            }
        }
        Ok(())
    }

    /// Makes the changes as the API server does.
    pub(super) fn apply(&mut self, plan: Plan) -> Result<(), String> {
        let Plan {
            pools,
            reservations,
            deletions,
            ..
        } = plan;
        for change in pools.into_iter().chain(reservations).chain(deletions) {
            match change.action {
                Action::CreatePool(key, object) => self.create_pool(&key, object)?,
                Action::UpdatePool(key, version, update) => {
                    let spec = update
                        .spec
                        .as_ref()
                        .map(|spec| decode(&key, spec))
                        .transpose()?;
                    let Some(pool) = self
                        .existing
                        .pools
                        .get_mut(&key)
                        .filter(|pool| pool.version == version)
                    else {
                        return Err(format!("{key} is updated and does not exist"));
                    };
                    if let Some(Pool { spec, .. }) = spec {
                        if spec.network() != pool.spec.network() {
                            pool.scope = Scope::of(&key, spec.network());
                        }
                        pool.spec = spec;
                    }
                    merge(&mut pool.metadata, update.metadata);
                }
                Action::CreateReservation(new) => self.create_reservation(&new)?,
                Action::UpdateReservation(name, version, metadata) => {
                    let found = self
                        .existing
                        .reservations
                        .iter_mut()
                        .find(|found| found.name == name);
                    let Some(found) = found.filter(|found| found.version == version) else {
                        return Err(format!("{name} is updated and does not exist"));
                    };
                    merge(&mut found.metadata, metadata);
                }
                Action::DeleteReservation(name, _) => self
                    .existing
                    .reservations
                    .retain(|found| found.name != name),
                Action::DeletePool(key, _) => drop(self.existing.pools.remove(&key)),
            }
        }
        Ok(())
    }

    fn create_pool(&mut self, key: &PoolKey, object: Value) -> Result<(), String> {
        let pool: Pool = serde_json::from_value(object)
            .map_err(|error| format!("{key} cannot be decoded: {error}"))?;
        if pool.labels().get(IMPORT_LABEL).map(String::as_str) != Some(IMPORT) {
            return Err(format!("{key} has no label of the import"));
        }
        let entry = ExistingPool {
            scope: Scope::of(key, pool.spec.network()),
            metadata: Metadata::of(&pool.metadata),
            spec: pool.spec,
            version: self.version(),
        };
        match self.existing.pools.insert(key.clone(), entry) {
            Some(_) => Err(format!("{key} is created twice")),
            None => Ok(()),
        }
    }

    fn create_reservation(&mut self, new: &capi_ipam_api::IPReservation) -> Result<(), String> {
        let (slot, pool) = new
            .slot()
            .map_err(|problem| format!("an invalid reservation is created: {problem}"))?;
        let name = new.name_any();
        let is_same = |found: &ExistingReservation| found.pool == pool && found.block == slot.block;
        if self
            .existing
            .reservations
            .iter()
            .any(|found| found.name == name || is_same(found))
        {
            return Err(format!("{name} is created and exists"));
        }
        let claim = new.spec.claim_ref.as_ref();
        let entry = ExistingReservation {
            name,
            pool,
            scope: slot.scope,
            block: slot.block,
            claim: claim.map(|claim| NamespacedName::new(&claim.namespace, &claim.name)),
            is_held: false,
            metadata: Metadata::of(&new.metadata),
            version: self.version(),
        };
        self.existing.reservations.push(entry);
        Ok(())
    }

    /// Pools join a network that selects them, or leave theirs. Their reservations are moved,
    /// copied or not moved yet.
    pub(super) fn move_pools(&mut self, moves: u64) {
        let mut bits = Bits(moves);
        let mut keys: Vec<PoolKey> = self.existing.pools.keys().cloned().collect();
        keys.sort();
        for key in keys {
            if !bits.next() {
                continue;
            }
            let scope = if bits.next() {
                Scope::Network("selecting".into())
            } else {
                Scope::Pool(key.clone())
            };
            if let Some(pool) = self.existing.pools.get_mut(&key) {
                pool.scope = scope.clone();
            }
            self.move_reservations(&key, &scope, &mut bits);
        }
    }

    fn move_reservations(&mut self, key: &PoolKey, scope: &Scope, bits: &mut Bits) {
        let mut moved = Vec::new();
        let (own, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.existing.reservations)
            .into_iter()
            .partition(|found| found.pool == *key);
        self.existing.reservations = others;
        for old in own {
            let name = reservation_name(scope, old.block);
            let slot = Slot {
                scope: scope.clone(),
                block: old.block,
            };
            let is_taken = self
                .existing
                .reservations
                .iter()
                .any(|found| found.name == name);
            let (is_moved, is_copied) = (bits.next(), bits.next());
            if is_taken || !is_moved || old.scope == slot.scope {
                moved.push(old);
                continue;
            }
            let copy = ExistingReservation {
                name,
                scope: slot.scope,
                version: self.version(),
                ..old.clone()
            };
            if is_copied {
                moved.push(old);
            }
            moved.push(copy);
        }
        self.existing.reservations.extend(moved);
    }
}

fn decode(key: &PoolKey, spec: &Value) -> Result<Pool, String> {
    serde_json::from_value(json!({ "kind": key.kind, "spec": spec }))
        .map_err(|error| error.to_string())
}

fn merge(metadata: &mut Metadata, added: Metadata) {
    metadata.labels.extend(added.labels);
    metadata.annotations.extend(added.annotations);
}

/// Bits, repeated.
struct Bits(u64);

impl Bits {
    fn next(&mut self) -> bool {
        self.0 = self.0.rotate_right(1);
        self.0 >> 63 == 1
    }
}
