//! An event handler that enqueues what depends on the objects of another kind.

use std::sync::Arc;

use super::Trigger;
use crate::namespaced_name::NamespacedName;
use crate::watch::{EventHandler, Invalid};

/// Enqueues what a closure returns for an object.
struct Mapped<K, F> {
    trigger: Trigger<K>,
    map: F,
}

impl<K: 'static> Trigger<K> {
    /// A handler for the watch of another kind: it enqueues the objects that `map` returns for each
    /// object that is listed, created, changed or deleted. An object that cannot be decoded
    /// enqueues nothing. `map` must be fast.
    pub fn mapped<O: 'static, I: IntoIterator<Item = NamespacedName> + 'static>(
        &self,
        map: impl Fn(&O) -> I + Send + Sync + 'static,
    ) -> Arc<dyn EventHandler<O>> {
        Arc::new(Mapped {
            trigger: self.clone(),
            map,
        })
    }
}

impl<K, O, I, F> EventHandler<O> for Mapped<K, F>
where
    K: 'static,
    I: IntoIterator<Item = NamespacedName>,
    F: Fn(&O) -> I + Send + Sync + 'static,
{
    fn apply(&self, object: &O) {
        for dependent in (self.map)(object) {
            self.trigger.enqueue(dependent);
        }
    }

    fn delete(&self, object: &O) {
        self.apply(object);
    }

    fn apply_invalid(&self, _: &Invalid) {}

    fn delete_invalid(&self, _: &Invalid) {}
}
