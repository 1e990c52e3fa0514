//! What a worker does with the changes of its source.

use std::sync::Arc;
use std::time::Instant;

use kube::core::ObjectMeta;
use tracing::warn;

use super::Worker;
use crate::controller::compaction::Compaction;
use crate::controller::queue::Reason;
use crate::controller::store::Cached;
use crate::controller::{Cause, Reconciler};
use crate::namespaced_name::NamespacedName;
use crate::watch::{Change, Keyed};

impl<R: Reconciler, C: Compaction<R::Object>> Worker<R, C> {
    pub(super) fn handle_change(&mut self, change: Change<R::Object>) {
        self.started |= !matches!(change, Change::Failed(_));
        match change {
            Change::Failed(error) => (self.context.settings.on_source_error)(&error),
            Change::Init => self.store.begin_list(),
            Change::InitApply(object) | Change::Apply(object) => self.apply(object),
            Change::InitDone => self.end_list(),
            Change::Delete(object) => self.delete(object.key(), object),
            Change::ApplyInvalid(object) => {
                let key = NamespacedName::of(&object.metadata);
                self.store.touch(&key);
                if object.metadata.deletion_timestamp.is_some() {
                    self.apply_undecodable(&key, &object.metadata);
                }
            }
            Change::DeleteInvalid(object) => {
                let key = NamespacedName::of(&object.metadata);
                if let Some(cached) = self.store.remove(&key) {
                    self.report_deleted(key, cached);
                }
            }
        }
    }

    fn end_list(&mut self) {
        for (key, cached) in self.store.end_list() {
            self.report_deleted(key, cached);
        }
        self.is_listed = true;
        self.synced.ready();
    }

    fn apply(&mut self, mut object: R::Object) {
        let key = object.key();
        if object.is_gone() {
            self.delete(key, object);
            return;
        }
        let cause = self.cause_of(&key, &object);
        let cached = match self.context.compaction.compact(&object) {
            Some(compact) => Cached::Compact(compact),
            None => {
                (self.context.settings.transform)(&mut object);
                Cached::Full(Arc::new(object))
            }
        };
        let before = self.store.insert(&key, cached.clone());
        self.context
            .compaction
            .cached(before.as_ref(), Some(&cached));
        if self.is_unwanted(&key, before.as_ref(), &cached) {
            return;
        }
        if self.needs_reconcile(&key, &cached) {
            let now = Instant::now();
            let priority = self.priority_of(&cached, cause);
            self.queue.add(key, now, now, Reason { cause, priority });
        } else if !self.deleted.contains_key(&key) {
            self.context.backoffs.forget(&key);
        }
    }

    /// Lets an object be released that is being deleted and cannot be decoded. What was known of it
    /// stays valid.
    fn apply_undecodable(&mut self, key: &NamespacedName, metadata: &ObjectMeta) {
        let cached = self.store.find(key);
        let known = cached.and_then(|cached| self.expand(key, cached));
        let known = known.and_then(|known| known.with_metadata(metadata));
        let undecodable = &self.context.settings.undecodable;
        match known.or_else(|| undecodable(metadata)) {
            Some(object) => self.apply(object),
            None => warn!(
                controller = self.context.settings.name,
                object = %key,
                "an object that is being deleted cannot be decoded, and nothing of it is released; correct it"
            ),
        }
    }

    /// Whether the reconciler does not want a change of an object. An object in the queue may wait
    /// for it.
    fn is_unwanted(
        &self,
        key: &NamespacedName,
        before: Option<&Cached<R::Object, C::Compact>>,
        after: &Cached<R::Object, C::Compact>,
    ) -> bool {
        let (Some(Cached::Full(before)), Cached::Full(after)) = (before, after) else {
            return false;
        };
        after.is_same(before)
            && before.is_deleting() == after.is_deleting()
            && !(self.context.settings.wants)(before, after)
            && !self.queue.contains(key)
    }

    /// Why a delivered object is reconciled. Called before the object is stored.
    fn cause_of(&self, key: &NamespacedName, object: &R::Object) -> Cause {
        if object.is_deleting() {
            return Cause::Deleting;
        }
        if !self.is_listed {
            return Cause::Resumed;
        }
        match self.store.find(key) {
            None => Cause::Created,
            // A list shows an object that replaced another one of its name.
            Some(Cached::Full(before)) if !object.is_same(&before) => Cause::Created,
            Some(_) => Cause::Changed,
        }
    }

    /// Handles the deletion of an object, of which the source has reported the last state.
    fn delete(&mut self, key: NamespacedName, mut object: R::Object) {
        let before = self.store.remove(&key);
        self.context.compaction.cached(before.as_ref(), None);
        if !self.context.reconciler.wants_deleted(&object) {
            self.context.backoffs.forget(&key);
            return;
        }
        (self.context.settings.transform)(&mut object);
        self.enqueue_deleted(key, Arc::new(object));
    }

    /// Handles the deletion of an object whose last state is known from the cache only.
    fn report_deleted(&mut self, key: NamespacedName, cached: Cached<R::Object, C::Compact>) {
        self.context.compaction.cached(Some(&cached), None);
        self.context.backoffs.forget(&key);
        let Some(object) = self.expand(&key, cached) else {
            return;
        };
        self.handler.delete(&object);
        // Without its marker it may be lost instead of deleted.
        let is_deleted = !R::Object::HAS_MARKERS;
        if is_deleted && self.context.reconciler.wants_deleted(&object) {
            self.enqueue_deleted(key, object);
        }
    }

    fn expand(
        &self,
        key: &NamespacedName,
        cached: Cached<R::Object, C::Compact>,
    ) -> Option<Arc<R::Object>> {
        match cached {
            Cached::Full(object) => Some(object),
            Cached::Compact(compact) => {
                let object = self.context.compaction.expand(key, &compact)?;
                Some(Arc::new(object))
            }
        }
    }

    fn enqueue_deleted(&mut self, key: NamespacedName, object: Arc<R::Object>) {
        self.context.backoffs.forget(&key);
        let now = Instant::now();
        let priority = (self.context.settings.priority)(&object, Cause::Deleted);
        // If one of its key waits already, the reconciler does not know the later one, so the first
        // one stays; a marker says nothing but that its key is gone, so the last one counts.
        if object.is_gone() {
            self.deleted.insert(key.clone(), object);
        } else {
            self.deleted.entry(key.clone()).or_insert(object);
        }
        // What is gone is reconciled first and knows its cause. Another object of the key that
        // comes next must not inherit it.
        let cause = Cause::Changed;
        self.queue.add(key, now, now, Reason { cause, priority });
    }
}

#[cfg(test)]
mod tests;
