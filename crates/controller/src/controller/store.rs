//! The cache of a controller: its objects as their sources last returned them.

mod index;
mod watched;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use parking_lot::RwLock;

use self::index::Index;
use super::sources::SourceId;
use crate::namespaced_name::NamespacedName;
use crate::observed::{ByName, ListNumber, Lists};
use crate::watch::Keyed;

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
#[derive(Debug)]
pub struct Store<K, S = Infallible> {
    objects: Arc<RwLock<Objects<K, S>>>,
}

/// Only sources fill the cache, so an object needs no more than the number of its list.
#[derive(Debug)]
struct Objects<K, S> {
    by_name: ByName<Entry<K, S>>,
    lists: BTreeMap<SourceId, Lists>,
    indexes: BTreeMap<&'static str, Index<K>>,
}

#[derive(Debug)]
struct Entry<K, S> {
    /// The source of the cached state.
    delivery: Delivery,
    /// The other sources that deliver the object. Empty if the controller has one source.
    others: Box<[Delivery]>,
    cached: Cached<K, S>,
}

/// That a source delivers an object.
#[derive(Clone, Copy, Debug)]
struct Delivery {
    source: SourceId,
    /// The newest list of the source when it last delivered the object.
    list: ListNumber,
}

/// What follows when a source no longer delivers an object.
#[derive(Debug)]
pub(super) enum Removal<K, S> {
    /// No source delivers it. The state that was cached, if any.
    Gone(Option<Cached<K, S>>),
    /// Another source delivers it.
    Kept,
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
        let objects = Objects {
            by_name: ByName::default(),
            lists: BTreeMap::new(),
            indexes: BTreeMap::new(),
        };
        Self {
            objects: Arc::new(RwLock::new(objects)),
        }
    }
}

impl<K, S: Clone> Store<K, S> {
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

    /// Caches an object that a source delivers. Returns what was cached before.
    pub(super) fn insert(
        &self,
        source: SourceId,
        object: &NamespacedName,
        cached: Cached<K, S>,
    ) -> Option<Cached<K, S>> {
        let mut objects = self.objects.write();
        let delivery = objects.delivery(source);
        let (namespace, name) = object.parts();
        let after = cached.full().map(Arc::clone);
        let before = match objects.by_name.get_mut(namespace, name) {
            Some(entry) => {
                entry.deliver(delivery);
                Some(std::mem::replace(&mut entry.cached, cached))
            }
            None => {
                let entry = Entry {
                    delivery,
                    others: Box::default(),
                    cached,
                };
                objects.by_name.insert(namespace, name, entry);
                None
            }
        };
        objects.reindex(object, before.as_ref(), after.as_ref());
        before
    }

    /// Whether a source delivers a state that is older than the one that another source has
    /// delivered.
    pub(super) fn is_late(&self, source: SourceId, object: &K) -> bool
    where
        K: Keyed,
    {
        let key = object.key();
        let objects = self.objects.read();
        match objects.by_name.get(key.namespace(), key.name()) {
            Some(Entry {
                delivery,
                cached: Cached::Full(known),
                ..
            }) => delivery.source != source && object.is_older_than(known),
            _ => false,
        }
    }

    /// Records that a source delivers an object in a state that is not cached. The cached state
    /// stays.
    pub(super) fn touch(&self, source: SourceId, object: &NamespacedName) {
        let mut objects = self.objects.write();
        let delivery = objects.delivery(source);
        let known = objects.by_name.get_mut(object.namespace(), object.name());
        if let Some(entry) = known {
            let of_cached = entry.delivery;
            entry.deliver(delivery);
            if of_cached.source != source {
                entry.deliver(of_cached);
            }
        }
    }

    /// Records that a source has reported the deletion of an object, and removes the object unless
    /// another source delivers it.
    pub(super) fn remove(&self, source: SourceId, object: &NamespacedName) -> Removal<K, S> {
        let mut objects = self.objects.write();
        let (namespace, name) = object.parts();
        if let Some(entry) = objects.by_name.get_mut(namespace, name)
            && !entry.forget(|delivery| delivery.source == source)
        {
            return Removal::Kept;
        }
        let removed = objects.by_name.remove(namespace, name);
        let cached = removed.map(|entry| entry.cached);
        objects.reindex(object, cached.as_ref(), None);
        Removal::Gone(cached)
    }

    /// A source begins a list.
    pub(super) fn begin_list(&self, source: SourceId) {
        self.objects
            .write()
            .lists
            .entry(source)
            .or_default()
            .begin();
    }

    /// A list of a source is complete. Removes and returns the objects that it did not contain and
    /// that no other source delivers.
    pub(super) fn end_list(&self, source: SourceId) -> Vec<(NamespacedName, Cached<K, S>)> {
        let mut objects = self.objects.write();
        let unlisted = objects.lists.entry(source).or_default().end();
        objects.forget(|delivery| delivery.source == source && unlisted.contains(delivery.list))
    }

    /// A source was removed. Removes and returns the objects that only it delivered.
    pub(super) fn remove_source(&self, source: SourceId) -> Vec<(NamespacedName, Cached<K, S>)> {
        let mut objects = self.objects.write();
        objects.lists.remove(&source);
        objects.forget(|delivery| delivery.source == source)
    }

    /// The cached objects that a source delivers.
    pub(super) fn of_source(&self, source: SourceId) -> Vec<(NamespacedName, Cached<K, S>)> {
        let objects = self.objects.read();
        let mut found = Vec::new();
        for (namespace, name, entry) in objects.by_name.iter() {
            if entry.deliveries().any(|delivery| delivery.source == source) {
                found.push((NamespacedName::new(namespace, name), entry.cached.clone()));
            }
        }
        found
    }
}

impl<K, S> Objects<K, S> {
    fn delivery(&self, source: SourceId) -> Delivery {
        let list = self.lists.get(&source).map(Lists::current);
        Delivery {
            source,
            list: list.unwrap_or_default(),
        }
    }

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

    /// Forgets deliveries. Removes and returns the objects that no source delivers any longer.
    fn forget(
        &mut self,
        is_forgotten: impl Fn(&Delivery) -> bool,
    ) -> Vec<(NamespacedName, Cached<K, S>)> {
        let removed = self.by_name.extract_if(|entry| entry.forget(&is_forgotten));
        let mut forgotten = Vec::new();
        for (object, entry) in removed {
            self.reindex(&object, Some(&entry.cached), None);
            forgotten.push((object, entry.cached));
        }
        forgotten
    }
}

impl<K, S> Entry<K, S> {
    fn deliveries(&self) -> impl Iterator<Item = &Delivery> {
        std::iter::once(&self.delivery).chain(&self.others)
    }

    /// The cached state is that of another delivery from now on.
    fn deliver(&mut self, delivery: Delivery) {
        let before = std::mem::replace(&mut self.delivery, delivery);
        if before.source != delivery.source {
            let mut others = std::mem::take(&mut self.others).into_vec();
            others.retain(|other| other.source != delivery.source);
            others.push(before);
            self.others = others.into();
        }
    }

    /// Forgets deliveries. Returns whether none is left.
    fn forget(&mut self, is_forgotten: impl Fn(&Delivery) -> bool) -> bool {
        let all = self.deliveries().copied();
        let mut left = all.filter(|delivery| !is_forgotten(delivery));
        let Some(first) = left.next() else {
            return true;
        };
        let others = left.collect();
        self.delivery = first;
        self.others = others;
        false
    }
}

#[cfg(test)]
mod tests;
