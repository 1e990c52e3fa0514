//! The cache of a controller: its objects as their sources last returned them.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use parking_lot::RwLock;

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

/// A read-only view of the cached objects of a controller. Clones share the cache.
#[derive(Debug)]
pub struct Store<K, S = Infallible> {
    objects: Arc<RwLock<Objects<K, S>>>,
}

/// Only sources fill the cache, so an object needs no more than the number of its list.
#[derive(Debug)]
struct Objects<K, S> {
    by_name: ByName<Entry<K, S>>,
    lists: BTreeMap<SourceId, Lists>,
    /// The other sources of objects that several deliver. Empty if the controller has one source.
    others: ByName<Vec<Delivery>>,
}

#[derive(Debug)]
struct Entry<K, S> {
    delivery: Delivery,
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

impl<K, S> Default for Objects<K, S> {
    fn default() -> Self {
        Self {
            by_name: ByName::default(),
            lists: BTreeMap::new(),
            others: ByName::default(),
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
        let entry = Entry { delivery, cached };
        let before = objects.by_name.insert(namespace, name, entry)?;
        if before.delivery.source != source {
            objects.remove_other(source, object);
            objects.add_other(before.delivery, object);
        }
        Some(before.cached)
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
        match known {
            Some(entry) if entry.delivery.source == source => entry.delivery = delivery,
            Some(_) => {
                objects.remove_other(source, object);
                objects.add_other(delivery, object);
            }
            None => {}
        }
    }

    /// Records that a source has reported the deletion of an object, and removes the object unless
    /// another source delivers it.
    pub(super) fn remove(&self, source: SourceId, object: &NamespacedName) -> Removal<K, S> {
        let mut objects = self.objects.write();
        let (namespace, name) = object.parts();
        match objects.by_name.get(namespace, name) {
            None => return Removal::Gone(None),
            Some(entry) if entry.delivery.source != source => {
                objects.remove_other(source, object);
                return Removal::Kept;
            }
            Some(_) => {}
        }
        let next = objects.take_other(object);
        let objects = &mut *objects;
        match (next, objects.by_name.get_mut(namespace, name)) {
            (Some(delivery), Some(entry)) => {
                entry.delivery = delivery;
                Removal::Kept
            }
            _ => {
                let removed = objects.by_name.remove(namespace, name);
                Removal::Gone(removed.map(|entry| entry.cached))
            }
        }
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
            let others = objects.others.get(namespace, name);
            let is_delivered = entry.delivery.source == source
                || others.is_some_and(|others| others.iter().any(|other| other.source == source));
            if is_delivered {
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

    fn add_other(&mut self, delivery: Delivery, object: &NamespacedName) {
        let (namespace, name) = object.parts();
        match self.others.get_mut(namespace, name) {
            Some(others) => others.push(delivery),
            None => {
                self.others.insert(namespace, name, vec![delivery]);
            }
        }
    }

    fn remove_other(&mut self, source: SourceId, object: &NamespacedName) {
        let (namespace, name) = object.parts();
        let Some(others) = self.others.get_mut(namespace, name) else {
            return;
        };
        others.retain(|other| other.source != source);
        if others.is_empty() {
            self.others.remove(namespace, name);
        }
    }

    /// Removes one of the other sources of an object, and returns it.
    fn take_other(&mut self, object: &NamespacedName) -> Option<Delivery> {
        let (namespace, name) = object.parts();
        let other = *self.others.get(namespace, name)?.first()?;
        self.remove_other(other.source, object);
        Some(other)
    }

    /// Forgets deliveries. Removes and returns the objects that no source delivers any longer.
    fn forget(
        &mut self,
        is_forgotten: impl Fn(&Delivery) -> bool,
    ) -> Vec<(NamespacedName, Cached<K, S>)> {
        let changed = self
            .others
            .extract_if(|others| others.iter().any(&is_forgotten));
        for (object, mut others) in changed {
            others.retain(|other| !is_forgotten(other));
            if !others.is_empty() {
                let (namespace, name) = object.parts();
                self.others.insert(namespace, name, others);
            }
        }
        let undelivered = self
            .by_name
            .extract_if(|entry| is_forgotten(&entry.delivery));
        let mut removed = Vec::new();
        for (object, mut entry) in undelivered {
            match self.take_other(&object) {
                Some(delivery) => {
                    entry.delivery = delivery;
                    let (namespace, name) = object.parts();
                    self.by_name.insert(namespace, name, entry);
                }
                None => removed.push((object, entry.cached)),
            }
        }
        removed
    }
}

#[cfg(test)]
mod tests;
