//! Which of two states of a record counts, and what a list removes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_controller::expiring_map::ExpiringMap;
use capi_ipam_ip::Block;

use crate::entry::{Entry, Version};
use crate::key::Key;
use crate::record::Record;

/// How long a deletion is remembered: longer than the answer to a write can be late.
const DELETION_TTL: Duration = Duration::from_mins(2);

/// A name of a registry. Those of a kind and a network stand beside each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Key(Key),
    /// A name that is not that of a record.
    Other(Box<str>),
}

impl Name {
    fn of(text: &str) -> Self {
        Key::parse(text).map_or_else(|| Self::Other(text.into()), Self::Key)
    }
}

/// What exists under a name.
#[derive(Debug)]
struct Known {
    entry: Arc<Entry>,
    /// The number of the list during or after which it was seen last.
    list: u64,
    /// The number of restores before which it was seen last.
    epoch: u64,
}

/// The records, and what decides which state of them counts.
#[derive(Debug, Default)]
pub(super) struct State {
    known: BTreeMap<Name, Known>,
    /// The versions in which records were deleted.
    deleted: ExpiringMap<String, Version>,
    /// The number of lists that have begun.
    list: u64,
    is_complete: bool,
    /// The number of restores.
    epoch: u64,
    /// The latest write that the watch has shown.
    watched: Option<Version>,
    /// The number of changes of blocks, by network.
    block_changes: BTreeMap<Box<str>, u64>,
    /// Whether a list has begun that is not complete. It shows the last write of each name, so
    /// earlier ones may follow.
    is_listing: bool,
    /// Whether a list after a restore has shown that writes are lost.
    has_lost_writes: bool,
}

/// Counts a change under a name. Returns whether it is more than a sign of life.
fn count_change(changes: &mut BTreeMap<Box<str>, u64>, name: &Name) -> bool {
    if let Name::Key(Key::Block { network, .. }) = name {
        let count = changes.entry(network.clone()).or_default();
        *count = count.wrapping_add(1);
    }
    !matches!(name, Name::Key(Key::Cluster { .. }))
}

impl State {
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub(super) fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        let known = self.known.get(&Name::Key(key.clone()))?;
        Some(Arc::clone(&known.entry))
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    pub(super) fn blocks(&self, network: &str) -> Vec<(Block, Arc<Entry>)> {
        let first = Key::Block {
            network: network.into(),
            block: first_block(),
        };
        self.from(first)
            .map_while(|(key, entry)| match key {
                Key::Block { network: of, block } if **of == *network => Some((*block, entry)),
                _ => None,
            })
            .collect()
    }

    pub(super) fn block_changes(&self, network: &str) -> u64 {
        self.block_changes.get(network).copied().unwrap_or_default()
    }

    pub(super) fn all_block_changes(&self) -> u64 {
        let counts = self.block_changes.values();
        counts.fold(0, |sum, count| sum.wrapping_add(*count))
    }

    pub(super) fn networks_naming(&self, cluster: &str) -> BTreeSet<Box<str>> {
        let mut networks = BTreeSet::new();
        for (name, known) in &self.known {
            if let Name::Key(Key::Block { network, .. }) = name
                && let Some(Record::Block(record)) = known.entry.record()
                && (record.cluster == cluster || record.contenders.iter().any(|id| id == cluster))
                && !networks.contains(network)
            {
                networks.insert(network.clone());
            }
        }
        networks
    }

    pub(super) fn networks(&self) -> BTreeMap<Box<str>, Arc<Entry>> {
        self.from(Key::Network { name: "".into() })
            .map_while(|(key, entry)| match key {
                Key::Network { name } => Some((name.clone(), entry)),
                _ => None,
            })
            .collect()
    }

    pub(super) fn clusters(&self) -> BTreeMap<Box<str>, Arc<Entry>> {
        self.from(Key::Cluster { id: "".into() })
            .map_while(|(key, entry)| match key {
                Key::Cluster { id } => Some((id.clone(), entry)),
                _ => None,
            })
            .collect()
    }

    pub(super) fn entries(&self) -> Vec<Arc<Entry>> {
        let all = self.known.values();
        all.map(|known| Arc::clone(&known.entry)).collect()
    }

