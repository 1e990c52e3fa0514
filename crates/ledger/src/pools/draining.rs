//! The draining parts of a pool: nothing is allocated there, and what is in use stays.

use std::collections::BTreeSet;

use capi_ipam_api::PoolKey;
use capi_ipam_ip::{Block, FreeSet, SpanSet, UsableBlocks};

use crate::addresses::UsageMap;

/// The draining parts of a pool. Empty if the pool has none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Draining {
    /// The numbers of these parts that are not in use, reserved or cooling down.
    pub(crate) unused: FreeSet,
    /// The blocks of these parts that are in use.
    pub(crate) in_use: BTreeSet<Block>,
}

impl Draining {
    /// Counts the draining parts of a pool. `other_lengths` are the numbers that overlap with a
    /// used block of another length.
    pub(crate) fn of(
        pool: &PoolKey,
        usable: &UsableBlocks,
        other_lengths: &SpanSet,
        usage: &UsageMap,
    ) -> Self {
        if usable.draining.is_empty() {
            return Self::default();
        }
        let numbers = usage.iter().filter_map(|(block, _)| usable.number(block));
        let unused = FreeSet::without(&usable.draining.subtract(other_lengths), numbers);
        let mut in_use = BTreeSet::new();
        for (block, usage) in usage.iter() {
            if usable.is_draining(block) && usage.is_in_use_of(pool) {
                in_use.insert(block);
            }
        }
        Self { unused, in_use }
    }

    /// Records that a draining number became free, or is no longer free.
    pub(crate) fn set_free(&mut self, number: u128, is_free: bool) {
        if is_free {
            self.unused.release(number);
        } else {
            self.unused.take(number);
        }
    }

    /// Records whether a draining block is in use.
    pub(crate) fn set_in_use(&mut self, block: Block, is_in_use: bool) {
        if is_in_use {
            self.in_use.insert(block);
        } else {
            self.in_use.remove(&block);
        }
    }

    /// The number of addresses that nothing uses.
    pub(crate) fn unused(&self) -> u128 {
        self.unused.len()
    }
}
