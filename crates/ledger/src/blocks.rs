//! The blocks of a network that several management clusters share: a structure without clock, lock
//! or I/O.
//!
//! If the specification of a network shares blocks, or if one of its blocks has a slice, its pools
//! allocate only addresses in usable blocks. Which blocks are usable depends on the slices, and on
//! what the registry has shown of their records: not on whether it can be reached, and not on the
//! network, whose object may be missing or invalid.

mod slice;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use capi_ipam_api::{BlockLengths, BlockRules, BlockStatus};
use capi_ipam_ip::{Block, Family, Span, SpanSet};

use super::addresses::UsageMap;
use super::block_supply::BlockSupply;

pub(super) use self::slice::BlockInfo;
pub use self::slice::BlockSlice;

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

/// What is known of this management cluster in each registry.
#[derive(Clone, Default)]
pub(super) struct ManagementClusters(BTreeMap<String, ManagementCluster>);

/// What is known of this management cluster in a registry.
#[derive(Clone, Default)]
pub(super) struct ManagementCluster {
    /// Its identity, once it is known.
    pub(super) id: Option<Arc<str>>,
    /// Whether another cluster writes with the identity of this one.
    pub(super) is_suspended: bool,
    /// The blocks of networks of which the registry shows that only this management cluster uses
    /// them. `None` if the registry was not listed.
    pub(super) recorded: Option<BTreeSet<(Arc<str>, Block)>>,
}

/// Which slices of a network are those of this management cluster, and of which blocks it may use
/// addresses.
pub(super) struct Ours<'a> {
    clusters: &'a ManagementClusters,
    network: &'a Arc<str>,
    /// The registry of the network; `None` if it shares no blocks.
    registry: Option<&'a str>,
    ids: Vec<&'a Arc<str>>,
}

impl ManagementClusters {
    /// The identity in a registry, once it is known.
    pub(super) fn id_in(&self, registry: &str) -> Option<&Arc<str>> {
        self.0.get(registry)?.id.as_ref()
    }

    /// What is known in a registry.
    pub(super) fn entry(&mut self, registry: &str) -> &mut ManagementCluster {
        self.0.entry(registry.to_owned()).or_default()
    }

    /// Which slices of a network are ours: those with the identity in the registry of the network,
    /// once it is known; with any identity if the network shares no blocks any more.
    pub(super) fn of<'a>(
        &'a self,
        network: &'a Arc<str>,
        rules: Option<&'a BlockRules>,
    ) -> Ours<'a> {
        let registry = rules.map(|rules| &*rules.registry);
        let mut ids = Vec::new();
        for (name, cluster) in &self.0 {
            let is_of_network = registry.is_none_or(|registry| registry == name);
            if is_of_network && !cluster.is_suspended {
                ids.extend(&cluster.id);
            }
        }
        Ours {
            clusters: self,
            network,
            registry,
            ids,
        }
    }
}

impl Ours<'_> {
    /// Whether a slice is one of this management cluster.
    fn has(&self, slice: &BlockSlice) -> bool {
        slice.is_valid && self.ids.contains(&&slice.cluster)
    }

    /// Whether the registry of a block shows no other user of it, as far as it is known. A registry
    /// that was not listed shows none.
    fn may_use(&self, block: Block, slice: &BlockSlice) -> bool {
        let named = slice.registry.as_deref();
        if let (Some(registry), Some(named)) = (self.registry, named)
            && registry != named
        {
            // The registry of the network has not confirmed the block of another one.
            return false;
        }
        let Some(registry) = self.registry.or(named) else {
            return true;
        };
        match self.clusters.0.get(registry) {
            Some(ManagementCluster {
                recorded: Some(recorded),
                ..
            }) => recorded.contains(&(Arc::clone(self.network), block)),
            _ => true,
        }
    }
}

/// The blocks of one network.
#[derive(Clone, Default)]
pub(super) struct Blocks {
    /// The shared blocks of the specification. Those of the last valid one, as long as the
    /// specification is not valid.
    rules: Option<BlockRules>,
    /// The lengths of what the pools of the network allocate.
    lengths: BlockLengths,
    slices: BTreeMap<Block, BlockInfo>,
    /// What the registry has for the network.
    pub(super) supply: BlockSupply,
}

