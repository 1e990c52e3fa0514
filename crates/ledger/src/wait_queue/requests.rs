//! The blocks that claims of a wait queue request: a structure without clock, lock or I/O.

use std::collections::{BTreeMap, HashMap};

use capi_ipam_ip::Block;
use capi_ipam_objects::namespaced_name::NamespacedName;

use super::{Position, Waiting};

/// The requested blocks of one pool, and the claims that wait for each of them.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestedBlocks {
    blocks: HashMap<Block, Requested>,
    /// The blocks that are free, that claims wait for, and for which no claim has a turn, by the
    /// position of the first one of these claims: for those outside of the headroom of the pool,
    /// and for those that may use it.
    ready: [BTreeMap<Position, Block>; 2],
    /// The number of blocks for which a claim has a turn.
    turns: usize,
}

/// One requested block.
#[derive(Clone, Debug, Default)]
struct Requested {
    /// The claims that wait for it, first one first, and whether each may use the headroom.
    waiting: BTreeMap<Position, (NamespacedName, bool)>,
    /// The number of claims that request it, in any state.
    claims: usize,
    is_free: bool,
    /// Whether a claim has a turn for it.
    has_turn: bool,
}

impl Requested {
    /// The position of the first claim that waits for the block, and whether it may use the
    /// headroom, if the block is free and no claim has a turn for it.
    fn ready(&self) -> Option<(Position, bool)> {
        let (position, (_, uses_headroom)) = self.waiting.first_key_value()?;
        (self.is_free && !self.has_turn).then_some((*position, *uses_headroom))
    }
}

impl RequestedBlocks {
    fn change(&mut self, block: Block, change: impl FnOnce(&mut Requested)) {
        let Some(requested) = self.blocks.get_mut(&block) else {
            return;
        };
        let had_turn = requested.has_turn;
        let ready_before = requested.ready();
        change(requested);
        let before = usize::from(had_turn);
        let after = usize::from(requested.has_turn);
        self.turns = self.turns.saturating_add(after).saturating_sub(before);
        let ready_after = requested.ready();
        if requested.claims == 0 {
            self.blocks.remove(&block);
        }
        if let Some((position, uses_headroom)) = ready_before {
            self.tier(uses_headroom).remove(&position);
        }
        if let Some((position, uses_headroom)) = ready_after {
            self.tier(uses_headroom).insert(position, block);
        }
    }

    fn tier(&mut self, uses_headroom: bool) -> &mut BTreeMap<Position, Block> {
        let [others, privileged] = &mut self.ready;
        if uses_headroom { privileged } else { others }
    }

    /// Whether no claim requests a block.
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Counts a claim that requests the block.
    pub(super) fn add_claim(&mut self, block: Block) {
        let requested = self.blocks.entry(block).or_default();
        requested.claims += 1;
    }

    /// Stops counting a claim that requests the block, and that neither waits for it nor has a
    /// turn.
    pub(super) fn remove_claim(&mut self, block: Block) {
        self.change(block, |requested| {
            requested.claims = requested.claims.saturating_sub(1);
        });
    }

    /// Lets a claim wait for its block.
    pub(super) fn insert_waiting(
        &mut self,
        block: Block,
        position: Position,
        claim: NamespacedName,
        uses_headroom: bool,
    ) {
        self.change(block, |requested| {
            drop(requested.waiting.insert(position, (claim, uses_headroom)));
        });
    }

    pub(super) fn remove_waiting(&mut self, block: Block, position: &Position) {
        self.change(block, |requested| drop(requested.waiting.remove(position)));
    }

    /// Records that the block became free, or is no longer free.
    pub(super) fn set_free(&mut self, block: Block, is_free: bool) {
        self.change(block, |requested| requested.is_free = is_free);
    }

    /// Records whether a claim has a turn for the block.
    pub(super) fn set_turn(&mut self, block: Block, has_turn: bool) {
        self.change(block, |requested| requested.has_turn = has_turn);
    }

    /// Whether a claim waits for the block, or has a turn for it.
    pub(super) fn is_contested(&self, block: Block) -> bool {
        self.blocks
            .get(&block)
            .is_some_and(|requested| requested.has_turn || !requested.waiting.is_empty())
    }

    /// Whether a claim has a turn for the block.
    pub(super) fn has_turn(&self, block: Block) -> bool {
        self.blocks
            .get(&block)
            .is_some_and(|requested| requested.has_turn)
    }

    /// The number of blocks for which a claim has a turn.
    pub(super) fn turns(&self) -> usize {
        self.turns
    }

    /// The claims that wait for the block, first one first.
    pub(super) fn waiting_for(&self, block: Block) -> impl Iterator<Item = &NamespacedName> {
        let requested = self.blocks.get(&block).into_iter();
        let waiting = requested.flat_map(|requested| requested.waiting.values());
        waiting.map(|(claim, _)| claim)
    }

    /// All requested blocks.
    pub(super) fn blocks(&self) -> Vec<Block> {
        self.blocks.keys().copied().collect()
    }

    /// The blocks for which a claim waits.
    pub(super) fn awaited(&self) -> Vec<Block> {
        let mut awaited = Vec::new();
        for (block, requested) in &self.blocks {
            if !requested.waiting.is_empty() {
                awaited.push(*block);
            }
        }
        awaited
    }

    /// The first claim that waits for a block which is free now: of those that may use the headroom
    /// of the pool, or of the others.
    pub(super) fn first_ready(&self, uses_headroom: bool) -> Option<Waiting<'_>> {
        let [others, privileged] = &self.ready;
        let tier = if uses_headroom { privileged } else { others };
        let (position, block) = tier.first_key_value()?;
        let (claim, _) = self.blocks.get(block)?.waiting.get(position)?;
        Some((position, claim))
    }
}
