//! The book of attempts: how often each object has failed, when it may be tried again, and what it left behind.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kube::Resource;

use super::Attempt;
use super::store::{Key, key_of};

pub(super) struct Attempts<S> {
    book: Mutex<HashMap<Key, Entry<S>>>,
}

impl<S> Default for Attempts<S> {
    fn default() -> Self {
        Self { book: Mutex::default() }
    }
}

struct Entry<S> {
    /// What the object was at the attempt.
    object: Fingerprint,
    attempt: Attempt<S>,
    not_before: Option<Instant>,
    /// Woken while it was being worked on.
    woken: bool,
}

/// Whether an object may be worked on.
pub(super) enum Turn<S> {
    Now(Attempt<S>),
    Later(Duration),
}

/// What makes an object another one: its uid, and all that others decide. The status is left out, since our own writes
/// change it.
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

impl<S: Default> Attempts<S> {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Entry<S>>> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins an attempt, unless the last one failed and the wait is not over. A wait is cut short by a wake, and by a
    /// change of the object in more than its status.
    pub(super) fn begin<K: Resource>(&self, object: &K, now: Instant) -> Turn<S> {
        let mut book = self.lock();
        let fingerprint = Fingerprint::of(object);
        let fresh = || Entry { object: fingerprint, attempt: Attempt::default(), not_before: None, woken: false };
        let entry = book.entry(key_of(object)).or_insert_with(fresh);
        if entry.object != fingerprint {
            *entry = fresh();
        }
        if let Some(not_before) = entry.not_before
            && now < not_before
            && !entry.woken
        {
            return Turn::Later(not_before.saturating_duration_since(now));
        }
        (entry.not_before, entry.woken) = (None, false);
        Turn::Now(std::mem::take(&mut entry.attempt))
    }

    /// The object wants to be looked at, also if it is being worked on or has to wait.
    pub(super) fn wake(&self, key: &Key) {
        if let Some(entry) = self.lock().get_mut(key) {
            entry.woken = true;
        }
    }

    /// Nothing is remembered of an object: the attempt succeeded, or the object is gone.
    pub(super) fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }

    /// The attempt ended without success or failure; its state is kept. Returns when to look again.
    pub(super) fn yielded(&self, key: &Key, state: S, wait: Duration) -> Duration {
        let mut book = self.lock();
        let Some(entry) = book.get_mut(key) else { return wait };
        entry.attempt = Attempt { failures: 0, state };
        if entry.woken { Duration::ZERO } else { wait }
    }

    /// The attempt failed; the next one waits. Returns when to look again.
    pub(super) fn failed(&self, key: &Key, attempt: Attempt<S>, now: Instant, wait: Duration) -> Duration {
        let mut book = self.lock();
        let Some(entry) = book.get_mut(key) else { return wait };
        entry.attempt = attempt;
        entry.not_before = now.checked_add(wait);
        if entry.woken { Duration::ZERO } else { wait }
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

    fn failures<S: Default>(turn: Turn<S>) -> Option<u32> {
        match turn {
            Turn::Now(attempt) => Some(attempt.failures),
            Turn::Later(_) => None,
        }
    }

    fn failed_once(attempts: &Attempts<u8>, now: Instant) {
        assert_eq!(failures(attempts.begin(&object("1", "x"), now)), Some(0));
        attempts.failed(&key_of(&object("1", "x")), Attempt { failures: 1, state: 7 }, now, WAIT);
    }

    #[test]
    fn an_echo_of_our_own_write_does_not_cut_the_wait_short() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        failed_once(&attempts, now);
        assert_eq!(failures(attempts.begin(&object("2", "x"), now)), None);
        let Turn::Now(attempt) = attempts.begin(&object("2", "x"), now + WAIT) else { panic!("the wait is over") };
        assert_eq!((attempt.failures, attempt.state), (1, 7));
    }

    #[test]
    fn a_change_by_others_starts_afresh() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        failed_once(&attempts, now);
        assert_eq!(failures(attempts.begin(&object("2", "y"), now)), Some(0));
    }

    #[test]
    fn a_wake_ends_the_wait_and_keeps_the_count() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        failed_once(&attempts, now);
        attempts.wake(&key_of(&object("1", "x")));
        assert_eq!(failures(attempts.begin(&object("1", "x"), now)), Some(1));
    }

    #[test]
    fn a_wake_while_at_work_is_not_lost() {
        let (attempts, now) = (Attempts::<u8>::default(), Instant::now());
        assert_eq!(failures(attempts.begin(&object("1", "x"), now)), Some(0));
        attempts.wake(&key_of(&object("1", "x")));
        let wait = attempts.failed(&key_of(&object("1", "x")), Attempt { failures: 1, state: 0 }, now, WAIT);
        assert_eq!(wait, Duration::ZERO);
        assert_eq!(failures(attempts.begin(&object("1", "x"), now)), Some(1));
    }
}
