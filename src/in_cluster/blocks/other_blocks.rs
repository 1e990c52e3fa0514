//! The blocks of a network that other management clusters have: plain values, no I/O.

use std::collections::BTreeMap;
use std::sync::Arc;

use capi_ipam_ip::{Block, Family, Span, SpanSet};

/// The addresses of blocks of any size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Addresses {
    v4: SpanSet,
    v6: SpanSet,
}

impl Addresses {
    /// Whether an address of a block is one of these. Takes logarithmic time.
    pub(super) fn overlaps(&self, block: Block) -> bool {
        self.last_from(block).is_some()
    }

    /// If an address of a block is one of these, the number of the last one of those without a gap
    /// that follow the first one. Takes logarithmic time.
    pub(super) fn last_from(&self, block: Block) -> Option<u128> {
        let set = match block.family() {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        };
        let (spans, wanted) = (set.spans(), block.span());
        let index = spans.partition_point(|span| span.last() < wanted.first());
        let found = spans.get(index)?;
        (found.first() <= wanted.last()).then(|| found.last())
    }
}

impl FromIterator<Block> for Addresses {
    fn from_iter<I: IntoIterator<Item = Block>>(blocks: I) -> Self {
        let mut v4: Vec<Span> = Vec::new();
        let mut v6: Vec<Span> = Vec::new();
        for block in blocks {
            match block.family() {
                Family::V4 => v4.push(block.span()),
                Family::V6 => v6.push(block.span()),
            }
        }
        Self {
            v4: v4.into_iter().collect(),
            v6: v6.into_iter().collect(),
        }
    }
}

/// The blocks with a record that is not one of this management cluster.
///
/// Their sizes can differ from the size here: the record of the network, on which all management
/// clusters agree, can be lost or edited. So a block is free only if it overlaps with none of these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct OtherBlocks {
    /// The management clusters; `None` if the record cannot be decoded.
    holders: BTreeMap<Block, Option<Arc<str>>>,
    addresses: Addresses,
}

/// A block of another management cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OtherBlock<'a> {
    pub(super) block: Block,
    /// `None` if the record cannot be decoded.
    pub(super) holder: Option<&'a Arc<str>>,
}

impl OtherBlocks {
    pub(super) fn len(&self) -> usize {
        self.holders.len()
    }

    pub(super) fn blocks(&self) -> impl Iterator<Item = Block> {
        self.holders.keys().copied()
    }

    /// Whether a block overlaps with one of these. Takes logarithmic time.
    pub(super) fn overlaps(&self, block: Block) -> bool {
        self.addresses.overlaps(block)
    }

    /// The first one of another size that overlaps with a block.
    pub(super) fn of_other_size(&self, block: Block) -> Option<OtherBlock<'_>> {
        // Nearly always there is none.
        if !self.overlaps(block) {
            return None;
        }
        for (other, holder) in &self.holders {
            if *other != block && other.overlaps(block) {
                return Some(OtherBlock {
                    block: *other,
                    holder: holder.as_ref(),
                });
            }
        }
        None
    }
}

impl FromIterator<(Block, Option<Arc<str>>)> for OtherBlocks {
    fn from_iter<I: IntoIterator<Item = (Block, Option<Arc<str>>)>>(blocks: I) -> Self {
        let holders: BTreeMap<Block, Option<Arc<str>>> = blocks.into_iter().collect();
        let addresses = holders.keys().copied().collect();
        Self { holders, addresses }
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
    fn blocks_of_other_sizes_overlap() {
        let others: OtherBlocks = [
            (block("10.0.0.0/29"), Some("north".into())),
            (block("10.0.0.16/31"), None),
            (block("10.0.0.32/30"), Some("south".into())),
        ]
        .into_iter()
        .collect();
        let found = |text| {
            let other = others.of_other_size(block(text))?;
            Some((other.block, other.holder.map(ToString::to_string)))
        };
        let north = Some((block("10.0.0.0/29"), Some("north".to_owned())));
        assert_eq!(found("10.0.0.0/30"), north);
        assert_eq!(found("10.0.0.4/30"), north);
        assert_eq!(found("10.0.0.8/30"), None);
        assert_eq!(found("10.0.0.16/30"), Some((block("10.0.0.16/31"), None)));
        assert_eq!(found("10.0.0.32/30"), None, "it has the same size");
        assert!(others.overlaps(block("10.0.0.32/30")));
        assert!(!others.overlaps(block("::a00:0/125")));
    }
}
