//! The blocks of addresses that a map shows.

use capi_ipam_ip::{Block, Span, SpanSet, UsableBlocks};

/// The smallest block: a row of a map, so that every row begins at a multiple of its length.
const MIN_LENGTH: u128 = 32;
/// The number of addresses from which on a map shows only the part of a pool that is used.
const MAX_WHOLE: u128 = 1 << 20;
/// The part of an unused pool that a map shows, in addresses.
const UNUSED_PART: u128 = 256;

/// Blocks of consecutive numbers of a pool. The length of each is a power of two, and it begins at
/// a multiple of it, as subnets do. A position is the place of a number in all of them.
#[derive(Clone, Debug)]
pub(super) struct Regions {
    /// The longest one first: so each begins at a position that is a multiple of its length, and a
    /// cell never contains an end of one block and a begin of a longer one.
    blocks: Vec<Span>,
    /// Whether they contain only a part of the pool.
    pub(super) is_part: bool,
}

impl Regions {
    /// The blocks that contain a pool. Of a large pool only those with addresses in use: nobody
    /// finds one of 2⁶⁴ addresses on a map.
    pub(super) fn of(usable: &UsableBlocks, used: impl Iterator<Item = Block>) -> Self {
        let declared: SpanSet = usable.ranges.iter().map(|range| &range.set).collect();
        let all = join(declared.spans().iter().copied());
        let length = total(&all);
        if length <= MAX_WHOLE {
            return Self::new(all, false);
        }
        let numbers = used.filter_map(|block| usable.number(block));
        let used: SpanSet = numbers.map(Span::single).collect();
        let mut part = join(used.spans().iter().copied());
        if part.is_empty() {
            part = declared
                .spans()
                .first()
                .and_then(|span| beginning(*span))
                .into_iter()
                .collect();
        }
        if total(&part) >= length {
            return Self::new(all, false);
        }
        Self::new(part, true)
    }

    fn new(mut blocks: Vec<Span>, is_part: bool) -> Self {
        blocks.sort_by_key(|block| (std::cmp::Reverse(block.len()), block.first()));
        Self { blocks, is_part }
    }

    /// The number of all positions.
    pub(super) fn len(&self) -> u128 {
        total(&self.blocks)
    }

    /// The position of a number; `None` if it is in none of the blocks.
    pub(super) fn position(&self, number: u128) -> Option<u128> {
        let mut before = 0_u128;
        for block in &self.blocks {
            if block.contains(number) {
                return before.checked_add(number.checked_sub(block.first())?);
            }
            before = before.saturating_add(block.len());
        }
        None
    }

    /// The number at a position.
    pub(super) fn number_at(&self, position: u128) -> Option<u128> {
        let mut rest = position;
        for block in &self.blocks {
            if rest < block.len() {
                return block.first().checked_add(rest);
            }
            rest = rest.saturating_sub(block.len());
        }
        None
    }

    /// The numbers from a position on: several spans if a block ends in between.
    pub(super) fn numbers(&self, start: u128, length: u128) -> Vec<Span> {
        let mut found = Vec::new();
        let mut before = 0_u128;
        let end = start.saturating_add(length);
        for block in &self.blocks {
            let after = before.saturating_add(block.len());
            let first = start.max(before);
            let last = end.min(after);
            if first < last {
                let offset = first.saturating_sub(before);
                let from = block.first().saturating_add(offset);
                let to = from.saturating_add(last.saturating_sub(first).saturating_sub(1));
                found.extend(Span::new(from, to));
            }
            before = after;
        }
        found
    }
}

/// The aligned blocks that contain these spans, in order. Neighbors are one block if that is at
/// most twice as long as both: a gap is worth showing if it is small.
fn join(spans: impl Iterator<Item = Span>) -> Vec<Span> {
    let mut blocks: Vec<Span> = Vec::new();
    for span in spans {
        let mut block = aligned(span.first(), span.last());
        while let Some(last) = blocks.last().copied() {
            let both = aligned(last.first(), block.last().max(last.last()));
            let is_within = last.contains(block.first());
            let shown = last.len().saturating_add(block.len());
            if !is_within && both.len() > shown.saturating_mul(2) {
                break;
            }
            blocks.pop();
            block = both;
        }
        blocks.push(block);
    }
    blocks
}

