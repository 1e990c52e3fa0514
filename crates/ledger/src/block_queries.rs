//! The blocks that networks share with other management clusters: queries of the ledger.

use std::collections::BTreeMap;
use std::sync::Arc;

use capi_ipam_api::{BlockLengths, BlockRules, BlockStatus, Scope, Slot};
use capi_ipam_ip::{Block, Family, Span, SpanSet};

use super::addresses::ScopeEntry;
use super::block_supply::BlockSupply;
use super::blocks::{BlockInfo, BlockSlice, Blocks};
use super::pools::PoolEntry;
use super::{Ledger, PoolKey};

/// The state of the blocks that a network shares with other management clusters. By default, that
/// of a network that shares none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkBlocks {
    /// The shared blocks of the specification. `None` if it shares none any more, or if the network
    /// does not exist: slices are left. Those of the last valid specification if it is not valid.
    pub rules: Option<BlockRules>,
    /// The lengths of the blocks, by family; none before the network is initialized, or if a block
    /// is larger than the address space.
    pub lengths: BlockLengths,
    /// The blocks with a slice, and those with an address that is not free, in ascending order.
    pub blocks: Vec<BlockView>,
    /// The pools of the network that could allocate, in order.
    pub members: Vec<BlockMember>,
    /// The counts for the status of the network.
    pub counts: BlockStatus,
    /// What the registry has for the network, as last recorded.
    pub supply: BlockSupply,
}

/// The state of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockView {
    /// The addresses of the block.
    pub block: Block,
    /// Its slice.
    pub slice: Option<BlockSlice>,
    /// Whether an address of it is not free: it has an IPAddress or a reservation of any kind, or
    /// one is being created.
    pub is_used: bool,
}

/// A pool of a network that shares blocks, which could allocate: it is valid, neither paused nor
/// being deleted, and the length of its blocks is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockMember {
    /// The pool.
    pub pool: PoolKey,
    /// Its family.
    pub family: Family,
    /// The length of the blocks of the network in this family.
    pub length: u8,
    /// What the pool could allocate if this management cluster had all blocks, as numbers of
    /// addresses.
    pub ranges: SpanSet,
    /// Whether a claim waits for any address, and none is free for it.
    pub waits: bool,
    /// Whether a claim waits for any address although some are free: these are the headroom of the
    /// pool, or for other claims. So it needs another block, also if an unused one is usable.
    pub needs_further_block: bool,
    /// The number of claims that have waited, and are about to get one of the free addresses.
    pub turns: usize,
    /// Whether the next claim needs another block.
    pub is_full: bool,
    /// The addresses outside of usable blocks that waiting claims request.
    pub requested: Vec<Block>,
}

impl Ledger {
    /// The networks that share blocks with other management clusters, and those whose blocks still
    /// have slices, in order.
    pub fn networks_with_blocks(&self) -> Vec<Arc<str>> {
        let networks = self.networks.with_blocks();
        let mut names: Vec<Arc<str>> = networks.map(|(network, _)| network.clone()).collect();
        names.sort_unstable();
        names
    }

    /// Whether the registry shows another user of the block of an address, or no record of it, and
    /// the slice of the block does not say so yet: a process that starts without the registry would
    /// use the block.
    pub fn is_in_unmarked_conflict(&self, network: &str, address: Block) -> bool {
        let mut slices = self.slices_of_address(network, address);
        slices.any(BlockInfo::has_unmarked_conflict)
    }

    /// The registry in which another management cluster reports that it uses an address; `None` if
    /// the scope shares no blocks.
    pub fn registry_of_address(&self, slot: &Slot) -> Option<String> {
        let Scope::Network(network) = &slot.scope else {
            return None;
        };
        let mut slices = self.slices_of_address(network, slot.block);
        let named = slices.find_map(|known| self.networks.registry_of(&known.slice));
        let shared = self.networks.blocks(network).and_then(Blocks::rules);
        let shared = shared.map(|rules| &*rules.registry);
        named.or(shared).map(str::to_owned)
    }

    /// The networks that share blocks through a registry, and those with blocks of it that are not
    /// returned yet, in order.
    pub fn networks_of_registry(&self, registry: &str) -> Vec<String> {
        let networks = &self.networks;
        let is_of_registry = |known: &BlockInfo| {
            let slice = &known.slice;
            networks.may_be_own(slice, registry) && networks.may_be_of_registry(slice, registry)
        };
        let mut names = Vec::new();
        for (network, blocks) in networks.with_blocks() {
            let is_in_use = match blocks.rules() {
                Some(rules) => rules.registry == registry,
                None => blocks.slices().values().any(is_of_registry),
            };
            if is_in_use {
                names.push(network.to_string());
            }
        }
        names.sort_unstable();
        names
    }

    /// How many IPSlices of blocks of a network name another registry that exists: these blocks
    /// have to be returned to it. The first of these registries by name, if there are several.
    pub fn blocks_of_other_registry(
        &self,
        network: &str,
        registry: &str,
    ) -> Option<(String, usize)> {
        let blocks = self.networks.blocks(network)?;
        let mut counts = BTreeMap::new();
        for known in blocks.slices().values() {
            if let Some(named) = self.networks.registry_of(&known.slice)
                && named != registry
                && self.networks.may_be_own(&known.slice, named)
            {
                *counts.entry(named.to_owned()).or_insert(0_usize) += 1;
            }
        }
        counts.pop_first()
    }

