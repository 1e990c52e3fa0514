//! Finalizers, added and removed only if the object is still what it was when it was read.

use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::client::{CallError, ResourceClient, Deleted};
use crate::patch;

/// Whether the object carries the finalizer.
pub fn is_set<K: Resource>(object: &K, finalizer: &str) -> bool {
    all(object).any(|present| present == finalizer)
}

/// The finalizers of an object.
pub fn all<K: Resource>(object: &K) -> impl Iterator<Item = &str> {
    object.meta().finalizers.iter().flatten().map(String::as_str)
}

/// Adds a finalizer and returns the object as it is then. The API server refuses it on an object that is being deleted.
pub async fn add<K>(calls: &ResourceClient<K>, object: &K, finalizer: &str) -> Result<K, CallError>
where
    K: Resource + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    replace(calls, object, all(object).chain([finalizer]).collect()).await
}

/// Removes a finalizer and returns the object as it is then; where it was the last of a deleted object, as it was.
///
/// The write that takes the last finalizer off a deleted object ends it. After a patch the API server does that by name
/// alone: two such writes at once, and the second ends a successor of that name. After a replacement it heeds the uid.
pub async fn remove<K>(calls: &ResourceClient<K>, object: &K, finalizer: &str) -> Result<K, CallError>
where
    K: Resource + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let left: Vec<&str> = all(object).filter(|present| *present != finalizer).collect();
    if object.meta().deletion_timestamp.is_none() || !left.is_empty() {
        return replace(calls, object, left).await;
    }
    let mut last = object.clone();
    last.meta_mut().finalizers = None;
    match calls.replace(&last).await {
        // Somebody's admission wants fields that the type does not know.
        Err(error) if error.is_invalid() => replace(calls, object, left).await,
        written => written,
    }
}

/// Takes the finalizer off an object and deletes it, if it is still what it was when it was read. Returns whether it is
/// gone; other finalizers keep it.
pub async fn delete<K>(calls: &ResourceClient<K>, object: &K, finalizer: &str) -> Result<bool, CallError>
where
    K: Resource + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let mut stripped = None;
    if is_set(object, finalizer) {
        stripped = match remove(calls, object, finalizer).await {
            Err(error) if error.is_not_found() => None,
            removed => Some(removed?),
        };
    }
    delete_unchanged(calls, stripped.as_ref().unwrap_or(object)).await
}

/// As [`delete`], of an object of which uid and resource version are known, and that it has no other finalizer and is not
/// being deleted.
pub async fn delete_as_seen<K>(calls: &ResourceClient<K>, name: &str, uid: &str, version: &str) -> Result<bool, CallError>
where
    K: Resource + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let none = patch::set(&["metadata", "finalizers"], json!([]));
    match calls.patch(name, patch::guarded_by(Some(uid.to_owned()), Some(version.to_owned()), vec![none])).await {
        Ok(stripped) => delete_unchanged(calls, &stripped).await,
        Err(error) if error.is_not_found() => Ok(true),
        Err(error) => Err(error),
    }
}

async fn delete_unchanged<K>(calls: &ResourceClient<K>, object: &K) -> Result<bool, CallError>
where
    K: Resource + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let meta = object.meta();
    let [name, uid, version] = [&meta.name, &meta.uid, &meta.resource_version].map(|text| text.as_deref());
    let (name, uid, version) = (name.unwrap_or_default(), uid.unwrap_or_default(), version.unwrap_or_default());
    // With the version: somebody may have given it another use since.
    Ok(matches!(calls.delete_unchanged(name, uid, version).await?, Deleted::Gone))
}

async fn replace<K>(calls: &ResourceClient<K>, object: &K, finalizers: Vec<&str>) -> Result<K, CallError>
where
    K: Resource + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let name = object.meta().name.as_deref().unwrap_or_default();
    let change = patch::set(&["metadata", "finalizers"], json!(finalizers));
    calls.patch(name, patch::guarded(object, vec![change])).await
}
