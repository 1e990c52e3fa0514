//! Objects that are gone and that their reconciler has not reconciled as deleted yet.

use std::collections::HashMap;
use std::sync::Arc;

use crate::namespaced_name::NamespacedName;
use crate::watch::Keyed;

/// The last states of deleted objects, until they are reconciled. Empty if the reconciler
/// [does not need them](super::Reconciler::wants_deleted).
pub(super) struct Deleted<K> {
    objects: HashMap<NamespacedName, Arc<K>>,
}

impl<K> Default for Deleted<K> {
    fn default() -> Self {
        Self {
            objects: HashMap::new(),
        }
    }
}

impl<K: Keyed> Deleted<K> {
    /// The object to reconcile as deleted, before another one of its key.
    pub(super) fn get(&self, key: &NamespacedName) -> Option<&Arc<K>> {
        self.objects.get(key)
    }

    /// Adds an object. If one of its key waits already, the reconciler does not know the later one,
    /// so the first one stays; a marker says nothing but that its key is gone, so the last one
    /// counts.
    pub(super) fn insert(&mut self, key: NamespacedName, object: Arc<K>) {
        if object.is_gone() {
            self.objects.insert(key, object);
        } else {
            self.objects.entry(key).or_insert(object);
        }
    }

    /// The object was reconciled as deleted.
    pub(super) fn finish(&mut self, key: &NamespacedName, reconciled: &Arc<K>) {
        // Another one may have replaced it during the reconcile.
        let waiting = self.objects.get(key);
        if waiting.is_some_and(|waiting| Arc::ptr_eq(waiting, reconciled)) {
            self.objects.remove(key);
        }
    }
}

#[cfg(test)]
mod tests;
