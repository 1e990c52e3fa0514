//! The cache of a controller: its objects as the watch last returned them.

use std::convert::Infallible;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::namespaced_name::NamespacedName;
use crate::observed::{ByName, ListNumber, Lists};

/// A cached object.
#[derive(Debug)]
pub enum Cached<K, S = Infallible> {
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
pub struct Store<K, S = Infallible> {
    objects: Arc<RwLock<Objects<K, S>>>,
}

/// Only the watch fills the cache, so an object needs no more than the number of its list.
#[derive(Debug)]
struct Objects<K, S> {
    by_name: ByName<(ListNumber, Cached<K, S>)>,
    lists: Lists,
}

impl<K, S> Default for Objects<K, S> {
    fn default() -> Self {
        Self {
            by_name: ByName::default(),
            lists: Lists::default(),
        }
    }
}

impl<K, S> Clone for Store<K, S> {
    fn clone(&self) -> Self {
        Self {
            objects: Arc::clone(&self.objects),
        }
    }
}

impl<K, S> Default for Store<K, S> {
    fn default() -> Self {
        Self {
            objects: Arc::default(),
        }
    }
}

impl<K, S: Clone> Store<K, S> {
    /// The cached object of that name.
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<Cached<K, S>> {
        let objects = self.objects.read();
        let (_, cached) = objects.by_name.get(namespace.unwrap_or_default(), name)?;
        Some(cached.clone())
    }

    pub(super) fn find(&self, object: &NamespacedName) -> Option<Cached<K, S>> {
        let (namespace, name) = object.parts();
        self.get(Some(namespace), name)
    }

    /// The results of a function for all cached objects, in no particular order. The function gets
    /// namespace, name and object, and must be fast: the cache is locked meanwhile.
    pub fn filter_map<T>(
        &self,
        mut function: impl FnMut(&str, &str, &Cached<K, S>) -> Option<T>,
    ) -> Vec<T> {
        let objects = self.objects.read();
        let all = objects.by_name.iter();
        all.filter_map(|(namespace, name, (_, cached))| function(namespace, name, cached))
            .collect()
    }

    /// Caches an object. Returns what was cached before.
    pub(super) fn insert(
        &self,
        object: &NamespacedName,
        cached: Cached<K, S>,
    ) -> Option<Cached<K, S>> {
        let mut objects = self.objects.write();
        let list = objects.lists.current();
        let before = objects
            .by_name
            .insert(object.namespace(), object.name(), (list, cached));
        before.map(|(_, before)| before)
    }

    /// Removes an object. Returns what was cached.
    pub(super) fn remove(&self, object: &NamespacedName) -> Option<Cached<K, S>> {
        let before = self
            .objects
            .write()
            .by_name
            .remove(object.namespace(), object.name());
        before.map(|(_, before)| before)
    }

    /// A list begins.
    pub(super) fn begin_list(&self) {
        self.objects.write().lists.begin();
    }

    /// The list is complete. Removes and returns the objects that it did not contain.
    pub(super) fn end_list(&self) -> Vec<(NamespacedName, Cached<K, S>)> {
        let mut objects = self.objects.write();
        let unlisted = objects.lists.end();
        let removed = objects
            .by_name
            .extract_if(|(list, _)| unlisted.contains(*list));
        removed
            .into_iter()
            .map(|(key, (_, cached))| (key, cached))
            .collect()
    }
}
