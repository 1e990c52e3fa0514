//! `registry list`: the registries, the management clusters that use them, and who has how many
//! blocks of each network.

use std::collections::BTreeMap;

use capi_ipam_registry::{Entry, Key, Record, RecordCache};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::block_lines::holders;
use super::facts::RegistryFacts;
use super::liveness::{ClusterState, state, state_by_status};
use crate::objects::{NetworkRow, RegistryRow};

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
    pub state: RegistryState,
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

/// The state of a registry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RegistryState {
    /// Status of the condition Ready: `True`, `False` or `Unknown`.
    pub ready: String,
    /// Why the registry is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Details of the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl RegistryState {
    /// The state that the manager has reported; `None` for a registry that is not known.
    pub(super) fn of(row: Option<&RegistryRow>) -> Self {
        let ready = row.and_then(RegistryRow::ready);
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
    let (clusters, networks, problems) = match &facts.records {
        Ok(records) => (
            clusters_of_records(records, facts.cluster.as_deref(), now),
            networks_of_records(records, facts, &own),
            records
                .problems()
                .iter()
                .filter_map(|entry| RecordProblem::of(entry))
                .collect(),
        ),
        Err(_) => (
            clusters_of_status(&facts.row, facts.cluster.as_deref(), now),
            own.iter()
                .map(|network| NetworkBlocksLine::of_status(network))
                .collect(),
            Vec::new(),
        ),
    };
    RegistryLine {
        name: row.name.clone(),
        cluster_id: facts.cluster.clone(),
        state: RegistryState::of(Some(row)),
        unread: facts.records.as_ref().err().map(|it| it.reason.clone()),
        clusters,
        networks,
        problems,
    }
}

/// The clusters that have a record, and those that have a block.
pub(super) fn clusters_of_records(
    records: &RecordCache,
    own: Option<&str>,
    now: Timestamp,
) -> Vec<ClusterLine> {
    let mut found: BTreeMap<String, (u64, Option<Timestamp>)> = BTreeMap::new();
    for (id, entry) in records.clusters() {
        let seen = match entry.record() {
            Some(Record::Cluster(record)) => record.seen.as_ref().map(|time| time.0),
            _ => None,
        };
        found.insert(id.into(), (0, seen));
    }
    for entry in records.entries() {
        if let Some(Record::Block(record)) = entry.record()
            && !is_returned(&entry)
        {
            let (blocks, _) = found.entry(record.cluster.clone()).or_default();
            *blocks = blocks.saturating_add(1);
        }
    }
    let mut lines = Vec::new();
    for (cluster, (blocks, last_seen)) in found {
        lines.push(ClusterLine {
            this: own == Some(cluster.as_str()),
            cluster,
            blocks,
            last_seen,
            state: state(last_seen, now),
        });
    }
    lines
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

/// The networks of this management cluster, and those that have a record.
fn networks_of_records(
    records: &RecordCache,
    facts: &RegistryFacts,
    own: &[&NetworkRow],
) -> Vec<NetworkBlocksLine> {
    let cluster = facts.cluster.as_deref();
    let none = || NetworkBlocksLine {
        network: String::new(),
        size: None,
        held: cluster.map(|_| 0),
        spare: None,
        others: cluster.map(|_| 0),
        conflicts: cluster.map(|_| 0),
    };
    let mut lines: BTreeMap<String, NetworkBlocksLine> = BTreeMap::new();
    for network in own {
        lines.insert(network.name.clone(), none());
    }
    for entry in records.entries() {
        match Key::parse(&entry.key) {
            Some(Key::Block { network, .. }) => {
                let line = lines.entry(network.into()).or_insert_with(none);
                line.count(&entry, cluster);
            }
            Some(Key::Network { name }) => {
                lines.entry(name.into()).or_insert_with(none);
            }
            _ => {}
        }
    }
    for (name, line) in &mut lines {
        let row = own.iter().find(|row| row.name == *name);
        let recorded = records.network(name).map(|record| record.size);
        line.network.clone_from(name);
        line.size = recorded.or_else(|| row?.block_size());
        line.spare = match row {
            Some(row) => row.status.blocks.as_ref().map(|it| number(it.spare)),
            None => line.held.filter(|held| *held == 0),
        };
    }
    lines.into_values().collect()
}

impl NetworkBlocksLine {
    /// Counts the record of a block.
    fn count(&mut self, entry: &Entry, own: Option<&str>) {
        let (_, clusters) = holders(Some(entry), own);
        let is_own = own.is_some() && clusters.first().copied() == own;
        if is_own && is_returned(entry) {
            return;
        }
        let is_shared = clusters.len() > 1 && own.is_some_and(|own| clusters.contains(&own));
        let add = |count: &mut Option<u64>| *count = count.map(|it| it.saturating_add(1));
        add(if is_own {
            &mut self.held
        } else {
            &mut self.others
        });
        if is_shared {
            add(&mut self.conflicts);
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
pub(super) fn number(count: i64) -> u64 {
    u64::try_from(count).unwrap_or_default()
}
