//! Objects by namespace and name, and the detection of objects that were deleted while a watch was interrupted.
//!
//! A watch that lists again does not report these deletions. Every stored entry therefore keeps the [`ListEpoch`] in
//! which it was last shown or written, and is removed at the end of a list if that is an older one. The watches
//! themselves could report the deletions only if they kept the keys of all objects, which the caches have already: so
//! the marks are in the caches, 4 bytes for each object.

use std::collections::HashMap;

use crate::namespaced_name::NamespacedName;

/// The number of the newest list of a watch. An object that was last stored in an older epoch, and that the newest list
/// did not contain, is deleted. Numbers wrap around.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListEpoch(u32);

impl ListEpoch {
    /// A list begins.
    pub fn begin(&mut self) {
        self.0 = self.0.wrapping_add(1);
    }
}

/// Values by the namespace and name of their objects. The namespace of a cluster-scoped object is empty.
#[derive(Debug)]
pub struct ObjectMap<V> {
    namespaces: HashMap<Box<str>, HashMap<Box<str>, Entry<V>>>,
    epoch: ListEpoch,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    epoch: ListEpoch,
}

impl<V> Default for ObjectMap<V> {
    fn default() -> Self {
        Self { namespaces: HashMap::new(), epoch: ListEpoch::default() }
    }
}

impl<V> ObjectMap<V> {
    /// Returns the value of an object.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&V> {
        self.namespaces.get(namespace)?.get(name).map(|entry| &entry.value)
    }

    /// Returns all objects: namespace, name and value. In no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, &V)> {
        self.namespaces.iter().flat_map(|(namespace, names)| {
            names.iter().map(move |(name, entry)| (namespace.as_ref(), name.as_ref(), &entry.value))
        })
    }

    /// Returns the values of all objects. In no particular order.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.namespaces.values_mut().flat_map(HashMap::values_mut).map(|entry| &mut entry.value)
    }

    /// Sets the value of an object, which exists in the current list. Returns the previous value.
    pub fn insert(&mut self, namespace: &str, name: &str, value: V) -> Option<V> {
        let entry = Entry { value, epoch: self.epoch };
        let names = match self.namespaces.get_mut(namespace) {
            Some(names) => names,
            None => self.namespaces.entry(namespace.into()).or_default(),
        };
        let previous = match names.get_mut(name) {
            Some(known) => Some(std::mem::replace(known, entry)),
            None => names.insert(name.into(), entry),
        };
        previous.map(|entry| entry.value)
    }

    /// Removes an object. Returns its value.
    pub fn remove(&mut self, namespace: &str, name: &str) -> Option<V> {
        let names = self.namespaces.get_mut(namespace)?;
        let removed = names.remove(name);
        if names.is_empty() {
            self.namespaces.remove(namespace);
        }
        removed.map(|entry| entry.value)
    }

    /// A list begins.
    pub fn init(&mut self) {
        self.epoch.begin();
    }

    /// The list is complete. Removes and returns the objects that it did not contain and that were not inserted since
    /// it began.
    pub fn init_done(&mut self) -> Vec<(NamespacedName, V)> {
        let epoch = self.epoch;
        let mut removed = Vec::new();
        self.namespaces.retain(|namespace, names| {
            let old = names.extract_if(|_, entry| entry.epoch != epoch);
            removed.extend(old.map(|(name, entry)| (NamespacedName::new(namespace, &name), entry.value)));
            !names.is_empty()
        });
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_missing_in_a_new_list_are_removed() {
        let mut map = ObjectMap::default();
        map.init();
        for (namespace, name, number) in [("n", "a", 1), ("n", "b", 2), ("", "c", 3)] {
            assert_eq!(map.insert(namespace, name, number), None);
        }
        assert_eq!(map.init_done(), []);
        map.init();
        assert_eq!(map.insert("n", "b", 4), Some(2));
        assert_eq!(map.get("n", "a"), Some(&1), "nothing is removed before the list is complete");
        let mut all: Vec<_> = map.iter().collect();
        all.sort_unstable();
        assert_eq!(all, [("", "c", &3), ("n", "a", &1), ("n", "b", &4)]);
        let mut removed = map.init_done();
        removed.sort_unstable();
        assert_eq!(removed, [(NamespacedName::new("", "c"), 3), (NamespacedName::new("n", "a"), 1)]);
        assert_eq!((map.get("n", "b"), map.get("", "c"), map.get("n", "a")), (Some(&4), None, None));
    }

    #[test]
    fn empty_namespaces_are_removed() {
        let mut map = ObjectMap::default();
        map.insert("n", "a", 1);
        assert_eq!(map.remove("n", "b"), None);
        assert_eq!(map.remove("n", "a"), Some(1));
        assert!(map.namespaces.is_empty());
    }
}
