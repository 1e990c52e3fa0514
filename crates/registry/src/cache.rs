//! All records of a registry in memory.
//!
//! The records of a NATS bucket have no uid, and a deleted name can be used again: deletions are remembered
//! by name and version.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_api::{ClusterRecord, NetworkRecord};
use capi_ipam_controller::expiring_map::ExpiringMap;
use capi_ipam_controller::observed::{ListNumber, Lists};
use capi_ipam_controller::watch::{EventHandler, Invalid};
use capi_ipam_ip::Block;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::entry::{Entry, Version};
use crate::key::Key;
use crate::record::Record;

/// How long a deletion is remembered: longer than the answer to a write can be late.
const DELETION_TTL: Duration = Duration::from_mins(2);

/// The maximum number of blocks whose changes are remembered one by one.
const MAX_CHANGED_BLOCKS: usize = 1_000;

/// A name of a registry: a key, or a name that is not that of a record. Those of a kind and a network stand
/// beside each other.
type Name = Result<Key, Box<str>>;

fn name_of(entry: &Entry) -> Name {
    Key::parse(&entry.key).ok_or_else(|| entry.key.as_str().into())
}

/// The blocks whose records have changed, see [`RecordCache::take_changed_blocks`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangedBlocks {
    /// These blocks of networks.
    These(BTreeSet<(Box<str>, Block)>),
    /// More than are remembered.
    Many,
}

impl Default for ChangedBlocks {
    fn default() -> Self {
        Self::These(BTreeSet::new())
    }
}

impl ChangedBlocks {
    fn insert(&mut self, network: &str, block: Block) {
        if let Self::These(blocks) = self {
            blocks.insert((network.into(), block));
            if blocks.len() > MAX_CHANGED_BLOCKS {
                *self = Self::Many;
            }
        }
    }
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
struct State {
    known: BTreeMap<Name, Known>,
    /// The versions in which records were deleted.
    deleted: ExpiringMap<String, Version>,
    lists: Lists,
    /// What was seen before has no authority: the registry was restored since.
    authority: ListNumber,
    is_complete: bool,
    /// The latest write that the watch has shown.
    watched: Option<Version>,
    changed_blocks: ChangedBlocks,
    /// Whether a list after a restore has shown that writes are lost.
    has_lost_writes: bool,
}

/// All records of a registry: what a watch has reported, and the results of own writes. Of two states
/// of a record the later one counts, in whichever order they arrive.
///
/// It is the handler of [`Backend::watch`](crate::Backend::watch). Results of own writes are added
/// with [`Self::apply`] and [`Self::remove`]. While the registry is away, it has the last known state.
#[derive(Debug, Default)]
pub struct RecordCache {
    state: Mutex<State>,
    changed: Notify,
}

impl RecordCache {
    /// Whether a first list was complete. Before, a record that is missing here may exist.
    pub fn is_complete(&self) -> bool {
        self.state.lock().is_complete
    }

    /// Whether the watch has shown this version of a record, or a later write. Then it has shown all
    /// earlier writes of the registry, too, and they are here. False until the list is complete that
    /// follows an interruption.
    pub fn has_watched(&self, version: &Version) -> bool {
        let state = self.state.lock();
        match &state.watched {
            // A list shows the last write of each name, so until it is complete earlier ones may follow.
            Some(watched) => !state.lists.is_listing() && !watched.is_older_than(version),
            None => false,
        }
    }

    /// Waits until something has changed since the last call returned, apart from signs of life of clusters.
    /// For one listener: each change wakes one call.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// What exists under a name.
    pub fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        let state = self.state.lock();
        let known = state.known.get(&Ok(key.clone()))?;
        Some(Arc::clone(&known.entry))
    }

    /// What exists for a block of a network. It has a holder, also if it is not a record.
    pub fn block(&self, network: &str, block: Block) -> Option<Arc<Entry>> {
        self.get(&Key::Block {
            network: network.into(),
            block,
        })
    }

    /// All blocks of a network, by address.
    pub fn blocks(&self, network: &str) -> Vec<(Block, Arc<Entry>)> {
        let mut found = Vec::new();
        for (key, entry) in self.state.lock().from(Key::first_block(network)) {
            match key {
                Key::Block { network: of, block } if **of == *network => {
                    found.push((*block, Arc::clone(entry)));
                }
                _ => break,
            }
        }
        found
    }

    /// The blocks whose records have changed since the last call. For one caller.
    pub fn take_changed_blocks(&self) -> ChangedBlocks {
        std::mem::take(&mut self.state.lock().changed_blocks)
    }

