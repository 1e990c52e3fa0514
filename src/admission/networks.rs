//! Admission of networks: what their definition cannot check.

use capi_ipam_api::{
    Audience, IPNetwork, NetworkProblem, SelectorProblem, counted, names, network_warnings,
};
use capi_ipam_webhook::denial;
use capi_ipam_webhook::review::{AdmissionRequest, Decision, Operation};
use kube::api::ObjectMeta;
use kube::core::Status;
use kube::core::response::StatusCause;
use serde_json::json;

use super::deletion::{in_use, is_unchecked, metadata};
use super::pools::same_spec;
use super::view::View;
use super::{decode, scope_changes, shared_blocks};

/// Decides on a request for a network.
pub fn review(request: &AdmissionRequest, view: &dyn View) -> Decision {
    if !request.sub_resource.is_empty() {
        return Ok(Vec::new());
    }
    match request.operation {
        Operation::Update if same_spec(request) => Ok(Vec::new()),
        Operation::Create | Operation::Update => {
            // Its specification may be of another version.
            let old = decode(request.old_object.as_ref()).ok();
            write(&decode(request.object.as_ref())?, old.as_ref(), view)
        }
        Operation::Delete => {
            delete(&metadata(request.old_object.as_ref()), view).map(|()| Vec::new())
        }
        Operation::Connect => Ok(Vec::new()),
    }
}

fn write(network: &IPNetwork, old: Option<&IPNetwork>, view: &dyn View) -> Decision {
    let mut causes = Vec::new();
    if let Err(problems) = network.spec.rules() {
        causes.extend(problems.iter().map(cause));
    }
    causes.extend(shared_blocks::other_registry(network, old, view));
    if !causes.is_empty() {
        let name = network.metadata.name.as_deref().unwrap_or_default();
        return Err(denial::invalid(names::GROUP, "IPNetwork", name, causes));
    }
    let mut warnings = network_warnings(&network.spec);
    let changes = view.read(|ledger| ledger.preview_network(network));
    warnings.extend(scope_changes::of_network(&changes.unwrap_or_default()));
    warnings.extend(shared_blocks::of_network(network, old, view));
    Ok(warnings)
}

/// The pools of a network that is being deleted allocate no addresses, so a deletion by mistake is
/// denied.
fn delete(metadata: &ObjectMeta, view: &dyn View) -> Result<(), Box<Status>> {
    if is_unchecked(metadata) {
        return Ok(());
    }
    let name = metadata.name.as_deref().unwrap_or_default();
    let state = in_use(view, |ledger| ledger.network(name))?;
    if !state.is_used() {
        return Ok(());
    }
    // A message about a network names no namespaced pool.
    let pools = Audience::of(None).pools(state.members.iter().map(|(pool, _)| pool));
    let pools = if pools.is_empty() {
        "no pools".to_owned()
    } else {
        pools
    };
    Err(denial::bad_request(&format!(
        "IPNetwork has pools or reservations. Cannot delete IPNetwork until all pools have left it and all reservations \
         have been removed. In use: {pools}, {}; see kubectl describe ipnetworks {name}",
        counted(state.reservations, "reservation", "reservations")
    )))
}

fn cause(problem: &NetworkProblem) -> StatusCause {
    match problem {
        NetworkProblem::Excluded { value, source, .. } => {
            denial::invalid_value(&problem.field(), &json!(value), source)
        }
        NetworkProblem::Selector(SelectorProblem { field, source }) => {
            denial::invalid_value(field, &json!(null), source)
        }
        NetworkProblem::Blocks(problem) => {
            denial::invalid_value(&problem.field, &problem.value, &problem.text)
        }
    }
}

#[cfg(test)]
mod tests;
