//! The blocks of a network that are not free, and who has them: what an IPSlice says, and what a record
//! says.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use capi_ipam_api::advice;
use capi_ipam_ip::Block;
use capi_ipam_registry::{Entry, Key, Record, cidr};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::Serialize;

use super::plain::{plain, plain_sentence};
use crate::objects::{NetworkRow, Objects, PoolRow, SliceRow};

/// Who has a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum BlockState {
    /// Nobody: this management cluster takes it before it allocates any address.
    Free,
    /// This management cluster.
    Held,
    /// Another management cluster, and no address of it is in use here.
    Other,
    /// Several management clusters, or another one although an address of it is in use here.
    Conflict,
    /// The record of the block cannot be decoded: it counts as that of another management cluster.
    Unreadable,
    /// The registry cannot be read.
    Unknown,
}

/// Who has a block by its record, and the management clusters that use it, the holder first. `own` is the
/// identity of this one, if it is known.
pub(super) fn holders<'a>(
    entry: Option<&'a Entry>,
    own: Option<&str>,
) -> (BlockState, Vec<&'a str>) {
    let Some(entry) = entry else {
        return (BlockState::Free, Vec::new());
    };
    let Some(Record::Block(record)) = entry.record() else {
        return (BlockState::Unreadable, Vec::new());
    };
    let mut clusters = vec![record.cluster.as_str()];
    clusters.extend(record.contenders.iter().map(String::as_str));
    let state = if !record.contenders.is_empty() {
        BlockState::Conflict
    } else if own == Some(record.cluster.as_str()) {
        BlockState::Held
    } else {
        BlockState::Other
    };
    (state, clusters)
}

/// A block of a network, and who has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BlockLine {
    /// Name of the network.
    pub(crate) network: String,
    /// The block in CIDR notation.
    pub(crate) block: String,
    /// Who has it.
    pub(crate) state: BlockState,
    /// The management clusters that use it, the holder first. Several only in a conflict.
    pub(crate) clusters: Vec<String>,
    /// Whether the holder is this management cluster.
    #[serde(skip)]
    pub(crate) is_own: bool,
    /// Number of its addresses in use: in this management cluster, or in another one when it wrote the
    /// record; `null` if it is unknown.
    pub(crate) used: Option<u64>,
    /// Since when its holder has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<Timestamp>,
    /// Since when none of its addresses is in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) empty_since: Option<Timestamp>,
    /// What else is to be known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
}

impl BlockLine {
    /// A block in a state, of which nothing else is known.
    pub(super) fn new(network: &str, block: Block, state: BlockState) -> Self {
        Self {
            network: network.to_owned(),
            block: cidr(block),
            state,
            clusters: Vec::new(),
            is_own: false,
            used: None,
            since: None,
            empty_since: None,
            note: None,
        }
    }
}

/// What the blocks of a network are described with.
pub(super) struct Known<'a> {
    pub(super) network: &'a str,
    pub(super) slices: Vec<&'a SliceRow>,
    /// Whether these are all slices.
    pub(super) has_slices: bool,
    /// The records that are known.
    pub(super) entries: Vec<(Block, Arc<Entry>)>,
    /// When the records were read.
    pub(super) read: Option<Timestamp>,
    /// The identity of this management cluster, if it is known.
    pub(super) own: Option<&'a str>,
    /// How many addresses of each block are in use here; `None` if it is unknown.
    pub(super) used: Option<HashMap<Block, u64>>,
}

/// The blocks of a network that are not free, by address.
pub(super) fn block_lines(known: Known<'_>) -> Vec<BlockLine> {
    let own = known.own;
    let mut lines = BTreeMap::new();
    let mut entries: BTreeMap<Block, Arc<Entry>> = known.entries.into_iter().collect();
    let used = |block: Block| {
        let used = known.used.as_ref()?;
        Some(used.get(&block).copied().unwrap_or_default())
    };
    for slice in known.slices {
        // `clusterctl move` brings slices of the source, which have no effect.
        let is_own = own.is_none_or(|own| slice.owner.name == own);
        let Some((_, block)) = slice.shared_block().filter(|_| is_own) else {
            continue;
        };
        let entry = entries.remove(&block);
        // A slice is newer than its record: older records do not have it.
        let times = slice.assigned.zip(known.read);
        let is_newer = times.is_some_and(|(at, read)| at >= read);
        let entry = entry.as_deref().filter(|_| !is_newer);
        let mut line = with_slice(slice, known.network, block, entry);
        line.used = used(block);
        lines.insert(block, line);
    }
    for (block, entry) in entries {
        let mut line = of_record(known.network, block, Some(&entry), own);
        if line.state == BlockState::Held {
            line.used = used(block);
            if line.note.is_none() && known.has_slices {
                line.note = Some(format!(
                    "This management cluster has no IPSlice of the block, so nobody allocates its addresses: {}.",
                    advice::RECORD_WITHOUT_SLICE
                ));
            }
        }
        lines.insert(block, line);
    }
    lines.into_values().collect()
}

