//! The blocks that networks share with other management clusters.

use std::sync::Arc;

use capi_ipam_ip::Block;

use super::super::PoolKey;
use super::super::block_supply::MissingBlock;
use super::super::block_supply::{BlockObstacle, BlockSupply};
use super::super::blocks::{Affected, BlockInfo, BlockSlice, Blocks, ManagementCluster};
use super::Networks;

impl Networks {
    /// Changes what is known of this management cluster in a registry: `change` returns whether it
    /// is new. Returns the networks whose usable blocks have changed.
    pub(in super::super) fn change_cluster(
        &mut self,
        registry: &str,
        change: impl FnOnce(&mut ManagementCluster) -> bool,
    ) -> Vec<(Arc<str>, Affected)> {
        let mut changed = Vec::new();
        if !change(self.clusters.entry(registry)) {
            return changed;
        }
        for (network, exclusions) in &mut self.exclusions {
            let affected =
                exclusions.change_blocks(|blocks| blocks.refresh(network, &self.clusters));
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
        // The network need not exist.
        let exclusions = self.exclusions.entry(network.clone()).or_default();
        let clusters = &self.clusters;
        let affected =
            exclusions.change_blocks(|blocks| blocks.set_slice(block, slice, network, clusters));
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

    /// The networks that share blocks with other management clusters, or whose blocks have slices.
    pub(in super::super) fn with_blocks(&self) -> impl Iterator<Item = (&Arc<str>, &Blocks)> {
        let all = self.exclusions.iter();
        let blocks = all.map(|(network, exclusions)| (network, exclusions.blocks()));
        blocks.filter(|(_, blocks)| !blocks.is_empty())
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

    /// Whether the record of a block can be in `registry`: its slice names this one (`named`),
    /// none, or one that does not exist any more.
    pub(in super::super) fn may_be_of_registry(&self, named: Option<&str>, registry: &str) -> bool {
        match named {
            Some(named) => named == registry || self.registries.lacks(named),
            None => true,
        }
    }

    /// Whether a slice can be one of this management cluster in a registry: as long as the identity
    /// is not known, each can.
    pub(in super::super) fn may_be_own(&self, slice: &BlockSlice, registry: &str) -> bool {
        match self.clusters.id_in(registry) {
            Some(id) => slice.cluster == *id,
            None => true,
        }
    }
}
