//! The blocks of a network, as the page of `web` shows them.

use std::collections::{BTreeMap, HashMap, HashSet};

use capi_ipam_api::{advice, conditions};
use capi_ipam_ip::Block;
use capi_ipam_registry::{Record, RecordCache};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::block_map::{BlockWindow, Shown, window};
use super::block_use::{KnownBlock, known_blocks};
use super::check::check_command;
use super::facts::LastRecords;
use super::layout::BlockNumbers;
use super::list::{ClusterLine, NetworkBlocksLine, clusters_of_status, number};
use super::liveness::state;
use super::plain::{plain, plain_sentence};
use crate::load::Readable;
use crate::model::window::MapPart;
use crate::objects::{AddressRow, NetworkRow, PoolRow, RegistryRow, SliceRow};

/// Maximum number of management clusters in the legend of a map.
const MAX_CLUSTERS: usize = 16;

/// The blocks of a network that shares them with other management clusters, and a window of their
/// map.
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
    #[schemars(with = "Option<String>")]
    pub(crate) read: Option<Timestamp>,
    /// Why the records could not be read at the last attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unread: Option<String>,
    /// The other management clusters, by identity: those with blocks of the network, or, if the
    /// records are not known, those of the registry with their blocks of all networks.
    pub(crate) clusters: Vec<ClusterLine>,
    /// Number of other management clusters that are not listed.
    pub(crate) more_clusters: usize,
    /// Number of blocks that are not on the map: they have another size, or another family.
    pub(crate) misfits: u64,
    /// Whether all pools and slices of the network could be read.
    pub(crate) is_complete: bool,
    /// The map; omitted without a block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) window: Option<BlockWindow>,
}

/// The registry of the blocks of a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BlockRegistry {
    /// Name of the IPRegistry.
    pub(crate) name: String,
    /// Whether it exists; `null` if it is unknown.
    pub(crate) exists: Option<bool>,
    /// Status of the condition Ready: `True`, `False` or `Unknown`.
    pub(crate) ready: String,
    /// Why the registry is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// Details of the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) message: Option<String>,
}

impl BlockRegistry {
    fn of(name: &str, row: &Readable<Option<&RegistryRow>>) -> Self {
        let found = *row.seen();
        let ready = found.and_then(RegistryRow::ready);
        let problem = ready.filter(|ready| ready.status != "True");
        let text = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
        Self {
            name: name.to_owned(),
            exists: match found {
                Some(_) => Some(true),
                None => row.is_complete().then_some(false),
            },
            ready: ready.map_or_else(|| "Unknown".to_owned(), |ready| ready.status.to_string()),
            reason: problem.and_then(|problem| text(problem.reason.as_deref())),
            message: problem.and_then(|problem| text(problem.message.as_deref())),
        }
    }
}

/// What the blocks of a network are described with.
pub(crate) struct BlockObjects<'a, A> {
    pub(crate) network: &'a NetworkRow,
    /// The name of its registry.
    pub(crate) registry_name: &'a str,
    pub(crate) registry: Readable<Option<&'a RegistryRow>>,
    /// The pools of the network.
    pub(crate) pools: Readable<Vec<&'a PoolRow>>,
    /// The slices of the network.
    pub(crate) slices: Readable<Vec<&'a SliceRow>>,
    /// Addresses of the pools of the network.
    pub(crate) addresses: Readable<A>,
    pub(crate) last: &'a LastRecords,
}

