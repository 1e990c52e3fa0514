//! What a registry shows, on its way into the cache of records and into the ledger.
//!
//! A block that another management cluster uses as well must not wait for the driver, which sends one
//! write after the other: the ledger is notified at once, and allocates no address of such a block. A
//! sign of life of this process is recorded in the same way.

use std::sync::Arc;

use capi_ipam_controller::watch::{EventHandler, Invalid};
use capi_ipam_ip::Block;
use capi_ipam_registry::{Entry, Key};

use super::facts::Shown;
use super::open_registry::OpenRegistry;
use crate::in_cluster::context::Context;

/// The handler of the watch of a registry.
pub(super) struct RecordWatch {
    pub(super) context: Arc<Context>,
    pub(super) registry: Arc<OpenRegistry>,
}

impl RecordWatch {
    /// Compares a record that was shown with what this process allocates from.
    fn check(&self, entry: &Entry) {
        note_sign_of_life(&self.context, &self.registry);
        match Key::parse(&entry.key) {
            Some(key @ Key::Block { .. }) => record_shown(&self.context, &self.registry, &key),
            Some(Key::Cluster { id }) if *id == *self.registry.cluster => {
                check_cluster(&self.context, &self.registry);
            }
            // What was shown while it was missing was not recorded.
            Some(Key::Registry) => {
                check_cluster(&self.context, &self.registry);
                self.check_all();
            }
            _ => {}
        }
    }

    /// Records what the registry shows of all blocks.
    pub(super) fn check_all(&self) {
        let registry = &self.registry;
        self.context.ledger.change(|ledger| {
            if registry.is_confirmed() {
                ledger.set_recorded_blocks(&registry.name, Some(own_blocks(registry)));
            }
        });
    }
}

/// The blocks of which the registry shows that only this management cluster uses them.
fn own_blocks(registry: &OpenRegistry) -> Vec<(Arc<str>, Block)> {
    let mut found = Vec::new();
    for network in registry.records.networks_naming(&registry.cluster) {
        let network = Arc::from(network);
        for (block, entry) in registry.records.blocks(&network) {
            if is_ours_alone(registry, Some(&entry)) {
                found.push((Arc::clone(&network), block));
            }
        }
    }
    found
}

fn is_ours_alone(registry: &OpenRegistry, entry: Option<&Entry>) -> bool {
    // When another cluster may take a block makes no difference.
    Shown::of(entry)
        .record(&registry.cluster, 0, 0)
        .is_ours_alone()
}

/// Records in the ledger what the cache of records shows of a block. The cache is read while the ledger is
/// locked: of two responses, the later one is recorded last.
pub(super) fn record_shown(context: &Context, registry: &OpenRegistry, key: &Key) {
    let Key::Block { network, block } = key else {
        return;
    };
    context.ledger.change(|ledger| {
        // What another registry shows is not about the blocks of this one.
        if registry.is_confirmed() {
            let entry = registry.records.block(network, *block);
            let is_recorded = is_ours_alone(registry, entry.as_deref());
            ledger.set_block_recorded(&registry.name, network, *block, is_recorded);
        }
    });
}

/// Finds out whether another cluster has the identity of this one. Then no block is used: it may be the
/// one that has them.
pub(super) fn check_cluster(context: &Context, registry: &OpenRegistry) {
    registry.check_cluster();
    apply_suspension(context, registry);
}

/// Tells the ledger whether blocks are used.
pub(super) fn apply_suspension(context: &Context, registry: &OpenRegistry) {
    let is_suspended = registry.is_suspended();
    let ledger = &context.ledger;
    ledger.change(|ledger| ledger.suspend_blocks_of(&registry.name, is_suspended));
}

/// Records the last sign of life of this process if the watch has shown it.
pub(super) fn note_sign_of_life(context: &Context, registry: &OpenRegistry) {
    if let Some(began) = registry.seen_heartbeat() {
        context.signs_of_life.seen(&registry.name, began);
    }
}

impl EventHandler<Entry> for RecordWatch {
    fn init(&self) {
        self.registry.records.init();
    }

    fn init_done(&self) {
        let records = &self.registry.records;
        records.init_done();
        note_sign_of_life(&self.context, &self.registry);
        check_cluster(&self.context, &self.registry);
        self.registry.listed();
        // The list shows no event for a record that is missing.
        self.check_all();
    }

    fn apply(&self, entry: &Entry) {
        EventHandler::apply(&*self.registry.records, entry);
        self.check(entry);
    }

    fn delete(&self, entry: &Entry) {
        EventHandler::delete(&*self.registry.records, entry);
        self.check(entry);
    }

    fn restored(&self) {
        self.registry.records.restored();
    }

    /// Never called: an [`Entry`] contains why its record cannot be decoded.
    fn apply_invalid(&self, _: &Invalid) {}

    fn delete_invalid(&self, _: &Invalid) {}
}
