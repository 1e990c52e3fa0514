//! An index of cached objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::namespaced_name::NamespacedName;

/// The objects of a cache by the values that a function returns for them.
#[derive(Debug)]
pub(super) struct Index<K> {
    values_of: fn(&K) -> Vec<String>,
    objects: BTreeMap<(String, NamespacedName), Arc<K>>,
}

impl<K> Index<K> {
    pub(super) fn new(values_of: fn(&K) -> Vec<String>) -> Self {
        Self {
            values_of,
            objects: BTreeMap::new(),
        }
    }

    /// The object of a name was replaced, removed or added.
    pub(super) fn update(
        &mut self,
        name: &NamespacedName,
        before: Option<&Arc<K>>,
        after: Option<&Arc<K>>,
    ) {
        if let Some(object) = before {
            for value in (self.values_of)(object) {
                self.objects.remove(&(value, name.clone()));
            }
        }
        if let Some(object) = after {
            for value in (self.values_of)(object) {
                let key = (value, name.clone());
                self.objects.insert(key, Arc::clone(object));
            }
        }
    }

    /// The objects with a value, ordered by namespace and name.
    pub(super) fn get(&self, value: &str) -> Vec<Arc<K>> {
        let first = (value.to_owned(), NamespacedName::new("", ""));
        let from_first = self.objects.range(first..);
        let found = from_first.take_while(|((of, _), _)| of == value);
        found.map(|(_, object)| Arc::clone(object)).collect()
    }
}
