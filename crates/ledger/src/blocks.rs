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
use capi_ipam_protocol::block::Compared;

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

/// The identities of this management cluster, by registry.
#[derive(Default)]
pub(super) struct ManagementClusters {
    ids: BTreeMap<String, Arc<str>>,
    /// The registries in which another cluster writes with the identity of this one.
    suspended: BTreeSet<String>,
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

    /// Forgets the identities.
    pub(super) fn forget(&mut self) {
        self.ids.clear();
    }

    fn usable_id_in(&self, registry: &str) -> Option<&Arc<str>> {
        if self.suspended.contains(registry) {
            return None;
        }
        self.id_in(registry)
    }

    /// The identities whose slices in a network are ours: the one in the registry of the network,
    /// once it is known. All of them if the network shares no blocks any more.
    pub(super) fn of(&self, rules: Option<&BlockRules>) -> BTreeSet<Arc<str>> {
        match rules {
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
        }
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
    /// The identities of this management cluster: its slices are ours.
    ours: BTreeSet<Arc<str>>,
    slices: BTreeMap<Block, BlockInfo>,
    /// What other management clusters exclude, as the status of the network contains it.
    recorded_exclusions: Vec<String>,
    /// The number of their blocks, as the status of the network contains it.
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
        ours: BTreeSet<Arc<str>>,
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

    /// Records what the status of the network contains of other management clusters: what they exclude,
    /// and the number of their blocks.
    pub(super) fn set_recorded(&mut self, exclusions: Vec<String>, others: i64) {
        self.recorded_exclusions = exclusions;
        self.recorded_others = others;
    }

    /// Forgets that slices were compared with their records.
    pub(super) fn forget_comparisons(&mut self) {
        for slice in self.slices.values_mut() {
            slice.compared = Compared::default();
        }
    }

    /// Replaces the identities of this management cluster.
    pub(super) fn set_ours(&mut self, ours: BTreeSet<Arc<str>>) -> Affected {
        if self.ours == ours {
            return Affected::Nothing;
        }
        self.ours = ours;
        if self.slices.is_empty() {
            Affected::Nothing
        } else {
            Affected::All
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
    pub(super) fn is_usable(&self, slice: &BlockInfo) -> bool {
        let is_ours = match &slice.cluster {
            Some(cluster) => self.ours.contains(cluster),
            None => false,
        };
        // The registry of the network has not confirmed the block of another one.
        let is_of_registry = match (&self.rules, &slice.registry) {
            (Some(rules), Some(named)) => rules.registry == **named,
            _ => true,
        };
        is_ours && is_of_registry && slice.compared.is_done() && slice.may_be_usable()
    }

    /// Whether the slice of a block is usable; `None` without a slice.
    fn usability(&self, block: Block) -> Option<bool> {
        let slice = self.slices.get(&block)?;
        Some(self.is_usable(slice))
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
            if self.is_usable(slice) {
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

    /// The blocks with a slice that overlap with a block.
    pub(super) fn slices_overlapping(&self, block: Block) -> impl Iterator<Item = Block> {
        let last = Block::new(
            block.family().address(block.span().last()),
            block.family().bits(),
        );
        let within = self.slices.range(block..=last);
        let within = within.map(|(within, _)| *within);
        // The block itself is within.
        let larger = self
            .slices_containing(block)
            .filter(move |larger| *larger != block);
        larger.chain(within.filter(move |within| within.overlaps(block)))
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
        let excluded = match &self.supply.excluded {
            Some(excluded) => excluded.clone(),
            None => self.recorded_exclusions.clone(),
        };
        let others = match self.supply.others {
            Some(others) => i64::try_from(others).unwrap_or(i64::MAX),
            None => self.recorded_others,
        };
        let mut counts = BlockStatus {
            others,
            excluded,
            ..BlockStatus::default()
        };
        for (block, slice) in &self.slices {
            let Some(cluster) = &slice.cluster else {
                continue;
            };
            if !self.ours.is_empty() && !self.ours.contains(cluster) {
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
