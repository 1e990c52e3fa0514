//! Writes that change only what was meant, and only if the object is still what it was when it was read.
//!
//! A patch is the difference between two states of a typed object, so fields that the type does not know are never
//! touched. It carries uid and resource version: another writer in between makes it fail with a conflict.

use json_patch::{AddOperation, Patch, PatchOperation, ReplaceOperation};
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::client::{CallError, ResourceClient};

/// What has to be written to get from one state of an object to another.
#[derive(Debug, Default, PartialEq)]
pub struct Changes {
    /// Changes outside of the status.
    pub main: Vec<PatchOperation>,
    /// Changes of the status.
    pub status: Vec<PatchOperation>,
}

impl Changes {
    /// The difference between two states of an object.
    pub fn between<K: Serialize>(before: &K, after: &K) -> Result<Self, serde_json::Error> {
        let (before, after) = (serde_json::to_value(before)?, serde_json::to_value(after)?);
        let (main, status) = json_patch::diff(&before, &after).0.into_iter().partition::<Vec<_>, _>(|operation| {
            operation.path().tokens().next().is_none_or(|first| first.decoded() != "status")
        });
        Ok(Self { main, status })
    }

    /// Whether nothing has to be written.
    pub fn is_empty(&self) -> bool {
        self.main.is_empty() && self.status.is_empty()
    }
}

/// Writes what differs between `before`, as it was read, and `after`: at most one main and one status write, none when
/// nothing changed. The main write comes first; the wanted status is kept across it.
///
/// Returns the object as it is after the last write, `None` when there was nothing to write. A conflict means that the
/// object changed since it was read, and that nothing of the failed write was applied.
pub async fn write<K>(calls: &ResourceClient<K>, before: &K, after: &K) -> Result<Option<K>, CallError>
where
    K: Resource + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let name = before.name_any();
    let changes = Changes::between(before, after)
        .map_err(|source| CallError::Unwritable { operation: format!("change {name}"), source })?;
    let mut latest = None;
    if !changes.main.is_empty() {
        latest = Some(calls.patch(&name, guarded(before, changes.main)).await?);
    }
    if !changes.status.is_empty() {
        let patch = guarded(latest.as_ref().unwrap_or(before), changes.status);
        latest = Some(calls.patch_status(&name, patch).await?);
    }
    Ok(latest)
}

/// The operations as a patch that is refused with a conflict unless the object has the uid and the resource version of
/// `object`.
pub fn guarded<K: Resource>(object: &K, operations: Vec<PatchOperation>) -> Patch {
    guarded_by(object.meta().uid.clone(), object.meta().resource_version.clone(), operations)
}

/// As [`guarded`], by a uid and a resource version.
pub fn guarded_by(uid: Option<String>, version: Option<String>, operations: Vec<PatchOperation>) -> Patch {
    let guard = |path: &'static str, value: Option<String>| {
        let path = json_patch::jsonptr::PointerBuf::from_tokens(path.split('/'));
        value.map(|text| PatchOperation::Replace(ReplaceOperation { path, value: Value::String(text) }))
    };
    let (uid, version) = (guard("metadata/uid", uid), guard("metadata/resourceVersion", version));
    Patch(uid.into_iter().chain(version).chain(operations).collect())
}

/// An operation that sets the value at a path, whether there was one or not.
pub fn set(path: &[&str], value: Value) -> PatchOperation {
    PatchOperation::Add(AddOperation {
        path: json_patch::jsonptr::PointerBuf::from_tokens(path.iter().copied()),
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
    fn status_and_the_rest_are_told_apart() {
        let before = node(json!({"metadata": {"name": "a"}, "spec": {}, "status": {}}));
        let after = node(json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {},
            "status": {"phase": "Running"}}));
        let changes = Changes::between(&before, &after).unwrap();
        assert_eq!((changes.main.len(), changes.status.len()), (1, 1));
        assert!(Changes::between(&before, &before).unwrap().is_empty());
    }

    #[test]
    fn a_patch_names_what_it_was_made_for() {
        let object = node(json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "7"}}));
        let patch = guarded(&object, vec![set(&["status", "phase"], json!("Running"))]);
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
