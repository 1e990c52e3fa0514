//! Which of two states of a record counts, and what a list removes.
//!
//! The records of a NATS bucket have no uid, and a deleted name can be used again: deletions are remembered
//! by name and version.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_controller::expiring_map::ExpiringMap;
use capi_ipam_controller::observed::{ListNumber, Lists};

use crate::entry::{Entry, Version};
use crate::key::Key;

/// How long a deletion is remembered: longer than the answer to a write can be late.
const DELETION_TTL: Duration = Duration::from_mins(2);

/// A name of a registry: a key, or a name that is not that of a record. Those of a kind and a network stand
/// beside each other.
type Name = Result<Key, Box<str>>;

fn name_of(entry: &Entry) -> Name {
    Key::parse(&entry.key).ok_or_else(|| entry.key.as_str().into())
}

/// What exists under a name.
#[derive(Debug)]
struct Known {
    entry: Arc<Entry>,
    /// The newest list or restore when it was last seen.
    seen: ListNumber,
}

/// The records, and what decides which state of them counts.
#[derive(Debug, Default)]
pub(super) struct State {
    known: BTreeMap<Name, Known>,
    /// The versions in which records were deleted.
    deleted: ExpiringMap<String, Version>,
    lists: Lists,
    /// What was seen before has no authority: the registry was restored since.
    authority: ListNumber,
    pub(super) is_complete: bool,
    /// The latest write that the watch has shown.
    watched: Option<Version>,
    /// The number of changes of blocks, by network.
    pub(super) block_changes: BTreeMap<Box<str>, u64>,
    /// Whether a list after a restore has shown that writes are lost.
    pub(super) has_lost_writes: bool,
}

impl State {
    pub(super) fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        let known = self.known.get(&Ok(key.clone()))?;
        Some(Arc::clone(&known.entry))
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.known.values().map(|known| &known.entry)
    }

    /// What exists under keys that are not before this one, in order.
    pub(super) fn from(&self, first: Key) -> impl Iterator<Item = (&Key, &Arc<Entry>)> {
        let names = self.known.range(Ok(first)..);
        names.filter_map(|(name, known)| Some((name.as_ref().ok()?, &known.entry)))
    }

    /// Records a state. Returns whether anything has changed but a sign of life.
    pub(super) fn apply(&mut self, entry: &Entry, now: Instant) -> bool {
        if entry.is_deleted() {
            return self.remove(entry, now);
        }
        if self.was_deleted(entry, now) {
            return false;
        }
        let name = name_of(entry);
        let seen = self.lists.current();
        if let Some(known) = self.known.get_mut(&name) {
            let is_current = known.seen >= self.authority;
            let is_older = entry.version.is_older_than(&known.entry.version);
            known.seen = seen;
            if is_current && is_older {
                return false;
            }
            self.has_lost_writes |= is_older;
            if *known.entry == *entry {
                return false;
            }
        }
        let is_change = self.count_change(&name);
        let entry = Arc::new(entry.clone());
        self.known.insert(name, Known { entry, seen });
        is_change
    }

    /// Whether the record was deleted in this version or a later one.
    fn was_deleted(&self, entry: &Entry, now: Instant) -> bool {
        let deleted = self.deleted.get(entry.key.as_str(), now);
        deleted.is_some_and(|version| {
            entry.version == *version || entry.version.is_older_than(version)
        })
    }

    /// Records a deletion. Returns whether anything has changed but a sign of life.
    pub(super) fn remove(&mut self, deleted: &Entry, now: Instant) -> bool {
        let name = name_of(deleted);
        if let Some(known) = self.known.get(&name)
            && known.seen >= self.authority
            && deleted.version.is_older_than(&known.entry.version)
        {
            return false;
        }
        self.remember_deletion(deleted, now);
        self.known.remove(&name).is_some() && self.count_change(&name)
    }

    /// Forgets a record that a read has not found. The read can be that of a server that is behind, so the same
    /// version counts again when it is shown. Returns whether anything has changed but a sign of life.
    pub(super) fn forget(&mut self, held: &Entry) -> bool {
        let name = name_of(held);
        match self.known.get(&name) {
            Some(known) if known.entry.version == held.version => {
                self.known.remove(&name);
                self.count_change(&name)
            }
            _ => false,
        }
    }

    /// Remembers that a record was deleted in this version, unless a later deletion is known.
    fn remember_deletion(&mut self, deleted: &Entry, now: Instant) {
        let Entry { key, version, .. } = deleted;
        let known = self.deleted.get(key.as_str(), now);
        if known.is_some_and(|known| version.is_older_than(known)) {
            return;
        }
        self.deleted
            .insert(key.clone(), version.clone(), DELETION_TTL, now);
    }

    /// Counts a change under a name. Returns whether it is more than a sign of life.
    fn count_change(&mut self, name: &Name) -> bool {
        if let Ok(Key::Block { network, .. }) = name {
            let count = self.block_changes.entry(network.clone()).or_default();
            *count = count.wrapping_add(1);
        }
        !matches!(name, Ok(Key::Cluster { .. }))
    }

    pub(super) fn begin_list(&mut self) {
        self.lists.begin();
        self.watched = None;
    }

    /// Records that the watch has shown a write.
    pub(super) fn advance_watch(&mut self, version: &Version) {
        let is_later = match &self.watched {
            Some(watched) => watched.is_older_than(version),
            None => true,
        };
        if is_later {
            self.watched = Some(version.clone());
        }
    }

    /// Whether the watch has shown this version or a later write, and all writes before. A list shows the last
    /// write of each name, so until it is complete earlier ones may follow.
    pub(super) fn has_watched(&self, version: &Version) -> bool {
        match &self.watched {
            Some(watched) => !self.lists.is_listing() && !watched.is_older_than(version),
            None => false,
        }
    }

    /// Removes what the list did not contain, and what was not seen otherwise since it began.
    pub(super) fn end_list(&mut self, now: Instant) {
        let list = self.lists.end();
        let unlisted = self
            .known
            .extract_if(.., |_, known| list.contains(known.seen));
        let unlisted: Vec<_> = unlisted.collect();
        for (name, known) in unlisted {
            self.count_change(&name);
            if known.seen >= self.authority {
                self.remember_deletion(&known.entry, now);
            } else {
                // A registry that has lost its last writes uses the versions from before the restore again. It
                // would show a deletion.
                self.has_lost_writes = true;
            }
        }
        self.is_complete = true;
    }

    /// Any state counts from now on.
    pub(super) fn restored(&mut self) {
        self.lists.advance();
        self.authority = self.lists.current();
        self.deleted = ExpiringMap::default();
    }
}
