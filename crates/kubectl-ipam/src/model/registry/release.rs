//! `registry release`: the records of a management cluster that no longer exists, and what happens to
//! them.

use std::sync::Arc;

use capi_ipam_registry::{BlockRecord, ClusterRecord, Entry, Key, Record, RecordCache, hand_over};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::Serialize;

use super::liveness::{ClusterState, STALE_AFTER, state};
use crate::error::Error;

/// The output of `registry release`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegistryRelease {
    /// Name of the IPRegistry.
    pub registry: String,
    /// Identity of the management cluster.
    pub cluster: String,
    /// Time of its last sign of life; `null` if it is unknown.
    #[schemars(with = "Option<String>")]
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
}

/// What is to be written.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Time of the last sign of life of the cluster.
    pub(crate) seen: Option<Timestamp>,
    /// The record of the cluster, whose version shows that the cluster gives no sign of life
    /// meanwhile. It is deleted last.
    pub(crate) cluster: Option<Arc<Entry>>,
    /// All changes but that one, in their order.
    pub(crate) changes: Vec<Change>,
}

/// One write.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// The record, in the version that is replaced.
    pub(crate) entry: Arc<Entry>,
    /// What replaces it; `None` to delete it.
    pub(crate) wanted: Option<Record>,
    pub(crate) line: RecordChange,
}

/// Why a management cluster is not released.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(
        "{cluster} is this management cluster; a block returns when it is empty, see spec.blocks of the network"
    )]
    Own { cluster: String },
    #[error(
        "management cluster {cluster} is alive: it was seen at {seen}, and counts as gone after {minutes} minutes without \
         a sign of life; stop its manager first",
        minutes = STALE_AFTER.as_mins()
    )]
    Alive { cluster: String, seen: Timestamp },
    #[error(
        "it is unknown whether management cluster {cluster} is alive: its record cluster.{cluster} {problem}; delete the \
         record if the cluster is gone"
    )]
    Unreadable { cluster: String, problem: String },
    #[error("the blocks of management cluster {cluster} are those of this cluster already")]
    Adopted { cluster: String },
    #[error("the registry has no record of management cluster {cluster}")]
    NotFound { cluster: String },
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::NotReleased {
            reason: refusal.to_string(),
            is_unknown: matches!(refusal, Refusal::NotFound { .. }),
        }
    }
}

/// How wrong a clock can be.
const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_hours(24);