/// Describes the blocks of a network, and a part of their map.
pub(crate) fn network_blocks<'a>(
    objects: BlockObjects<'a, impl IntoIterator<Item = &'a AddressRow>>,
    requested: MapPart,
    now: Timestamp,
) -> NetworkBlocks {
    let BlockObjects {
        network,
        registry_name,
        registry,
        pools,
        slices,
        addresses,
        last,
    } = objects;
    let row = *registry.seen();
    let own = own_id(row, last);
    let records = last.records.as_ref().map(|(_, records)| &**records);
    let entries = records.map(|records| records.blocks(&network.name));
    let read = last.records.as_ref().map(|(read, _)| *read);
    let known = known_blocks(&slices, entries.unwrap_or_default(), own, read);

    let mut blocks = BlockNumbers::of_pools(network, pools.seen().iter().copied());
    let total = blocks.len();
    let misfits = blocks.add(known.keys().copied());
    let layout = blocks.layout(known.keys().copied());

    let (clusters, more_clusters) = match records {
        Some(records) => clusters_of_blocks(&known, records, now),
        None => clusters_of_registry(row, own, now),
    };
    let used = addresses.map(|rows| used_by_block(network, rows));
    let shown = Shown {
        layout: &layout,
        known: &known,
        clusters: &clusters,
        pools: pools.seen(),
        used: used.known(),
    };
    NetworkBlocks {
        registry: BlockRegistry::of(registry_name, &registry),
        cluster_id: own.map(plain),
        total: total.to_string(),
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
        window: window(&shown, requested),
        clusters,
        more_clusters,
        misfits,
        is_complete: pools.is_complete() && slices.is_complete(),
    }
}

/// The identity of this management cluster, as far as it is known.
fn own_id<'a>(row: Option<&'a RegistryRow>, last: &'a LastRecords) -> Option<&'a str> {
    let of_row = row.and_then(RegistryRow::cluster_id);
    of_row.or(last.cluster.as_ref()).map(String::as_str)
}

/// The other management clusters with blocks of the network: those with the most blocks, by
/// identity, and the number of the others.
fn clusters_of_blocks(
    known: &BTreeMap<Block, KnownBlock>,
    records: &RecordCache,
    now: Timestamp,
) -> (Vec<ClusterLine>, usize) {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for block in known.values() {
        if let Some(cluster) = &block.other {
            let count = counts.entry(cluster).or_default();
            *count = count.saturating_add(1);
        }
    }
    let seen = records.clusters();
    let mut lines = Vec::new();
    for (cluster, blocks) in counts {
        let entry = seen.get(cluster).and_then(|entry| entry.record());
        let last_seen = match entry {
            Some(Record::Cluster(record)) => record.seen.as_ref().map(|time| time.0),
            _ => None,
        };
        lines.push(ClusterLine {
            cluster: cluster.to_owned(),
            this: false,
            blocks,
            last_seen,
            state: state(last_seen, now),
        });
    }
    listed(lines)
}

/// The other management clusters of the registry, as the manager has reported them.
fn clusters_of_registry(
    row: Option<&RegistryRow>,
    own: Option<&str>,
    now: Timestamp,
) -> (Vec<ClusterLine>, usize) {
    let Some(row) = row else {
        return (Vec::new(), 0);
    };
    let mut lines = clusters_of_status(row, own, now);
    lines.retain(|line| !line.this);
    for line in &mut lines {
        line.cluster = plain(&line.cluster);
    }
    listed(lines)
}

/// The clusters with the most blocks, by identity, and the number of the others.
fn listed(mut lines: Vec<ClusterLine>) -> (Vec<ClusterLine>, usize) {
    lines.sort_by(|a, b| {
        b.blocks
            .cmp(&a.blocks)
            .then_with(|| a.cluster.cmp(&b.cluster))
    });
    let more = lines.len().saturating_sub(MAX_CLUSTERS);
    lines.truncate(MAX_CLUSTERS);
    lines.sort_by(|a, b| a.cluster.cmp(&b.cluster));
    (lines, more)
}

/// How many addresses of each block are in use, each counted once.
fn used_by_block<'a>(
    network: &NetworkRow,
    addresses: impl IntoIterator<Item = &'a AddressRow>,
) -> HashMap<Block, u64> {
    let mut seen = HashSet::new();
    let mut used: HashMap<Block, u64> = HashMap::new();
    for row in addresses {
        if seen.insert(row.block)
            && let Some(block) = network.block_of(row.block)
        {
            let count = used.entry(block).or_default();
            *count = count.saturating_add(1);
        }
    }
    used
}
