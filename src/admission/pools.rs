//! Admission of pools: the rules of the Go in-cluster provider, with its fields and codes.
//!
//! Intended differences: an update that does not change the spec is allowed, also if the spec is
//! not valid, and returns warnings only if the labels change the network of the pool; and an update
//! is denied only if it removes addresses in use from the pool, not because of addresses that were
//! out of range before.

use std::fmt::Display;

use capi_ipam_api::{InClusterKind, Pool, PoolKey, PoolSpec, names};
use capi_ipam_controller::managed_fields::last_writer;
use capi_ipam_ip::{Block, Field, PoolProblem, PoolProblemKind, UsableBlocks};
use capi_ipam_ledger::PoolInfo;
use capi_ipam_webhook::denial;
use capi_ipam_webhook::review::{AdmissionRequest, Decision, Operation};
use kube::api::ObjectMeta;
use kube::core::Status;
use kube::core::response::StatusCause;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::deletion::{in_use, is_unchecked, metadata};
use super::scope_changes::{self, named};
use super::view::View;
use super::{limits, warnings};

/// Decides on a request for a pool of a kind.
pub fn review(kind: InClusterKind, request: &AdmissionRequest, view: &dyn View) -> Decision {
    if !request.sub_resource.is_empty() {
        return Ok(Vec::new());
    }
    match request.operation {
        Operation::Create => {
            let new = decode(kind, request.object.as_ref())?;
            check_limits(&new, request)?;
            create(&new, &key(&new, request), view)
        }
        Operation::Update => {
            let new = decode(kind, request.object.as_ref());
            // An old object that cannot be decoded had no valid addresses.
            let old = decode(kind, request.old_object.as_ref()).ok();
            if same_spec(request) {
                let warnings = |new: Pool| relabel(&new, old.as_ref(), &key(&new, request), view);
                return Ok(new.map(warnings).unwrap_or_default());
            }
            let new = new?;
            check_limits(&new, request)?;
            update(&new, old.as_ref(), &key(&new, request), view)
        }
        Operation::Delete => {
            let old = object(request.old_object.as_ref())?;
            delete(kind, &metadata(Some(old)), view).map(|()| Vec::new())
        }
        Operation::Connect => Ok(Vec::new()),
    }
}

fn object(object: Option<&Value>) -> Result<&Value, Box<Status>> {
    object
        .filter(|object| object.is_object())
        .ok_or_else(|| denial::bad_request("the request has no object"))
}

fn decode(kind: InClusterKind, value: Option<&Value>) -> Result<Pool, Box<Status>> {
    let object = object(value)?;
    let undecodable = |reason: &dyn Display| {
        denial::bad_request(&format!("cannot decode the object as {kind}: {reason}"))
    };
    let pool = Pool::deserialize(object).map_err(|error| undecodable(&error))?;
    if pool.kind != kind {
        return Err(undecodable(&format_args!("its kind is {}", pool.kind)));
    }
    Ok(pool)
}

/// The key of the pool. An object that is being created may have no namespace in its metadata.
fn key(pool: &Pool, request: &AdmissionRequest) -> PoolKey {
    let key = PoolKey::of(pool);
    if key.namespace.as_deref().is_none_or(str::is_empty) && !pool.kind.is_global() {
        return PoolKey::new(pool.kind, Some(&request.namespace), &key.name);
    }
    key
}

/// The specifications of the new and the old object.
fn specs(request: &AdmissionRequest) -> [Option<&Value>; 2] {
    [&request.object, &request.old_object]
        .map(|object| object.as_ref().and_then(|object| object.get("spec")))
}

/// Whether a request does not change the specification, such as one that removes a finalizer.
pub(super) fn same_spec(request: &AdmissionRequest) -> bool {
    let [new, old] = specs(request);
    request.object.is_some() && new == old
}

/// Denies a specification with more entries than its definition allows.
fn check_limits(new: &Pool, request: &AdmissionRequest) -> Result<(), Box<Status>> {
    let [spec, before] = specs(request);
    let causes = limits::exceeded(new.kind, spec, before);
    if causes.is_empty() {
        Ok(())
    } else {
        Err(invalid(&key(new, request), causes))
    }
}

/// Returns the blocks of the pool, or all problems of the spec that do not depend on other objects.
fn check(spec: &PoolSpec) -> Result<UsableBlocks, Vec<StatusCause>> {
    let usable = spec.usable();
    let problems = spec.field_problems(usable.as_ref().ok());
    let mut causes = Vec::new();
    if let Err(of_addresses) = &usable {
        causes.extend(of_addresses.iter().map(cause));
    }
    for problem in &problems {
        let cause = denial::invalid_value(&problem.field, &problem.value, &problem.text);
        causes.push(cause);
    }
    match usable {
        Ok(usable) if causes.is_empty() => Ok(usable),
        _ => Err(causes),
    }
}

/// Why the pool cannot be in its network: the network has another block length.
fn network_conflict(
    spec: &PoolSpec,
    usable: &UsableBlocks,
    view: &dyn View,
) -> Option<StatusCause> {
    let network = spec.network()?;
    let declared = view.read(|ledger| ledger.networks().block_length(network, usable.family))??;
    if declared == usable.length {
        return None;
    }
    let text = format!(
        "the pools of this network allocate {} blocks of length {declared}, this pool allocates length {}; use another \
         network for it",
        usable.family, usable.length
    );
    Some(denial::invalid_value("spec.network", &json!(network), text))
}

