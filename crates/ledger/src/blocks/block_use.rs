//! Which blocks have an address that is not free.

use std::collections::{BTreeMap, BTreeSet};

use capi_ipam_api::BlockLengths;
use capi_ipam_ip::{Block, Family};

use super::super::usage::{UsageMap, overlaps};

/// The number of addresses of each block that are not free. An address is counted in logarithmic
/// time.
///
/// They are counted by blocks of one length, which is that of the smallest block of the family. So
/// each block consists of whole counted ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct BlockUse {
    /// The length of the blocks by which is counted.
    lengths: BlockLengths,
    counts: BTreeMap<Block, usize>,
    /// Reservations of more than one counted block.
    wide: BTreeSet<Block>,
    /// Whether the addresses have to be counted again.
    is_stale: bool,
}

impl BlockUse {
    /// Counts by blocks that are not larger than those of a length.
    pub(super) fn refine(&mut self, family: Family, length: u8) {
        if self.lengths.of(family).is_none_or(|known| known < length) {
            self.lengths.set(family, length);
            self.is_stale = true;
        }
    }

    /// Whether the addresses have to be counted again.
    pub(in super::super) fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Counts all addresses that are not free.
    pub(in super::super) fn recount(&mut self, usage: &UsageMap) {
        self.counts.clear();
        self.wide.clear();
        self.is_stale = false;
        for block in usage.blocks() {
            self.count(*block, true);
        }
    }

    /// Counts an address or a prefix that is no longer free, or that became free.
    pub(in super::super) fn count(&mut self, address: Block, is_used: bool) {
        let Some(length) = self.lengths.of(address.family()) else {
            return;
        };
        if address.length() < length {
            if is_used {
                self.wide.insert(address);
            } else {
                self.wide.remove(&address);
            }
            return;
        }
        let block = Block::new(address.base(), length);
        if is_used {
            let count = self.counts.entry(block).or_default();
            *count = count.saturating_add(1);
            return;
        }
        let Some(count) = self.counts.get_mut(&block) else {
            return;
        };
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.counts.remove(&block);
        }
    }

    /// Whether an address of a block is not free.
    pub(in super::super) fn is_used(&self, block: Block) -> bool {
        let family = block.family();
        // Nothing is known of a family that is not counted.
        let Some(length) = self.lengths.of(family) else {
            return true;
        };
        let first = Block::new(block.base(), length);
        let last = Block::new(family.address(block.span().last()), length);
        let has_counted = self.counts.range(first..=last).next().is_some();
        has_counted || self.wide.iter().any(|wide| overlaps(*wide, block))
    }

    /// The counted blocks with an address that is not free, in ascending order.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Block> {
        self.counts.keys().copied()
    }
}
