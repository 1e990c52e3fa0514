//! Claims that wait for another object of their namespace, such as their Cluster or their pool.

use std::collections::{BTreeSet, HashMap};

use kube::api::ObjectMeta;

/// Namespace and name of a claim, or of the object that it waits for.
pub(super) type Key = (String, String);

/// The claims that wait for an object. A claim waits for one object at a time.
#[derive(Debug, Default)]
pub(super) struct WaitingClaims {
    /// The waiting claims by object, the oldest first: creation time in seconds since 1970, and name.
    by_object: HashMap<Key, BTreeSet<(i64, String)>>,
    /// The name of the object that each claim waits for, and the creation time of the claim.
    awaited: HashMap<Key, (String, i64)>,
}

impl WaitingClaims {
    /// Registers that a claim waits for the object of this name, and no longer for another one.
    pub(super) fn add(&mut self, claim: &ObjectMeta, object: &str) {
        let (key, created) = (key(claim), created(claim));
        if self.awaited.get(&key).is_some_and(|(awaited, since)| awaited == object && *since == created) {
            return;
        }
        self.remove(&key);
        self.by_object.entry((key.0.clone(), object.to_owned())).or_default().insert((created, key.1.clone()));
        self.awaited.insert(key, (object.to_owned(), created));
    }

    /// Removes a claim, which no longer waits. Returns whether it waited.
    pub(super) fn remove(&mut self, claim: &Key) -> bool {
        let Some((object, created)) = self.awaited.remove(claim) else { return false };
        let object = (claim.0.clone(), object);
        if let Some(claims) = self.by_object.get_mut(&object) {
            claims.remove(&(created, claim.1.clone()));
            if claims.is_empty() {
                self.by_object.remove(&object);
            }
        }
        true
    }

    /// Removes and returns the names of all claims that wait for an object.
    pub(super) fn take(&mut self, object: &Key) -> Vec<String> {
        let claims = self.by_object.remove(object).unwrap_or_default();
        for (_, name) in &claims {
            self.awaited.remove(&(object.0.clone(), name.clone()));
        }
        claims.into_iter().map(|(_, name)| name).collect()
    }

    /// Removes and returns the name of the oldest claim that waits for an object.
    pub(super) fn take_oldest(&mut self, object: &Key) -> Option<String> {
        let (_, name) = self.by_object.get(object)?.first()?.clone();
        self.remove(&(object.0.clone(), name.clone()));
        Some(name)
    }

    /// Returns whether no claim waits.
    pub(super) fn is_empty(&self) -> bool {
        self.awaited.is_empty()
    }
}

/// Namespace and name of an object.
pub(super) fn key(metadata: &ObjectMeta) -> Key {
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

/// Creation time of an object, in seconds since 1970.
pub(super) fn created(metadata: &ObjectMeta) -> i64 {
    metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(name: &str, second: u8) -> ObjectMeta {
        let created = format!("2026-01-01T12:00:{second:02}Z");
        serde_json::from_value(json!({"namespace": "n", "name": name, "creationTimestamp": created})).unwrap()
    }

    fn of(name: &str) -> Key {
        ("n".to_owned(), name.to_owned())
    }

    #[test]
    fn oldest_claim_is_first() {
        let mut waiting = WaitingClaims::default();
        for (name, second) in [("b", 2), ("c", 1), ("a", 2)] {
            waiting.add(&claim(name, second), "pool");
        }
        assert_eq!(waiting.take_oldest(&of("pool")).as_deref(), Some("c"));
        assert_eq!(waiting.take(&of("pool")), ["a", "b"]);
        assert_eq!((waiting.take_oldest(&of("pool")), waiting.is_empty()), (None, true));
    }

    #[test]
    fn claim_waits_for_one_object() {
        let mut waiting = WaitingClaims::default();
        waiting.add(&claim("a", 1), "one");
        waiting.add(&claim("a", 1), "one");
        waiting.add(&claim("a", 1), "two");
        assert_eq!(waiting.take(&of("one")), Vec::<String>::new());
        waiting.add(&claim("b", 1), "two");
        assert!(waiting.remove(&of("a")) && !waiting.remove(&of("a")));
        assert_eq!(waiting.take(&of("two")), ["b"]);
        assert!(waiting.is_empty() && waiting.by_object.is_empty());
    }

    #[test]
    fn recreated_claim_waits_once() {
        let mut waiting = WaitingClaims::default();
        waiting.add(&claim("a", 1), "pool");
        waiting.add(&claim("a", 5), "pool");
        assert_eq!(waiting.take(&of("pool")), ["a"]);
        assert!(waiting.is_empty());
    }
}
