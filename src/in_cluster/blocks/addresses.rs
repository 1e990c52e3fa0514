//! The addresses of blocks: plain values, no I/O.

use std::collections::BTreeMap;

use capi_ipam_ip::{Block, Family, Span, SpanSet};

/// The addresses of blocks of any size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Addresses(BTreeMap<Family, SpanSet>);

impl Addresses {
    /// Whether an address of a block is one of these. Takes logarithmic time.
    pub(super) fn overlaps(&self, block: Block) -> bool {
        self.last_from(block).is_some()
    }

    /// If an address of a block is one of these, the number of the last one of those without a gap
    /// that follow the first one. Takes logarithmic time.
    pub(super) fn last_from(&self, block: Block) -> Option<u128> {
        let (spans, wanted) = (self.0.get(&block.family())?.spans(), block.span());
        let index = spans.partition_point(|span| span.last() < wanted.first());
        let found = spans.get(index)?;
        (found.first() <= wanted.last()).then(|| found.last())
    }
}

impl FromIterator<Block> for Addresses {
    fn from_iter<I: IntoIterator<Item = Block>>(blocks: I) -> Self {
        let mut spans: BTreeMap<Family, Vec<Span>> = BTreeMap::new();
        for block in blocks {
            spans.entry(block.family()).or_default().push(block.span());
        }
        let sets = spans.into_iter();
        Self(
            sets.map(|(family, spans)| (family, spans.into_iter().collect()))
                .collect(),
        )
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
