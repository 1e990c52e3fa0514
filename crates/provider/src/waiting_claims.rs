//! Claims that wait for another object of their namespace, such as their Cluster or their pool.

use std::collections::{BTreeSet, HashMap};

use capi_ipam_controller::namespaced_name::NamespacedName;
use kube::api::ObjectMeta;

/// The claims that wait for an object. A claim waits for one object at a time.
#[derive(Default)]
pub(super) struct WaitingClaims {
    /// The waiting claims by object, the oldest first: creation time in seconds since 1970, and
    /// name.
    by_object: HashMap<NamespacedName, BTreeSet<(i64, NamespacedName)>>,
    /// The object that each claim waits for, and the creation time of the claim.
    awaited: HashMap<NamespacedName, (NamespacedName, i64)>,
}

impl WaitingClaims {
    /// Registers that a claim waits for an object, and no longer for another one.
    pub(super) fn add(&mut self, claim: &ObjectMeta, object: &NamespacedName) {
        let (name, created) = (NamespacedName::of(claim), created(claim));
        if self
            .awaited
            .get(&name)
            .is_some_and(|(awaited, since)| awaited == object && *since == created)
        {
            return;
        }
        self.remove(&name);
        self.by_object
            .entry(object.clone())
            .or_default()
            .insert((created, name.clone()));
        self.awaited.insert(name, (object.clone(), created));
    }

    /// Removes a claim, which no longer waits. Returns whether it waited.
    pub(super) fn remove(&mut self, claim: &NamespacedName) -> bool {
        let Some((object, created)) = self.awaited.remove(claim) else {
            return false;
        };
        if let Some(claims) = self.by_object.get_mut(&object) {
            claims.remove(&(created, claim.clone()));
            if claims.is_empty() {
                self.by_object.remove(&object);
            }
        }
        true
    }

    /// Removes and returns all claims that wait for an object.
    pub(super) fn take(&mut self, object: &NamespacedName) -> Vec<NamespacedName> {
        let claims = self.by_object.remove(object).unwrap_or_default();
        for (_, claim) in &claims {
            self.awaited.remove(claim);
        }
        claims.into_iter().map(|(_, claim)| claim).collect()
    }

    /// Removes and returns the oldest claim that waits for an object.
    pub(super) fn take_oldest(&mut self, object: &NamespacedName) -> Option<NamespacedName> {
        let (_, claim) = self.by_object.get(object)?.first()?.clone();
        self.remove(&claim);
        Some(claim)
    }

    /// Returns whether a claim waits for an object.
    pub(super) fn is_awaited(&self, object: &NamespacedName) -> bool {
        self.by_object.contains_key(object)
    }

    /// Returns whether no claim waits.
    pub(super) fn is_empty(&self) -> bool {
        self.awaited.is_empty()
    }
}

/// Creation time of an object, in seconds since 1970.
pub(super) fn created(metadata: &ObjectMeta) -> i64 {
    metadata
        .creation_timestamp
        .as_ref()
        .map_or(0, |time| time.0.as_second())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(name: &str, second: u8) -> ObjectMeta {
        let created = format!("2026-01-01T12:00:{second:02}Z");
        serde_json::from_value(
            json!({"namespace": "n", "name": name, "creationTimestamp": created}),
        )
        .unwrap()
    }

    fn of(name: &str) -> NamespacedName {
        NamespacedName::new("n", name)
    }

    #[test]
    fn oldest_claim_is_first() {
        let mut waiting = WaitingClaims::default();
        for (name, second) in [("b", 2), ("c", 1), ("a", 2)] {
            waiting.add(&claim(name, second), &of("pool"));
        }
        assert_eq!(waiting.take_oldest(&of("pool")), Some(of("c")));
        assert_eq!(waiting.take(&of("pool")), ["a", "b"].map(of));
        assert_eq!(
            (waiting.take_oldest(&of("pool")), waiting.is_empty()),
            (None, true)
        );
    }

    #[test]
    fn claim_waits_for_one_object() {
        let mut waiting = WaitingClaims::default();
        waiting.add(&claim("a", 1), &of("one"));
        waiting.add(&claim("a", 1), &of("one"));
        waiting.add(&claim("a", 1), &of("two"));
        assert_eq!(waiting.take(&of("one")), []);
        waiting.add(&claim("b", 1), &of("two"));
        assert!(waiting.remove(&of("a")) && !waiting.remove(&of("a")));
        assert_eq!(waiting.take(&of("two")), [of("b")]);
        assert!(waiting.is_empty() && waiting.by_object.is_empty());
    }

    #[test]
    fn recreated_claim_waits_once() {
        let mut waiting = WaitingClaims::default();
        waiting.add(&claim("a", 1), &of("pool"));
        waiting.add(&claim("a", 5), &of("pool"));
        assert_eq!(waiting.take(&of("pool")), [of("a")]);
        assert!(waiting.is_empty());
    }
}
