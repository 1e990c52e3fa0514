//! Admission of pools: the rules of the Go in-cluster provider, with its fields and codes.
//!
//! Differences on purpose: a change that leaves the specification alone passes, whatever stands in it; so does everything
//! about an object that is being deleted; and only addresses that the pool had are missed by an update, not those that
//! were out of its range before.

use std::fmt::Write as _;

use capi_ipam_ip::{Block, PoolProblem, PoolProblemKind, Usable};
use capi_ipam_webhook::denial::{FieldError, Denial};
use capi_ipam_webhook::review::{AdmissionRequest, Operation, Decision};
use serde_json::{json, Value};

use crate::api::{names, Pool, PoolKey, PoolSpec};
use super::view::View;
use super::warnings;

/// How many addresses are named in a refusal.
const MAX_NAMED: usize = 10;

/// Decides on a pool.
pub fn review<P: Pool>(request: &AdmissionRequest, view: &dyn View) -> Decision {
    if !request.sub_resource.is_empty() {
        return Decision::allowed();
    }
    match decide::<P>(request, view) {
        Ok(warnings) => Decision::Allowed { warnings, patch: None },
        Err(refusal) => Decision::Denied(*refusal),
    }
}

fn decide<P: Pool>(request: &AdmissionRequest, view: &dyn View) -> Result<Vec<String>, Box<Denial>> {
    match request.operation {
        Operation::Create => {
            let new: P = read(request.object.as_ref())?;
            create(&new, &key(&new, request), view)
        }
        Operation::Update => {
            let new: P = read(request.object.as_ref())?;
            if new.meta().deletion_timestamp.is_some() || same_spec(request) {
                return Ok(Vec::new());
            }
            // An old object that cannot be read had nothing to lose.
            let old = read::<P>(request.old_object.as_ref()).ok();
            update(&new, old.as_ref(), &key(&new, request), view)
        }
        Operation::Delete => {
            let old: P = read(request.old_object.as_ref())?;
            delete(&old, &key(&old, request), view).map(|()| Vec::new())
        }
        Operation::Connect => Ok(Vec::new()),
    }
}

fn read<P: Pool>(object: Option<&Value>) -> Result<P, Box<Denial>> {
    // An array could be read too, as the fields in their order.
    let object = object
        .filter(|object| object.is_object())
        .ok_or_else(|| Denial::bad_request("the request carries no object"))?;
    P::deserialize(object)
        .map_err(|error| Box::new(Denial::bad_request(format!("this is not a {}: {error}", P::KIND))))
}

/// The pool's key. An object that is being made may not name its namespace itself.
fn key<P: Pool>(pool: &P, request: &AdmissionRequest) -> PoolKey {
    let mut key = PoolKey::of(pool);
    if key.namespace.as_deref().is_none_or(str::is_empty) && !P::KIND.is_global() {
        key.namespace = Some(request.namespace.as_str().into());
    }
    key
}

fn same_spec(request: &AdmissionRequest) -> bool {
    let specs =
        [&request.object, &request.old_object].map(|object| object.as_ref().and_then(|object| object.get("spec")));
    let [new, old] = specs;
    new == old
}

/// What the pool gives out, or everything that is wrong with the object alone.
fn check(spec: PoolSpec<'_>) -> Result<Usable, Vec<FieldError>> {
    let more: Vec<FieldError> =
        negative_rest(spec).into_iter().chain(spec.network().and_then(network_name_problem)).collect();
    match spec.usable() {
        Ok(usable) if more.is_empty() => Ok(usable),
        Ok(_) => Err(more),
        Err(problems) => Err(problems.iter().map(cause).chain(more).collect()),
    }
}

fn negative_rest(spec: PoolSpec<'_>) -> Option<FieldError> {
    let PoolSpec::Addresses(spec) = spec else { return None };
    let seconds = spec.address_reuse_grace_period_seconds.filter(|seconds| *seconds < 0)?;
    Some(FieldError::invalid("spec.addressReuseGracePeriodSeconds", &json!(seconds), "it must not be negative"))
}

/// Why the pool cannot be in the network that it names.
fn disagreement(spec: PoolSpec<'_>, usable: &Usable, view: &dyn View) -> Option<FieldError> {
    let network = spec.network()?;
    let agreed = view.network_length(network, usable.family).filter(|agreed| *agreed != usable.length)?;
    let text = format!(
        "the pools of this network give out {} blocks of length {agreed}, and this one of length {}; give it a network \
         of its own",
        usable.family, usable.length
    );
    Some(FieldError::invalid("spec.network", &json!(network), text))
}

fn invalid<P: Pool>(key: &PoolKey, causes: Vec<FieldError>) -> Box<Denial> {
    Box::new(Denial::invalid(names::GROUP, P::KIND.name(), key.name.as_ref(), causes))
}

