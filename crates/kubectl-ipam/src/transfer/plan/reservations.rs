//! The reservations of a file.

use capi_ipam_api::{IPReservation, PoolKey, Scope, Slot};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ip::Block;
use serde_json::Value;

use super::super::difference::differences;
use super::super::existing::{ExistingReservation, Metadata};
use super::super::record::{IMPORT_LABEL, Wanted, at_lines};
use super::{Action, Change, PlannedPool, Planner, metadata_fields, missing_metadata};
use crate::input::short;
use crate::user_reservation::{promised_to, reservation};

impl<'a> Planner<'a> {
    /// Plans a reservation. One that is as in the file is not checked: it is never a reason to stop
    /// an import.
    pub(super) fn reservation(&mut self, line: u64, wanted: &Wanted) -> Result<(), String> {
        // The problem of the pool is reported.
        if self.unread_pools.contains(&wanted.pool) {
            return Ok(());
        }
        let key = (wanted.pool.clone(), wanted.block);
        if let Some(other) = self.reservation_lines.insert(key, line) {
            return Err(format!(
                "{} of {} is also in line {other}",
                wanted.block, wanted.pool
            ));
        }
        let found = self
            .by_block
            .get(&(&wanted.pool, wanted.block))
            .cloned()
            .unwrap_or_default();
        let same = found
            .iter()
            .copied()
            .find(|found| !found.is_held && found.claim == wanted.claim);
        if let Some(same) = same {
            return self.same_reservation(line, wanted, same);
        }
        let slot = self.slot(line, wanted)?;
        if let Some(other) = found.first() {
            return Err(cannot_change(&slot, other));
        }
        if let Some(other) = self.by_slot.get(&slot).copied() {
            return self.reserved_for_other_pool(&slot, wanted, other);
        }
        if let Some((other, claim)) = self.slot_lines.get(&slot) {
            // Two pools of a network exclude the address: one reservation has this effect. Both
            // have to contain it, whichever line is first.
            if claim.is_none() && wanted.claim.is_none() {
                self.check_contained(&slot, wanted)?;
                self.is_unchanged();
                return Ok(());
            }
            return Err(format!("{slot} is also in line {other}"));
        }
        self.check_reservation(&slot, wanted)?;
        self.slot_lines
            .insert(slot.clone(), (line, wanted.claim.clone()));
        let follows_pool = self.changed_pools.contains(&wanted.pool);
        let mut fields = metadata_fields(&Metadata::default(), &wanted_metadata(wanted));
        let spec = spec_of(&slot, &wanted.pool, wanted.claim.as_ref());
        fields.extend(differences("spec", None, Some(&spec)));
        let action = Action::CreateReservation(Box::new(self.new_reservation(&slot, wanted)));
        self.plan.reservations.push(Change {
            line: Some(line),
            action,
            fields,
            follows_pool,
        });
        Ok(())
    }

    /// The reservation exists, perhaps in the scope that the pool leaves. Only its labels and
    /// annotations can differ.
    fn same_reservation(
        &mut self,
        line: u64,
        wanted: &Wanted,
        found: &'a ExistingReservation,
    ) -> Result<(), String> {
        let missing = missing_metadata(&wanted_metadata(wanted), &found.metadata);
        if missing.is_empty() {
            self.is_unchanged();
            return Ok(());
        }
        let ExistingReservation { name, version, .. } = found;
        self.require_own(&found.metadata).map_err(|why| {
            format!(
                "IPReservation {name} exists with other labels or annotations and {why}; change it with kubectl edit"
            )
        })?;
        let fields = metadata_fields(&found.metadata, &missing);
        let action = Action::UpdateReservation(name.clone(), version.clone(), missing);
        self.plan.reservations.push(Change {
            line: Some(line),
            action,
            fields,
            follows_pool: false,
        });
        Ok(())
    }

    /// The scope and the block. Fails if there is no pool.
    fn slot(&mut self, line: u64, wanted: &Wanted) -> Result<Slot, String> {
        let scope = match self.pool_after(&wanted.pool) {
            Some(pool) => pool.scope.clone(),
            None => {
                return Err(format!(
                    "{} exists neither in the cluster nor in the file",
                    wanted.pool
                ));
            }
        };
        if let Some(stated) = wanted.scope.as_ref().filter(|stated| **stated != scope) {
            let first = (line, stated.name(), 0);
            let (.., count) = self
                .other_scopes
                .entry(wanted.pool.clone())
                .or_insert(first);
            *count = count.saturating_add(1);
        }
        Ok(Slot {
            scope,
            block: wanted.block,
        })
    }

    /// A pool as it will be after the import.
    fn pool_after(&mut self, key: &PoolKey) -> Option<&PlannedPool> {
        if !self.pools.contains_key(key) {
            let existing = self.existing.pools.get(key)?;
            self.pools.insert(
                key.clone(),
                PlannedPool::new(&existing.spec, existing.scope.clone()),
            );
        }
        self.pools.get(key)
    }

