//! Who has a block: what its IPSlice says, and what its record says.

use std::collections::BTreeMap;
use std::sync::Arc;

use capi_ipam_api::{BlockRecord, advice};
use capi_ipam_ip::Block;
use capi_ipam_registry::{Entry, Record};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::Serialize;

use super::plain::{plain, plain_sentence};
use crate::load::Readable;
use crate::objects::SliceRow;

/// Who has a block that is not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) enum BlockUse {
    /// This management cluster.
    Own,
    /// Another management cluster.
    Other,
    /// Several management clusters use it.
    Conflict,
    /// Its record cannot be decoded: it counts as that of another management cluster.
    Unreadable,
}

/// A block that is not free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownBlock {
    pub(super) state: BlockUse,
    /// Whether this management cluster has an IPSlice or the record of it.
    pub(super) is_own: bool,
    /// The other management cluster that has it or uses it: the first one of several.
    pub(super) other: Option<String>,
    /// The management clusters that use it, the holder first. Several only in a conflict.
    pub(super) clusters: Vec<String>,
    pub(super) since: Option<Timestamp>,
    /// Since when none of its addresses is in use.
    pub(super) empty_since: Option<Timestamp>,
    /// The number of its addresses that were in use when its holder wrote the record.
    pub(super) recorded: Option<u64>,
    /// What else is to be known.
    pub(super) note: Option<String>,
}

/// The blocks of a network that are not free. `own` is the identity of this management cluster, if
/// it is known, and `read` when the records were read.
pub(super) fn known_blocks(
    slices: &Readable<Vec<&SliceRow>>,
    entries: Vec<(Block, Arc<Entry>)>,
    own: Option<&str>,
    read: Option<Timestamp>,
) -> BTreeMap<Block, KnownBlock> {
    let mut known = BTreeMap::new();
    let mut entries: BTreeMap<Block, Arc<Entry>> = entries.into_iter().collect();
    for slice in slices.seen() {
        // `clusterctl move` brings slices of the source, which have no effect.
        let is_own = own.is_none_or(|own| slice.owner.name == own);
        let Some((_, block)) = slice.shared_block().filter(|_| is_own) else {
            continue;
        };
        let entry = entries.remove(&block);
        // A slice is newer than its record: older records do not have it.
        let is_newer = slice
            .assigned
            .zip(read)
            .is_some_and(|(at, read)| at >= read);
        let entry = entry.as_deref().filter(|_| !is_newer);
        known.insert(block, with_slice(slice, entry));
    }
    for (block, entry) in entries {
        let mut found = of_entry(&entry, own);
        if found.state == BlockUse::Own && found.note.is_none() && slices.is_complete() {
            found.note = Some(format!(
                "This management cluster has no IPSlice of the block, so nobody allocates its addresses: {}.",
                advice::RECORD_WITHOUT_SLICE
            ));
        }
        known.insert(block, found);
    }
    known
}

/// A block with a slice of this management cluster.
fn with_slice(slice: &SliceRow, entry: Option<&Entry>) -> KnownBlock {
    let own = slice.owner.name.as_str();
    let record = entry.and_then(block_record);
    let mut clusters = vec![own.to_owned()];
    let conflict = slice.conflict.iter();
    let recorded = record.into_iter().flat_map(users);
    for cluster in conflict.map(String::as_str).chain(recorded) {
        if !clusters.iter().any(|known| known == cluster) {
            clusters.push(cluster.to_owned());
        }
    }
    let is_conflict = clusters.len() > 1;
    // A record that cannot be decoded names no cluster.
    let has_names = entry.is_none() || record.is_some();
    let other = clusters.get(1).filter(|_| has_names);
    let note = if slice.is_confirmed {
        None
    } else {
        let text = "The registry has not confirmed the block: no address of it is allocated.";
        Some(text.to_owned())
    };
    KnownBlock {
        state: if is_conflict {
            BlockUse::Conflict
        } else {
            BlockUse::Own
        },
        is_own: true,
        other: other.map(|other| plain(other)),
        clusters: clusters.iter().map(|cluster| plain(cluster)).collect(),
        since: slice.assigned,
        empty_since: slice.empty_since,
        recorded: None,
        note,
    }
}

