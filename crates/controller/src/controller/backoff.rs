//! Backoff for each object: the number of failures, the end of the backoff, and the state for the
//! next attempt.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{Attempt, Cause};
use crate::namespaced_name::NamespacedName;
use crate::retry::Retry;
use crate::watch::Keyed;

pub(super) struct Backoffs<K, S> {
    entries: Mutex<HashMap<NamespacedName, Entry<K, S>>>,
}

impl<K, S> Default for Backoffs<K, S> {
    fn default() -> Self {
        Self {
            entries: Mutex::default(),
        }
    }
}

struct Entry<K, S> {
    /// The state of the object at the last attempt.
    object: Fingerprint,
    /// The object at the last attempt, if that has failed.
    failed: Option<Arc<K>>,
    attempt: Attempt<S>,
    pause: Pause,
    /// Triggered during the reconcile or the backoff.
    triggered: bool,
}

/// Until when no attempt starts.
enum Pause {
    Over,
    Until(Instant),
    UntilChanged,
}

/// A hash of what ends a backoff when it changes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fingerprint(u64);

impl Fingerprint {
    pub(crate) fn of(object: &impl Keyed) -> Self {
        let mut hash = DefaultHasher::new();
        object.fingerprint(&mut hash);
        Self(hash.finish())
    }
}

impl<K: Keyed, S: Default> Backoffs<K, S> {
    /// Starts an attempt, unless the last one failed and its backoff is not over: returns when that
    /// is, `None` if a change or a trigger has to end it. A trigger ends
    /// the backoff. `dequeues` gets the object at the failed attempt, and decides whether its
    /// present state does.
    pub(super) fn begin(
        &self,
        key: &NamespacedName,
        object: &K,
        cause: Cause,
        now: Instant,
        dequeues: impl FnOnce(&K) -> bool,
    ) -> Result<Attempt<S>, Option<Duration>> {
        let mut entries = self.entries.lock();
        let fingerprint = Fingerprint::of(object);
        let new = || Entry {
            object: fingerprint,
            failed: None,
            attempt: Attempt::default(),
            pause: Pause::Over,
            triggered: false,
        };
        let entry = entries.entry(key.clone()).or_insert_with(new);
        let is_outdated = match &entry.failed {
            Some(waiting) => dequeues(waiting),
            None => entry.object != fingerprint,
        };
        // Those that no attempt has handled. A deletion is one of the object as it is now.
        let unhandled = entry.attempt.cause;
        let is_carried = (Cause::Triggered..=Cause::Created).contains(&unhandled);
        let cause = if is_carried {
            cause.max(unhandled)
        } else {
            cause
        };
        if is_outdated {
            *entry = new();
            entry.attempt.cause = cause;
        }
        match entry.pause {
            _ if entry.triggered => {}
            Pause::Over => {}
            Pause::Until(end) if end <= now => {}
            Pause::Until(end) => return Err(Some(end.saturating_duration_since(now))),
            Pause::UntilChanged => return Err(None),
        }
        entry.object = fingerprint;
        entry.failed = None;
        entry.pause = Pause::Over;
        entry.triggered = false;
        Ok(Attempt {
            cause,
            is_carried,
            ..std::mem::take(&mut entry.attempt)
        })
    }

    /// Ends the backoff of the object. If it is being reconciled, it is reconciled again.
    pub(super) fn trigger(&self, key: &NamespacedName) {
        if let Some(entry) = self.entries.lock().get_mut(key) {
            entry.triggered = true;
        }
    }

    /// Removes the entry of an object, after a success or its deletion.
    pub(super) fn forget(&self, key: &NamespacedName) {
        self.entries.lock().remove(key);
    }

    /// Records an attempt that requeues its object. Keeps the state. Returns when to reconcile
    /// again.
    pub(super) fn requeued(
        &self,
        key: &NamespacedName,
        attempt: Attempt<S>,
        wait: Duration,
    ) -> Duration {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(key) else {
            return wait;
        };
        let cause = if attempt.keeps_cause {
            attempt.cause
        } else {
            Cause::Requeued
        };
        entry.attempt = Attempt {
            cause,
            failures: 0,
            ..attempt.next()
        };
        if entry.triggered {
            Duration::ZERO
        } else {
            wait
        }
    }

