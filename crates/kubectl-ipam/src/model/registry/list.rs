//! `registry list`: the registries, the management clusters that use them, and who has how many
//! blocks of each network.

use std::collections::{BTreeMap, BTreeSet};

use capi_ipam_api::LAST_SEEN_PRECISION;
use capi_ipam_provider::api::conditions::Condition;
use capi_ipam_registry::{Entry, Key, Record, RecordCache};
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::Serialize;

use super::block_lines::holders;
use super::facts::RegistryFacts;
use crate::objects::{NetworkRow, RegistryRow};

/// How long after its last sign of life a management cluster counts as alive. It gives one each
/// minute.
pub(crate) const STALE_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// One registry in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegistryLine {
    /// Name of the IPRegistry.
    pub name: String,
    /// Identity of this management cluster; `null` if it is unknown.
    #[serde(rename = "clusterID")]
    pub cluster_id: Option<String>,
    /// Its state.
    #[serde(flatten)]
    pub state: ReadyState,
    /// Why the records of the registry cannot be read. Then clusters and networks are those that the
    /// manager has reported: at most 50 clusters, and the networks of this management cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unread: Option<String>,
    /// The management clusters that use the registry, by identity.
    pub clusters: Vec<ClusterLine>,
    /// The networks that share blocks, by name.
    pub networks: Vec<NetworkBlocksLine>,
    /// What is not a record, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<RecordProblem>,
}

/// Whether a registry or a network is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReadyState {
    /// Status of the condition Ready: `True`, `False` or `Unknown`.
    pub ready: String,
    /// Why it is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Details of the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl ReadyState {
    /// The state that the manager has reported with the condition Ready.
    pub(crate) fn of(ready: Option<&Condition>) -> Self {
        let problem = ready.filter(|ready| ready.status != "True");
        let text = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
        Self {
            ready: ready.map_or_else(|| "Unknown".to_owned(), |ready| ready.status.to_string()),
            reason: problem.and_then(|problem| text(problem.reason.as_deref())),
            message: problem.and_then(|problem| text(problem.message.as_deref())),
        }
    }
}

/// A management cluster that uses a registry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterLine {
    /// Identity of the management cluster.
    pub cluster: String,
    /// Whether it is this one.
    pub this: bool,
    /// Number of its blocks.
    pub blocks: u64,
    /// Time of its last sign of life, which it gives each minute. From the status of the registry,
    /// it is rounded down to 10 minutes. `null` if it is unknown.
    pub last_seen: Option<Timestamp>,
    /// Whether it is alive.
    pub state: ClusterState,
}

/// The blocks of a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkBlocksLine {
    /// Name of the network.
    pub network: String,
    /// Number of addresses or prefixes of a block; `null` if it is unknown.
    pub size: Option<u64>,
    /// Blocks of this management cluster; `null` if it is unknown.
    pub held: Option<u64>,
    /// Those without an address in use, as the manager has reported them; `null` if it is unknown.
    pub spare: Option<u64>,
    /// Blocks of other management clusters, and those whose record cannot be decoded; `null` if it
    /// is unknown.
    pub others: Option<u64>,
    /// Blocks that this management cluster and another one use; `null` if it is unknown.
    pub conflicts: Option<u64>,
}

/// Something in a registry that is not a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordProblem {
    /// Its name.
    pub record: String,
    /// What is wrong.
    pub problem: String,
}

impl RecordProblem {
    /// What is wrong with an entry; `None` for a record.
    pub(super) fn of(entry: &Entry) -> Option<Self> {
        let problem = entry.problem()?;
        Some(Self {
            record: entry.key.clone(),
            problem: problem.to_string(),
        })
    }
}

/// Returns the lines of all registries.
pub(crate) fn registry_lines(
    registries: &[RegistryFacts],
    networks: &[&NetworkRow],
    now: Timestamp,
) -> Vec<RegistryLine> {
    let mut lines = Vec::new();
    for facts in registries {
        lines.push(line(facts, networks, now));
    }
    lines
}

fn line(facts: &RegistryFacts, networks: &[&NetworkRow], now: Timestamp) -> RegistryLine {
    let row = &facts.row;
    let mut own = networks.to_vec();
    own.retain(|network| network.registry() == Some(row.name.as_str()));
    let mut line = RegistryLine {
        name: row.name.clone(),
        cluster_id: facts.cluster.clone(),
        state: ReadyState::of(row.ready()),
        unread: None,
        clusters: clusters_of(facts, now),
        networks: Vec::new(),
        problems: Vec::new(),
    };
    match &facts.records {
        Ok(records) => {
            line.networks = networks_of_records(records, facts.cluster.as_deref(), &own);
            let problems = records.problems();
            line.problems
                .extend(problems.iter().filter_map(|it| RecordProblem::of(it)));
        }
        Err(unread) => {
            line.unread = Some(unread.reason.clone());
            line.networks
                .extend(own.into_iter().map(NetworkBlocksLine::of_status));
        }
    }
    line
}

/// The management clusters that use a registry.
pub(crate) fn clusters_of(facts: &RegistryFacts, now: Timestamp) -> Vec<ClusterLine> {
    let own = facts.cluster.as_deref();
    match &facts.records {
        Ok(records) => clusters_of_records(records, own, now),
        Err(_) => clusters_of_status(&facts.row, own, now),
    }
}

