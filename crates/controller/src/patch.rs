//! JSON patches with preconditions.
//!
//! A patch is the difference between two states of a typed object, so it never changes fields that
//! the type does not know. It contains uid and resourceVersion: if the object has changed since it
//! was read, it fails with a conflict.

use std::time::Instant;

use json_patch::jsonptr::PointerBuf;
use json_patch::{AddOperation, MoveOperation, Patch, PatchOperation, ReplaceOperation};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde_json::Value;
use tracing::debug;

use crate::client::{ApiObject, CallError, RequiredFields, ResourceClient, error_chain};

/// The field that the status subresource writes.
const STATUS: &str = "status";

/// The patch operations between two states of an object.
#[derive(Debug, Default, PartialEq)]
pub struct Changes {
    /// Operations outside of the status.
    pub main: Vec<PatchOperation>,
    /// Operations in the status.
    pub status: Vec<PatchOperation>,
}

impl Changes {
    /// Computes the difference between two states of an object.
    pub fn between<K: Serialize>(before: &K, after: &K) -> Result<Self, serde_json::Error> {
        Ok(Self::between_values(
            &serde_json::to_value(before)?,
            &serde_json::to_value(after)?,
        ))
    }

    fn between_values(before: &Value, after: &Value) -> Self {
        let (main, status) = json_patch::diff(before, after)
            .0
            .into_iter()
            .partition::<Vec<_>, _>(|operation| {
                operation
                    .path()
                    .tokens()
                    .next()
                    .is_none_or(|first| first.decoded() != "status")
            });
        Self { main, status }
    }

    /// Whether there is no difference.
    pub fn is_empty(&self) -> bool {
        self.main.is_empty() && self.status.is_empty()
    }
}

/// Writes the difference between `before`, as it was read, and `after`: first the main resource,
/// then the status, each only if it differs. Status fields that the API server does not store are
/// left out, see [`PrunedFields`](crate::client::PrunedFields). Fields of the specification are
/// preconditions, too, if the client [requires](ResourceClient::requiring_fields) them.
///
/// Returns the object after the last write, `None` if nothing differs. A conflict means that the
/// object has changed since it was read, and that nothing of the failed write was applied.
pub async fn write<K: ApiObject>(
    calls: &ResourceClient<K>,
    before: &K,
    after: &K,
) -> Result<Option<K>, CallError> {
    let name = before.name_any();
    let (before_value, mut after_value) = (to_value(before)?, to_value(after)?);
    if let Some(status) = after_value.get_mut(STATUS) {
        calls
            .pruned_fields
            .remove_from(status, before_value.get(STATUS), Instant::now());
    }
    let changes = Changes::between_values(&before_value, &after_value);
    let required = required_fields(calls, before)?;
    let with_preconditions = |object: &K, operations| {
        with_preconditions(object, [required.clone(), operations].concat())
    };
    let mut latest = None;
    if !changes.main.is_empty() {
        latest = Some(
            calls
                .patch(&name, with_preconditions(before, changes.main))
                .await?,
        );
    }
    if !changes.status.is_empty() {
        let patch = with_preconditions(latest.as_ref().unwrap_or(before), changes.status);
        let written = calls.patch_status(&name, patch).await?;
        let stored = to_value(&written)?;
        if let (Some(wanted), Some(stored)) = (after_value.get(STATUS), stored.get(STATUS)) {
            calls.pruned_fields.learn(wanted, stored, Instant::now());
        }
        latest = Some(written);
    }
    Ok(latest)
}

fn to_value<K: Resource + Serialize>(object: &K) -> Result<Value, CallError> {
    serde_json::to_value(object).map_err(|source| CallError::Serialize {
        operation: format!("patch {}", object.name_any()),
        source,
    })
}

/// Operations that change nothing, and cannot be applied if the object lacks a field that it must
/// have: each moves the field to where it is. (The API server copies a field that does not exist
/// without an error.) None if the client does not [require](ResourceClient::requiring_fields)
/// fields.
pub(crate) fn required_fields<K: ApiObject>(
    calls: &ResourceClient<K>,
    object: &K,
) -> Result<Vec<PatchOperation>, CallError> {
    let paths = match &calls.required_fields {
        RequiredFields::None => Vec::new(),
        RequiredFields::Read => stored_fields(&to_value(object)?),
        RequiredFields::Named(names) => {
            let path = |name: &String| PointerBuf::from_tokens(name.split('.'));
            names.iter().map(path).collect()
        }
    };
    let keep = |path: PointerBuf| {
        let from = path.clone();
        PatchOperation::Move(MoveOperation { from, path })
    };
    Ok(paths.into_iter().map(keep).collect())
}

