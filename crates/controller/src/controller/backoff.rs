//! Backoff for each object: the number of failures, the end of the backoff, and the state for the next attempt.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use kube::Resource;
use parking_lot::Mutex;

use super::Attempt;
use super::store::key_of;
use crate::object_map::ObjectKey;

pub(super) struct Backoffs<S> {
    entries: Mutex<HashMap<ObjectKey, Entry<S>>>,
}

impl<S> Default for Backoffs<S> {
    fn default() -> Self {
        Self { entries: Mutex::default() }
    }
}

struct Entry<S> {
    /// The state of the object at the last attempt.
    object: Fingerprint,
    attempt: Attempt<S>,
    not_before: Option<Instant>,
    /// Triggered during the reconcile or the backoff.
    triggered: bool,
}

/// Whether an attempt may start.
pub(super) enum Start<S> {
    Now(Attempt<S>),
    Backoff(Duration),
}

/// A hash of the fields whose change ends a backoff: the uid and everything that others write. The status is left out,
/// since the controller's own writes change it.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Fingerprint(u64);

impl Fingerprint {
    fn of<K: Resource>(object: &K) -> Self {
        let meta = object.meta();
        let mut hash = DefaultHasher::new();
        (&meta.uid, meta.generation, meta.deletion_timestamp.is_some(), &meta.finalizers).hash(&mut hash);
        (&meta.labels, &meta.annotations).hash(&mut hash);
        Self(hash.finish())
    }
}

impl<S: Default> Backoffs<S> {
    /// Starts an attempt, unless the last one failed and its backoff is not over. A trigger ends the backoff, and so
    /// does a change of more than the status.
    pub(super) fn begin<K: Resource>(&self, object: &K, now: Instant) -> Start<S> {
        let mut entries = self.entries.lock();
        let fingerprint = Fingerprint::of(object);
        let new = || Entry { object: fingerprint, attempt: Attempt::default(), not_before: None, triggered: false };
        let entry = entries.entry(key_of(object)).or_insert_with(new);
        if entry.object != fingerprint {
            *entry = new();
        }
        if let Some(not_before) = entry.not_before
            && now < not_before
            && !entry.triggered
        {
            return Start::Backoff(not_before.saturating_duration_since(now));
        }
        (entry.not_before, entry.triggered) = (None, false);
        Start::Now(std::mem::take(&mut entry.attempt))
    }

    /// Ends the backoff of the object. If it is being reconciled, it is reconciled again.
    pub(super) fn trigger(&self, key: &ObjectKey) {
        if let Some(entry) = self.entries.lock().get_mut(key) {
            entry.triggered = true;
        }
    }

    /// Removes the entry of an object, after a success or its deletion.
    pub(super) fn forget(&self, key: &ObjectKey) {
        self.entries.lock().remove(key);
    }

    /// Records an attempt that requeues its object. Keeps the state. Returns when to reconcile again.
    pub(super) fn requeued(&self, key: &ObjectKey, state: S, wait: Duration) -> Duration {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(key) else { return wait };
        entry.attempt = Attempt { failures: 0, state };
        if entry.triggered { Duration::ZERO } else { wait }
    }

    /// Records a failed attempt and its backoff. Returns when to reconcile again.
    pub(super) fn failed(&self, key: &ObjectKey, attempt: Attempt<S>, now: Instant, wait: Duration) -> Duration {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(key) else { return wait };
        entry.attempt = attempt;
        entry.not_before = now.checked_add(wait);
        if entry.triggered { Duration::ZERO } else { wait }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    const WAIT: Duration = Duration::from_secs(10);

    fn object(resource_version: &str, label: &str) -> ConfigMap {
        serde_json::from_value(json!({"metadata": {"namespace": "n", "name": "a", "uid": "u",
            "resourceVersion": resource_version, "labels": {"l": label}}}))
        .unwrap()
    }

    fn failures<S: Default>(start: Start<S>) -> Option<u32> {
        match start {
            Start::Now(attempt) => Some(attempt.failures),
            Start::Backoff(_) => None,
        }
    }

    fn failed_once(backoffs: &Backoffs<u8>, now: Instant) {
        assert_eq!(failures(backoffs.begin(&object("1", "x"), now)), Some(0));
        backoffs.failed(&key_of(&object("1", "x")), Attempt { failures: 1, state: 7 }, now, WAIT);
    }

    #[test]
    fn status_write_does_not_end_the_backoff() {
        let (backoffs, now) = (Backoffs::default(), Instant::now());
        failed_once(&backoffs, now);
        assert_eq!(failures(backoffs.begin(&object("2", "x"), now)), None);
        let Start::Now(attempt) = backoffs.begin(&object("2", "x"), now + WAIT) else { panic!("the backoff is over") };
        assert_eq!((attempt.failures, attempt.state), (1, 7));
    }

    #[test]
    fn change_of_labels_ends_the_backoff() {
        let (backoffs, now) = (Backoffs::default(), Instant::now());
        failed_once(&backoffs, now);
        assert_eq!(failures(backoffs.begin(&object("2", "y"), now)), Some(0));
    }

    #[test]
    fn trigger_ends_the_backoff_and_keeps_the_failures() {
        let (backoffs, now) = (Backoffs::default(), Instant::now());
        failed_once(&backoffs, now);
        backoffs.trigger(&key_of(&object("1", "x")));
        assert_eq!(failures(backoffs.begin(&object("1", "x"), now)), Some(1));
    }

    #[test]
    fn trigger_during_a_reconcile_is_not_lost() {
        let (backoffs, now) = (Backoffs::<u8>::default(), Instant::now());
        assert_eq!(failures(backoffs.begin(&object("1", "x"), now)), Some(0));
        backoffs.trigger(&key_of(&object("1", "x")));
        let wait = backoffs.failed(&key_of(&object("1", "x")), Attempt { failures: 1, state: 0 }, now, WAIT);
        assert_eq!(wait, Duration::ZERO);
        assert_eq!(failures(backoffs.begin(&object("1", "x"), now)), Some(1));
    }
}