    /// Another pool of the network has a reservation of the address.
    fn reserved_for_other_pool(
        &mut self,
        slot: &Slot,
        wanted: &Wanted,
        other: &'a ExistingReservation,
    ) -> Result<(), String> {
        if wanted.claim.is_none() && other.claim.is_none() && !other.is_held {
            // The address is excluded from all pools of the network.
            self.required.insert(other.name.as_str());
            self.is_unchanged();
            return Ok(());
        }
        Err(cannot_change(slot, other))
    }

    /// Fails if the pool does not contain the block.
    fn check_contained(&self, slot: &Slot, wanted: &Wanted) -> Result<(), String> {
        let pool = self.pools.get(&wanted.pool);
        // An invalid specification has its own problem.
        let usable = pool.and_then(|pool| pool.usable.as_ref());
        if usable.is_some_and(|usable| !usable.contains(slot.block)) {
            return Err(format!("{} does not contain {}", wanted.pool, slot.block));
        }
        Ok(())
    }

    /// What is wrong with a reservation that has to be created.
    fn check_reservation(&self, slot: &Slot, wanted: &Wanted) -> Result<(), String> {
        self.check_contained(slot, wanted)?;
        if let Some(user) = self
            .user(slot)
            .filter(|user| Some(*user) != wanted.claim.as_ref())
        {
            return Err(format!("{slot} is in use by the claim {user}"));
        }
        let claim = wanted.claim.as_ref().map(promised_to);
        match claim.and_then(|claim| claim.problem(&wanted.pool)) {
            Some(problem) => Err(problem.to_string()),
            None => Ok(()),
        }
    }

    /// The claim with an IPAddress for this address, in any pool of the scope.
    fn user(&self, slot: &Slot) -> Option<&'a NamespacedName> {
        let users = self.users.get(&slot.block)?;
        let is_here = |pool: &PoolKey| self.scope_of(pool) == slot.scope;
        users
            .iter()
            .find(|(pool, _)| is_here(pool))
            .map(|(_, claim)| *claim)
    }

    fn scope_of(&self, pool: &PoolKey) -> Scope {
        if let Some(planned) = self.pools.get(pool) {
            return planned.scope.clone();
        }
        match self.existing.pools.get(pool) {
            Some(existing) => existing.scope.clone(),
            None => Scope::Pool(pool.clone()),
        }
    }

    fn new_reservation(&self, slot: &Slot, wanted: &Wanted) -> IPReservation {
        let Metadata {
            mut labels,
            annotations,
        } = wanted_metadata(wanted);
        labels.insert(IMPORT_LABEL.to_owned(), self.import.to_owned());
        let mut new = reservation(slot, &wanted.pool, wanted.claim.as_ref());
        new.metadata.labels = Some(labels);
        new.metadata.annotations = (!annotations.is_empty()).then_some(annotations);
        new
    }

    /// The reservations that are created in another scope than the file states.
    pub(super) fn scope_warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for (key, (line, stated, count)) in &self.other_scopes {
            let scope = self.scope_of(key).name();
            let lines = at_lines(*line, *count);
            warnings.push(format!(
                "{lines}: spec.scope: is {stated}; {scope} is used, the scope of {key}"
            ));
        }
        warnings
    }
}

/// The specification of a reservation of a user. Its name has the scope.
pub(super) fn spec_of(slot: &Slot, pool: &PoolKey, claim: Option<&NamespacedName>) -> Value {
    let spec = reservation(slot, pool, claim).spec;
    let mut spec = serde_json::to_value(spec).unwrap_or_default();
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("scope");
    }
    spec
}

/// The labels and annotations of a reservation of the file.
fn wanted_metadata(wanted: &Wanted) -> Metadata {
    let mut labels = wanted.labels.clone();
    labels.remove(IMPORT_LABEL);
    Metadata {
        labels,
        annotations: wanted.annotations.clone(),
    }
}

/// Why a reservation with another claim stays: to delete it and to create another one would make
/// the address free for a moment.
fn cannot_change(slot: &Slot, found: &ExistingReservation) -> String {
    match &found.claim {
        Some(claim) if found.is_held => {
            format!("{slot} is held by the claim {claim}, or cools down after its release")
        }
        None if found.is_held => format!("{slot} cools down after its release"),
        claim => {
            let purpose = claim.as_ref().map_or_else(
                || "excluded from allocation".to_owned(),
                |claim| format!("reserved for the claim {claim}"),
            );
            let command = unreserve_command(&found.pool, found.block);
            format!(
                "{slot} is {purpose}, which cannot be changed; delete the reservation first: {command}"
            )
        }
    }
}

/// The command that deletes a reservation.
fn unreserve_command(pool: &PoolKey, block: Block) -> String {
    let namespace = pool
        .namespace
        .as_deref()
        .map(|name| format!(" --namespace {name}"))
        .unwrap_or_default();
    format!(
        "kubectl ipam unreserve {}/{} {block}{namespace}",
        short(pool.kind),
        pool.name
    )
}