/// A block with a slice of this management cluster.
fn with_slice(slice: &SliceRow, network: &str, block: Block, entry: Option<&Entry>) -> BlockLine {
    let (_, recorded) = holders(entry, None);
    let mut clusters = vec![slice.owner.name.as_str()];
    for cluster in slice.conflict.iter().map(String::as_str).chain(recorded) {
        if !clusters.contains(&cluster) {
            clusters.push(cluster);
        }
    }
    let state = if clusters.len() > 1 {
        BlockState::Conflict
    } else {
        BlockState::Held
    };
    let mut line = BlockLine {
        clusters: clusters.into_iter().map(plain).collect(),
        is_own: true,
        since: slice.assigned,
        empty_since: slice.empty_since,
        ..BlockLine::new(network, block, state)
    };
    if !slice.is_confirmed {
        let text = "The registry has not confirmed the block: no address of it is allocated.";
        line.note = Some(text.to_owned());
    }
    line
}

/// A block by its record. `own` is the identity of this management cluster, if it is known.
pub(crate) fn of_record(
    network: &str,
    block: Block,
    entry: Option<&Entry>,
    own: Option<&str>,
) -> BlockLine {
    let (state, clusters) = holders(entry, own);
    let mut line = BlockLine::new(network, block, state);
    line.is_own = own.is_some() && clusters.first().copied() == own;
    line.clusters = clusters.into_iter().map(plain).collect();
    let Some(entry) = entry else { return line };
    match entry.record() {
        Some(Record::Block(record)) => {
            line.used = record.used;
            line.since = record.since.as_ref().map(|time| time.0);
            line.note = record.returned_at.as_ref().map(returned);
        }
        _ => line.note = Some(unreadable(entry)),
    }
    line
}

fn returned(at: &Time) -> String {
    format!(
        "The block was returned at {}: its management cluster may take it back; another one takes it after the \
         quarantine of the network.",
        at.0
    )
}

/// What is wrong with a record that cannot be decoded.
fn unreadable(entry: &Entry) -> String {
    let problem = match entry.problem() {
        Some(problem) => plain_sentence(&problem.to_string()),
        None => "it is no record of a block".to_owned(),
    };
    format!(
        "Record {}: {problem}. The block counts as that of another management cluster; correct or delete \
         the record.",
        plain_sentence(&entry.key)
    )
}

/// The networks of the pools that contain an address. Other pools share no blocks.
pub(crate) fn networks_with(objects: &Objects, address: Block) -> BTreeSet<String> {
    let mut pools = objects.pools();
    pools.retain(|pool| contains(pool, address));
    let pools = pools.into_iter();
    pools.filter_map(|pool| pool.network.clone()).collect()
}

/// Whether a pool has an address of a block.
pub(crate) fn contains(pool: &PoolRow, block: Block) -> bool {
    let usable = pool.usable.as_ref();
    usable.is_ok_and(|usable| usable.overlaps_block(block))
}

/// The name of the record of a block.
pub(crate) fn key_of(network: &str, block: Block) -> String {
    let network = network.into();
    Key::Block { network, block }.to_string()
}

/// Describes a block that this management cluster has.
pub(crate) fn held_block(network: &NetworkRow, block: Block, cluster: String) -> BlockLine {
    BlockLine {
        clusters: vec![cluster],
        is_own: true,
        ..BlockLine::new(&network.name, block, BlockState::Held)
    }
}

/// A block of which nothing is known, for a reason.
pub(crate) fn unknown_block(network: &str, block: Block, reason: String) -> BlockLine {
    BlockLine {
        note: Some(reason),
        ..BlockLine::new(network, block, BlockState::Unknown)
    }
}

#[cfg(test)]
mod tests {
    use capi_ipam_api::IPSlice;
    use serde_json::{Value, json};

    use super::*;
    use crate::model::registry::tests::entries;

    const BLOCK: &str = "10.0.0.64/26";
    const KEY: &str = "block.lab.10.0.0.64-26";
    const BEFORE: &str = "2026-01-05T03:00:00Z";
    const AFTER: &str = "2026-01-05T03:00:09Z";

