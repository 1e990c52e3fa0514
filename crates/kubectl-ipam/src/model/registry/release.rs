//! The records of a registry that an operator changes: of a management cluster that no longer exists,
//! or of a network that no management cluster has yet.

use std::sync::Arc;

use capi_ipam_api::counted;
use capi_ipam_registry::{
    BlockRecord, ClusterRecord, Entry, Key, NetworkRecord, Record, RecordCache, hand_over,
};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::Serialize;

use super::list::{ClusterState, STALE_AFTER, state};
use crate::error::Error;

/// The output of the commands that change records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegistryRelease {
    /// Name of the IPRegistry.
    pub registry: String,
    /// Identity of the management cluster.
    pub cluster: String,
    /// Time of its last sign of life; `null` if it is unknown.
    pub last_seen: Option<Timestamp>,
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// The records that were changed, in this order.
    pub changes: Vec<RecordChange>,
}

/// What becomes of a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordChange {
    /// Its name in the registry.
    pub record: String,
    /// What becomes of it.
    pub action: RecordAction,
    /// The network, except for the record of the management cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<String>,
    /// The block, address or prefix in CIDR notation, if the record is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<String>,
    /// The management cluster that has the block afterwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// Number of addresses of the block in use when the record was written, if it states it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
}

/// What becomes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum RecordAction {
    /// The block is free.
    Freed,
    /// The block belongs to another management cluster, which uses addresses of it.
    HandedOver,
    /// The cluster is no longer named in the record of a block of another one.
    Withdrawn,
    /// The record of the cluster is deleted.
    ClusterDeleted,
    /// The record of the cluster names this one.
    Adopted,
    /// The record of the network is created.
    NetworkCreated,
    /// The registry has the record already.
    Unchanged,
    /// The manager of this cluster returns the block unless it needs an address of it.
    Returning,
}

/// What is to be written.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Time of the last sign of life of the cluster.
    pub(crate) seen: Option<Timestamp>,
    /// The record of the cluster, whose version shows that the cluster gives no sign of life
    /// meanwhile.
    pub(crate) cluster: Option<Arc<Entry>>,
    /// All changes, in their order.
    pub(crate) changes: Vec<Change>,
}

/// One write.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) write: Write,
    pub(crate) line: RecordChange,
}

/// How a record is changed. A record that exists is named in the version that is replaced.
#[derive(Clone, Debug)]
pub(crate) enum Write {
    Create(Record),
    Update(Arc<Entry>, Record),
    Delete(Arc<Entry>),
    /// The record of the cluster is deleted.
    DeleteCluster,
    None,
}

/// There is no record of a management cluster.
fn no_cluster(cluster: &str) -> Error {
    Error::NotFound(format!(
        "the registry has no record of management cluster {cluster}"
    ))
}

/// How wrong a clock can be.
const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_hours(24);

/// Decides what is written to release a management cluster. `own` is this one.
pub(crate) fn plan(
    records: &RecordCache,
    cluster: &str,
    own: &str,
    now: Timestamp,
) -> Result<Plan, Error> {
    if cluster == own {
        return Err(Error::Failed(format!(
            "{cluster} is this management cluster; a block returns when it is empty, see spec.blocks of the network"
        )));
    }
    let entry = records.get(&Key::Cluster { id: cluster.into() });
    let now_of_others = time_of_others(records, cluster, now);
    let seen = last_seen(entry.as_deref(), cluster, now_of_others)?;
    // Blocks first: after an interruption, the record of the cluster shows what is left to do.
    let mut changes = Vec::new();
    for entry in records.entries() {
        if let Some(Record::Block(record)) = entry.record() {
            changes.extend(of_block(&entry, record, cluster, now));
        }
    }
    changes.sort_by_key(|change: &Change| change.line.action == RecordAction::Withdrawn);
    if let Some(entry) = &entry {
        changes.push(Change {
            write: Write::DeleteCluster,
            line: line(&entry.key, RecordAction::ClusterDeleted),
        });
    }
    if changes.is_empty() {
        return Err(no_cluster(cluster));
    }
    Ok(Plan {
        seen,
        cluster: entry,
        changes,
    })
}

