//! `registry check`: who has the blocks of the addresses in use of a network.

use std::collections::{BTreeMap, BTreeSet};

use capi_ipam_api::{BlockLengths, PoolKey, advice};
use capi_ipam_ip::Block;
use capi_ipam_registry::{Key, RecordCache};
use schemars::JsonSchema;
use serde::Serialize;

use super::block_lines::{BlockLine, BlockState, of_record};
use super::list::RecordProblem;
use crate::objects::{Objects, PoolRow, shared_block};

/// The output of `registry check`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegistryCheck {
    /// Name of the IPRegistry.
    pub registry: String,
    /// Name of the network.
    pub network: String,
    /// Identity of this management cluster.
    #[serde(rename = "clusterID")]
    pub cluster_id: String,
    /// Number of addresses or prefixes of a block.
    pub size: u64,
    /// The blocks with an address in use in this management cluster, by address.
    pub blocks: Vec<BlockLine>,
    /// What else is wrong: another size, other exclusions, and what is not a record.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

impl RegistryCheck {
    /// Finds the blocks and the problems. `lengths` are those of what the pools of the network
    /// allocate, as far as they are known.
    pub(crate) fn run(&mut self, lengths: BlockLengths, objects: &Objects, records: &RecordCache) {
        let pools = members(objects, &self.network);
        let mut used: BTreeMap<Block, u64> = BTreeMap::new();
        for address in in_use(&pools, objects) {
            match shared_block(lengths, self.size, address) {
                Some(block) => *used.entry(block).or_default() += 1,
                None => self.problems.push(format!(
                    "{address}: a block of {} does not fit into the address space",
                    self.size
                )),
            }
        }
        self.problems.extend(self.size_problem(records));
        let mut differing = records.differing_exclusions(&self.cluster_id);
        let clusters = differing.remove(self.network.as_str());
        let clusters = clusters.filter(|clusters| !clusters.is_empty());
        self.problems
            .extend(clusters.map(|clusters| advice::exclusions_differ(&clusters)));
        for entry in records.problems() {
            if is_of_network(&entry.key, &self.network)
                && let Some(RecordProblem { record, problem }) = RecordProblem::of(&entry)
            {
                self.problems.push(format!("record {record}: {problem}"));
            }
        }
        for (block, used) in used {
            let entry = records.block(&self.network, block);
            let own = Some(self.cluster_id.as_str());
            let mut line = of_record(&self.network, block, entry.as_deref(), own);
            line.used = Some(used);
            // Addresses of it are in use here.
            if line.state == BlockState::Other {
                line.state = BlockState::Conflict;
            }
            self.blocks.push(line);
        }
    }

    /// Another size in the record of the network.
    fn size_problem(&self, records: &RecordCache) -> Option<String> {
        let record = records.network(&self.network)?;
        if record.size == self.size {
            return None;
        }
        Some(format!(
            "blocks of the network have {} addresses in the registry, as management cluster {} has set first, not {}",
            record.size, record.size_of, self.size
        ))
    }

    /// Whether the network can share its blocks without a conflict.
    pub(crate) fn has_problems(&self) -> bool {
        let mut states = self.blocks.iter().map(|block| block.state);
        let is_wrong = |state| matches!(state, BlockState::Conflict | BlockState::Unreadable);
        !self.problems.is_empty() || states.any(is_wrong)
    }

    /// The number of blocks in a state.
    pub(crate) fn count(&self, state: BlockState) -> usize {
        let blocks = self.blocks.iter();
        blocks.filter(|block| block.state == state).count()
    }
}

/// The command that checks a network.
pub(crate) fn check_command(network: &str) -> String {
    format!("kubectl ipam registry check {network}")
}

/// The pools that are in a network, or are going to be.
pub(crate) fn members<'a>(objects: &'a Objects, network: &str) -> Vec<&'a PoolRow> {
    let is_member = |pool: &&PoolRow| {
        let moving = pool.moving.as_ref().map(|moving| moving.name.as_str());
        [pool.network.as_deref(), pool.spec.network(), moving].contains(&Some(network))
    };
    let mut pools = objects.pools();
    pools.retain(is_member);
    pools
}

/// The addresses of some pools that are not free, each once. Those out of the range of their pool
/// are in use, too.
pub(super) fn in_use(pools: &[&PoolRow], objects: &Objects) -> BTreeSet<Block> {
    let pools: BTreeSet<&PoolKey> = pools.iter().map(|pool| &pool.key).collect();
    let mut found = BTreeSet::new();
    for row in objects.addresses.iter() {
        if pools.contains(&row.pool) {
            found.insert(row.block);
        }
    }
    for row in objects.reservations.iter() {
        if pools.contains(&row.pool) {
            found.insert(row.slot.block);
        }
    }
    found
}

/// Whether a name is that of a record of a network, or was meant as one.
fn is_of_network(name: &str, network: &str) -> bool {
    let found = match Key::parse(name) {
        Some(Key::Block { network, .. }) => network,
        Some(Key::Network { name }) => name,
        Some(Key::Cluster { .. } | Key::Registry) => return false,
        None => return name.starts_with(&format!("block.{network}.")),
    };
    *found == *network
}