    pub(super) fn problems(&self) -> Vec<Arc<Entry>> {
        let all = self.known.values().map(|known| &known.entry);
        all.filter(|entry| entry.value.is_err()).cloned().collect()
    }

    /// All records whose keys are not before this one, in order.
    fn from(&self, first: Key) -> impl Iterator<Item = (&Key, Arc<Entry>)> {
        self.known
            .range(Name::Key(first)..)
            .map_while(|(name, known)| match name {
                Name::Key(key) => Some((key, Arc::clone(&known.entry))),
                Name::Other(_) => None,
            })
    }

    /// Records a state. Returns whether anything has changed but a sign of life.
    pub(super) fn apply(&mut self, entry: &Entry, now: Instant) -> bool {
        if entry.is_deleted() {
            return self.remove(entry, now);
        }
        if self.was_deleted(entry, now) {
            return false;
        }
        let (list, epoch) = (self.list, self.epoch);
        let name = Name::of(&entry.key);
        if let Some(known) = self.known.get_mut(&name) {
            known.list = list;
            let is_current = known.epoch == epoch;
            let is_older = entry.version.is_older_than(&known.entry.version);
            if is_current && is_older {
                return false;
            }
            self.has_lost_writes |= is_older;
            known.epoch = epoch;
            if *known.entry == *entry {
                return false;
            }
            known.entry = Arc::new(entry.clone());
            return count_change(&mut self.block_changes, &name);
        }
        let entry = Arc::new(entry.clone());
        let is_change = count_change(&mut self.block_changes, &name);
        let known = Known { entry, list, epoch };
        self.known.insert(name, known);
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
        let name = Name::of(&deleted.key);
        let is_later = |known: &Known| {
            known.epoch == self.epoch && deleted.version.is_older_than(&known.entry.version)
        };
        if self.known.get(&name).is_some_and(is_later) {
            return false;
        }
        self.remember_deletion(deleted, now);
        self.known.remove(&name).is_some() && count_change(&mut self.block_changes, &name)
    }

    /// Forgets a record that a read has not found. The read can be that of a server that is behind, so the same
    /// version counts again when it is shown. Returns whether anything has changed but a sign of life.
    pub(super) fn forget(&mut self, held: &Entry) -> bool {
        let name = Name::of(&held.key);
        let is_known = match self.known.get(&name) {
            Some(known) => known.entry.version == held.version,
            None => false,
        };
        is_known
            && self.known.remove(&name).is_some()
            && count_change(&mut self.block_changes, &name)
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

    pub(super) fn begin_list(&mut self) {
        self.list = self.list.wrapping_add(1);
        self.is_listing = true;
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

    /// Whether the watch has shown this version or a later write, and all writes before.
    pub(super) fn has_watched(&self, version: &Version) -> bool {
        match &self.watched {
            Some(watched) => !self.is_listing && !watched.is_older_than(version),
            None => false,
        }
    }

    /// Removes what the list did not contain, and what was not seen otherwise since it began.
    pub(super) fn end_list(&mut self, now: Instant) {
        let (list, epoch) = (self.list, self.epoch);
        let unlisted = self.known.extract_if(.., |_, known| known.list != list);
        let unlisted: Vec<_> = unlisted.collect();
        for (name, known) in unlisted {
            count_change(&mut self.block_changes, &name);
            if known.epoch == epoch {
                self.remember_deletion(&known.entry, now);
            } else {
                // A registry that has lost its last writes uses the versions of an earlier epoch again. It
                // would show a deletion.
                self.has_lost_writes = true;
            }
        }
        self.is_complete = true;
        self.is_listing = false;
    }

    /// Whether the registry has lost writes, see [`Self::note_loss`].
    pub(super) fn has_lost_writes(&self) -> bool {
        self.has_lost_writes
    }

    /// What was lost until now is known.
    pub(super) fn note_loss(&mut self) {
        self.has_lost_writes = false;
    }

    /// Any state counts from now on.
    pub(super) fn restored(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.deleted = ExpiringMap::default();
    }
}

/// The block that is before all others.
fn first_block() -> Block {
    Block::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0)
}
