//! The blocks of a network that several management clusters share: a structure without clock, lock
//! or I/O.
//!
//! A network is *restricted* if its specification shares blocks, or if one of its blocks has a
//! slice. The pools of a restricted network allocate only addresses in usable blocks. Which blocks
//! are usable depends on the slices, and on nothing else: not on the registry, and not on the
//! network, whose object may be missing or invalid.

mod block_use;
mod slice;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use capi_ipam_api::{BlockLengths, BlockRules, BlockStatus};
use capi_ipam_ip::{Block, Family, Span, SpanSet};

use super::block_supply::BlockSupply;

pub(super) use self::block_use::BlockUse;
pub(super) use self::slice::BlockInfo;

/// The addresses that the pools of a network can allocate after a change, or no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Affected {
    /// No address.
    Nothing,
    /// Those of this block.
    Block(Block),
    /// Any address.
    All,
}

/// The identities of this management cluster and the records of its blocks, by registry.
#[derive(Default)]
pub(super) struct ManagementClusters {
    ids: BTreeMap<String, Arc<str>>,
    /// The registries in which another cluster writes with the identity of this one.
    suspended: BTreeSet<String>,
    /// The blocks of each network of which the registry shows that only this management cluster uses them.
    /// None of a registry that was not listed.
    recorded: BTreeMap<String, RecordedBlocks>,
}

/// Blocks by network.
pub(super) type RecordedBlocks = BTreeMap<Arc<str>, Arc<BTreeSet<Block>>>;

/// Which slices of a network are those of this management cluster, and of which blocks it may use
/// addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ours {
    ids: BTreeSet<Arc<str>>,
    /// The blocks of which a registry shows that only this management cluster uses them, by registry.
    /// Those of a registry that was not listed are used as their slices say.
    recorded: BTreeMap<String, Arc<BTreeSet<Block>>>,
}

impl Ours {
    /// Whether a registry shows no other user of a block, as far as it is known.
    fn may_use(&self, registry: Option<&str>, block: Block) -> bool {
        match registry.and_then(|registry| self.recorded.get(registry)) {
            Some(recorded) => recorded.contains(&block),
            None => true,
        }
    }
}

impl ManagementClusters {
    pub(super) fn insert(&mut self, registry: &str, id: &str) {
        self.ids.insert(registry.to_owned(), id.into());
    }

    /// The identity in a registry, once it is known.
    pub(super) fn id_in(&self, registry: &str) -> Option<&Arc<str>> {
        self.ids.get(registry)
    }

    /// Another cluster writes with the identity of this one, or no longer.
    pub(super) fn suspend(&mut self, registry: &str, is_suspended: bool) {
        if is_suspended {
            self.suspended.insert(registry.to_owned());
        } else {
            self.suspended.remove(registry);
        }
    }

    /// Replaces what a registry shows; `None` if it is not known.
    pub(super) fn set_recorded(&mut self, registry: &str, blocks: Option<RecordedBlocks>) {
        match blocks {
            Some(blocks) => self.recorded.insert(registry.to_owned(), blocks),
            None => self.recorded.remove(registry),
        };
    }

    /// Records what a registry shows of a block. Returns whether this is new.
    pub(super) fn set_block_recorded(
        &mut self,
        registry: &str,
        network: &Arc<str>,
        block: Block,
        is_recorded: bool,
    ) -> bool {
        let Some(networks) = self.recorded.get_mut(registry) else {
            return false;
        };
        let blocks = networks.entry(Arc::clone(network)).or_default();
        if blocks.contains(&block) == is_recorded {
            return false;
        }
        let blocks = Arc::make_mut(blocks);
        if is_recorded {
            blocks.insert(block)
        } else {
            blocks.remove(&block)
        }
    }

    fn usable_id_in(&self, registry: &str) -> Option<&Arc<str>> {
        if self.suspended.contains(registry) {
            return None;
        }
        self.id_in(registry)
    }

    /// Which slices of a network are ours: those with the identity in the registry of the network, once it
    /// is known; with any identity if the network shares no blocks any more.
    pub(super) fn of(&self, network: &str, rules: Option<&BlockRules>) -> Ours {
        let ids = match rules {
            Some(rules) => self
                .usable_id_in(&rules.registry)
                .into_iter()
                .cloned()
                .collect(),
            None => {
                let registries = self.ids.keys();
                registries
                    .filter_map(|registry| self.usable_id_in(registry))
                    .cloned()
                    .collect()
            }
        };
        let mut recorded = BTreeMap::new();
        for (registry, networks) in &self.recorded {
            let blocks = networks.get(network).cloned().unwrap_or_default();
            recorded.insert(registry.clone(), blocks);
        }
        Ours { ids, recorded }
    }
}

