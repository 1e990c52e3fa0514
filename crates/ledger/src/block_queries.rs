//! The blocks that networks share with other management clusters: queries of the ledger.

use std::collections::BTreeMap;
use std::sync::Arc;

use capi_ipam_api::{BlockLengths, BlockRules, Scope};
use capi_ipam_ip::{Block, Family, Span, SpanSet, UsableBlocks};

use super::blocks::{BlockInfo, Blocks};
use super::pool::PoolEntry;
use super::{Ledger, PoolKey};

/// The state of the blocks that a network shares with other management clusters. By default, that of
/// a network that shares none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkBlocks {
    /// The shared blocks of the specification. `None` if it shares none any more, or if the network
    /// does not exist: slices are left. Those of the last valid specification if it is not valid.
    pub rules: Option<BlockRules>,
    /// The lengths of the blocks, by family; none before the network is initialized, or if a block
    /// is larger than the address space.
    pub lengths: BlockLengths,
    /// Whether the initial lists of pools, networks and slices are complete.
    pub is_complete: bool,
    /// The blocks with a slice, and those with an address that is not free, in ascending order.
    pub blocks: Vec<BlockView>,
    /// The pools of the network, in order.
    pub members: Vec<BlockMember>,
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
    /// The number of its addresses that pools of the network could allocate now.
    pub free: u128,
}

/// The slice of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockSlice {
    /// The uid of the IPSlice.
    pub uid: String,
    /// The latest observed resource version of the IPSlice.
    pub version: String,
    /// The management cluster that owns it; empty if the object is not valid.
    pub cluster: Arc<str>,
    /// The registry that has the record of the block; `None` if the object does not name it.
    pub registry: Option<Arc<str>>,
    /// Whether the object is a valid slice.
    pub is_valid: bool,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// Whether [`Ledger::begin_block_return`] was called for it.
    pub is_returning: bool,
    /// Whether addresses of the block are allocated.
    pub is_usable: bool,
    /// When it was created for a take, in seconds since the Unix epoch.
    pub assigned_at: Option<i64>,
    /// When the registry confirmed the block, in seconds since the Unix epoch.
    pub confirmed_at: Option<i64>,
    /// Another management cluster that uses the block.
    pub conflict: Option<Arc<str>>,
    /// Since when no address of it is in use, in seconds since the Unix epoch.
    pub empty_since: Option<i64>,
}

/// A pool of a network that shares blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockMember {
    /// The pool.
    pub pool: PoolKey,
    /// The length of the blocks of its family; `None` if it is not known, or if the pool is not
    /// valid.
    pub length: Option<u8>,
    /// What the pool could allocate if this management cluster had all blocks; `None` if the pool
    /// is not valid.
    pub allowed: Option<Arc<UsableBlocks>>,
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
    /// Whether the pool could allocate: it is valid, and neither paused nor being deleted.
    pub can_allocate: bool,
}

