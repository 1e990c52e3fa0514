//! Knowing our own writes from news.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kube::Resource;

/// How long an object may look older than our last write to it before the watch is no longer waited for.
pub const EXPECTATION_TTL: Duration = Duration::from_secs(10);

/// The resource versions of our last writes.
///
/// Without it the echo of the first of several writes would have the object worked on again in a state that is past. They
/// are kept for a while after the watch has shown them: somebody may still hold an older state and come with it.
#[derive(Debug, Default)]
pub struct Expectations {
    versions: Mutex<HashMap<String, (u64, Instant)>>,
}

impl Expectations {
    /// Remembers the object as it was answered to a write. Versions grow with every write; where they are no numbers,
    /// which the API does not rule out, nothing is held back.
    pub fn note<K: Resource>(&self, object: &K, now: Instant) {
        if let Some((uid, version)) = identify(object) {
            self.insert(uid, version, now);
        }
    }

    /// Remembers that our write ended the object, so that no later state is to come.
    pub fn expect_deleted<K: Resource>(&self, object: &K, now: Instant) {
        if let Some(uid) = object.meta().uid.clone() {
            self.insert(&uid, u64::MAX, now);
        }
    }

    fn insert(&self, uid: &str, version: u64, now: Instant) {
        let mut versions = self.lock();
        // What is over is dropped, now and then.
        if versions.len() >= 1024 && versions.len().is_power_of_two() {
            versions.retain(|_, (_, noted)| now.saturating_duration_since(*noted) < EXPECTATION_TTL);
        }
        versions.insert(uid.to_owned(), (version, now));
    }

    /// Whether we wrote the object after the state that is shown.
    pub fn is_newer_than<K: Resource>(&self, object: &K, now: Instant) -> bool {
        let Some((uid, version)) = identify(object) else { return false };
        self.lock()
            .get(uid)
            .is_some_and(|(written, noted)| *written > version && now.saturating_duration_since(*noted) < EXPECTATION_TTL)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (u64, Instant)>> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn identify<K: Resource>(object: &K) -> Option<(&str, u64)> {
    let meta = object.meta();
    Some((meta.uid.as_deref()?, meta.resource_version.as_deref()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;

    fn object(version: &str) -> ConfigMap {
        let mut object = ConfigMap::default();
        object.metadata.uid = Some("u".to_owned());
        object.metadata.resource_version = Some(version.to_owned());
        object
    }

    #[test]
    fn an_object_is_held_back_until_the_watch_has_caught_up() {
        let (written, now) = (Expectations::default(), Instant::now());
        written.note(&object("10"), now);
        assert!(written.is_newer_than(&object("9"), now));
        assert!(!written.is_newer_than(&object("10"), now));
        assert!(written.is_newer_than(&object("9"), now));
        written.note(&object("12"), now);
        assert!(!written.is_newer_than(&object("9"), now + EXPECTATION_TTL));
        written.expect_deleted(&object("12"), now);
        assert!(written.is_newer_than(&object("13"), now));
        assert!(!written.is_newer_than(&object("13"), now + EXPECTATION_TTL));

        let written = Expectations::default();
        written.note(&object("odd"), now);
        assert!(!written.is_newer_than(&object("1"), now));
    }
}
