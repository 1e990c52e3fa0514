//! Finalizers. Every write has the uid and the resourceVersion of the object as a precondition.

pub use capi_ipam_objects::finalizer::{all, is_set};
use kube::core::{ObjectMeta, PartialObjectMeta};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::client::{ApiObject, CallError, Deleted, ResourceClient};
use crate::patch;

/// Adds a finalizer and returns the written object. The API server rejects this for an object that
/// is being deleted.
pub async fn add<K: ApiObject>(
    calls: &ResourceClient<K>,
    object: &K,
    finalizer: &str,
) -> Result<K, CallError> {
    replace(calls, object, all(object).chain([finalizer]).collect()).await
}

/// Removes a finalizer and returns the written object. If it is the last finalizer of an object
/// that is being deleted, returns its last state.
///
/// In that case the API server deletes the object as part of the write. For a patch it does so by
/// name only, so the second of two concurrent patches could delete a newer object of that name. For
/// an update it compares the uid, so the last finalizer is removed by an update.
pub async fn remove<K: ApiObject>(
    calls: &ResourceClient<K>,
    object: &K,
    finalizer: &str,
) -> Result<K, CallError> {
    let left: Vec<&str> = all(object)
        .filter(|present| *present != finalizer)
        .collect();
    if object.meta().deletion_timestamp.is_none() || !left.is_empty() {
        return replace(calls, object, left).await;
    }
    let mut last = object.clone();
    last.meta_mut().finalizers = None;
    match calls.replace(&last).await {
        // An admission webhook may require fields that the type does not know and that an update
        // drops.
        Err(error) if error.is_invalid() => replace(calls, object, left).await,
        written => written,
    }
}

/// Like [`remove`], for an object of which not all fields are known, or that cannot be decoded: it
/// is read, and what is written are all its fields. Returns the metadata after the write. `None` if
/// the object does not exist, does not have the finalizer, or if `is_expected` is false for its
/// metadata.
pub async fn remove_unread<K: ApiObject>(
    calls: &ResourceClient<K>,
    name: &str,
    finalizer: &str,
    is_expected: impl FnOnce(&ObjectMeta) -> bool,
) -> Result<Option<ObjectMeta>, CallError> {
    let Some(mut object) = calls.get_as::<Value>(name).await? else {
        return Ok(None);
    };
    let found = PartialObjectMeta::<()>::deserialize(&object);
    let mut metadata = found.unwrap_or_default().metadata;
    let mut left = metadata.finalizers.take().unwrap_or_default();
    let count = left.len();
    left.retain(|present| present != finalizer);
    if left.len() == count || !is_expected(&metadata) {
        return Ok(None);
    }
    if let Some(finalizers) = object.pointer_mut("/metadata/finalizers") {
        *finalizers = json!(left);
    }
    let written: PartialObjectMeta<()> = calls.replace_json(name, &object).await?;
    Ok(Some(written.metadata))
}

/// Removes the finalizer and deletes the object, if it has not changed since it was read. Returns
/// whether the object is gone: it is not if it has other finalizers.
pub async fn delete<K: ApiObject>(
    calls: &ResourceClient<K>,
    object: &K,
    finalizer: &str,
) -> Result<bool, CallError> {
    let mut unprotected = None;
    if is_set(object, finalizer) {
        unprotected = match remove(calls, object, finalizer).await {
            Err(error) if error.is_not_found() => None,
            removed => Some(removed?),
        };
    }
    delete_unchanged(calls, unprotected.as_ref().unwrap_or(object)).await
}

/// The result of [`delete_at_version`].
#[derive(Debug)]
pub struct DeletedAtVersion<K> {
    /// Whether the object is gone: it is not if another client has added a finalizer.
    pub is_gone: bool,
    /// The object as it was before its deletion; `None` if it did not exist.
    pub object: Option<K>,
}

/// Like [`delete`], for an object of which only uid and resourceVersion are known. Removes all
/// finalizers; the caller knows that there is no other one at this version, and that the object is
/// not being deleted.
pub async fn delete_at_version<K: ApiObject>(
    calls: &ResourceClient<K>,
    name: &str,
    uid: &str,
    version: &str,
) -> Result<DeletedAtVersion<K>, CallError> {
    let none = patch::set(&["metadata", "finalizers"], json!([]));
    match calls
        .patch(
            name,
            patch::with_uid_and_version(Some(uid.to_owned()), Some(version.to_owned()), vec![none]),
        )
        .await
    {
        Ok(unprotected) => {
            let is_gone = delete_unchanged(calls, &unprotected).await?;
            Ok(DeletedAtVersion {
                is_gone,
                object: Some(unprotected),
            })
        }
        Err(error) if error.is_not_found() => Ok(DeletedAtVersion {
            is_gone: true,
            object: None,
        }),
        Err(error) => Err(error),
    }
}

async fn delete_unchanged<K: ApiObject>(
    calls: &ResourceClient<K>,
    object: &K,
) -> Result<bool, CallError> {
    let meta = object.meta();
    let [name, uid, version] = [&meta.name, &meta.uid, &meta.resource_version]
        .map(|text| text.as_deref().unwrap_or_default());
    // The resourceVersion is a precondition, since another client may have changed the object.
    Ok(matches!(
        calls.delete_unchanged(name, uid, version).await?,
        Deleted::Gone
    ))
}

async fn replace<K: ApiObject>(
    calls: &ResourceClient<K>,
    object: &K,
    finalizers: Vec<&str>,
) -> Result<K, CallError> {
    let name = object.meta().name.as_deref().unwrap_or_default();
    let mut operations = patch::required_fields(calls, object)?;
    operations.push(patch::set(&["metadata", "finalizers"], json!(finalizers)));
    calls
        .patch(name, patch::with_preconditions(object, operations))
        .await
}
