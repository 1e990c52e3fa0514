//! Chooses a free address of a pool.

use capi_ipam_api::AllocationOrder;
use capi_ipam_ip::{Block, FreeRanks, FreeSet, SpanSet, UsableBlocks};

/// The state of the order of a pool. A pool that allocates the lowest address first needs none.
#[derive(Clone, Default)]
pub(crate) struct Order {
    /// The block that was allocated last, and when, in microseconds since the Unix epoch; only with
    /// RoundRobin.
    pub(crate) last: Option<(i64, Block)>,
    /// The counts of free numbers; only with Random.
    ranks: Option<FreeRanks>,
}

impl Order {
    /// Chooses a free number, but not one of the `kept` highest ones. `all` returns the numbers
    /// that are free or not, and `draw` a random number below its argument.
    ///
    /// The highest ones are kept explicitly: managers that do not know of each other's latest
    /// allocations then choose the same last address, and the API server lets only one of them
    /// reserve it.
    pub(crate) fn choose(
        &mut self,
        order: AllocationOrder,
        usable: &UsableBlocks,
        all: impl FnOnce() -> SpanSet,
        free: &FreeSet,
        kept: u128,
        draw: impl FnMut(u128) -> u128,
    ) -> Option<u128> {
        match order {
            AllocationOrder::LowestFirst => usable.first_free(free),
            AllocationOrder::RoundRobin => self.next_in_turn(usable, free, kept),
            AllocationOrder::Random => {
                let ranks = self
                    .ranks
                    .get_or_insert_with(|| FreeRanks::new(&all(), free));
                ranks.random(free, kept, draw)
            }
        }
    }

    /// The free number above the last one, or the lowest one after the end.
    fn next_in_turn(&mut self, usable: &UsableBlocks, free: &FreeSet, kept: u128) -> Option<u128> {
        let lowest = free.lowest()?;
        let mut since = 0;
        let mut chosen = lowest;
        if let Some((at, block)) = self.last {
            since = at;
            if let Some(last) = usable.number(block) {
                chosen = free.next_above(last)?;
            }
        }
        // The turn ends below those that are kept.
        if kept > 0
            && free
                .highest_but(kept)
                .is_none_or(|highest| chosen > highest)
        {
            chosen = lowest;
        }
        self.last = Some((since, usable.block(chosen)));
        Some(chosen)
    }

    /// Records that a block was allocated, also by another process.
    pub(crate) fn record(&mut self, block: Block, at: i64) {
        if self.last.is_none_or(|(last, _)| last <= at) {
            self.last = Some((at, block));
        }
    }

    /// Continues above the block that `previous` has allocated last, if nothing newer is known.
    pub(crate) fn continue_from(&mut self, previous: &Self) {
        if let Some((at, block)) = previous.last {
            self.record(block, at);
        }
    }

    /// Records that a number became free, or is no longer free.
    pub(crate) fn set_free(&mut self, number: u128, is_free: bool) {
        if let Some(ranks) = &mut self.ranks {
            ranks.set_free(number, is_free);
        }
    }

    /// Forgets the counts: the free numbers are computed again.
    pub(crate) fn reset(&mut self) {
        self.ranks = None;
    }
}
