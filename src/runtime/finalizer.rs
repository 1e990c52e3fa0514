//! Finalizers, added and removed only if the object is still what it was when it was read.

use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::client::{CallError, Calls};
use super::patch;

/// Whether the object carries the finalizer.
pub fn is_set<K: Resource>(object: &K, finalizer: &str) -> bool {
    all(object).any(|present| present == finalizer)
}

/// The finalizers of an object.
pub fn all<K: Resource>(object: &K) -> impl Iterator<Item = &str> {
    object.meta().finalizers.iter().flatten().map(String::as_str)
}

/// Adds a finalizer and returns the object as it is then. The API server refuses it on an object that is being deleted.
pub async fn add<K>(calls: &Calls<K>, object: &K, finalizer: &str) -> Result<K, CallError>
where
    K: Resource + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    replace(calls, object, all(object).chain([finalizer]).collect()).await
}

/// Removes a finalizer and returns the object as it is then; where it was the last of a deleted object, as it was.
///
/// The write that takes the last finalizer off a deleted object ends it. After a patch the API server does that by name
/// alone: two such writes at once, and the second ends a successor of that name. After a replacement it heeds the uid.
pub async fn remove<K>(calls: &Calls<K>, object: &K, finalizer: &str) -> Result<K, CallError>
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

async fn replace<K>(calls: &Calls<K>, object: &K, finalizers: Vec<&str>) -> Result<K, CallError>
where
    K: Resource + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let name = object.meta().name.as_deref().unwrap_or_default();
    let change = patch::set(&["metadata", "finalizers"], json!(finalizers));
    calls.patch(name, patch::guarded(object, vec![change])).await
}
