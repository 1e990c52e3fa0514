//! All records of a registry in memory.

mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use capi_ipam_api::{ClusterRecord, NetworkRecord};
use capi_ipam_controller::watch::{EventHandler, Invalid};
use capi_ipam_ip::Block;
use parking_lot::Mutex;
use tokio::sync::Notify;

use self::state::State;
use crate::entry::{Entry, Version};
use crate::key::Key;
use crate::record::Record;

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
        self.state.lock().has_watched(version)
    }

    /// Waits until something has changed since the last call returned, apart from signs of life of clusters.
    /// For one listener: each change wakes one call.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// What exists under a name.
    pub fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        self.state.lock().get(key)
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

    /// The number of changes of the blocks of a network: as long as it is the same, [`Self::blocks`] is.
    pub fn block_changes(&self, network: &str) -> u64 {
        let state = self.state.lock();
        state
            .block_changes
            .get(network)
            .copied()
            .unwrap_or_default()
    }

    /// The number of changes of the blocks of all networks.
    pub fn all_block_changes(&self) -> u64 {
        self.state.lock().block_changes.values().sum()
    }

    /// The networks with a block whose record names a cluster, as its holder or as one that uses
    /// addresses of the block. Takes linear time.
    pub fn networks_naming(&self, cluster: &str) -> BTreeSet<Box<str>> {
        let mut networks = BTreeSet::new();
        for (key, entry) in self.state.lock().from(Key::first_block("")) {
            if let Key::Block { network, .. } = key
                && let Some(Record::Block(record)) = entry.record()
                && (record.cluster == cluster || record.contenders.iter().any(|id| id == cluster))
                && !networks.contains(network)
            {
                networks.insert(network.clone());
            }
        }
        networks
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

    /// The clusters that exclude other addresses from a network than `cluster`, by network: the last signs of life of
    /// both have another hash for it.
    pub fn differing_exclusions(&self, cluster: &str) -> BTreeMap<String, Vec<Box<str>>> {
        let mut differing: BTreeMap<String, Vec<Box<str>>> = BTreeMap::new();
        let Some(own) = self.cluster(cluster) else {
            return differing;
        };
        for (id, entry) in self.clusters() {
            let Some(Record::Cluster(record)) = entry.record() else {
                continue;
            };
            for (network, hash) in &own.exclusions {
                let other = record.exclusions.get(network);
                if other.is_some_and(|other| other != hash) {
                    let ids = differing.entry(network.clone()).or_default();
                    ids.push(id.clone());
                }
            }
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
        self.state.lock().entries().cloned().collect()
    }

    /// Records the result of an own write or read, unless a later state is known.
    pub fn apply(&self, entry: &Entry) {
        let changes = self.state.lock().apply(entry, Instant::now());
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

    /// The watch has shown a write.
    fn watched(&self, object: &Entry) {
        self.state.lock().advance_watch(&object.version);
    }

    fn notify(&self, changes: bool) {
        if changes {
            self.changed.notify_one();
        }
    }
}

impl EventHandler<Entry> for RecordCache {
    fn init(&self) {
        self.state.lock().begin_list();
    }

    fn init_done(&self) {
        self.state.lock().end_list(Instant::now());
        // Also that the list is complete is a change.
        self.notify(true);
    }

    fn apply(&self, object: &Entry) {
        Self::apply(self, object);
        self.watched(object);
    }

    fn delete(&self, object: &Entry) {
        self.remove(object);
        self.watched(object);
    }

    fn restored(&self) {
        self.state.lock().restored();
    }

    /// Never called: an [`Entry`] contains why its record cannot be decoded.
    fn apply_invalid(&self, _: &Invalid) {}

    fn delete_invalid(&self, _: &Invalid) {}
}

#[cfg(test)]
mod tests;
