//! The cache of a controller: its objects as their source last returned them.

mod index;
mod watched;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use parking_lot::RwLock;

use self::index::Index;
use crate::namespaced_name::NamespacedName;
use crate::observed::{ByName, ListNumber, Lists};

/// A cached object.
#[derive(Clone, Debug)]
pub enum Cached<K, S = Infallible> {
    /// The whole object.
    Full(Arc<K>),
    /// The compact form of an object that needs no reconcile.
    Compact(S),
}

impl<K, S> Cached<K, S> {
    fn full(&self) -> Option<&Arc<K>> {
        match self {
            Self::Full(object) => Some(object),
            Self::Compact(_) => None,
        }
    }
}

/// A read-only view of cached objects: those of a controller, or of another
/// [watch](Self::watched). Clones share the cache.
#[derive(Clone, Debug)]
pub struct Store<K, S = Infallible> {
    objects: Arc<RwLock<Objects<K, S>>>,
}

/// Only a watch fills the cache, so an object needs no more than the number of its list.
#[derive(Debug)]
struct Objects<K, S> {
    by_name: ByName<Entry<K, S>>,
    lists: Lists,
    indexes: BTreeMap<&'static str, Index<K>>,
}

#[derive(Debug)]
struct Entry<K, S> {
    /// The newest list when the object was last delivered.
    list: ListNumber,
    cached: Cached<K, S>,
}

impl<K, S> Default for Store<K, S> {
    fn default() -> Self {
        let objects = Objects {
            by_name: ByName::default(),
            lists: Lists::default(),
            indexes: BTreeMap::new(),
        };
        Self {
            objects: Arc::new(RwLock::new(objects)),
        }
    }
}

impl<K: Clone, S: Clone> Store<K, S> {
    /// The cached object of that name.
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<Cached<K, S>> {
        let objects = self.objects.read();
        let entry = objects.by_name.get(namespace.unwrap_or_default(), name)?;
        Some(entry.cached.clone())
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
        all.filter_map(|(namespace, name, entry)| function(namespace, name, &entry.cached))
            .collect()
    }

    /// Adds an index: from now on, [`Self::by`] finds objects by the values that this function
    /// returns for them. It is called for each object that is cached, and again when that is
    /// replaced or removed, so it must be fast and depend on nothing but the object. A value of
    /// objects in namespaces usually contains the namespace. A second index of the same name
    /// replaces the first one.
    pub fn index(&self, name: &'static str, values_of: fn(&K) -> Vec<String>) {
        let mut index = Index::new(values_of);
        let mut objects = self.objects.write();
        for (namespace, name, entry) in objects.by_name.iter() {
            let name = NamespacedName::new(namespace, name);
            index.update(&name, None, entry.cached.full());
        }
        objects.indexes.insert(name, index);
    }

    /// The objects for which the function of an [index](Self::index) has returned this value,
    /// ordered by namespace and name. An object in compact form is in no index. Without such an
    /// index there are none.
    pub fn by(&self, index: &str, value: &str) -> Vec<Arc<K>> {
        let objects = self.objects.read();
        let index = objects.indexes.get(index);
        index.map(|index| index.get(value)).unwrap_or_default()
    }

    /// Caches an object. Returns what was cached before.
    pub(super) fn insert(
        &self,
        object: &NamespacedName,
        cached: Cached<K, S>,
    ) -> Option<Cached<K, S>> {
        let mut objects = self.objects.write();
        let list = objects.lists.current();
        let (namespace, name) = object.parts();
        let after = cached.full().map(Arc::clone);
        let entry = Entry { list, cached };
        let replaced = objects.by_name.insert(namespace, name, entry);
        let before = replaced.map(|entry| entry.cached);
        objects.reindex(object, before.as_ref(), after.as_ref());
        before
    }

    /// Records that an object exists, in a state that is not cached. The cached state stays.
    pub(super) fn touch(&self, object: &NamespacedName) {
        let mut objects = self.objects.write();
        let list = objects.lists.current();
        let known = objects.by_name.get_mut(object.namespace(), object.name());
        if let Some(entry) = known {
            entry.list = list;
        }
    }

    /// Removes an object that is deleted.
    pub(super) fn remove(&self, object: &NamespacedName) -> Option<Cached<K, S>> {
        let mut objects = self.objects.write();
        let (namespace, name) = object.parts();
        let removed = objects.by_name.remove(namespace, name)?;
        objects.reindex(object, Some(&removed.cached), None);
        Some(removed.cached)
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
            .extract_if(|entry| unlisted.contains(entry.list));
        let mut forgotten = Vec::new();
        for (object, entry) in removed {
            objects.reindex(&object, Some(&entry.cached), None);
            forgotten.push((object, entry.cached));
        }
        forgotten
    }
}

impl<K, S> Objects<K, S> {
    /// A cached state was replaced by the object `after`, removed or added.
    fn reindex(
        &mut self,
        object: &NamespacedName,
        before: Option<&Cached<K, S>>,
        after: Option<&Arc<K>>,
    ) {
        let before = before.and_then(Cached::full);
        for index in self.indexes.values_mut() {
            index.update(object, before, after);
        }
    }
}

#[cfg(test)]
mod tests;
