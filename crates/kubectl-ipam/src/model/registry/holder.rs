//! `who`: which management cluster has the block of an address.

use capi_ipam_ip::Block;
use capi_ipam_registry::{Entry, Key, cidr};
use schemars::JsonSchema;
use serde::Serialize;

use super::block_lines::{BlockState, holders};
use crate::objects::{NetworkRow, PoolRow};

/// The block of a network that contains an address, and the management cluster that has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockHolder {
    /// Name of the network.
    pub network: String,
    /// The block in CIDR notation.
    pub block: String,
    /// Name of the IPRegistry.
    pub registry: String,
    /// Who has the block.
    pub state: BlockHolderState,
    /// The management cluster that has the block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Other management clusters that use addresses of the block.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub contenders: Vec<String>,
    /// Why it is unknown who has the block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Who has a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum BlockHolderState {
    /// No management cluster.
    Free,
    /// This management cluster.
    Held,
    /// Another management cluster.
    Other,
    /// The registry cannot be read, or its record cannot be decoded.
    Unknown,
}

/// Whether a pool of a network contains an address. Other pools share no blocks.
pub(crate) fn is_in_network(pools: &[PoolRow], address: Block) -> bool {
    pools
        .iter()
        .any(|pool| pool.network.is_some() && contains(pool, address))
}

/// Whether a pool has an address of a block.
pub(super) fn contains(pool: &PoolRow, address: Block) -> bool {
    let Ok(usable) = &pool.usable else {
        return false;
    };
    match usable.numbers_overlapping(address) {
        Some(span) => usable.set.overlaps(span),
        None => false,
    }
}

/// The shared blocks that contain an address, in the networks of the pools that contain it.
pub(crate) fn searched_blocks<'a>(
    networks: &'a [NetworkRow],
    pools: &[PoolRow],
    address: Block,
) -> Vec<(&'a NetworkRow, Block)> {
    let mut found = Vec::new();
    for network in networks {
        let is_member = |pool: &PoolRow| pool.network.as_deref() == Some(network.name.as_str());
        let mut members = pools.iter().filter(|pool| is_member(pool));
        if let Some(block) = network.block_of(address)
            && members.any(|pool| contains(pool, address))
        {
            found.push((network, block));
        }
    }
    found
}

/// The name of the record of a block.
pub(crate) fn key_of(network: &str, block: Block) -> String {
    let network = network.into();
    Key::Block { network, block }.to_string()
}

/// Describes a block that this management cluster has.
pub(crate) fn held_block(network: &NetworkRow, block: Block, cluster: String) -> BlockHolder {
    BlockHolder {
        state: BlockHolderState::Held,
        cluster: Some(cluster),
        ..unknown(network, block)
    }
}

fn unknown(network: &NetworkRow, block: Block) -> BlockHolder {
    BlockHolder {
        network: network.name.clone(),
        block: cidr(block),
        registry: network.registry().unwrap_or_default().to_owned(),
        state: BlockHolderState::Unknown,
        cluster: None,
        contenders: Vec::new(),
        problem: None,
    }
}

/// Describes who has a block. `own` is the identity of this management cluster, and `found` what
/// the registry shows, or why it cannot be read.
pub(crate) fn block_holder(
    network: &NetworkRow,
    block: Block,
    own: Option<&str>,
    found: Result<Option<&Entry>, String>,
) -> BlockHolder {
    let mut holder = unknown(network, block);
    let entry = match found {
        Ok(entry) => entry,
        Err(reason) => {
            holder.problem = Some(reason);
            return holder;
        }
    };
    let (state, clusters) = holders(entry, own);
    let mut clusters = clusters.into_iter().map(str::to_owned);
    holder.cluster = clusters.next();
    holder.contenders = clusters.collect();
    holder.state = match state {
        BlockState::Free => BlockHolderState::Free,
        BlockState::Unreadable => BlockHolderState::Unknown,
        _ if own.is_some() && holder.cluster.as_deref() == own => BlockHolderState::Held,
        _ => BlockHolderState::Other,
    };
    if let Some(entry) = entry
        && state == BlockState::Unreadable
    {
        let key = &entry.key;
        holder.problem = Some(match entry.problem() {
            Some(problem) => format!("record {key}: {problem}"),
            None => format!("{key} is no record of a block"),
        });
    }
    holder
}

#[cfg(test)]
mod tests {
    use capi_ipam_api::IPNetwork;
    use serde_json::json;

    use super::*;
    use crate::model::registry::tests::entries;

    fn network() -> NetworkRow {
        let network: IPNetwork = serde_json::from_value(json!({
            "metadata": {"name": "lab"}, "spec": {"blocks": {"registry": "site", "size": 64}},
        }))
        .unwrap();
        NetworkRow::from(network)
    }

    #[test]
    fn holder_of_a_block_is_named() {
        let block = Block::new("10.0.0.64".parse().unwrap(), 26);
        let key = key_of("lab", block);
        let address = Block::address("10.0.0.70".parse().unwrap());
        assert_eq!(network().block_of(address), Some(block));
        let record = json!({
            "network": "lab", "block": "10.0.0.64/26", "cluster": "east", "contenders": ["west"],
        });
        let records = entries(&[(&key, record)]);
        let entry = records.block("lab", block);
        let of = |own| block_holder(&network(), block, own, Ok(entry.as_deref()));
        let other = of(Some("west"));
        assert_eq!(other.state, BlockHolderState::Other);
        assert_eq!(other.cluster.as_deref(), Some("east"));
        assert_eq!(other.contenders, ["west"]);
        assert_eq!(of(Some("east")).state, BlockHolderState::Held);
        let free = block_holder(&network(), block, Some("west"), Ok(None));
        assert_eq!(free.state, BlockHolderState::Free);
        let bad = entries(&[(&key, json!({}))]);
        let bad = block_holder(
            &network(),
            block,
            None,
            Ok(bad.block("lab", block).as_deref()),
        );
        assert_eq!(bad.state, BlockHolderState::Unknown);
        assert!(bad.problem.unwrap().starts_with("record block.lab."));
    }
}