/// A network's name is a DNS label (RFC 1123), since it is a part of the names of objects.
fn network_name_problem(network: &str) -> Option<FieldError> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let good =
        network.len() <= 63 && network.bytes().all(inner) && !network.starts_with('-') && !network.ends_with('-');
    let text = "a network's name has at most 63 lower case letters, digits and dashes, and no dash at its ends";
    (!good).then(|| FieldError::invalid("spec.network", &json!(network), text))
}

fn cause(problem: &PoolProblem) -> FieldError {
    let field = problem.field.path();
    match &problem.kind {
        PoolProblemKind::Required => {
            let list = field.rsplit('.').next().unwrap_or(field);
            FieldError::required(field, format!("{list} is required"))
        }
        PoolProblemKind::Prefix { prefix, .. } => FieldError::invalid(field, &json!(prefix), &problem.kind),
        kind => FieldError::invalid(field, &json!(problem.value), kind),
    }
}

fn create<P: Pool>(new: &P, key: &PoolKey, view: &dyn View) -> Result<Vec<String>, Box<Denial>> {
    let usable = check(new.spec()).map_err(|causes| invalid::<P>(key, causes))?;
    match disagreement(new.spec(), &usable, view) {
        None => Ok(warnings::of(&new.spec(), key, &usable, view)),
        Some(cause) => Err(invalid::<P>(key, vec![cause])),
    }
}

fn update<P: Pool>(new: &P, old: Option<&P>, key: &PoolKey, view: &dyn View) -> Result<Vec<String>, Box<Denial>> {
    let checked = check(new.spec());
    // These come first: what the network says of another length helps nobody who cannot have it anyway.
    let mut fixed: Vec<FieldError> = old.into_iter().flat_map(|old| immutable(old.spec(), new.spec())).collect();
    if !fixed.is_empty() {
        fixed.extend(checked.err().into_iter().flatten());
        return Err(invalid::<P>(key, fixed));
    }
    let usable = checked.map_err(|causes| invalid::<P>(key, causes))?;
    if let Some(cause) = disagreement(new.spec(), &usable, view) {
        return Err(invalid::<P>(key, vec![cause]));
    }
    if let Some(before) = old.and_then(|old| old.spec().usable().ok()) {
        keeps_what_is_in_use(key, &before, &usable, view)?;
    }
    Ok(warnings::of(&new.spec(), key, &usable, view))
}

fn immutable(old: PoolSpec<'_>, new: PoolSpec<'_>) -> impl Iterator<Item = FieldError> {
    let fixed = "this field is immutable; make another pool";
    let network =
        (old.network() != new.network()).then(|| FieldError::invalid("spec.network", &json!(new.network()), fixed));
    let length = match (old, new) {
        (PoolSpec::Prefixes(old), PoolSpec::Prefixes(new)) => {
            let (old, new) = (old.allocation_prefix_length, new.allocation_prefix_length);
            (old != new).then(|| FieldError::invalid("spec.allocationPrefixLength", &json!(new), fixed))
        }
        _ => None,
    };
    length.into_iter().chain(network)
}

fn keeps_what_is_in_use(key: &PoolKey, before: &Usable, after: &Usable, view: &dyn View) -> Result<(), Box<Denial>> {
    if before.set.subtract(&after.set).is_empty() {
        return Ok(());
    }
    complete(view)?;
    let dropped = view.in_use(key, &|block| before.contains(block) && !after.contains(block));
    if dropped.is_empty() {
        return Ok(());
    }
    Err(Box::new(Denial::bad_request(format!(
        "pool addresses do not contain allocated addresses: {}; release their claims first, or leave the addresses in \
         the pool",
        named(&dropped)
    ))))
}

fn delete<P: Pool>(pool: &P, key: &PoolKey, view: &dyn View) -> Result<(), Box<Denial>> {
    let annotated = |name: &str| pool.meta().annotations.as_ref().is_some_and(|all| all.contains_key(name));
    let let_go = annotated(names::SKIP_VALIDATE_DELETE) || annotated(names::DELETE_FOR_MOVE);
    if let_go || pool.meta().deletion_timestamp.is_some() {
        return Ok(());
    }
    complete(view)?;
    let in_use = view.in_use(key, &|_| true);
    if in_use.is_empty() {
        return Ok(());
    }
    Err(Box::new(Denial::bad_request(format!(
        "Pool has IPAddresses allocated. Cannot delete Pool until all IPAddresses have been removed. In use: {}",
        named(&in_use)
    ))))
}

fn complete(view: &dyn View) -> Result<(), Box<Denial>> {
    if view.is_complete() {
        return Ok(());
    }
    Err(Box::new(Denial::unavailable("what is in use is still being listed; try again in a moment")))
}

fn named(blocks: &[Block]) -> String {
    let names: Vec<String> = blocks.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    let mut text = names.join(", ");
    if blocks.len() > names.len() {
        let _ = write!(text, " and {} more", blocks.len() - names.len());
    }
    text
}

#[cfg(test)]
mod tests;