/// Decides what is written so that the blocks of a cluster that had the identity `own` are those of the
/// cluster with this UID.
pub(crate) fn adoption(
    records: &RecordCache,
    own: &str,
    uid: &str,
    now: Timestamp,
) -> Result<Plan, Error> {
    let entry = records.get(&Key::Cluster { id: own.into() });
    let entry = entry.ok_or_else(|| no_cluster(own))?;
    if let Some(Record::Cluster(record)) = entry.record()
        && record.uid.as_deref() == Some(uid)
    {
        return Err(Error::Failed(format!(
            "the blocks of management cluster {own} are those of this cluster already"
        )));
    }
    let seen = last_seen(Some(&entry), own, time_of_others(records, own, now))?;
    let adopted = Record::Cluster(ClusterRecord {
        cluster: own.to_owned(),
        uid: Some(uid.to_owned()),
        ..ClusterRecord::default()
    });
    let change = Change {
        line: line(&entry.key, RecordAction::Adopted),
        write: Write::Update(entry, adopted),
    };
    Ok(Plan {
        seen,
        cluster: None,
        changes: vec![change],
    })
}

/// Decides what is written so that the registry has the record of a network before a management cluster
/// takes a block of it.
pub(crate) fn creation(records: &RecordCache, wanted: NetworkRecord) -> Result<Plan, Error> {
    let network = wanted.network.clone();
    let name = network.as_str().into();
    let key = Key::Network { name };
    let entry = records.get(&key);
    let (write, action) = match entry.as_deref().map(Entry::record) {
        None if !records.blocks(&network).is_empty() => {
            return Err(Error::Failed(format!(
                "management clusters have blocks of network {network} already: they write its record"
            )));
        }
        None => {
            let wanted = Record::Network(wanted);
            (Write::Create(wanted), RecordAction::NetworkCreated)
        }
        Some(Some(Record::Network(found)))
            if (found.size, found.quarantine()) == (wanted.size, wanted.quarantine()) =>
        {
            (Write::None, RecordAction::Unchanged)
        }
        Some(Some(Record::Network(found))) => {
            return Err(Error::Failed(format!(
                "the registry has another record of network {network}: blocks of {}, and a quarantine of {}",
                counted(found.size, "address", "addresses"),
                counted(found.quarantine(), "second", "seconds")
            )));
        }
        Some(_) => {
            return Err(Error::Failed(format!(
                "record {key} cannot be decoded; correct or delete it"
            )));
        }
    };
    let line = RecordChange {
        network: Some(network),
        ..line(&key.to_string(), action)
    };
    Ok(Plan {
        seen: None,
        cluster: None,
        changes: vec![Change { write, line }],
    })
}

/// The time by the clocks of the other management clusters: that of the last sign of life of one of them. The
/// clock of the API server here can be wrong, and a cluster that is alive would be released. It decides if no
/// other cluster is alive: the signs of life of all others are much older than that of `cluster`, or than any
/// clock is wrong.
fn time_of_others(records: &RecordCache, cluster: &str, now: Timestamp) -> Timestamp {
    let mut newest: Option<Timestamp> = None;
    let mut released = None;
    for (id, entry) in records.clusters() {
        let Some(Record::Cluster(ClusterRecord {
            seen: Some(seen), ..
        })) = entry.record()
        else {
            continue;
        };
        if *id == *cluster {
            released = Some(seen.0);
        } else {
            newest = newest.max(Some(seen.0));
        }
    }
    match (newest, released) {
        (Some(newest), Some(released))
            if state(Some(newest), released) == ClusterState::Alive
                && now.duration_since(newest) < MAX_CLOCK_SKEW =>
        {
            newest
        }
        _ => now,
    }
}

/// When a management cluster was last seen, if it is not alive.
fn last_seen(
    entry: Option<&Entry>,
    cluster: &str,
    now: Timestamp,
) -> Result<Option<Timestamp>, Error> {
    if let Some(problem) = entry.and_then(Entry::problem) {
        return Err(Error::Failed(format!(
            "it is unknown whether management cluster {cluster} is alive: its record cluster.{cluster} {problem}; delete \
             the record if the cluster is gone"
        )));
    }
    let Some(Record::Cluster(ClusterRecord {
        seen: Some(seen), ..
    })) = entry.and_then(Entry::record)
    else {
        return Ok(None);
    };
    if state(Some(seen.0), now) == ClusterState::Alive {
        return Err(Error::Failed(format!(
            "management cluster {cluster} is alive: it was seen at {}, and counts as gone after {} minutes without a sign \
             of life; stop its manager first",
            seen.0,
            STALE_AFTER.as_mins()
        )));
    }
    Ok(Some(seen.0))
}