impl BlockMember {
    /// The blocks with an address that the pool could allocate, in ascending order. They are
    /// computed one by one: there can be more of them than fit into memory.
    pub fn blocks(&self) -> impl Iterator<Item = Block> + '_ {
        let spans = self.numbers_of_blocks();
        let spans = spans.spans().to_vec();
        let numbers = spans
            .into_iter()
            .flat_map(|span| span.first()..=span.last());
        numbers.filter_map(|number| self.block(number))
    }

    /// Whether the pool could allocate an address of a block.
    pub fn uses(&self, block: Block) -> bool {
        let Some(allowed) = &self.allowed else {
            return false;
        };
        match allowed.numbers_overlapping(block) {
            Some(numbers) => !allowed
                .allocatable()
                .intersect(&SpanSet::from(numbers))
                .is_empty(),
            None => false,
        }
    }

    /// The numbers of the blocks: each is that of the first address without the host bits.
    fn numbers_of_blocks(&self) -> SpanSet {
        let (Some(allowed), Some(length)) = (&self.allowed, self.length) else {
            return SpanSet::default();
        };
        let shift = u32::from(allowed.length.saturating_sub(length));
        let number = |number: u128| number.checked_shr(shift).unwrap_or_default();
        let of_span = |span: &Span| Span::new(number(span.first()), number(span.last()));
        let addresses = allowed.allocatable();
        addresses.spans().iter().filter_map(of_span).collect()
    }

    /// The block with a number.
    fn block(&self, number: u128) -> Option<Block> {
        let family = self.allowed.as_ref()?.family;
        let length = self.length?;
        let host_bits = u32::from(family.bits().saturating_sub(length));
        let first = number.checked_shl(host_bits).unwrap_or_default();
        Some(Block::new(family.address(first), length))
    }
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

    /// Whether the registry shows another user of the block of an address, or no record of it, and the slice
    /// of the block does not say so yet: a process that starts without the registry would use the block.
    pub fn is_in_unmarked_conflict(&self, network: &str, address: Block) -> bool {
        let Some(blocks) = self.networks.blocks(network) else {
            return false;
        };
        let mut slices = blocks.slices_containing(address);
        slices.any(|block| blocks.has_unmarked_conflict(block))
    }

    /// The registry in which another management cluster reports that it uses an address of a network;
    /// `None` if the network shares no blocks.
    pub fn registry_of_address(&self, network: &str, address: Block) -> Option<String> {
        let blocks = self.networks.blocks(network)?;
        for block in blocks.slices_containing(address) {
            let named = blocks.slices().get(&block)?.registry.as_deref();
            if let Some(named) = named.filter(|named| !self.lacks_registry(named)) {
                return Some(named.to_owned());
            }
        }
        Some(blocks.rules()?.registry.clone())
    }

    /// The networks that share blocks through a registry, and those with blocks of it that are not
    /// returned yet, in order.
    pub fn networks_of_registry(&self, registry: &str) -> Vec<String> {
        let mut names = Vec::new();
        for network in self.networks.of_registry(registry) {
            names.push(network.to_string());
        }
        names.sort_unstable();
        names
    }

    /// How many IPSlices of blocks of a network name another registry that exists: these blocks have to
    /// be returned to it. The first of these registries by name, if there are several.
    pub fn blocks_of_other_registry(
        &self,
        network: &str,
        registry: &str,
    ) -> Option<(String, usize)> {
        let blocks = self.networks.blocks(network)?;
        let mut counts = BTreeMap::new();
        for slice in blocks.slices().values() {
            if let Some(named) = &slice.registry
                && **named != *registry
                && self.networks.is_to_be_returned(slice, named)
            {
                *counts.entry(named.to_string()).or_insert(0_usize) += 1;
            }
        }
        counts.pop_first()
    }

    /// Whether a network shares blocks, and it is not known yet which of them are those of this
    /// management cluster: none is usable, and the counts of its pools are too low. False if its
    /// registry does not exist.
    pub fn awaits_identity(&self, network: &str) -> bool {
        let rules = self.networks.blocks(network).and_then(Blocks::rules);
        match rules {
            Some(rules) => {
                let is_known = self.networks.management_cluster(&rules.registry).is_some();
                !is_known && !self.lacks_registry(&rules.registry)
            }
            None => false,
        }
    }

    /// As [`Self::awaits_identity`], for the network of a pool.
    pub fn pool_awaits_identity(&self, pool: &PoolKey) -> bool {
        match self.pools.get(pool).map(|entry| entry.scope(pool)) {
            Some(Scope::Network(network)) => self.awaits_identity(&network),
            _ => false,
        }
    }

    /// Whether the record of a block whose slice names this registry, or none, can be in `registry`.
    pub fn may_be_of_registry(&self, named: Option<&str>, registry: &str) -> bool {
        self.networks.may_be_of_registry(named, registry)
    }

    /// Whether there is no IPRegistry of this name. False before all are listed.
    pub fn lacks_registry(&self, name: &str) -> bool {
        self.networks.registries.lacks(name)
    }

    /// The length of the blocks that a network shares; `None` if it shares none, or if the length is
    /// not known yet.
    pub fn shared_block_length(&self, network: &str, family: Family) -> Option<u8> {
        self.networks.blocks(network)?.length(family)
    }

    /// The state of the shared blocks of a network; `None` if it shares none, and none has a slice.
    pub fn network_blocks(&self, network: &str) -> Option<NetworkBlocks> {
        let blocks = self.networks.blocks(network)?;
        let mut lengths = BlockLengths::default();
        for family in [Family::V4, Family::V6] {
            if let Some(length) = blocks.length(family) {
                lengths.set(family, length);
            }
        }
        let members = self.members(network);
        let free = FreeNumbers {
            v4: self.free_numbers(&members, Family::V4),
            v6: self.free_numbers(&members, Family::V6),
        };
        let mut views = Vec::new();
        for block in blocks.all() {
            views.push(self.block_view(blocks, block, &free));
        }
        Some(NetworkBlocks {
            rules: blocks.rules().cloned(),
            lengths,
            is_complete: self.start.is_complete(),
            blocks: views,
            members: self.block_members(blocks, &members),
        })
    }

    /// The slice of a block of a network.
    pub fn slice_of_block(&self, network: &str, block: Block) -> Option<BlockSlice> {
        let blocks = self.networks.blocks(network)?;
        let slice = blocks.slices().get(&block)?;
        Some(self.block_slice(blocks, block, slice))
    }

    /// Whether an address of a block of a network is not free. True if this is not known. In a network
    /// that shares no blocks and has no slices of them, this takes linear time: they are not counted.
    pub fn is_block_used(&self, network: &str, block: Block) -> bool {
        if let Some(blocks) = self.networks.blocks(network) {
            return blocks.usage.is_used(block);
        }
        let scope = Scope::Network(network.into());
        let mut addresses = self.usage_in(&scope);
        !self.start.is_complete() || addresses.any(|(address, _)| block.overlaps(address))
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

    /// The blocks of a network with a slice that contain an address or a prefix, the smallest first.
    /// None if the network shares no blocks.
    pub fn slices_containing(&self, network: &str, address: Block) -> Vec<Block> {
        match self.networks.blocks(network) {
            Some(blocks) => blocks.slices_containing(address).collect(),
            None => Vec::new(),
        }
    }

    fn block_view(&self, blocks: &Blocks, block: Block, free: &FreeNumbers) -> BlockView {
        let slice = blocks.slices().get(&block);
        BlockView {
            block,
            slice: slice.map(|slice| self.block_slice(blocks, block, slice)),
            is_used: blocks.usage.is_used(block),
            free: free.count_in(block),
        }
    }

    fn block_slice(&self, blocks: &Blocks, block: Block, slice: &BlockInfo) -> BlockSlice {
        let version = self.slice_versions.precondition(slice.stamp);
        BlockSlice {
            uid: slice.uid.to_string(),
            version: version.to_string(),
            cluster: slice.cluster.clone().unwrap_or_default(),
            registry: slice.registry.clone(),
            is_valid: slice.cluster.is_some(),
            is_deleting: slice.is_deleting,
            is_returning: slice.is_returning,
            is_usable: blocks.is_usable(block, slice),
            assigned_at: slice.assigned_at,
            confirmed_at: slice.confirmed_at,
            conflict: slice.conflict.clone(),
            empty_since: slice.empty_since,
        }
    }

    fn block_members(&self, blocks: &Blocks, members: &[PoolKey]) -> Vec<BlockMember> {
        let mut found = Vec::new();
        for pool in members {
            let Some(entry) = self.pools.get(pool) else {
                continue;
            };
            let allowed = entry.allowed_blocks();
            let length = match &allowed {
                Some(allowed) => blocks.length(allowed.family),
                None => None,
            };
            found.push(BlockMember {
                pool: pool.clone(),
                length,
                waits: entry.lacks_addresses(),
                needs_further_block: entry.waits_beside_free_addresses(),
                turns: entry.wait_queue.turns(),
                is_full: entry.needs_block(),
                requested: entry.requests_in_missing_blocks(),
                can_allocate: entry.can_allocate(),
                allowed,
            });
        }
        found
    }

    /// The numbers that some pools could allocate now.
    fn free_numbers(&self, pools: &[PoolKey], family: Family) -> Option<Numbers> {
        let mut usable = None;
        let mut spans = Vec::new();
        for pool in pools {
            let Some(entry) = self.pools.get(pool) else {
                continue;
            };
            let Some(blocks) = entry.shared_usable() else {
                continue;
            };
            // All pools of a family have the same length, and so the same numbers.
            if blocks.family == family && entry.can_allocate() {
                entry.add_free_numbers(&mut spans);
                usable = Some(Arc::clone(blocks));
            }
        }
        Some(Numbers {
            usable: usable?,
            set: spans.into_iter().collect(),
        })
    }
}

