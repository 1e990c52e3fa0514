//! What is known of the objects of one kind, from lists, watch events and responses to own
//! requests, in any order.
//!
//! A response can be recorded after later watch events, and a watch event after the response to a
//! later write. [`Versions`] is the only place that decides which of two states is the later one.
//! [`Observed`] is a map on top of it; caches with another layout store a [`Stamp`] for each
//! object, and caches that only a watch fills a [`ListNumber`].

mod by_name;
mod lists;
mod versions;

use std::time::Instant;

use kube::core::ObjectMeta;

pub use self::by_name::ByName;
pub use self::lists::{ListNumber, Lists, Unlisted};
pub use self::versions::{Known, ObjectVersion, Origin, Stamp, Versions};
use crate::namespaced_name::NamespacedName;
use crate::resource_version::ResourceVersion;
use crate::uid::Uid;

/// The latest state of each object of a kind, by namespace and name, as a value of type `V`.
///
/// ```
/// use std::time::Instant;
///
/// use capi_ipam_objects::observed::{Observed, Origin};
/// use kube::core::ObjectMeta;
///
/// let at = |version: &str| ObjectMeta {
///     name: Some("node".to_owned()),
///     uid: Some("6101ef08-5b98-40af-8a1f-bc85701b2e47".to_owned()),
///     resource_version: Some(version.to_owned()),
///     ..ObjectMeta::default()
/// };
/// let (mut nodes, now) = (Observed::default(), Instant::now());
/// nodes.see(Origin::Watch, &at("7"), "drained", now);
/// assert!(nodes.see(Origin::Response, &at("6"), "ready", now).is_none(), "the response is late");
/// assert_eq!(nodes.get("", "node"), Some(&"drained"));
/// ```
#[derive(Clone, Debug)]
pub struct Observed<V> {
    objects: ByName<Entry<V>>,
    versions: Versions,
}

#[derive(Clone, Debug)]
struct Entry<V> {
    uid: Uid,
    stamp: Stamp,
    /// `None` if no state of the object could be decoded.
    value: Option<V>,
    /// Whether the value is that of an earlier state: the last one cannot be decoded.
    is_stale: bool,
}

/// What a state of an object has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change<V> {
    /// The value that was known under the name of the object, if any.
    pub before: Option<V>,
}

impl<V> Default for Observed<V> {
    fn default() -> Self {
        Self {
            objects: ByName::default(),
            versions: Versions::default(),
        }
    }
}

impl<V> Observed<V> {
    /// Returns the value of an object. The namespace of a cluster-scoped object is empty.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&V> {
        self.objects.get(namespace, name)?.value.as_ref()
    }

    /// Returns all objects: namespace, name and value. In no particular order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str, &V)> {
        self.objects
            .iter()
            .filter_map(|(namespace, name, entry)| Some((namespace, name, entry.value.as_ref()?)))
    }

    /// The uid of an object and the version of its value, as preconditions of a write. `None` if
    /// the version is unknown, or from before a restore of etcd.
    pub fn preconditions(&self, namespace: &str, name: &str) -> Option<(Uid, ResourceVersion)> {
        let entry = self
            .objects
            .get(namespace, name)
            .filter(|entry| !entry.is_stale)?;
        Some((entry.uid, self.versions.current(entry.stamp)?))
    }

    /// Records a state of an object. Returns `None` and changes nothing if a later one is known.
    pub fn see(
        &mut self,
        origin: Origin,
        metadata: &ObjectMeta,
        value: V,
        now: Instant,
    ) -> Option<Change<V>> {
        let (uid, stamp) = self.accept(origin, metadata, now)?;
        let (namespace, name) = names_of(metadata);
        let entry = Entry {
            uid,
            stamp,
            value: Some(value),
            is_stale: false,
        };
        let before = self.objects.insert(namespace, name, entry);
        Some(Change {
            before: before.and_then(|entry| entry.value),
        })
    }

    /// Records that an object exists in a state that cannot be decoded: its last value stays.
    /// Returns false and changes nothing if a later state is known.
    pub fn see_undecodable(&mut self, origin: Origin, metadata: &ObjectMeta, now: Instant) -> bool {
        let Some((uid, stamp)) = self.accept(origin, metadata, now) else {
            return false;
        };
        let (namespace, name) = names_of(metadata);
        let before = self
            .objects
            .remove(namespace, name)
            .filter(|entry| entry.uid == uid);
        let value = before.and_then(|entry| entry.value);
        self.objects.insert(
            namespace,
            name,
            Entry {
                uid,
                stamp,
                value,
                is_stale: true,
            },
        );
        true
    }

    /// Records the deletion of an object, by a watch event or the response to a request. Returns
    /// its value, unless another object of its name is known.
    pub fn delete(
        &mut self,
        namespace: &str,
        name: &str,
        uid: Option<&str>,
        now: Instant,
    ) -> Option<V> {
        let uid = Uid::of(uid.unwrap_or_default());
        let known = self.objects.get(namespace, name).map(|entry| entry.uid);
        if !self.versions.delete(known, uid, now) {
            return None;
        }
        self.objects.remove(namespace, name)?.value
    }

    /// Removes an object that exists, and that is of no interest in its present state. Returns its
    /// value.
    pub fn forget(&mut self, namespace: &str, name: &str) -> Option<V> {
        self.objects.remove(namespace, name)?.value
    }

    /// A list begins. Its request has not been sent yet.
    pub fn begin_list(&mut self) {
        self.versions.begin_list();
    }

    /// The list is complete. Removes and returns the objects that it did not contain and that were
    /// not seen otherwise since it began.
    pub fn end_list(&mut self, now: Instant) -> Vec<(NamespacedName, Option<V>)> {
        let unlisted = self.versions.end_list();
        let mut removed = Vec::new();
        for (key, entry) in self
            .objects
            .extract_if(|entry| entry.stamp.is_unlisted(unlisted))
        {
            self.versions.delete(None, entry.uid, now);
            removed.push((key, entry.value));
        }
        removed
    }

    /// etcd was restored to an earlier state: any state of an object is accepted from now on.
    pub fn restored(&mut self) {
        self.versions.restored();
    }

    /// The uid and the stamp of a state, unless it is outdated.
    fn accept(
        &mut self,
        origin: Origin,
        metadata: &ObjectMeta,
        now: Instant,
    ) -> Option<(Uid, Stamp)> {
        let (namespace, name) = names_of(metadata);
        let known = self.objects.get(namespace, name).map(|entry| Known {
            uid: entry.uid,
            stamp: entry.stamp,
        });
        let seen = ObjectVersion::of(metadata);
        let stamp = self.versions.see(origin, known, seen, now)?;
        Some((seen.uid, stamp))
    }
}

fn names_of(metadata: &ObjectMeta) -> (&str, &str) {
    (
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default(),
    )
}

#[cfg(test)]
mod tests;
