//! The addresses of blocks: plain values, no I/O.

use std::collections::BTreeMap;

use capi_ipam_ip::{Block, Family, FreeSet};

/// The addresses of blocks of any size. As the free numbers of a pool, they are stored as spans, which a change
/// splits or joins in logarithmic time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Addresses(BTreeMap<Family, FreeSet>);

impl Addresses {
    pub(super) fn insert(&mut self, block: Block) {
        let set = self.0.entry(block.family()).or_default();
        set.release_span(block.span());
    }

    /// Removes the addresses of a block, also those that other blocks contain as well.
    pub(super) fn remove(&mut self, block: Block) {
        if let Some(set) = self.0.get_mut(&block.family()) {
            set.take_span(block.span());
            if set.is_empty() {
                self.0.remove(&block.family());
            }
        }
    }

    /// Whether an address of a block is one of these. Takes logarithmic time.
    pub(super) fn overlaps(&self, block: Block) -> bool {
        self.last_from(block).is_some()
    }

    /// If an address of a block is one of these, the number of the last one of those without a gap
    /// that follow the first one. Takes logarithmic time.
    pub(super) fn last_from(&self, block: Block) -> Option<u128> {
        let wanted = block.span();
        let found = self.0.get(&block.family())?.span_from(wanted.first())?;
        (found.first() <= wanted.last()).then(|| found.last())
    }
}

impl FromIterator<Block> for Addresses {
    fn from_iter<I: IntoIterator<Item = Block>>(blocks: I) -> Self {
        let mut addresses = Self::default();
        for block in blocks {
            addresses.insert(block);
        }
        addresses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(text: &str) -> Block {
        let (base, length) = text.split_once('/').unwrap();
        Block::new(base.parse().unwrap(), length.parse().unwrap())
    }

    #[test]
    fn blocks_of_any_size_overlap() {
        let addresses: Addresses = ["10.0.0.0/29", "10.0.0.16/31"]
            .into_iter()
            .map(block)
            .collect();
        for (text, expected) in [
            ("10.0.0.0/30", true),
            ("10.0.0.4/30", true),
            ("10.0.0.8/30", false),
            ("10.0.0.16/30", true),
            ("::a00:0/125", false),
        ] {
            assert_eq!(addresses.overlaps(block(text)), expected, "{text}");
        }
    }
}