impl Blocks {
    /// Whether the network neither shares blocks nor has slices. If not, its pools allocate only
    /// addresses of usable blocks.
    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_none() && self.slices.is_empty()
    }

    /// The shared blocks of the specification.
    pub(super) fn rules(&self) -> Option<&BlockRules> {
        self.rules.as_ref()
    }

    /// Whether the specification shares blocks through this registry.
    pub(super) fn are_of(&self, registry: &str) -> bool {
        let rules = self.rules.as_ref();
        rules.is_some_and(|rules| rules.registry == registry)
    }

    /// Replaces the shared blocks of the specification, and the lengths of what the pools allocate.
    pub(super) fn set_rules(
        &mut self,
        rules: Option<BlockRules>,
        lengths: BlockLengths,
        network: &Arc<str>,
        clusters: &ManagementClusters,
    ) -> Affected {
        let was_empty = self.is_empty();
        self.rules = rules;
        self.lengths = lengths;
        let affected = self.refresh(network, clusters);
        self.end_change(was_empty, affected)
    }

    /// Finds out which slices are usable, after a change of what is known of this management
    /// cluster.
    pub(super) fn refresh(
        &mut self,
        network: &Arc<str>,
        clusters: &ManagementClusters,
    ) -> Affected {
        let ours = clusters.of(network, self.rules.as_ref());
        let mut affected = Affected::Nothing;
        for (block, slice) in &mut self.slices {
            if slice.refresh(*block, &ours) {
                affected = match affected {
                    Affected::Nothing => Affected::Block(*block),
                    Affected::Block(_) | Affected::All => Affected::All,
                };
            }
        }
        affected
    }

    /// Replaces the slice of a block; `None` removes it.
    pub(super) fn set_slice(
        &mut self,
        block: Block,
        slice: Option<BlockInfo>,
        network: &Arc<str>,
        clusters: &ManagementClusters,
    ) -> Affected {
        let was_empty = self.is_empty();
        let is_usable = |known: &BlockInfo| known.slice.is_usable;
        let before = self.slices.get(&block).map(is_usable);
        let mut after = None;
        if let Some(mut slice) = slice {
            slice.refresh(block, &clusters.of(network, self.rules.as_ref()));
            after = Some(is_usable(&slice));
            self.slices.insert(block, slice);
        } else {
            self.slices.remove(&block);
        }
        // Also a slice that is not usable affects the pools: others can overlap with it.
        let affected = if before == after {
            Affected::Nothing
        } else {
            Affected::Block(block)
        };
        self.end_change(was_empty, affected)
    }

    /// What a change affects in total.
    fn end_change(&self, was_empty: bool, affected: Affected) -> Affected {
        if self.is_empty() == was_empty {
            affected
        } else {
            Affected::All
        }
    }

    /// The slices, by their blocks.
    pub(super) fn slices(&self) -> &BTreeMap<Block, BlockInfo> {
        &self.slices
    }

    /// The numbers of the addresses that no pool of the network allocates: those outside of usable
    /// blocks. `None` if all can be allocated.
    pub(super) fn unusable(&self, family: Family) -> Option<SpanSet> {
        if self.is_empty() {
            return None;
        }
        let mut usable = Vec::new();
        let mut unusable = Vec::new();
        for (block, known) in &self.slices {
            if block.family() != family {
                continue;
            }
            if known.slice.is_usable {
                usable.push(block.span());
            } else {
                unusable.push(block.span());
            }
        }
        let all = SpanSet::from_iter(Span::new(0, family.last()));
        let outside = all.subtract(&usable.into_iter().collect());
        // Slices can overlap after a change of the size: a block that is not usable is not usable
        // as a part of another one either.
        Some(SpanSet::from_iter([
            &outside,
            &unusable.into_iter().collect(),
        ]))
    }

    /// The lengths of the blocks, by family; none if it is not known, or if a block is larger than
    /// the address space.
    pub(super) fn lengths(&self) -> BlockLengths {
        let mut lengths = BlockLengths::default();
        let Some(rules) = &self.rules else {
            return lengths;
        };
        for family in [Family::V4, Family::V6] {
            let length = self.lengths.of(family).map(u32::from);
            let length = length.and_then(|length| length.checked_sub(rules.shift));
            if let Some(Ok(length)) = length.map(u8::try_from) {
                lengths.set(family, length);
            }
        }
        lengths
    }

    /// The blocks with a slice that contain an address or a prefix, the smallest first. There can
    /// be several after a change of the size.
    pub(super) fn slices_containing(&self, address: Block) -> impl Iterator<Item = Block> {
        let lengths = (0..=address.length()).rev();
        let blocks = lengths.map(move |length| Block::new(address.base(), length));
        blocks.filter(|block| self.slices.contains_key(block))
    }

    /// The blocks with a slice, and those with an address that is not free, in ascending order. A
    /// reservation of more than one block counts only for blocks with a slice, and so does an
    /// address if the length of the blocks is not known.
    pub(super) fn all(&self, usage: &UsageMap) -> BTreeSet<Block> {
        let mut blocks: BTreeSet<Block> = self.slices.keys().copied().collect();
        let lengths = self.lengths();
        for family in [Family::V4, Family::V6] {
            if let Some(length) = lengths.of(family) {
                blocks.extend(usage.blocks_in_use(family, length));
            }
        }
        blocks
    }

    /// The counts for the status of the network. They depend on the objects only: as long as the
    /// identity of this management cluster is not known, all slices count as its own. `others` is
    /// what the registry shows.
    pub(super) fn counts(&self, usage: &UsageMap) -> BlockStatus {
        let others = self.supply.others.unwrap_or_default();
        let mut counts = BlockStatus {
            others: i64::try_from(others).unwrap_or(i64::MAX),
            ..BlockStatus::default()
        };
        for (block, known) in &self.slices {
            if !known.is_counted {
                continue;
            }
            counts.held += 1;
            if known.slice.conflict.is_some() {
                counts.conflicts += 1;
            }
            if known.slice.may_be_usable() && !usage.has_address_in(*block) {
                counts.spare += 1;
            }
        }
        counts
    }
}
