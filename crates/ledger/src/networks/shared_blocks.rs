//! The blocks that networks share with other management clusters.

use std::sync::Arc;

use capi_ipam_ip::Block;

use super::super::PoolKey;
use super::super::block_supply::{BlockObstacle, BlockSupply};
use super::super::blocks::{Affected, BlockInfo, BlockUse, Blocks, RecordedBlocks};
use super::super::missing_block::MissingBlock;
use super::Networks;

impl Networks {
    /// Records the identity of this management cluster in a registry. Returns the networks whose
    /// usable blocks have changed.
    pub(in super::super) fn set_management_cluster(
        &mut self,
        registry: &str,
        id: &str,
    ) -> Vec<(Arc<str>, Affected)> {
        self.clusters.insert(registry, id);
        self.apply_management_clusters()
    }

    /// Records whether another cluster writes with the identity of this one in a registry. Returns the
    /// networks whose usable blocks have changed.
    pub(in super::super) fn suspend_blocks(
        &mut self,
        registry: &str,
        is_suspended: bool,
    ) -> Vec<(Arc<str>, Affected)> {
        self.clusters.suspend(registry, is_suspended);
        self.apply_management_clusters()
    }

    /// The identity of this management cluster in a registry.
    pub(in super::super) fn management_cluster(&self, registry: &str) -> Option<Arc<str>> {
        self.clusters.id_in(registry).cloned()
    }

    /// Replaces the blocks of which a registry shows that only this management cluster uses them. Returns the
    /// networks whose usable blocks have changed.
    pub(in super::super) fn set_recorded_blocks(
        &mut self,
        registry: &str,
        blocks: Option<RecordedBlocks>,
    ) -> Vec<(Arc<str>, Affected)> {
        self.clusters.set_recorded(registry, blocks);
        self.apply_management_clusters()
    }

    /// Records whether a registry shows that only this management cluster uses a block.
    pub(in super::super) fn set_block_recorded(
        &mut self,
        registry: &str,
        network: &Arc<str>,
        block: Block,
        is_recorded: bool,
    ) -> Affected {
        let clusters = &mut self.clusters;
        if !clusters.set_block_recorded(registry, network, block, is_recorded) {
            return Affected::Nothing;
        }
        let Some(exclusions) = self.exclusions.get_mut(network) else {
            return Affected::Nothing;
        };
        let ours = clusters.of(network, exclusions.blocks().rules());
        exclusions.change_blocks(|blocks| blocks.set_ours(ours))
    }

    /// Tells all networks which blocks are those of this management cluster.
    fn apply_management_clusters(&mut self) -> Vec<(Arc<str>, Affected)> {
        let mut changed = Vec::new();
        for (network, exclusions) in &mut self.exclusions {
            if exclusions.blocks().is_empty() {
                continue;
            }
            let ours = self.clusters.of(network, exclusions.blocks().rules());
            let affected = exclusions.change_blocks(|blocks| blocks.set_ours(ours));
            if affected != Affected::Nothing {
                changed.push((network.clone(), affected));
            }
        }
        changed
    }

    /// Replaces the slice of a block of a network; `None` removes it.
    pub(in super::super) fn set_block(
        &mut self,
        network: &Arc<str>,
        block: Block,
        slice: Option<BlockInfo>,
    ) -> Affected {
        let exclusions = self.exclusions.entry(network.clone()).or_default();
        if exclusions.blocks().is_empty() {
            // The network need not exist.
            let ours = self.clusters.of(network, None);
            exclusions.change_blocks(|blocks| blocks.set_ours(ours));
        }
        let affected = exclusions.change_blocks(|blocks| blocks.set_slice(block, slice));
        if exclusions.is_empty() {
            self.exclusions.remove(network);
        }
        affected
    }

    /// The blocks that a network shares with other management clusters; `None` if it shares none.
    pub(in super::super) fn blocks(&self, network: &str) -> Option<&Blocks> {
        let blocks = self.exclusions.get(network)?.blocks();
        if blocks.is_empty() {
            None
        } else {
            Some(blocks)
        }
    }

