//! The last seen objects of a kind, and which ClusterAddressings their changes concern.

use std::sync::Arc;
use std::time::Instant;

use capi_ipam_controller::observed::{Observed, Origin};
use capi_ipam_controller::watch::{EventHandler, Invalid};
use kube::Resource;
use kube::core::ObjectMeta;
use parking_lot::Mutex;

/// The last seen objects of a kind.
pub(super) struct Seen<K> {
    objects: Mutex<Observed<Arc<K>>>,
    /// Whether the change of an object, from one state to another, can concern a
    /// ClusterAddressing.
    is_relevant: fn(&K, &K) -> bool,
    /// Enqueues the ClusterAddressings that an object concerns.
    enqueue: Box<dyn Fn(&K) + Send + Sync>,
}

impl<K: Resource + Clone + Send + Sync + 'static> Seen<K> {
    pub(super) fn new(
        is_relevant: fn(&K, &K) -> bool,
        enqueue: impl Fn(&K) + Send + Sync + 'static,
    ) -> Self {
        Self {
            objects: Mutex::default(),
            is_relevant,
            enqueue: Box::new(enqueue),
        }
    }

    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<Arc<K>> {
        self.objects.lock().get(namespace, name).cloned()
    }

    pub(super) fn all(&self) -> Vec<Arc<K>> {
        let objects = self.objects.lock();
        objects.iter().map(|(_, _, it)| Arc::clone(it)).collect()
    }

    /// Whether the last state of an object could be decoded, so that it can be written.
    pub(super) fn is_current(&self, namespace: &str, name: &str) -> bool {
        self.objects.lock().preconditions(namespace, name).is_some()
    }

    /// The objects of a namespace that match, ordered by name.
    pub(super) fn select(&self, namespace: &str, matches: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        let objects = self.objects.lock();
        let in_namespace = objects.iter().filter(|(of, _, _)| *of == namespace);
        let selected = in_namespace.filter(|(_, _, object)| matches(object));
        let mut found: Vec<(&str, &Arc<K>)> = selected.map(|(_, name, it)| (name, it)).collect();
        found.sort_unstable_by_key(|(name, _)| *name);
        found.into_iter().map(|(_, it)| Arc::clone(it)).collect()
    }

    /// Records the response to a write of this process.
    pub(super) fn record(&self, object: &K) {
        self.see(Origin::Response, object);
    }

    fn see(&self, origin: Origin, object: &K) {
        let seen = Arc::new(object.clone());
        let change = self
            .objects
            .lock()
            .see(origin, object.meta(), seen, Instant::now());
        let Some(change) = change else {
            return;
        };
        let before = change.before.as_deref();
        if before.is_none_or(|before| (self.is_relevant)(before, object)) {
            (self.enqueue)(object);
            // The selectors that matched before may not match any more.
            if let Some(before) = before {
                (self.enqueue)(before);
            }
        }
    }

    fn remove(&self, metadata: &ObjectMeta) {
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let name = metadata.name.as_deref().unwrap_or_default();
        let uid = metadata.uid.as_deref();
        let removed = self
            .objects
            .lock()
            .delete(namespace, name, uid, Instant::now());
        if let Some(removed) = removed {
            (self.enqueue)(&removed);
        }
    }
}

impl<K: Resource + Clone + Send + Sync + 'static> EventHandler<K> for Seen<K> {
    fn init(&self) {
        self.objects.lock().begin_list();
    }

    fn init_done(&self) {
        let removed = self.objects.lock().end_list(Instant::now());
        for (_, object) in removed {
            if let Some(object) = object {
                (self.enqueue)(&object);
            }
        }
    }

    fn apply(&self, object: &K) {
        self.see(Origin::Watch, object);
    }

    fn delete(&self, object: &K) {
        self.remove(object.meta());
    }

    /// What was known of the object stays.
    fn apply_invalid(&self, object: &Invalid) {
        let metadata = &object.metadata;
        let is_news = self
            .objects
            .lock()
            .see_undecodable(Origin::Watch, metadata, Instant::now());
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let name = metadata.name.as_deref().unwrap_or_default();
        if let Some(known) = self.get(namespace, name)
            && is_news
        {
            (self.enqueue)(&known);
        }
    }

    fn delete_invalid(&self, object: &Invalid) {
        self.remove(&object.metadata);
    }

    fn restored(&self) {
        self.objects.lock().restored();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use capi_ipam_provider::api::IPAddressClaim;
    use serde_json::{Value, json};

    use super::*;

    fn metadata(version: &str) -> ObjectMeta {
        let metadata =
            json!({"name": "c", "namespace": "n", "uid": "u", "resourceVersion": version});
        serde_json::from_value(metadata).unwrap()
    }

    fn claim(version: &str) -> IPAddressClaim {
        IPAddressClaim {
            metadata: metadata(version),
            ..IPAddressClaim::default()
        }
    }

    #[test]
    fn undecodable_state_is_announced_and_the_last_one_stays() {
        let enqueued = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&enqueued);
        let enqueue = move |_: &IPAddressClaim| {
            count.fetch_add(1, Ordering::Relaxed);
        };
        let seen = Seen::new(|_, _| false, enqueue);
        seen.apply(&claim("1"));
        assert!(seen.is_current("n", "c"));
        seen.apply_invalid(&Invalid {
            error: "spec".to_owned(),
            metadata: Box::new(metadata("2")),
            spec: Value::Null,
        });
        assert!(!seen.is_current("n", "c"));
        assert!(seen.get("n", "c").is_some());
        assert_eq!(enqueued.load(Ordering::Relaxed), 2);
        seen.apply(&claim("3"));
        assert!(seen.is_current("n", "c"));
        assert_eq!(seen.all().len(), 1);
    }
}