/// A line for a record.
pub(super) fn line(record: &str, action: RecordAction) -> RecordChange {
    RecordChange {
        record: record.to_owned(),
        action,
        network: None,
        block: None,
        holder: None,
        used: None,
    }
}

/// A block of the cluster is deleted, or gets another holder that uses addresses of it. The record
/// of another cluster is never deleted, and only the name of the released one is removed from it.
fn of_block(
    entry: &Arc<Entry>,
    record: &BlockRecord,
    cluster: &str,
    now: Timestamp,
) -> Option<Change> {
    let mut wanted = record.clone();
    wanted.contenders.retain(|id| id != cluster);
    let is_holder = record.cluster == cluster;
    let action = match wanted.contenders.first().cloned() {
        Some(contender) if is_holder => {
            // Records have whole seconds.
            let second = Timestamp::from_second(now.as_second()).unwrap_or(now);
            hand_over(&mut wanted, contender, Time(second));
            RecordAction::HandedOver
        }
        None if is_holder => RecordAction::Freed,
        _ if wanted == *record => return None,
        _ => RecordAction::Withdrawn,
    };
    let is_freed = action == RecordAction::Freed;
    let line = RecordChange {
        network: Some(record.network.clone()),
        block: Some(record.block.clone()),
        used: record.used,
        holder: (!is_freed).then(|| wanted.cluster.clone()),
        ..line(&entry.key, action)
    };
    let write = if is_freed {
        Write::Delete(Arc::clone(entry))
    } else {
        Write::Update(Arc::clone(entry), Record::Block(wanted))
    };
    Some(Change { write, line })
}