/// The blocks of one network.
#[derive(Default)]
pub(super) struct Blocks {
    /// The shared blocks of the specification. Those of the last valid one, as long as the
    /// specification is not valid.
    rules: Option<BlockRules>,
    /// The lengths of what the pools of the network allocate.
    lengths: BlockLengths,
    ours: Ours,
    slices: BTreeMap<Block, BlockInfo>,
    /// The number of blocks of other management clusters, as the status of the network contains it.
    recorded_others: i64,
    /// What the registry has for the network.
    pub(super) supply: BlockSupply,
    /// The blocks with an address that is not free.
    pub(super) usage: BlockUse,
}

impl Blocks {
    /// Whether the network neither shares blocks nor has slices.
    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_none() && self.slices.is_empty()
    }

    /// Whether the pools of the network allocate only addresses of usable blocks.
    pub(super) fn is_restricted(&self) -> bool {
        !self.is_empty()
    }

    /// The shared blocks of the specification.
    pub(super) fn rules(&self) -> Option<&BlockRules> {
        self.rules.as_ref()
    }

    /// Replaces the shared blocks of the specification, and the lengths of what the pools allocate.
    pub(super) fn set_rules(
        &mut self,
        rules: Option<BlockRules>,
        lengths: BlockLengths,
        ours: Ours,
    ) -> Affected {
        let was_restricted = self.is_restricted();
        let is_other_registry = registry(self.rules.as_ref()) != registry(rules.as_ref());
        self.rules = rules;
        self.lengths = lengths;
        for family in [Family::V4, Family::V6] {
            if let Some(length) = self.length(family) {
                self.usage.refine(family, length);
            }
        }
        let mut affected = self.set_ours(ours);
        if is_other_registry && !self.slices.is_empty() {
            affected = Affected::All;
        }
        self.end_change(was_restricted, affected)
    }

    /// Records the number of blocks of other management clusters that the status of the network contains.
    pub(super) fn set_recorded_others(&mut self, others: i64) {
        self.recorded_others = others;
    }

    /// Replaces what is known of this management cluster.
    pub(super) fn set_ours(&mut self, ours: Ours) -> Affected {
        if self.ours == ours {
            return Affected::Nothing;
        }
        let before = std::mem::replace(&mut self.ours, ours);
        if self.slices.is_empty() {
            return Affected::Nothing;
        }
        if before.ids != self.ours.ids {
            return Affected::All;
        }
        let mut changed = Vec::new();
        for (block, slice) in &self.slices {
            if self.is_usable_for(&before, *block, slice) != self.is_usable(*block, slice) {
                changed.push(*block);
            }
        }
        match changed.as_slice() {
            [] => Affected::Nothing,
            [block] => Affected::Block(*block),
            _ => Affected::All,
        }
    }

    /// Replaces the slice of a block; `None` removes it.
    pub(super) fn set_slice(&mut self, block: Block, slice: Option<BlockInfo>) -> Affected {
        let was_restricted = self.is_restricted();
        let before = self.usability(block);
        match slice {
            Some(slice) => {
                self.slices.insert(block, slice);
                self.usage.refine(block.family(), block.length());
            }
            None => drop(self.slices.remove(&block)),
        }
        // Also a slice that is not usable affects the pools: others can overlap with it.
        let affected = if self.usability(block) == before {
            Affected::Nothing
        } else {
            Affected::Block(block)
        };
        self.end_change(was_restricted, affected)
    }

    /// What a change affects in total.
    fn end_change(&mut self, was_restricted: bool, affected: Affected) -> Affected {
        if !self.is_restricted() {
            // The use of blocks is not counted.
            self.usage = BlockUse::default();
        }
        if self.is_restricted() == was_restricted {
            affected
        } else {
            Affected::All
        }
    }

    /// The slices, by their blocks.
    pub(super) fn slices(&self) -> &BTreeMap<Block, BlockInfo> {
        &self.slices
    }

    /// Whether a slice is one of this management cluster, and addresses of its block may be
    /// allocated.
    pub(super) fn is_usable(&self, block: Block, slice: &BlockInfo) -> bool {
        self.is_usable_for(&self.ours, block, slice)
    }

    fn is_usable_for(&self, ours: &Ours, block: Block, slice: &BlockInfo) -> bool {
        let is_ours = match &slice.cluster {
            Some(cluster) => ours.ids.contains(cluster),
            None => false,
        };
        is_ours && slice.may_be_usable() && self.may_use(ours, block, slice)
    }

    /// Whether the registry of a block shows no other user of it, as far as it is known.
    fn may_use(&self, ours: &Ours, block: Block, slice: &BlockInfo) -> bool {
        let of_network = registry(self.rules.as_ref());
        let named = slice.registry.as_deref();
        // The registry of the network has not confirmed the block of another one.
        let is_of_registry = of_network.is_none() || named.is_none() || of_network == named;
        is_of_registry && ours.may_use(of_network.or(named), block)
    }

    /// Whether the registry shows another user of the block of a slice, or no record of it, and the slice
    /// does not say so yet: a process that starts without the registry would use the block.
    pub(super) fn has_unmarked_conflict(&self, block: Block) -> bool {
        match self.slices.get(&block) {
            Some(slice) => slice.is_confirmed_alone() && !self.may_use(&self.ours, block, slice),
            None => false,
        }
    }

    /// Whether the slice of a block is usable; `None` without a slice.
    fn usability(&self, block: Block) -> Option<bool> {
        let slice = self.slices.get(&block)?;
        Some(self.is_usable(block, slice))
    }

    /// The numbers of the addresses that no pool of the network allocates: those outside of usable
    /// blocks. `None` if the network is not restricted.
    pub(super) fn unusable(&self, family: Family) -> Option<SpanSet> {
        if !self.is_restricted() {
            return None;
        }
        let mut usable = Vec::new();
        let mut unusable = Vec::new();
        for (block, slice) in &self.slices {
            if block.family() != family {
                continue;
            }
            if self.is_usable(*block, slice) {
                usable.push(block.span());
            } else {
                unusable.push(block.span());
            }
        }
        let all = SpanSet::from_iter(Span::new(0, family.last()));
        let outside = all.subtract(&usable.into_iter().collect());
        // Slices can overlap after a change of the size: a block that is not usable is not usable as
        // a part of another one either.
        Some(SpanSet::from_iter([
            &outside,
            &unusable.into_iter().collect(),
        ]))
    }

    /// The length of the blocks of a family; `None` if it is not known, or if a block is larger than
    /// the address space.
    pub(super) fn length(&self, family: Family) -> Option<u8> {
        let rules = self.rules.as_ref()?;
        let length = u32::from(self.lengths.of(family)?);
        let length = length.checked_sub(rules.shift)?;
        u8::try_from(length).ok()
    }

    /// The block that contains an address or a prefix: by the size of the specification, else the
    /// smallest one with a slice.
    pub(super) fn containing(&self, address: Block) -> Option<Block> {
        match self.length(address.family()) {
            Some(length) if length <= address.length() => Some(Block::new(address.base(), length)),
            Some(_) => None,
            None => self.slices_containing(address).next(),
        }
    }

    /// The blocks with a slice that contain an address or a prefix, the smallest first. There can be
    /// several after a change of the size.
    pub(super) fn slices_containing(&self, address: Block) -> impl Iterator<Item = Block> {
        let lengths = (0..=address.length()).rev();
        let blocks = lengths.map(move |length| Block::new(address.base(), length));
        blocks.filter(|block| self.slices.contains_key(block))
    }

    /// The blocks with a slice, and those with an address that is not free, in ascending order. A
    /// reservation of more than one block counts only for blocks with a slice.
    pub(super) fn all(&self) -> BTreeSet<Block> {
        let mut blocks: BTreeSet<Block> = self.slices.keys().copied().collect();
        for used in self.usage.blocks() {
            blocks.extend(self.containing(used));
        }
        blocks
    }

    /// The counts for the status of the network. They depend on the objects only: as long as the
    /// identity of this management cluster is not known, all slices count as its own.
    pub(super) fn counts(&self) -> BlockStatus {
        let others = match self.supply.others {
            Some(others) => i64::try_from(others).unwrap_or(i64::MAX),
            None => self.recorded_others,
        };
        let mut counts = BlockStatus {
            others,
            ..BlockStatus::default()
        };
        for (block, slice) in &self.slices {
            let Some(cluster) = &slice.cluster else {
                continue;
            };
            if !self.ours.ids.is_empty() && !self.ours.ids.contains(cluster) {
                continue;
            }
            counts.held = counts.held.saturating_add(1);
            if slice.conflict.is_some() {
                counts.conflicts = counts.conflicts.saturating_add(1);
            }
            if slice.may_be_usable() && !self.usage.is_used(*block) {
                counts.spare = counts.spare.saturating_add(1);
            }
        }
        counts
    }
}

/// The registry through which a network shares blocks.
fn registry(rules: Option<&BlockRules>) -> Option<&str> {
    let rules = rules?;
    Some(&rules.registry)
}
