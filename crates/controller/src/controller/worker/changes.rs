//! What a worker does with the changes of its sources.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use kube::core::ObjectMeta;
use tokio::sync::oneshot;
use tracing::warn;

use super::{OpenSource, PendingRemoval, Worker};
use crate::controller::compaction::Compaction;
use crate::controller::queue::Reason;
use crate::controller::sources::{ChangeHandler, HandlerId, Message, SourceId};
use crate::controller::store::{Cached, Removal};
use crate::controller::{Cause, Reconciler};
use crate::namespaced_name::NamespacedName;
use crate::watch::{Change, Keyed};

impl<R: Reconciler, C: Compaction<R::Object>> Worker<R, C> {
    pub(super) fn handle_message(&mut self, message: Message<R::Object>) {
        match message {
            Message::Opened {
                source,
                handler,
                synced,
            } => {
                self.sources
                    .insert(source, OpenSource::new(handler, synced));
            }
            Message::Change(source, change) => self.handle_change(source, change),
            Message::Removed(source, removed) => self.remove_source(source, removed),
            Message::AddHandler(id, handler) => self.add_handler(id, handler),
            Message::RemoveHandler(id, removed) => {
                self.handlers.retain(|(other, _)| *other != id);
                drop(removed);
            }
        }
    }

    pub(super) fn handle_change(&mut self, source: SourceId, change: Change<R::Object>) {
        self.started |= !matches!(change, Change::Failed(_));
        if !matches!(change, Change::InitDone) {
            self.notify(source, &change);
        }
        match change {
            Change::Failed(error) => (self.context.settings.on_source_error)(source, &error),
            Change::Init => self.begin_list(source),
            Change::InitApply(object) => self.apply(source, object),
            Change::Apply(object) => {
                // With one source everything comes in order. A list is believed: after a restore of
                // etcd its states are older than those of a source that has not listed again.
                if self.sources.len() > 1 && self.store.is_late(source, &object) {
                    self.store.touch(source, &object.key());
                } else {
                    self.apply(source, object);
                }
            }
            Change::InitDone => self.end_list(source),
            Change::Delete(object) => self.delete(source, object.key(), object),
            Change::ApplyInvalid(object) => {
                let key = NamespacedName::of(&object.metadata);
                self.store.touch(source, &key);
                if object.metadata.deletion_timestamp.is_some() {
                    self.apply_undecodable(source, &key, &object.metadata);
                }
            }
            Change::DeleteInvalid(object) => {
                let key = NamespacedName::of(&object.metadata);
                if let Removal::Gone(Some(cached)) = self.store.remove(source, &key) {
                    self.report_deleted(source, key, cached);
                }
            }
        }
    }

    fn begin_list(&mut self, source: SourceId) {
        self.store.begin_list(source);
        if let Some(open) = self.sources.get_mut(&source) {
            open.is_begun = true;
        }
    }

    fn end_list(&mut self, source: SourceId) {
        for (key, cached) in self.store.end_list(source) {
            self.report_deleted(source, key, cached);
        }
        self.notify(source, &Change::InitDone);
        if let Some(open) = self.sources.get_mut(&source) {
            open.is_listed = true;
            open.synced.ready();
        }
    }