/// The fields of a specification that are stored. A number or a boolean may be a default that is
/// not.
fn stored_fields(object: &Value) -> Vec<PointerBuf> {
    let mut stored = Vec::new();
    let spec = object.get("spec").and_then(Value::as_object);
    for (name, value) in spec.into_iter().flatten() {
        let is_stored = match value {
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Object(_) => true,
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        };
        if is_stored {
            stored.push(PointerBuf::from_tokens(["spec", name]));
        }
    }
    stored
}

/// Calls `change` with a copy of `object`, and writes what it changed on every way out, also if it
/// fails. Sends at most one write of the main resource and one of the status, and none if nothing
/// changed.
///
/// Returns the result of `change`, and the object after the last write. If `change` succeeds and a
/// write fails, the result is the error of the write. If both fail, the result is the error of
/// `change`, and the other one is logged.
///
/// ```
/// use capi_ipam_controller::client::{CallError, ResourceClient};
/// use capi_ipam_controller::patch::with_patch;
/// use k8s_openapi::api::core::v1::{Node, NodeStatus};
///
/// async fn start(node: &mut Node) -> Result<(), CallError> {
///     // Requests to other systems, which can fail.
///     # let _ = node;
///     Ok(())
/// }
///
/// async fn reconcile(nodes: &ResourceClient<Node>, node: &Node) -> Result<(), CallError> {
///     let (result, _written) = with_patch(nodes, node, async |node: &mut Node| {
///         node.status.get_or_insert_with(NodeStatus::default).phase = Some("Pending".to_owned());
///         // The phase is written, whether this succeeds or not.
///         start(node).await?;
///         node.status.get_or_insert_with(NodeStatus::default).phase = Some("Running".to_owned());
///         Ok(())
///     })
///     .await;
///     result
/// }
/// ```
pub async fn with_patch<K, T, E>(
    calls: &ResourceClient<K>,
    object: &K,
    change: impl AsyncFnOnce(&mut K) -> Result<T, E>,
) -> (Result<T, E>, Option<K>)
where
    K: ApiObject,
    E: From<CallError>,
{
    let mut wanted = object.clone();
    let result = change(&mut wanted).await;
    match (result, write(calls, object, &wanted).await) {
        (result, Ok(written)) => (result, written),
        (Ok(_), Err(error)) => (Err(error.into()), None),
        (Err(error), Err(write)) => {
            debug!(
                object = object.name_any(),
                error = error_chain(&write),
                "cannot write what a failed change left"
            );
            (Err(error), None)
        }
    }
}

/// A patch that fails with a conflict unless the stored object has the uid and the resourceVersion
/// of `object`.
pub fn with_preconditions<K: Resource>(object: &K, operations: Vec<PatchOperation>) -> Patch {
    with_uid_and_version(
        object.meta().uid.clone(),
        object.meta().resource_version.clone(),
        operations,
    )
}

/// Like [`with_preconditions`], for an object of which only uid and resourceVersion are known.
pub fn with_uid_and_version(
    uid: Option<String>,
    version: Option<String>,
    operations: Vec<PatchOperation>,
) -> Patch {
    let replace = |(name, value): (&str, Option<String>)| {
        Some(PatchOperation::Replace(ReplaceOperation {
            path: PointerBuf::from_tokens(["metadata", name]),
            value: Value::String(value?),
        }))
    };
    let fields = [("uid", uid), ("resourceVersion", version)];
    let preconditions = fields.into_iter().filter_map(replace);
    Patch(preconditions.chain(operations).collect())
}

/// An operation that sets the value at a path, whether or not there is one already.
pub fn set(path: &[&str], value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation {
        path: PointerBuf::from_tokens(path.iter().copied()),
        value,
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use serde_json::json;

    use super::*;

    fn node(value: Value) -> Node {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn status_and_main_changes_are_separated() {
        let before = node(json!({"metadata": {"name": "a"}, "spec": {}, "status": {}}));
        let after = node(
            json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {},
            "status": {"phase": "Running"}}),
        );
        let changes = Changes::between(&before, &after).unwrap();
        assert_eq!((changes.main.len(), changes.status.len()), (1, 1));
        assert!(Changes::between(&before, &before).unwrap().is_empty());
    }

    #[test]
    fn patch_has_uid_and_version_as_preconditions() {
        let object = node(json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "7"}}));
        let patch = with_preconditions(&object, vec![set(&["status", "phase"], json!("Running"))]);
        assert_eq!(
            serde_json::to_value(patch).unwrap(),
            json!([
                {"op": "replace", "path": "/metadata/uid", "value": "u"},
                {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"},
                {"op": "add", "path": "/status/phase", "value": "Running"},
            ])
        );
    }
}
