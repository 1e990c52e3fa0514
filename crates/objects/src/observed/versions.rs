//! The rule which of two states of an object is the later one.

use std::time::{Duration, Instant};

use kube::core::ObjectMeta;

use super::lists::{ListNumber, Lists, Unlisted};
use crate::expiring_map::ExpiringMap;
use crate::resource_version::ResourceVersion;
use crate::uid::Uid;

/// How long a response that was read before a deletion can be delayed: longer than any request or
/// list.
pub(super) const TOMBSTONE_TTL: Duration = Duration::from_mins(2);

/// Where a state of an object was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A watch, which shows the states of an object in their order. A list is a part of its watch.
    Watch,
    /// The response to a request of this process, which can be later or earlier than the watch.
    Response,
}

/// The identity of a state of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectVersion {
    /// The uid of the object.
    pub uid: Uid,
    /// The version of the state, if it is a number. An unknown version is older than any other.
    pub version: Option<ResourceVersion>,
}

impl ObjectVersion {
    /// The version that this metadata states. An object without a uid has that of an empty text.
    pub fn of(metadata: &ObjectMeta) -> Self {
        let uid = Uid::of(metadata.uid.as_deref().unwrap_or_default());
        Self {
            uid,
            version: ResourceVersion::of(metadata),
        }
    }

    /// Whether this state is older than one that another watch has shown, of this object or of
    /// another one of its name. Without a version on both sides there is no order.
    pub fn is_older_than(self, other: Self) -> bool {
        matches!((self.version, other.version), (Some(this), Some(other)) if this < other)
    }
}

/// What a cache keeps with the state of an object, besides its uid: 16 bytes. By default the object
/// was never seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Stamp {
    version: Option<ResourceVersion>,
    /// The newest list when the object was last seen.
    pub(super) list: ListNumber,
}

impl Stamp {
    /// The version of the state.
    pub fn version(self) -> Option<ResourceVersion> {
        self.version
    }

    /// The stamp of an earlier state that stays known, although a later one was seen: with the
    /// version of the earlier one.
    #[must_use]
    pub fn seen_again(self, later: Self) -> Self {
        Self {
            version: self.version,
            ..later
        }
    }

    /// Whether the object is missing in a list.
    pub fn is_unlisted(self, unlisted: Unlisted) -> bool {
        unlisted.contains(self.list)
    }
}

/// A known state of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The uid of the object.
    pub uid: Uid,
    /// When it was seen.
    pub stamp: Stamp,
}

/// Decides for the objects of one kind whether what is seen is later than what is known. The only
/// place that compares versions, and that remembers deletions.
///
/// A cache keeps a [`Stamp`] for each object, asks before each change, and stores the stamp that it
/// gets. A cache by namespace and name is an [`Observed`](super::Observed).
///
/// - A response is refused if a later state is known, of this object or of another one of its name,
///   or if the object is known to be deleted.
/// - So is a watch event, but only because of what was seen since the newest list began. What a
///   list shows is believed otherwise: it is later than everything before, also if a restore of
///   etcd has lowered the versions.
/// - After the report of a restore, nothing from before it refuses anything.
#[derive(Clone, Debug)]
pub struct Versions {
    pub(super) lists: Lists,
    /// What was seen before has no authority: etcd was restored since.
    pub(super) authority: ListNumber,
    /// The uids of deleted objects, and the newest list at this time. A uid is never reused.
    pub(super) tombstones: ExpiringMap<Uid, ListNumber>,
    tombstone_ttl: Duration,
}

impl Default for Versions {
    fn default() -> Self {
        Self::with_tombstone_ttl(TOMBSTONE_TTL)
    }
}

impl Versions {
    /// Remembers deletions for another time than that of a delayed response.
    pub fn with_tombstone_ttl(tombstone_ttl: Duration) -> Self {
        Self {
            lists: Lists::default(),
            authority: ListNumber::default(),
            tombstones: ExpiringMap::default(),
            tombstone_ttl,
        }
    }

    /// Decides on a state of an object: returns the stamp to store, or `None` if the state is
    /// outdated. `known` is what is known under the name of the object.
    pub fn see(
        &mut self,
        origin: Origin,
        known: Option<Known>,
        seen: ObjectVersion,
        now: Instant,
    ) -> Option<Stamp> {
        if self.is_outdated(origin, known, seen, now) {
            return None;
        }
        // It exists again after a restore.
        self.tombstones.remove(&seen.uid);
        if let Some(replaced) = known.filter(|known| known.uid != seen.uid) {
            self.remember_deletion(replaced.uid, now);
        }
        Some(Stamp {
            version: seen.version,
            list: self.lists.current(),
        })
    }

    /// Records the deletion of the object `uid`, by a watch event or the response to a request.
    /// Returns whether what is known under its name has to be removed: it is this object, and not a
    /// later one.
    pub fn delete(&mut self, known: Option<Uid>, uid: Uid, now: Instant) -> bool {
        self.remember_deletion(uid, now);
        known == Some(uid)
    }

    /// A list begins. Its request has not been sent yet.
    pub fn begin_list(&mut self) {
        self.lists.begin();
    }

    /// The list is complete. Objects that are [unlisted](Stamp::is_unlisted) have to be
    /// [deleted](Versions::delete).
    pub fn end_list(&mut self) -> Unlisted {
        self.lists.end()
    }

    /// Whether a list is in progress.
    pub fn is_listing(&self) -> bool {
        self.lists.is_listing()
    }

    /// etcd was restored to an earlier state: versions and deletions from before have no authority.
    pub fn restored(&mut self) {
        self.lists.advance();
        self.authority = self.lists.current();
    }

    /// The version of a known state; `None` if it is unknown, or from before a restore.
    pub fn current(&self, stamp: Stamp) -> Option<ResourceVersion> {
        stamp.version.filter(|_| stamp.list >= self.authority)
    }

    /// The version of a known state, as precondition of a write. If it is unknown, or from before a
    /// restore, it is one that fails, so that the object is read.
    pub fn precondition(&self, stamp: Stamp) -> ResourceVersion {
        self.current(stamp).unwrap_or(ResourceVersion::OLDEST)
    }

    /// Whether a later state is known than the one that is seen.
    pub fn is_outdated(
        &self,
        origin: Origin,
        known: Option<Known>,
        seen: ObjectVersion,
        now: Instant,
    ) -> bool {
        let refuses = |list: ListNumber| match origin {
            Origin::Watch => list == self.lists.current(),
            Origin::Response => list >= self.authority,
        };
        // Without versions a watch is believed.
        let is_ordered = origin == Origin::Response || seen.version.is_some();
        if is_ordered
            && self
                .tombstones
                .get(&seen.uid, now)
                .is_some_and(|list| refuses(*list))
        {
            return true;
        }
        let Some(known) = known.filter(|known| refuses(known.stamp.list)) else {
            return false;
        };
        // A response with a known state does not say that the object still exists.
        let is_known = known.stamp.version.is_some() && known.stamp.version == seen.version;
        known.stamp.version > seen.version || (is_known && origin == Origin::Response)
    }

    fn remember_deletion(&mut self, uid: Uid, now: Instant) {
        self.tombstones
            .insert(uid, self.lists.current(), self.tombstone_ttl, now);
    }
}
