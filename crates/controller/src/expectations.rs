//! The writes of this process that its watches may not have shown yet.

use std::time::{Duration, Instant};

use kube::Resource;
use parking_lot::Mutex;

use crate::expiring_map::ExpiringMap;
use crate::resource_version::ResourceVersion;

/// Age at which an expectation expires: the controller then acts on the watched state even if it
/// looks stale.
pub const EXPECTATION_TTL: Duration = Duration::from_secs(10);

/// The resourceVersions of the last writes of this process, by uid.
///
/// Without them the watch event of the first of several writes would cause a reconcile of an
/// outdated state. Entries are kept until they expire, also after the watch has shown the write,
/// since a task may still hold an older state.
#[derive(Debug, Default)]
pub struct Expectations {
    versions: Mutex<ExpiringMap<String, ResourceVersion>>,
}

impl Expectations {
    /// Records a written object as the API server returned it. resourceVersions are compared as
    /// numbers, which grow with every write; an object whose version is no number is never stale.
    pub fn expect<K: Resource>(&self, object: &K, now: Instant) {
        if let Some((uid, version)) = identify(object) {
            self.insert(uid, version, now);
        }
    }

    /// Records that a write removed the object. Every state of it is stale from now on.
    pub fn expect_deleted<K: Resource>(&self, object: &K, now: Instant) {
        if let Some(uid) = object.meta().uid.clone() {
            self.insert(&uid, ResourceVersion::MAX, now);
        }
    }

    fn insert(&self, uid: &str, version: ResourceVersion, now: Instant) {
        self.versions
            .lock()
            .insert(uid.to_owned(), version, EXPECTATION_TTL, now);
    }

    /// Whether this process has written the object after the given state, so that the watch has not
    /// caught up yet.
    pub fn is_stale<K: Resource>(&self, object: &K, now: Instant) -> bool {
        let Some((uid, version)) = identify(object) else {
            return false;
        };
        self.versions
            .lock()
            .get(uid, now)
            .is_some_and(|written| *written > version)
    }
}

fn identify<K: Resource>(object: &K) -> Option<(&str, ResourceVersion)> {
    let meta = object.meta();
    Some((meta.uid.as_deref()?, ResourceVersion::of(meta)?))
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
    fn object_is_stale_until_the_watch_catches_up() {
        let (expectations, now) = (Expectations::default(), Instant::now());
        expectations.expect(&object("10"), now);
        assert!(expectations.is_stale(&object("9"), now));
        assert!(!expectations.is_stale(&object("10"), now));
        assert!(expectations.is_stale(&object("9"), now));
        expectations.expect(&object("12"), now);
        assert!(!expectations.is_stale(&object("9"), now + EXPECTATION_TTL));
        expectations.expect_deleted(&object("12"), now);
        assert!(expectations.is_stale(&object("13"), now));
        assert!(!expectations.is_stale(&object("13"), now + EXPECTATION_TTL));

        let expectations = Expectations::default();
        expectations.expect(&object("not a number"), now);
        assert!(!expectations.is_stale(&object("1"), now));
    }
}
