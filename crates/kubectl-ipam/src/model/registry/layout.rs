//! The blocks of a network in the order of a map.

use std::collections::BTreeMap;

use capi_ipam_ip::{Block, Family, Span, SpanSet};

use crate::model::regions::MAX_WHOLE;
use crate::objects::{NetworkRow, PoolRow};

/// The part of a network without a known block that a map shows, in blocks. A part begins at a
/// multiple of it.
const PART: u128 = 256;

/// The blocks of a network, by family and length. A block is identified by its number: that of its
/// first address without the host bits.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockNumbers(BTreeMap<(Family, u8), SpanSet>);

impl BlockNumbers {
    /// The blocks with an address of a pool.
    pub(crate) fn of_pools<'a>(
        network: &NetworkRow,
        pools: impl IntoIterator<Item = &'a PoolRow>,
    ) -> Self {
        let mut found: BTreeMap<(Family, u8), Vec<Span>> = BTreeMap::new();
        for pool in pools {
            let Ok(usable) = &pool.usable else { continue };
            let Some(lowest) = usable.set.lowest() else {
                continue;
            };
            // Prefixes that are larger than a block have none.
            let Some(block) = network.block_of(usable.block(lowest)) else {
                continue;
            };
            let spans = found.entry((usable.family, block.length())).or_default();
            let shift = u32::from(usable.length.saturating_sub(block.length()));
            let number = |number: u128| number.checked_shr(shift).unwrap_or_default();
            for span in usable.set.spans() {
                spans.extend(Span::new(number(span.first()), number(span.last())));
            }
        }
        Self(
            found
                .into_iter()
                .map(|(place, spans)| (place, spans.into_iter().collect()))
                .collect(),
        )
    }

    /// The number of blocks.
    pub(crate) fn len(&self) -> u128 {
        self.0
            .values()
            .fold(0, |sum, set| sum.saturating_add(set.len()))
    }

    /// Adds blocks that are not in the range of a pool. Returns the number of those with another
    /// length, which no map can show beside the others.
    pub(super) fn add(&mut self, blocks: impl IntoIterator<Item = Block>) -> u64 {
        let mut added: BTreeMap<(Family, u8), Vec<Span>> = BTreeMap::new();
        let mut others = 0_u64;
        for block in blocks {
            let place = (block.family(), block.length());
            let number = number_of(block);
            match self.0.get(&place) {
                None => others = others.saturating_add(1),
                Some(set) if set.contains(number) => {}
                Some(_) => added.entry(place).or_default().push(Span::single(number)),
            }
        }
        for (place, spans) in added {
            let set = self.0.entry(place).or_default();
            *set = spans.into_iter().chain(set.spans().to_vec()).collect();
        }
        others
    }

    /// The positions of all blocks. Of very many only the surroundings of the known blocks: nobody
    /// finds one of 2⁵⁸ blocks on a map.
    pub(super) fn layout(&self, known: impl Iterator<Item = Block>) -> BlockLayout {
        if self.len() <= MAX_WHOLE {
            return BlockLayout::new(&self.0, false);
        }
        let mut parts: BTreeMap<(Family, u8), Vec<Span>> = BTreeMap::new();
        for block in known {
            let place = (block.family(), block.length());
            parts
                .entry(place)
                .or_default()
                .extend(part(number_of(block)));
        }
        if parts.is_empty()
            && let Some((place, set)) = self.0.iter().next()
        {
            let lowest = set.lowest().and_then(part);
            parts.insert(*place, lowest.into_iter().collect());
        }
        let mut shown = BTreeMap::new();
        for (place, spans) in parts {
            if let Some(set) = self.0.get(&place) {
                let spans: SpanSet = spans.into_iter().collect();
                shown.insert(place, set.intersect(&spans));
            }
        }
        BlockLayout::new(&shown, true)
    }
}

/// The part of a map with a number.
fn part(number: u128) -> Option<Span> {
    Span::new(number & !(PART - 1), number | (PART - 1))
}

/// The number of a block.
fn number_of(block: Block) -> u128 {
    let host_bits = block.family().bits().saturating_sub(block.length());
    let first = block.span().first();
    first.checked_shr(u32::from(host_bits)).unwrap_or_default()
}

/// Blocks with consecutive numbers.
#[derive(Clone, Copy, Debug)]
struct Run {
    family: Family,
    length: u8,
    numbers: Span,
    /// The position of the first one.
    position: u128,
}

impl Run {
    /// The block at an offset.
    fn block(&self, offset: u128) -> Block {
        let number = self.numbers.first().saturating_add(offset);
        let host_bits = self.family.bits().saturating_sub(self.length);
        let first = number.checked_shl(u32::from(host_bits));
        Block::new(self.family.address(first.unwrap_or_default()), self.length)
    }
}

/// The blocks of a map. Each has a position: its place among all of them.
#[derive(Clone, Debug, Default)]
pub(super) struct BlockLayout {
    /// In the order of family, length and number, and so of the positions.
    runs: Vec<Run>,
    /// The number of positions.
    pub(super) len: u128,
    /// Whether it has only a part of the blocks.
    pub(super) is_part: bool,
}