impl Plan {
    /// A line for each change, in the order of the writes.
    pub(crate) fn lines(&self) -> Vec<RecordChange> {
        let changes = self.changes.iter();
        changes.map(|change| change.line.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::registry::tests::{NOW, entries, now};

    fn planned(records: &[(&str, Value)], cluster: &str) -> Result<Vec<RecordChange>, String> {
        let plan = plan(&entries(records), cluster, "west", now());
        plan.map(|plan| plan.lines())
            .map_err(|error| error.to_string())
    }

    fn cluster(id: &str, seen: &str) -> Value {
        json!({"cluster": id, "process": "1", "seen": seen})
    }

    fn block(address: &str, holder: &str, contenders: &[&str]) -> (String, Value) {
        let record = json!({
            "network": "lab", "block": format!("{address}/26"), "cluster": holder, "contenders": contenders,
        });
        (format!("block.lab.{address}-26"), record)
    }

    const OLD: &str = "2026-01-05T02:54:04Z";

    #[test]
    fn only_a_cluster_that_is_gone_is_released() {
        let own = ("cluster.west", cluster("west", OLD));
        let east = |record: Value| ("cluster.east", record);
        // By a clock that is ahead, it was seen in the future.
        let (alive, late) = ("2026-01-05T02:54:05Z", "2026-01-05T09:00:00Z");
        for (record, released, refusal) in [
            (east(cluster("east", alive)), "east", "is alive: "),
            (east(cluster("east", late)), "east", "is alive: "),
            (
                east(json!({"cluster": "other"})),
                "east",
                "it is unknown whether",
            ),
            (own.clone(), "west", "is this management cluster"),
            (own, "east", "has no record"),
        ] {
            let refused = planned(&[record], released).unwrap_err();
            assert!(refused.contains(refusal), "{refused}");
        }
        let lines = planned(&[east(cluster("east", OLD))], "east").unwrap();
        assert_eq!(lines[0].action, RecordAction::ClusterDeleted);
    }

    #[test]
    fn records_of_other_clusters_keep_their_holders() {
        let blocks = [
            block("10.0.0.0", "east", &[]),
            block("10.0.0.64", "east", &["north", "west"]),
            block("10.0.0.128", "north", &["east"]),
            block("10.0.0.192", "north", &["west"]),
        ];
        let mut records: Vec<(&str, Value)> = Vec::new();
        for (name, value) in &blocks {
            records.push((name, value.clone()));
        }
        records.push(("cluster.east", cluster("east", OLD)));
        records.push(("cluster.north", cluster("north", NOW)));
        let network = json!({"network": "lab", "size": 64, "sizeOf": "east"});
        records.push(("network.lab", network));
        let plan = plan(&entries(&records), "east", "west", now()).unwrap();
        let described: Vec<_> = plan
            .lines()
            .iter()
            .map(|line| (line.record.clone(), line.action, line.holder.clone()))
            .collect();
        let north = Some("north".to_owned());
        let expected = [
            ("block.lab.10.0.0.0-26", RecordAction::Freed, None),
            (
                "block.lab.10.0.0.64-26",
                RecordAction::HandedOver,
                north.clone(),
            ),
            ("block.lab.10.0.0.128-26", RecordAction::Withdrawn, north),
            ("cluster.east", RecordAction::ClusterDeleted, None),
        ];
        let expected = expected.map(|(name, action, holder)| (name.to_owned(), action, holder));
        assert_eq!(described, expected);
        let writes: Vec<_> = plan.changes.iter().map(|it| &it.write).collect();
        assert!(matches!(writes[0], Write::Delete(_)));
        let Write::Update(_, Record::Block(handed_over)) = writes[1] else {
            panic!("{writes:?}")
        };
        assert_eq!(
            (handed_over.cluster.as_str(), &*handed_over.contenders),
            ("north", &["west".to_owned()][..])
        );
        let Write::Update(_, Record::Block(other)) = writes[2] else {
            panic!("{writes:?}")
        };
        assert_eq!(other.cluster, "north");
    }

    /// The clock of the machine on which the plugin runs is wrong.
    #[test]
    fn clocks_of_the_other_clusters_decide() {
        let later: Timestamp = "2026-01-06T00:00:00Z".parse().unwrap();
        let release = |others: &[(&str, &str)], now| {
            let mut records = vec![("cluster.east", cluster("east", NOW))];
            for (key, seen) in others {
                records.push((key, cluster(key.trim_start_matches("cluster."), seen)));
            }
            plan(&entries(&records), "east", "west", now).is_ok()
        };
        assert!(!release(&[("cluster.west", NOW)], later), "east is alive");
        assert!(
            release(&[("cluster.west", OLD)], later),
            "no other is alive"
        );
        assert!(release(&[], later));
        assert!(!release(&[], now()));
    }

    #[test]
    fn only_a_cluster_that_is_gone_is_adopted() {
        let adopted = |record: Value, uid: &str| {
            let records = entries(&[("cluster.west", record)]);
            let plan = adoption(&records, "west", uid, now());
            plan.map(|plan| plan.changes)
                .map_err(|error| error.to_string())
        };
        let changes = adopted(cluster("west", "2026-01-01T00:00:00Z"), "a").unwrap();
        let Write::Update(_, Record::Cluster(record)) = &changes[0].write else {
            panic!("{changes:?}");
        };
        assert_eq!(record.uid.as_deref(), Some("a"));
        assert!(record.seen.is_none(), "it has to show that it is alive");
        let alive = adopted(cluster("west", NOW), "a");
        assert!(alive.unwrap_err().contains("is alive: "));
        let mut own = cluster("west", NOW);
        own["uid"] = json!("a");
        let refusal = adopted(own, "a").unwrap_err();
        assert!(refusal.contains("of this cluster already"), "{refusal}");
        let none = adoption(&entries(&[]), "west", "a", now());
        assert!(none.unwrap_err().to_string().contains("has no record"));
    }

    #[test]
    fn record_of_a_network_is_created_once() {
        let wanted = |size, quarantine| NetworkRecord {
            network: "lab".to_owned(),
            size,
            size_of: "west".to_owned(),
            quarantine_seconds: quarantine,
        };
        let created = |records: &[(&str, Value)], wanted| {
            let plan = creation(&entries(records), wanted);
            plan.map(|plan| plan.changes[0].line.action)
                .map_err(|error| error.to_string())
        };
        let action = created(&[], wanted(64, Some(60)));
        assert_eq!(action, Ok(RecordAction::NetworkCreated));
        let found = json!({"network": "lab", "size": 64, "sizeOf": "east"});
        let found = [("network.lab", found)];
        let action = created(&found, wanted(64, Some(604_800)));
        assert_eq!(action, Ok(RecordAction::Unchanged), "the default");
        for other in [wanted(32, None), wanted(64, Some(60))] {
            let refusal = created(&found, other).unwrap_err();
            assert!(refusal.contains("another record"));
        }
        let (key, block) = block("10.0.0.0", "east", &[]);
        let refusal = created(&[(key.as_str(), block)], wanted(64, None)).unwrap_err();
        assert!(refusal.contains("have blocks of network"));
        let refusal = created(&[("network.lab", json!({}))], wanted(64, None)).unwrap_err();
        assert!(refusal.contains("cannot be decoded"));
    }
}