/// A block with a record, and without a slice of this management cluster.
fn of_entry(entry: &Entry, own: Option<&str>) -> KnownBlock {
    let Some(record) = block_record(entry) else {
        return unreadable(entry);
    };
    let is_own = own == Some(record.cluster.as_str());
    let clusters: Vec<&str> = users(record).collect();
    let other = clusters.iter().find(|id| own != Some(**id));
    KnownBlock {
        state: if clusters.len() > 1 {
            BlockUse::Conflict
        } else if is_own {
            BlockUse::Own
        } else {
            BlockUse::Other
        },
        is_own,
        other: other.map(|other| plain(other)),
        clusters: clusters.iter().map(|cluster| plain(cluster)).collect(),
        since: record.since.as_ref().map(|time| time.0),
        empty_since: None,
        recorded: record.used,
        note: record.returned_at.as_ref().map(returned),
    }
}

fn returned(at: &Time) -> String {
    format!(
        "The block was returned at {}: its management cluster may take it back; another one takes it after the \
         quarantine of the network.",
        at.0
    )
}

fn unreadable(entry: &Entry) -> KnownBlock {
    let problem = match entry.problem() {
        Some(problem) => plain_sentence(&problem.to_string()),
        None => "it is no record of a block".to_owned(),
    };
    KnownBlock {
        state: BlockUse::Unreadable,
        is_own: false,
        other: None,
        clusters: Vec::new(),
        since: None,
        empty_since: None,
        recorded: None,
        note: Some(format!(
            "Record {}: {problem}. The block counts as that of another management cluster; correct or delete \
             the record.",
            plain_sentence(&entry.key)
        )),
    }
}

fn block_record(entry: &Entry) -> Option<&BlockRecord> {
    match entry.record() {
        Some(Record::Block(record)) => Some(record),
        _ => None,
    }
}

/// The holder of a block, and the others that use addresses of it.
fn users(record: &BlockRecord) -> impl Iterator<Item = &str> {
    let contenders = record.contenders.iter().map(String::as_str);
    std::iter::once(record.cluster.as_str()).chain(contenders)
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

    /// The only block.
    fn known(slices: &[SliceRow], record: Option<&Value>, own: Option<&str>) -> Option<KnownBlock> {
        let mut record = record.cloned();
        if let Some(record) = &mut record {
            json_patch::merge(record, &json!({"network": "lab", "block": BLOCK}));
        }
        let records: Vec<_> = record.into_iter().map(|record| (KEY, record)).collect();
        let slices = Readable::complete(slices.iter().collect());
        let read = Some(AFTER.parse().unwrap());
        let known = known_blocks(&slices, entries(&records).blocks("lab"), own, read);
        known.into_values().next()
    }

    #[test]
    fn slice_is_a_block_of_this_cluster_also_without_records() {
        let found = known(&[slice("west", &json!({}))], None, None).unwrap();
        assert_eq!((found.state, found.note), (BlockUse::Own, None));
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
        assert_eq!((found.state, found.is_own), (BlockUse::Other, false));
        assert_eq!(found.other.as_deref(), Some("east"));
        assert_eq!(
            (found.recorded, found.since),
            (Some(7), BEFORE.parse().ok())
        );
        let found = known(&[], Some(&record), Some("east")).unwrap();
        assert_eq!((found.state, found.is_own), (BlockUse::Own, true));
        assert!(found.note.unwrap().contains("no IPSlice"));
        let returned = json!({"cluster": "east", "returnedAt": BEFORE});
        for own in ["east", "west"] {
            let found = known(&[], Some(&returned), Some(own)).unwrap();
            assert!(found.note.unwrap().contains("returned at"));
        }
        let found = known(&[], Some(&json!({"cluster": 1})), Some("east")).unwrap();
        assert_eq!(found.state, BlockUse::Unreadable);
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
            assert_eq!(found.state, BlockUse::Conflict, "{record:?}");
            assert_eq!(found.clusters, ["west", "east"]);
            assert_eq!(found.other.as_deref(), Some("east"));
        }
        let reported = json!({"conflict": {"cluster": "unknown", "since": BEFORE}});
        let bad = json!({"cluster": 1});
        let found = known(&[slice("west", &reported)], Some(&bad), Some("west")).unwrap();
        assert_eq!((found.state, found.other), (BlockUse::Conflict, None));
        let found = known(&[], Some(&lost), Some("north")).unwrap();
        assert_eq!((found.state, found.is_own), (BlockUse::Conflict, false));
    }

    #[test]
    fn record_that_is_older_than_the_slice_is_no_conflict() {
        let taken = slice("west", &json!({"assignedAt": "2026-01-05T03:00:30Z"}));
        let before = json!({"cluster": "east"});
        let found = known(&[taken], Some(&before), Some("west")).unwrap();
        assert_eq!(found.state, BlockUse::Own);
    }
}
