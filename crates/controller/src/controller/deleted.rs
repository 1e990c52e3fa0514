//! Objects that are gone and that their reconciler has not reconciled as deleted yet.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::sources::SourceId;
use crate::namespaced_name::NamespacedName;
use crate::watch::Keyed;

/// The last states of deleted objects, until they are reconciled. Empty if the reconciler
/// [does not need them](super::Reconciler::wants_deleted).
#[derive(Debug)]
pub(super) struct Deleted<K> {
    objects: HashMap<NamespacedName, (SourceId, Arc<K>)>,
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
        self.objects.get(key).map(|(_, object)| object)
    }

    /// Adds an object. If one of its key waits already, the reconciler does not know the later one,
    /// so the first one stays; a marker says nothing but that its key is gone, so the last one
    /// counts.
    pub(super) fn insert(&mut self, source: SourceId, key: NamespacedName, object: Arc<K>) {
        match self.objects.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert((source, object));
            }
            Entry::Occupied(mut entry) if object.is_gone() => {
                entry.insert((source, object));
            }
            Entry::Occupied(_) => {}
        }
    }

    /// The object was reconciled as deleted.
    pub(super) fn finish(&mut self, key: &NamespacedName, reconciled: &Arc<K>) {
        if let Entry::Occupied(entry) = self.objects.entry(key.clone()) {
            let (_, waiting) = entry.get();
            // Another one may have replaced it during the reconcile.
            if Arc::ptr_eq(waiting, reconciled) {
                entry.remove();
            }
        }
    }

    /// Forgets the objects of a source. Returns their keys.
    pub(super) fn remove_source(&mut self, source: SourceId) -> Vec<NamespacedName> {
        let removed = self.objects.extract_if(|_, (of, _)| *of == source);
        removed.map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests;
