//! A cache that a watch fills.

use std::sync::Arc;

use super::{Cached, NamespacedName, SourceId, Store};
use crate::watch::{EventHandler, Invalid, Keyed, Watchable};

impl<K: Watchable> Store<K> {
    /// A cache of a kind that no controller reconciles, such as one that the reconciled objects
    /// refer to, and the handler that fills it. Pass the handler to one watch, for example with
    /// [`ControllerBuilder::watch`]: the cache is complete when the gate of that watch is ready.
    ///
    /// `changed` is called with the name of each object after it was listed, created, changed or
    /// deleted, also while the watch was interrupted. It must be fast, and usually enqueues the
    /// reconciled objects that refer to this one.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use capi_ipam_controller::controller::{ControllerBuilder, Store};
    /// use capi_ipam_controller::manager::Manager;
    /// use capi_ipam_controller::watch::{Keyed, WatchApi, WatchSpec};
    /// use k8s_openapi::api::core::v1::{Node, Pod};
    ///
    /// /// Watches nodes, and reconciles the pods of a node whenever it changes.
    /// fn watch_nodes(manager: &Manager, pods: &mut ControllerBuilder<Pod>) -> Store<Node> {
    ///     let (cache, trigger) = (pods.store(), pods.trigger());
    ///     cache.index("node", |pod| {
    ///         let spec = pod.spec.as_ref();
    ///         spec.and_then(|spec| spec.node_name.clone()).into_iter().collect()
    ///     });
    ///     let (nodes, handler) = Store::watched(move |node| {
    ///         for pod in cache.by("node", node.name()) {
    ///             trigger.enqueue(pod.key());
    ///         }
    ///     });
    ///     let synced = manager.health.register_watch("Node");
    ///     let all = WatchApi::all(manager.client.clone());
    ///     pods.watch(WatchSpec::new(all, (), handler, synced));
    ///     nodes
    /// }
    /// # let _ = watch_nodes;
    /// ```
    ///
    /// [`ControllerBuilder::watch`]: crate::controller::ControllerBuilder::watch
    pub fn watched(
        changed: impl Fn(&NamespacedName) + Send + Sync + 'static,
    ) -> (Self, Arc<dyn EventHandler<K>>) {
        let store = Self::default();
        let handler = Filler {
            store: store.clone(),
            changed: Box::new(changed),
        };
        (store, Arc::new(handler))
    }
}

/// Fills the cache of one watch.
struct Filler<K> {
    store: Store<K>,
    changed: Box<dyn Fn(&NamespacedName) + Send + Sync>,
}

impl<K: Watchable> Filler<K> {
    fn remove(&self, name: &NamespacedName) {
        self.store.remove(SourceId::MAIN, name);
        (self.changed)(name);
    }
}

impl<K: Watchable> EventHandler<K> for Filler<K> {
    fn init(&self) {
        self.store.begin_list(SourceId::MAIN);
    }

    fn init_done(&self) {
        for (name, _) in self.store.end_list(SourceId::MAIN) {
            (self.changed)(&name);
        }
    }

    fn apply(&self, object: &K) {
        let (name, cached) = (object.key(), Cached::Full(Arc::new(object.clone())));
        self.store.insert(SourceId::MAIN, &name, cached);
        (self.changed)(&name);
    }

    fn delete(&self, object: &K) {
        self.remove(&object.key());
    }

    /// The last known state of the object stays.
    fn apply_invalid(&self, object: &Invalid) {
        self.store
            .touch(SourceId::MAIN, &NamespacedName::of(&object.metadata));
    }

    fn delete_invalid(&self, object: &Invalid) {
        self.remove(&NamespacedName::of(&object.metadata));
    }
}