    /// Records a failed attempt. Returns when to reconcile again; `None` if a change or a trigger
    /// has to end the pause.
    pub(super) fn failed(
        &self,
        object: &Arc<K>,
        attempt: Attempt<S>,
        now: Instant,
        retry: Retry,
    ) -> Option<Duration> {
        let (pause, wait) = match retry {
            Retry::After(wait) => (
                now.checked_add(wait)
                    .map_or(Pause::UntilChanged, Pause::Until),
                Some(wait),
            ),
            Retry::GiveUp => (Pause::UntilChanged, None),
        };
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(&object.key()) else {
            return wait;
        };
        entry.failed = Some(Arc::clone(object));
        entry.attempt = attempt.next();
        entry.pause = pause;
        if entry.triggered {
            Some(Duration::ZERO)
        } else {
            wait
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    const WAIT: Duration = Duration::from_secs(10);

    fn object(resource_version: &str, label: &str) -> ConfigMap {
        serde_json::from_value(
            json!({"metadata": {"namespace": "n", "name": "a", "uid": "u",
            "resourceVersion": resource_version, "labels": {"l": label}}}),
        )
        .unwrap()
    }

    fn key() -> NamespacedName {
        NamespacedName::new("n", "a")
    }

    /// Begins with the default rule for what ends a backoff.
    fn begin(
        backoffs: &Backoffs<ConfigMap, u8>,
        object: &ConfigMap,
        cause: Cause,
        now: Instant,
    ) -> Result<Attempt<u8>, Option<Duration>> {
        let dequeues = |waiting: &ConfigMap| Fingerprint::of(waiting) != Fingerprint::of(object);
        backoffs.begin(&key(), object, cause, now, dequeues)
    }

    fn failures<S: Default>(start: Result<Attempt<S>, Option<Duration>>) -> Option<u32> {
        match start {
            Ok(attempt) => Some(attempt.failures),
            Err(_) => None,
        }
    }

    fn failed_attempt(state: u8) -> Attempt<u8> {
        Attempt {
            cause: Cause::Changed,
            failures: 1,
            ..Attempt::<()>::default().with_state(state)
        }
    }

    fn failed_once(backoffs: &Backoffs<ConfigMap, u8>, now: Instant) {
        assert_eq!(
            failures(begin(backoffs, &object("1", "x"), Cause::Changed, now)),
            Some(0)
        );
        backoffs.failed(
            &Arc::new(object("1", "x")),
            failed_attempt(7),
            now,
            Retry::After(WAIT),
        );
    }

    #[test]
    fn status_write_does_not_end_the_backoff() {
        let (backoffs, now) = (Backoffs::default(), Instant::now());
        failed_once(&backoffs, now);
        assert_eq!(
            failures(begin(&backoffs, &object("2", "x"), Cause::Changed, now)),
            None
        );
        let Ok(attempt) = begin(&backoffs, &object("2", "x"), Cause::Changed, now + WAIT) else {
            panic!("the backoff is over")
        };
        assert_eq!((attempt.failures, attempt.state), (1, 7));
    }

    #[test]
    fn change_of_labels_ends_the_backoff() {
        let (backoffs, now) = (Backoffs::default(), Instant::now());
        failed_once(&backoffs, now);
        assert_eq!(
            failures(begin(&backoffs, &object("2", "y"), Cause::Changed, now)),
            Some(0)
        );
    }

    #[test]
    fn reconciler_decides_what_ends_the_backoff() {
        let (backoffs, now) = (Backoffs::default(), Instant::now());
        failed_once(&backoffs, now);
        let (same, other) = (object("2", "x"), object("2", "y"));
        let kept = backoffs.begin(&key(), &other, Cause::Changed, now, |_| false);
        assert_eq!(failures(kept), None);
        let dropped = backoffs.begin(&key(), &same, Cause::Changed, now, |waiting| {
            waiting.metadata.resource_version.as_deref() == Some("1")
        });
        assert_eq!(failures(dropped), Some(0));
    }

    #[test]
    fn kept_retry_passes_its_state_to_the_changed_object() {
        let (backoffs, now) = (Backoffs::default(), Instant::now());
        failed_once(&backoffs, now);
        let later = now + WAIT;
        let other = object("2", "y");
        let start = backoffs.begin(&key(), &other, Cause::Changed, later, |_| false);
        let Ok(attempt) = start else {
            panic!("the backoff is over")
        };
        assert_eq!((attempt.failures, attempt.state), (1, 7));
    }

    #[test]
    fn cause_stays_until_an_attempt_has_handled_it() {
        let (backoffs, now) = (Backoffs::<ConfigMap, u8>::default(), Instant::now());
        let cause_of = |version, label, cause| {
            let start = begin(&backoffs, &object(version, label), cause, now);
            let Ok(attempt) = start else {
                panic!("there is no pause")
            };
            attempt
        };
        let mut attempt = cause_of("1", "x", Cause::Created);
        assert!(!attempt.is_carried);
        attempt.keeps_cause = true;
        let failed = Attempt {
            failures: 1,
            ..attempt
        };
        let retry = Retry::After(Duration::ZERO);
        backoffs.failed(&Arc::new(object("1", "x")), failed, now, retry);
        // A change ends the backoff, and is no success.
        let mut attempt = cause_of("2", "y", Cause::Changed);
        assert_eq!((attempt.cause, attempt.failures), (Cause::Created, 0));
        assert!(attempt.is_carried && !attempt.keeps_cause);
        attempt.keeps_cause = true;
        backoffs.requeued(&key(), attempt, WAIT);
        let attempt = cause_of("3", "z", Cause::Changed);
        assert_eq!(
            (attempt.cause, attempt.keeps_cause),
            (Cause::Created, false)
        );
        backoffs.requeued(&key(), attempt, WAIT);
        let attempt = cause_of("3", "z", Cause::Requeued);
        assert_eq!(attempt.cause, Cause::Requeued);
        // A deletion is not one of the next object of the name.
        let deleting = Attempt {
            cause: Cause::Deleting,
            failures: 1,
            ..attempt
        };
        backoffs.failed(&Arc::new(object("4", "z")), deleting, now, retry);
        let attempt = cause_of("5", "new", Cause::Created);
        assert_eq!(attempt.cause, Cause::Created);
    }

    #[test]
    fn trigger_ends_the_backoff_and_keeps_the_failures() {
        let (backoffs, now) = (Backoffs::default(), Instant::now());
        failed_once(&backoffs, now);
        backoffs.trigger(&key());
        assert_eq!(
            failures(begin(&backoffs, &object("1", "x"), Cause::Changed, now)),
            Some(1)
        );
    }

    #[test]
    fn trigger_during_a_reconcile_is_not_lost() {
        let (backoffs, now) = (Backoffs::<ConfigMap, u8>::default(), Instant::now());
        assert_eq!(
            failures(begin(&backoffs, &object("1", "x"), Cause::Changed, now)),
            Some(0)
        );
        backoffs.trigger(&key());
        let wait = backoffs.failed(
            &Arc::new(object("1", "x")),
            failed_attempt(0),
            now,
            Retry::After(WAIT),
        );
        assert_eq!(wait, Some(Duration::ZERO));
        assert_eq!(
            failures(begin(&backoffs, &object("1", "x"), Cause::Changed, now)),
            Some(1)
        );
    }

    #[test]
    fn object_is_given_up_until_it_changes_or_is_triggered() {
        let (backoffs, now) = (Backoffs::<ConfigMap, u8>::default(), Instant::now());
        let give_up = || {
            assert_eq!(
                backoffs.failed(
                    &Arc::new(object("1", "x")),
                    failed_attempt(0),
                    now,
                    Retry::GiveUp
                ),
                None
            );
        };
        assert_eq!(
            failures(begin(&backoffs, &object("1", "x"), Cause::Created, now)),
            Some(0)
        );
        give_up();
        // The watch event of the status that the controller wrote.
        let later = now + WAIT * 1000;
        assert_eq!(
            failures(begin(&backoffs, &object("2", "x"), Cause::Changed, later)),
            None
        );
        backoffs.trigger(&key());
        assert_eq!(
            failures(begin(&backoffs, &object("2", "x"), Cause::Triggered, later)),
            Some(1)
        );
        give_up();
        assert_eq!(
            failures(begin(&backoffs, &object("3", "y"), Cause::Changed, later)),
            Some(0)
        );
    }

    #[test]
    fn attempt_has_the_cause_of_its_start() {
        let (backoffs, now) = (Backoffs::<ConfigMap, u8>::default(), Instant::now());
        for cause in [Cause::Created, Cause::Triggered] {
            let Ok(attempt) = begin(&backoffs, &object("1", "x"), cause, now) else {
                panic!("it may start")
            };
            assert_eq!(attempt.cause, cause);
        }
    }
}
