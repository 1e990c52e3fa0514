//! The cache of a controller: its objects as the watch last returned them.

use std::sync::Arc;

use parking_lot::{RwLock, RwLockWriteGuard};

use crate::namespaced_name::NamespacedName;
use crate::object_map::ObjectMap;

/// A cached object.
#[derive(Debug)]
pub enum Cached<K, S> {
    /// The whole object.
    Full(Arc<K>),
    /// The compact form of an object that needs no reconcile.
    Compact(S),
}

impl<K, S: Clone> Clone for Cached<K, S> {
    fn clone(&self) -> Self {
        match self {
            Self::Full(object) => Self::Full(Arc::clone(object)),
            Self::Compact(compact) => Self::Compact(compact.clone()),
        }
    }
}

/// A read-only view of the cached objects of a controller. Clones share the cache.
#[derive(Debug)]
pub struct Store<K, S> {
    objects: Arc<RwLock<ObjectMap<Cached<K, S>>>>,
}

impl<K, S> Clone for Store<K, S> {
    fn clone(&self) -> Self {
        Self { objects: Arc::clone(&self.objects) }
    }
}

impl<K, S> Default for Store<K, S> {
    fn default() -> Self {
        Self { objects: Arc::default() }
    }
}

impl<K, S: Clone> Store<K, S> {
    /// The cached object of that name.
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<Cached<K, S>> {
        self.objects.read().get(namespace.unwrap_or_default(), name).cloned()
    }

    pub(super) fn find(&self, object: &NamespacedName) -> Option<Cached<K, S>> {
        self.objects.read().get(object.namespace(), object.name()).cloned()
    }

    /// The results of a function for all cached objects, in no particular order. The function gets namespace, name and
    /// object, and must be fast: the cache is locked meanwhile.
    pub fn filter_map<T>(&self, mut function: impl FnMut(&str, &str, &Cached<K, S>) -> Option<T>) -> Vec<T> {
        let objects = self.objects.read();
        objects.iter().filter_map(|(namespace, name, cached)| function(namespace, name, cached)).collect()
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, ObjectMap<Cached<K, S>>> {
        self.objects.write()
    }
}
