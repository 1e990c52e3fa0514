//! `registry check`: who has the blocks of the addresses in use of a network.

use std::collections::{BTreeMap, BTreeSet};

use capi_ipam_api::{BlockLengths, PoolKey, advice};
use capi_ipam_ip::Block;
use capi_ipam_registry::{Key, RecordCache, cidr};
use schemars::JsonSchema;
use serde::Serialize;

use super::block_lines::{BlockState, holders};
use super::list::RecordProblem;
use crate::objects::{AddressRow, PoolRow, ReservationRow, shared_block};

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
    pub blocks: Vec<CheckedBlock>,
    /// What else is wrong: another size, other exclusions, and what is not a record.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// A block with an address in use in this management cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckedBlock {
    /// The block in CIDR notation.
    pub block: String,
    /// Number of its addresses that are in use, reserved or cooling down in this management cluster.
    pub used: u64,
    /// Who has it.
    pub state: BlockState,
    /// The other management cluster that has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
}

impl RegistryCheck {
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

/// What holds addresses in the pools of a network.
#[derive(Clone, Copy)]
pub(crate) struct Held<'a> {
    /// The pools that are in the network, or are going to be.
    pub(crate) pools: &'a [PoolRow],
    pub(crate) addresses: &'a [AddressRow],
    pub(crate) reservations: &'a [ReservationRow],
}

/// What is checked.
pub(crate) struct Checked<'a> {
    pub(crate) registry: &'a str,
    pub(crate) network: &'a str,
    /// The identity of this management cluster.
    pub(crate) cluster: &'a str,
    /// The number of addresses or prefixes of a block.
    pub(crate) size: u64,
    /// The lengths of what the pools of the network allocate, as far as they are known.
    pub(crate) lengths: BlockLengths,
    pub(crate) held: Held<'a>,
    pub(crate) records: &'a RecordCache,
}

/// Checks a network.
pub(crate) fn check_network(checked: &Checked<'_>) -> RegistryCheck {
    let mut problems = Vec::new();
    let mut used: BTreeMap<Block, u64> = BTreeMap::new();
    for address in in_use(&checked.held) {
        match shared_block(checked.lengths, checked.size, address) {
            Some(block) => {
                let count = used.entry(block).or_default();
                *count = count.saturating_add(1);
            }
            None => problems.push(format!(
                "{address}: a block of {} does not fit into the address space",
                checked.size
            )),
        }
    }
    problems.extend(size_problem(checked));
    problems.extend(exclusions_problem(checked));
    for entry in checked.records.problems() {
        if is_of_network(&entry.key, checked.network)
            && let Some(RecordProblem { record, problem }) = RecordProblem::of(&entry)
        {
            problems.push(format!("record {record}: {problem}"));
        }
    }
    let mut blocks = Vec::new();
    for (block, used) in used {
        blocks.push(checked_block(checked, block, used));
    }
    RegistryCheck {
        registry: checked.registry.to_owned(),
        network: checked.network.to_owned(),
        cluster_id: checked.cluster.to_owned(),
        size: checked.size,
        blocks,
        problems,
    }
}

/// The addresses of the pools that are not free, each once. Those out of the range of their pool
/// are in use, too.
pub(super) fn in_use(held: &Held<'_>) -> BTreeSet<Block> {
    let pools: BTreeSet<&PoolKey> = held.pools.iter().map(|pool| &pool.key).collect();
    let mut found = BTreeSet::new();
    for row in held.addresses {
        if pools.contains(&row.pool) {
            found.insert(row.block);
        }
    }
    for row in held.reservations {
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

/// Another size in the record of the network.
fn size_problem(checked: &Checked<'_>) -> Option<String> {
    let record = checked.records.network(checked.network)?;
    if record.size == checked.size {
        return None;
    }
    Some(format!(
        "blocks of the network have {} addresses in the registry, as management cluster {} has set first, not {}",
        record.size, record.size_of, checked.size
    ))
}

/// Other exclusions in other management clusters.
fn exclusions_problem(checked: &Checked<'_>) -> Option<String> {
    let mut differing = checked.records.differing_exclusions(checked.cluster);
    let clusters = differing.remove(checked.network)?;
    Some(advice::exclusions_differ(&clusters))
}

fn checked_block(checked: &Checked<'_>, block: Block, used: u64) -> CheckedBlock {
    let entry = checked.records.block(checked.network, block);
    let (state, clusters) = holders(entry.as_deref(), Some(checked.cluster));
    let mut others = clusters.into_iter().filter(|id| *id != checked.cluster);
    CheckedBlock {
        block: cidr(block),
        used,
        // An address of it is in use here, too.
        state: match state {
            BlockState::Other => BlockState::Conflict,
            state => state,
        },
        cluster: others.next().map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_problems_of_the_network_are_reported() {
        for (name, expected) in [
            ("block.lab.10.0.0.0-26", true),
            ("block.lab.garbage", true),
            ("network.lab", true),
            ("block.lab.x.10.0.0.0-26", false),
            ("block.laboratory.10.0.0.0-26", false),
            ("network.lab.x", false),
            ("cluster.lab", false),
            ("lab", false),
        ] {
            assert_eq!(is_of_network(name, "lab"), expected, "{name}");
        }
    }
}
