//! The cache of a controller: its objects as the watch last returned them.

use std::collections::HashMap;
use std::sync::Arc;

use kube::Resource;
use parking_lot::RwLock;

/// Namespace and name of an object.
pub(super) type Key = (Option<String>, String);

pub(super) fn key_of<K: Resource>(object: &K) -> Key {
    (object.meta().namespace.clone(), object.meta().name.clone().unwrap_or_default())
}

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
    state: Arc<RwLock<State<K, S>>>,
}

/// The objects of one namespace, by name.
type Names<K, S> = HashMap<Box<str>, Entry<K, S>>;

#[derive(Debug)]
struct State<K, S> {
    objects: HashMap<Box<str>, Names<K, S>>,
    /// Number of lists so far. An object with an older number is missing in the newest list.
    list: u32,
}

#[derive(Debug)]
struct Entry<K, S> {
    cached: Cached<K, S>,
    list: u32,
}

impl<K, S> Clone for Store<K, S> {
    fn clone(&self) -> Self {
        Self { state: Arc::clone(&self.state) }
    }
}

impl<K, S> Default for Store<K, S> {
    fn default() -> Self {
        Self { state: Arc::new(RwLock::new(State { objects: HashMap::new(), list: 0 })) }
    }
}

impl<K, S: Clone> Store<K, S> {
    /// The cached object of that name.
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<Cached<K, S>> {
        let state = self.state.read();
        Some(state.objects.get(namespace.unwrap_or_default())?.get(name)?.cached.clone())
    }

    pub(super) fn insert(&self, key: &Key, cached: Cached<K, S>) {
        let mut state = self.state.write();
        let entry = Entry { cached, list: state.list };
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
        let mut state = self.state.write();
        let namespace = key.0.as_deref().unwrap_or_default();
        let Some(names) = state.objects.get_mut(namespace) else { return };
        names.remove(key.1.as_str());
        if names.is_empty() {
            state.objects.remove(namespace);
        }
    }

    /// A list begins.
    pub(super) fn init(&self) {
        let mut state = self.state.write();
        state.list = state.list.wrapping_add(1);
    }

    /// The list is complete. Removes and returns the objects that it did not contain.
    pub(super) fn init_done(&self) -> Vec<(Key, Cached<K, S>)> {
        let mut state = self.state.write();
        let list = state.list;
        let mut gone = Vec::new();
        state.objects.retain(|namespace, names| {
            let old = names.extract_if(|_, entry| entry.list != list);
            gone.extend(old.map(|(name, entry)| {
                let namespace = (!namespace.is_empty()).then(|| namespace.to_string());
                ((namespace, name.into()), entry.cached)
            }));
            !names.is_empty()
        });
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(namespace: &str, name: &str) -> Key {
        ((!namespace.is_empty()).then(|| namespace.to_owned()), name.to_owned())
    }

    #[test]
    fn object_missing_in_a_new_list_is_removed() {
        let store = Store::<(), u8>::default();
        store.init();
        for (name, number) in [("a", 1), ("b", 2)] {
            store.insert(&key("n", name), Cached::Compact(number));
        }
        store.insert(&key("", "c"), Cached::Full(Arc::new(())));
        assert!(store.init_done().is_empty());
        store.init();
        store.insert(&key("n", "b"), Cached::Compact(3));
        let gone: Vec<Key> = store.init_done().into_iter().map(|(key, _)| key).collect();
        assert!(gone.len() == 2 && gone.contains(&key("n", "a")) && gone.contains(&key("", "c")));
        assert!(matches!(store.get(Some("n"), "b"), Some(Cached::Compact(3))));
        assert!(store.get(None, "c").is_none() && store.get(Some("n"), "a").is_none());
    }
}
