//! What the watch of a registry shows, on its way into the cache of records.
//!
//! A block that another management cluster uses as well must not wait for the driver, which sends one
//! write after the other: the ledger is notified at once, and allocates no address of such a block
//! before the driver has compared its IPSlice with the record. A sign of life of this process is
//! recorded in the same way.

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
            Some(Key::Block { network, block }) => self.check_block(&network, block),
            Some(Key::Cluster { id }) if *id == *self.registry.cluster => {
                check_cluster(&self.context, &self.registry);
            }
            Some(Key::Registry) => check_cluster(&self.context, &self.registry),
            _ => {}
        }
    }

    /// Compares all blocks that this process allocates from with their records.
    pub(super) fn check_all(&self) {
        let name = &self.registry.name;
        let ledger = &self.context.ledger;
        for (network, block) in ledger.read(|ledger| ledger.compared_blocks(name)) {
            self.check_block(&network, block);
        }
    }

    fn check_block(&self, network: &str, block: Block) {
        let registry = &self.registry;
        // What another registry shows is not about the blocks of this one.
        if !registry.is_confirmed() {
            return;
        }
        let entry = registry.records.block(network, block);
        let record = Shown::of(entry.as_deref()).record(&registry.cluster);
        if record.is_ours_alone() {
            return;
        }
        let ledger = &self.context.ledger;
        if ledger.read(|ledger| ledger.has_slice_in(network, block)) {
            ledger.change(|ledger| ledger.forget_comparisons_in(&registry.name, network, block));
        }
    }
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