    fn apply(&mut self, source: SourceId, mut object: R::Object) {
        let key = object.key();
        if object.is_gone() {
            self.delete(source, key, object);
            return;
        }
        let cause = self.cause_of(source, &key, &object);
        let cached = match self.context.compaction.compact(&object) {
            Some(compact) => Cached::Compact(compact),
            None => {
                (self.context.settings.transform)(&mut object);
                Cached::Full(Arc::new(object))
            }
        };
        let before = self.store.insert(source, &key, cached.clone());
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
        } else if self.deleted.get(&key).is_none() {
            self.context.backoffs.forget(&key);
        }
    }

    /// Lets an object be released that is being deleted and cannot be decoded. What was known of it
    /// stays valid.
    fn apply_undecodable(&mut self, source: SourceId, key: &NamespacedName, metadata: &ObjectMeta) {
        let cached = self.store.find(key);
        let known = cached.and_then(|cached| self.expand(key, cached));
        let known = known.and_then(|known| known.with_metadata(metadata));
        let undecodable = &self.context.settings.undecodable;
        match known.or_else(|| undecodable(metadata)) {
            Some(object) => self.apply(source, object),
            None => warn!(
                controller = self.context.name,
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

    /// Why an object that a source delivers is reconciled. Called before the object is stored.
    fn cause_of(&self, source: SourceId, key: &NamespacedName, object: &R::Object) -> Cause {
        if object.is_deleting() {
            return Cause::Deleting;
        }
        let open = self.sources.get(&source);
        if !open.is_some_and(|open| open.is_listed) {
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
    fn delete(&mut self, source: SourceId, key: NamespacedName, mut object: R::Object) {
        let Removal::Gone(before) = self.store.remove(source, &key) else {
            return;
        };
        self.context.compaction.cached(before.as_ref(), None);
        if !self.context.reconciler.wants_deleted(&object) {
            self.context.backoffs.forget(&key);
            return;
        }
        (self.context.settings.transform)(&mut object);
        self.enqueue_deleted(source, key, Arc::new(object));
    }

    /// Handles the deletion of an object whose last state is known from the cache only.
    fn report_deleted(
        &mut self,
        source: SourceId,
        key: NamespacedName,
        cached: Cached<R::Object, C::Compact>,
    ) {
        self.context.compaction.cached(Some(&cached), None);
        self.context.backoffs.forget(&key);
        let Some(object) = self.expand(&key, cached) else {
            return;
        };
        if let Some(open) = self.sources.get(&source) {
            open.handler.delete(&object);
        }
        if !self.handlers.is_empty() {
            let change = Change::Delete(R::Object::clone(&object));
            self.notify(source, &change);
        }
        // Without its marker it may be lost instead of deleted.
        let is_deleted = !R::Object::HAS_MARKERS;
        if is_deleted && self.context.reconciler.wants_deleted(&object) {
            self.enqueue_deleted(source, key, object);
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

    fn enqueue_deleted(&mut self, source: SourceId, key: NamespacedName, object: Arc<R::Object>) {
        self.context.backoffs.forget(&key);
        let now = Instant::now();
        let priority = (self.context.settings.priority)(&object, Cause::Deleted);
        self.deleted.insert(source, key.clone(), object);
        // What is gone is reconciled first and knows its cause. Another object of the key that
        // comes next must not inherit it.
        let cause = Cause::Changed;
        self.queue.add(key, now, now, Reason { cause, priority });
    }

    fn notify(&self, source: SourceId, change: &Change<R::Object>) {
        for (_, handler) in &self.handlers {
            handler.change(source, change);
        }
    }

    /// Adds a handler, which gets what is cached as lists.
    fn add_handler(&mut self, id: HandlerId, handler: Arc<dyn ChangeHandler<R::Object>>) {
        for (source, open) in &self.sources {
            if !open.is_begun {
                continue;
            }
            handler.change(*source, &Change::Init);
            for (key, cached) in self.store.of_source(*source) {
                if let Some(object) = self.expand(&key, cached) {
                    let change = Change::InitApply(R::Object::clone(&object));
                    handler.change(*source, &change);
                }
            }
            if open.is_listed {
                handler.change(*source, &Change::InitDone);
            }
        }
        self.handlers.push((id, handler));
    }

    /// Forgets a source that is closed, and the objects that only it delivered.
    fn remove_source(&mut self, source: SourceId, removed: oneshot::Sender<()>) {
        self.sources.remove(&source);
        for (key, cached) in self.store.remove_source(source) {
            self.context.compaction.cached(Some(&cached), None);
            self.context.backoffs.forget(&key);
        }
        for key in self.deleted.remove_source(source) {
            self.context.backoffs.forget(&key);
        }
        for (_, handler) in &self.handlers {
            handler.source_removed(source);
        }
        // An object that is being reconciled and is not cached can be one of the source.
        let running = self.queue.running();
        let forgotten = running.filter(|key| self.store.find(key).is_none());
        let running: HashSet<_> = forgotten.cloned().collect();
        if !running.is_empty() {
            self.removals.push(PendingRemoval {
                running,
                _removed: removed,
            });
        }
    }
}

#[cfg(test)]
mod tests;
