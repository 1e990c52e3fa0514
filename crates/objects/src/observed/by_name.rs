//! A map of objects by namespace and name.

use std::collections::HashMap;

use crate::namespaced_name::NamespacedName;

/// Values by namespace and name. The namespace of a cluster-scoped object is empty.
#[derive(Clone, Debug)]
pub struct ByName<V> {
    namespaces: HashMap<Box<str>, HashMap<Box<str>, V>>,
}

impl<V> Default for ByName<V> {
    fn default() -> Self {
        Self {
            namespaces: HashMap::new(),
        }
    }
}

impl<V> ByName<V> {
    /// Returns the value of an object.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&V> {
        self.namespaces.get(namespace)?.get(name)
    }

    /// Returns the value of an object.
    pub fn get_mut(&mut self, namespace: &str, name: &str) -> Option<&mut V> {
        self.namespaces.get_mut(namespace)?.get_mut(name)
    }

    /// Returns all objects: namespace, name and value. In no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, &V)> {
        self.namespaces.iter().flat_map(|(namespace, names)| {
            names
                .iter()
                .map(move |(name, value)| (namespace.as_ref(), name.as_ref(), value))
        })
    }

    /// Sets the value of an object. Returns the previous value.
    pub fn insert(&mut self, namespace: &str, name: &str, value: V) -> Option<V> {
        // A key is only copied if it is new.
        if let Some(known) = self.get_mut(namespace, name) {
            return Some(std::mem::replace(known, value));
        }
        let names = match self.namespaces.get_mut(namespace) {
            Some(names) => names,
            None => self.namespaces.entry(namespace.into()).or_default(),
        };
        names.insert(name.into(), value)
    }

    /// Removes an object. Returns its value.
    pub fn remove(&mut self, namespace: &str, name: &str) -> Option<V> {
        let names = self.namespaces.get_mut(namespace)?;
        let removed = names.remove(name);
        if names.is_empty() {
            self.namespaces.remove(namespace);
        }
        removed
    }

    /// Removes and returns the objects whose value matches.
    pub fn extract_if(
        &mut self,
        mut matches: impl FnMut(&mut V) -> bool,
    ) -> Vec<(NamespacedName, V)> {
        let mut removed = Vec::new();
        self.namespaces.retain(|namespace, names| {
            for (name, value) in names.extract_if(|_, value| matches(value)) {
                removed.push((NamespacedName::new(namespace, &name), value));
            }
            !names.is_empty()
        });
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_found_by_namespace_and_name() {
        let mut map = ByName::default();
        for (namespace, name, number) in [("n", "a", 1), ("n", "b", 2), ("", "c", 3)] {
            assert_eq!(map.insert(namespace, name, number), None);
        }
        assert_eq!(
            (map.insert("n", "b", 4), map.get("n", "b"), map.get("", "b")),
            (Some(2), Some(&4), None)
        );
        let mut all: Vec<_> = map.iter().collect();
        all.sort_unstable();
        assert_eq!(all, [("", "c", &3), ("n", "a", &1), ("n", "b", &4)]);
        let mut removed = map.extract_if(|number| *number != 4);
        removed.sort_unstable();
        assert_eq!(
            removed,
            [
                (NamespacedName::new("", "c"), 3),
                (NamespacedName::new("n", "a"), 1)
            ]
        );
    }

    #[test]
    fn empty_namespaces_are_removed() {
        let mut map = ByName::default();
        map.insert("n", "a", 1);
        assert_eq!(map.remove("n", "b"), None);
        assert_eq!(map.remove("n", "a"), Some(1));
        map.insert("n", "a", 1);
        map.extract_if(|_| true);
        assert!(map.namespaces.is_empty());
    }
}