    /// What a pool of a network lacks that needs another shared block, or that of the requested
    /// address.
    pub(in super::super) fn missing_block(
        &self,
        (network, blocks): (&Arc<str>, &Blocks),
        pool: &PoolKey,
        requested: Option<Block>,
    ) -> MissingBlock {
        MissingBlock {
            network: Arc::clone(network),
            registry: blocks.rules().map(|rules| rules.registry.clone()),
            obstacle: self.block_obstacle(blocks, pool, requested),
        }
    }

    /// Why a pool of a network with shared blocks gets no further block now, or not that of the
    /// requested address.
    pub(in super::super) fn block_obstacle(
        &self,
        blocks: &Blocks,
        pool: &PoolKey,
        requested: Option<Block>,
    ) -> Option<BlockObstacle> {
        let known = blocks.supply.obstacle_of(pool, requested).cloned();
        match blocks.rules() {
            Some(rules) if known.is_none() && self.registries.lacks(&rules.registry) => {
                Some(BlockObstacle::NoRegistry)
            }
            _ => known,
        }
    }

    /// Records what the registry has for a network. Returns what was known before; `None` if the
    /// network shares no blocks.
    pub(in super::super) fn set_block_supply(
        &mut self,
        network: &str,
        supply: BlockSupply,
    ) -> Option<BlockSupply> {
        let mut before = None;
        let exclusions = self.exclusions.get_mut(network)?;
        exclusions.change_blocks(|blocks| {
            if !blocks.is_empty() {
                before = Some(std::mem::replace(&mut blocks.supply, supply));
            }
            Affected::Nothing
        });
        before
    }

    /// The use of the shared blocks of a network; `None` if it shares none.
    pub(in super::super) fn block_use(&mut self, network: &str) -> Option<&mut BlockUse> {
        self.exclusions.get_mut(network)?.block_use()
    }

    /// The networks that share blocks with other management clusters, or whose blocks have slices.
    pub(in super::super) fn with_blocks(&self) -> impl Iterator<Item = (&Arc<str>, &Blocks)> {
        let all = self.exclusions.iter();
        all.filter_map(|(network, exclusions)| {
            let blocks = exclusions.blocks();
            (!blocks.is_empty()).then_some((network, blocks))
        })
    }

    /// Whether a slice of a network that shares no blocks any more can be one of a registry, in which
    /// this management cluster has the identity `id`, as far as it is known.
    fn is_slice_of(&self, slice: &BlockInfo, registry: &str, id: Option<&Arc<str>>) -> bool {
        // As long as the identity is not known, each block can be one of this registry.
        let is_own = id.is_none() || slice.cluster.as_ref() == id;
        is_own && self.may_be_of_registry(slice.registry.as_deref(), registry)
    }

    /// Whether the record of a block can be in `registry`: its slice names this one (`named`), none, or
    /// one that does not exist any more.
    pub(in super::super) fn may_be_of_registry(&self, named: Option<&str>, registry: &str) -> bool {
        match named {
            Some(named) => named == registry || self.registries.lacks(named),
            None => true,
        }
    }

    /// Whether this management cluster has to return the block of a slice to a registry, which exists.
    pub(in super::super) fn is_to_be_returned(&self, slice: &BlockInfo, registry: &str) -> bool {
        let is_own = match self.clusters.id_in(registry) {
            Some(id) => slice.cluster.as_ref() == Some(id),
            None => true,
        };
        is_own && !self.registries.lacks(registry)
    }

    /// The networks that share blocks through a registry, and those with blocks of it that are not
    /// returned yet.
    pub(in super::super) fn of_registry(&self, registry: &str) -> Vec<&Arc<str>> {
        let id = self.clusters.id_in(registry);
        let mut found = Vec::new();
        for (network, blocks) in self.with_blocks() {
            let is_of_registry = match blocks.rules() {
                Some(rules) => rules.registry == registry,
                None => blocks
                    .slices()
                    .values()
                    .any(|slice| self.is_slice_of(slice, registry, id)),
            };
            if is_of_registry {
                found.push(network);
            }
        }
        found
    }
}