    /// The blocks whose records name a cluster, as the holder or as one that uses addresses of the block: network,
    /// block, and what exists. Takes linear time.
    pub fn blocks_naming(&self, cluster: &str) -> Vec<(Box<str>, Block, Arc<Entry>)> {
        let mut found = Vec::new();
        for (key, entry) in self.state.lock().from(Key::first_block("")) {
            if let Key::Block { network, block } = key
                && entry.names(cluster)
            {
                found.push((network.clone(), *block, Arc::clone(entry)));
            }
        }
        found
    }

    /// The record of a network; `None` if there is none or it cannot be read.
    pub fn network(&self, name: &str) -> Option<NetworkRecord> {
        match self.get(&Key::Network { name: name.into() })?.record() {
            Some(Record::Network(record)) => Some(record.clone()),
            _ => None,
        }
    }

    /// The identity of the registry; `None` if it has no record, or one that cannot be read.
    pub fn registry_id(&self) -> Option<String> {
        match self.get(&Key::Registry)?.record() {
            Some(Record::Registry(record)) => Some(record.id.clone()),
            _ => None,
        }
    }

    /// The sign of life of a cluster; `None` if there is none or it cannot be read.
    pub fn cluster(&self, id: &str) -> Option<ClusterRecord> {
        match self.get(&Key::Cluster { id: id.into() })?.record() {
            Some(Record::Cluster(record)) => Some(record.clone()),
            _ => None,
        }
    }

    /// What exists for clusters, by id.
    pub fn clusters(&self) -> BTreeMap<Box<str>, Arc<Entry>> {
        let mut found = BTreeMap::new();
        for (key, entry) in self.state.lock().from(Key::Cluster { id: "".into() }) {
            let Key::Cluster { id } = key else { break };
            found.insert(id.clone(), Arc::clone(entry));
        }
        found
    }

    /// The clusters that exclude other addresses from a network than `cluster`, by network of which its last sign of
    /// life has a hash: those whose last sign of life has another one.
    pub fn differing_exclusions(&self, cluster: &str) -> BTreeMap<String, Vec<Box<str>>> {
        let Some(own) = self.cluster(cluster) else {
            return BTreeMap::new();
        };
        let clusters = self.clusters();
        let mut differing = BTreeMap::new();
        for (network, hash) in own.exclusions {
            let mut ids = Vec::new();
            for (id, entry) in &clusters {
                if let Some(Record::Cluster(record)) = entry.record()
                    && record
                        .exclusions
                        .get(&network)
                        .is_some_and(|other| *other != hash)
                {
                    ids.push(id.clone());
                }
            }
            differing.insert(network, ids);
        }
        differing
    }

    /// Everything that is not a record, by name, also under names that are not those of records.
    pub fn problems(&self) -> Vec<Arc<Entry>> {
        let mut entries = self.entries();
        entries.retain(|entry| entry.value.is_err());
        entries
    }

    /// Everything that exists, by name: a record or not.
    pub fn entries(&self) -> Vec<Arc<Entry>> {
        let state = self.state.lock();
        let entries = state.known.values();
        entries.map(|known| Arc::clone(&known.entry)).collect()
    }

    /// The number of the last list that has begun, for [`Self::apply_response`].
    pub fn list_number(&self) -> ListNumber {
        self.state.lock().lists.current()
    }

    /// Records the response to a read or a write, unless a later state is known. Before the request, the
    /// list with this number had begun last. A record that a later list does not have is not recorded: it
    /// was deleted after the request, or the watch shows it.
    pub fn apply_response(&self, entry: &Entry, list: ListNumber) {
        let changes = {
            let mut state = self.state.lock();
            // What was read or written before a restore has no authority after it.
            if list < state.authority {
                return;
            }
            let is_listed_since = list != state.lists.current();
            if is_listed_since && !state.known.contains_key(&name_of(entry)) {
                return;
            }
            state.apply(entry, false, list, Instant::now())
        };
        self.notify(changes);
    }

    /// Records that a record in this version was deleted by an own write, unless a later state is
    /// known.
    pub fn remove(&self, held: &Entry) {
        let changes = self.state.lock().remove(held, Instant::now());
        self.notify(changes);
    }

    /// Records that a read has not found this record. If the read was that of a server that is behind, the
    /// record counts again when it is shown.
    pub fn forget(&self, held: &Entry) {
        let changes = self.state.lock().forget(held);
        self.notify(changes);
    }

