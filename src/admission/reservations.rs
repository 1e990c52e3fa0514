//! Admission of manually created reservations, which exclude an address from its pool or promise it
//! to a claim.
//!
//! Reservations of the provider name the uid of a claim. The webhook configuration excludes them
//! from admission, and they are allowed here as well.

use std::sync::Arc;

use capi_ipam_api::{
    Audience, ClaimProblem, IPReservation, PoolKey, ReservationProblem, Slot, names,
};
use capi_ipam_controller::namespaced_name::NamespacedName;
use capi_ipam_ledger::{Ledger, PoolInfo};
use capi_ipam_webhook::denial;
use capi_ipam_webhook::review::{AdmissionRequest, Decision, Operation};
use kube::ResourceExt;
use kube::core::response::StatusCause;
use serde_json::json;

use super::decode;
use super::view::View;

/// Reservations are cluster-scoped, so messages about them name no namespaced object.
const AUDIENCE: Audience<'static> = Audience::of(None);

/// Decides on a request for a reservation.
pub fn review(request: &AdmissionRequest, view: &dyn View) -> Decision {
    match request.operation {
        Operation::Create => decode(request.object.as_ref()).and_then(|new| create(&new, view)),
        // It can only be released, and given to another claim afterwards.
        Operation::Update | Operation::Delete | Operation::Connect => Ok(Vec::new()),
    }
}

fn create(new: &IPReservation, view: &dyn View) -> Decision {
    let by_provider = new
        .spec
        .claim_ref
        .as_ref()
        .is_some_and(|claim| claim.uid.is_some());
    if by_provider {
        return Ok(Vec::new());
    }
    let invalid = |cause| {
        let name = new.metadata.name.as_deref().unwrap_or_default();
        denial::invalid(names::GROUP, "IPReservation", name, vec![cause])
    };
    let (slot, pool) = new
        .slot()
        .map_err(|problem| invalid(problem_cause(new, &problem)))?;
    let known = view.read(|ledger| Known::of(ledger, &slot, &pool));
    let problem = known
        .as_ref()
        .and_then(|known| known.placement_problem(&slot, &pool))
        .or_else(|| claim_problem(new, &pool))
        .or_else(|| known.as_ref()?.conflict(new, &slot));
    match problem {
        // It has no effect in the source cluster either; denying it would only stop `clusterctl
        // move`.
        Some(cause) if new.labels().contains_key(names::MOVE_LABEL) => {
            return Ok(vec![format!("{}: {}", cause.field, cause.message)]);
        }
        Some(cause) => return Err(invalid(cause)),
        None => {}
    }
    let is_missing = known.is_some_and(|known| known.pool.is_none());
    Ok(is_missing
        .then(|| format!("spec.poolRef: {pool} does not exist"))
        .into_iter()
        .collect())
}

fn problem_cause(new: &IPReservation, problem: &ReservationProblem) -> StatusCause {
    let value = match problem {
        ReservationProblem::Pool { kind } => json!(kind),
        ReservationProblem::Scope { scope, .. } => json!(scope),
        ReservationProblem::Address(_) => json!(new.spec.address),
        ReservationProblem::Prefix { length, .. } => json!(length),
        ReservationProblem::Name { name, .. } => json!(name),
        ReservationProblem::Quarantine => json!(new.spec.quarantine),
    };
    let text = problem.to_string();
    let detail = text
        .strip_prefix(problem.field())
        .and_then(|rest| rest.strip_prefix(": "))
        .unwrap_or(&text);
    denial::invalid_value(problem.field(), &value, detail)
}

/// What the ledger knows of the pool and the address of a reservation.
struct Known {
    pool: Option<Arc<PoolInfo>>,
    /// Whether another management cluster has the block of the address, or none.
    is_in_other_block: bool,
    /// The IPAddresses with the address.
    owners: Vec<NamespacedName>,
}

impl Known {
    fn of(ledger: &Ledger, slot: &Slot, pool: &PoolKey) -> Self {
        Self {
            pool: ledger.pools().pool_info(pool),
            is_in_other_block: ledger.pools().is_in_other_block(pool, slot.block),
            owners: ledger.addresses().owners(slot),
        }
    }

    /// Why the pool cannot allocate the address: another scope, or an address that the pool does
    /// not contain.
    fn placement_problem(&self, slot: &Slot, pool: &PoolKey) -> Option<StatusCause> {
        let info = self.pool.as_ref()?;
        if info.scope != slot.scope {
            let text = format!("the scope of {pool} is {}", info.scope.name());
            return Some(denial::invalid_value(
                "spec.scope",
                &json!(slot.scope.name()),
                text,
            ));
        }
        let is_outside = !info.usable.as_ref().ok()?.contains(slot.block);
        let text = if is_outside && self.is_in_other_block {
            format!(
                "{} is not in a block that this management cluster has: find out which one has it with: kubectl ipam who {}",
                slot.block,
                slot.block.base()
            )
        } else {
            format!("{pool} does not contain this address")
        };
        is_outside
            .then(|| denial::invalid_value("spec.address", &json!(slot.block.to_string()), text))
    }

    /// Why the address cannot be reserved: an IPAddress of another claim uses it.
    fn conflict(&self, new: &IPReservation, slot: &Slot) -> Option<StatusCause> {
        let promised_to = new
            .spec
            .claim_ref
            .as_ref()
            .map(|claim| NamespacedName::new(&claim.namespace, &claim.name));
        let mut owners = self.owners.iter();
        let owner = owners.find(|owner| Some(*owner) != promised_to.as_ref())?;
        let owner = AUDIENCE.object("IPAddress", owner.namespace(), owner.name());
        let text = format!(
            "in use by {owner} (see kubectl get ipaddresses --all-namespaces); delete its claim first"
        );
        Some(denial::invalid_value(
            "spec.address",
            &json!(slot.block.to_string()),
            text,
        ))
    }
}

/// Why no claim can ever get the address: the reservation would only withdraw it from the pool.
fn claim_problem(new: &IPReservation, pool: &PoolKey) -> Option<StatusCause> {
    let claim = new.spec.claim_ref.as_ref()?;
    let problem = claim.problem(pool)?;
    let value = match &problem {
        ClaimProblem::Name { name } => name,
        ClaimProblem::Namespace { namespace } | ClaimProblem::OtherNamespace { namespace, .. } => {
            namespace
        }
    };
    Some(denial::invalid_value(
        problem.field(),
        &json!(value),
        problem.detail(),
    ))
}

#[cfg(test)]
mod tests;
