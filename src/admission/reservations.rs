//! Admission of reservations that people make: to keep an address out of its pool, or to promise it to a claim.
//!
//! Those that the provider makes name the uid of a claim and are not reviewed; the webhook is configured so, and what
//! comes here all the same passes.

use capi_ipam_webhook::denial::{FieldError, Denial};
use capi_ipam_webhook::review::{AdmissionRequest, Operation, Decision};
use kube::ResourceExt;
use serde::Deserialize;
use serde_json::{json, Value};

use crate::api::{Audience, IPReservation, names, PoolKey, ReservationProblem, Slot};
use super::view::View;

/// Reservations have no namespace, so texts about them name no object that has one.
const AUDIENCE: Audience<'static> = Audience::of(None);

/// Decides on a reservation.
pub fn review(request: &AdmissionRequest, view: &dyn View) -> Decision {
    let decided = match request.operation {
        Operation::Create => read(request.object.as_ref()).and_then(|new| create(&new, view)),
        Operation::Delete => read(request.old_object.as_ref()).and_then(|old| delete(&old, view)),
        // Nothing but releasedAt can change.
        Operation::Update | Operation::Connect => Ok(Vec::new()),
    };
    match decided {
        Ok(warnings) => Decision::Allowed { warnings, patch: None },
        Err(refusal) => Decision::Denied(*refusal),
    }
}

fn read(object: Option<&Value>) -> Result<IPReservation, Box<Denial>> {
    let object = object.ok_or_else(|| Denial::bad_request("the request carries no object"))?;
    IPReservation::deserialize(object)
        .map_err(|error| Box::new(Denial::bad_request(format!("this is not an IPReservation: {error}"))))
}

fn create(new: &IPReservation, view: &dyn View) -> Result<Vec<String>, Box<Denial>> {
    let by_provider = new.spec.claim_ref.as_ref().is_some_and(|claim| claim.uid.is_some());
    if by_provider || new.network_block_length().is_some() {
        return Ok(Vec::new());
    }
    let invalid = |cause| {
        let name = new.metadata.name.as_deref().unwrap_or_default();
        Box::new(Denial::invalid(names::GROUP, "IPReservation", name, vec![cause]))
    };
    let (slot, pool) = new.slot().map_err(|problem| invalid(unreadable(new, &problem)))?;
    let useless = misplaced(&slot, &pool, view).or_else(|| in_use(new, &slot, view));
    match useless {
        // It is of no use where it comes from either; refusing it would only stop `clusterctl move`.
        Some(cause) if new.labels().contains_key(names::MOVE_LABEL) => {
            return Ok(vec![format!("{}: {}", cause.field, cause.message)]);
        }
        Some(cause) => return Err(invalid(cause)),
        None => {}
    }
    let unknown = view.is_complete() && view.pool(&pool).is_none();
    Ok(unknown.then(|| format!("spec.poolRef: there is no {pool}")).into_iter().collect())
}

fn unreadable(new: &IPReservation, problem: &ReservationProblem) -> FieldError {
    let value = match problem {
        ReservationProblem::Pool { kind } => json!(kind),
        ReservationProblem::Scope { scope, .. } => json!(scope),
        ReservationProblem::Address(_) => json!(new.spec.address),
        ReservationProblem::Prefix { length, .. } => json!(length),
        ReservationProblem::Name { name, .. } => json!(name),
    };
    let text = problem.to_string();
    let detail = text.strip_prefix(problem.field()).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&text);
    FieldError::invalid(problem.field(), &value, detail)
}

/// Why the pool would never give out that address.
fn misplaced(slot: &Slot, pool: &PoolKey, view: &dyn View) -> Option<FieldError> {
    let (scope, usable) = view.pool(pool)?;
    if scope != slot.scope {
        let text = format!("{pool} is in the scope {}", scope.name());
        return Some(FieldError::invalid("spec.scope", &json!(slot.scope.name()), text));
    }
    let outside = !usable?.contains(slot.block);
    let text = format!("{pool} does not give it out");
    outside.then(|| FieldError::invalid("spec.address", &json!(slot.block.to_string()), text))
}

/// Why the address cannot be kept: somebody has it whom it is not promised to.
fn in_use(new: &IPReservation, slot: &Slot, view: &dyn View) -> Option<FieldError> {
    let promised_to = new.spec.claim_ref.as_ref().map(|claim| (claim.namespace.clone(), claim.name.clone()));
    let holders = view.holders(slot);
    let (namespace, name) = holders.iter().find(|holder| Some(*holder) != promised_to.as_ref())?;
    let holder = AUDIENCE.object("IPAddress", namespace, name);
    let text =
        format!("it is in use by {holder} (see kubectl get ipaddresses --all-namespaces); release its claim first");
    Some(FieldError::invalid("spec.address", &json!(slot.block.to_string()), text))
}

/// What the pools of a network have agreed on stays while there are any.
fn delete(old: &IPReservation, view: &dyn View) -> Result<Vec<String>, Box<Denial>> {
    let Some((network, _, _)) = old.network_block_length() else { return Ok(Vec::new()) };
    let members = view.members(&network);
    if members.is_empty() {
        return Ok(Vec::new());
    }
    let pools = AUDIENCE.pools(&members);
    Err(Box::new(Denial::bad_request(format!(
        "network {network} still has {pools}; this reservation says how long the blocks are that they give out"
    ))))
}

#[cfg(test)]
mod tests;