    /// Whether a network shares blocks, and it is not known yet which of them are those of this
    /// management cluster: none is usable, and the counts of its pools are too low. False if its
    /// registry does not exist.
    pub fn awaits_identity(&self, network: &str) -> bool {
        let rules = self.networks.blocks(network).and_then(Blocks::rules);
        rules.is_some_and(|rules| {
            let is_known = self.networks.clusters.id_in(&rules.registry).is_some();
            !is_known && !self.lacks_registry(&rules.registry)
        })
    }

    /// Whether the record of the block of a slice can be in a registry.
    pub fn may_be_of_registry(&self, slice: &BlockSlice, registry: &str) -> bool {
        self.networks.may_be_of_registry(slice, registry)
    }

    /// Whether there is no IPRegistry of this name. False before all are listed.
    pub fn lacks_registry(&self, name: &str) -> bool {
        self.networks.registries.lacks(name)
    }

    /// The state of the shared blocks of a network; `None` if it shares none, and none has a slice.
    pub fn network_blocks(&self, network: &str) -> Option<NetworkBlocks> {
        let blocks = self.networks.blocks(network)?;
        let lengths = blocks.lengths();
        let empty = ScopeEntry::default();
        let scope = self.addresses.scope(&Scope::Network(network.into()));
        let scope = scope.unwrap_or(&empty);
        let mut views = Vec::new();
        for block in blocks.all(&scope.usage) {
            let known = blocks.slices().get(&block);
            views.push(BlockView {
                block,
                slice: known.map(|known| self.block_slice(known)),
                is_used: scope.usage.has_address_in(block),
            });
        }
        let mut members = Vec::new();
        for pool in &scope.members {
            if let Some(entry) = self.pools.get(pool) {
                members.extend(BlockMember::of(pool, entry, lengths));
            }
        }
        Some(NetworkBlocks {
            rules: blocks.rules().cloned(),
            lengths,
            blocks: views,
            members,
            counts: blocks.counts(&scope.usage),
            supply: blocks.supply.clone(),
        })
    }

    /// The slice of a block of a network.
    pub fn slice_of_block(&self, network: &str, block: Block) -> Option<BlockSlice> {
        let known = self.networks.blocks(network)?.slices().get(&block)?;
        Some(self.block_slice(known))
    }

    fn block_slice(&self, known: &BlockInfo) -> BlockSlice {
        let version = self.slice_versions.precondition(known.stamp);
        BlockSlice {
            version: version.to_string(),
            ..known.slice.clone()
        }
    }

    /// Whether an address of a block of a network is not free. True before the initial lists are
    /// complete.
    pub fn is_block_used(&self, network: &str, block: Block) -> bool {
        let is_known = self.start.is_complete();
        !is_known || self.has_address_in(&Scope::Network(network.into()), block)
    }

    /// How many IPAddresses of a pool have an address that it contains, in a block of its network
    /// that is not usable, such as one that another management cluster uses as well. They count as
    /// out of range.
    pub(super) fn in_unusable_blocks(&self, pool: &PoolKey) -> usize {
        let Some(entry) = self.pools.get(pool) else {
            return 0;
        };
        let (Some(allowed), Some(usable)) = (entry.allowed_blocks(), entry.usable()) else {
            return 0;
        };
        if entry.counts().out_of_range == 0 || !entry.shares_blocks() {
            return 0;
        }
        let Some(entry) = self.addresses.scope(&entry.scope(pool)) else {
            return 0;
        };
        let mut count = 0;
        for span in allowed.set.subtract(&usable.set).spans() {
            let (first, last) = (allowed.block(span.first()), allowed.block(span.last()));
            for (block, usage) in entry.usage.between(first, last) {
                let is_unusable = allowed.contains(block) && !usable.contains(block);
                if is_unusable && usage.has_address_of(pool) {
                    count += 1;
                }
            }
        }
        count
    }

    /// Whether the pools of a network may allocate all addresses of a block of any size. True in a
    /// network that shares no blocks.
    pub fn is_block_usable(&self, network: &str, block: Block) -> bool {
        let Some(exclusions) = self.networks.exclusions.get(network) else {
            return true;
        };
        match exclusions.unusable(block.family()) {
            Some(unusable) => !unusable.overlaps(block.span()),
            None => true,
        }
    }

    /// The blocks of a network with a slice that contain an address or a prefix, the smallest
    /// first. None if the network shares no blocks.
    pub fn slices_containing(&self, network: &str, address: Block) -> Vec<Block> {
        match self.networks.blocks(network) {
            Some(blocks) => blocks.slices_containing(address).collect(),
            None => Vec::new(),
        }
    }

    /// The slices that contain an address or a prefix.
    fn slices_of_address(&self, network: &str, address: Block) -> impl Iterator<Item = &BlockInfo> {
        let blocks = self.networks.blocks(network).into_iter();
        blocks.flat_map(move |blocks| {
            let containing = blocks.slices_containing(address);
            containing.filter_map(|block| blocks.slices().get(&block))
        })
    }
}

impl BlockMember {
    fn of(pool: &PoolKey, entry: &PoolEntry, lengths: BlockLengths) -> Option<Self> {
        let allowed = entry.allowed_blocks().filter(|_| entry.can_allocate())?;
        let mut ranges = Vec::new();
        for span in allowed.allocatable().spans() {
            let first = allowed.block(span.first()).span().first();
            let last = allowed.block(span.last()).span().last();
            ranges.extend(Span::new(first, last));
        }
        Some(Self {
            pool: pool.clone(),
            family: allowed.family,
            length: lengths.of(allowed.family)?,
            ranges: ranges.into_iter().collect(),
            waits: entry.lacks_addresses(),
            needs_further_block: entry.waits_beside_free_addresses(),
            turns: entry.wait_queue.turns(),
            is_full: entry.needs_block(),
            requested: entry.requests_in_missing_blocks(),
        })
    }
}