fn invalid(key: &PoolKey, causes: Vec<StatusCause>) -> Box<Status> {
    denial::invalid(names::GROUP, key.kind.name(), &key.name, causes)
}

fn cause(problem: &PoolProblem) -> StatusCause {
    let field = match problem.field {
        Field::Range(..) | Field::Draining(_) => problem.field.to_string(),
        // Without the index, as the Go provider.
        field => field.path().to_owned(),
    };
    match &problem.kind {
        PoolProblemKind::Required => {
            let list = field.rsplit('.').next().unwrap_or(&field);
            let or_ranges = if matches!(problem.field, Field::Range(..)) {
                ""
            } else {
                " or ranges"
            };
            denial::required_value(&field, format!("{list}{or_ranges} is required"))
        }
        PoolProblemKind::Prefix { prefix, .. } => {
            denial::invalid_value(&field, &json!(prefix), &problem.kind)
        }
        kind => denial::invalid_value(&field, &json!(problem.value), kind),
    }
}

fn create(new: &Pool, key: &PoolKey, view: &dyn View) -> Decision {
    let usable = check(&new.spec).map_err(|causes| invalid(key, causes))?;
    match network_conflict(&new.spec, &usable, view) {
        None => Ok(warnings::of(new, None, key, &usable, view)),
        Some(cause) => Err(invalid(key, vec![cause])),
    }
}

fn update(new: &Pool, old: Option<&Pool>, key: &PoolKey, view: &dyn View) -> Decision {
    let checked = check(&new.spec);
    // Checked first: a conflict with the block length of the network is irrelevant if the length
    // cannot be changed.
    let mut immutable_changes: Vec<StatusCause> = old
        .into_iter()
        .flat_map(|old| changed_immutable_fields(&old.spec, &new.spec))
        .collect();
    if !immutable_changes.is_empty() {
        immutable_changes.extend(checked.err().into_iter().flatten());
        return Err(invalid(key, immutable_changes));
    }
    let usable = checked.map_err(|causes| invalid(key, causes))?;
    if let Some(cause) = network_conflict(&new.spec, &usable, view) {
        return Err(invalid(key, vec![cause]));
    }
    if let Some(before) = old.and_then(|old| old.spec.usable().ok()) {
        check_in_use_addresses_kept(key, new, &before, &usable, view)?;
    }
    Ok(warnings::of(new, old, key, &usable, view))
}

/// Returns the warnings about an update that changes only the metadata of a pool: a network can
/// select it by its labels.
fn relabel(new: &Pool, old: Option<&Pool>, key: &PoolKey, view: &dyn View) -> Vec<String> {
    if old.is_some_and(|old| old.metadata.labels == new.metadata.labels) {
        return Vec::new();
    }
    let declared = PoolInfo::of(new);
    let change = view.read(|ledger| ledger.preview_pool(key, declared));
    let warnings = change.map(|change| scope_changes::of_pool(&change, new, old));
    warnings.unwrap_or_default()
}

fn changed_immutable_fields(old: &PoolSpec, new: &PoolSpec) -> impl Iterator<Item = StatusCause> {
    let message = "field is immutable; create another pool";
    let length = match (old, new) {
        (PoolSpec::Prefixes(old), PoolSpec::Prefixes(new)) => {
            let (old, new) = (old.allocation_prefix_length, new.allocation_prefix_length);
            (old != new)
                .then(|| denial::invalid_value("spec.allocationPrefixLength", &json!(new), message))
        }
        _ => None,
    };
    let size = old.slices().zip(new.slices()).and_then(|(old, new)| {
        let message = "field is immutable while spec.slices is set; remove spec.slices first";
        (old.size != new.size)
            .then(|| denial::invalid_value("spec.slices.size", &json!(new.size), message))
    });
    length.into_iter().chain(size)
}

fn check_in_use_addresses_kept(
    key: &PoolKey,
    new: &Pool,
    before: &UsableBlocks,
    after: &UsableBlocks,
    view: &dyn View,
) -> Result<(), Box<Status>> {
    if before.set.subtract(&after.set).is_empty() {
        return Ok(());
    }
    let is_dropped = |block: Block| before.contains(block) && !after.contains(block);
    let dropped = in_use(view, |ledger| ledger.in_use(key, &is_dropped))?;
    if dropped.is_empty() {
        return Ok(());
    }
    // A controller with the types of the Go provider would remove the field with its next write.
    let writer = last_writer(&new.metadata).unwrap_or_default();
    let way = if writer.is_empty() || writer.starts_with("kubectl") {
        "add them to spec.draining"
    } else {
        "exclude them in its network, or add them to spec.draining if the controller that writes the pool keeps it"
    };
    Err(denial::bad_request(&format!(
        "pool addresses do not contain allocated addresses: {}; keep them in the pool and {way}, so that nothing more is \
         allocated there, and remove both when they are released",
        named(&dropped)
    )))
}

fn delete(kind: InClusterKind, metadata: &ObjectMeta, view: &dyn View) -> Result<(), Box<Status>> {
    if is_unchecked(metadata) {
        return Ok(());
    }
    let name = metadata.name.as_deref().unwrap_or_default();
    let key = PoolKey::new(kind, metadata.namespace.as_deref(), name);
    let found = in_use(view, |ledger| ledger.in_use(&key, &|_| true))?;
    if found.is_empty() {
        return Ok(());
    }
    Err(denial::bad_request(&format!(
        "Pool has IPAddresses allocated. Cannot delete Pool until all IPAddresses have been removed. In use: {}",
        named(&found)
    )))
}

#[cfg(test)]
mod tests;
