//! The finalizers of an object.

use kube::Resource;

/// Whether the object has the finalizer.
pub fn is_set<K: Resource>(object: &K, finalizer: &str) -> bool {
    all(object).any(|present| present == finalizer)
}

/// The finalizers of an object.
pub fn all<K: Resource>(object: &K) -> impl Iterator<Item = &str> {
    object
        .meta()
        .finalizers
        .iter()
        .flatten()
        .map(String::as_str)
}
