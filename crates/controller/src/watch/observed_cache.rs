use std::time::Instant;

use kube::Resource;
use kube::core::ObjectMeta;
use parking_lot::MappedMutexGuard;

use super::{EventHandler, Invalid};
use crate::namespaced_name::NamespacedName;
use crate::observed::{Observed, Origin};

/// A handler that keeps in an [`Observed`] what its watch shows. What it implements is what differs
/// between such caches; it is an [`EventHandler`] by that.
pub trait ObservedCache: Send + Sync + 'static {
    /// The watched kind.
    type Object: Resource;
    /// What is kept of an object.
    type Value;

    /// Locks what is known, in a `Mutex` of `parking_lot`.
    fn observed(&self) -> MappedMutexGuard<'_, Observed<Self::Value>>;

    /// Records an object that was listed, created or changed.
    fn see(&self, object: &Self::Object);

    /// Called when an object is gone, with what was known of it.
    fn removed(&self, name: &NamespacedName, value: Option<Self::Value>);

    /// Called when a complete list does not contain an object. By default it is gone.
    fn not_listed(&self, name: &NamespacedName, value: Option<Self::Value>) {
        self.removed(name, value);
    }

    /// Called when a list is complete, before the objects that it did not contain are removed.
    fn listed(&self) {}

    /// Records an object that cannot be decoded. By default what was known of it stays.
    fn see_undecodable(&self, metadata: &ObjectMeta) {
        let now = Instant::now();
        self.observed()
            .see_undecodable(Origin::Watch, metadata, now);
    }
}

fn remove<C: ObservedCache>(cache: &C, metadata: &ObjectMeta) {
    let (object, uid) = (NamespacedName::of(metadata), metadata.uid.as_deref());
    let (namespace, name) = object.parts();
    let value = cache
        .observed()
        .delete(namespace, name, uid, Instant::now());
    cache.removed(&object, value);
}

impl<C: ObservedCache> EventHandler<C::Object> for C {
    fn init(&self) {
        self.observed().begin_list();
    }

    fn init_done(&self) {
        self.listed();
        let unlisted = self.observed().end_list(Instant::now());
        for (name, value) in unlisted {
            self.not_listed(&name, value);
        }
    }

    fn apply(&self, object: &C::Object) {
        self.see(object);
    }

    fn delete(&self, object: &C::Object) {
        remove(self, object.meta());
    }

    fn restored(&self) {
        self.observed().restored();
    }

    fn apply_invalid(&self, object: &Invalid) {
        self.see_undecodable(&object.metadata);
    }

    fn delete_invalid(&self, object: &Invalid) {
        remove(self, &object.metadata);
    }
}
