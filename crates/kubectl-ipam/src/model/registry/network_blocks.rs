//! The blocks of a network, as the page of `web` shows them.

use std::collections::{BTreeMap, HashMap, HashSet};

use capi_ipam_api::{PoolKey, advice, conditions};
use capi_ipam_ip::{Block, Family, Span, SpanSet};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::block_lines::{BlockLine, BlockState, Known, block_lines};
use super::check::check_command;
use super::facts::LastRecords;
use super::list::{
    ClusterLine, NetworkBlocksLine, ReadyState, clusters_of_records, clusters_of_status, number,
};
use super::plain::{plain, plain_sentence};
use crate::objects::{Kind, NetworkRow, Objects, PoolRow, RegistryRow};

/// Maximum number of management clusters that are listed.
const MAX_CLUSTERS: usize = 16;

/// Maximum number of blocks that are listed.
const MAX_BLOCKS: usize = 500;

/// The blocks of a network that shares them with other management clusters.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NetworkBlocks {
    /// The registry.
    pub(crate) registry: BlockRegistry,
    /// Identity of this management cluster; `null` if it is unknown.
    #[serde(rename = "clusterID")]
    pub(crate) cluster_id: Option<String>,
    /// Number of blocks of the ranges of the pools, as a decimal number.
    pub(crate) total: String,
    /// Maximum number of blocks of this management cluster; omitted without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) most: Option<u64>,
    /// The counts that the manager has reported.
    pub(crate) counts: NetworkBlocksLine,
    /// Message of the condition BlockConflict, if it is True.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) conflict: Option<String>,
    /// What to do about a block in conflict.
    pub(crate) advice: &'static str,
    /// The command that lists the blocks with addresses in use, and who has them.
    pub(crate) command: String,
    /// When the records were read from the registry; omitted if they are not known. Then it is
    /// unknown who has the blocks that this management cluster does not have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) read: Option<Timestamp>,
    /// Why the records could not be read at the last attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unread: Option<String>,
    /// The other management clusters of the registry, by identity, with their blocks of all networks.
    pub(crate) clusters: Vec<ClusterLine>,
    /// Number of other management clusters that are not listed.
    pub(crate) more_clusters: usize,
    /// The blocks that are not free: those in conflict or with an unreadable record, those of this
    /// management cluster, and then those of other ones.
    pub(crate) blocks: Vec<BlockLine>,
    /// Number of such blocks that are not listed.
    pub(crate) more_blocks: usize,
    /// Whether all pools and slices of the network could be read.
    pub(crate) is_complete: bool,
}

/// The registry of the blocks of a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BlockRegistry {
    /// Name of the IPRegistry.
    pub(crate) name: String,
    /// Whether it exists; `null` if it is unknown.
    pub(crate) exists: Option<bool>,
    /// Its state.
    #[serde(flatten)]
    pub(crate) state: ReadyState,
}

/// Describes the blocks of a network; `registry_name` is that of its registry.
pub(crate) fn network_blocks(
    network: &NetworkRow,
    registry_name: &str,
    objects: &Objects,
    last: &LastRecords,
    now: Timestamp,
) -> NetworkBlocks {
    let row = objects.registry(registry_name);
    let own = own_id(row, last);
    let records = last.records.as_ref().map(|(_, records)| &**records);
    let read = last.records.as_ref().map(|(read, _)| *read);
    let members = objects.members(&network.name);
    let (has_pools, has_slices) = (objects.has(&Kind::POOLS), objects.has(&[Kind::Slice]));
    // Which addresses are in a network depends on its pools.
    let knows_use = has_pools && objects.has(&[Kind::Address]);
    let mut blocks = block_lines(Known {
        network: &network.name,
        slices: objects.slices_of(&network.name),
        has_slices,
        entries: records.map_or_else(Vec::new, |records| records.blocks(&network.name)),
        read,
        own,
        used: knows_use.then(|| used_by_block(network, &members, objects)),
    });
    blocks.sort_by_key(|line| rank(line.state));
    let more_blocks = blocks.len().saturating_sub(MAX_BLOCKS);
    blocks.truncate(MAX_BLOCKS);
    let clusters = match (records, row) {
        (Some(records), _) => clusters_of_records(records, own, now),
        (None, Some(row)) => clusters_of_status(row, own, now),
        (None, None) => Vec::new(),
    };
    let (clusters, more_clusters) = others(clusters);
    NetworkBlocks {
        registry: BlockRegistry {
            name: registry_name.to_owned(),
            exists: match row {
                Some(_) => Some(true),
                None => objects.has(&[Kind::Registry]).then_some(false),
            },
            state: ReadyState::of(row.and_then(RegistryRow::ready)),
        },
        cluster_id: own.map(plain),
        total: block_count(network, members).to_string(),
        most: network
            .blocks
            .as_ref()
            .and_then(|blocks| blocks.most)
            .map(number),
        counts: NetworkBlocksLine::of_status(network),
        conflict: network.message_of(conditions::BLOCK_CONFLICT),
        advice: advice::BLOCK_CONFLICT,
        command: check_command(&network.name),
        read,
        unread: last.problem.as_deref().map(plain_sentence),
        clusters,
        more_clusters,
        blocks,
        more_blocks,
        is_complete: has_pools && has_slices,
    }
}