/// The clusters that have a record, and those that have a block.
pub(super) fn clusters_of_records(
    records: &RecordCache,
    own: Option<&str>,
    now: Timestamp,
) -> Vec<ClusterLine> {
    let mut found: BTreeMap<String, ClusterLine> = BTreeMap::new();
    let line = |cluster: &str, last_seen: Option<Timestamp>| ClusterLine {
        cluster: cluster.to_owned(),
        this: own == Some(cluster),
        blocks: 0,
        last_seen,
        state: state(last_seen, now),
    };
    for (id, entry) in records.clusters() {
        let seen = match entry.record() {
            Some(Record::Cluster(record)) => record.seen.as_ref().map(|time| time.0),
            _ => None,
        };
        found.insert(id.to_string(), line(&id, seen));
    }
    for entry in records.entries() {
        if let Some(Record::Block(record)) = entry.record()
            && record.returned_at.is_none()
        {
            let cluster = &record.cluster;
            let entry = found.entry(cluster.clone());
            let line = entry.or_insert_with(|| line(cluster, None));
            line.blocks += 1;
        }
    }
    found.into_values().collect()
}

/// The clusters that the manager has reported.
pub(super) fn clusters_of_status(
    row: &RegistryRow,
    own: Option<&str>,
    now: Timestamp,
) -> Vec<ClusterLine> {
    let mut lines = Vec::new();
    for cluster in &row.status.clusters {
        let last_seen = cluster.last_seen.as_ref().map(|time| time.0);
        lines.push(ClusterLine {
            cluster: cluster.id.clone(),
            this: own == Some(cluster.id.as_str()),
            blocks: number(cluster.blocks),
            last_seen,
            state: state_by_status(last_seen, now),
        });
    }
    lines
}

/// The networks of this management cluster, and those that have a record. `own` is the identity of
/// this one, if it is known.
fn networks_of_records(
    records: &RecordCache,
    own: Option<&str>,
    networks: &[&NetworkRow],
) -> Vec<NetworkBlocksLine> {
    let mut names: BTreeSet<String> = networks.iter().map(|row| row.name.clone()).collect();
    for entry in records.entries() {
        if let Some(Key::Block { network, .. } | Key::Network { name: network }) =
            Key::parse(&entry.key)
        {
            names.insert(network.into());
        }
    }
    let mut lines = Vec::new();
    for name in names {
        let row = networks.iter().find(|row| row.name == name).copied();
        lines.push(NetworkBlocksLine::of_records(name, row, records, own));
    }
    lines
}

impl NetworkBlocksLine {
    /// The blocks that have a record.
    fn of_records(
        network: String,
        row: Option<&NetworkRow>,
        records: &RecordCache,
        own: Option<&str>,
    ) -> Self {
        let (mut held, mut others, mut conflicts) = (0, 0, 0);
        for (_, entry) in records.blocks(&network) {
            let (_, clusters) = holders(Some(&entry), own);
            let is_own = own.is_some() && clusters.first().copied() == own;
            let is_used_here = own.is_some_and(|own| clusters.contains(&own));
            if is_own && is_returned(&entry) {
                continue;
            }
            if is_own {
                held += 1;
            } else {
                others += 1;
            }
            if is_used_here && clusters.len() > 1 {
                conflicts += 1;
            }
        }
        let recorded = records.network(&network).map(|record| record.size);
        let known = |count: u64| own.map(|_| count);
        Self {
            network,
            size: recorded.or_else(|| row?.block_size()),
            held: known(held),
            spare: match row {
                Some(row) => row.status.blocks.as_ref().map(|it| number(it.spare)),
                None => known(held).filter(|held| *held == 0),
            },
            others: known(others),
            conflicts: known(conflicts),
        }
    }

    /// The blocks that the manager has reported.
    pub(super) fn of_status(row: &NetworkRow) -> Self {
        let blocks = row.status.blocks.as_ref();
        Self {
            network: row.name.clone(),
            size: row.block_size(),
            held: blocks.map(|it| number(it.held)),
            spare: blocks.map(|it| number(it.spare)),
            others: blocks.map(|it| number(it.others)),
            conflicts: blocks.map(|it| number(it.conflicts)),
        }
    }
}

/// Whether a block was returned.
fn is_returned(entry: &Entry) -> bool {
    match entry.record() {
        Some(Record::Block(record)) => record.returned_at.is_some(),
        _ => false,
    }
}

/// A number of a status.
pub(crate) fn number(count: i64) -> u64 {
    u64::try_from(count).unwrap_or_default()
}

/// Whether a management cluster is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub enum ClusterState {
    /// It was seen in the last 10 minutes.
    Alive,
    /// It was not.
    Stale,
    /// It is not known when it was seen.
    Unknown,
}

/// The state of a management cluster that was last seen at this time. By a clock that is late, that
/// can be in the future.
pub(super) fn state(seen: Option<Timestamp>, now: Timestamp) -> ClusterState {
    match seen {
        None => ClusterState::Unknown,
        Some(seen) if now.duration_since(seen) > STALE_AFTER => ClusterState::Stale,
        Some(_) => ClusterState::Alive,
    }
}

/// As [`state`], by the time in the status of a registry, which is rounded down.
pub(super) fn state_by_status(rounded: Option<Timestamp>, now: Timestamp) -> ClusterState {
    let precision = SignedDuration::from_secs(LAST_SEEN_PRECISION);
    // The latest time that is rounded to this one.
    let latest = rounded.and_then(|time| time.checked_add(precision).ok());
    state(latest, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_is_stale_ten_minutes_after_its_last_sign_of_life() {
        let now: Timestamp = "2026-01-05T03:34:05Z".parse().unwrap();
        let ago = |seconds| now.checked_sub(SignedDuration::from_secs(seconds)).ok();
        assert_eq!(state(None, now), ClusterState::Unknown);
        for (seconds, expected) in [
            (-60, ClusterState::Alive),
            (600, ClusterState::Alive),
            (601, ClusterState::Stale),
        ] {
            assert_eq!(state(ago(seconds), now), expected, "{seconds}");
            // Up to ten minutes more have been cut off.
            assert_eq!(state_by_status(ago(seconds + 600), now), expected);
        }
    }
}