/// Decides what is written to release a management cluster. `own` is this one.
pub(crate) fn plan(
    records: &RecordCache,
    cluster: &str,
    own: &str,
    now: Timestamp,
) -> Result<Plan, Refusal> {
    let named = || cluster.to_owned();
    if cluster == own {
        return Err(Refusal::Own { cluster: named() });
    }
    let entry = records.get(&Key::Cluster { id: cluster.into() });
    let seen = last_seen(
        entry.as_deref(),
        cluster,
        time_of_others(records, cluster, now),
    )?;
    let mut changes = Vec::new();
    for entry in records.entries() {
        changes.extend(change(&entry, cluster, now));
    }
    if entry.is_none() && changes.is_empty() {
        return Err(Refusal::NotFound { cluster: named() });
    }
    // Blocks first: after an interruption, the record of the cluster shows what is left to do.
    changes.sort_by_key(|change| rank(change.line.action));
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
) -> Result<Plan, Refusal> {
    let entry = records.get(&Key::Cluster { id: own.into() });
    let Some(entry) = entry else {
        return Err(Refusal::NotFound {
            cluster: own.to_owned(),
        });
    };
    if let Some(Record::Cluster(record)) = entry.record()
        && record.uid.as_deref() == Some(uid)
    {
        return Err(Refusal::Adopted {
            cluster: own.to_owned(),
        });
    }
    let seen = last_seen(Some(&entry), own, time_of_others(records, own, now))?;
    let adopted = Record::Cluster(ClusterRecord {
        cluster: own.to_owned(),
        uid: Some(uid.to_owned()),
        ..ClusterRecord::default()
    });
    let change = Change {
        line: line(&entry, RecordAction::Adopted),
        wanted: Some(adopted),
        entry,
    };
    Ok(Plan {
        seen,
        cluster: None,
        changes: vec![change],
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
) -> Result<Option<Timestamp>, Refusal> {
    let named = || cluster.to_owned();
    let seen = match entry {
        None => None,
        Some(entry) => match &entry.value {
            Ok(Record::Cluster(record)) => record.seen.as_ref().map(|time| time.0),
            Ok(_) => None,
            Err(problem) => {
                return Err(Refusal::Unreadable {
                    cluster: named(),
                    problem: problem.to_string(),
                });
            }
        },
    };
    if let Some(seen) = seen
        && state(Some(seen), now) == ClusterState::Alive
    {
        return Err(Refusal::Alive {
            cluster: named(),
            seen,
        });
    }
    Ok(seen)
}

/// The order of the writes.
fn rank(action: RecordAction) -> u8 {
    match action {
        RecordAction::Freed | RecordAction::HandedOver => 0,
        RecordAction::Withdrawn => 1,
        RecordAction::ClusterDeleted | RecordAction::Adopted => 2,
    }
}

/// The change of one record; `None` if the cluster has no part in it. The record of another cluster
/// is never deleted, and only the name of the released one is removed from it.
fn change(entry: &Arc<Entry>, cluster: &str, now: Timestamp) -> Option<Change> {
    match entry.record()? {
        Record::Block(record) if record.cluster == cluster => {
            Some(of_block(entry, record, cluster, now))
        }
        Record::Block(record) => withdrawal(entry, record, cluster),
        Record::Cluster(_) | Record::Network(_) | Record::Registry(_) => None,
    }
}

fn line(entry: &Entry, action: RecordAction) -> RecordChange {
    RecordChange {
        record: entry.key.clone(),
        action,
        network: None,
        block: None,
        holder: None,
        used: None,
    }
}

/// A line for the record of a block.
fn block_line(entry: &Entry, record: &BlockRecord, action: RecordAction) -> RecordChange {
    RecordChange {
        network: Some(record.network.clone()),
        block: Some(record.block.clone()),
        used: record.used,
        ..line(entry, action)
    }
}

/// A block of the cluster is deleted, or gets another holder that uses addresses of it.
fn of_block(entry: &Arc<Entry>, record: &BlockRecord, cluster: &str, now: Timestamp) -> Change {
    let mut wanted = record.clone();
    wanted.contenders.retain(|id| id != cluster);
    // Records have whole seconds.
    let second = Timestamp::from_second(now.as_second()).unwrap_or(now);
    if let Some(contender) = wanted.contenders.first().cloned() {
        hand_over(&mut wanted, contender, Time(second));
        let line = RecordChange {
            holder: Some(wanted.cluster.clone()),
            ..block_line(entry, record, RecordAction::HandedOver)
        };
        return Change {
            entry: Arc::clone(entry),
            wanted: Some(Record::Block(wanted)),
            line,
        };
    }
    Change {
        entry: Arc::clone(entry),
        wanted: None,
        line: block_line(entry, record, RecordAction::Freed),
    }
}

/// The cluster uses no address of a block of another one any more.
fn withdrawal(entry: &Arc<Entry>, record: &BlockRecord, cluster: &str) -> Option<Change> {
    let mut wanted = record.clone();
    wanted.contenders.retain(|id| id != cluster);
    if wanted == *record {
        return None;
    }
    let line = RecordChange {
        holder: Some(record.cluster.clone()),
        ..block_line(entry, record, RecordAction::Withdrawn)
    };
    Some(Change {
        entry: Arc::clone(entry),
        wanted: Some(Record::Block(wanted)),
        line,
    })
}

impl Plan {
    /// The line for the record of the cluster, which is deleted last.
    pub(crate) fn last_line(&self) -> Option<RecordChange> {
        let entry = self.cluster.as_deref()?;
        Some(line(entry, RecordAction::ClusterDeleted))
    }

    /// All lines, in the order of the writes.
    pub(crate) fn lines(&self) -> Vec<RecordChange> {
        let mut lines: Vec<RecordChange> = Vec::new();
        for change in &self.changes {
            lines.push(change.line.clone());
        }
        lines.extend(self.last_line());
        lines
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::registry::tests::{NOW, entries, now};

    fn planned(records: &[(&str, Value)], cluster: &str) -> Result<Vec<RecordChange>, Refusal> {
        plan(&entries(records), cluster, "west", now()).map(|plan| plan.lines())
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
        let alive = [("cluster.east", cluster("east", "2026-01-05T02:54:05Z"))];
        let refusal = planned(&alive, "east").unwrap_err();
        assert!(matches!(refusal, Refusal::Alive { .. }), "{refusal}");
        let late = [("cluster.east", cluster("east", "2026-01-05T09:00:00Z"))];
        assert!(planned(&late, "east").is_err(), "by a clock that is ahead");
        let unreadable = [("cluster.east", json!({"cluster": "other"}))];
        let refusal = planned(&unreadable, "east").unwrap_err();
        assert!(matches!(refusal, Refusal::Unreadable { .. }), "{refusal}");
        let own = [("cluster.west", cluster("west", OLD))];
        let refusal = planned(&own, "west").unwrap_err();
        assert!(matches!(refusal, Refusal::Own { .. }), "{refusal}");
        let refusal = planned(&own, "east").unwrap_err();
        assert!(matches!(refusal, Refusal::NotFound { .. }), "{refusal}");
        let gone = [("cluster.east", cluster("east", OLD))];
        let lines = planned(&gone, "east").unwrap();
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
        let wanted: Vec<_> = plan.changes.iter().map(|it| &it.wanted).collect();
        assert!(wanted[0].is_none());
        let Some(Record::Block(handed_over)) = wanted[1] else {
            panic!("{wanted:?}")
        };
        assert_eq!(
            (handed_over.cluster.as_str(), &*handed_over.contenders),
            ("north", &["west".to_owned()][..])
        );
        let Some(Record::Block(other)) = wanted[2] else {
            panic!("{wanted:?}")
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
            adoption(&records, "west", uid, now()).map(|plan| plan.changes)
        };
        let changes = adopted(cluster("west", "2026-01-01T00:00:00Z"), "a").unwrap();
        let Some(Record::Cluster(record)) = &changes[0].wanted else {
            panic!("{changes:?}");
        };
        assert_eq!(record.uid.as_deref(), Some("a"));
        assert!(record.seen.is_none(), "it has to show that it is alive");
        let alive = adopted(cluster("west", NOW), "a");
        assert!(matches!(alive, Err(Refusal::Alive { .. })));
        let mut own = cluster("west", NOW);
        own["uid"] = json!("a");
        assert!(matches!(adopted(own, "a"), Err(Refusal::Adopted { .. })));
        let none = adoption(&entries(&[]), "west", "a", now());
        assert!(matches!(none, Err(Refusal::NotFound { .. })));
    }
}
