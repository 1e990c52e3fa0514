//! Compares the IPSlices that this process has not seen before their confirmation with the records of
//! the registry: no address of their blocks is allocated before.
//!
//! At a start that is each IPSlice. Later it is one that another manager of this management cluster has
//! taken, and one that was restored with etcd or from a backup: its block can belong to another
//! management cluster meanwhile.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capi_ipam_ip::Block;
use capi_ipam_ledger::{BlockSlice, Ledger, NetworkBlocks};
use capi_ipam_protocol::block::Comparison;

use super::super::open_registry::TRUST_DELAY;
use super::{Driver, Due};

/// The slices that were not compared yet, by network and block: their uid, and since when they are
/// known.
#[derive(Debug, Default)]
pub(super) struct Uncompared(HashMap<(Arc<str>, Block), (String, Instant)>);

impl Uncompared {
    /// Adds a slice. Returns whether it was not known.
    fn add(&mut self, place: (Arc<str>, Block), uid: &str, now: Instant) -> bool {
        match self.0.get(&place) {
            Some((known, _)) if *known == *uid => false,
            _ => {
                self.0.insert(place, (uid.to_owned(), now));
                true
            }
        }
    }

    /// How long the slice of a block waits to be compared.
    fn wait_time(&self, place: &(Arc<str>, Block), now: Instant) -> Duration {
        match self.0.get(place) {
            Some((_, since)) => now.saturating_duration_since(*since),
            None => Duration::ZERO,
        }
    }
}

impl Driver {
    /// Compares the slices of the networks of the registry that await it. A conflict is written into the
    /// slice. A slice whose record is missing waits until the record is written again; but neither for
    /// that nor for a registry that cannot be reached longer than [`TRUST_DELAY`].
    pub(in super::super) async fn compare_slices(&mut self) {
        let networks = self.ledger(Ledger::networks_with_uncompared_slices);
        if networks.is_empty() {
            self.uncompared = Uncompared::default();
            return;
        }
        let recorded = self.recorded_networks();
        for network in networks {
            let found = self.ledger(|ledger| ledger.network_blocks(&network));
            let found = found.unwrap_or_default();
            if self.is_of_registry(&network, &found, &recorded) {
                self.compare_network(&network, &found).await;
            }
        }
        let ledger = Arc::clone(&self.writer.context.ledger);
        self.uncompared.0.retain(|(network, block), _| {
            let slice = ledger.read(|ledger| ledger.slice_of_block(network, *block));
            slice.is_some_and(|slice| slice.awaits_comparison)
        });
    }

    async fn compare_network(&mut self, network: &Arc<str>, found: &NetworkBlocks) {
        let is_shared = found.rules.is_some();
        let mut slices = Vec::new();
        for view in &found.blocks {
            if let Some(slice) = &view.slice
                && slice.awaits_comparison
                && self.serves(slice, is_shared)
            {
                slices.push((view, slice));
            }
        }
        let mut unread = Vec::new();
        let now = Instant::now();
        for (view, slice) in &slices {
            let place = (Arc::clone(network), view.block);
            let is_new = self.uncompared.add(place, &slice.uid, now);
            // The watch of the registry can be late. The list of a start is not.
            if is_new && self.has_begun {
                unread.push(self.target(network, view.block, None).key());
            }
        }
        self.read_records(unread).await;
        for (view, slice) in slices {
            let due = Due {
                network: Arc::clone(network),
                block: view.block,
                is_needed: false,
                is_used: view.is_used,
                is_shared,
                may_take: false,
                overlaps: self.overlapping_holder(network, view.block),
                delays: self.delays(found),
            };
            self.compare_slice(&due, slice).await;
        }
    }

    async fn compare_slice(&mut self, due: &Due, slice: &BlockSlice) {
        let place = due.place();
        let target = self.target(&due.network, due.block, due.overlaps.clone());
        let is_read = self.read_unread(&target.key()).await && self.may_request();
        let target = self.target(&due.network, due.block, due.overlaps.clone());
        let mut memory = self.memory.remove(&place).unwrap_or_default();
        let view = self.view(due, &target, true, &mut memory);
        self.memory.insert(place.clone(), memory);
        let waits = self.uncompared.wait_time(&place, Instant::now()) < TRUST_DELAY;
        match view.compare() {
            // The slice is not usable until the conflict is written. A write that fails is sent again
            // by the next comparison.
            Comparison::Conflict => drop(self.drive_block(due).await),
            // What was known before the registry became unavailable shows only conflicts.
            Comparison::Agreement if !is_read && waits => {}
            Comparison::Unknown if waits => {}
            Comparison::Agreement | Comparison::Unknown => {
                let ledger = &self.writer.context.ledger;
                ledger.change(|ledger| {
                    ledger.set_block_compared(&due.network, due.block, &slice.uid);
                });
            }
        }
    }
}