impl BlockLayout {
    fn new(blocks: &BTreeMap<(Family, u8), SpanSet>, is_part: bool) -> Self {
        let mut layout = Self {
            is_part,
            ..Self::default()
        };
        for ((family, length), set) in blocks {
            for numbers in set.spans() {
                layout.runs.push(Run {
                    family: *family,
                    length: *length,
                    numbers: *numbers,
                    position: layout.len,
                });
                layout.len = layout.len.saturating_add(numbers.len());
            }
        }
        layout
    }

    /// The position of a block; `None` if it is not on the map.
    pub(super) fn position(&self, block: Block) -> Option<u128> {
        let number = number_of(block);
        let place = (block.family(), block.length(), number);
        let is_before = |run: &Run| (run.family, run.length, run.numbers.last()) < place;
        let run = self.runs.get(self.runs.partition_point(is_before))?;
        let is_of = (run.family, run.length) == (block.family(), block.length());
        if !is_of || !run.numbers.contains(number) {
            return None;
        }
        let offset = number.checked_sub(run.numbers.first())?;
        run.position.checked_add(offset)
    }

    /// The position of the block that contains an address.
    pub(super) fn position_of_address(&self, address: Block) -> Option<u128> {
        let mut lengths: Vec<u8> = Vec::new();
        for run in &self.runs {
            if run.family == address.family() && !lengths.contains(&run.length) {
                lengths.push(run.length);
            }
        }
        lengths
            .into_iter()
            .find_map(|length| self.position(Block::new(address.base(), length)))
    }

    /// The block at a position.
    pub(super) fn block(&self, position: u128) -> Option<Block> {
        let after = self.runs.partition_point(|run| run.position <= position);
        let run = self.runs.get(after.checked_sub(1)?)?;
        let offset = position.checked_sub(run.position)?;
        (offset < run.numbers.len()).then(|| run.block(offset))
    }
}

#[cfg(test)]
mod tests {
    use capi_ipam_api::{IPNetwork, Pool};
    use serde_json::json;

    use super::*;

    fn numbers(pools: &[&[&str]], prefix: u8) -> BlockNumbers {
        let network: IPNetwork = serde_json::from_value(json!({
            "metadata": {"name": "lab"}, "spec": {"blocks": {"registry": "site", "size": 64}},
        }))
        .unwrap();
        let mut rows = Vec::new();
        for addresses in pools {
            let pool: Pool = serde_json::from_value(json!({
                "kind": "InClusterIPPool", "metadata": {"name": "p", "namespace": "n"},
                "spec": {"addresses": addresses, "prefix": prefix, "network": "lab"},
            }))
            .unwrap();
            rows.push(PoolRow::from(&pool));
        }
        BlockNumbers::of_pools(&NetworkRow::from(network), &rows)
    }

    fn block(text: &str) -> Block {
        let (address, length) = text.split_once('/').unwrap();
        Block::new(address.parse().unwrap(), length.parse().unwrap())
    }

    #[test]
    fn blocks_with_an_address_of_a_pool_are_counted_once() {
        assert_eq!(numbers(&[&["10.0.0.0/22"]], 16).len(), 16);
        let overlapping: [&[&str]; 2] = [&["10.0.0.70-10.0.0.75"], &["10.0.0.100-10.0.0.130"]];
        assert_eq!(numbers(&overlapping, 16).len(), 2);
        assert_eq!(numbers(&[&["fd00::/64"]], 64).len(), 1 << 58);
        assert_eq!(numbers(&[], 16).len(), 0);
    }

    #[test]
    fn positions_and_blocks_are_inverse() {
        let mut numbers = numbers(&[&["10.0.0.0/24", "10.9.0.0/25"], &["fd00::/121"]], 8);
        let outside = block("10.5.0.0/26");
        assert_eq!(numbers.add([outside, block("10.0.0.0/26")]), 0);
        assert_eq!(numbers.add([block("10.0.0.0/27")]), 1, "another length");
        let layout = numbers.layout(std::iter::empty());
        assert!(!layout.is_part);
        let mut blocks = Vec::new();
        for position in 0..layout.len {
            let block = layout.block(position).unwrap();
            assert_eq!(layout.position(block), Some(position));
            blocks.push(block.to_string());
        }
        let expected = [
            "10.0.0.0/26",
            "10.0.0.64/26",
            "10.0.0.128/26",
            "10.0.0.192/26",
            "10.5.0.0/26",
            "10.9.0.0/26",
            "10.9.0.64/26",
            "fd00::/122",
            "fd00::40/122",
        ];
        assert_eq!(blocks, expected);
        assert_eq!(layout.block(layout.len), None);
        assert_eq!(layout.position(block("10.1.0.0/26")), None);
        let address = Block::address("10.9.0.70".parse().unwrap());
        assert_eq!(layout.position_of_address(address), Some(6));
        let other = Block::address("10.8.0.1".parse().unwrap());
        assert_eq!(layout.position_of_address(other), None);
    }

    #[test]
    fn very_many_blocks_are_shown_around_the_known_ones() {
        let numbers = numbers(&[&["fd00::/64"]], 64);
        let first = numbers.layout(std::iter::empty());
        assert!(first.is_part);
        assert_eq!(
            (first.len, first.block(0)),
            (256, Some(block("fd00::/122")))
        );
        let known = [block("fd00::7:0:0/122"), block("fd00::7:0:40/122")];
        let around = numbers.layout(known.into_iter());
        assert_eq!(around.len, 256);
        assert_eq!(around.position(block("fd00::7:0:40/122")), Some(1));
    }
}
