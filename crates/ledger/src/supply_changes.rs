//! What the registries have for networks, as the ledger records it: changes and queries.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use capi_ipam_api::{PoolKey, Scope};

use super::Ledger;
use super::block_supply::{BlockObstacle, BlockSupply, MissingBlock, WaitingForBlock};
use super::blocks::Blocks;
use super::pools::PoolEntry;
use super::registry_names::RegistryNames;

impl Ledger {
    /// The claims that wait for a block, of each network that shares blocks.
    pub fn waiting_for_blocks(&self) -> Vec<WaitingForBlock> {
        let mut waiting = Vec::new();
        for (network, blocks) in self.networks.with_blocks() {
            let mut claims = Vec::new();
            for pool in self.addresses.members(network) {
                if let Some(entry) = self.pools.get(pool) {
                    self.count_waiting(blocks, pool, entry, &mut claims);
                }
            }
            waiting.push(WaitingForBlock {
                network: Arc::clone(network),
                claims,
            });
        }
        waiting
    }

    /// Adds the claims of a pool that wait for a block.
    fn count_waiting(
        &self,
        blocks: &Blocks,
        pool: &PoolKey,
        entry: &PoolEntry,
        claims: &mut Vec<(Option<BlockObstacle>, usize)>,
    ) {
        let obstacle = |requested| self.networks.block_obstacle(blocks, pool, requested);
        let requested = entry.requests_in_missing_blocks();
        if entry.needs_block() {
            let all = entry.wait_queue.waiting();
            claims.push((obstacle(None), all.saturating_sub(requested.len())));
        }
        for address in requested {
            claims.push((obstacle(Some(address)), 1));
        }
    }

    /// The block that a pool needs for its next claim; `None` if it has free addresses, or if no
    /// further block has addresses of it.
    pub(super) fn missing_block(&self, pool: &PoolKey) -> Option<MissingBlock> {
        let entry = self.pools.get(pool)?;
        let network = entry.network()?;
        let blocks = self.networks.blocks(network)?;
        entry
            .needs_block()
            .then(|| self.networks.missing_block((network, blocks), pool, None))
    }

    /// The hashes of what this management cluster excludes from the networks that share blocks
    /// through a registry, by network: the gateways of the pools, and `spec.excluded`. Of a network
    /// without a pool, nothing is allocated, so it is left out.
    pub fn exclusion_hashes(&self, registry: &str) -> BTreeMap<String, String> {
        let mut hashes = BTreeMap::new();
        for (network, exclusions) in &self.networks.exclusions {
            if exclusions.blocks().are_of(registry) && !self.addresses.members(network).is_empty() {
                hashes.insert(network.to_string(), exclusions.hash());
            }
        }
        hashes
    }

    /// Records what the registry has for a network. The claims that wait for a block are reconciled
    /// if the reason for which they wait is another one.
    pub fn set_block_supply(&mut self, network: &str, supply: &BlockSupply) {
        self.change(|ledger| {
            let Some(before) = ledger.networks.set_block_supply(network, supply.clone()) else {
                return;
            };
            if before != *supply {
                ledger.effects.networks.push(network.into());
            }
            ledger.recheck_without_block(network, &before, supply);
        });
    }

    /// Records for all networks of a registry why they get no further block.
    pub fn set_registry_obstacle(&mut self, registry: &str, obstacle: &BlockObstacle) {
        let mut changed = Vec::new();
        for (network, blocks) in self.networks.with_blocks() {
            if blocks.are_of(registry) {
                changed.push((network.clone(), blocks.supply.clone()));
            }
        }
        for (network, mut supply) in changed {
            supply.obstacle = Some(obstacle.clone());
            self.set_block_supply(&network, &supply);
        }
    }

    /// Changes which registries exist. The networks whose registry appears or disappears are
    /// reconciled.
    pub(super) fn change_registries(&mut self, how: impl FnOnce(&mut RegistryNames)) {
        self.change(|ledger| {
            let before = ledger.networks_without_registry();
            how(&mut ledger.networks.registries);
            let after = ledger.networks_without_registry();
            for network in before.symmetric_difference(&after) {
                ledger.effects.networks.push(Arc::clone(network));
            }
        });
    }

    /// The networks that share blocks through a registry that does not exist.
    fn networks_without_registry(&self) -> BTreeSet<Arc<str>> {
        let mut found = BTreeSet::new();
        for (network, blocks) in self.networks.with_blocks() {
            if let Some(rules) = blocks.rules()
                && self.networks.registries.lacks(&rules.registry)
            {
                found.insert(Arc::clone(network));
            }
        }
        found
    }

    /// Enqueues the claims that wait for a block of a network, and the pools that need one, if the
    /// reason is another one than before.
    fn recheck_without_block(&mut self, network: &str, before: &BlockSupply, after: &BlockSupply) {
        let Some(scope) = self.addresses.scope(&Scope::Network(network.into())) else {
            return;
        };
        for pool in &scope.members {
            // Also if an address is free now: another claim can get it, and the claims that wait
            // then are not reconciled again.
            if let Some(entry) = self.pools.get(pool)
                && differs(before, after, pool, entry)
                && entry.lacks_blocks()
            {
                let waiting = entry.wait_queue.pool_stopped();
                self.claims_to_recheck.extend(waiting);
                self.effects.pools.push(pool.clone());
            }
        }
    }
}

/// Whether claims of a pool get no block for another reason than before.
fn differs(before: &BlockSupply, after: &BlockSupply, pool: &PoolKey, entry: &PoolEntry) -> bool {
    before.obstacle_of(pool, None) != after.obstacle_of(pool, None)
        || before.requested != after.requested && entry.wait_queue.has_requests()
}