    /// Whether a list has shown an earlier state of a record than was known, or a record is missing in it
    /// whose deletion it does not show: the registry has lost writes, as after a restore from a backup. True
    /// until [`Self::note_loss`] is called.
    pub fn has_lost_writes(&self) -> bool {
        self.state.lock().has_lost_writes
    }

    /// The loss is known.
    pub fn note_loss(&self) {
        self.state.lock().has_lost_writes = false;
    }

    fn notify(&self, changes: bool) {
        if changes {
            self.changed.notify_one();
        }
    }
}

impl EventHandler<Entry> for RecordCache {
    fn init(&self) {
        let mut state = self.state.lock();
        state.lists.begin();
        state.watched = None;
    }

    fn init_done(&self) {
        self.state.lock().end_list(Instant::now());
        // Also that the list is complete is a change.
        self.notify(true);
    }

    fn apply(&self, object: &Entry) {
        let changes = {
            let mut state = self.state.lock();
            let list = state.lists.current();
            let changes = state.apply(object, true, list, Instant::now());
            state.advance_watch(&object.version);
            changes
        };
        self.notify(changes);
    }

    fn delete(&self, object: &Entry) {
        self.remove(object);
        self.state.lock().advance_watch(&object.version);
    }

    fn restored(&self) {
        // Any state counts from now on.
        let mut state = self.state.lock();
        state.lists.advance();
        state.authority = state.lists.current();
        state.deleted = ExpiringMap::default();
    }

    /// Never called: an [`Entry`] contains why its record cannot be decoded.
    fn apply_invalid(&self, _: &Invalid) {}

    fn delete_invalid(&self, _: &Invalid) {}
}

impl State {
    /// What exists under keys that are not before this one, in order.
    fn from(&self, first: Key) -> impl Iterator<Item = (&Key, &Arc<Entry>)> {
        let names = self.known.range(Ok(first)..);
        names.filter_map(|(name, known)| Some((name.as_ref().ok()?, &known.entry)))
    }

    /// Records a state, which the watch has shown, or a response: that of a server that is behind shows no loss.
    /// Returns whether anything has changed but a sign of life.
    /// `seen` is the number of the list that had begun last.
    fn apply(&mut self, entry: &Entry, is_watched: bool, seen: ListNumber, now: Instant) -> bool {
        if entry.is_deleted() {
            return self.remove(entry, now);
        }
        if self.was_deleted(entry, now) {
            return false;
        }
        let name = name_of(entry);
        let mut seen = seen;
        if let Some(known) = self.known.get_mut(&name) {
            let is_current = known.seen >= self.authority;
            let is_older = entry.version.is_older_than(&known.entry.version);
            seen = seen.max(known.seen);
            known.seen = seen;
            if is_current && is_older {
                return false;
            }
            self.has_lost_writes |= is_older && is_watched;
            if *known.entry == *entry {
                return false;
            }
        }
        let is_change = self.note_change(&name);
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
    fn remove(&mut self, deleted: &Entry, now: Instant) -> bool {
        let name = name_of(deleted);
        if let Some(known) = self.known.get(&name)
            && known.seen >= self.authority
            && deleted.version.is_older_than(&known.entry.version)
        {
            return false;
        }
        self.remember_deletion(deleted, now);
        self.known.remove(&name).is_some() && self.note_change(&name)
    }

    /// Forgets a record that a read has not found. The read can be that of a server that is behind, so the same
    /// version counts again when it is shown. Returns whether anything has changed but a sign of life.
    fn forget(&mut self, held: &Entry) -> bool {
        let name = name_of(held);
        match self.known.get(&name) {
            Some(known) if known.entry.version == held.version => {
                self.known.remove(&name);
                self.note_change(&name)
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

    /// Remembers a change under a name. Returns whether it is more than a sign of life.
    fn note_change(&mut self, name: &Name) -> bool {
        if let Ok(Key::Block { network, block }) = name {
            self.changed_blocks.insert(network, *block);
        }
        !matches!(name, Ok(Key::Cluster { .. }))
    }

    /// Records that the watch has shown a write.
    fn advance_watch(&mut self, version: &Version) {
        let is_later = match &self.watched {
            Some(watched) => watched.is_older_than(version),
            None => true,
        };
        if is_later {
            self.watched = Some(version.clone());
        }
    }

    /// Removes what the list did not contain, and what was not seen otherwise since it began.
    fn end_list(&mut self, now: Instant) {
        let list = self.lists.end();
        let unlisted = self
            .known
            .extract_if(.., |_, known| list.contains(known.seen));
        let unlisted: Vec<_> = unlisted.collect();
        for (name, known) in unlisted {
            self.note_change(&name);
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
}

#[cfg(test)]
mod tests;