    fn slice(owner: &str, change: &Value) -> SliceRow {
        let mut object = json!({
            "metadata": {"name": "n.lab.10.0.0.64-26"},
            "spec": {
                "scope": "n.lab", "block": BLOCK, "owner": {"kind": "ManagementCluster", "name": owner},
                "assignedAt": BEFORE, "confirmedAt": BEFORE,
            },
        });
        json_patch::merge(&mut object["spec"], change);
        SliceRow::from(serde_json::from_value::<IPSlice>(object).unwrap())
    }

    fn block() -> Block {
        Block::new([10, 0, 0, 64].into(), 26)
    }

    /// The only block.
    fn known(slices: &[SliceRow], record: Option<&Value>, own: Option<&str>) -> Option<BlockLine> {
        let mut record = record.cloned();
        if let Some(record) = &mut record {
            json_patch::merge(record, &json!({"network": "lab", "block": BLOCK}));
        }
        let records: Vec<_> = record.into_iter().map(|record| (KEY, record)).collect();
        let read = Some(AFTER.parse().unwrap());
        let used = HashMap::from([(block(), 5)]);
        let lines = block_lines(Known {
            network: "lab",
            slices: slices.iter().collect(),
            has_slices: true,
            entries: entries(&records).blocks("lab"),
            read,
            own,
            used: Some(used),
        });
        lines.into_iter().next()
    }

    #[test]
    fn slice_is_a_block_of_this_cluster_also_without_records() {
        let found = known(&[slice("west", &json!({}))], None, None).unwrap();
        assert_eq!((found.state, found.note), (BlockState::Held, None));
        assert_eq!((found.used, found.block.as_str()), (Some(5), BLOCK));
        assert_eq!(found.clusters, ["west"]);
        let unconfirmed = slice("west", &json!({"confirmedAt": null}));
        let found = known(&[unconfirmed], None, Some("west")).unwrap();
        assert!(found.note.unwrap().contains("has not confirmed"));
        let moved = slice("east", &json!({}));
        assert_eq!(known(&[moved], None, Some("west")), None);
    }

    #[test]
    fn record_names_the_other_cluster() {
        let record = json!({"cluster": "east", "used": 7, "since": BEFORE});
        let found = known(&[], Some(&record), Some("west")).unwrap();
        assert_eq!(found.state, BlockState::Other);
        assert_eq!(found.clusters, ["east"]);
        assert_eq!((found.used, found.since), (Some(7), BEFORE.parse().ok()));
        let found = known(&[], Some(&record), Some("east")).unwrap();
        assert_eq!((found.state, found.used), (BlockState::Held, Some(5)));
        assert!(found.note.unwrap().contains("no IPSlice"));
        let returned = json!({"cluster": "east", "returnedAt": BEFORE});
        for own in ["east", "west"] {
            let found = known(&[], Some(&returned), Some(own)).unwrap();
            assert!(found.note.unwrap().contains("returned at"));
        }
        let found = known(&[], Some(&json!({"cluster": 1})), Some("east")).unwrap();
        assert_eq!(found.state, BlockState::Unreadable);
        assert!(found.note.unwrap().starts_with("Record block.lab."));
    }

    #[test]
    fn block_of_two_clusters_is_a_conflict() {
        let reported = json!({"conflict": {"cluster": "east", "since": BEFORE}});
        let own = json!({"cluster": "west"});
        let contended = json!({"cluster": "west", "contenders": ["east"]});
        let lost = json!({"cluster": "east", "contenders": ["west"]});
        for (slices, record) in [
            (vec![slice("west", &reported)], None),
            (vec![slice("west", &reported)], Some(&own)),
            (vec![slice("west", &json!({}))], Some(&contended)),
            (vec![slice("west", &json!({}))], Some(&lost)),
        ] {
            let found = known(&slices, record, Some("west")).unwrap();
            assert_eq!(found.state, BlockState::Conflict, "{record:?}");
            assert_eq!(found.clusters, ["west", "east"]);
        }
        let reported = json!({"conflict": {"cluster": "unknown", "since": BEFORE}});
        let bad = json!({"cluster": 1});
        let found = known(&[slice("west", &reported)], Some(&bad), Some("west")).unwrap();
        assert_eq!(found.state, BlockState::Conflict);
        let found = known(&[], Some(&lost), Some("north")).unwrap();
        assert_eq!(found.state, BlockState::Conflict);
    }

    #[test]
    fn record_that_is_older_than_the_slice_is_no_conflict() {
        let taken = slice("west", &json!({"assignedAt": "2026-01-05T03:00:30Z"}));
        let before = json!({"cluster": "east"});
        let found = known(&[taken], Some(&before), Some("west")).unwrap();
        assert_eq!(found.state, BlockState::Held);
    }
}
