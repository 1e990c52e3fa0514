//! The writes of this process that its watches may not have shown yet.

use std::time::{Duration, Instant};

use kube::Resource;
use parking_lot::Mutex;

use crate::expiring_map::ExpiringMap;
use crate::observed::{Known, ObjectVersion, Origin, Stamp, Versions};
use crate::uid::Uid;

/// Age at which an expectation expires: the controller then acts on the watched state even if it
/// looks stale.
pub const EXPECTATION_TTL: Duration = Duration::from_secs(10);

/// The states that the last writes of this process have created.
///
/// Without them the watch event of the first of several writes would cause a reconcile of an
/// outdated state. Entries are kept until they expire, also after the watch has shown the write,
/// since a task may still hold an older state.
#[derive(Debug, Default)]
pub struct Expectations {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Decides which of two states is the later one, and remembers deletions.
    versions: Versions,
    written: ExpiringMap<Uid, Stamp>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            versions: Versions::with_tombstone_ttl(EXPECTATION_TTL),
            written: ExpiringMap::default(),
        }
    }
}

impl Expectations {
    /// Records a written object as the API server returned it. Changes nothing if a later write of
    /// the object is recorded.
    pub fn expect<K: Resource>(&self, object: &K, now: Instant) {
        let seen = ObjectVersion::of(object.meta());
        let mut state = self.state.lock();
        let known = state.known(seen.uid, now);
        if let Some(stamp) = state.versions.see(Origin::Response, known, seen, now) {
            state.written.insert(seen.uid, stamp, EXPECTATION_TTL, now);
        }
    }

    /// Records that a write removed the object. Every state of it is stale from now on.
    pub fn expect_deleted<K: Resource>(&self, object: &K, now: Instant) {
        let uid = ObjectVersion::of(object.meta()).uid;
        let mut state = self.state.lock();
        state.versions.delete(None, uid, now);
        state.written.remove(&uid);
    }

    /// Whether this state is the one that the last write of this process has created: a controller
    /// that has handled the response need not handle the watch event.
    pub fn is_own_write<K: Resource>(&self, object: &K, now: Instant) -> bool {
        let seen = ObjectVersion::of(object.meta());
        let known = self.state.lock().known(seen.uid, now);
        let written = known.and_then(|known| known.stamp.version());
        written.is_some() && written == seen.version
    }

    /// Whether this process has written the object after the given state, so that the watch has not
    /// caught up yet.
    pub fn is_stale<K: Resource>(&self, object: &K, now: Instant) -> bool {
        let seen = ObjectVersion::of(object.meta());
        let state = self.state.lock();
        let known = state.known(seen.uid, now);
        state.versions.is_outdated(Origin::Watch, known, seen, now)
    }
}

impl State {
    /// The state of an object after the last write, if it has not expired.
    fn known(&self, uid: Uid, now: Instant) -> Option<Known> {
        let stamp = *self.written.get(&uid, now)?;
        Some(Known { uid, stamp })
    }
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
    fn only_the_last_write_is_an_own_one() {
        let (expectations, now) = (Expectations::default(), Instant::now());
        assert!(!expectations.is_own_write(&object("9"), now));
        for version in ["9", "10"] {
            expectations.expect(&object(version), now);
        }
        let is_own = |version| expectations.is_own_write(&object(version), now);
        assert!(is_own("10") && !is_own("9") && !is_own("11"));
        expectations.expect(&object("not a number"), now);
        assert!(!is_own("not a number"));
    }

    #[test]
    fn object_is_stale_until_the_watch_catches_up() {
        let (expectations, now) = (Expectations::default(), Instant::now());
        expectations.expect(&object("10"), now);
        assert!(expectations.is_stale(&object("9"), now));
        assert!(!expectations.is_stale(&object("10"), now));
        assert!(expectations.is_stale(&object("9"), now));
        expectations.expect(&object("12"), now);
        expectations.expect(&object("11"), now);
        assert!(
            expectations.is_stale(&object("11"), now),
            "the answer to an earlier write is late"
        );
        assert!(!expectations.is_stale(&object("9"), now + EXPECTATION_TTL));
        expectations.expect_deleted(&object("12"), now);
        assert!(expectations.is_stale(&object("13"), now));
        assert!(!expectations.is_stale(&object("13"), now + EXPECTATION_TTL));

        let expectations = Expectations::default();
        expectations.expect(&object("not a number"), now);
        assert!(!expectations.is_stale(&object("1"), now));
    }
}
