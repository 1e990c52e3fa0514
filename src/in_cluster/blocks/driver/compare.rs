//! Compares the IPSlices that this process has not seen before their confirmation with the records of
//! the registry: no address of their blocks is allocated before.
//!
//! At a start that is each IPSlice. Later it is one that another manager of this management cluster has
//! taken, and one that a restore of etcd or a backup brings back: its block can belong to another
//! management cluster meanwhile.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_ip::Block;
use capi_ipam_ledger::NetworkBlocks;
use capi_ipam_registry::Record;

use super::super::running::TRUST_DELAY;
use super::plan::Pass;
use super::{Driver, Due};

/// The slices that were not compared yet, by network and block: their uid, and since when they are
/// known.
#[derive(Debug, Default)]
pub(super) struct Uncompared(HashMap<(Arc<str>, Block), (String, Instant)>);

/// What a comparison has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finding {
    /// Another management cluster uses the block.
    Conflict,
    /// The record is that of this management cluster.
    Agreement,
    /// The record is missing, or the registry cannot be reached.
    Unknown,
}

impl Uncompared {
    /// How long a slice waits to be compared.
    fn wait_time(&mut self, place: (Arc<str>, Block), uid: &str, now: Instant) -> Duration {
        let since = match self.0.get(&place) {
            Some((known, since)) if *known == *uid => *since,
            _ => now,
        };
        self.0.insert(place, (uid.to_owned(), since));
        now.saturating_duration_since(since)
    }
}

impl Driver {
    /// Compares the slices of the networks of the registry that were not compared yet. A conflict is
    /// written into the slice. A slice whose record is missing waits until the record is written again;
    /// but neither for that nor for a registry that cannot be reached longer than [`TRUST_DELAY`].
    pub(in super::super) async fn compare_slices(&mut self) {
        let recorded = self.recorded_networks();
        for network in self.ledger(capi_ipam_ledger::Ledger::networks_with_blocks) {
            let found = self.ledger(|ledger| ledger.network_blocks(&network));
            let found = found.unwrap_or_default();
            if has_uncompared(&found) && self.is_of_registry(&network, &found, &recorded) {
                self.compare_network(&network, &found).await;
            }
        }
        let ledger = Arc::clone(&self.writer.context.ledger);
        self.uncompared.0.retain(|(network, block), _| {
            let slice = ledger.read(|ledger| ledger.slice_of_block(network, *block));
            slice.is_some_and(|slice| !slice.is_compared)
        });
    }

    async fn compare_network(&mut self, network: &Arc<str>, found: &NetworkBlocks) {
        let pass = self.classify(network, found);
        for view in &found.blocks {
            let (block, is_shared) = (view.block, found.rules.is_some());
            let Some(slice) = &view.slice else {
                continue;
            };
            if slice.is_compared || !self.is_own(slice, is_shared) {
                continue;
            }
            let place = (Arc::clone(network), block);
            let wait_time = self.uncompared.wait_time(place, &slice.uid, Instant::now());
            match self.finding(network, &pass, block) {
                Finding::Conflict if slice.conflict.is_some() => {}
                // The slice stays unusable until the conflict is written.
                Finding::Conflict => self.mark_conflict(network, found, &pass, block).await,
                Finding::Unknown if wait_time < TRUST_DELAY => {}
                Finding::Agreement | Finding::Unknown => {
                    let ledger = &self.writer.context.ledger;
                    ledger.change(|ledger| ledger.set_block_compared(network, block, &slice.uid));
                }
            }
        }
    }

    /// What the records say of a block with a slice of this management cluster.
    fn finding(&self, network: &str, pass: &Pass, block: Block) -> Finding {
        let registry = self.registry();
        if pass.is_conflicting(block) {
            return Finding::Conflict;
        }
        let entry = registry.records.block(network, block);
        match entry.as_deref().and_then(|entry| entry.record()) {
            Some(Record::Block(record))
                if record.cluster == registry.cluster && registry.records.is_complete() =>
            {
                Finding::Agreement
            }
            _ => Finding::Unknown,
        }
    }

    /// Writes into the slice of a block that another management cluster uses it. A write that fails is
    /// sent again by the next comparison.
    async fn mark_conflict(
        &mut self,
        network: &Arc<str>,
        found: &NetworkBlocks,
        pass: &Pass,
        block: Block,
    ) {
        let due = Due {
            network: Arc::clone(network),
            block,
            is_needed: false,
            is_used: false,
            is_shared: found.rules.is_some(),
            may_take: false,
            overlaps: pass.overlapping_holder(block),
            delays: self.delays(found),
        };
        self.drive_block(&due).await;
    }
}

/// Whether a slice of a network was not compared yet.
fn has_uncompared(found: &NetworkBlocks) -> bool {
    let mut slices = found.blocks.iter().filter_map(|view| view.slice.as_ref());
    slices.any(|slice| !slice.is_compared)
}