/// The order of the blocks.
fn rank(state: BlockState) -> u8 {
    match state {
        BlockState::Conflict | BlockState::Unreadable => 0,
        BlockState::Held => 1,
        BlockState::Other | BlockState::Free | BlockState::Unknown => 2,
    }
}

/// The identity of this management cluster, as far as it is known.
fn own_id<'a>(row: Option<&'a RegistryRow>, last: &'a LastRecords) -> Option<&'a str> {
    let of_row = row.and_then(RegistryRow::cluster_id);
    of_row.or(last.cluster.as_ref()).map(String::as_str)
}

/// The other management clusters with the most blocks, by identity, and the number of those that are
/// not listed.
fn others(mut lines: Vec<ClusterLine>) -> (Vec<ClusterLine>, usize) {
    lines.retain(|line| !line.this);
    lines.sort_by_key(|line| std::cmp::Reverse(line.blocks));
    let more = lines.len().saturating_sub(MAX_CLUSTERS);
    lines.truncate(MAX_CLUSTERS);
    for line in &mut lines {
        line.cluster = plain(&line.cluster);
    }
    lines.sort_by(|a, b| a.cluster.cmp(&b.cluster));
    (lines, more)
}

/// The number of blocks with an address of a pool.
pub(crate) fn block_count<'a>(
    network: &NetworkRow,
    pools: impl IntoIterator<Item = &'a PoolRow>,
) -> u128 {
    // A block is identified by its number: that of its first address without the host bits.
    let mut numbers: BTreeMap<(Family, u8), Vec<Span>> = BTreeMap::new();
    for pool in pools {
        let Ok(usable) = &pool.usable else { continue };
        let Some(lowest) = usable.set.lowest() else {
            continue;
        };
        // Prefixes that are larger than a block have none.
        let Some(block) = network.block_of(usable.block(lowest)) else {
            continue;
        };
        let spans = numbers.entry((usable.family, block.length())).or_default();
        let shift = u32::from(usable.length.saturating_sub(block.length()));
        let number = |number: u128| number.checked_shr(shift).unwrap_or_default();
        for span in usable.set.spans() {
            spans.extend(Span::new(number(span.first()), number(span.last())));
        }
    }
    let mut count = 0_u128;
    for spans in numbers.into_values() {
        let set: SpanSet = spans.into_iter().collect();
        count = count.saturating_add(set.len());
    }
    count
}

/// How many addresses of each block are in use, each counted once.
fn used_by_block(
    network: &NetworkRow,
    members: &[&PoolRow],
    objects: &Objects,
) -> HashMap<Block, u64> {
    let pools: HashSet<&PoolKey> = members.iter().map(|pool| &pool.key).collect();
    let mut seen = HashSet::new();
    let mut used: HashMap<Block, u64> = HashMap::new();
    for row in objects.addresses.iter() {
        if pools.contains(&row.pool)
            && seen.insert(row.block)
            && let Some(block) = network.block_of(row.block)
        {
            *used.entry(block).or_default() += 1;
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use capi_ipam_api::{IPNetwork, Pool};
    use serde_json::json;

    use super::*;

    fn count(pools: &[&[&str]], prefix: u8) -> u128 {
        let network: IPNetwork = serde_json::from_value(json!({
            "metadata": {"name": "lab"}, "spec": {"blocks": {"registry": "site", "size": 64}},
        }))
        .unwrap();
        let mut rows = Vec::new();
        for addresses in pools {
            let pool: Pool = serde_json::from_value(json!({
                "kind": "InClusterIPPool", "metadata": {"name": "p", "namespace": "n"},
                "spec": {"addresses": addresses, "prefix": prefix, "network": "lab"},
            }))
            .unwrap();
            rows.push(PoolRow::from(&pool));
        }
        block_count(&NetworkRow::from(network), &rows)
    }

    #[test]
    fn blocks_with_an_address_of_a_pool_are_counted_once() {
        assert_eq!(count(&[&["10.0.0.0/22"]], 16), 16);
        let overlapping: [&[&str]; 2] = [&["10.0.0.70-10.0.0.75"], &["10.0.0.100-10.0.0.130"]];
        assert_eq!(count(&overlapping, 16), 2);
        assert_eq!(count(&[&["fd00::/64"]], 64), 1 << 58);
        assert_eq!(count(&[], 16), 0);
    }
}