/// The free numbers of all pools of a network.
struct FreeNumbers {
    v4: Option<Numbers>,
    v6: Option<Numbers>,
}

/// Some numbers of a family.
struct Numbers {
    /// The blocks of a pool that has these numbers.
    usable: Arc<UsableBlocks>,
    set: SpanSet,
}

impl FreeNumbers {
    /// How many of the numbers are in a block.
    fn count_in(&self, block: Block) -> u128 {
        let numbers = match block.family() {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        };
        let Some(numbers) = numbers else { return 0 };
        let Some(within) = numbers.usable.numbers_overlapping(block) else {
            return 0;
        };
        let spans = numbers.set.spans();
        let before = spans.partition_point(|span| span.last() < within.first());
        let mut count = 0_u128;
        for span in spans.iter().skip(before) {
            let first = span.first().max(within.first());
            let last = span.last().min(within.last());
            match Span::new(first, last) {
                Some(shared) => count = count.saturating_add(shared.len()),
                None => break,
            }
        }
        count
    }
}

impl PoolEntry {
    /// Whether a claim waits for any address, and none is free for it.
    fn lacks_addresses(&self) -> bool {
        if !self.can_allocate() {
            return false;
        }
        let mut owners = self.wait_queue.blocked_owners();
        let lacks_slice = match &self.slices {
            Some(slices) => owners.any(|owner| slices.lacks_addresses(owner)),
            None => false,
        };
        lacks_slice || self.wait_queue.waits_for_any()
    }

    /// Whether a claim waits for any address although some are free.
    fn waits_beside_free_addresses(&self) -> bool {
        self.free_count() > 0 && self.wait_queue.waits_for_any()
    }

    /// The requested addresses that are outside of the usable blocks of the network.
    pub(super) fn requests_in_missing_blocks(&self) -> Vec<Block> {
        let mut requested = self.wait_queue.awaited_blocks();
        requested.retain(|block| self.is_in_missing_block(*block));
        requested.sort_unstable();
        requested
    }

    /// Adds the numbers that the pool can allocate now, with those that are kept for the next claims
    /// of the same names.
    fn add_free_numbers(&self, spans: &mut Vec<Span>) {
        match (&self.free, self.usable()) {
            (Some(free), _) => spans.extend(free.spans()),
            (None, Some(usable)) => spans.extend(usable.set.spans()),
            (None, None) => {}
        }
        for (_, number) in &self.remembered {
            spans.push(Span::single(*number));
        }
    }
}
