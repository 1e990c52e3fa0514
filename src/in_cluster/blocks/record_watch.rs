//! What a registry shows, on its way into the cache of records and into the ledger.
//!
//! A block that another management cluster uses as well must not wait for the driver, which sends one
//! write after the other: the ledger is notified at once, and allocates no address of such a block. A
//! sign of life of this process is recorded in the same way.

use std::sync::Arc;

use capi_ipam_controller::watch::{EventHandler, Invalid};
use capi_ipam_registry::{Created, Entry, Key, Record, RegistryError};
use futures::{TryStreamExt, stream};

use super::open_registry::OpenRegistry;
use super::target::shown;

/// The number of records that are read at the same time.
const MAX_CONCURRENT_READS: usize = 32;

impl OpenRegistry {
    /// Reads the records of these blocks of this management cluster, which takes less time than a list of all,
    /// and records in the ledger what they show. Returns false if the registry does not have the identity `id`.
    pub(super) async fn read_own_blocks(
        &self,
        id: &str,
        blocks: Vec<Key>,
    ) -> Result<bool, RegistryError> {
        let cluster = Key::Cluster {
            id: (*self.cluster).into(),
        };
        // Another cluster with this id suspends the blocks, whatever the other reads show.
        for key in [Key::Registry, cluster] {
            self.read(&key).await?;
        }
        if self.records.registry_id().as_deref() != Some(id) {
            return Ok(false);
        }
        self.confirm_own_records(id);
        let read = async |key: Key| self.read(&key).await.map(drop);
        let reads = stream::iter(blocks.into_iter().map(Ok));
        reads
            .try_for_each_concurrent(MAX_CONCURRENT_READS, read)
            .await?;
        Ok(self.record_blocks())
    }

    /// Creates a record, and records what the response shows.
    pub(super) async fn create(
        &self,
        key: &Key,
        record: &Record,
    ) -> Result<Created, RegistryError> {
        let list = self.records.list_number();
        let created = self.backend.create(key, record).await?;
        let (Created::Ours(entry) | Created::Theirs(entry)) = &created;
        self.records.apply_response(entry, list);
        self.record_block(key);
        Ok(created)
    }

    /// Replaces a record in the version that was read, and records what the response shows.
    pub(super) async fn update(
        &self,
        held: &Entry,
        record: &Record,
    ) -> Result<Entry, RegistryError> {
        let list = self.records.list_number();
        let updated = self.backend.update(held, record).await?;
        self.records.apply_response(&updated, list);
        if let Some(key) = Key::parse(&updated.key) {
            self.record_block(&key);
        }
        Ok(updated)
    }

    /// Reads a record, and records what the response shows.
    pub(super) async fn read(&self, key: &Key) -> Result<Option<Entry>, RegistryError> {
        // Another one may be shown before the response.
        let (known, list) = (self.records.get(key), self.records.list_number());
        let found = self.backend.read(key).await?;
        match (&found, known) {
            (Some(found), _) => self.records.apply_response(found, list),
            (None, Some(known)) => self.records.forget(&known),
            (None, None) => {}
        }
        self.record_block(key);
        Ok(found)
    }

    /// Records in the ledger what the cache of records shows of a block. The cache is read while the ledger is
    /// locked: of two responses, the later one is recorded last.
    fn record_block(&self, key: &Key) {
        let Key::Block { network, block } = key else {
            return;
        };
        self.ledger.change(|ledger| {
            // What another registry shows is not about the blocks of this one.
            if self.shows_own_blocks() {
                let entry = self.records.block(network, *block);
                let is_recorded = self.is_ours_alone(entry.as_deref());
                ledger.set_block_recorded(&self.name, network, *block, is_recorded);
            }
        });
    }

    /// Records in the ledger the blocks of which the registry shows that only this management cluster uses them.
    /// Returns false if it shows nothing about them.
    pub(super) fn record_blocks(&self) -> bool {
        self.ledger.change(|ledger| {
            if !self.shows_own_blocks() {
                return false;
            }
            let mut found = Vec::new();
            for (network, block, entry) in self.records.blocks_naming(&self.cluster) {
                if self.is_ours_alone(Some(&entry)) {
                    found.push((Arc::from(network), block));
                }
            }
            ledger.set_recorded_blocks(&self.name, Some(found));
            true
        })
    }

    fn is_ours_alone(&self, entry: Option<&Entry>) -> bool {
        // When another cluster may take a block makes no difference.
        shown(entry, &self.cluster, 0, 0).is_ours_alone()
    }

    /// Compares a record that the watch has shown with what this process allocates from.
    fn check(&self, entry: &Entry) {
        self.note_sign_of_life();
        match Key::parse(&entry.key) {
            Some(key @ Key::Block { .. }) => self.record_block(&key),
            Some(Key::Cluster { id }) if *id == *self.cluster => self.check_cluster(),
            // What was shown while it was missing was not recorded.
            Some(Key::Registry) => {
                self.check_cluster();
                self.record_blocks();
            }
            _ => {}
        }
    }
}

/// The handler of the watch of the records.
impl EventHandler<Entry> for OpenRegistry {
    fn init(&self) {
        self.remember_clusters();
        self.records.init();
    }

    fn init_done(&self) {
        self.records.init_done();
        self.check_cluster();
        self.listed();
        self.note_sign_of_life();
        // The list shows no event for a record that is missing.
        self.record_blocks();
    }

    fn apply(&self, entry: &Entry) {
        EventHandler::apply(&self.records, entry);
        self.check(entry);
    }

    fn delete(&self, entry: &Entry) {
        EventHandler::delete(&self.records, entry);
        self.check(entry);
    }

    fn restored(&self) {
        self.records.restored();
    }

    /// Never called: an [`Entry`] contains why its record cannot be decoded.
    fn apply_invalid(&self, _: &Invalid) {}

    fn delete_invalid(&self, _: &Invalid) {}
}
