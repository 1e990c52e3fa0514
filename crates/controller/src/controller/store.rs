//! The objects of a controller as its watch last saw them.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use kube::Resource;

/// Namespace and name of an object.
pub(super) type Key = (Option<String>, String);

pub(super) fn key_of<K: Resource>(object: &K) -> Key {
    (object.meta().namespace.clone(), object.meta().name.clone().unwrap_or_default())
}

/// What is kept of an object.
#[derive(Debug)]
pub enum Kept<K, S> {
    /// The object.
    Whole(Arc<K>),
    /// As much as is needed to know that nothing has to be done for it.
    Settled(S),
}

impl<K, S: Clone> Clone for Kept<K, S> {
    fn clone(&self) -> Self {
        match self {
            Self::Whole(object) => Self::Whole(Arc::clone(object)),
            Self::Settled(settled) => Self::Settled(settled.clone()),
        }
    }
}

/// The objects of a controller as its watch last saw them, to read. Clones are the same.
#[derive(Debug)]
pub struct Store<K, S> {
    state: Arc<RwLock<State<K, S>>>,
}

/// The objects of one namespace, by name.
type Names<K, S> = HashMap<Box<str>, Entry<K, S>>;

#[derive(Debug)]
struct State<K, S> {
    objects: HashMap<Box<str>, Names<K, S>>,
    /// Counts listings, to tell what an older one named and the newest does not.
    listing: u32,
}

#[derive(Debug)]
struct Entry<K, S> {
    kept: Kept<K, S>,
    listing: u32,
}

impl<K, S> Clone for Store<K, S> {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state) }
    }
}

impl<K, S> Default for Store<K, S> {
    fn default() -> Self {
        Self { state: Arc::new(RwLock::new(State { objects: HashMap::new(), listing: 0 })) }
    }
}

impl<K, S: Clone> Store<K, S> {
    /// What is kept of the object of that name.
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<Kept<K, S>> {
        let state = self.read();
        Some(state.objects.get(namespace.unwrap_or_default())?.get(name)?.kept.clone())
    }

    pub(super) fn insert(&self, key: &Key, kept: Kept<K, S>) {
        let mut state = self.write();
        let entry = Entry { kept, listing: state.listing };
        let namespace = key.0.as_deref().unwrap_or_default();
        if !state.objects.contains_key(namespace) {
            state.objects.insert(namespace.into(), HashMap::new());
        }
        let Some(names) = state.objects.get_mut(namespace) else { return };
        match names.get_mut(key.1.as_str()) {
            Some(known) => *known = entry,
            None => drop(names.insert(key.1.as_str().into(), entry)),
        }
    }

    pub(super) fn remove(&self, key: &Key) {
        let mut state = self.write();
        let namespace = key.0.as_deref().unwrap_or_default();
        let Some(names) = state.objects.get_mut(namespace) else { return };
        names.remove(key.1.as_str());
        if names.is_empty() {
            state.objects.remove(namespace);
        }
    }

    /// A full listing begins.
    pub(super) fn listing(&self) {
        let mut state = self.write();
        state.listing = state.listing.wrapping_add(1);
    }

    /// The listing is complete: what it did not name is gone, and returned.
    pub(super) fn listed(&self) -> Vec<(Key, Kept<K, S>)> {
        let mut state = self.write();
        let listing = state.listing;
        let mut gone = Vec::new();
        state.objects.retain(|namespace, names| {
            let old = names.extract_if(|_, entry| entry.listing != listing);
            gone.extend(old.map(|(name, entry)| {
                let namespace = (!namespace.is_empty()).then(|| namespace.to_string());
                ((namespace, name.into()), entry.kept)
            }));
            !names.is_empty()
        });
        gone
    }

    fn read(&self) -> RwLockReadGuard<'_, State<K, S>> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State<K, S>> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str, name: &str) -> Key {
        ((!namespace.is_empty()).then(|| namespace.to_owned()), name.to_owned())
    }

    #[test]
    fn what_a_new_listing_does_not_name_is_gone() {
        let store = Store::<(), u8>::default();
        store.listing();
        for (name, number) in [("a", 1), ("b", 2)] {
            store.insert(&key("n", name), Kept::Settled(number));
        }
        store.insert(&key("", "c"), Kept::Whole(Arc::new(())));
        assert!(store.listed().is_empty());
        store.listing();
        store.insert(&key("n", "b"), Kept::Settled(3));
        let gone: Vec<Key> = store.listed().into_iter().map(|(key, _)| key).collect();
        assert!(gone.len() == 2 && gone.contains(&key("n", "a")) && gone.contains(&key("", "c")));
        assert!(matches!(store.get(Some("n"), "b"), Some(Kept::Settled(3))));
        assert!(store.get(None, "c").is_none() && store.get(Some("n"), "a").is_none());
    }
}