/// The smallest aligned block that contains two numbers.
fn aligned(first: u128, last: u128) -> Span {
    let different = first ^ last;
    // All bits below the highest one in which they differ.
    let mask = u128::MAX
        .checked_shr(different.leading_zeros())
        .unwrap_or_default();
    let mask = mask | (MIN_LENGTH - 1);
    Span::new(first & !mask, last | mask).unwrap_or_else(|| Span::single(first))
}

/// The aligned block at the beginning of a span.
fn beginning(span: Span) -> Option<Span> {
    let first = span.first() & !(UNUSED_PART - 1);
    Span::new(first, first.saturating_add(UNUSED_PART - 1))
}

fn total(blocks: &[Span]) -> u128 {
    let mut total = 0_u128;
    for block in blocks {
        total = total.saturating_add(block.len());
    }
    total
}

#[cfg(test)]
mod tests {
    use capi_ipam_api::Pool;
    use serde_json::json;

    use super::*;

    fn usable(addresses: &[&str], prefix: u8) -> UsableBlocks {
        let pool = json!({
            "kind": "InClusterIPPool", "metadata": { "name": "p", "namespace": "n" },
            "spec": { "addresses": addresses, "prefix": prefix, "allocateReservedIPAddresses": true },
        });
        let pool: Pool = serde_json::from_value(pool).unwrap();
        pool.spec.usable().unwrap()
    }

    /// The first address and the length of each block.
    fn blocks(addresses: &[&str], prefix: u8, used: &[&str]) -> Vec<String> {
        let usable = usable(addresses, prefix);
        let used = used
            .iter()
            .map(|text| Block::address(text.parse().unwrap()));
        let regions = Regions::of(&usable, used);
        let describe = |block: &Span| format!("{} {}", usable.block(block.first()), block.len());
        regions.blocks.iter().map(describe).collect()
    }

    #[test]
    fn block_begins_at_a_multiple_of_its_length() {
        assert_eq!(blocks(&["10.0.0.10-10.0.0.99"], 24, &[]), ["10.0.0.0 128"]);
        assert_eq!(
            blocks(&["10.0.0.10-10.0.0.99", "10.0.0.128/26"], 24, &[]),
            ["10.0.0.0 256"]
        );
        assert_eq!(blocks(&["10.0.0.31-10.0.0.32"], 24, &[]), ["10.0.0.0 64"]);
        assert_eq!(blocks(&["10.0.0.7"], 24, &[]), ["10.0.0.0 32"]);
    }

    #[test]
    fn large_gap_separates_blocks() {
        assert_eq!(
            blocks(&["10.0.0.1", "10.255.0.0/26"], 8, &[]),
            ["10.255.0.0 64", "10.0.0.0 32"]
        );
    }

    #[test]
    fn large_pool_shows_the_used_part() {
        assert_eq!(blocks(&["fd00::/64"], 64, &[]), ["fd00:: 256"]);
        assert_eq!(
            blocks(&["fd00::/64"], 64, &["fd00::1", "fd00::9", "fd00::25"]),
            ["fd00:: 64"]
        );
        assert_eq!(
            blocks(&["::/0"], 0, &["::", "ffff::"]),
            [":: 32", "ffff:: 32"]
        );
    }

    #[test]
    fn positions_and_numbers_are_inverse() {
        let usable = usable(&["10.0.0.1", "10.255.0.0/26"], 8);
        let regions = Regions::of(&usable, std::iter::empty());
        for position in 0..regions.len() {
            let number = regions.number_at(position).unwrap();
            assert_eq!(regions.position(number), Some(position));
        }
        assert_eq!(regions.number_at(regions.len()), None);
        assert_eq!(
            regions.numbers(60, 8).len(),
            2,
            "the end of one block and the begin of the next"
        );
    }
}
